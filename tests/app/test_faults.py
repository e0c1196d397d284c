"""What goes wrong on the way: engines, devices, disks, clocks, and pages that mean no good."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from typing import Any

import pytest

from app import hub as hubs
from app import live
from app.readers import Reader
from app.worker import ROOT
from kernels.trace import Trace
from tests.app.conftest import SOURCE, Open, until

unix = pytest.mark.skipif(os.name != "posix", reason="works with Unix processes and sockets")


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


@unix
async def test_an_engine_that_is_stopped_does_not_stop_the_server(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_STALL_SECONDS", "3")
    monkeypatch.setattr(hubs, "WATCH_EVERY", 0.1)
    pages = [await visit() for _ in range(8)]
    await pages[0].until("ready")
    worker = live.hub().worker
    assert worker is not None
    os.kill(worker.pid, signal.SIGSTOP)
    for number, page in enumerate(pages * 2):  # more than fits into the pipe to it
        page.run(prompt="x" * 7900, length=8, seed=number)
        await page.until("asked")
    await pages[-1].until("end")  # ended for its silence; a new one takes up what had not begun


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
        commands.write(
            f'{{"do":"run","run":"a","pair":"embedded","turns":1,"settings":{settings}}}\n'
        )
        commands.write(
            f'{{"do":"run","run":"b","pair":"embedded","turns":1,"settings":{settings}}}\n'
        )
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
    page.drop()
    again.drop()


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
