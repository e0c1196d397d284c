"""The room itself, with hundreds of pages that are lists: states, bounds, slow lines, memory."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest

from app.classroom.room import TEACHERS, Member, Room
from app.races import Race
from app.readers import Rounds
from kernels.errors import SdError
from kernels.settings import Settings


class Line:
    """The far end of a connection: keeps what arrives; while `stuck`, nothing does."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.stuck: asyncio.Event | None = None

    def write(self, text: str) -> Awaitable[None]:
        async def leave() -> None:
            if self.stuck is not None:
                await self.stuck.wait()
            self.frames.append(text)

        return leave()

    def messages(self, kind: str) -> list[dict[str, Any]]:
        return [m for m in map(json.loads, self.frames) if m["type"] == kind]


def enter(room: Room, *, teacher: bool = False, voter: str = "") -> tuple[Member, Line]:
    line = Line()
    member = Member(line.write, teacher=teacher, voter=voter)
    room.join(member)
    return member, line


def a_room(readers: int = 500, grace: float = 30.0) -> Room:
    return Room(Rounds(60.0), readers, grace)


async def settle(room: Room) -> None:
    """Until nothing is due any more."""
    for _ in range(2000):
        await asyncio.sleep(0.01)
        if room.rounds._timer is None:
            await asyncio.sleep(0.01)
            return
    raise AssertionError("rounds without end")


async def test_three_hundred_pages_all_get_the_last_state() -> None:
    room = a_room()
    teacher, _ = enter(room, teacher=True)
    pages = [enter(room) for _ in range(300)]
    for k in range(1, 101):
        room.set(teacher, "roofline", {"k": k})
        room.move(teacher, {"stop": "figure-roofline", "share": k / 100})
        if k % 10 == 0:
            await asyncio.sleep(0.005)
    await settle(room)
    for _, line in pages:
        assert line.messages("figure")[-1]["state"] == {"k": 100}
        assert line.messages("place")[-1]["place"]["share"] == 1.0
        assert len(line.messages("figure")) < 100, "steps in between may be left out"


async def test_a_message_is_made_once_however_many_get_it() -> None:
    room = a_room()
    teacher, _ = enter(room, teacher=True)
    pages = [enter(room) for _ in range(50)]
    await settle(room)
    room.set(teacher, "roofline", {"k": 77})
    await settle(room)
    assert len({id(line.frames[-1]) for _, line in pages}) == 1


async def test_a_page_that_takes_nothing_holds_nobody_up_and_little_memory() -> None:
    room = a_room()
    teacher, _ = enter(room, teacher=True)
    slow, slow_line = enter(room)
    _, quick_line = enter(room)
    await settle(room)
    slow_line.stuck = asyncio.Event()
    room.set(teacher, "roofline", {"k": 1})
    await asyncio.sleep(0.1)
    for k in range(2, 500):
        room.set(teacher, "roofline", {"k": k})
        room.set(teacher, "mask", {"m": k % 8 + 1})
    await asyncio.sleep(0.2)
    assert quick_line.messages("figure")[-1]["state"] == {"m": 4}
    assert len(slow._news) <= 2, "the latest of each kind waits, no more"
    slow_line.stuck.set()
    await settle(room)
    assert [m["state"] for m in slow_line.messages("figure")[-2:]] == [{"k": 499}, {"m": 4}]


async def test_the_count_is_that_of_a_ballot_box_on_paper() -> None:
    """Two hundred pages guess, think again, leave and come back; a dictionary keeps score."""
    draws = random.Random(4)
    room = a_room()
    enter(room, teacher=True)
    pages = {}
    for _ in range(200):
        member, _ = enter(room)
        pages[member.voter] = member
    assert len(pages) == 200
    expected: dict[str, int] = {}
    phase = "open"
    for _ in range(3000):
        voter = draws.choice(list(pages))
        action = draws.random()
        if action < 0.7:
            option = draws.randrange(3)
            room.vote(pages[voter], "roofline", option)
            if phase == "open":
                expected[voter] = option
        elif action < 0.97:
            room.leave(pages[voter])
            pages[voter], _ = enter(room, voter=voter)
            assert pages[voter].voter == voter
        else:
            before, phase = phase, draws.choice(["open", "locked", "revealed"])
            room.decide("roofline", phase)
            if (before, phase) == ("revealed", "open"):
                expected.clear()
        counts = Counter(expected.values())
        teacher = next(m for m in room.members if m.teacher)
        assert room._bet("roofline", teacher)["counts"] == [counts[i] for i in range(3)]


async def test_a_teacher_has_no_vote() -> None:
    room = a_room()
    teacher, _ = enter(room, teacher=True)
    room.vote(teacher, "roofline", 1)
    assert room.bets["roofline"].votes == {}


async def test_the_room_is_bounded() -> None:
    room = a_room(readers=20)
    for _ in range(TEACHERS):
        enter(room, teacher=True)
    with pytest.raises(SdError) as refused:
        enter(room, teacher=True)
    assert refused.value.code == "room_full"
    for _ in range(20 - TEACHERS):
        enter(room)
    with pytest.raises(SdError):
        enter(room)


async def test_tabs_that_come_and_go_for_ever_leave_nothing_behind() -> None:
    room = a_room(readers=10)
    enter(room, teacher=True)
    kept, _ = enter(room)
    room.vote(kept, "roofline", 2)
    for _ in range(3000):
        member, _ = enter(room)
        room.vote(member, "roofline", 0)
        room.leave(member)
    await settle(room)
    assert len(room.members) == 2
    assert len(room._voters) <= 20
    assert len(room.bets["roofline"].votes) <= 20
    assert room.bets["roofline"].votes[kept.voter] == 2, "who is there keeps the guess"
    gc.collect()
    # type(), not isinstance(): torch's deprecated stand-ins warn when they are asked what they are.
    members = [thing for thing in gc.get_objects() if type(thing) is Member]
    assert sum(member.rounds is room.rounds for member in members) <= 4


async def test_a_race_reaches_early_late_and_returning_pages_whole() -> None:
    room = a_room()
    enter(room, teacher=True)
    _, early = enter(room)
    race = Race("id", "embedded", Settings.from_dict({"prompt": "x"}))
    room.show(race)
    for number in range(50):
        race.add({"type": "pass", "number": number})
        await asyncio.sleep(0.001)
    _, late = enter(room)
    race.add({"type": "end"})
    await settle(room)
    _, after = enter(room)
    await settle(room)
    expected = [*range(50), None]
    for line in (early, late, after):
        events = [e for frame in line.messages("events") for e in frame["events"]]
        assert [event.get("number") for event in events] == expected
    assert len(early.messages("events")) < 51, "several events share a frame"
    room.anew()
    assert not race.readers
