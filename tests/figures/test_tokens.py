"""The design tokens: readable in both themes, all used, none missing, and no colour beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import content
from app import styleguide

ROOT = Path(__file__).parent.parent.parent
#: Black and white for paper and projector, and codes to be scanned: not part of a theme.
PAPER = {"print.css", "worksheet.css", "present.css"}
COLOURS = {colour.name: (colour.light, colour.dark) for colour in styleguide.colours()}
GROUNDS = ("paper", "raised", "sunken")


def served() -> list[Path]:
    """Every style and script that a page loads, but the tokens themselves."""
    found = [p for d in ("app/static", "figures") for p in (ROOT / d).rglob("*.[jc]s*")]
    return [p for p in found if p.suffix in (".js", ".css") and p != styleguide.TOKENS]


def test_contrast_is_the_standards() -> None:
    # Worked examples of the WCAG's own understanding documents.
    assert styleguide.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert styleguide.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)
    assert styleguide.contrast("#949494", "#ffffff") == pytest.approx(3.03, abs=0.005)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_can_be_read(theme: int) -> None:
    faint = []
    for name in COLOURS:
        if not (name in ("ink", "ink-2", "ink-3", "link") or name.endswith("-ink")):
            continue
        own = f"{name.removesuffix('-ink')}-soft"
        for ground in (*GROUNDS, *([own] if own in COLOURS else [])):
            ratio = styleguide.contrast(COLOURS[name][theme], COLOURS[ground][theme])
            if ratio < 4.5:
                faint.append(f"{name} on {ground}: {ratio:.2f}")
    assert faint == []


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_shapes_can_be_seen(theme: int) -> None:
    drawn = [name for name in COLOURS if f"{name}-ink" in COLOURS and name != "ink"]
    faint = [
        f"{name} on {ground}"
        for name in (*drawn, "line-strong", "focus")
        for ground in ("paper", "raised")
        if styleguide.contrast(COLOURS[name][theme], COLOURS[ground][theme]) < 3
    ]
    assert len(drawn) == 8
    assert faint == []


def test_every_token_that_is_used_exists_and_every_token_is_used() -> None:
    # In Python too: tags of Bokeh charts name tokens.
    sources = [*served(), *(ROOT / "figures").rglob("*.py"), styleguide.TOKENS]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    used = set(re.findall(r"--sd-([\w-]*\w)(?![\w-]|\$)", text))
    known = set(styleguide.tokens())
    of_figures = set(re.findall(r"--sd-([\w-]+)\s*:", text)) - known
    assert used - known - of_figures == set()
    # Names of colours are put together (`--sd-${origin}-ink`); distances come in a row.
    assert {name for name in known - used if name not in COLOURS and not name.isdigit()} == set()


def test_no_colour_stands_beside_the_tokens() -> None:
    loose = []
    for path in served():
        if path.name in PAPER:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r":[^;{}]*#[0-9a-f]{3}(?:[0-9a-f]{3})?\b\s*[;}]", line):
                loose.append(f"{path.name}:{number}")
    assert loose == []


def test_the_browsers_own_frame_has_the_colour_of_the_paper() -> None:
    html = (ROOT / "app" / "templates" / "index.html").read_text(encoding="utf-8")
    stated = re.findall(r'name="theme-color" content="(#\w+)"', html)
    assert stated == list(COLOURS["paper"])


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_style_guide_names_every_meaning(lang: str) -> None:
    strings = content.strings(lang)
    named = {key.removeprefix("guide.meaning.") for key in strings if ".meaning." in key}
    assert named == {meaning for meaning, _ in styleguide.meanings()}
