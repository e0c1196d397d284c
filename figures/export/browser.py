"""The browser of this machine, without a window, to draw a page and read the result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "microsoft-edge-stable",
    "chrome",
    "msedge",
)
PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
NONE = """A still needs Chromium, Chrome or Edge, and none was found.
Install one (Debian, Ubuntu: apt-get install chromium; macOS: brew install --cask chromium; Windows
has Edge), or name one: CHROMIUM=/path/to/it python -m figures export …
`--format html` needs none."""
#: Longest wait for a still, in seconds: a busy machine may take a while.
PATIENCE = 120


class BrowserError(RuntimeError):
    """There is no browser, or it did not do its work; the message says what to do."""


def known() -> str | None:
    """Return the browser: what `CHROMIUM` names, else the first known one on this machine, if any.

    Raises:
        BrowserError: `CHROMIUM` names something that is not there.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        found = shutil.which(named)
        if not found:
            raise BrowserError(f"CHROMIUM={named} is not a program that can be started")
        return found
    for command in COMMANDS:
        if found := shutil.which(command):
            return found
    return next((place for place in PLACES if Path(place).exists()), None)


def dump(page: str, *, width: int, height: int) -> str:
    """Return the document that a page has become, without a display and without network.

    Args:
        page: HTML that asks for nothing.
        width: of the window, CSS pixels.
        height: of the window, CSS pixels.

    Raises:
        BrowserError: no browser, or it failed, or took longer than `PATIENCE`.
    """
    browser = known()
    if browser is None:
        raise BrowserError(NONE)
    # A profile of its own: a browser that is already open would take the page over.
    with tempfile.TemporaryDirectory(prefix="sd-still-", ignore_cleanup_errors=True) as name:
        file = Path(name) / "page.html"
        file.write_text(page, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={Path(name) / 'profile'}",
            f"--window-size={width},{height}",
            # The page's clocks run as fast as its work is done, to this many milliseconds.
            "--virtual-time-budget=20000",
            "--dump-dom",
            file.as_uri(),
        ]
        if sys.platform.startswith("linux") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium does not sandbox root, as in a container
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (subprocess.TimeoutExpired, OSError) as reason:
            raise BrowserError(f"{browser} did not draw the figure: {reason}") from None
    if run.returncode != 0 or not run.stdout:
        last = run.stderr.decode("utf-8", "replace").strip()[-500:]
        raise BrowserError(f"{browser} ended with status {run.returncode}: {last}")
    return run.stdout.decode("utf-8", "replace")
