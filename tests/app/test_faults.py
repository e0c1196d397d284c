"""What goes wrong on the way: engines, devices, disks, clocks, and pages that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from app import hub as hubs
from app import live, readers, routes
from app.readers import Reader, Rounds
from app.worker import ROOT
from kernels.trace import Trace
from tests.app.conftest import SOURCE, Open

unix = pytest.mark.skipif(os.name != "posix", reason="works with Unix processes and sockets")


async def until(condition: Any, seconds: float = 40.0) -> None:
    """Wait for something; the limit is generous, the machine may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.02)


# --- the engine ---------------------------------------------------------------------------------


@unix
async def test_an_engine_killed_in_mid_race(visit: Open) -> None:
    page, waiting = await visit(), await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    waiting.run()
    await waiting.until("queue")
    worker = live.hub().worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    error = await page.until("error")
    assert (error["code"], error["detail"]) == ("engine_failed", {"reason": "signal 9"})
    await waiting.until("end")  # it had lost nothing, and the new engine takes it up
    Trace.from_events(waiting.events)
    page.run()
    await page.until("end")


async def test_an_engine_that_hangs_is_ended(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_STALL_SECONDS", "1")
    monkeypatch.setattr(hubs, "WATCH_EVERY", 0.1)
    page, waiting = await visit(), await visit()
    page.run(prompt="hang here")
    await page.until("pass")
    waiting.run()
    error = await page.until("error")
    assert (error["code"], error["detail"]) == ("engine_failed", {"reason": "silent"})
    await waiting.until("end")


@pytest.mark.parametrize(
    ("prompt", "code"),
    [("memory full", "out_of_memory"), ("nan there", "not_finite"), ("disk full", "disk_full")],
)
async def test_a_fault_ends_one_race_and_is_named(visit: Open, prompt: str, code: str) -> None:
    page, other = await visit(), await visit()
    page.run(prompt=prompt)
    other.run(length=30)
    error = await page.until("error")
    assert error["code"] == code
    assert not any(token["id"] >= 30 for e in page.events for token in e.get("tokens", ()))
    await other.until("end")
    assert live.hub().worker is not None
    pid = live.hub().worker.pid
    page.run()
    await page.until("end")
    assert live.hub().worker.pid == pid, "the engine has not been lost"


@unix
def test_a_log_on_a_full_disk_stops_nothing() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 (a device)
        engine = subprocess.Popen(
            [sys.executable, "-P", "-m", "app.engine"],
            cwd=ROOT,
            env=os.environ | {"SD_SOURCE": SOURCE, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
        )
    assert engine.stdin is not None
    assert engine.stdout is not None
    with engine, engine.stdin as commands:
        settings = '{"prompt": "the small model", "length": 5}'
        commands.write(f'{{"do":"run","run":"a","pair":"embedded","settings":{settings}}}\n')
        commands.write(f'{{"do":"run","run":"b","pair":"embedded","settings":{settings}}}\n')
        commands.flush()
        lines = []
        for line in engine.stdout:
            lines.append(line)
            if '"over","run":"b"' in line:
                break
        assert sum('"type":"end"' in line for line in lines) == 2, "".join(lines)


async def test_the_clock_on_the_wall_may_jump(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_KEEP_SECONDS", "30")
    wall = time.time
    page = await visit()
    page.run(prompt="slow words", length=20)
    await page.until("pass")
    for jump in (86_400.0, -86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: wall() + jump)
        for _ in range(4):
            await page.next()
    await page.until("end")
    times = [e["start"] for e in page.events if e["type"] == "pass" and e["lane"] == "plain"]
    assert times == sorted(times)
    late = await visit()
    late.race = page.race
    late.send(do="resume", race=page.race, have=0)
    await late.until("end")


def test_no_timer_of_ours_reads_the_wall_clock() -> None:
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "kernels").glob("clock.py")]:
        assert "time.time()" not in path.read_text("utf-8"), path


# --- pages that mean no good ----------------------------------------------------------------------


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
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (routes.HEADERS + 1000),
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (routes.BODY + 1),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", bounded)
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 40)
        assert b"200" not in answer[:20]
        writer.close()


# --- pages that go to sleep -----------------------------------------------------------------------


async def test_a_laptop_that_slept_finds_its_race_or_is_told(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PING_SECONDS", 0.3)
    monkeypatch.setenv("SD_LEAVE_SECONDS", "2")
    monkeypatch.setenv("SD_KEEP_SECONDS", "2")
    page = await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    # Asleep: the line is up, but nothing answers the server's pings any more.
    assert page.connection.protocol is not None
    page.connection.protocol.stream.io_loop.remove_handler(page.connection.protocol.stream.socket)
    await until(lambda: live.state()["readers"] == 0)
    again = await visit()  # woken within the time that races wait for their page
    again.race, again.events = page.race, page.events
    again.send(do="resume", race=page.race, have=len(page.events))
    await again.until("pass")
    assert again.connection.protocol is not None
    again.connection.protocol.stream.io_loop.remove_handler(again.connection.protocol.stream.socket)
    await until(lambda: page.race not in live.hub().races)
    late = await visit()  # woken much later
    late.send(do="resume", race=page.race, have=len(again.events))
    assert (await late.until("refused"))["code"] == "race_gone"
    late.run()
    await late.until("end")


# --- many pages -----------------------------------------------------------------------------------


async def test_nothing_is_kept_of_pages_that_have_left(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_KEEP_SECONDS", "1")
    monkeypatch.setenv("SD_LEAVE_SECONDS", "1")
    known: weakref.WeakSet[Any] = weakref.WeakSet()
    plain = Reader.__init__

    def remember(self: Reader, *arguments: Any) -> None:
        plain(self, *arguments)
        known.add(self)

    monkeypatch.setattr(Reader, "__init__", remember)
    for number in range(60):
        page = await visit()
        if number % 3 == 0:
            page.run(prompt="slow words", seed=number)
        if number % 3 == 1 and page.seen:
            page.send(do="cancel")
        await page.next()
        if number % 2:
            page.drop()
        else:
            page.connection.close(1000)
    hub = live.hub()
    await until(lambda: not hub.readers and not hub.races and not hub.active)
    assert not hub.waiting
    assert not hub._runs
    del page

    def forgotten() -> bool:
        gc.collect()
        return not known

    await until(forgotten)
