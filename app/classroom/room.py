"""The room: what the class sees, what it has guessed, the race it watches, and who is there.

Everything runs in the server's event loop, so there are no locks. What a page is to be told waits
in its `Member`, the latest of each kind (app/readers.py): a page that is slow to take it misses
steps, never the present state. A message is turned into text once, however many pages get it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from app.classroom import checks
from app.races import Race, as_text
from app.readers import Reader, Rounds
from kernels.errors import SdError

#: Teachers' pages at once: a laptop, a tablet as a remote, a colleague.
TEACHERS = 8
PHASES = ("open", "locked", "revealed")

Message = dict[str, Any]


class Member(Reader):
    """One page in the room.

    Args:
        write, close: as of any reader.
        teacher: whether it showed the key.
        voter: the number drawn for its tab.
    """

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        close: Callable[[int, str], None] = lambda code, reason: None,
        *,
        teacher: bool,
        voter: str,
    ) -> None:
        super().__init__(write, close)
        self.teacher, self.voter = teacher, voter
        self.follows = True


@dataclass
class Bet:
    """What the class guesses about one figure. votes: tab → option."""

    phase: str = "open"
    votes: dict[str, int] = field(default_factory=dict)

    def counts(self, figure_id: str) -> list[int]:
        """Return how many chose each option."""
        chosen = Counter(self.votes.values())
        return [chosen[option] for option in range(checks.options(figure_id))]


class Room:
    """The one room of a server.

    Args:
        rounds: sends to all pages what is due.
        readers: pages that fit in.
        grace: seconds that a class goes on without its teacher (whose page may be reloading).
    """

    def __init__(self, rounds: Rounds, readers: int, grace: float = 30.0) -> None:
        self.rounds, self.readers, self.grace = rounds, readers, grace
        self.members: set[Member] = set()
        self._voters: dict[str, int] = {}  # tab → its connections, oldest first
        self._ending: asyncio.TimerHandle | None = None
        self.session = False
        self.forget()

    def forget(self) -> None:
        """Start anew: no place, no state, no guesses, no race."""
        self.id = secrets.token_urlsafe(6)  # of this class: pages forget their guesses with it
        self.place: checks.Place | None = None
        self.figures: dict[str, checks.State] = {}
        self.bets: dict[str, Bet] = {}
        self.race: Race | None = None

    # --- who is there ----------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """A page is there; it is told how things stand.

        Raises:
            SdError: `room_full`, too many pages, or too many teachers'.
        """
        teachers = sum(other.teacher for other in self.members)
        if len(self.members) >= self.readers or (member.teacher and teachers >= TEACHERS):
            raise SdError("room_full", "The room is full; try again later.")
        if not member.teacher:
            self._admit(member)
        self.members.add(member)
        member.rounds = self.rounds
        if member.teacher:
            if self._ending is not None:
                self._ending.cancel()
                self._ending = None
            self._set_session(True)
        member.tell(**self._welcome(member))
        member.watch(self.race)
        self._count()

    def leave(self, member: Member) -> None:
        """A page is gone. Its guesses stay: it may only be reloading."""
        if member not in self.members:
            return
        self.members.discard(member)
        self.rounds.remove(member)
        member.watch(None)
        if not member.teacher:
            self._voters[member.voter] -= 1
        elif not any(other.teacher for other in self.members):
            loop = asyncio.get_running_loop()
            self._ending = loop.call_later(self.grace, self._set_session, False)
        self._count()

    def _admit(self, member: Member) -> None:
        """Give a tab its number, or recognise the one it was given; room for a bounded number."""
        if member.voter in self._voters:
            self._voters[member.voter] += 1
            return
        member.voter = secrets.token_urlsafe(12)
        if len(self._voters) >= 2 * self.readers:
            gone = next(voter for voter, connected in self._voters.items() if not connected)
            del self._voters[gone]
            for bet in self.bets.values():
                bet.votes.pop(gone, None)
        self._voters[member.voter] = 1

    def _set_session(self, session: bool) -> None:
        """The class begins, or is over because no teacher has come back."""
        if session != self.session:
            self.session = session
            self._tell("session", {"type": "session", "session": session})

    def follow(self, member: Member, follows: bool) -> None:
        """A page follows the teacher, or goes on by itself."""
        member.follows = follows
        self._count()

    def _count(self) -> None:
        pages = [member for member in self.members if not member.teacher]
        following = sum(member.follows for member in pages)
        message = {"type": "people", "pages": len(pages), "following": following}
        self._tell("people", message, to=lambda member: member.teacher)

    # --- what is shown ---------------------------------------------------------------------------

    def move(self, member: Member, place: checks.Place) -> None:
        """A teacher has gone to another place."""
        self.place = place
        self._tell("place", {"type": "place", "place": place}, to=lambda m: m is not member)

    def set(self, member: Member, figure_id: str, state: checks.State) -> None:
        """A teacher has set a figure. state: what differs from its defaults."""
        self.figures[figure_id] = state
        message = {"type": "figure", "figure": figure_id, "state": state}
        self._tell(f"figure {figure_id}", message, to=lambda m: m is not member)

    def anew(self) -> None:
        """A teacher begins with another class: everybody is told the empty state."""
        self.forget()
        for member in self.members:
            member.watch(None)
            member.tell(**self._welcome(member))

    def show(self, race: Race) -> None:
        """From now on the room watches this race."""
        self.race = race
        self._tell("race", {"type": "race", "race": race.id})
        for member in self.members:
            member.watch(race)

    # --- guesses ---------------------------------------------------------------------------------

    def vote(self, member: Member, figure_id: str, option: int) -> None:
        """A page guesses; while the bet is open, its last guess counts."""
        bet = self.bets.setdefault(figure_id, Bet())
        if bet.phase != "open" or member.teacher:
            return
        bet.votes[member.voter] = option
        self._tell_bet(figure_id, to=lambda m: m.teacher or m.voter == member.voter)

    def decide(self, figure_id: str, phase: str) -> None:
        """A teacher opens, locks or reveals a bet. Opening one that was revealed starts it again.

        Raises:
            ValueError: no such phase.
        """
        if phase not in PHASES:
            raise ValueError(phase)
        bet = self.bets.setdefault(figure_id, Bet())
        if phase == "open" and bet.phase == "revealed":
            bet.votes.clear()
        bet.phase = phase
        self._tell_bet(figure_id, to=lambda _: True)

    def _tell_bet(self, figure_id: str, *, to: Callable[[Member], bool]) -> None:
        bet = self.bets[figure_id]
        counts = bet.counts(figure_id)
        for member in self.members:
            if to(member):
                message = {"type": "bet", "figure": figure_id} | _seen(bet, counts, member)
                member.hand(f"bet {figure_id}", as_text(message))

    def _bet(self, figure_id: str, member: Member) -> Message:
        bet = self.bets[figure_id]
        return _seen(bet, bet.counts(figure_id), member)

    # --- messages --------------------------------------------------------------------------------

    def _welcome(self, member: Member) -> Message:
        """Return how things stand, all of it: for a page that is new, late or back."""
        return {
            "type": "welcome",
            "role": "teacher" if member.teacher else "student",
            "voter": member.voter,
            "class": self.id,
            "session": self.session,
            "place": self.place,
            "figures": self.figures,
            "bets": {figure_id: self._bet(figure_id, member) for figure_id in self.bets},
            "race": None if self.race is None else self.race.id,
        }

    def _tell(
        self, kind: str, message: Message, *, to: Callable[[Member], bool] = lambda _: True
    ) -> None:
        text = as_text(message)
        for member in self.members:
            if to(member):
                member.hand(kind, text)

    def state(self) -> dict[str, Any]:
        """Return how many are there, for `/health`."""
        teachers = sum(member.teacher for member in self.members)
        return {
            "session": self.session,
            "teachers": teachers,
            "pages": len(self.members) - teachers,
        }


def _seen(bet: Bet, counts: list[int], member: Member) -> Message:
    """Return a bet as one page may see it: an open one keeps the others' guesses to itself."""
    told: Message = {"phase": bet.phase}
    if member.teacher or bet.phase != "open":
        told["counts"] = counts
    if not member.teacher:
        told["mine"] = bet.votes.get(member.voter, -1)
    return told
