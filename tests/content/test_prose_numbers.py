"""No number stands in the prose that `numbers.toml` does not know."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import content

#: Names with digits: devices, formats, the size of a model in its name, the level of a cache.
NAMES = r"\b(?:H100|BF16|FP32|M[23] (?:Ultra|Max)|[\d.]+B\b|level-2)"
#: "figure 1", "part 2", "图 1": places in the article, checked by content/markup.py.
PLACES = r"(?:[Ff]igure|[Pp]art|图) \d+"
#: Items of a list, and the m of a row.
ROWS = r"^\d+\. |^\| \d+ \|"
#: Numbers that count or bound something in the sentence itself: no constant of the world.
COUNTS = {"0", "1", "2"}
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")


def prose(lang: str) -> list[Path]:
    """The files of the article."""
    return sorted(content.words.folder(lang).glob("[0-9]*.md"))


def plain(text: str) -> str:
    """The words alone: no mathematics, no addresses, no names with digits."""
    text = re.sub(
        r"\$\$.*?\$\$ \([\w-]+\)|\$\$.*?\$\$|\$[^$]+\$|`[^`]*`", " ", text, flags=re.DOTALL
    )
    text = re.sub(r"\[@[^\]]*\]|\{[^}]*\}", " ", text)
    text = re.sub(r"\[([^\]]*)\]\((?!num:)[^)]*\)", r"\1", text)
    return re.sub(rf"{NAMES}|{PLACES}|{ROWS}", " ", text, flags=re.MULTILINE)


def digits(text: str) -> set[str]:
    """The numbers in a text, without the separators of thousands."""
    return {match[0].replace(",", "") for match in NUMBER.finditer(text)}


@cache
def stated(lang: str) -> frozenset[str]:
    """Every number that the text of a language links to its source."""
    found = set()
    for path in prose(lang):
        for match in re.finditer(r"\[([^\]]*)\]\(num:", path.read_text("utf-8")):
            found |= digits(match[1])
    return frozenset(found)


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_article(lang: str) -> None:
    unknown = []
    for path in prose(lang):
        text = re.sub(r"\[[^\]]*\]\(num:[^)]*\)", " ", plain(path.read_text("utf-8")))
        # What is said again need not be linked again.
        unknown += [f"{path.name}: {n}" for n in sorted(digits(text) - stated(lang) - COUNTS)]
    assert unknown == []
