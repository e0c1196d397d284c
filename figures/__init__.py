"""The figures of the article: an explicit registry, id → class, in the order they appear.

A figure's package makes the figure when it is called, for notebooks and Panel apps:
`from figures import roofline; roofline(k=5)` (figures/notebook.py).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from figures.figure import Figure

if TYPE_CHECKING:
    from figures.notebook import Shown

#: Every figure, in the order of the article.
IDS: tuple[str, ...] = (
    "roofline",
    "tiles",
    "branch",
    "mask",
    "race",
    "accept",
    "lossless",
    "speedup",
)


def get(figure_id: str) -> type[Figure]:
    """Return the class of a figure.

    Raises:
        KeyError: no figure has this id.
    """
    if figure_id not in IDS:
        raise KeyError(figure_id)
    figure: type[Figure] = import_module(f"figures.{figure_id}.figure").FIGURE
    return figure


def every() -> list[type[Figure]]:
    """Return all figures in the order of the article."""
    return [get(figure_id) for figure_id in IDS]


class _Package(ModuleType):
    """The package of a figure."""

    def __call__(self, **options: Any) -> Shown:
        """Return the figure as an object that shows itself, with these parameters and options."""
        from figures.notebook import show  # what it needs is not light

        return show(self.__name__.rpartition(".")[2], **options)


for _id in IDS:
    import_module(f"figures.{_id}").__class__ = _Package
