"""The watch sees each thing that a page must not do. A watch that sees nothing proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.harness import Watch
from tests.hosts import Quiet, listening

PAGES = {
    "/clean": "<script>console.log('hello')</script>",
    "/console": "<script>console.error('broken figure')</script>",
    "/exception": "<script>setTimeout(() => { throw new Error('out of tune') })</script>",
    "/missing": "<img src='/nothing.png'>",
    "/elsewhere": "<script src='https://scripts.example.org/x.js'></script>",
    "/socket": "<script>new WebSocket('wss://live.example.org/')</script>",
}


class Site(Quiet):
    def do_GET(self) -> None:
        body = PAGES.get(self.path)
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        # The icon is named so that Chromium does not ask for one.
        page = f"<!doctype html><link rel=icon href='data:,'><title>x</title>{body}"
        self.wfile.write(page.encode() if body else b"")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with listening(Site) as port:
        yield f"http://127.0.0.1:{port}"


def visit(browser: Browser, url: str, allow: tuple[str, ...] = ()) -> list[str]:
    page = browser.new_page()
    watch = Watch(page, allow)
    page.goto(url, wait_until="load")
    page.wait_for_timeout(100)
    page.close()
    return watch.problems()


def test_a_clean_page_is_clean(browser: Browser, site: str) -> None:
    assert visit(browser, f"{site}/clean") == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/console", "console error: broken figure"),
        ("/exception", "exception: out of tune"),
        ("/missing", "status 404"),
        ("/elsewhere", "request to another site: https://scripts.example.org/x.js"),
        ("/socket", "WebSocket to another site: wss://live.example.org/"),
    ],
)
def test_each_fault_is_seen(browser: Browser, site: str, path: str, said: str) -> None:
    problems = visit(browser, site + path)
    assert any(said in problem for problem in problems), problems
    assert visit(browser, site + path, allow=(".*",)) == []
