"""The figures of the article: an explicit registry, id → class, in the order they appear."""

from __future__ import annotations

from importlib import import_module

from figures.figure import Figure

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
