"""Measurements that readers ask for: a real route, a real engine, a source of known limits."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient

import content
from app import live, measure
from tests.app.conftest import Open
from tests.app.fake_source import BANDWIDTH, FLOPS

ROOFLINE = {"what": "roofline"}


def sentence(text: str) -> dict[str, Any]:
    return {"what": "mask", "sentence": text}


class Reader:
    """What figures `roofline` and `mask` do in the browser."""

    def __init__(self, visit: Open) -> None:
        self.url = f"http://localhost:{visit.port}/app/measure"  # type: ignore[attr-defined]
        self.states: list[dict[str, Any]] = []

    async def post(self, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        text = body if isinstance(body, str) else json.dumps(body)
        answer = await AsyncHTTPClient().fetch(
            self.url,
            method="POST",
            body=text,
            headers={"Content-Type": "application/json", **headers},
            raise_error=False,
        )
        return answer.code, json.loads(answer.body) if answer.code == 200 else {}

    async def look(self) -> dict[str, Any]:
        answer = await AsyncHTTPClient().fetch(self.url)
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def ask(self, request: dict[str, Any], until: str = "done") -> dict[str, Any]:
        """Repeat a request until its state is `until`, or the end; returns the last answer."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            code, state = await self.post(request)
            assert code == 200
            self.states.append(state)
            if state["state"] in (until, "done", "refused"):
                assert state["state"] == until, state
                return state
            request = {k: v for k, v in request.items() if k != "again"}
            await asyncio.sleep(0.02)
        pytest.fail(f"no {until}: {self.states[-3:]}")


