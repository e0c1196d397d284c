"""Who races when: one device, a fair queue in front of it, and everybody told what happens.

Everything here runs in the server's event loop, so there are no locks. A `Reader` (app/readers.py)
is one page and has one race at most; another one replaces it, at the end of the queue. A `Race`
(app/races.py) may have many readers: those who asked for the very same run, those who follow it by
its id. It is kept until a while after its end, for a page whose connection broke.

The first `Limits.active` races of the queue are with the engine, which gives them the device in
turns (app/engine.py), so that a long one does not keep the others waiting. They are of one pair:
two may not fit into memory. A race of another pair waits until those are over, and nobody behind
it overtakes it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from app import metrics
from app.limits import Limits
from app.measure import Measurements
from app.races import Race, same_run
from app.readers import Reader, Rounds
from app.worker import Message, Worker
from kernels.errors import SdError
from kernels.settings import Settings

#: An engine that dies this often within a minute is not started again until somebody asks anew.
CRASHES = 3
CRASH_SECONDS = 60.0
#: A class waits together: its race has the device so many times as long as another one.
LASTING = 5
#: Seconds between two looks at whether the engine still reports.
WATCH_EVERY = 5.0


class Hub:
    """The queue, the engine behind it and the pages in front of it.

    Args:
        limits: the owner's bounds.
        make_worker: starts an engine; given the two callbacks `on_message` and `on_exit`.
    """

    def __init__(
        self,
        limits: Limits,
        make_worker: Callable[[Callable[[Message], None], Callable[[str], None]], Worker],
    ) -> None:
        self.limits = limits
        self._make_worker = make_worker
        self.worker: Worker | None = None
        self.pairs: list[dict[str, Any]] = []
        self.readers: set[Reader] = set()
        self.rounds = Rounds(limits.slow)
        self.waiting: deque[Race] = deque()
        self.active: dict[str, Race] = {}  # with the engine, by id
        self.races: dict[str, Race] = {}
        self.news: Message | None = None  # of the models: loading, ready or failed
        self.ready: str | None = None
        self.leaving = False  # the server is on its way out
        self._runs: dict[str, Race] = {}  # by what they have in common (`same_run`)
        self._crashes: deque[float] = deque(maxlen=CRASHES)
        self._heard = time.monotonic()  # when the engine last said something
        self._watching: asyncio.TimerHandle | None = None
        self.measurements = Measurements(self)

    @property
    def running(self) -> Race | None:
        """A race that the engine has, or None while the device is free."""
        return next(iter(self.active.values()), None)

    # --- readers --------------------------------------------------------------------------------

    def join(self, reader: Reader) -> None:
        """A page has connected. The first one starts the engine, which loads the default pair.

        Raises:
            SdError: `server_busy`, there are too many connections; `server_stopping`.
        """
        self._check_leaving()
        if len(self.readers) >= self.limits.readers:
            raise SdError("server_busy", "Too many readers; try again later.", limit="readers")
        self.readers.add(reader)
        reader.rounds = self.rounds
        self.start()
        if self.pairs:
            self._welcome(reader)
        if self.news:
            reader.tell(**self.news)

    def leave(self, reader: Reader, *, broken: bool) -> None:
        """A page is gone, and its race with it; after a broken connection it may come back."""
        self.readers.discard(reader)
        self.rounds.remove(reader)
        race = reader.race
        reader.watch(None)
        if race is None:
            return
        if broken and not race.over:
            self._later(self.limits.leave, lambda: self._abandon(race))
        else:
            self._abandon(race)

    def _abandon(self, race: Race) -> None:
        """Cancel a race that nobody looks at."""
        if not race.readers and not race.lasting:
            self.cancel(race)

    def ask(self, reader: Reader, pair: str, settings: dict[str, Any]) -> Race:
        """A page wants a race; it replaces the one it has.

        Where the very same run waits or is under way for somebody else, the page gets that one.

        Raises:
            SdError: `unknown_pair`, `server_busy`, `server_stopping`, `prompt_too_long` (in
                characters), and what `Settings.from_dict` refuses.
        """
        chosen = self._checked(pair, settings)
        before = reader.race
        reader.watch(None)
        if before is not None:
            self._abandon(before)
        race = self._runs.get(same_run(pair, chosen))
        joined = race is not None
        if race is None:
            race = self._enter(pair, chosen)
        else:
            metrics.JOINED.inc()
        reader.watch(race)
        reader.tell(type="asked", race=race.id, joined=joined)
        self.proceed()
        return race

    def share(self, pair: str, settings: dict[str, Any]) -> Race:
        """Start a race for whoever follows it; it goes on when nobody does.

        Pages follow by its id (`follow`); `cancel` ends it for all.

        Raises:
            SdError: as `ask`.
        """
        race = self._enter(pair, self._checked(pair, settings))
        race.lasting = True
        self.proceed()
        return race

    def follow(self, reader: Reader, race_id: str, start: int = 0) -> None:
        """A page follows a race by its id; it has the first `start` events.

        So does a page that is back after a broken connection.

        Raises:
            SdError: `race_gone`, the race is not kept any more.
        """
        race = self.races.get(race_id)
        if race is None:
            raise SdError("race_gone", "That race is not kept any more; start it again.")
        before = reader.race
        reader.watch(race, start)
        if before is not None and before is not race:
            self._abandon(before)
        self._tell_places()

    def quit(self, reader: Reader) -> None:
        """A page does not want its race any more: the race ends unless others look at it."""
        race = reader.race
        if race is None or race.over:
            return
        if race.lasting or len(race.readers) > 1:
            have = reader.sent
            reader.watch(None)
            error = {"type": "error", "code": "cancelled", "detail": {}}
            reader.tell(type="events", race=race.id, **{"from": have}, events=[error])
        else:
            self.cancel(race)

    def cancel(self, race: Race) -> None:
        """End a race for all its readers: at once if it waits, within a pass if it runs."""
        self._forget_run(race)
        if race in self.waiting:
            self.waiting.remove(race)
            self._end(race, "cancelled")
            self.proceed()
        elif race.id in self.active and self.worker is not None and not race.ending:
            race.ending = True
            self.worker.send(do="cancel", run=race.id)

    def _enter(self, pair: str, settings: Settings) -> Race:
        """Put a new race at the end of the queue."""
        if len(self._queue()) >= self.limits.queue:
            raise SdError("server_busy", "The queue is full; try again later.", limit="queue")
        race = Race(secrets.token_urlsafe(12), pair, settings)
        self.races[race.id] = race
        self._runs[same_run(pair, settings)] = race
        self.waiting.append(race)
        self.start()
        return race

    def _forget_run(self, race: Race) -> None:
        """Nobody can join this race any more."""
        key = same_run(race.pair, race.settings)
        if self._runs.get(key) is race:
            del self._runs[key]

    def _checked(self, pair: str, settings: dict[str, Any]) -> Settings:
        """Return checked settings, within the owner's limits."""
        self._check_leaving()
        offered = [entry["name"] for entry in self.pairs]
        if self.pairs and pair not in offered:
            raise SdError("unknown_pair", f"This server offers {', '.join(offered)}.", name=pair)
        return self.limits.within(settings)

    def _check_leaving(self) -> None:
        if self.leaving:
            raise SdError(
                "server_stopping", "The server is being restarted; try again in a minute."
            )

    def _welcome(self, reader: Reader) -> None:
        reader.tell(
            type="hello",
            pairs=self.pairs,
            limits={"length": self.limits.length, "prompt": self.limits.prompt},
        )

    def _queue(self) -> list[Race]:
        """Return the races whose turn has not come yet, in order."""
        return [race for race in self.active.values() if not race.begun] + [*self.waiting]

    def _tell_places(self) -> None:
        """Tell everybody who waits how many are before them."""
        queue = self._queue()
        for place, race in enumerate(queue, len(self.active) + len(self.waiting) - len(queue)):
            for reader in race.readers:
                reader.tell(type="queue", race=race.id, position=place, of=len(queue))

    # --- the engine -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine if it is not there, and let it load the default pair."""
        if self.worker is None and not self.leaving:
            self._heard = time.monotonic()
            self.worker = self._make_worker(self._on_message, self._on_exit)
            metrics.ENGINES.inc()
            if self._watching is None:
                self._watch()

    def stop(self) -> None:
        """End the engine, and whatever it was doing; pages see their connection close."""
        self.waiting.clear()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def wind_up(self) -> None:
        """The server is on its way out: who waits is told so, what is under way may end."""
        self.leaving = True
        while self.waiting:
            self._end(self.waiting.popleft(), "server_stopping")
        for reader in self.readers:
            reader.tell(type="stopping")

    def give_up(self) -> None:
        """The server cannot wait any longer: races under way end with a message."""
        for race in self.active.values():
            self._end(race, "server_stopping")
        self.active.clear()

    def proceed(self) -> None:
        """Something has changed that others wait for: the device goes to whose turn it is."""
        self._next()
        self._tell_places()

    def _next(self) -> None:
        # Before the engine has said what it offers it is still starting.
        if self.worker is None or not self.pairs:
            return
        if self.measurements.busy:
            if self.waiting:
                self.measurements.make_way()
            return
        # The engine is asked between two passes, so a short measurement may come between.
        if self.measurements.begin(racers=bool(self.waiting or self.active)):
            return
        while self.waiting and self._fits(self.waiting[0]):
            race = self.waiting.popleft()
            self.active[race.id] = race
            settings, turns = race.settings.as_dict(), LASTING if race.lasting else 1
            self.worker.send(do="run", run=race.id, pair=race.pair, settings=settings, turns=turns)

    def _fits(self, race: Race) -> bool:
        """Whether this race can share the device with those that have it."""
        running = self.running
        return running is None or (
            len(self.active) < self.limits.active and running.pair == race.pair
        )

    def _on_message(self, message: Message) -> None:
        self._heard = time.monotonic()
        match message["type"]:
            case "source":
                self.pairs = message["pairs"]
                for reader in self.readers:
                    self._welcome(reader)
                if self.worker is not None and not self.waiting:
                    self.worker.send(do="load", pair=self.pairs[0]["name"])
                self.proceed()
            case "loading":
                self._broadcast(message)
            case "ready":
                self.ready = message["pair"]
                self._broadcast(message)
            case "failed":
                self.ready = None
                self._broadcast(message)
            case "begun":
                if (race := self.active.get(message["run"])) is not None:
                    race.begun = True
                    metrics.WAIT.observe(time.monotonic() - race.asked)
                    self.measurements.race_begins()
                    self.proceed()
            case "event":
                if (race := self.active.get(message["run"])) is not None:
                    race.add(message["event"])
            case "progress" | "measured":
                self.measurements.take(message)
            case "over":
                if (race := self.active.pop(message["run"], None)) is not None:
                    # Without an end it was cancelled before its first pass.
                    self._end(race, None if race.complete else "cancelled")
                    self.proceed()

    def _on_exit(self, reason: str) -> None:
        """The engine has died: its races end with a message, the others go on with a new engine."""
        self.worker, self.ready, self.news = None, None, None
        self.measurements.engine_lost()
        self._crashes.append(time.monotonic())
        doomed = [race for race in self.active.values() if race.begun]
        # Those whose turn had not come have lost nothing but time.
        self.waiting.extendleft(r for r in reversed(self.active.values()) if not r.begun)
        self.active.clear()
        recently = time.monotonic() - CRASH_SECONDS
        if len(self._crashes) == CRASHES and self._crashes[0] > recently:
            doomed += self.waiting
            self.waiting.clear()
            self._crashes.clear()
        for race in doomed:
            self._end(race, "engine_failed", reason=reason)
        for race in [race for race in self.waiting if race.ending]:
            self.cancel(race)
        if self.waiting:
            self.start()
        self._tell_places()

    def _watch(self) -> None:
        """End an engine that has races and has not said a word for too long: it hangs."""
        silent = time.monotonic() - self._heard
        if self.worker is not None and self.active and silent > self.limits.stall:
            self.worker.kill("silent")
        self._watching = asyncio.get_running_loop().call_later(WATCH_EVERY, self._watch)

    # --- records --------------------------------------------------------------------------------

    def _end(self, race: Race, code: str | None, **detail: Any) -> None:
        """A race is over, with an error where `code` names one; kept for a while."""
        if code is not None:
            race.add({"type": "error", "code": code, "detail": detail})
        metrics.RACES.labels((race.last or {}).get("code", "end")).inc()
        race.over = True
        self._forget_run(race)
        self._later(self.limits.keep, lambda: self.races.pop(race.id, None))

    def _broadcast(self, message: Message) -> None:
        self.news = message
        for reader in self.readers:
            reader.tell(**message)

    def _later(self, seconds: float, function: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(seconds, function)

    def state(self) -> dict[str, Any]:
        """Return what the race is doing, for `/health` and `/metrics`."""
        return {
            "engine": "off" if self.worker is None else "on",
            "ready": self.ready,
            "loading": None if self.ready else self.news,
            "running": self.running is not None,
            "active": len(self.active) + len(self.waiting) - len(self._queue()),
            "waiting": len(self._queue()),
            "readers": len(self.readers),
            "leaving": self.leaving,
        }
