"""SIGTERM in mid-race, on a real server: it says so, lets races end if it can, and goes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import websocket_connect

from kernels.trace import Trace
from tests.app.conftest import SETTINGS, SOURCE, Page
from tests.browser.harness import Server

pytestmark = pytest.mark.skipif(os.name != "posix", reason="has Unix signals")


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Any]:
    """Starts a server with the environment given; stops what is left."""
    servers: list[Server] = []

    def start(**environment: str) -> Server:
        fake = {"SD_SOURCE": SOURCE, "FAKE_PASS_MS": "1"}
        servers.append(Server(tmp_path / "log.txt", "--address", "127.0.0.1", **fake | environment))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


async def visit(server: Server) -> Page:
    url = f"{server.url.replace('http', 'ws')}/app/live"
    return Page(await websocket_connect(url))


async def ended(server: Server) -> int:
    """The status it ends with."""
    return await asyncio.to_thread(server.process.wait, 60)


async def test_races_under_way_end_and_those_that_wait_are_told(started: Any) -> None:
    server = started(SD_MAX_ACTIVE="1", SD_SLICE_SECONDS="1000", SD_DRAIN_SECONDS="60")
    page, waiting = await visit(server), await visit(server)
    page.run(prompt="slow words", length=20)
    await page.until("pass")
    waiting.run()
    await waiting.until("queue")
    server.process.send_signal(signal.SIGTERM)
    await page.until("stopping")
    assert (await waiting.until("error"))["code"] == "server_stopping"
    waiting.send(do="run", pair="embedded", settings=SETTINGS)
    assert (await waiting.until("refused"))["code"] == "server_stopping"
    await page.until("end")
    Trace.from_events(page.events)
    assert await page.closed() == (1012, "the server is being restarted")
    assert await ended(server) == 0


async def test_a_race_that_takes_too_long_ends_with_words(started: Any) -> None:
    server = started(SD_DRAIN_SECONDS="1", SD_LOG="json")
    page = await visit(server)
    page.run(prompt="slow words", length=500)
    await page.until("pass")
    server.process.send_signal(signal.SIGTERM)
    assert (await page.until("error"))["code"] == "server_stopping"
    assert await page.closed() == (1012, "the server is being restarted")
    assert await ended(server) == 0
    lines = [line for line in server.text().splitlines() if line.startswith("{")]
    entries = [json.loads(line) for line in lines]
    assert any("Bokeh app running" in entry["message"] for entry in entries)
    assert any(entry["part"] == "sd.engine" for entry in entries), "the engine's lines too"


async def test_a_second_signal_does_not_wait(started: Any) -> None:
    server = started(SD_DRAIN_SECONDS="600")
    page = await visit(server)
    page.run(prompt="slow words", length=500)
    await page.until("pass")
    server.process.send_signal(signal.SIGTERM)
    await page.until("stopping")
    server.process.send_signal(signal.SIGTERM)
    assert await ended(server) == 0
