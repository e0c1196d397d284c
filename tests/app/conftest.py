"""`visit`: opens pages (sockets) on a server of its own, with a source without weights."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, websocket_connect

from app import live, measure
from tests.app import SOURCE

SETTINGS = {"prompt": "the small model", "length": 12, "seed": 3}


class Page:
    """What the browser does, in Python."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        assert connection.protocol is not None
        self.connection = connection
        self.stream = connection.protocol.stream
        self.seen: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.race = ""

    def send(self, **message: Any) -> None:
        self.connection.write_message(json.dumps(message))

    def run(self, pair: str = "embedded", **settings: Any) -> None:
        self.events.clear()
        self.send(do="run", pair=pair, settings=SETTINGS | settings)

    async def next(self) -> dict[str, Any] | None:
        """The next message, its events added to `events` at the place they claim."""
        text = await asyncio.wait_for(self.connection.read_message(), 30)
        if text is None:
            return None
        message: dict[str, Any] = json.loads(text)
        self.seen.append(message)
        if message["type"] == "asked":
            self.race = message["race"]
        if message["type"] == "events" and self.follows(message["race"]):
            assert message["from"] == len(self.events), "a gap, or something twice"
            self.events += message["events"]
        return message

    def follows(self, race: str) -> bool:
        """Whether events of this race are the page's own."""
        return race == self.race

    async def until(self, kind: str, **having: Any) -> dict[str, Any]:
        """Read until a message or an event of this type with these values; returns it."""
        while True:
            message = await self.next()
            assert message is not None, f"closed before {kind}: {self.connection.close_code}"
            for each in (message, *message.get("events", ())):
                if each["type"] == kind and having.items() <= each.items():
                    return each

    async def closed(self) -> tuple[int | None, str | None]:
        """Read until the server closes; returns code and reason."""
        while await self.next() is not None:
            pass
        return self.connection.close_code, self.connection.close_reason

    def drop(self) -> None:
        """Lose the connection without a word."""
        self.stream.close()


Open = Callable[..., Awaitable[Page]]


@pytest.fixture
async def visit(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens pages on a server of its own. Environment first: the engine inherits it."""
    monkeypatch.setenv("SD_SOURCE", SOURCE)
    monkeypatch.setenv("FAKE_PASS_MS", "1")
    # Races of these tests do not take turns, unless the test says so: the order is then certain.
    monkeypatch.setenv("SD_SLICE_SECONDS", "1000")
    monkeypatch.setattr(live, "_hub", None)
    # As in Bokeh's server: (class, options), and the list of other sites that may connect.
    context = {"application_context": None}
    application = Application(
        [
            (r"/app/live", live.LiveHandler, context),
            (r"/app/measure", measure.MeasureHandler, context),
        ]
    )
    application.websocket_origins = {"friend.example:80"}  # type: ignore[attr-defined]
    socket, port = bind_unused_port()
    server = HTTPServer(application)
    server.add_socket(socket)
    pages: list[Page] = []

    async def open_(**headers: str) -> Page:
        request = HTTPRequest(f"ws://localhost:{port}/app/live", headers=headers)
        pages.append(Page(await websocket_connect(request)))
        return pages[-1]

    open_.port = port  # type: ignore[attr-defined]
    yield open_
    for page in pages:
        page.connection.close()
    live.stop()
    server.stop()
    await asyncio.sleep(0.05)
    for page in pages:  # who has not been answered by now never will be
        page.drop()


async def until(condition: Any, seconds: float = 40.0) -> None:
    """Wait for something; the limit is generous, the machine may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.02)
