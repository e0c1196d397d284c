"""Firefox and WebKit as Debian packages them, driven alike: ``engine("firefox")``, ``engine("webkit")``.

Playwright drives its own builds of these two, not Debian's. Firefox speaks WebDriver BiDi itself, so
a socket is all that it needs (Debian has no geckodriver). WebKitGTK's driver speaks WebDriver to
Selenium; its MiniBrowser wants a display, which Xvfb gives. Input goes through both as WebDriver's
pointer and key actions, which are the same in the two protocols.

https://www.w3.org/TR/webdriver-bidi/ and https://www.w3.org/TR/webdriver2/#actions
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import websocket
from selenium import webdriver
from selenium.webdriver.remote.command import Command
from selenium.webdriver.webkitgtk.options import Options
from selenium.webdriver.webkitgtk.service import Service

from tests.browser.harness import free_port
from tests.prepare import firefox, mini_browser

PATIENCE = 90.0
KEYS = {"ArrowRight": "\ue014", "ArrowLeft": "\ue012", "Tab": "\ue004", "Enter": "\ue007"}
#: Firefox as it comes, but for talk with other machines, a first-run page, and touch, which it has
#: only where it finds a touch screen.
FIREFOX_SETTINGS = {
    "app.update.disabledForTesting": True,
    "browser.aboutwelcome.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "captivedetect.canonicalURL": "",
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.w3c_touch_events.enabled": 1,
    "extensions.systemAddon.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "http://127.0.0.1:9/",
}


class Engine:
    """One tab of a browser. A subclass says how a page is opened, asked and touched."""

    name: str

    def open(self, address: str) -> None:
        """Load a page and wait for its load event."""
        raise NotImplementedError

    def run(self, function: str, *given: Any) -> Any:
        """Call a JavaScript function with plain values; returns the plain value it comes to."""
        raise NotImplementedError

    def act(self, sources: list[dict[str, Any]]) -> None:
        """Perform WebDriver's actions."""
        raise NotImplementedError

    def resize(self, width: int, height: int) -> None:
        """Make the viewport so large, in CSS pixels."""
        raise NotImplementedError

    def problems(self) -> list[str]:
        """Errors and warnings of the page so far."""
        raise NotImplementedError

    def close(self) -> None:
        """End the browser."""
        raise NotImplementedError

    def wait(self, function: str, *given: Any) -> Any:
        """Call a function again and again until it returns something true; return that."""
        until = time.monotonic() + PATIENCE
        while not (answer := self.run(function, *given)):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: never true: {function} {given}")
            time.sleep(0.1)
        return answer

    def tap(self, selector: str, kind: str = "mouse") -> None:
        """Press the middle of an element with a mouse or a finger ("touch")."""
        x, y = self.wait(
            """async (selector) => {
                const element = document.querySelector(selector);
                if (!element) return false;
                element.scrollIntoView({ block: 'center', behavior: 'instant' });
                const place = () => { const r = element.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2].map(Math.round); };
                const before = place();
                await new Promise((done) => setTimeout(done, 150));
                const [x, y] = place(), there = document.elementFromPoint(x, y);
                return String(before) === String([x, y]) && there && (element.contains(there) || there.contains(element)) && [x, y];
            }""",
            selector,
        )
        finger = [
            {"type": "pointerMove", "x": x, "y": y, "duration": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        pointer = {"type": "pointer", "id": kind, "parameters": {"pointerType": kind}}
        self.act([pointer | {"actions": finger}])

    def press(self, key: str, selector: str | None = None) -> None:
        """Press a key, with the focus put on an element first if one is named."""
        if selector:
            self.run("(s) => document.querySelector(s).focus()", selector)
        value = KEYS.get(key, key)
        strokes = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.act([{"type": "key", "id": "keys", "actions": strokes}])


class Firefox(Engine):
    """Firefox over WebDriver BiDi."""

    name = "firefox"

    def __init__(self, folder: Path) -> None:
        profile = folder / "profile"
        profile.mkdir()
        settings = [
            f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in FIREFOX_SETTINGS.items()
        ]
        (profile / "user.js").write_text("\n".join(settings), encoding="utf-8")
        port = free_port()
        with (folder / "log.txt").open("wb") as output:
            self.process = subprocess.Popen(
                [
                    str(firefox()),
                    "--headless",
                    "--no-remote",
                    "--profile",
                    profile,
                    "--remote-debugging-port",
                    str(port),
                ],
                env=os.environ | {"HOME": str(folder)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.sent = 0
        self.seen: list[str] = []
        self.socket = self._connect(f"ws://127.0.0.1:{port}/session")
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self.tab = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _connect(self, address: str) -> websocket.WebSocket:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return websocket.create_connection(address, timeout=PATIENCE, suppress_origin=True)
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.2)

    def _ask(self, method: str, **given: Any) -> Any:
        self.sent += 1
        self.socket.send(json.dumps({"id": self.sent, "method": method, "params": given}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") == "log.entryAdded":
                entry = message["params"]
                if entry["level"] in ("error", "warn"):
                    self.seen.append(f"{entry['level']}: {entry['text']}")
            elif message.get("id") == self.sent:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]

    def open(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self.tab, url=address, wait="complete")

    def run(self, function: str, *given: Any) -> Any:
        # One string each way: no need for the protocol's own picture of JavaScript's values.
        answer = self._ask(
            "script.callFunction",
            functionDeclaration=f"async (given) => JSON.stringify(await ({function})(...JSON.parse(given)) ?? null)",
            arguments=[{"type": "string", "value": json.dumps(given)}],
            target={"context": self.tab},
            awaitPromise=True,
            userActivation=True,
        )
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def act(self, sources: list[dict[str, Any]]) -> None:
        self._ask("input.performActions", context=self.tab, actions=sources)

    def resize(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self._ask("browsingContext.setViewport", context=self.tab, viewport=viewport)

    def problems(self) -> list[str]:
        self._ask("session.status")  # what was on its way has come when this is answered
        return self.seen

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError, websocket.WebSocketException):
            self._ask("browser.close")
        self.socket.shutdown()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()


def display() -> tuple[subprocess.Popen[bytes], str]:
    """A virtual screen, which chooses its own number; returns its process and name."""
    read, write = os.pipe()
    process = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1600x1400x24", "-nolisten", "tcp"],
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as told:
        return process, f":{told.readline().strip()}"


class WebKit(Engine):
    """WebKitGTK's MiniBrowser over WebDriver.

    Under automation WebKitGTK keeps its console to itself, so the page's errors are collected from
    the moment that the driver gets hold of the page; `console_of` hears those from before.
    """

    name = "webkit"
    COLLECT = """() => {
        if (window.seenHere) return;
        window.seenHere = [];
        const note = (text) => window.seenHere.push(String(text));
        addEventListener('error', (event) => note(event.message), true);
        addEventListener('unhandledrejection', (event) => note(event.reason));
        for (const level of ['error', 'warn']) {
            const said = console[level];
            console[level] = (...words) => { note(`${level}: ${words.join(' ')}`); said.apply(console, words); };
        }
    }"""

    def __init__(self, folder: Path) -> None:
        self.screen, name = display()
        options = Options()
        options.binary_location = str(mini_browser())
        options.add_argument("--automation")
        options.page_load_strategy = "none"
        service = Service(
            shutil.which("WebKitWebDriver"),
            log_output=str(folder / "log.txt"),
            env=os.environ | webkit_settings(folder, name),
        )
        try:
            self.driver = webdriver.WebKitGTK(options=options, service=service)
        except BaseException:
            self.screen.kill()
            raise
        self.driver.set_script_timeout(PATIENCE)

    def open(self, address: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(address)
        self.wait("() => location.href !== 'about:blank'")
        self.run(self.COLLECT)
        self.wait("() => document.readyState === 'complete'")

    def run(self, function: str, *given: Any) -> Any:
        answer = self.driver.execute_async_script(
            f"""const done = arguments[1];
            (async () => JSON.stringify(await ({function})(...JSON.parse(arguments[0])) ?? null))()
                .then((text) => done({{ text }}), (error) => done({{ error: String(error) }}));""",
            json.dumps(given),
        )
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return json.loads(answer["text"])

    def act(self, sources: list[dict[str, Any]]) -> None:
        self.driver.execute(Command.W3C_ACTIONS, {"actions": sources})

    def resize(self, width: int, height: int) -> None:
        # The window has a frame of its own: ask for more by what was missing.
        for _ in range(3):
            outer = self.driver.get_window_size()
            inner = self.run("() => [innerWidth, innerHeight]")
            self.driver.set_window_size(
                outer["width"] + width - inner[0], outer["height"] + height - inner[1]
            )

    def problems(self) -> list[str]:
        seen: list[str] = self.run("() => window.seenHere ?? ['nobody listened']")
        return seen

    def close(self) -> None:
        try:
            self.driver.quit()
        finally:
            self.screen.kill()
            self.screen.wait()


def webkit_settings(folder: Path, screen: str) -> dict[str, str]:
    """Environment of a WebKit that draws on this screen, without a GPU, and keeps to its folder."""
    return {
        "DISPLAY": screen,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_RUNTIME_DIR": str(folder),
        "GDK_BACKEND": "x11",
        "LIBGL_ALWAYS_SOFTWARE": "1",
        "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1",  # user namespaces are no given in a container
    }


def console_of(address: str, enough: Callable[[], bool], then: float = 0) -> list[str]:
    """What WebKit writes to its console for a page, opened without automation.

    ``enough()`` says when the page has come far enough; it is closed ``then`` seconds later.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        screen, shown = display()
        process = subprocess.Popen(
            [
                str(mini_browser()),
                "--enable-write-console-messages-to-stdout=true",
                address,
            ],
            env=os.environ | webkit_settings(Path(name), shown),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where it writes, whatever the option's name says
            text=True,
        )
        try:
            until = time.monotonic() + PATIENCE
            while not enough():
                if time.monotonic() > until:
                    raise TimeoutError(f"WebKit: {address} did not come far enough")
                time.sleep(0.2)
            time.sleep(then)
        finally:
            process.terminate()
            text, _ = process.communicate(timeout=PATIENCE)
            screen.kill()
            screen.wait()
    return [line for line in text.splitlines() if "CONSOLE" in line]


@contextlib.contextmanager
def engine(name: str) -> Iterator[Engine]:
    """A browser for the length of a block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = {"firefox": Firefox, "webkit": WebKit}[name](Path(folder))
        try:
            yield started
        finally:
            started.close()
            # The drivers' libraries leave connections to the collector, which would speak of them
            # in the middle of somebody else's test.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
