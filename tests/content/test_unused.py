"""No words that nobody says: every key of the interface and of a figure is asked for somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import content
from figures import IDS

ROOT = Path(__file__).parent.parent.parent
#: What surrounds every figure (figures/web/frame.js), and what the article's page shows of one.
FRAME = ("bet", "caption", "puzzle", "title", "try")


@cache
def sources(*folders: str) -> str:
    """All code below these folders, one text."""
    return "\n".join(
        path.read_text("utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".js", ".html")
    )


def asked_for(key: str, code: str) -> bool:
    """Whether `code` names the key, as a whole or by a beginning that it completes itself."""
    if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", code):
        return True
    # "ui.badge_" from `ui.badge_${kind}`, f"ui.origin_{name}", "ui.language_" + other.
    return any(
        key.startswith(start) for start in beginnings(code) if len(start) > len(key.split(".")[0])
    )


@cache
def beginnings(code: str) -> frozenset[str]:
    """Beginnings of keys that the code completes: up to a place to fill, or to a `+`."""
    return frozenset(re.findall(r"[\"'`]([a-z][\w.]*[._])(?:\$?\{|[\"'`] *[+~])", code))


def test_the_interface() -> None:
    code = sources("app", "figures", "content")
    keys = [key for key in content.strings("en") if key.startswith("ui.")]
    assert [key for key in keys if not asked_for(key, code)] == []


@pytest.mark.parametrize("figure", IDS)
def test_a_figure(figure: str) -> None:
    code = sources(f"figures/{figure}", "figures/web")
    prefix = f"figure.{figure}."
    keys = [k.removeprefix(prefix) for k in content.strings("en") if k.startswith(prefix)]
    unused = [k for k in keys if k.split(".")[0] not in FRAME and not asked_for(k, code)]
    assert unused == []


def test_a_word_that_nobody_says_is_found() -> None:
    code = 't("ui.play"); t(`ui.badge_${kind}`); words[f"say.{key}"]'
    assert asked_for("ui.play", code)
    assert asked_for("ui.badge_live_tip", code)
    assert asked_for("say.first", code)
    for key in ("ui.pause", "ui.plays", "ui.play_again", "figure.say", "bar.read"):
        assert not asked_for(key, code), key
