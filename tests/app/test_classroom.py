"""A class over real sockets: who may do what, what each page is told, and what it may not cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

import figures
from app import live
from app.classroom import socket
from kernels.trace import Trace
from tests.app.class_room import School, school

__all__ = ["school"]
SETTINGS = {"prompt": "the small model", "length": 12, "seed": 3}


async def test_students_see_what_the_teacher_shows_and_late_ones_too(school: School) -> None:
    teacher, _ = await school.teacher()
    early, welcome = await school.student()
    assert welcome["session"] and welcome["role"] == "student" and welcome["place"] is None
    teacher.send(do="move", place={"stop": "figure-roofline", "share": 0.25})
    teacher.send(do="set", figure="roofline", state={"k": 9, "hardware": "h100"})
    place = (await early.until("place"))["place"]
    assert place == {"stop": "figure-roofline", "share": 0.25}
    figure = await early.until("figure")
    assert figure["figure"] == "roofline" and figure["state"]["k"] == 9
    _, late = await school.student()
    assert late["place"] == place
    assert late["figures"] == {"roofline": figure["state"]}
    assert "addresses" not in json.dumps(late), "how to join is for the teacher's page"


async def test_a_figure_is_brought_into_its_schema(school: School) -> None:
    teacher, _ = await school.teacher()
    student, _ = await school.student()
    states: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("roofline", {"k": 1e9}, {"k": figures.get("roofline").schema()["k"]["max"]}),
        ("roofline", {"k": 10**400}, {}),
        ("roofline", {"k": [1]}, {}),
        ("roofline", {"no such name": 1, "__proto__": {"k": 1}}, {}),
        ("roofline", {"bet": "2", "solved": "yes"}, {}),
        ("branch", {"pattern": 5}, {}),
        ("tiles", {"t": 3.5}, {"t": 3.5}),
        ("tiles", {"t": "<img>"}, {}),
        ("race", {"mode": "live", "prompt": "<b>&"}, {"prompt": "<b>&"}),
        ("race", {"prompt": "x" * 5000}, {"prompt": "x" * 2000}),
    ]
    for figure, sent, kept in states:
        teacher.send(do="set", figure=figure, state=sent)
        told = await student.until("figure", figure=figure)
        assert told["state"] == kept, sent


async def test_only_the_key_makes_a_teacher(school: School) -> None:
    for key in ("", "the key of this tes", "the key of this test ", "ключ", 5, None, ["x"]):
        page = await school.stranger()
        page.send(do="hello", key=key)
        assert (await page.until("refused"))["code"] == "wrong_key", key
        assert await page.closed() == (live.REFUSED, "wrong_key")
    assert socket.room().state() == {"session": False, "teachers": 0, "pages": 0}


@pytest.mark.parametrize(
    "message",
    [
        {"do": "move", "place": {"stop": "decode", "share": 0}},
        {"do": "set", "figure": "roofline", "state": {}},
        {"do": "bet", "figure": "roofline", "phase": "revealed"},
        {"do": "run", "pair": "embedded", "settings": SETTINGS},
        {"do": "cancel"},
        {"do": "anew"},
        {"do": "hello"},
        {"do": "vote", "figure": "roofline", "option": 3},
        {"do": "vote", "figure": "roofline", "option": True},
        {"do": "vote", "figure": "../x", "option": 0},
        {"do": ["vote"]},
        {},
        [],
    ],
)
async def test_what_a_student_may_not_send_ends_the_connection(
    school: School, message: Any
) -> None:
    student, _ = await school.student()
    student.connection.write_message(json.dumps(message))
    assert await student.closed() == (live.REFUSED, "malformed message")


@pytest.mark.parametrize(
    "message",
    [
        {"do": "move", "place": {"stop": '"><script>', "share": 0}},
        {"do": "move", "place": {"stop": "decode", "share": "half"}},
        {"do": "move", "place": {"stop": "x" * 65}},
        {"do": "move", "place": None},
        {"do": "set", "figure": "no such", "state": {}},
        {"do": "set", "figure": "roofline", "state": [1]},
        {"do": "bet", "figure": "roofline", "phase": "won"},
        {"do": "bet", "figure": None, "phase": "open"},
        {"do": "sing"},
    ],
)
async def test_what_no_page_of_ours_sends_is_taken_from_no_teacher(
    school: School, message: Any
) -> None:
    teacher, _ = await school.teacher()
    teacher.send(**message)
    assert await teacher.closed() == (live.REFUSED, "malformed message")


async def test_guesses_are_closed_then_shown(school: School) -> None:
    teacher, _ = await school.teacher()
    ann, _ = await school.student()
    bob, _ = await school.student()
    ann.send(do="vote", figure="roofline", option=0)
    assert (await teacher.until("bet"))["counts"] == [1, 0, 0]
    bob.send(do="vote", figure="roofline", option=2)
    assert (await teacher.until("bet"))["counts"] == [1, 0, 1]
    ann.send(do="vote", figure="roofline", option=1)  # another thought
    assert (await teacher.until("bet"))["counts"] == [0, 1, 1]
    mine = await ann.until("bet", mine=1)
    assert "counts" not in mine, "the others' guesses sway nobody"
    teacher.send(do="bet", figure="roofline", phase="locked")
    told = await bob.until("bet", phase="locked")
    assert told["counts"] == [0, 1, 1] and told["mine"] == 2
    bob.send(do="vote", figure="roofline", option=1)  # too late
    teacher.send(do="bet", figure="roofline", phase="revealed")
    assert (await bob.until("bet", phase="revealed"))["counts"] == [0, 1, 1]
    teacher.send(do="bet", figure="roofline", phase="open")
    assert (await bob.until("bet", phase="open"))["mine"] == -1
    assert (await teacher.until("bet", phase="open"))["counts"] == [0, 0, 0]


async def test_a_reload_keeps_the_guess_and_does_not_double_it(school: School) -> None:
    teacher, _ = await school.teacher()
    page, welcome = await school.student()
    page.send(do="vote", figure="mask", option=2)
    await teacher.until("bet", counts=[0, 0, 1])
    page.connection.close()
    again, back = await school.student(voter=welcome["voter"])
    assert back["voter"] == welcome["voter"]
    assert back["bets"]["mask"] == {"phase": "open", "mine": 2}
    again.send(do="vote", figure="mask", option=0)
    assert (await teacher.until("bet"))["counts"] == [1, 0, 0]
    # A number that this server did not draw is not taken over: another one is drawn.
    _, other = await school.student(voter="made up")
    assert other["voter"] not in ("made up", welcome["voter"]) and len(other["voter"]) >= 16


async def test_one_race_for_all_outlives_the_teachers_page(school: School) -> None:
    teacher, _ = await school.teacher()
    student, _ = await school.student()
    teacher.send(do="run", pair="embedded", settings=SETTINGS | {"length": 60})
    name = (await student.until("race"))["race"]
    await student.until("pass")
    teacher.connection.close()
    late, welcome = await school.student()
    assert welcome["race"] == name
    await asyncio.gather(student.until("end"), late.until("end"))
    assert student.events == late.events
    Trace.from_events(student.events)  # validates
    # Long after its end, a page that comes still sees it.
    later, _ = await school.student()
    await later.until("end")
    assert later.events == student.events


async def test_a_race_that_cannot_be_is_explained_to_its_teacher_alone(school: School) -> None:
    teacher, _ = await school.teacher()
    student, _ = await school.student()
    teacher.send(do="run", pair="embedded", settings=SETTINGS | {"prompt": " "})
    assert (await teacher.until("refused"))["code"] == "empty_prompt"
    teacher.send(do="move", place={"stop": "decode", "share": 0})
    await student.until("place")
    assert not [m for m in student.seen if m["type"] in ("refused", "race")]


async def test_another_race_ends_the_one_before(school: School) -> None:
    teacher, _ = await school.teacher()
    teacher.send(do="run", pair="embedded", settings=SETTINGS | {"prompt": "slow words"})
    await teacher.until("pass")
    first = socket.room().race
    teacher.send(do="run", pair="embedded", settings=SETTINGS)
    await teacher.until("race")
    teacher.events.clear()
    await teacher.until("end")
    assert first is not None and first.last is not None
    assert first.last["agreement"] == {"kind": "unfinished"}


async def test_who_follows_is_counted_for_the_teacher(school: School) -> None:
    teacher, _ = await school.teacher()
    student, _ = await school.student()
    await teacher.until("people", pages=1, following=1)
    student.send(do="follow", follows=False)
    await teacher.until("people", pages=1, following=0)
    student.connection.close()
    await teacher.until("people", pages=0, following=0)
    assert not [m for m in student.seen if m["type"] == "people"]


async def test_a_class_is_over_a_while_after_its_last_teacher(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, welcome = await school.student()
    assert not welcome["session"]
    socket.room().grace = 0.2
    teacher, _ = await school.teacher()
    await student.until("session", session=True)
    teacher.connection.close()
    again, _ = await school.teacher()  # a reload
    await asyncio.sleep(0.4)
    assert socket.room().session
    again.connection.close()
    await student.until("session", session=False)


async def test_another_class_starts_with_nothing(school: School) -> None:
    teacher, _ = await school.teacher()
    student, before = await school.student()
    teacher.send(do="set", figure="roofline", state={"k": 9})
    student.send(do="vote", figure="roofline", option=1)
    await teacher.until("bet", counts=[0, 1, 0])
    teacher.send(do="anew")
    after = await student.until("welcome")
    assert after["class"] != before["class"]
    assert (after["figures"], after["bets"], after["place"], after["race"]) == ({}, {}, None, None)


async def test_only_our_own_pages_may_connect(school: School) -> None:
    with pytest.raises(HTTPClientError) as refused:
        await school.stranger(Origin="http://evil.example")
    assert refused.value.code == 403


async def test_a_full_room_says_so_and_silent_pages_do_not_fill_it(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_MAX_READERS", "3")
    monkeypatch.setattr(socket, "INTRODUCTION", 0.3)
    await school.teacher()
    await school.student()
    silent = await school.stranger()
    turned_away = await school.stranger()
    assert (await turned_away.until("refused"))["code"] == "room_full"
    assert await turned_away.closed() == (socket.TRY_LATER, "room_full")
    assert await silent.closed() == (live.REFUSED, "no introduction")
    await school.student()  # there is room again


async def test_floods_and_long_messages_end_the_connection(school: School) -> None:
    student, _ = await school.student()
    student.send(do="vote", figure="roofline", option=0, padding="x" * socket.LONGEST_OF_STUDENT)
    assert await student.closed() == (live.REFUSED, "long message")
    flood, _ = await school.student()
    for _ in range(int(socket.STUDENT[1]) + 20):
        flood.send(do="follow", follows=True)
    assert await flood.closed() == (live.REFUSED, "too many messages")
    teacher, _ = await school.teacher()
    teacher.send(do="set", figure="race", state={"prompt": "x" * socket.LONGEST})
    assert (await teacher.closed())[0] == 1009
    # A teacher who drags a slider that moves four figures stays well below what is allowed.
    teacher, _ = await school.teacher()
    for step in range(int(socket.TEACHER[1]) - 20):
        teacher.send(do="set", figure="roofline", state={"k": 1 + step})
    watcher, _ = await school.teacher()
    assert watcher.connection.close_code is None and teacher.connection.close_code is None


@pytest.mark.parametrize("text", ["not JSON", "null", "[" * 5000, "1e999", '"\\ud800"'])
async def test_noise_ends_the_connection(school: School, text: str) -> None:
    page = await school.stranger()
    page.connection.write_message(text)
    assert await page.closed() == (live.REFUSED, "malformed message")
