"""The contract of a figure, and what the page needs to know of one.

A figure is a folder with `model.py` (the arithmetic), `figure.py` (a subclass of `Figure`:
parameters, words for screen readers, a table), `view.js` (what the reader sees) and, where
quantities have axes, `chart.py` (a Bokeh chart). Everything here is free of torch.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import param

import content

HERE = Path(__file__).parent


class Figure(param.Parameterized):
    """One figure: its parameters are the state that a reader, a link or a program may set.

    Subclasses set `id`, declare `param` parameters (each with bounds and `doc`), and give
    `describe` and `table`. What is named in `private` belongs to the view (a player's time):
    never in a link.
    """

    id: ClassVar[str]
    #: Index of the right option of the bet, or None where only a run can tell.
    bet_answer: ClassVar[int | None] = None
    #: Unit of a parameter, in words of the field ("tokens", "FLOP/s").
    units: ClassVar[dict[str, str]] = {}
    #: State of the view alone: name → default value.
    private: ClassVar[dict[str, Any]] = {}

    # --- what a subclass gives ------------------------------------------------------------------

    def describe(self, lang: str) -> str:
        """Return one or two sentences that say what the figure shows in its present state."""
        raise NotImplementedError

    def table(self, lang: str) -> list[list[str]]:
        """Return the numbers of the present state as rows of text; the first row is the head."""
        raise NotImplementedError

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return what the view needs besides its state: presets, constants. JSON-able, small."""
        return {}

    @classmethod
    def chart(cls, lang: str) -> dict[str, Any] | None:
        """Return the Bokeh `json_item` of the figure's chart, or None where it has none."""
        return None

    # --- what follows from it -------------------------------------------------------------------

    @classmethod
    def folder(cls) -> Path:
        """Return the folder of the figure."""
        return HERE / cls.id

    @classmethod
    def schema(cls) -> dict[str, dict[str, Any]]:
        """Return name → type, default, bounds, step, choices, unit, doc: what a model may hold."""
        entries = {
            name: _entry(parameter) | ({"unit": cls.units[name]} if name in cls.units else {})
            for name, parameter in cls.param.objects("existing").items()
            if name != "name"
        }
        views = {"bet": -1, "solved": False} | cls.private
        for name, default in views.items():
            kept = name in ("bet", "solved")
            entries[name] = {"type": "any", "default": default, "private": True, "keep": kept}
        return entries

    @classmethod
    def records(cls) -> dict[str, Path]:
        """Return the measured data that the figure ships: file stem → path."""
        return {p.stem: p for p in sorted((cls.folder() / "recorded").glob("*.json"))}

    @classmethod
    def words(cls, lang: str) -> dict[str, str]:
        """Return the figure's own words, without the prefix, and the interface's (`ui.…`)."""
        prefix = f"figure.{cls.id}."
        every = content.strings(lang)
        own = {k.removeprefix(prefix): v for k, v in every.items() if k.startswith(prefix)}
        return own | {k: v for k, v in every.items() if k.startswith("ui.")}

    @classmethod
    def spec(cls, lang: str, *, base: str) -> dict[str, Any]:
        """Return all that `web/mount.js` needs, with addresses under `base` (no trailing slash).

        The interface's words (`ui.…`) are left out: a page adds them once for all its figures.
        """
        own = {k: v for k, v in cls.words(lang).items() if not k.startswith("ui.")}
        return {
            "id": cls.id,
            "lang": lang,
            "view": f"{base}/figures/{cls.id}/view.js",
            "schema": cls.schema(),
            "strings": own,
            "data": cls.data(),
            "records": {
                k: f"{base}/figures/{cls.id}/recorded/{p.name}" for k, p in cls.records().items()
            },
            "betAnswer": cls.bet_answer,
        }

    @classmethod
    def parse(cls, query: dict[str, str]) -> tuple[Figure, list[str]]:
        """Make a figure from URL parameters (`roofline.k=5`), and name those that were clamped.

        Unknown names are ignored; a value out of range is brought to the nearest allowed one,
        as the browser's `clampTo` does.
        """
        schema = cls.schema()
        values: dict[str, Any] = {}
        clamped: list[str] = []
        for key, text in query.items():
            figure, _, name = key.partition(".")
            entry = schema.get(name)
            if figure != cls.id or entry is None or entry.get("private"):
                continue
            values[name], changed = clamp(entry, text)
            if changed:
                clamped.append(name)
        return cls(**values), clamped


def _entry(parameter: param.Parameter) -> dict[str, Any]:
    """Translate one `param` parameter into a schema entry."""
    entry: dict[str, Any] = {"default": parameter.default, "doc": parameter.doc or ""}
    match parameter:
        case param.Integer() | param.Number():
            entry["type"] = "integer" if isinstance(parameter, param.Integer) else "number"
            low, high = parameter.bounds or (None, None)
            entry |= {k: v for k, v in (("min", low), ("max", high)) if v is not None}
            if parameter.step is not None:
                entry["step"] = parameter.step
        case param.Boolean():
            entry["type"] = "boolean"
        case param.Selector():
            entry |= {"type": "choice", "choices": list(parameter.objects)}
        case param.String():
            entry |= {"type": "text", "maxLength": 2000}
        case _:
            raise TypeError(f"a figure cannot hold a {type(parameter).__name__}")
    return entry


def clamp(entry: dict[str, Any], value: Any) -> tuple[Any, bool]:
    """Bring `value` into what a schema entry allows; True when it had to be changed."""
    match entry["type"]:
        case "integer" | "number":
            try:
                number = float(value)
            except (TypeError, ValueError):
                return entry["default"], True
            if number != number or number in (float("inf"), float("-inf")):
                return entry["default"], True
            # floor(x + 0.5), as JavaScript's Math.round: Python's round goes to the even neighbour.
            kept = float(math.floor(number + 0.5)) if entry["type"] == "integer" else number
            kept = min(entry.get("max", kept), max(entry.get("min", kept), kept))
            return (int(kept) if entry["type"] == "integer" else kept), kept != number
        case "boolean":
            if value in (True, "true", "1"):
                return True, False
            if value in (False, "false", "0"):
                return False, False
            return entry["default"], True
        case "choice":
            return (value, False) if value in entry["choices"] else (entry["default"], True)
        case "text":
            text = str(value)
            return text[: entry["maxLength"]], len(text) > entry["maxLength"]
        case _:
            return value, False


@cache
def import_map(base: str) -> str:
    """Return the import map that gives views the shared modules: `#sd/dom.js` and the others."""
    return json.dumps({"imports": {"#sd/": f"{base}/figures/web/"}})
