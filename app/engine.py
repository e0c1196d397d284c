"""``python -m app.engine``: the process that owns the device and runs the races, one after another.

A process of its own, not a thread of the server, for three reasons. Clocks: a thread that comes
back from a native pass waits for the interpreter lock (up to its switch interval, 5 ms) whenever
the server is busy with a page, and that wait would be measured as part of the pass; with a page
made every 100 ms, the same passes took 10 to 39 % longer in a thread (four alternating runs on two
shared cores). Readers: the same wait the other way round delays every page. Safety: native code
that crashes ends a race, not the server.

It speaks JSON, one object a line. In: ``{"do": "load", "pair"}``, ``{"do": "run", "run", "pair",
"settings"}``, ``{"do": "measure", "run", "pair", "what", "options"}``, ``{"do": "cancel",
"run"}``. Out: ``{"type": "source", "pairs"}`` once, ``{"type":
"loading", "pair", "stage", "done", "total"}``, ``{"type": "ready", "pair"}``, ``{"type":
"failed", "pair", "error"}``, ``{"type": "event", "run", "event"}`` and ``{"type": "over",
"run"}`` after a race's last event, ``{"type": "progress", "run", "share"}`` and ``{"type":
"measured", "run", "record"}`` (or ``"error"``) of a measurement. When its input ends (the server
is gone, however it went), it ends at once.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import IO, Any

from app.sources import Measuring, Source, source
from kernels.errors import SdError
from kernels.settings import Settings

#: Seconds between two progress reports of the same stage.
PROGRESS_EVERY = 0.1


class Engine:
    """Takes commands from one stream, runs them in order, reports to another."""

    def __init__(self, source: Source, commands: IO[str], reports: IO[str]) -> None:
        self.source = source
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
        self.reports.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.reports.flush()

    def serve(self) -> None:
        """Do what is asked, for ever."""
        self.report(type="source", pairs=self.source.describe())
        threading.Thread(target=self.listen, name="commands", daemon=True).start()
        while True:
            command = self.waiting.get()
            match command["do"]:
                case "load":
                    self.prepare(command["pair"])
                case "run":
                    self.race(command["run"], command["pair"], command["settings"])
                case "measure":
                    self.measure(
                        command["run"], command["pair"], command["what"], command["options"]
                    )

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

    def race(self, run: str, pair: str, settings: dict[str, Any]) -> None:
        """Run one race to its end, its cancellation or its failure."""
        if run not in self.cancelled and self.prepare(pair):
            try:
                for event in self._events(run, pair, settings):
                    # Each event goes out at once: between two passes no lane's clock is running.
                    self.report(type="event", run=run, event=event)
            except Exception as error:
                self.report(type="event", run=run, event={"type": "error"} | as_error(error))
        self.cancelled.clear()  # the server gives us one race at a time
        self.report(type="over", run=run)

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
        return self.source.run(pair, Settings.from_dict(settings), lambda: run in self.cancelled)


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
        if sys.stderr.isatty():
            share = f"{100 * done // max(1, total):3d} %"
            print(f"\rrace: {stage} {share}", end="\n" if done >= total else "", file=sys.stderr)
        elif new:
            print(f"race: {stage} …", file=sys.stderr)


def as_error(error: Exception) -> dict[str, Any]:
    """Return code and detail for the page; what we did not foresee is told in full in the log."""
    if isinstance(error, SdError):
        event = error.as_event()
        return {"code": event["code"], "detail": event["detail"]}
    traceback.print_exception(error)
    return {"code": "engine_failed", "detail": {"reason": type(error).__name__}}


def main() -> None:
    """Run the engine on standard input and output."""
    # Standard output carries the messages; whatever a library prints goes to the log instead.
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    commands = os.fdopen(os.dup(0), "r", encoding="utf-8")
    Engine(source(), commands, reports).serve()


if __name__ == "__main__":
    main()
