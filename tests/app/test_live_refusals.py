"""What the live race refuses, and what its owner decides."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from app import live
from app.limits import Limits
from app.sources import KernelSource
from kernels.errors import SdError
from tests.app.conftest import SETTINGS, Open


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
    pages[2].run(seed=1)
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
