"""The load: starts a server, sends readers to it, and sums up what they and it went through."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from app.load.reader import Plan, Reader, Seen, plan

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = "speculative-decoding-live/load/1"
#: Seconds that the server and its engine get to be ready (the weights may have to be fetched).
START = 300.0
#: Seconds between two looks at the server's memory.
SAMPLE = 0.5
#: Seconds that all races get to end after the last reader has come.
DRAIN = 600.0
PROMPTS = (
    "Write a list of ten animals and where each of them lives.",
    "Explain how a bicycle stays upright.",
    "Tell a short story about a lighthouse.",
    "Name the planets in order and say one thing about each.",
)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m app load",
        description="Open the article for many readers at once on a server of its own (loopback), "
        "let all of them follow one race and some ask for their own, and say what it cost.",
    )
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--within", type=float, default=60.0, help="seconds in which they come")
    parser.add_argument("--private", type=int, default=None, help="readers who ask for a race of "
                        "their own (default: a tenth)")  # fmt: skip
    parser.add_argument("--length", type=int, default=64, help="tokens of a private race")
    parser.add_argument("--shared-length", type=int, default=256, help="tokens of the shared one")
    parser.add_argument("--seed", type=int, default=0, help="of who asks when")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of words")
    chosen = parser.parse_args(given)
    if chosen.readers < 1 or chosen.within <= 0:
        parser.error("--readers and --within must be above 0")
    chosen.private = chosen.readers // 10 if chosen.private is None else chosen.private
    if not 0 <= chosen.private <= chosen.readers:
        parser.error("--private must lie between 0 and --readers")
    return chosen


@contextlib.contextmanager
def serving(log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run the article's server on a free port of the loopback address.

    Yields:
        The page's address and the server's process.
    """
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "app", "serve", "--port", str(port), "--address", "127.0.0.1"],
            cwd=ROOT,
            env=os.environ | {"SHOW": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"http://127.0.0.1:{port}/app", psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


async def answering(session: aiohttp.ClientSession, address: str, process: psutil.Process) -> None:
    """Wait until the server answers.

    Raises:
        RuntimeError: it has ended, or takes too long.
    """
    until = time.monotonic() + START
    while time.monotonic() < until:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise RuntimeError("the server has ended")
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with session.get(f"{address}/health") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.2)
    raise RuntimeError("the server was not there in time")


async def loaded(session: aiohttp.ClientSession, address: str) -> None:
    """Wait until the engine has its models.

    Raises:
        RuntimeError: it cannot load them, or takes too long.
    """
    until = time.monotonic() + START
    while time.monotonic() < until:
        async with session.get(f"{address}/health") as answer:
            race = (await answer.json())["race"]
        if (race.get("loading") or {}).get("type") == "failed":
            raise RuntimeError(f"the engine cannot load its models: {race['loading']}")
        if race.get("ready"):
            return
        await asyncio.sleep(0.2)
    raise RuntimeError("the engine was not ready in time")


