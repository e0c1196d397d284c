"""Connected pages and the rounds in which they are sent what is due.

One round goes over all pages that are due, instead of a task for each of them. A page whose last
frame is still on its way is passed over, and gets the more in a later round: a slow line costs
nobody anything, and the server holds one frame for it at most. Rounds are `FRAME_EVERY` apart, or
so far that their work takes `SHARE` of the event loop's time: with many pages frames become fewer
and longer, before the server gets slow. Work is counted in processor time; on a busy machine a
round lasts longer without doing more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from app import metrics
from app.races import Race, as_text

#: Seconds between two frames to one page: an animation frame or two. Events that come faster
#: share one.
FRAME_EVERY = 0.03
#: Close code for a page that takes nothing of what it is sent.
SLOW = 1008
#: Most of the event loop's time that goes into rounds.
SHARE = 0.25


class Rounds:
    """Sends to all readers what is due.

    Args:
        patience: seconds after which a page that takes nothing is given up.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._due: dict[Reader, None] = {}  # in the order in which they became due
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0

    def add(self, reader: Reader) -> None:
        """Send to this reader in the next round."""
        self._due[reader] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time()), self._go)

    def remove(self, reader: Reader) -> None:
        """This reader has left."""
        self._due.pop(reader, None)

    def _go(self) -> None:
        begun, work = asyncio.get_running_loop().time(), time.thread_time()
        self._timer = None
        due, self._due = self._due, {}
        left = [reader for reader in due if reader.deliver(begun, self.patience)]
        self._next = begun + max(FRAME_EVERY, (time.thread_time() - work) / SHARE)
        for reader in left:
            self.add(reader)


class Reader:
    """One connected page, and what it still has to be sent.

    Args:
        write: sends one text frame; what it returns is done when the frame has left, or cannot.
        close: closes the connection, with a code of RFC 6455 and a reason.
    """

    def __init__(
        self,
        write: Callable[[str], Awaitable[None]],
        close: Callable[[int, str], None] = lambda code, reason: None,
    ) -> None:
        self._write, self.close = write, close
        self._news: dict[str, str] = {}
        self._sending: asyncio.Future[None] | None = None
        self._since = 0.0  # when the frame on its way was sent
        self.rounds: Rounds | None = None  # set by the hub
        self.race: Race | None = None
        self.sent = 0

    def tell(self, **message: Any) -> None:
        """Send news that is not in a race's record: a place in the queue, progress, a refusal."""
        self.hand(message["type"], as_text(message))

    def hand(self, kind: str, text: str) -> None:
        """Send news that is text already, made once for however many pages."""
        # Only the latest news of a kind matters to a page that is slow to take it.
        self._news.pop(kind, None)
        self._news[kind] = text
        self.due()

    def due(self) -> None:
        """There is something to send."""
        if self.rounds is not None:
            self.rounds.add(self)

    def watch(self, race: Race | None, start: int = 0) -> None:
        """Follow a race from its event number `start`, and the one before no more."""
        if self.race is not None:
            self.race.readers.discard(self)
        self.race, self.sent = race, start
        if race is not None:
            race.readers.add(self)
            self.sent = min(start, len(race))
            self.due()

    def deliver(self, now: float, patience: float) -> bool:
        """Send what is due, if the last frame has left; returns whether something is still due."""
        if self._sending is not None and not self._sending.done():
            if now - self._since > patience:
                metrics.DROPPED.labels("takes nothing").inc()
                self.close(SLOW, "takes nothing")
                return False
            return True
        news, self._news = self._news, {}
        for text in news.values():
            self._send(text, now)
        race = self.race
        if race is None or self.sent >= len(race):
            return False
        text, self.sent = race.frame(self.sent)
        self._send(text, now)
        return self.sent < len(race)

    def _send(self, text: str, now: float) -> None:
        # Frames leave in the order in which they are written, so the last one tells of all.
        self._sending = asyncio.ensure_future(self._write(text))
        self._sending.add_done_callback(_closed_meanwhile)
        self._since = now
        metrics.FRAMES.inc()


def _closed_meanwhile(sending: asyncio.Future[None]) -> None:
    """A connection that closed with a frame on its way is no fault; its handler notices too."""
    if not sending.cancelled():
        sending.exception()
