"""What the tests of a class share: a server with the room's socket, and pages that speak to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, websocket_connect

from app import live
from app.classroom import address, socket

KEY = "the key of this test"
SOURCE = "tests.app.fake_source:FakeSource"


class Page:
    """One page in the room, as a browser would behave."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        assert connection.protocol is not None
        self.stream = connection.protocol.stream
        self.seen: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.connection.write_message(json.dumps(message))

    async def next(self) -> dict[str, Any] | None:
        text = await asyncio.wait_for(self.connection.read_message(), 30)
        if text is None:
            return None
        message: dict[str, Any] = json.loads(text)
        self.seen.append(message)
        if message["type"] == "events":
            assert message["from"] == len(self.events), "a gap, or something twice"
            self.events += message["events"]
        return message

    async def until(self, kind: str, **having: Any) -> dict[str, Any]:
        """Read until a message (or an event) of this type with these values."""
        while True:
            message = await self.next()
            assert message is not None, f"closed before {kind}: {self.connection.close_code}"
            found = [message, *message.get("events", [])]
            for each in found:
                if each["type"] == kind and having.items() <= each.items():
                    return each

    async def closed(self) -> tuple[int | None, str | None]:
        while await self.next() is not None:
            pass
        return self.connection.close_code, self.connection.close_reason


class School:
    """Opens pages; `teacher()` and `student()` have been welcomed when they are returned."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: list[Page] = []

    async def stranger(self, **headers: str) -> Page:
        request = HTTPRequest(f"ws://localhost:{self.port}/app/room", headers=headers)
        self.pages.append(Page(await websocket_connect(request)))
        return self.pages[-1]

    async def _page(self, **hello: Any) -> tuple[Page, dict[str, Any]]:
        page = await self.stranger()
        page.send(do="hello", **hello)
        return page, await page.until("welcome")

    async def teacher(self, **hello: Any) -> tuple[Page, dict[str, Any]]:
        return await self._page(key=KEY, **hello)

    async def student(self, **hello: Any) -> tuple[Page, dict[str, Any]]:
        return await self._page(**hello)


Wait = Callable[[], Awaitable[None]]


@pytest.fixture
async def school(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[School]:
    monkeypatch.setenv("SD_SOURCE", SOURCE)
    monkeypatch.setenv("FAKE_PASS_MS", "1")
    monkeypatch.setenv("SD_TEACHER_KEY", KEY)
    monkeypatch.setattr(live, "_hub", None)
    monkeypatch.setattr(socket, "_room", None)
    monkeypatch.setattr(socket, "_strangers", 0)
    monkeypatch.setattr(socket, "WRONG_KEY", 0.01)
    address.key.cache_clear()
    application = Application([(r"/app/room", socket.RoomHandler, {"application_context": None})])
    application.websocket_origins = set()  # type: ignore[attr-defined]
    listening, port = bind_unused_port()
    server = HTTPServer(application)
    server.add_socket(listening)
    made = School(port)
    yield made
    for page in made.pages:
        page.connection.close()
    await asyncio.sleep(0.05)
    live.stop()
    server.stop()
    await server.close_all_connections()
    for page in made.pages:  # a handshake of good-byes may not have come to its end
        page.stream.close()
    await asyncio.sleep(0)
    address.key.cache_clear()
