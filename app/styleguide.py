"""The style guide: design tokens as `tokens.css` defines them, for the page that shows them all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import figures

TOKENS = Path(figures.__file__).parent / "web" / "tokens.css"
_TOKEN = re.compile(r"^  --sd-(?P<name>[\w-]+): (?P<value>[^;]+);", re.MULTILINE)
_PAIR = re.compile(r"^light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)$")


@dataclass(frozen=True)
class Colour:
    """A colour token. name: without `--sd-`; light, dark: "#rrggbb"."""

    name: str
    light: str
    dark: str

    @property
    def meaning(self) -> str:
        """What it stands for: "target" for `target`, `target-ink` and `target-soft`."""
        return self.name.removesuffix("-ink").removesuffix("-soft")


@cache
def tokens() -> dict[str, str]:
    """Return every token as it is written: name without `--sd-` → value."""
    css = TOKENS.read_text(encoding="utf-8")
    return {m["name"]: " ".join(m["value"].split()) for m in _TOKEN.finditer(css)}


@cache
def colours() -> tuple[Colour, ...]:
    """Return the tokens that are colours, in the order of the file."""
    pairs = ((name, _PAIR.match(value)) for name, value in tokens().items())
    return tuple(Colour(name, pair[1], pair[2]) for name, pair in pairs if pair)


def meanings() -> list[tuple[str, list[str]]]:
    """Return what colours stand for, with their tokens: ("target", ["target", "target-ink", …])."""
    return [
        (meaning, [colour.name for colour in group])
        for meaning, group in groupby(colours(), key=lambda colour: colour.meaning)
    ]


def named(*starts: str) -> list[str]:
    """Return the tokens whose names begin with one of these."""
    return [name for name in tokens() if name.startswith(starts)]


def luminance(colour: str) -> float:
    """Return the relative luminance of "#rrggbb", 0 to 1 (WCAG 2.2)."""
    linear = []
    for place in (1, 3, 5):
        x = int(colour[place : place + 2], 16) / 255
        linear.append(x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours "#rrggbb", 1 to 21 (WCAG 2.2)."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
