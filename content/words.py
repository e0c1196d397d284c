"""Every word that is not prose: interface, figures, glossary and the names of the numbers.

All of them live in TOML files under ``content/<lang>/`` and come out of one flat dictionary:

==============================  ==================================
file                            keys
==============================  ==================================
``interface.toml``              ``page.title``, ``ui.play``, …
``figures/<id>.toml``           ``figure.<id>.title``, …
``glossary.toml``               ``term.<id>.term``, ``term.<id>.definition``
``numbers.toml``                ``number.<key>`` (what the number is)
``quiz.toml``                   ``quiz.1.question``, …
``classroom.toml``              ``class.student.label``, …
==============================  ==================================
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from content.errors import ROOT, ContentError

LANGUAGES: tuple[str, ...] = ("zh", "en")
_TAGS = {"zh": "zh-CN"}


class Strings(dict[str, str]):
    """A flat ``key → text`` dictionary that names the language when a key is missing."""

    def __init__(self, lang: str, items: dict[str, str]) -> None:
        super().__init__(items)
        self.lang = lang

    def __missing__(self, key: str) -> str:
        raise ContentError(ROOT / self.lang, f"no string named {key!r}")


def tag(lang: str) -> str:
    """The BCP 47 tag of a language of ours, as in a page's ``lang`` attribute."""
    return _TAGS.get(lang, lang)


def folder(lang: str) -> Path:
    """The folder of one language.

    Raises:
        ValueError: ``lang`` is not one of ``LANGUAGES``.
    """
    if lang not in LANGUAGES:
        raise ValueError(f"unknown language {lang!r}; there are {', '.join(LANGUAGES)}")
    return ROOT / lang


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file of ours.

    Raises:
        ContentError: the file is missing or is not TOML (the parser's message gives the line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ContentError(path, "the file is missing") from None
    except tomllib.TOMLDecodeError as error:
        raise ContentError(path, str(error)) from None


@lru_cache
def strings(lang: str) -> Strings:
    """All strings of one language, flat. Cached; treat the result as read-only.

    Raises:
        ValueError: unknown language.
        ContentError: a file is missing, malformed, or defines something other than text.
    """
    home = folder(lang)
    sources = [
        ("", home / "interface.toml"),
        ("term.", home / "glossary.toml"),
        ("number.", home / "numbers.toml"),
        ("quiz.", home / "quiz.toml"),
        ("class.", home / "classroom.toml"),
        ("guide.", home / "styleguide.toml"),
        *((f"figure.{path.stem}.", path) for path in sorted((home / "figures").glob("*.toml"))),
    ]
    found: dict[str, str] = {}
    for prefix, path in sources:
        for key, text in _flatten(path, read_toml(path)).items():
            found[prefix + key] = text
    return Strings(lang, found)


def _flatten(path: Path, table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict):
            flat |= _flatten(path, value, f"{key}.")
        elif isinstance(value, str) and value.strip():
            flat[key] = value.strip()
        else:
            raise ContentError(path, f"{key!r} must be text that is not empty")
    return flat
