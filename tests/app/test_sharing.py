"""One device and many readers: turns, runs that are shared, races that many follow."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from app import live, races
from kernels.trace import Trace
from tests.app.conftest import SETTINGS, Open, Page


def tokens(page: Page, lane: str) -> list[tuple[int, str]]:
    """All tokens of a lane with what became of them: what must not depend on turns."""
    return [
        (token["id"], token["origin"])
        for event in page.events
        if event["type"] == "pass" and event["lane"] == lane
        for token in event["tokens"]
    ]


# --- the very same run --------------------------------------------------------------------------


async def test_the_very_same_run_is_made_once(visit: Open) -> None:
    first, second, other = await visit(), await visit(), await visit()
    first.run(prompt="slow words", length=20)
    await first.until("pass")
    second.run(prompt="slow words", length=20)
    other.run(prompt="slow words", length=20, seed=4)
    asked = await second.until("asked")
    assert asked["joined"] is True, "a late joiner is told so"
    assert (await other.until("asked"))["joined"] is False, "another seed is another run"
    await asyncio.gather(first.until("end"), second.until("end"))
    assert first.race == second.race != other.race
    assert first.events == second.events, "from its beginning, nothing left out"
    Trace.from_events(second.events)
    # What is over is not handed out as if it ran now.
    second.run(prompt="slow words", length=20)
    assert (await second.until("asked"))["joined"] is False


async def test_one_of_two_readers_may_leave_and_the_last_one_ends_it(visit: Open) -> None:
    first, second = await visit(), await visit()
    for page in (first, second):
        page.run(prompt="slow words", length=200)
        await page.until("pass")
    race = live.hub().races[first.race]
    first.send(do="cancel")
    assert (await first.until("error"))["code"] == "cancelled"
    passes = len(second.events)
    while len(second.events) < passes + 4:
        await second.next()
    assert not race.over
    first.run()
    assert (await first.until("asked"))["race"] != race.id
    second.send(do="cancel")
    assert (await second.until("end"))["agreement"] == {"kind": "unfinished"}
    await first.until("end")


async def test_a_cancelled_run_is_not_joined(visit: Open) -> None:
    first, second = await visit(), await visit()
    first.run(prompt="slow words", length=200)
    await first.until("pass")
    first.send(do="cancel")
    await asyncio.sleep(0.02)  # its last pass is not over
    second.run(prompt="slow words", length=200)
    assert (await second.until("asked"))["joined"] is False


# --- many follow --------------------------------------------------------------------------------


async def test_a_shared_race_is_put_into_words_once_for_all(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PASS_MS", "10")
    made: list[Any] = []
    monkeypatch.setattr(
        races, "as_text", lambda m, plain=races.as_text: (made.append(m), plain(m))[1]
    )
    pages = [await visit() for _ in range(20)]
    await pages[0].until("hello")
    race = live.hub().share("embedded", SETTINGS | {"length": 40})
    for page in pages:
        page.race = race.id
        page.send(do="follow", race=race.id)
    await asyncio.gather(*(page.until("end") for page in pages))
    assert all(page.events == pages[0].events for page in pages)
    events = [
        m for m in made if isinstance(m, dict) and m["type"] in ("start", "pass", "finish", "end")
    ]
    assert len(events) == len(pages[0].events)
    frames = [[m for m in page.seen if m["type"] == "events"] for page in pages]
    assert 0 < len(frames[0]) < len(pages[0].events)
    stamps = [frame["at"] for frame in frames[0]]
    assert stamps == sorted(stamps)
    assert time.monotonic() - 60 < stamps[0] < time.monotonic()


async def test_a_shared_race_goes_on_without_readers_and_waits_for_late_ones(visit: Open) -> None:
    page = await visit()
    await page.until("hello")
    race = live.hub().share("embedded", SETTINGS | {"length": 30})
    page.race = race.id
    page.send(do="follow", race=race.id)
    await page.until("pass")
    page.connection.close(1001)
    while not race.over:
        await asyncio.sleep(0.02)
    assert race.last is not None
    assert race.last["type"] == "end"
    late = await visit()
    late.race = race.id
    late.send(do="follow", race=race.id)
    await late.until("end")
    assert late.events == race.events
    # Who is only looking cannot end it for the others.
    race = live.hub().share("embedded", SETTINGS | {"prompt": "slow words", "length": 100})
    late.race, late.events = race.id, []
    late.send(do="follow", race=race.id)
    await late.until("pass")
    late.send(do="cancel")
    await late.until("error")
    assert not race.ending
    live.hub().cancel(race)


async def test_a_long_race_comes_in_pieces(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "MOST_EVENTS", 10)
    page, late = await visit(), await visit()
    page.run(length=60)
    await page.until("end")
    late.race = page.race
    late.send(do="follow", race=page.race)
    await late.until("end")
    assert late.events == page.events
    sizes = [len(m["events"]) for m in late.seen if m["type"] == "events"]
    assert max(sizes) == 10
    assert len(sizes) == -(-len(page.events) // 10)


async def test_nobody_follows_a_race_without_its_secret(visit: Open) -> None:
    page, other = await visit(), await visit()
    page.run(prompt="slow words", length=100)
    await page.until("pass")
    for guess in ("", page.race[:-1], "0", None, [page.race]):
        other.send(do="follow", race=guess)
        assert (await other.until("refused"))["code"] == "race_gone"


# --- turns --------------------------------------------------------------------------------------


async def test_a_long_race_does_not_starve_a_short_one_and_clocks_stay_honest(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = await visit()
    alone.run(prompt="slow words", length=24, seed=9)
    await alone.until("end")
    live.stop()
    monkeypatch.setattr(live, "_hub", None)
    monkeypatch.setenv("SD_SLICE_SECONDS", "1")
    long, other, short = await visit(), await visit(), await visit()
    begun = time.monotonic()
    long.run(prompt="slow words", length=24, seed=9)
    await long.until("pass")
    other.run(prompt="slow words", length=24, seed=10)
    short.run(length=12)
    await short.until("end")
    assert not live.hub().races[long.race].over, "the short one did not wait for the long one's end"
    await asyncio.gather(long.until("end"), other.until("end"))
    wall = time.monotonic() - begun
    clocks = sum(
        e["clock"] for p in (long, other, short) for e in p.events if e["type"] == "finish"
    )
    assert clocks < wall, "no clock has counted another race's passes"
    for page in (long, other):
        Trace.from_events(page.events)
    for lane in ("plain", "speculative"):
        assert tokens(long, lane) == tokens(alone, lane), "turns change no token"


async def test_another_pair_waits_and_nobody_overtakes_it(visit: Open) -> None:
    first, second, third = await visit(), await visit(), await visit()
    first.run(prompt="slow words", length=200)
    await first.until("pass")
    second.run(pair="other", seed=1)
    await second.until("queue")
    third.run(seed=2)
    assert (await third.until("queue"))["position"] == 2
    assert list(live.hub().active) == [first.race]
    first.send(do="cancel")
    finished: list[str] = []

    async def follow(page: Page) -> None:
        await page.until("end")
        finished.append(page.race)

    await asyncio.gather(follow(third), follow(second))
    assert finished == [second.race, third.race]


async def test_a_class_waits_together_so_its_race_has_longer_turns(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_SLICE_SECONDS", "1")
    page, other = await visit(), await visit()
    await page.until("hello")
    race = live.hub().share("embedded", SETTINGS | {"prompt": "slow words", "length": 16})
    page.send(do="follow", race=race.id)
    page.race = race.id
    await page.until("pass")
    other.run()
    await other.until("pass")
    assert race.over, "some two seconds of the device in one go"


async def test_only_so_many_races_hold_memory(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_MAX_ACTIVE", "2")
    pages = [await visit() for _ in range(4)]
    for number, page in enumerate(pages):
        page.run(prompt="slow words", length=100, seed=number)
        await page.until("asked")
    await pages[0].until("pass")
    assert len(live.hub().active) == 2
    assert len(live.hub().waiting) == 2
    assert live.state()["waiting"] == 3
    assert live.state()["active"] == 1
