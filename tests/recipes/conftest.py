"""What the recipes of docs/embedding.md make is opened in a browser that reaches this machine only.

`Recipe("MkDocs")` is a recipe as it stands in the document: what is tested is what a reader copies.
Programs that `make test` does not install come from the environment that `make recipes` makes; it
names that in SD_RECIPES.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import (  # noqa: F401 - fixtures and hooks
    browser,
    leave,
    pytest_runtest_makereport,
)
from tests.browser.harness import ROOT, Watch
from tests.hosts import QuietFiles, files

DOCS = ROOT / "docs" / "embedding.md"
FENCE = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^(`{3,})(\w+)\n(.*?)^\2$", re.MULTILINE | re.DOTALL)
#: Longest a tool may take, in seconds: the machine may be busy.
PATIENCE = 300


class Recipe:
    """One section of the document.

    Attributes:
        files: name → content of the blocks under "`name`:".
        blocks: language → the other blocks.
    """

    def __init__(self, heading: str) -> None:
        _, found, section = DOCS.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
        assert found, f"docs/embedding.md has no section {heading}"
        self.files: dict[str, str] = {}
        self.blocks: dict[str, list[str]] = {}
        for name, _, language, text in FENCE.findall(section.partition("\n## ")[0]):
            if name:
                self.files[name] = text
            else:
                self.blocks.setdefault(language, []).append(text)

    def cook(self, folder: Path, *, bin: Path | None = None) -> None:
        """Write the files and run the shell's lines, with the programs of `bin` before others."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        path = [str(p) for p in (bin, Path(sys.executable).parent) if p]
        for line in "".join(self.blocks.get("sh", ())).splitlines():
            words = line.split("#")[0].split()
            if words[:2] == ["python", "-m"] and words[2] == "figures":
                words[0] = sys.executable
            if "install" in words or not words:
                continue
            run(words, folder, PATH=os.pathsep.join([*path, os.environ["PATH"]]))


def run(words: list[str], folder: Path, **environment: str) -> str:
    """Run a command to its end, and say what it said where it failed."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-4000:]}"
    return done.stdout


@contextmanager
def started(words: list[str], folder: Path, url: str, **environment: str) -> Iterator[None]:
    """Run a server until the end, with its log in `folder`/log, from when `url` answers."""
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            words, cwd=folder, env=os.environ | environment, stdout=output, stderr=output
        )
    until = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                urllib.request.urlopen(url, timeout=PATIENCE).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until, log.read_text()
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def tools() -> Path:
    """The programs that `make recipes` installs; skips without them."""
    named = os.environ.get("SD_RECIPES")
    if not named:
        pytest.skip("needs programs that make recipes installs")
    return (ROOT / named / "bin").absolute()


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for JUPYTER_PATH: its kernel runs where our packages are, not where Jupyter is."""
    folder = tmp_path_factory.mktemp("jupyter")
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": words, "display_name": "Python 3", "language": "python"}))
    return folder


class Site(QuietFiles):
    """Has an icon, which browsers ask for: some generators make none."""

    def do_GET(self) -> None:
        """Answer."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """``serve(folder)``: the address of a static server for it."""
    with ExitStack() as running:
        yield lambda folder: f"http://127.0.0.1:{running.enter_context(files(folder, Site))}"


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:  # noqa: F811
    """``visit(address, allow=…)``: a page that must neither fail nor ask other sites."""
    watches: list[Watch] = []

    def open_(
        address: str, *, allow: tuple[str, ...] = (), width: int = 1100, theme: str = "light"
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, locale="en-US"
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        watches.append(Watch(page, allow))
        page.goto(address, wait_until="load")
        return page

    yield open_
    leave(watches, request)


def stands_right(page: Page, selector: str) -> None:
    """The frame comes to be as high as its figure: nothing cut off, no gap."""
    frame = page.locator(selector)  # finds it in a shadow tree too
    frame.scroll_into_view_if_needed()
    page.frame_locator(selector).locator("#figure .sd-figure").wait_for()
    heights = [0.0, -1.0]
    for _ in range(120):
        heights = frame.evaluate(
            """frame => [frame.clientHeight,
                frame.contentDocument.getElementById("figure").getBoundingClientRect().height]"""
        )
        if abs(heights[0] - heights[1]) <= 1 and heights[1] > 200:
            return
        page.wait_for_timeout(500)
    raise AssertionError("the frame is {} high, its figure {}".format(*heights))
