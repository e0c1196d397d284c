"""Who races when: one device, a fair queue in front of it, and everybody told what happens.

Everything here runs in the server's event loop, so there are no locks. A `Reader` is one page; it
has at most one race, and asking for another one replaces it (at the end of the queue). A `Race`
keeps its events until a while after its end, so a page whose connection broke fetches what it has
missed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from app.limits import Limits
from app.measure import Measurements
from app.worker import Message, Worker
from kernels.errors import SdError
from kernels.settings import Settings

#: Seconds between two frames to one page: an animation frame or two. Events that come faster
#: share one.
FRAME_EVERY = 0.03
#: An engine that dies this often within a minute is not started again until somebody asks anew.
CRASHES = 3
CRASH_SECONDS = 60.0


@dataclass
class Race:
    """One race: waiting, running or over. `events` is what its page gets, in order."""

    id: str
    pair: str
    settings: Settings
    reader: Reader | None
    events: list[Message] = field(default_factory=list)
    over: bool = False
    followers: set[Reader] = field(default_factory=set)  # pages that look on
    stamps: list[float] = field(default_factory=list)  # when the events came, monotonic


class Reader:
    """One connected page: what it still has to be sent, and the loop that sends it.

    Args:
        write: sends one text frame; waits while the connection is congested.
    """

    def __init__(self, write: Callable[[str], Awaitable[None]]) -> None:
        self._write = write
        self._news: list[Message] = []
        self._wake = asyncio.Event()
        self.race: Race | None = None
        self.sent = 0

    def tell(self, **message: Any) -> None:
        """Send news that is not in a race's record: a place in the queue, progress, a refusal."""
        # Only the latest news of a kind matters to a page that is slow to take it.
        self._news = [n for n in self._news if n["type"] != message["type"]] + [message]
        self._wake.set()

    def wake(self) -> None:
        """The race has new events."""
        self._wake.set()

    def watch(self, race: Race | None, start: int = 0) -> None:
        """Follow a race from its event number `start`."""
        self.race, self.sent = race, start
        self._wake.set()

    async def pump(self) -> None:
        """Send what there is, a frame every `FRAME_EVERY` at most, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            news, self._news = self._news, []
            for message in news:
                await self._send(message)
            race = self.race
            if race is not None and self.sent < len(race.events):
                start, events = self.sent, race.events[self.sent :]
                self.sent = len(race.events)
                frame = {
                    "type": "events",
                    "race": race.id,
                    "from": start,
                    "at": race.stamps[start],
                    "events": events,
                }
                await self._send(frame)
            await asyncio.sleep(FRAME_EVERY)

    async def _send(self, message: Message) -> None:
        await self._write(json.dumps(message, ensure_ascii=False, separators=(",", ":")))


class Hub:
    """The queue, the engine behind it and the pages in front of it.

    Args:
        limits: the owner's bounds.
        make_worker: starts an engine; given the two callbacks `on_message` and `on_exit`.
    """

    def __init__(
        self,
        limits: Limits,
        make_worker: Callable[[Callable[[Message], None], Callable[[], None]], Worker],
    ) -> None:
        self.limits = limits
        self._make_worker = make_worker
        self.worker: Worker | None = None
        self.pairs: list[dict[str, Any]] = []
        self.readers: set[Reader] = set()
        self.waiting: deque[Race] = deque()
        self.running: Race | None = None
        self.races: dict[str, Race] = {}
        self.news: Message | None = None  # of the models: loading, ready or failed
        self.ready: str | None = None
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self.measurements = Measurements(self)

    # --- readers --------------------------------------------------------------------------------

    def join(self, reader: Reader) -> None:
        """A page has connected. The first one starts the engine, which loads the default pair.

        Raises:
            SdError: `server_busy`, there are too many connections.
        """
        if len(self.readers) >= self.limits.readers:
            raise SdError("server_busy", "Too many readers; try again later.", limit="readers")
        self.readers.add(reader)
        self.start()
        if self.pairs:
            self._welcome(reader)
        if self.news:
            reader.tell(**self.news)

    def leave(self, reader: Reader, *, broken: bool) -> None:
        """A page is gone, and its race with it; after a broken connection it may come back."""
        self.readers.discard(reader)
        race, reader.race = reader.race, None
        if race is not None:
            race.followers.discard(reader)
        if race is None or race.reader is not reader:
            return
        race.reader = None
        if broken and not race.over:
            self._later(self.limits.leave, lambda: self._abandon(race))
        else:
            self.cancel(race)

    def _abandon(self, race: Race) -> None:
        """Cancel a race whose page has not come back."""
        if race.reader is None:
            self.cancel(race)

    def ask(self, reader: Reader, pair: str, settings: dict[str, Any]) -> Race:
        """A page wants a race; it replaces the one it has.

        Raises:
            SdError: `unknown_pair`, `server_busy`, `prompt_too_long` (in characters), and what
                `Settings.from_dict` refuses.
        """
        offered = [entry["name"] for entry in self.pairs]
        if self.pairs and pair not in offered:
            raise SdError("unknown_pair", f"This server offers {', '.join(offered)}.", name=pair)
        chosen = self._within_limits(settings)
        if reader.race is not None and reader.race.reader is reader:
            self.cancel(reader.race)
        if len(self.waiting) >= self.limits.queue:
            raise SdError("server_busy", "The queue is full; try again later.", limit="queue")
        race = Race(secrets.token_urlsafe(12), pair, chosen, reader)
        self.races[race.id] = race
        self.waiting.append(race)
        reader.watch(race)
        reader.tell(type="asked", race=race.id)
        self.start()
        self._next()
        self._tell_places()
        return race

    def resume(self, reader: Reader, race_id: str, start: int) -> None:
        """A page is back after a broken connection and has the first `start` events.

        Raises:
            SdError: `race_gone`, the race is not kept any more.
        """
        race = self.races.get(race_id)
        if race is None:
            raise SdError("race_gone", "That race is not kept any more; start it again.")
        if race.reader is not None and race.reader is not reader:
            race.reader.watch(None)  # the same page over a newer connection
        race.reader = reader
        reader.watch(race, min(start, len(race.events)))
        self._tell_places()

    def follow(self, reader: Reader, race_id: str) -> None:
        """A page looks on at another page's race, from its beginning.

        Raises:
            SdError: `race_gone`, the race is not kept any more.
        """
        race = self.races.get(race_id)
        if race is None:
            raise SdError("race_gone", "That race is not kept any more; start it again.")
        if reader.race is not None:
            reader.race.followers.discard(reader)
        race.followers.add(reader)
        reader.watch(race)

    def cancel(self, race: Race) -> None:
        """End a race: at once if it waits, within a pass if it runs."""
        if race in self.waiting:
            self.waiting.remove(race)
            self._add(race, {"type": "error", "code": "cancelled", "detail": {}})
            self._close(race)
            self._tell_places()
        elif race is self.running and self.worker is not None:
            self.worker.send(do="cancel", run=race.id)

    def _within_limits(self, settings: dict[str, Any]) -> Settings:
        """Return checked settings, the length brought under the owner's limit."""
        prompt = settings.get("prompt") if isinstance(settings, dict) else None
        if isinstance(prompt, str) and len(prompt) > self.limits.prompt:
            raise SdError(
                "prompt_too_long",
                f"The prompt has {len(prompt)} characters, this server takes {self.limits.prompt}.",
                characters=len(prompt),
                limit=self.limits.prompt,
            )
        checked = Settings.from_dict(settings)
        if not checked.prompt.strip():
            raise SdError("empty_prompt", "The prompt is empty: write at least one word.")
        if checked.length > self.limits.length:
            checked = Settings.from_dict(checked.as_dict() | {"length": self.limits.length})
        return checked

    def _welcome(self, reader: Reader) -> None:
        reader.tell(
            type="hello",
            pairs=self.pairs,
            limits={"length": self.limits.length, "prompt": self.limits.prompt},
        )

    def _tell_places(self) -> None:
        """Tell everybody who waits how many are before them."""
        ahead = 0 if self.running is None else 1
        for place, race in enumerate(self.waiting, start=ahead):
            if race.reader is not None:
                race.reader.tell(type="queue", race=race.id, position=place, of=len(self.waiting))

    # --- the engine -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine if it is not there, and let it load the default pair."""
        if self.worker is None:
            self.worker = self._make_worker(self._on_message, self._on_exit)

    def stop(self) -> None:
        """End the engine, and whatever it was doing; pages see their connection close."""
        self.waiting.clear()
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def _next(self) -> None:
        """Give the device to the first one who waits."""
        # Before the engine has said what it offers it is still starting.
        if self.running is not None or self.worker is None or not self.pairs:
            return
        if self.measurements.busy:
            if self.waiting:
                self.measurements.make_way()
        elif not self.measurements.begin(racers=bool(self.waiting)) and self.waiting:
            race = self.running = self.waiting.popleft()
            self.measurements.race_begins()
            self.worker.send(
                do="run", run=race.id, pair=race.pair, settings=race.settings.as_dict()
            )

    def proceed(self) -> None:
        """Something has changed that others wait for."""
        self._next()
        self._tell_places()

    def _on_message(self, message: Message) -> None:
        match message["type"]:
            case "source":
                self.pairs = message["pairs"]
                for reader in self.readers:
                    self._welcome(reader)
                if self.worker is not None and not self.waiting:
                    self.worker.send(do="load", pair=self.pairs[0]["name"])
                self._next()
                self._tell_places()
            case "loading":
                self._broadcast(message)
            case "ready":
                self.ready = message["pair"]
                self._broadcast(message)
            case "failed":
                self.ready = None
                error = message["error"]
                self._broadcast({"type": "failed", "pair": message["pair"], "error": error})
                if self.running is not None and self.running.pair == message["pair"]:
                    self._add(self.running, {"type": "error"} | error)
            case "event":
                if self.running is not None and self.running.id == message["run"]:
                    self._add(self.running, message["event"])
            case "progress" | "measured":
                self.measurements.take(message)
            case "over":
                if self.running is not None and self.running.id == message["run"]:
                    self._over()

    def _over(self) -> None:
        """The device is free."""
        assert self.running is not None
        race, self.running = self.running, None
        if not race.events or race.events[-1]["type"] not in ("end", "error"):
            # Cancelled before its first pass.
            self._add(race, {"type": "error", "code": "cancelled", "detail": {}})
        self._close(race)
        self._next()
        self._tell_places()

    def _on_exit(self) -> None:
        """The engine has died: its race ends with a message, the others go on with a new engine."""
        self.worker, self.ready, self.news = None, None, None
        self.measurements.engine_lost()
        self._crashes.append(time.monotonic())
        doomed = [self.running] if self.running is not None else []
        self.running = None
        recently = time.monotonic() - CRASH_SECONDS
        if len(self._crashes) == CRASHES and self._crashes[0] > recently:
            doomed += self.waiting
            self.waiting.clear()
            self._crashes.clear()
        for race in doomed:
            self._add(
                race, {"type": "error", "code": "engine_failed", "detail": {"reason": "exit"}}
            )
            self._close(race)
        if self.waiting:
            self.start()
        self._tell_places()

    # --- records --------------------------------------------------------------------------------

    def _add(self, race: Race, event: Message) -> None:
        race.events.append(event)
        race.stamps.append(time.monotonic())
        if race.reader is not None:
            race.reader.wake()
        for reader in race.followers:
            reader.wake()

    def _close(self, race: Race) -> None:
        race.over = True
        self._later(self.limits.keep, lambda: self.races.pop(race.id, None))

    def _broadcast(self, message: Message) -> None:
        self.news = message
        for reader in self.readers:
            reader.tell(**message)

    @staticmethod
    def _later(seconds: float, function: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(seconds, function)

    def state(self) -> dict[str, Any]:
        """Return what the race is doing, for `/health`."""
        return {
            "engine": "off" if self.worker is None else "on",
            "ready": self.ready,
            "loading": None if self.ready else self.news,
            "running": self.running is not None,
            "waiting": len(self.waiting),
            "readers": len(self.readers),
        }
