"""Stills: an SVG that another program draws as the browser does, and a PNG of the size that was asked for."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import resvg_py
from PIL import Image

import content
import figures
from figures.export import standalone
from figures.export.still import still
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"
#: What other programs do not read, or what would load something.
FORBIDDEN = {"foreignObject", "style", "script", "use", "a"}

STATES: dict[str, dict[str, Any]] = {
    "roofline": {"k": 64},
    "branch": {"n": 6},
    "mask": {"m": 3},
    "speedup": {"m": 8},
}


def words_of(root: ElementTree.Element) -> str:
    """All text that is drawn, without spaces: lines are broken elsewhere in each language."""
    texts = ["".join(e.itertext()) for e in root.iter(f"{SVG}text")]
    return re.sub(r"\s", "", "".join(texts))


def pixels(svg: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    drawn = bytes(resvg_py.svg_to_bytes(svg_string=svg.decode()))
    return np.asarray(Image.open(io.BytesIO(drawn)).convert("RGB"))


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_an_svg_stands_by_itself(figure_id: str) -> None:
    lang = content.LANGUAGES[(figures.IDS.index(figure_id) + 1) % len(content.LANGUAGES)]
    state = STATES.get(figure_id, {})
    svg = still(figure_id, lang=lang, state=state)
    root = ElementTree.fromstring(svg)
    assert root.get("width") == "760"
    names = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert not names & FORBIDDEN
    for element in root.iter():
        for name, value in element.attrib.items():
            assert name not in ("style", "class") and not name.startswith("on")
            assert "var(" not in value
            assert not re.search(r"url\((?!#)", value), value
            if name.endswith("href"):
                assert value.startswith(("data:image/png;", "#"))
    # Every reference leads somewhere.
    ids = {e.get("id") for e in root.iter()}
    used = set(re.findall(r"url\(#([^)]+)\)", svg.decode()))
    assert used <= ids
    # It says what the figure says in this state, and shows no control.
    figure = figures.get(figure_id)
    words = figure.words(lang)
    title = root.find(f"{SVG}title")
    assert title is not None and title.text == words["title"]
    said = root.find(f"{SVG}desc")
    assert said is not None and said.text
    if figure_id != "race":
        assert said.text == figure(**state).describe(lang)
    drawn = words_of(root)
    assert re.sub(r"\s", "", words["title"]) in drawn
    assert re.sub(r"\s", "", said.text) in drawn
    for control in ("ui.play", "ui.reset", "ui.embed", "ui.puzzle"):
        assert re.sub(r"\s", "", words[control]) not in drawn
    # Another program's renderer finds as much on it: ink in every part of the height.
    image = pixels(svg)
    inked = (np.abs(image.astype(int) - image[3, 3]).max(axis=2) > 24).mean(axis=1)
    parts = [part.max() for part in np.array_split(inked, 6)]
    assert min(parts) > 0.02, parts


def test_charts_are_shapes_and_their_axes_are_read() -> None:
    svg = still("roofline", lang="zh")
    root = ElementTree.fromstring(svg)
    assert not list(root.iter(f"{SVG}image"))
    words = figures.get("roofline").words("zh")
    drawn = words_of(root)
    for label in ("axis.k", "axis.time"):
        assert re.sub(r"\s", "", words[label]) in drawn
    assert "4,096" in drawn and "100ms" in drawn


def test_the_theme_is_written_out() -> None:
    light, dark = (still("tiles", theme=theme) for theme in ("light", "dark"))
    assert pixels(light)[3, 3].min() > 240
    assert pixels(dark)[3, 3].max() < 60


# The print style of a page in which also the stage's own inputs are hidden, as a still leaves them out.
AS_STILL = """() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(`.sd-try, .sd-panel, .sd-stage :is(.sd-control, .sd-toggle, input, select, textarea, button:is(:not([class]), .sd-primary, .sd-quiet)) { display: none !important; }`);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}"""


@pytest.mark.parametrize("figure_id", ["branch", "race"])
def test_a_still_is_what_the_page_shows(
    open_page: OpenPage, tmp_path: Path, figure_id: str
) -> None:
    file = tmp_path / "figure.html"
    file.write_text(standalone(figure_id, theme="light", controls="none"), encoding="utf-8")
    page = open_page(file.as_uri(), lang=None, width=760, offline=True)
    page.locator("html[data-ready]").wait_for(state="attached")
    page.emulate_media(media="print")
    page.evaluate(AS_STILL)
    png = still(figure_id, format="png", scale=1)
    drawn = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)

    def worst() -> float:
        """The largest share of a twelfth of the picture that differs; 1 for another size.

        Letters may stand half a pixel beside; a box or a line of text that is missing would not.
        """
        picture = page.locator(".sd-figure").screenshot()
        shown = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
        if abs(shown.shape[0] - drawn.shape[0]) > 2:
            return 1.0
        rows = min(shown.shape[0], drawn.shape[0])
        differ = np.abs(shown[:rows] - drawn[:rows]).max(axis=2) > 60
        return float(max(part.mean() for part in np.array_split(differ, 12)))

    until = time.monotonic() + 15  # the page draws once more for its new width
    while (found := worst()) >= 0.025:
        assert time.monotonic() < until, found
        page.wait_for_timeout(300)


def test_another_program_draws_what_the_browser_draws() -> None:
    picture = still("branch", format="png", scale=1, width=700)
    browser = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    other = pixels(still("branch", width=700)).astype(int)
    assert browser.shape == other.shape
    # Fonts differ; boxes, lines and colours do not.
    assert (np.abs(browser - other).max(axis=2) > 60).mean() < 0.06


def test_a_png_has_the_size_that_was_asked_for() -> None:
    picture = Image.open(io.BytesIO(still("tiles", format="png", lang="zh", width=400, scale=1.5)))
    assert picture.format == "PNG" and picture.width == 600
    assert len(picture.getcolors(1 << 24) or []) > 50
