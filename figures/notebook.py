"""Figures as objects: in a notebook, in a Panel app, in a program.

    from figures import roofline
    figure = roofline(k=5, lang="en")
    figure            # the last line of a cell shows it
    figure.k = 8      # and what it shows follows; when a reader drags, figure.k follows

What is shown is an `<iframe>` that holds all of the figure, so that a notebook that is saved or
turned into HTML keeps it, and its styles and the notebook's do not mix. While a program is there,
the frame and the object keep each other's values (`export/joined.js` inside the frame,
`export/host.js` outside): in a notebook over anywidget, in a Panel app over Panel. anywidget is an
extra, `notebook`; without it notebooks show the figure and nothing passes between it and Python.
"""

from __future__ import annotations

import html
import secrets
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import content
import figures
from figures.export.contract import bounds, parameters
from figures.export.standalone import CONTROLS, THEMES, standalone
from figures.figure import Figure, clamp

HOST = Path(__file__).parent / "export" / "host.js"
#: Before a parameter's name in the hosts' models, which have names of their own (`close`).
PREFIX = "sd_"
#: Height of a frame in CSS pixels until its figure has told its own.
HEIGHT = 560
OPTIONS: dict[str, tuple[str, ...]] = {
    "lang": content.LANGUAGES,
    "theme": THEMES,
    "controls": CONTROLS,
}
NO_ANYWIDGET = (
    "anywidget is not installed: the figure works, but its parameters in Python do not follow it, "
    "nor it them. To join them: pip install anywidget, then restart the kernel and reload the page."
)


class Shown(Figure):
    """A figure that shows itself; its parameters are attributes.

    Attributes:
        lang: language of its words; like `theme` and `controls`, read whenever it is shown anew.
        theme: "light", "dark", or "auto": as what it stands on.
        controls: "all"; "few", without guess, puzzle and links; "none", the stage alone.
    """

    lang: str
    theme: str
    controls: str

    def __init__(
        self, *, lang: str = "en", theme: str = "auto", controls: str = "all", **state: Any
    ) -> None:
        """Make the figure.

        Raises:
            ValueError: a value is out of its parameter's bounds, or an option is unknown.
            TypeError: the figure has no such parameter.
        """
        for name in state:
            if name not in _public(self.id):
                raise TypeError(_unknown(self.id, name))
        self._token = secrets.token_hex(8)
        self._link: Any = None
        self.lang, self.theme, self.controls = lang, theme, controls
        super().__init__()
        for name, value in state.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a parameter or an option.

        Raises:
            ValueError: the value is not allowed.
            AttributeError: there is no such parameter.
        """
        if name in OPTIONS:
            if value not in OPTIONS[name]:
                raise ValueError(f"{name} {value!r} is none of {', '.join(OPTIONS[name])}")
        elif entry := _public(self.id).get(name):
            longest = entry.get("maxLength")
            if longest is not None and isinstance(value, str) and len(value) > longest:
                raise ValueError(f"{self.id}.{name} takes {bounds(entry)}, not {len(value)}")
        elif not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(_unknown(self.id, name))
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        """Return a call that makes this figure again."""
        values = {n: v for n, v in self.state().items() if v != self.param[n].default}
        shown = ", ".join(f"{n}={v!r}" for n, v in (values | {"lang": self.lang}).items())
        return f"{self.id}({shown})"

    __str__ = __repr__

    def state(self) -> dict[str, Any]:
        """Return name → value of all parameters."""
        return {name: getattr(self, name) for name in _public(self.id)}

    def html(self) -> str:
        """Return an `<iframe>` that holds all of the figure, in its present state."""
        page = standalone(
            self.id,
            lang=self.lang,
            theme=self.theme,
            controls=self.controls,
            state=self.state(),
            joined=True,
        )
        title = html.escape(self.words(self.lang)["title"])
        return (
            f'<iframe data-sd="{self._token}" title="{title}" srcdoc="{html.escape(page)}"'
            f' style="display:block;width:100%;height:{HEIGHT}px;border:0"></iframe>'
        )

    def take(self, name: str, value: Any) -> None:
        """Set a parameter to what the figure's reader has chosen, brought into its bounds."""
        kept, _ = clamp(_public(self.id)[name], value)
        setattr(self, name, kept)

    # --- what notebooks and Panel ask for -------------------------------------------------------

    def _repr_html_(self) -> str:
        if self._link is None and _in_kernel():
            try:
                import anywidget  # noqa: F401
            except ImportError:
                warnings.warn(NO_ANYWIDGET, stacklevel=2)
            else:
                self._link = _notebook_link(self, self._token)
        return self.html()

    def __panel__(self) -> Any:
        """Return the figure as a Panel component."""
        return _panel_component(self)

    def servable(self, *arguments: Any, **options: Any) -> Any:
        """Show the figure in the Panel app being served; takes what Panel's `servable` takes."""
        return self.__panel__().servable(*arguments, **options)