class Load:
    """One run.

    Args:
        chosen: see `arguments`.
        address: of the page.
        process: the server's.
    """

    def __init__(self, chosen: argparse.Namespace, address: str, process: psutil.Process) -> None:
        self.chosen, self.address, self.process = chosen, address, process
        self.seen = Seen()
        self.readers: list[Reader] = []
        self.shared = ""  # the race that everybody follows now
        self.peak = 0

    async def run(self) -> dict[str, Any]:
        """Do it all and return the numbers."""
        # One reader before the others: what the server makes once is made, and is not a reader's.
        # It starts the engine, too, and later asks for the race that all follow.
        async with aiohttp.ClientSession() as session:
            await answering(session, self.address, self.process)
            found = await plan(session, self.address)
            first = Reader(self.address, found, Seen())
            try:
                await first.open()
                await first.scroll()
                await loaded(session, self.address)
                result = await self._measure(first, found)
            finally:
                await asyncio.gather(*(reader.close() for reader in [*self.readers, first]))
        return result

    async def _measure(self, first: Reader, found: Plan) -> dict[str, Any]:
        before, cpu = self.process.memory_info().rss, self._cpu()
        begun = time.monotonic()
        arriving = asyncio.Event()
        beside = [asyncio.create_task(self._sample())]
        try:
            beside.append(sharing := asyncio.create_task(self._share(first, arriving)))
            asked = await self._arrive(found)
            arriving.set()
            await asyncio.wait_for(sharing, DRAIN)
            for reader in asked:
                try:
                    await asyncio.wait_for(reader.over.wait(), DRAIN)
                except TimeoutError:
                    reader.note("a private race did not end")
        finally:
            for task in beside:
                task.cancel()
        took = time.monotonic() - begun
        spent = {name: value - cpu.get(name, 0.0) for name, value in self._cpu().items()}
        self.seen.errors.update(first.seen.errors)
        return self._summary(found, before, spent, took)

    async def _arrive(self, found: Plan) -> list[Reader]:
        """Readers come evenly over the time; returns those who have asked for a race."""
        rng = random.Random(self.chosen.seed)
        asking = set(rng.sample(range(self.chosen.readers), self.chosen.private))
        step = self.chosen.within / self.chosen.readers
        asked: list[Reader] = []

        async def come(number: int) -> None:
            await asyncio.sleep(number * step)
            reader = Reader(self.address, found, self.seen)
            self.readers.append(reader)
            await reader.open()
            if number in asking:
                settings = {"prompt": PROMPTS[number % len(PROMPTS)], "seed": number}
                await reader.run(settings | {"length": self.chosen.length}, "embedded")
                await reader.scroll()
                asked.append(reader)
            else:
                if self.shared:
                    await reader.follow(self.shared)
                await reader.scroll()

        await asyncio.gather(*(come(number) for number in range(self.chosen.readers)))
        return asked

    async def _share(self, teacher: Reader, arriving: asyncio.Event) -> None:
        """One race after another for everybody, the last one begun when all readers are there."""
        settings = {"prompt": PROMPTS[0], "length": self.chosen.shared_length}
        number, last = 0, False
        while not last:
            last = arriving.is_set()
            number += 1
            await teacher.run(settings | {"seed": 1000 + number}, "embedded")
            while not teacher.race:
                await asyncio.sleep(0.01)
            self.shared = teacher.race
            followers = [r for r in self.readers if not r.private and r.ready.is_set()]
            await asyncio.gather(*(r.follow(self.shared) for r in followers))
            await teacher.over.wait()
        await asyncio.sleep(1.0)  # the last frames are on their way
        for reader in followers:
            if not reader.over.is_set():
                reader.note("the shared race did not end for a reader")

    async def _sample(self) -> None:
        while True:
            self.peak = max(self.peak, self.process.memory_info().rss)
            await asyncio.sleep(SAMPLE)

    def _cpu(self) -> dict[str, float]:
        """Return the seconds of processor time that the server and its engine have used."""

        def used(process: psutil.Process) -> float:
            times = process.cpu_times()
            return times.user + times.system

        engine = sum(used(child) for child in self.process.children(recursive=True))
        return {"server": used(self.process), "engine": engine, "load": time.process_time()}

    def _summary(
        self, found: Plan, before: int, spent: dict[str, float], took: float
    ) -> dict[str, Any]:
        seen = self.seen
        return {
            "schema": SCHEMA,
            "readers": self.chosen.readers,
            "private": self.chosen.private,
            "within_s": self.chosen.within,
            "took_s": round(took, 1),
            "errors": sum(seen.errors.values()),
            "error_kinds": dict(seen.errors.most_common(12)),
            **_both("page_html", seen.html, 1e3, "ms"),
            **_both("page_ready", seen.ready, 1e3, "ms"),
            **_both("event_lag", seen.lag, 1e3, "ms"),
            **_both("queue_wait", seen.wait, 1.0, "s"),
            "session_memory_mb": round(
                max(0, self.peak - before) / self.chosen.readers / 2**20, 3
            ),
            "server_memory_mb": round(self.peak / 2**20, 1),
            "cpu_seconds": round(spent["server"], 2),
            "engine_cpu_seconds": round(spent["engine"], 2),
            "load_cpu_seconds": round(spent["load"], 2),
            "requests": seen.requests,
            "requests_a_page": 1 + sum(map(len, found.waves)) + len(found.later),
            "megabytes": round(seen.bytes / 2**20, 1),
            "frames": seen.frames,
            "races_seen": seen.finished,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "load_average": [round(x, 2) for x in psutil.getloadavg()],
        }  # fmt: skip


def _both(name: str, values: Sequence[float], scale: float, unit: str) -> dict[str, float | None]:
    """Return the median and the 95th percentile, None where nothing was measured."""
    if not values:
        return {f"{name}_p50_{unit}": None, f"{name}_p95_{unit}": None}
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        f"{name}_p50_{unit}": round(statistics.median(ordered) * scale, 2),
        f"{name}_p95_{unit}": round(p95 * scale, 2),
    }


def main(given: Sequence[str]) -> int:
    """Run the load; returns 0 if nothing went wrong."""
    chosen = arguments(given)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        try:
            with serving(log) as (address, process):
                result = asyncio.run(Load(chosen, address, process).run())
        except RuntimeError as error:
            print(f"{error}. The server's log:\n{log.read_text('utf-8')[-4000:]}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("Stopped before the end: no numbers.", file=sys.stderr)
            return 130
    if chosen.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:22} {value}")
    return 0 if result["errors"] == 0 else 1
