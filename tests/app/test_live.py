"""The live race: a real socket, a real engine process, a source without weights."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, websocket_connect

from app import live
from app.limits import Limits
from app.sources import KernelSource
from app.worker import ROOT
from kernels.errors import SdError
from kernels.trace import Trace

SOURCE = "tests.app.fake_source:FakeSource"
SETTINGS = {"prompt": "the small model", "length": 12, "seed": 3}


class Page:
    """What the browser does, in Python."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
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
        text = await asyncio.wait_for(self.connection.read_message(), 20)
        if text is None:
            return None
        message: dict[str, Any] = json.loads(text)
        self.seen.append(message)
        if message["type"] == "asked":
            self.race = message["race"]
        if message["type"] == "events" and message["race"] == self.race:
            assert message["from"] == len(self.events), "a gap, or something twice"
            self.events += message["events"]
        return message

    async def until(self, kind: str) -> dict[str, Any]:
        """Read until a message or an event of this type; returns it."""
        while True:
            message = await self.next()
            assert message is not None, f"closed before {kind}: {self.connection.close_code}"
            if message["type"] == kind:
                return message
            if message["type"] == "events":
                found = [event for event in message["events"] if event["type"] == kind]
                if found:
                    return found[0]

    async def closed(self) -> tuple[int | None, str | None]:
        """Read until the server closes; returns code and reason."""
        while await self.next() is not None:
            pass
        return self.connection.close_code, self.connection.close_reason

    def drop(self) -> None:
        """Lose the connection without a word."""
        assert self.connection.protocol is not None
        self.connection.protocol.stream.close()


Open = Callable[..., Awaitable[Page]]


@pytest.fixture
async def visit(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens pages on a server of its own. Environment first: the engine inherits it."""
    monkeypatch.setenv("SD_SOURCE", SOURCE)
    monkeypatch.setenv("FAKE_PASS_MS", "1")
    monkeypatch.setattr(live, "_hub", None)
    # As in Bokeh's server: (class, options), and the list of other sites that may connect.
    application = Application([(r"/app/live", live.LiveHandler, {"application_context": None})])
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
    for page in pages:
        page.run(length=10)
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
    other.run()
    assert (await other.until("queue"))["position"] == 1
    third.run()
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


async def test_what_our_page_never_sends_closes_the_connection(visit: Open) -> None:
    for text in ("not JSON", "[]", "null", "{}", '{"do": "format"}', '{"do": ["run"]}', "[" * 5000):
        page = await visit()
        page.connection.write_message(text)
        assert await page.closed() == (live.REFUSED, "malformed message"), text


async def test_a_huge_message_closes_the_connection(visit: Open) -> None:
    page = await visit()
    page.send(do="run", pair="embedded", settings={"prompt": "x" * live.LONGEST_MESSAGE})
    assert (await page.closed())[0] == 1009


async def test_only_our_own_pages_may_connect(visit: Open) -> None:
    port = visit.port  # type: ignore[attr-defined]
    for origin in (
        f"http://localhost:{port}",
        "http://friend.example",
        "https://friend.example:80",
    ):
        await (await visit(Origin=origin)).until("hello")
    for origin in ("http://evil.example", "http://localhost", "null", "file://", ""):
        with pytest.raises(HTTPClientError) as refused:
            await visit(Origin=origin)
        assert refused.value.code == 403, origin


async def test_settings_out_of_bounds_are_refused(visit: Open) -> None:
    page = await visit()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"prompt": ""}, "empty_prompt"),
        ({"prompt": " \n"}, "empty_prompt"),
        ({"prompt": "x" * 8001}, "prompt_too_long"),
        ({"m": 0}, "bad_setting"),
        ({"m": 17}, "bad_setting"),
        ({"temperature": "hot"}, "bad_setting"),
        ({"length": -1}, "bad_setting"),
        ({"drafter": "oracle"}, "bad_setting"),
        ({"target": "evil/model"}, "bad_setting"),
    ]
    for change, code in changes:
        page.run(**change)
        assert (await page.until("refused"))["code"] == code, change
    for settings in (None, [], "x", 5, {"m": 4}):
        page.send(do="run", pair="embedded", settings=settings)
        assert (await page.until("refused"))["code"] in ("bad_setting", "empty_prompt")
    assert live.state()["waiting"] == 0
    page.run()
    await page.until("end")  # the connection goes on


async def test_a_reader_cannot_make_the_server_load_something_else(visit: Open) -> None:
    page = await visit()
    await page.until("hello")
    for pair in ("evil/model", "../../etc", "", None):
        page.send(do="run", pair=pair, settings=SETTINGS)
        refused = await page.until("refused")
        assert refused["code"] == "unknown_pair"


async def test_the_owner_bounds_the_length(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_MAX_LENGTH", "5")
    page = await visit()
    page.run(length=400)
    await page.until("end")
    assert page.events[0]["header"]["settings"]["length"] == 5
    assert page.events[-1]["stats"]["plain"]["tokens"] == 5


async def test_a_full_queue_and_a_full_house_say_so(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_MAX_QUEUE", "1")
    monkeypatch.setenv("SD_MAX_READERS", "3")
    pages = [await visit() for _ in range(3)]
    pages[0].run(prompt="slow words", length=200)
    await pages[0].until("pass")
    pages[1].run()
    await pages[1].until("queue")
    pages[2].run()
    assert (await pages[2].until("refused"))["code"] == "server_busy"
    late = await visit()
    assert (await late.until("refused"))["detail"]["limit"] == "readers"
    assert await late.closed() == (live.REFUSED, "server_busy")


async def test_known_and_unknown_faults_of_a_race(visit: Open) -> None:
    page = await visit()
    page.run(prompt="refuse this")
    error = await page.until("error")
    assert (error["code"], error["detail"]["tokens"], error["detail"]["limit"]) == (
        "prompt_too_long",
        99,
        9,
    )
    page.run(prompt="break this")
    error = await page.until("error")
    assert error["code"] == "engine_failed"
    assert "nobody foresaw" not in json.dumps(error), "inner workings stay in the log"
    page.run()
    await page.until("end")


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
    for page in pages:
        page.run(prompt="crash now")
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


def test_limits_come_from_the_environment() -> None:
    assert Limits.of({}) == Limits()
    assert Limits.of({"SD_MAX_LENGTH": "64", "SD_MAX_QUEUE": "3"}) == Limits(length=64, queue=3)
    assert Limits.of({"SD_MAX_LENGTH": "999999"}).length == 4096, "the engine's own bound"
    for wrong in ("0", "-1", "many", "1.5"):
        with pytest.raises(ValueError, match="SD_MAX_QUEUE"):
            Limits.of({"SD_MAX_QUEUE": wrong})


def test_the_owner_chooses_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered() -> list[str]:
        return [pair["name"] for pair in KernelSource().describe()]

    assert offered() == ["embedded"]
    monkeypatch.setenv("SD_PAIRS", "smollm2-1.7b, embedded")
    assert offered() == ["smollm2-1.7b", "embedded"]
    assert KernelSource().describe()[0]["drafters"] == ["both", "model", "lookup"]
    monkeypatch.setenv("SD_TARGET", "/models/mine")
    assert offered() == ["custom", "smollm2-1.7b", "embedded"]
    assert KernelSource().describe()[0]["drafters"] == ["lookup"]
    with pytest.raises(SdError, match="does not offer"):
        KernelSource().prepare("qwen3-8b", lambda *_: None)
    monkeypatch.setenv("SD_PAIRS", "nonsense")
    with pytest.raises(SdError) as unknown:
        KernelSource()
    assert unknown.value.code == "unknown_pair"
