"""``python -m app.engine``: the process that owns the device and runs the races.

A process of its own, not a thread of the server, for three reasons. Clocks: a thread that comes
back from a native pass waits for the interpreter lock (up to its switch interval, 5 ms) whenever
the server is busy with a page, and that wait would be measured as part of the pass; with a page
made every 100 ms, the same passes took 10 to 39 % longer in a thread (four alternating runs on two
shared cores). Readers: the same wait the other way round delays every page. Safety: native code
that crashes ends a race, not the server.

Races that are here at the same time take turns: after `SD_SLICE_SECONDS` of the device the next one
goes on, between two passes, where no lane's clock is running; so a long race keeps nobody waiting
for its end, and a clock still counts nothing but its own lane's work. A source whose races run
elsewhere (``at_once``, docs/engines.md) has a thread for each that it can run at once instead.

It speaks JSON, one object a line. In: ``{"do": "load", "pair"}``, ``{"do": "run", "run", "pair",
"settings", "turns"}``, ``{"do": "measure", "run", "pair", "what", "options"}``, ``{"do": "cancel",
"run"}``. Out: ``{"type": "source", "pairs"}`` once, ``{"type":
"loading", "pair", "stage", "done", "total"}``, ``{"type": "ready", "pair"}``, ``{"type":
"failed", "pair", "error"}``, ``{"type": "begun", "run"}`` when its turn comes for the first time,
``{"type": "event", "run", "event"}`` and ``{"type": "over",
"run"}`` after a race's last event, ``{"type": "progress", "run", "share"}`` and ``{"type":
"measured", "run", "record"}`` (or ``"error"``) of a measurement. When its input ends (the server
is gone, however it went), it ends at once.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

from app import logs
from app.limits import limits
from app.races import as_text
from app.sources import Measuring, Source, source
from kernels.errors import SdError
from kernels.settings import Settings

LOG = logging.getLogger("sd.engine")
#: Seconds between two progress reports of the same stage.
PROGRESS_EVERY = 0.1


@dataclass
class Taken:
    """A race that takes turns.

    turns: how many it has in a row; used: seconds of them that are gone; begun: it has had one.
    """

    run: str
    events: Iterator[dict[str, Any]]
    turns: int = 1
    used: float = 0.0
    begun: bool = False


class Engine:
    """Takes commands from one stream, does them in turns, reports to another.

    Args:
        source: what runs the races.
        commands, reports: the two streams.
        slice_seconds: how long a race has the device while others wait for it.
    """

    def __init__(
        self, source: Source, commands: IO[str], reports: IO[str], slice_seconds: float = 2.0
    ) -> None:
        self.slice_seconds = slice_seconds
        self.races: deque[Taken] = deque()  # whose turn it is comes first
        self.source = source
        at_once = getattr(source, "at_once", None)
        self.elsewhere = None if at_once is None else ThreadPoolExecutor(at_once, "race")
        self.speaking = threading.Lock()
        self.commands = commands
        self.reports = reports
        self.waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.cancelled: set[str] = set()
        self.ready: str | None = None
        self.fault: dict[str, Any] = {}  # why the last pair could not be made ready

    def listen(self) -> None:
        """Read commands until the stream ends, then end the process.

        In a thread of its own, so that a cancellation is seen while a pass is running.
        """
        for line in self.commands:
            command = json.loads(line)
            if command["do"] == "cancel":
                self.cancelled.add(command["run"])
            else:
                self.waiting.put(command)
        os._exit(0)

    def report(self, **message: Any) -> None:
        """Send one message to the server."""
        text = as_text(message) + "\n"
        with self.speaking:
            self.reports.write(text)
            self.reports.flush()

    def serve(self) -> None:
        """Do what is asked, for ever."""
        self.report(type="source", pairs=self.source.describe())
        threading.Thread(target=self.listen, name="commands", daemon=True).start()
        while True:
            self._take_commands()
            if self.races:
                self._turn()

    def _take_commands(self) -> None:
        """Do what has been asked; wait for it if there is nothing else to do."""
        while True:
            try:
                command = self.waiting.get(block=not self.races)
            except queue.Empty:
                return
            match command["do"]:
                case "load":
                    self.prepare(command["pair"])
                case "run":
                    self.begin(
                        command["run"], command["pair"], command["settings"], command["turns"]
                    )
                case "measure":
                    self.measure(
                        command["run"], command["pair"], command["what"], command["options"]
                    )

    def _turn(self) -> None:
        """Give the device to the next race until its time is up, it is over, or a command comes."""
        race = self._cancelled() or self.races[0]
        while self.waiting.empty():
            begun = time.monotonic()
            if not self._pass(race):
                self.races.remove(race)
                self.cancelled.discard(race.run)
                self.report(type="over", run=race.run)
                return
            race.used += time.monotonic() - begun
            if race.used >= self.slice_seconds * race.turns:
                race.used = 0.0
                self.races.rotate(-1)
                return
            if self._cancelled() not in (None, race):
                return

    def _cancelled(self) -> Taken | None:
        """Return a race that has been cancelled: it goes first, and is over within a pass."""
        return next((race for race in self.races if race.run in self.cancelled), None)

    def _pass(self, race: Taken) -> bool:
        """Let a race do one pass; returns whether it goes on."""
        if not race.begun:
            if race.run in self.cancelled:
                return False
            race.begun = True
            self.report(type="begun", run=race.run)
        try:
            event = next(race.events, None)
            if event is None:
                return False
            # Each event goes out at once: between two passes no lane's clock is running.
            self.report(type="event", run=race.run, event=event)
        except Exception as error:
            self.report(type="event", run=race.run, event={"type": "error"} | as_error(error))
            race.events = iter(())  # what it held is let go of before anything else runs
            relieve(error)
            return False
        return True

    def prepare(self, pair: str) -> bool:
        """Get a pair ready; tells what happens, and returns whether it is."""
        try:
            self.source.prepare(pair, Progress(self, pair))
        except Exception as error:
            self.ready = None
            self.fault = as_error(error)
            self.report(type="failed", pair=pair, error=self.fault)
            return False
        if self.ready != pair:
            self.ready = pair
            self.report(type="ready", pair=pair)
        return True

    def begin(self, run: str, pair: str, settings: dict[str, Any], turns: int) -> None:
        """Take a race in, at the end of the turns; where it cannot begin, that is told."""
        if run in self.cancelled:
            self.cancelled.discard(run)
            self.report(type="over", run=run)
        elif self.prepare(pair):
            race = Taken(run, self._events(run, pair, settings), turns)
            if self.elsewhere is None:
                self.races.append(race)
            else:
                self.elsewhere.submit(self._follow, race)
        else:
            self.report(type="event", run=run, event={"type": "error"} | self.fault)
            self.report(type="over", run=run)

    def _follow(self, race: Taken) -> None:
        """Report a race that runs elsewhere, from its first event to its last."""
        while self._pass(race):
            pass
        self.cancelled.discard(race.run)
        self.report(type="over", run=race.run)

    def measure(self, run: str, pair: str, what: str, options: dict[str, Any]) -> None:
        """Measure something, until it is done or cancelled; where loading fails, that is told."""
        sent = 0.0

        def go_on() -> None:
            if run in self.cancelled:
                raise SdError("cancelled", "Somebody else needs the device; measure again later.")

        def watch(share: float) -> None:
            nonlocal sent
            go_on()
            if time.monotonic() - sent >= PROGRESS_EVERY:
                sent = time.monotonic()
                self.report(type="progress", run=run, share=share)

        try:
            go_on()
            if not isinstance(self.source, Measuring):
                raise SdError("cannot_measure", "This engine cannot measure.")
            if self.prepare(pair):
                record = self.source.measure(what, options, watch)
                self.report(type="measured", run=run, record=record)
            else:
                self.report(type="measured", run=run, error=self.fault)
        except Exception as error:
            self.report(type="measured", run=run, error=as_error(error))
        self.cancelled.discard(run)

    def _events(self, run: str, pair: str, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self.source.run(
            pair, Settings.from_dict(settings), lambda: run in self.cancelled
        )


class Progress:
    """Forwards progress to the server, a few times a second at most, and to the terminal."""

    def __init__(self, engine: Engine, pair: str) -> None:
        self.engine = engine
        self.pair = pair
        self.stage = ""
        self.sent = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report a stage; the first and the last report of each always go out."""
        now = time.monotonic()
        if stage == self.stage and done < total and now - self.sent < PROGRESS_EVERY:
            return
        new, self.stage, self.sent = stage != self.stage, stage, now
        self.engine.report(type="loading", pair=self.pair, stage=stage, done=done, total=total)
        self._terminal(stage, done, total, new)

    def _terminal(self, stage: str, done: int, total: int, new: bool) -> None:
        """One line that counts up where somebody watches; one line a stage in a log."""
        if not sys.stderr.isatty():
            if new:
                LOG.info("%s …", stage)
            return
        share = f"{100 * done // max(1, total):3d} %"
        with contextlib.suppress(OSError):  # a terminal that has gone is no reason not to load
            print(f"\rrace: {stage} {share}", end="\n" if done >= total else "", file=sys.stderr)


