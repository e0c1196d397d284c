"""The live race: a real socket, a real engine process, a source without weights."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app import live
from app.limits import Limits
from app.worker import ROOT
from kernels.trace import Trace
from tests.app.conftest import SOURCE, Open, Page


def kinds(page: Page) -> list[str]:
    return [event["type"] for event in page.events]


async def test_a_race_from_end_to_end(visit: Open) -> None:
    page = await visit()
    page.run()
    end = await page.until("end")
    hello = next(message for message in page.seen if message["type"] == "hello")
    assert [pair["name"] for pair in hello["pairs"]] == ["embedded", "other"]
    assert hello["limits"]["length"] == Limits().length
    assert {"loading", "ready", "asked"} <= {message["type"] for message in page.seen}
    assert kinds(page)[0] == "start"
    assert end["agreement"] == {"kind": "identical"}
    trace = Trace.from_events(page.events)  # validates
    assert trace.text("plain") == trace.text("speculative") != ""
    frames = [message for message in page.seen if message["type"] == "events"]
    assert len(frames) < len(page.events), "several events share a frame"
    assert live.state()["ready"] == "embedded"


async def test_twenty_wait_in_order_and_know_their_place(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PASS_MS", "5")  # a race outlasts the pause between two frames
    pages = [await visit() for _ in range(20)]
    for number, page in enumerate(pages):
        page.run(length=10, seed=number)
        await page.until("asked")
    finished: list[int] = []

    async def follow(number: int) -> None:
        await pages[number].until("end")
        finished.append(number)

    await asyncio.gather(*(follow(number) for number in range(20)))
    assert finished == sorted(finished), "first come, first served"
    places = [m["position"] for m in pages[-1].seen if m["type"] == "queue"]
    assert places == sorted(places, reverse=True)
    assert max(places) >= 15
    for page in pages:
        Trace.from_events(page.events)


async def test_cancel_frees_the_device_within_a_pass(visit: Open) -> None:
    page, other = await visit(), await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    other.run()
    passes = kinds(page).count("pass")
    page.send(do="cancel")
    await page.until("end")
    # The pass that was running ends, and one event may have been on its way.
    assert kinds(page).count("pass") <= passes + 2
    assert [e["reason"] for e in page.events if e["type"] == "finish"] == ["cancelled"] * 2
    assert page.events[-1]["agreement"] == {"kind": "unfinished"}
    await other.until("end")


async def test_cancelling_while_waiting_leaves_the_queue(visit: Open) -> None:
    page, other, third = await visit(), await visit(), await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    other.run(seed=1)
    assert (await other.until("queue"))["position"] == 1
    third.run(seed=2)
    assert (await third.until("queue"))["position"] == 2
    other.send(do="cancel")
    assert (await other.until("error"))["code"] == "cancelled"
    assert (await third.until("queue"))["position"] == 1
    assert live.state()["waiting"] == 1


async def test_leaving_cancels(visit: Open) -> None:
    page, other = await visit(), await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    race = live.hub().races[page.race]
    page.connection.close(1001)
    other.run()
    await other.until("end")
    assert race.over
    assert race.events[-1]["agreement"] == {"kind": "unfinished"}


async def test_asking_again_replaces_the_race(visit: Open) -> None:
    page = await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    first = live.hub().races[page.race]
    page.run()
    await page.until("asked")
    await page.until("end")
    assert live.hub().races[page.race] is not first
    assert first.over
    Trace.from_events(page.events)


async def test_a_broken_connection_resumes_without_losing_a_token(visit: Open) -> None:
    page = await visit()
    page.run(prompt="a long text", length=150)
    while len(page.events) < 20:
        await page.next()
    page.drop()
    await asyncio.sleep(0.1)
    again = await visit()
    again.race, again.events = page.race, page.events
    again.send(do="resume", race=page.race, have=len(page.events))
    await again.until("end")
    trace = Trace.from_events(again.events)
    assert trace.text("plain") == trace.text("speculative")
    assert trace.events[-1]["stats"]["plain"]["tokens"] == 150


async def test_a_finished_race_can_be_fetched_for_a_while(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_KEEP_SECONDS", "1")
    page = await visit()
    page.run()
    await page.until("end")
    page.drop()
    again = await visit()
    again.race = page.race
    again.send(do="resume", race=page.race, have=0)
    await again.until("end")
    assert again.events == page.events
    await asyncio.sleep(1.1)
    again.send(do="resume", race=page.race, have=0)
    assert (await again.until("refused"))["code"] == "race_gone"


async def test_who_does_not_come_back_loses_the_race(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_LEAVE_SECONDS", "1")
    page = await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    race = live.hub().races[page.race]
    page.drop()
    await asyncio.sleep(0.3)
    assert not race.over, "it waits a while"
    for _ in range(40):
        await asyncio.sleep(0.1)
        if race.over:
            break
    assert race.events[-1]["agreement"] == {"kind": "unfinished"}


async def test_an_engine_that_dies_is_started_again(visit: Open) -> None:
    page, other = await visit(), await visit()
    page.run(prompt="crash now")
    other.run()
    assert (await page.until("error"))["code"] == "engine_failed"
    await other.until("end")
    page.run()
    await page.until("end")


async def test_an_engine_that_keeps_dying_is_given_up(visit: Open) -> None:
    pages = [await visit() for _ in range(5)]
    for number, page in enumerate(pages):
        page.run(prompt="crash now", seed=number)
    for page in pages:
        assert (await page.until("error"))["code"] == "engine_failed"
    assert live.state()["engine"] == "off"
    pages[0].run()  # somebody asks anew
    await pages[0].until("end")


async def test_weights_that_cannot_be_found(
    visit: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAKE_LOAD", "fail")
    monkeypatch.setenv("FAKE_LOAD_AGAIN", str(tmp_path / "there"))
    page = await visit()
    news = await page.until("failed")  # told without being asked
    assert news["error"]["code"] == "weights_not_found"
    page.run()
    error = await page.until("error")
    assert error["detail"]["tried"] == [{"place": "here", "why": "nothing there"}]
    (tmp_path / "there").touch()
    page.run()
    await page.until("end")


async def test_stopping_the_server_stops_the_engine(visit: Open) -> None:
    page = await visit()
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    worker = live.hub().worker
    assert worker is not None
    started = time.monotonic()
    live.stop()
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


@pytest.mark.skipif(os.name != "posix", reason="kills a process the Unix way")
def test_the_engine_does_not_outlive_a_killed_server() -> None:
    code = (
        "import time; from app.worker import Worker\n"
        "def say(m): print(m['type'], flush=True)\n"
        "w = Worker(lambda f, *a: f(*a), say, lambda: None)\n"
        "print(w.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"SD_SOURCE": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        lines = {server.stdout.readline().strip(), server.stdout.readline().strip()}
        assert "source" in lines
        pid = int((lines - {"source"}).pop())
        server.send_signal(signal.SIGKILL)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the engine is still there")