async def test_a_roofline_is_measured_once_for_all(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MEASURE_STEPS", "25")
    reader, other = Reader(visit), Reader(visit)
    assert await reader.look() == {"state": "none", "able": None}, "nothing has started"
    assert live.state()["engine"] == "off"
    found = (await reader.ask(ROOFLINE))["measured"]
    assert found["bandwidth"] == pytest.approx(BANDWIDTH)
    assert found["flops"] == pytest.approx(FLOPS)
    assert found["points"][0] == [1, 0.01, 0.01, 0.01]
    assert (found["device"], found["cores"], found["contaminated"]) == ("Fake processor", 2, False)
    shares = [state["share"] for state in reader.states if state["state"] == "running"]
    assert shares == sorted(shares)
    assert max(shares) > 0
    # Another page gets the same one at once, and "again" so soon after gets it too.
    for again in (await other.look(), (await other.post(ROOFLINE | {"again": True}))[1]):
        assert (again["state"], again["measured"]) == ("done", found)
        assert again["age"] < 60


async def test_measuring_anew_after_a_while_or_after_a_disturbed_run(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MEASURE", "disturbed")
    monkeypatch.setattr(measure, "FAULT_KEPT", 0.0)
    reader = Reader(visit)
    found = (await reader.ask(ROOFLINE))["measured"]
    assert found["contaminated"]
    assert (found["disturbed"], found["visits"]) == (20, 24)
    assert (await reader.post(ROOFLINE))[1]["state"] == "done", "not without being asked"
    assert (await reader.post(ROOFLINE | {"again": True}))[1]["state"] in ("waiting", "running")


async def test_a_sentence_gets_one_pass_and_many(visit: Open) -> None:
    reader = Reader(visit)
    record = (await reader.ask(sentence("  the small\tmodel guesses and one ")))["record"]
    assert record["sentence"] == "the small model guesses and one"
    assert len(record["tokens"]) == 6
    (engine,) = record["engines"]
    assert [run["m"] for run in engine["together"]] == [1, 2, 3, 4, 5]
    for run in engine["together"]:
        single = engine["alone"][-run["m"] - 1 :]
        assert [row["id"] for row in run["rows"]] == [row["id"] for row in single]
        assert all(row["difference"] == 0 for row in run["rows"])
    asked = len(live.hub().measurements._recent["127.0.0.1"] or [])
    await Reader(visit).ask(sentence("the small model guesses and one"))
    assert len(live.hub().measurements._recent["127.0.0.1"] or []) == asked, "kept for others"


async def test_a_race_stops_a_roofline_which_begins_anew(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MEASURE_STEPS", "1500")  # half a minute
    page, reader = await visit(), Reader(visit)
    await reader.ask(ROOFLINE, until="running")
    page.run()
    await page.until("end")
    await reader.ask(ROOFLINE, until="running")
    runs = live.hub().measurements._jobs["roofline"].tries
    assert runs == 2
    assert [m["position"] for m in page.seen if m["type"] == "queue"][-1] == 0


async def test_nobody_starts_a_roofline_beside_a_race(visit: Open) -> None:
    page, reader = await visit(), Reader(visit)
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    await reader.ask(ROOFLINE, until="waiting")
    await page.until("pass")
    assert (await reader.look())["state"] == "waiting"
    page.send(do="cancel")
    await reader.ask(ROOFLINE)


async def test_sentences_come_between_races_and_do_not_hold_them_up(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MEASURE_STEPS", "1500")
    monkeypatch.setattr(measure, "LONGEST", 0.2)
    pages, reader = [await visit() for _ in range(6)], Reader(visit)
    for number, page in enumerate(pages):
        page.run(length=10, seed=number)
        await page.until("asked")
    # One that lasts too long is stopped for the races each time, and given up in the end.
    slow = asyncio.create_task(reader.ask(sentence("slow words here"), until="refused"))
    quick = asyncio.create_task(Reader(visit).ask(sentence("quick words here")))
    for page in pages:
        await page.until("end")
    assert (await slow)["error"]["code"] == "server_busy"
    await quick


async def test_who_does_not_ask_any_more_is_forgotten(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "ASKER_GONE", 0.05)
    page, reader = await visit(), Reader(visit)
    page.run(prompt="slow words", length=200)
    await page.until("pass")
    await reader.ask(ROOFLINE, until="waiting")
    await asyncio.sleep(0.1)
    page.send(do="cancel")
    await page.until("end")
    assert (await reader.look())["state"] == "none"


async def test_an_engine_that_dies_or_cannot(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(visit)
    crashed = await reader.ask(sentence("crash now"), until="refused")
    assert crashed["error"]["code"] == "engine_failed"
    await reader.ask(sentence("go on then"))  # a new engine
    live.stop()
    monkeypatch.setattr(live, "_hub", None)
    monkeypatch.setenv("FAKE_MEASURE", "unable")
    page = await visit()
    hello = await page.until("hello")
    assert all("measures" not in pair for pair in hello["pairs"])
    assert await reader.look() == {"state": "none", "able": False}
    for request in (ROOFLINE, sentence("two words")):
        assert (await reader.ask(request, until="refused"))["error"]["code"] == "cannot_measure"


async def test_models_that_cannot_be_loaded_are_told(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOAD", "fail")
    refused = await Reader(visit).ask(ROOFLINE, until="refused")
    assert refused["error"]["code"] == "weights_not_found"


async def test_bounds(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_MAX_SENTENCE", "200")
    monkeypatch.setenv("SD_MAX_MEASURES", "3")
    reader = Reader(visit)
    for text, code in ((" \n", "empty_sentence"), ("x" * 201, "sentence_too_long")):
        refused = await reader.ask(sentence(text), until="refused")
        assert refused["error"]["code"] == code
    for text, code in (("word", "sentence_too_short"), ("a " * 31, "sentence_too_long")):
        refused = await reader.ask(sentence(text), until="refused")  # in tokens: the engine's word
        assert refused["error"]["code"] == code
    await reader.ask(sentence("a third one"))
    refused = await reader.ask(sentence("a fourth one"), until="refused")
    assert refused["error"]["code"] == "too_many_requests"
    assert 1 <= refused["error"]["detail"]["seconds"] <= 60
    await reader.ask(sentence("a third one"))  # known already: costs nothing


async def test_a_server_may_measure_itself_when_nobody_reads(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "ASKER_GONE", 0.0)
    monkeypatch.setenv("SD_WARM", "1")
    live.start()
    reader = Reader(visit)
    deadline = time.monotonic() + 60
    while (await reader.look())["state"] != "done":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_what_our_page_never_sends(visit: Open) -> None:
    reader = Reader(visit)
    for body in ("", "no", "[]", "3", {}, {"what": "x"}, {"what": "mask"}, sentence(5)):  # type: ignore[arg-type]
        assert (await reader.post(body))[0] == 400, body
    assert (await reader.post("x" * (measure.LONGEST_BODY + 1)))[0] == 413
    assert (await reader.post(ROOFLINE, **{"Content-Type": "text/plain"}))[0] == 415
    assert (await reader.post(ROOFLINE, Origin="http://evil.example"))[0] == 403
    assert live.hub().worker is None


def test_errors_have_words_in_both_languages() -> None:
    for lang in content.LANGUAGES:
        words = content.strings(lang)
        for code in (*measure.ERRORS, "other"):
            assert f"ui.measure_{code}" in words, (lang, code)