def as_error(error: Exception) -> dict[str, Any]:
    """Return code and detail for the page; what we did not foresee is told in full in the log."""
    if isinstance(error, SdError):
        event = error.as_event()
        return {"code": event["code"], "detail": event["detail"]}
    LOG.error("a fault that nobody foresaw", exc_info=error)
    if out_of_memory(error):
        return {"code": "out_of_memory", "detail": {}}
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return {"code": "disk_full", "detail": {"message": "No space left on the server's disk."}}
    return {"code": "engine_failed", "detail": {"reason": type(error).__name__}}


def out_of_memory(error: BaseException) -> bool:
    """Whether this is the machine's or the device's memory being full, in whoever's words."""
    # torch.OutOfMemoryError, by name: a source may live without torch.
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"})


def relieve(error: BaseException) -> None:
    """After a full memory, give back what nobody uses, so that the next race has room."""
    if not out_of_memory(error):
        return
    traceback.clear_frames(error.__traceback__)  # they hold what the pass had made
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def main() -> None:
    """Run the engine on standard input and output."""
    # Standard output carries the messages; whatever a library prints goes to the log instead.
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands = os.fdopen(os.dup(0), "r", encoding="utf-8")
    logs.careless_output()
    logs.configure()
    Engine(source(), commands, reports, limits().slice).serve()


if __name__ == "__main__":
    main()
