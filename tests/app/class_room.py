"""What the tests of a class share: a server with the room's socket, and pages that speak to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import websocket_connect

from app import live
from app.classroom import address, socket
from tests.app import SOURCE, conftest

KEY = "the key of this test"


class Page(conftest.Page):
    """One page in the room, as a browser would behave: every race is the room's."""

    def follows(self, race: str) -> bool:
        return True


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
    for page in made.pages:
        page.drop()
    live.stop()
    server.stop()
    await server.close_all_connections()
    for page in made.pages:  # a handshake of good-byes may not have come to its end
        page.stream.close()
    await asyncio.sleep(0)
    address.key.cache_clear()
