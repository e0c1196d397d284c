"""The WebSocket of a class: ``/app/room``.

A page says who it is first: ``{"do": "hello", "voter": "…"}`` as a student's (voter: what `welcome`
gave to this tab before, if it did), ``{"do": "hello", "key": "…", "at": "https://…"}`` as a
teacher's (at: the article's address as its browser has it). It gets ``welcome``: how things stand,
all of it, whether it is new, late or back. Then

=======  =================================  =====================================================
from     request                            what the others get
=======  =================================  =====================================================
any      ``follow``: ``follows``            teachers: ``people``: ``pages``, ``following``
student  ``vote``: ``figure``, ``option``   teachers: ``bet`` with ``counts``
teacher  ``move``: ``place``                ``place``
teacher  ``set``: ``figure``, ``state``     ``figure``
teacher  ``bet``: ``figure``, ``phase``     ``bet``: ``phase``, ``counts`` (not while it is open)
teacher  ``run``: ``pair``, ``settings``    ``race``: its id; then its ``queue`` and ``events``, as
                                            ``/app/live`` sends them
teacher  ``cancel``                         the last ``events`` of the race
teacher  ``anew``                           ``welcome``, everything empty
=======  =================================  =====================================================

and ``session`` when a teacher comes, or has been gone for a while; ``refused`` says why a request
was not taken.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tornado.websocket import WebSocketClosedError

from app import live
from app.classroom import address, checks
from app.classroom.room import Member, Room
from app.live import REFUSED, LiveHandler
from kernels.errors import SdError

#: Bytes of the longest message of a teacher: a figure with a prompt of the longest kind.
LONGEST = 64 * 1024
#: Bytes of the longest message of a student.
LONGEST_OF_STUDENT = 512
#: Seconds in which a page has to say who it is.
INTRODUCTION = 10.0
#: Seconds before a wrong key is answered.
WRONG_KEY = 1.0
#: Messages a second in the long run, and at once. A teacher who drags m moves several figures.
STUDENT, TEACHER = (5.0, 20.0), (60.0, 200.0)
#: Close code of RFC 6455's registry: "try again later".
TRY_LATER = 1013

_room: Room | None = None
_strangers = 0


def room() -> Room:
    """Return the room of this server, made on first use."""
    global _room
    if _room is None:
        hub = live.hub()
        _room = Room(hub.rounds, hub.limits.readers)
    return _room


def state() -> dict[str, Any]:
    """Return who is there, for ``/health``."""
    return {} if _room is None else _room.state()


class RoomHandler(LiveHandler):
    """One page's connection to the room. Who may connect, and how frames leave: as for a race."""

    member: Member | None = None
    _waiting: asyncio.TimerHandle | None = None
    _stranger = False

    @property
    def max_message_size(self) -> int:
        """Longer messages close the connection."""
        return LONGEST

    def open(self, *_: str, **__: str) -> None:
        """Wait for the page to say who it is, a while."""
        global _strangers
        if _strangers + len(room().members) >= room().readers:
            self._turn_away(SdError("room_full", "The room is full; try again later."))
            return
        _strangers += 1
        self._stranger = True
        self._may_send(*STUDENT)
        self._waiting = asyncio.get_running_loop().call_later(
            INTRODUCTION, self.close, REFUSED, "no introduction"
        )

    def on_message(self, message: str | bytes) -> None:
        """Do what the page asks; hang up on what our page never sends."""
        if self.member is None and not self._stranger:
            return
        self._count()
        student = self.member is not None and not self.member.teacher
        if student and len(message) > LONGEST_OF_STUDENT:
            self._refuse("long message")
        try:
            request = json.loads(message)
            if not isinstance(request, dict):
                raise ValueError("not an object")
            if self.member is None:
                self._introduce(request)
            else:
                self._act(self.member, request)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._refuse("malformed message")
        except SdError as error:
            if self.member is None:
                self._turn_away(error)
            else:
                self.member.tell(**live.refusal(error))

    def _introduce(self, request: dict[str, Any]) -> None:
        if request["do"] != "hello" or self._waiting is None:
            raise ValueError("not a greeting")
        self._waiting.cancel()
        self._waiting = None
        teacher = "key" in request
        if teacher and not address.is_key(request["key"]):
            error = SdError("wrong_key", "This is not the key that this server printed.")
            asyncio.get_running_loop().call_later(WRONG_KEY, self._turn_away, error)
            return
        voter = str(request.get("voter", ""))
        member = Member(self._write, self.close, teacher=teacher, voter=voter)
        room().join(member)
        self._forget_stranger()
        self.member = member
        if teacher:
            self._may_send(*TEACHER)
            member.tell(type="join", addresses=address.offers(request.get("at")))

    def _act(self, member: Member, request: dict[str, Any]) -> None:
        match request["do"]:
            case "follow":
                room().follow(member, request["follows"] is True)
            case "vote":
                if not checks.option(request["figure"], request["option"]):
                    raise ValueError("no such option")
                room().vote(member, request["figure"], request["option"])
            case _ if member.teacher:
                self._lead(member, request)
            case _:
                raise ValueError("not for students")

    @staticmethod
    def _lead(member: Member, request: dict[str, Any]) -> None:
        match request["do"]:
            case "move":
                place = checks.place(request["place"])
                if place is None:
                    raise ValueError("no such place")
                room().move(member, place)
            case "set":
                state = checks.state(request["figure"], request["state"])
                if state is None:
                    raise ValueError("no such figure")
                room().set(member, request["figure"], state)
            case "bet":
                if not checks.option(request["figure"], 0):
                    raise ValueError("no such bet")
                room().decide(request["figure"], request["phase"])
            case "run":
                race = live.hub().share(str(request["pair"])[:200], request["settings"])
                _end_race()
                room().show(race)
            case "cancel":
                _end_race()
            case "anew":
                _end_race()
                room().anew()
            case _:
                raise ValueError("no such request")

    def _turn_away(self, error: SdError) -> None:
        try:
            self.write_message(json.dumps(live.refusal(error)))
        except WebSocketClosedError:
            return
        self.close(TRY_LATER if error.code == "room_full" else REFUSED, error.code)

    def _forget_stranger(self) -> None:
        global _strangers
        if self._stranger:
            _strangers -= 1
        self._stranger = False

    def on_close(self) -> None:
        """Leave the room."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._forget_stranger()
        if self.member is not None:
            room().leave(self.member)
            self.member = None


def _end_race() -> None:
    """End the race that the room watches, if it is going on."""
    race = room().race
    if race is not None and not race.over:
        live.hub().cancel(race)
