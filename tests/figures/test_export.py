"""Exports without a browser: options, errors, the policy of a file, the contract in the docs."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import figures
from figures.__main__ import main
from figures.export import ExportError, browser, standalone
from figures.export.contract import VERSION, parameters, table
from figures.export.standalone import library_files, library_name

DOCS = Path(__file__).resolve().parents[2] / "docs" / "embedding.md"


class Page(HTMLParser):
    """What a page holds: scripts, styles, what it points at, its policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inline: dict[str, list[str]] = {"script": [], "style": []}
        self.links: list[str] = []
        self.policy = ""
        self.open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        self.links += [given[name] for name in ("src", "href") if given.get(name)]
        assert "style" not in given
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag in self.inline and "src" not in given and given.get("type") != "application/json":
            self.open = tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inline[self.open].append(data)

    def handle_endtag(self, tag: str) -> None:
        self.open = None


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_a_file_points_at_nothing_and_allows_what_it_holds(figure_id: str) -> None:
    page = Page(standalone(figure_id, lang="zh"))
    assert page.links == []
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [digest(text) for text in page.inline["script"]]
    if (figures.get(figure_id).folder() / "chart.py").exists():
        assert rules["style-src"] == "'unsafe-inline'"
    else:
        assert rules["style-src"].split() == [digest(text) for text in page.inline["style"]]
    assert "unsafe-eval" not in page.policy
    assert "connect-src" not in rules


def test_the_same_export_twice_is_the_same() -> None:
    assert standalone("race") == standalone("race")


def test_without_scripts_the_state_is_told_in_words() -> None:
    text = html.unescape(standalone("mask", state={"m": 2}))
    assert f"<p>{figures.get('mask')(m=2).describe('en')}</p>" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figure_id": "none"}, "no figure 'none'; there are roofline, "),
        ({"lang": "fr"}, "language 'fr' is none of zh, en"),
        ({"theme": "pink"}, "theme 'pink' is none of auto, light, dark"),
        ({"controls": "some"}, "controls 'some' is none of all, few, none"),
        ({"state": {"z": 1}}, "mask has no parameter 'z'; it has m, "),
        ({"state": {"solved": True}}, "no parameter 'solved'"),
        ({"state": {"m": 99}}, r"m=99 is out of bounds: integer from 1 to 8"),
        ({"state": {"m": "<b>"}}, "m=<b> is out of bounds"),
        ({"figure_id": "race", "records": ("x",)}, "record of race 'x' is none of adaptive, "),
    ],
)
def test_what_cannot_be_exported_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        standalone(**({"figure_id": "mask"} | options))


def test_the_command_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a" / "mask.html"
    assert main(["export", "mask", "--lang", "zh", "--set", "m=3", "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == standalone("mask", lang="zh", state={"m": "3"})
    library = tmp_path / "shared"
    assert main(["export", "--all", "--assets", str(library), "-o", str(tmp_path / "all")]) == 0
    assert sorted(p.stem for p in (tmp_path / "all").iterdir()) == sorted(figures.IDS)
    assert {p.name: p.read_bytes() for p in library.iterdir()} == library_files()
    page = Page((tmp_path / "all" / "speedup.html").read_text(encoding="utf-8"))
    assert page.links == [f"../shared/{library_name()}"]
    assert "kB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export"], "name one figure, or --all"),
        (["export", "mask", "--all"], "name one figure, or --all"),
        (["export", "--all", "--set", "m=3"], "--set belongs to one figure"),
        (["export", "mask", "--set", "m"], "--set takes NAME=VALUE, not 'm'"),
        (["export", "mask", "--set", "m=0"], "out of bounds"),
        (["export", "mask", "--format", "svg", "--width", "9"], "width 9 is out of bounds"),
        (["export", "mask", "--format", "png", "--scale", "99"], "scale 99.0 is out of bounds"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_without_a_browser_a_still_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(browser.shutil, "which", lambda _: None)
    monkeypatch.setattr(browser, "PLACES", ())
    assert main(["export", "mask", "--format", "svg"]) == 2
    assert "apt-get install chromium" in capsys.readouterr().err
    monkeypatch.setenv("CHROMIUM", "/nowhere/chrome")
    assert main(["export", "mask", "--format", "svg"]) == 2
    assert "CHROMIUM=/nowhere/chrome" in capsys.readouterr().err


def test_the_contract_is_written_down() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert f"**version {VERSION}**" in text
    # A difference? `python -m figures list --markdown` has the new table. Did a name go away, or
    # did bounds get narrower? Then raise VERSION, and say in the file what changed.
    after = text.partition("a test compares.\n\n")[2]
    assert after.partition("\n## ")[0].strip() == table().strip()


def test_no_parameter_is_called_as_the_page_is() -> None:
    reserved = {"lang", "theme", "controls"}
    for figure in figures.every():
        assert not reserved & set(parameters(figure))
        assert all(re.fullmatch(r"[a-z]\w*", name) for name in parameters(figure))
