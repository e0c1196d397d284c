"""What may enter the room: a teacher's messages are held against the figures themselves."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import figures
from figures.figure import clamp

#: A stop of the article: the id of a heading or a figure. Pages look it up, and write it nowhere.
STOP = re.compile(r"[A-Za-z][\w-]{0,63}")
#: Larger numbers mean nothing to any figure, and would not fit a double.
LARGEST = 1e12
#: The one piece of private state that a class shares: where an animation stands.
TIME = "t"
#: Where a race comes from is each page's own choice: not every page may hold a line to the engine.
OWN = {("race", "mode")}

State = dict[str, Any]
Place = dict[str, Any]


def place(value: Any) -> Place | None:
    """Return where the teacher is, ``{"stop": id, "share": 0 … 1}``; None for anything else.

    share: how much of the stop is above the screen.
    """
    if not isinstance(value, dict):
        return None
    stop, share = value.get("stop"), value.get("share", 0)
    if not isinstance(stop, str) or not STOP.fullmatch(stop) or not _number(share):
        return None
    return {"stop": stop, "share": min(1.0, max(0.0, float(share)))}


def state(figure_id: Any, value: Any) -> State | None:
    """Return a figure's state brought into its schema, or None if there is no such figure.

    Names that the figure does not have, and values of another kind, are left out.
    """
    if (
        not isinstance(figure_id, str)
        or figure_id not in figures.IDS
        or not isinstance(value, dict)
    ):
        return None
    schema = _schema(figure_id)
    kept: State = {}
    for name, entry in schema.items():
        if name not in value:
            continue
        given = value[name]
        if name == TIME and entry.get("private"):
            if given is None or _number(given):
                kept[name] = given
        elif not entry.get("private") and _fits(entry["type"], given):
            kept[name] = clamp(entry, given)[0]
    return kept


def option(figure_id: Any, value: Any) -> bool:
    """Whether `value` is the number of an option of that figure's bet, from 0."""
    return (
        isinstance(figure_id, str)
        and figure_id in figures.IDS
        and type(value) is int
        and 0 <= value < options(figure_id)
    )


@cache
def options(figure_id: str) -> int:
    """Return how many options a figure's bet has."""
    words = figures.get(figure_id).words("en")
    return sum(re.fullmatch(r"bet\.option\.\d+", key) is not None for key in words)


@cache
def _schema(figure_id: str) -> dict[str, dict[str, Any]]:
    schema = figures.get(figure_id).schema()
    return {name: entry for name, entry in schema.items() if (figure_id, name) not in OWN}


def _fits(kind: str, value: Any) -> bool:
    match kind:
        case "integer" | "number":
            return _number(value)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str)


def _number(value: Any) -> bool:
    """Whether `value` is a number that a figure could hold: nan and infinities compare false."""
    return type(value) in (int, float) and abs(value) <= LARGEST
