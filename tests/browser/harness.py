"""A real server and a real Chromium for the browser tests, and a watch on what the page does."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import ConsoleMessage, Locator, Page
from playwright.sync_api import Request as WebRequest

from tests.app import SOURCE

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL = {"localhost", "127.0.0.1", "[::1]", "::1"}
INSIDE = ("data:", "blob:", "about:", "file:")

CHROMIUM_FLAGS = [
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # No name but this machine's resolves, so that nothing can come from elsewhere unnoticed.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
if hasattr(os, "geteuid") and os.geteuid() == 0:
    CHROMIUM_FLAGS.append("--no-sandbox")  # Chromium refuses to sandbox root, as in a container


def free_port() -> int:
    """A TCP port of this machine that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as trial:
        return trial.getsockname()[1]


class Server:
    """``python -m app serve`` as a process of its own, with its log in a file.

    Raises RuntimeError, with the log, if the article is not there within ``patience`` seconds.
    """

    def __init__(self, log: Path, *arguments: str, patience: float = 90.0, **environment: str):
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        self.log = log
        inherited = {
            # The server uses the machine's cores as it would for a reader, not a test's one thread.
            name: value
            for name, value in os.environ.items()
            if name != "OMP_NUM_THREADS"
        }
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve", "--port", str(self.port), *arguments],
                cwd=ROOT,
                env=inherited | {"SHOW": "0", "PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait(patience)

    def _wait(self, patience: float) -> None:
        until = time.monotonic() + patience
        reason = "no answer"
        while time.monotonic() < until:
            if self.process.poll() is not None:
                reason = f"it ended with status {self.process.returncode}"
                break
            try:
                with urllib.request.urlopen(f"{self.url}/app", timeout=patience):
                    return
            except urllib.error.HTTPError as error:
                reason = f"HTTP status {error.code}"
                break
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"The server did not come up ({reason}).\n{self.text()}")

    def text(self, start: int = 0) -> str:
        """The log from a byte position on."""
        return self.log.read_bytes()[start:].decode("utf-8", "replace")

    def position(self) -> int:
        """Where the log ends now, for ``text(start)``."""
        return self.log.stat().st_size

    def stop(self, patience: float = 15.0) -> int:
        """SIGTERM, and SIGKILL if that is not enough; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def server_without_weights(**environment: str) -> Any:
    """A module's fixture: a Server whose engine is `tests.app.fake_source`, told by environment."""

    @pytest.fixture(scope="module")
    def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        log = tmp_path_factory.mktemp("fake") / "log.txt"
        found = Server(log, SD_SOURCE=SOURCE, **environment)
        yield found
        found.stop()

    return running


class Watch:
    """Collects what a page must not do: errors, failed requests, requests to other sites.

    ``allow`` holds regular expressions for what a test provokes on purpose.
    """

    def __init__(self, page: Page, allow: Sequence[str] = ()) -> None:
        self.page = page
        self.allow = [re.compile(pattern) for pattern in allow]
        self.seen: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"exception: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)
        page.on("websocket", lambda channel: self._address("WebSocket", channel.url))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            place = message.location.get("url", "")
            self.seen.append(f"console {message.type}: {message.text} ({place})")

    def _address(self, what: str, url: str) -> None:
        if not url.startswith(INSIDE) and urlsplit(url).hostname not in LOCAL:
            self.seen.append(f"{what} to another site: {url}")

    def _request(self, request: WebRequest) -> None:
        self.requests.append(request.url)
        self._address("request", request.url)

    def _failed(self, request: WebRequest) -> None:
        # A request that the page's own departure cancelled is no fault.
        if request.failure != "net::ERR_ABORTED":
            self.seen.append(f"failed: {request.url} ({request.failure})")

    def _response(self, response: object) -> None:
        if response.status >= 400:  # type: ignore[attr-defined]
            self.seen.append(f"status {response.status}: {response.url}")  # type: ignore[attr-defined]

    def problems(self) -> list[str]:
        """What was seen and not allowed."""
        return [
            text for text in self.seen if not any(pattern.search(text) for pattern in self.allow)
        ]


def start(page: Page, figure_id: str, drawn: str) -> Locator:
    """The figure, on the screen, once it has drawn something at ``drawn``."""
    figure = page.locator(f"#sd-{figure_id}")
    figure.scroll_into_view_if_needed()  # a chart is fetched when it comes near
    figure.locator(drawn).first.wait_for()
    figure.scroll_into_view_if_needed()
    return figure


def says(figure: Locator, expected: str) -> None:
    """The sentence under the figure becomes the one that Python gives for the same state."""
    figure.page.wait_for_function(
        "([id, text]) => document.querySelector(`#${id} .sd-say`)?.textContent === text",
        arg=[figure.get_attribute("id"), expected],
        timeout=30_000,
    )


def rows(figure: Locator) -> list[list[str]]:
    """The table of the figure's numbers, shown or not, as text."""
    found: list[list[str]] = figure.locator(".sd-panel .sd-table tr").evaluate_all(
        "rows => rows.map(r => [...r.children].map(c => c.textContent))"
    )
    return found
