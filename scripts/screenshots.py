"""Photograph every figure in every language, theme and width: ``make screenshots``.

Writes ``screenshots/matrix/<what>-<width>-<lang>-<theme>.png`` and, for each figure, for the first
view and for the style guide, one contact sheet ``screenshots/matrix/sheet-<what>.png``: a column a
width, a row a language and theme. Looking at the sheets is the test; nothing is compared. Needs the
browser and the font of the tests.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import content
import figures
from tests.browser.harness import CHROMIUM_FLAGS, Server
from tests.prepare import NO_BROWSER, find_chromium

FOLDER = Path(__file__).resolve().parent.parent / "screenshots" / "matrix"
WIDTHS = (360, 768, 1440, 2560)
THEMES = ("light", "dark")
#: Width of a column of a contact sheet, and the longest picture in it.
COLUMN, LONGEST = 460, 1400
#: What is photographed beside the figures: the first view, an aside, the appendix, the style guide.
PLACES = ("page", "aside", "numbers", "styleguide")


def wanted(name: str, chosen: list[str]) -> bool:
    """Whether a picture was asked for; all are when none is named."""
    return not chosen or name in chosen


def ready(page: Page) -> None:
    """Wait until every figure stands; the bar stays at the top, out of tall pictures."""
    page.locator("html[data-ready]").wait_for(state="attached", timeout=120_000)
    page.add_style_tag(content=".bar { position: static }")


def views(page: Page, chosen: list[str]) -> Iterator[tuple[str, bytes]]:
    """Photograph one opened article: first view, an aside, each figure, the table of numbers."""
    if wanted("page", chosen):
        page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        yield "page", page.screenshot()
    for name, selector in (("aside", ".sd-aside"), ("numbers", "[data-section=numbers]")):
        if wanted(name, chosen) and page.locator(selector).count():
            page.locator(selector).first.scroll_into_view_if_needed()
            yield name, page.screenshot()
    for figure_id in figures.IDS:
        if not wanted(figure_id, chosen):
            continue
        figure = page.locator(f"#sd-{figure_id}")
        figure.scroll_into_view_if_needed()
        page.wait_for_timeout(600)  # a chart is fetched when it comes near
        if figure.locator("[class^=bk-]").count() == 0 and figure_id in ("roofline", "speedup"):
            page.wait_for_timeout(2500)
        yield figure_id, figure.screenshot()


def photograph(browser: Browser, url: str, chosen: list[str]) -> None:
    """Open the article in each language and width, and take its pictures in both themes."""
    for width in WIDTHS:
        for lang in content.LANGUAGES:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                has_touch=width < 600,
                reduced_motion="reduce",
            )
            page = context.new_page()
            if chosen != ["styleguide"]:
                page.goto(f"{url}/app?lang={lang}&theme={THEMES[0]}")
                ready(page)
                for theme in THEMES:
                    page.locator("#theme").select_option(theme)
                    for name, picture in views(page, chosen):
                        (FOLDER / f"{name}-{width}-{lang}-{theme}.png").write_bytes(picture)
            if wanted("styleguide", chosen):
                for theme in THEMES:
                    page.goto(f"{url}/app/styleguide?lang={lang}&theme={theme}")
                    ready(page)
                    picture = page.screenshot(full_page=True)
                    (FOLDER / f"styleguide-{width}-{lang}-{theme}.png").write_bytes(picture)
            context.close()
            print(f"{width} {lang}", flush=True)


def sheet(name: str) -> None:
    """Put all pictures of one thing side by side."""
    rows = [(lang, theme) for lang in content.LANGUAGES for theme in THEMES]
    cells = {}
    for column, width in enumerate(WIDTHS):
        for row, (lang, theme) in enumerate(rows):
            path = FOLDER / f"{name}-{width}-{lang}-{theme}.png"
            if path.exists():
                picture = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
                scale = min(1.0, COLUMN / picture.width, LONGEST / picture.height)
                size = (round(picture.width * scale), round(picture.height * scale))
                cells[row, column] = picture.resize(size, Image.Resampling.LANCZOS)
    if not cells:
        return
    heights = [
        max((c.height for (r, _), c in cells.items() if r == row), default=0)
        for row in range(len(rows))
    ]
    whole = Image.new("RGB", ((COLUMN + 12) * len(WIDTHS), sum(heights) + 12 * len(rows)), "#888")
    for (row, column), cell in cells.items():
        whole.paste(cell, (column * (COLUMN + 12), sum(heights[:row]) + 12 * row))
    whole.save(FOLDER / f"sheet-{name}.png", optimize=True)


def main() -> None:
    """Take the pictures that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("what", nargs="*", help=f"figure ids or {', '.join(PLACES)}; default: all")
    parser.add_argument("--url", help="a server that runs already; default: one of our own")
    options = parser.parse_args()
    path = find_chromium()
    if path is None:
        raise SystemExit(NO_BROWSER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    server = None if options.url else Server(Path(tempfile.mkdtemp()) / "log.txt")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
            photograph(browser, options.url or server.url, options.what)  # type: ignore[union-attr]
    finally:
        if server:
            server.stop()
    for name in (*PLACES, *figures.IDS):
        if wanted(name, options.what):
            sheet(name)
    print(FOLDER)


if __name__ == "__main__":
    main()
