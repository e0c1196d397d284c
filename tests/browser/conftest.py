"""Fixtures of the browser tests: ``server``, ``open_page`` and ``shot``.

    def test_something(open_page, shot):
        page = open_page(lang="zh", theme="dark", width=390)
        ...
        shot(page, "something-zh-dark-390")

A page that logs an error, fails a request or asks another site fails its test at the end, unless
the test said ``open_page(allow=["status 404: .*missing"])``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.harness import CHROMIUM_FLAGS, ROOT, Server, Watch
from tests.prepare import NO_BROWSER, find_chromium, find_headless

# Two cores run two workers, each with a server and a browser: a page may take a while.
expect.set_options(timeout=15_000)

SCREENSHOTS = ROOT / "screenshots"
FAILED = pytest.StashKey[bool]()


class OpenPage:
    """Opens the article (or another path of the server, or any address) in a fresh context.

    ``lang`` and ``theme`` go into the URL unless None; ``query`` adds more, as figure state.
    ``locale`` and ``system_theme`` are the browser's own preferences.
    """

    def __init__(self, browser: Browser, server: Server) -> None:
        self.browser = browser
        self.server = server
        self.watches: list[Watch] = []

    def __call__(
        self,
        path: str = "/app",
        *,
        lang: str | None = "en",
        theme: str | None = None,
        query: dict[str, str] | None = None,
        width: int = 1440,
        height: int = 900,
        touch: bool = False,
        reduced_motion: bool = False,
        system_theme: str = "light",
        locale: str = "en-US",
        offline: bool = False,
        allow: tuple[str, ...] | list[str] = (),
        options: dict[str, Any] | None = None,
    ) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            has_touch=touch,
            is_mobile=touch,
            reduced_motion="reduce" if reduced_motion else "no-preference",
            color_scheme=system_theme,
            locale=locale,
            offline=offline,
            **(options or {}),
        )
        context.set_default_timeout(20_000)
        page = context.new_page()
        self.watches.append(Watch(page, allow))
        asked = {"lang": lang, "theme": theme, **(query or {})}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        address = path if re.match(r"[a-z]+:", path) else self.server.url + path
        page.goto(f"{address}?{given}" if given else address, wait_until="load")
        page.mouse.move(1, 1)  # a sign of life: the article's figures do not wait any longer
        return page

    def watch(self, page: Page) -> Watch:
        """What the page did so far: ``.seen``, ``.requests``."""
        return next(watch for watch in self.watches if watch.page is page)


def leave(watches: list[Watch], request: pytest.FixtureRequest) -> None:
    """Close a test's pages; those of a failed one are photographed, and a page's faults fail it."""
    problems = []
    for number, watched in enumerate(watches):
        page = watched.page
        if request.node.stash.get(FAILED, False) and not page.is_closed():
            SCREENSHOTS.mkdir(exist_ok=True)
            test = re.sub(r"[^\w-]+", "-", request.node.name)
            page.screenshot(path=SCREENSHOTS / f"failed-{test}-{number}.png")
            print("\n".join(watched.seen))
        problems += watched.problems()
        page.context.close()
    if problems:
        pytest.fail("the page did what it must not:\n  " + "\n  ".join(problems), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Put what the server said during a failed test beside the failure."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        served = getattr(item, "funcargs", {}).get("server")
        if isinstance(served, Server):
            start = item.stash.get(LOG_START, 0)
            report.sections.append(("server log", served.text(start)[-20_000:]))
    return report


LOG_START = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server") / "log.txt")
    yield running
    running.stop()


@pytest.fixture
def server(_server: Server, request: pytest.FixtureRequest) -> Server:
    """The article's server, one for all tests of this process; ``.url``, ``.log``."""
    request.node.stash[LOG_START] = _server.position()
    assert _server.process.poll() is None, f"the server has ended:\n{_server.text()[-5000:]}"
    return _server


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """Chromium, one for each test module: without windows, but for a module that sets
    ``WHOLE_BROWSER`` to the one that readers have.

    Not one for all: Playwright's event loop lives in this thread until it is stopped, and the
    asyncio tests of other modules could not run meanwhile.
    """
    whole = getattr(request.module, "WHOLE_BROWSER", False)
    path = find_chromium() if whole else find_headless()
    if path is None:
        pytest.fail(NO_BROWSER, pytrace=False)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_page(
    browser: Browser, server: Server, request: pytest.FixtureRequest
) -> Iterator[OpenPage]:
    """A function that opens a page; see OpenPage for its options and the module for the rules."""
    opening = OpenPage(browser, server)
    yield opening
    leave(opening.watches, request)


@pytest.fixture
def shot() -> Callable[..., Path | None]:
    """``shot(page, name, full=False)``: writes screenshots/<name>.png if SD_SCREENSHOTS=1."""

    def take(page: Page, name: str, *, full: bool = False) -> Path | None:
        if os.environ.get("SD_SCREENSHOTS") != "1":
            return None
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        page.screenshot(path=path, full_page=full)
        return path

    return take