@cache
def _public(figure_id: str) -> dict[str, dict[str, Any]]:
    return parameters(figures.get(figure_id))


def _unknown(figure_id: str, name: str) -> str:
    return (
        f"{figure_id} has no parameter {name!r}; it has {', '.join(sorted(_public(figure_id)))}, "
        f"and the options {', '.join(OPTIONS)}"
    )


def _in_kernel() -> bool:
    """Is there a page that shows what this interpreter displays?"""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _source(export: str) -> str:
    return f"{HOST.read_text(encoding='utf-8')}\nexport default {{ {export} }};\n"


def _bind(figure: Shown, other: Any, watch: Callable[[Callable[[str, Any], None]], None]) -> None:
    """Keep the parameters of `figure` and the prefixed values of `other` the same.

    Args:
        figure: the figure.
        other: a host's model.
        watch: makes the host call a function with name and value whenever one of them changes.
    """

    def set_other(event: Any) -> None:
        setattr(other, PREFIX + event.name, event.new)

    figure.param.watch(set_other, list(_public(figure.id)))
    watch(lambda name, value: figure.take(name.removeprefix(PREFIX), value))


def _notebook_link(figure: Shown, token: str) -> Any:
    """Return the kernel's end of the line to the frames that carry `token`."""
    import anywidget
    import traitlets

    names = list(_public(figure.id))
    members: dict[str, Any] = {
        PREFIX + name: traitlets.Any(getattr(figure, name)).tag(sync=True) for name in names
    }
    members |= {
        "_esm": _source("initialize"),
        "token": traitlets.Unicode(token).tag(sync=True),
        "names": traitlets.List(names).tag(sync=True),
    }
    link = type(f"Link{type(figure).__name__}", (anywidget.AnyWidget,), members)()
    prefixed = [PREFIX + name for name in names]
    _bind(
        figure,
        link,
        lambda hear: link.observe(lambda change: hear(change["name"], change["new"]), prefixed),
    )
    return link


def _panel_component(figure: Shown) -> Any:
    """Return a Panel component that shows the figure and keeps its values."""
    import param
    from panel.custom import JSComponent

    names = list(_public(figure.id))
    members: dict[str, Any] = {
        PREFIX + name: param.Parameter(getattr(figure, name)) for name in names
    }
    members |= {
        "_esm": _source("render"),
        "frame_html": param.String(figure.html()),
        "names": param.List(names),
    }
    kind = type(f"Panel{type(figure).__name__}", (JSComponent,), members)
    component = kind(sizing_mode="stretch_width")
    prefixed = [PREFIX + name for name in names]
    _bind(
        figure,
        component,
        lambda hear: component.param.watch(lambda event: hear(event.name, event.new), prefixed),
    )
    return component


@cache
def _kind(figure_id: str) -> type[Shown]:
    figure = figures.get(figure_id)
    return type(figure.__name__, (Shown, figure), {"__doc__": figure.__doc__})


def show(figure_id: str, **options: Any) -> Shown:
    """Return a figure that shows itself, in the state and with the options of `Shown`."""
    return _kind(figure_id)(**options)
