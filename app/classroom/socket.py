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
teacher  ``run``: ``pair``, ``settings``    ``events`` of the race, as ``/app/live`` sends them;
                                            teachers: its ``queue``, ``loading``, ``refused``
teacher  ``cancel``                         the last ``events`` of the race
teacher  ``anew``                           ``welcome``, everything empty
=======  =================================  =====================================================

and ``session`` when a teacher comes, or has been gone for a while.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from app import live
from app.classroom import address, checks
from app.classroom.room import Member, Room, as_text
from app.classroom.stage import Stage
from app.limits import limits
from kernels.errors import SdError

#: Bytes of the longest message of a teacher: a figure with a prompt of the longest kind.
LONGEST = 64 * 1024
#: Bytes of the longest message of a student.
LONGEST_OF_STUDENT = 512
#: Seconds in which a page has to say who it is.
INTRODUCTION = 10.0
#: Seconds before a wrong key is answered.
WRONG_KEY = 1.0
#: Messages a second in the long run, and at once: (student, teacher).
RATE = {False: (5.0, 20.0), True: (40.0, 120.0)}
REFUSED, TRY_LATER = 1008, 1013

_room: Room | None = None
_stage: Stage | None = None
_strangers = 0


def room() -> Room:
    """Return the room of this server, made on first use."""
    global _room
    if _room is None:
        _room = Room(limits().readers)
    return _room


def stage() -> Stage:
    """Return what runs the room's races, made on first use."""
    global _stage
    if _stage is None:
        _stage = Stage(room(), live.hub())
    return _stage


class Pace:
    """A bucket of messages that fills with time (a token bucket)."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst, self.left, self.at = rate, burst, burst, time.monotonic()

    def take(self) -> bool:
        """Take one; False when there is none."""
        now = time.monotonic()
        self.left = min(self.burst, self.left + (now - self.at) * self.rate)
        self.at = now
        self.left -= 1
        return self.left >= 0


class RoomHandler(WebSocketHandler):
    """One page's connection to the room."""

    member: Member | None = None
    pumping: asyncio.Task[None] | None = None
    waiting: asyncio.TimerHandle | None = None
    counted = False

    def initialize(self, **_: Any) -> None:
        """Take no options (Bokeh gives every handler some)."""

    @property
    def max_message_size(self) -> int:
        """Longer messages close the connection."""
        return LONGEST

    @property
    def ping_interval(self) -> float:
        """Notice a peer that vanished, and keep proxies from closing a quiet line."""
        return live.PING_SECONDS

    #: Pages of this very host, and those that the owner let in.
    check_origin = live.LiveHandler.check_origin

    def open(self, *_: str, **__: str) -> None:
        """Wait for the page to say who it is, a while."""
        global _strangers
        if _strangers + len(room().members) >= room().readers:
            self._refuse(SdError("room_full", "The room is full; try again later."))
            return
        _strangers += 1
        self.counted = True
        self.pace = Pace(*RATE[False])
        self.waiting = asyncio.get_running_loop().call_later(
            INTRODUCTION, lambda: self.close(REFUSED, "no introduction")
        )

    def on_message(self, message: str | bytes) -> None:
        """Do what the page asks; close on what our page never sends."""
        if not self.counted:
            return
        longest = LONGEST if self.member is None or self.member.teacher else LONGEST_OF_STUDENT
        if len(message) > longest:
            self.close(REFUSED, "long message")
            return
        if not self.pace.take():
            self.close(TRY_LATER, "too many messages")
            return
        try:
            request = json.loads(message)
            if not isinstance(request, dict):
                raise ValueError("not an object")
            if self.member is None:
                self._introduce(request)
            else:
                self._do(self.member, request)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.close(REFUSED, "malformed message")
        except SdError as error:
            assert self.member is not None
            self.member.tell("news refused", as_text(live.refusal(error)))

    def _introduce(self, request: dict[str, Any]) -> None:
        if request["do"] != "hello" or self.waiting is None:
            raise ValueError("not a greeting")
        self.waiting.cancel()
        self.waiting = None
        teacher = "key" in request
        if teacher and not address.is_key(request["key"]):
            error = SdError("wrong_key", "This is not the key that this server printed.")
            asyncio.get_running_loop().call_later(WRONG_KEY, self._refuse, error)
            return
        voter = request.get("voter")
        member = Member(self._write, teacher=teacher, voter=voter if isinstance(voter, str) else "")
        try:
            room().join(member)
        except SdError as error:
            self._refuse(error)
            return
        self._forget_stranger()
        self.counted = True
        self.member, self.pace = member, Pace(*RATE[teacher])
        if teacher:
            message = {"type": "join", "addresses": address.offers(request.get("at"))}
            member.tell("join", as_text(message))
        self.pumping = asyncio.create_task(member.pump())

    def _do(self, member: Member, request: dict[str, Any]) -> None:
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
                stage().run(str(request["pair"])[:200], request["settings"])
            case "cancel":
                stage().cancel()
            case "anew":
                stage().close()
                room().anew()
            case _:
                raise ValueError("no such request")

    async def _write(self, text: str) -> None:
        try:
            await self.write_message(text)
        except WebSocketClosedError:
            return

    def _refuse(self, error: SdError) -> None:
        try:
            self.write_message(as_text(live.refusal(error)))
        except WebSocketClosedError:
            return
        self.close(TRY_LATER if error.code == "room_full" else REFUSED, error.code)

    def _forget_stranger(self) -> None:
        global _strangers
        if self.counted and self.member is None:
            _strangers -= 1
        self.counted = False

    def on_close(self) -> None:
        """Leave the room."""
        if self.waiting is not None:
            self.waiting.cancel()
        if self.pumping is not None:
            self.pumping.cancel()
        self._forget_stranger()
        if self.member is not None:
            room().leave(self.member)
            self.member = None
