"""What a reader of the built copy downloads: `make bench-site`, one JSON line.

The copy is built anew and opened from a local server in Chromium. `first_view` is everything that
the browser asks for until the page is ready, in both languages the larger one; `scrolled` adds what
comes when a reader has been at every figure. Sizes in bytes: as they are, and as a host that
compresses sends them (gzip 9, brotli 11; what is compressed already counts as it is).
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import brotli
from playwright.sync_api import Browser, Page, sync_playwright

import content
import figures
from app.static_site.build import build
from tests.browser.harness import CHROMIUM_FLAGS
from tests.browser.site_server import PREFIX, serve
from tests.prepare import NO_BROWSER, find_chromium


def sizes(bodies: Iterable[bytes]) -> dict[str, int]:
    """Return the bytes of some files: raw, gzip, brotli."""
    total = {"raw": 0, "gzip": 0, "brotli": 0}
    for body in bodies:
        total["raw"] += len(body)
        total["gzip"] += min(len(body), len(gzip.compress(body, 9)))
        total["brotli"] += min(len(body), len(brotli.compress(body)))
    return total


def asked_for(page: Page, address: str, *, scroll: bool = False) -> list[str]:
    """Open a page of the copy; return the paths of the files that it asked for."""
    seen: dict[str, None] = {}
    page.on("request", lambda request: seen.setdefault(request.url))
    page.goto(address, wait_until="load")
    if page.locator("script#boot").count():
        page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    page.wait_for_load_state("networkidle", timeout=60_000)
    if scroll:
        visit_figures(page)
        page.wait_for_load_state("networkidle", timeout=60_000)
    return [
        unquote(urlsplit(url).path).removeprefix(f"{PREFIX}/")
        for url in seen
        if not url.startswith(("data:", "blob:"))
    ]


def visit_figures(page: Page) -> None:
    """Go to every figure of the article, and wait for what comes with it."""
    for figure_id in figures.IDS:
        page.locator(f"#figure-{figure_id}").scroll_into_view_if_needed(timeout=60_000)
        page.locator(f"#sd-{figure_id}").wait_for(timeout=60_000)
        if (figures.get(figure_id).folder() / "chart.py").exists():
            page.locator(f"#sd-{figure_id} .bk-Figure").first.wait_for(timeout=60_000)


def measure(browser: Browser, folder: Path) -> dict[str, Any]:
    """Return the sizes of the first view, of every page, and of the whole copy."""
    result: dict[str, Any] = {"first_view": {"gzip": 0}, "pages": {}}
    with serve(folder) as url:

        def opened(path: str, *, scroll: bool = False) -> dict[str, int]:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            names = asked_for(page, f"{url}/{path}", scroll=scroll)
            page.close()
            return {"requests": len(names)} | sizes((folder / n).read_bytes() for n in names)

        for path in sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.html")):
            if path != "index.html":  # it sends its reader on
                result["pages"][path] = opened(path)
        articles = [f"{lang}/index.html" for lang in content.LANGUAGES]
        result["first_view"] = max((result["pages"][a] for a in articles), key=lambda x: x["gzip"])
        result["scrolled"] = max(
            (opened(a, scroll=True) for a in articles), key=lambda x: x["gzip"]
        )
    files = [path for path in folder.rglob("*") if path.is_file()]
    result["total"] = {"files": len(files)} | sizes(path.read_bytes() for path in files)
    return result


def main() -> int:
    """Build, measure, print."""
    path = find_chromium()
    if path is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name) / "site"
        build(folder, base_url="https://example.org/some/where")
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        print(json.dumps(measure(browser, folder)))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
