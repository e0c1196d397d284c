"""Pages that mean no good, slow lines, and how little they trouble the others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from app import live, readers, routes
from app.readers import Reader, Rounds
from tests.app.conftest import Open, until


def frame(payload: bytes) -> bytes:
    """A masked text frame, as a browser sends it."""
    assert len(payload) < 126
    mask = b"\0\0\0\0"
    return b"\x81" + struct.pack("B", 0x80 | len(payload)) + mask + payload


def handshake(port: int) -> bytes:
    return (
        f"GET /app/live HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("payload", "reason"), [(b"{not json", "malformed message"), (b'{"do":"cancel"}', "too many")]
)
async def test_a_hundred_thousand_frames_trouble_nobody(
    visit: Open, payload: bytes, reason: str
) -> None:
    port: int = visit.port  # type: ignore[attr-defined]
    page = await visit()
    page.run(prompt="slow words", length=8)
    await page.until("pass")
    reader, writer = await asyncio.open_connection("localhost", port)
    writer.write(handshake(port))
    await reader.readuntil(b"\r\n\r\n")
    handled = 0
    plain = live.LiveHandler.on_message

    def count(self: live.LiveHandler, message: str | bytes) -> None:
        nonlocal handled
        handled += 1
        plain(self, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live.LiveHandler, "on_message", count)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                writer.write(frame(payload) * 1000)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        await page.until("end")  # meanwhile the others race
    most = live.BURST * live.hub().limits.rate
    assert 0 < handled < 3 * most, f"{handled} of 100 000 were read before the line was cut"
    writer.close()
    await until(lambda: live.state()["readers"] == 1)


async def test_a_page_that_never_reads_is_given_up_and_costs_one_frame(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_SLOW_SECONDS", "1")
    port: int = visit.port  # type: ignore[attr-defined]
    page = await visit()
    await page.until("hello")
    (known,) = live.hub().readers
    with socket.create_connection(("localhost", port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(handshake(port))
        await until(lambda: len(live.hub().readers) == 2)
        (reader,) = live.hub().readers - {known}
        handler: live.LiveHandler = reader.close.__self__  # type: ignore[attr-defined]
        stream = handler.ws_connection.stream  # type: ignore[union-attr]
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        page.run(length=500)
        await page.until("asked")
        deaf.sendall(frame(f'{{"do":"follow","race":"{page.race}"}}'.encode()))
        held = 0
        race = live.hub().races[page.race]
        while page.events[-1:] == [] or page.events[-1]["type"] != "end":
            await page.next()
            held = max(held, len(stream._write_buffer))
        frames = [len(str(m)) for m in page.seen if m["type"] == "events"]
        await until(lambda: reader not in live.hub().readers)
        assert race.over
        assert held < max(200_000, 20 * max(frames)), "what it does not take piles up"


async def test_a_slow_line_gets_more_at_a_time_and_delays_nobody() -> None:
    rounds = Rounds(patience=1000)
    released = asyncio.Event()
    slow_got: list[str] = []
    fast_got: list[str] = []

    async def slow(text: str) -> None:
        slow_got.append(text)
        await released.wait()

    async def fast(text: str) -> None:
        fast_got.append(text)

    one, two = Reader(slow), Reader(fast)
    one.rounds = two.rounds = rounds
    for number in range(50):
        for reader in (one, two):
            reader.tell(type="queue", position=50 - number)
        await asyncio.sleep(readers.FRAME_EVERY / 3)
    await until(lambda: '"position":1' in fast_got[-1])
    assert len(slow_got) == 1
    released.set()
    await until(lambda: len(slow_got) == 2)
    assert '"position":1' in slow_got[-1], "only the latest news is kept for it"


async def test_a_page_that_takes_nothing_is_closed() -> None:
    closed: list[tuple[int, str]] = []
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    rounds = Rounds(patience=0.2)
    reader = Reader(lambda text: never, lambda code, reason: closed.append((code, reason)))
    reader.rounds = rounds
    reader.tell(type="queue", position=1)
    await asyncio.sleep(0.1)
    reader.tell(type="queue", position=0)
    await until(lambda: closed)
    assert closed == [(1008, "takes nothing")]


async def test_rounds_leave_the_loop_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(patience=1000)
    clock, worked = asyncio.get_running_loop().time, time.thread_time
    busy = 0.0

    def write(text: str) -> asyncio.Future[None]:
        nonlocal busy
        begun = worked()
        while worked() < begun + 0.002:
            pass
        busy += worked() - begun
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    pages = [Reader(write) for _ in range(40)]
    for page in pages:
        page.rounds = rounds
    begun = clock()
    while clock() < begun + 1.5:
        for page in pages:
            page.tell(type="queue", position=1)
        await asyncio.sleep(0.01)
    # 80 ms of work a round: one every 30 ms would take all the time there is.
    assert busy / (clock() - begun) < 0.5


class _Hello(RequestHandler):
    def get(self) -> None:
        self.finish("hello")


@pytest.fixture
async def bounded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server with the bounds that `routes.register` sets, and little patience."""
    saved = HTTPServer._save_configuration()
    monkeypatch.setattr(routes, "SILENT", 1)
    routes.register()
    server = HTTPServer(Application([(r"/", _Hello)]))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server.add_socket(listening)
    yield listening.getsockname()[1]
    server.stop()
    HTTPServer._restore_configuration(saved)


async def test_connections_that_dawdle_are_closed_and_others_served(bounded: int) -> None:
    dawdling = [await asyncio.open_connection("127.0.0.1", bounded) for _ in range(200)]
    for _, writer in dawdling:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        await writer.drain()
    reader, writer = await asyncio.open_connection("127.0.0.1", bounded)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"hello")
    closed = await asyncio.gather(*(asyncio.wait_for(r.read(), 40) for r, _ in dawdling))
    assert closed == [b""] * 200
    for _, writer in dawdling:
        writer.close()


async def test_a_request_that_is_too_large_is_refused(bounded: int) -> None:
    for request in (
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (routes.HEADERS + 1000) + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (routes.BODY + 1),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", bounded)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 40)
        assert b"200" not in answer[:20]
        writer.close()
