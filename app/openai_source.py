"""Races between two servers of the owner's that speak OpenAI's protocol; vLLM and llama.cpp best.

What a server shows is when tokens arrive, not when its passes begin and end. So passes here are
*inferred*, and the header of the trace says so (``source``, docs/trace.md): tokens that arrive
together are taken for one pass, which lasts since the arrival before. How many guesses were made
and kept is the server's own count, shown as that. Settings: docs/engines.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.inferred import InferredLane, agreement, statistics
from app.sources import Event, Progress
from kernels import machine
from kernels.endpoint import SILENCE, VLLM, About, Endpoint
from kernels.errors import SdError
from kernels.race import pass_event
from kernels.settings import Settings
from kernels.trace_check import LANES, SOURCE_VERSION
from kernels.wire import Arrival, Counts, Ending

PAIR = "servers"
#: Seconds between two looks at whether the race has been cancelled.
LOOK_EVERY = 0.05
IN_TURN, TOGETHER = "in turn", "together"


@dataclass
class Course:
    """How one lane's stream goes; the event loop's thread writes it, the race reads it."""

    endpoint: Endpoint
    about: About
    lane: InferredLane
    ending: Ending = field(default_factory=Ending)
    counts: Counts | None = None
    over: bool = False


class OpenAISource:
    """Two endpoints, or one that is switched from request to request."""

    #: Two races at once would share the servers, and each other's times.
    at_once = 1

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.plain, self.speculative = endpoints(environment)
        self.title = environment.get("SD_SERVER_TITLE", "").strip()
        self.device = environment.get("SD_SERVER_DEVICE", "").strip()
        self.m = _whole(environment, "SD_SERVER_M")
        self.order = _order(environment)
        self.abouts: dict[str, About] = {}

    def describe(self) -> list[dict[str, Any]]:
        """The one pair there is. No server is asked: one that is down must not delay the page."""
        title = self.title or self.speculative.model or "servers of this page’s owner"
        return [
            {
                "name": PAIR,
                "title": title,
                "languages": ["zh", "en"],
                "drafters": [],  # the server's to choose
                "download": 0,
                "memory": 0,
            }
        ]

    def prepare(self, pair: str, progress: Progress) -> None:
        """Ask both servers who they are, with retries; again after a race that failed.

        Raises SdError.
        """
        if pair != PAIR:
            raise SdError("unknown_pair", f"This server does not offer {pair!r}.", name=pair)

        async def ask(endpoint: Endpoint) -> About:
            async with endpoint.connected() as client:
                return await endpoint.identify(client)

        if self.abouts:
            return
        found: dict[str, About] = {}
        for done, endpoint in enumerate((self.plain, self.speculative)):
            progress("connect", done, 2)
            found[endpoint.lane] = asyncio.run(ask(endpoint))
        self.abouts = found
        progress("connect", 2, 2)

    def run(self, pair: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Yield the events of a race; SdError when a server fails, after what had arrived."""
        if not self.abouts:
            self.prepare(pair, lambda *_: None)
        if not settings.prompt.strip():
            raise SdError("empty_prompt", "The prompt is empty: write at least one word.")
        for endpoint in (self.plain, self.speculative):
            endpoint.body(settings, self.abouts[endpoint.lane])  # refuses what cannot be asked for
        return _Race(self, settings, cancelled).events()

    def header(self, settings: Settings, prompt_tokens: int) -> dict[str, Any]:
        """The header of a trace. No address of the owner's is in it."""
        plain, speculative = self.abouts["plain"], self.abouts["speculative"]
        local = self.plain.local and self.speculative.local
        device = machine.describe() if local else {"name": self.device or "not told"}
        if self.device:
            device["name"] = self.device
        titles = list(dict.fromkeys((plain.title, speculative.title)))
        return {
            "created": machine.timestamp(),
            "command": "live, on the page",
            "device": device,
            "versions": {"python": machine.versions()["python"]}
            | {about.kind: about.version for about in (plain, speculative) if about.version},
            "pair": {"name": PAIR, "target": self.title or speculative.model, "draft": None},
            "settings": settings.as_dict(),
            "prompt_tokens": prompt_tokens,
            "guarantee": "none",
            "source": {
                "version": SOURCE_VERSION,
                "server": " and ".join(titles),
                "passes": "inferred",
                "lanes": self.order,
                "m": self.m,
            },
        }


class _Race:
    """One race: streams read in an event loop of a thread's, events made in the engine's."""

    def __init__(
        self, source: OpenAISource, settings: Settings, cancelled: Callable[[], bool]
    ) -> None:
        self.source, self.settings, self.cancelled = source, settings, cancelled
        self.news: queue.SimpleQueue[tuple[Course, Arrival | None, Exception | None]]
        self.news = queue.SimpleQueue()
        self.started = False
        self.courses = [
            Course(
                endpoint,
                about := source.abouts[endpoint.lane],
                InferredLane(endpoint.lane, whole=about.kind == VLLM),
            )
            for endpoint in (source.plain, source.speculative)
        ]

    def events(self) -> Iterator[Event]:
        """Start, passes, finishes, end."""
        plain, speculative = self.courses
        groups = [[plain], [speculative]]
        if self.source.order == TOGETHER:
            groups = [[plain, speculative]]
        for group in groups:
            yield from self._follow(group)
        yield {
            "type": "end",
            "agreement": agreement(plain.lane, speculative.lane, self.settings),
            "stats": statistics(
                plain.lane, speculative.lane, speculative.counts, self._told(), self.source.m
            ),
        }

    def _follow(self, group: list[Course]) -> Iterator[Event]:
        loop = asyncio.new_event_loop()
        tasks: list[asyncio.Task[None]] = []
        thread = threading.Thread(
            target=self._drive, args=(loop, group, tasks), name="servers", daemon=True
        )
        if self.cancelled():
            for course in group:
                yield from self._finish(course, "cancelled")
            return
        thread.start()
        try:
            while not all(course.over for course in group):
                yield from self._next(group)
                if self.cancelled():
                    break
        finally:
            for task in list(tasks):
                loop.call_soon_threadsafe(task.cancel)
            thread.join()
            loop.close()
        for course in group:
            if not course.over:
                yield from self._finish(course, "cancelled")

    def _next(self, group: list[Course]) -> Iterator[Event]:
        """Wait for what comes next, or for the moment at which a pass is known to be complete."""
        try:
            course, arrival, fault = self.news.get(timeout=LOOK_EVERY)
        except queue.Empty:
            for waiting in group:
                yield from self._passes(waiting, waiting.lane.settle())
            return
        if fault is not None:
            yield from self._passes(course, course.lane.close())
            self.source.abouts = {}  # what comes up again may be another one
            raise fault
        if arrival is not None:
            if not self.started:
                self.started = True
                header = self.source.header(self.settings, arrival.prompt_tokens or 0)
                yield {"type": "start", "header": header}
            yield from self._passes(course, course.lane.add(arrival))
            if course.lane.name == "plain":
                self.courses[1].lane.reference = course.lane.typical
        else:
            yield from self._passes(course, course.lane.close())
            yield from self._finish(course, _reason(course.ending))

    def _passes(self, course: Course, passes: list[Any]) -> Iterator[Event]:
        for item in passes:
            course.lane.log.add(item, item.end)
            yield pass_event(course.lane.name, item)

    def _finish(self, course: Course, reason: str) -> Iterator[Event]:
        yield from self._passes(course, course.lane.close())
        course.over, course.lane.reason = True, reason
        if not self.started:
            self.started = True
            yield {"type": "start", "header": self.source.header(self.settings, 0)}
        clock = round(course.lane.clock, 6)
        yield {"type": "finish", "lane": course.lane.name, "reason": reason, "clock": clock}

    def _drive(
        self, loop: asyncio.AbstractEventLoop, group: list[Course], tasks: list[asyncio.Task[None]]
    ) -> None:
        """The thread: run the streams of a group, whatever becomes of them."""

        async def all_of_them() -> None:
            tasks.extend(loop.create_task(self._stream(course)) for course in group)
            await asyncio.gather(*tasks, return_exceptions=True)

        loop.run_until_complete(all_of_them())

    async def _stream(self, course: Course) -> None:
        try:
            async for arrival in self._arrivals(course):
                self.news.put((course, arrival, None))
            self.news.put((course, None, None))
        except Exception as fault:
            self.news.put((course, None, fault))

    async def _arrivals(self, course: Course) -> AsyncIterator[Arrival]:
        endpoint = course.endpoint
        async with endpoint.connected() as client:
            speculative = endpoint.lane == "speculative"
            before = await endpoint.counters(client) if speculative else {}
            stream = endpoint.stream(client, self.settings, course.about, course.ending)
            async for arrival in stream:
                yield arrival
            if speculative:
                course.counts = await endpoint.counts(client, before, course.ending)

    def _told(self) -> dict[str, Any]:
        """What the servers themselves said of each lane, for the statistics."""
        return {
            course.lane.name: {
                "prompt_tokens": course.ending.usage.get("prompt_tokens"),
                "completion_tokens": course.ending.usage.get("completion_tokens"),
                "decode_s": _server_seconds(course.ending),
            }
            for course in self.courses
        }


def endpoints(environment: Mapping[str, str]) -> tuple[Endpoint, Endpoint]:
    """The two endpoints that the owner's settings name.

    Raises:
        SdError: "bad_server", an address is missing or wrong, or two lanes would be the same.
    """
    made = []
    urls = {lane: environment.get(f"SD_{lane.upper()}_URL", "").strip() for lane in LANES}
    if not any(urls.values()):
        raise SdError("bad_server", "Set SD_PLAIN_URL and SD_SPECULATIVE_URL.", lane="plain")
    for lane, other in zip(LANES, reversed(LANES), strict=True):
        name = f"SD_{lane.upper()}"
        made.append(
            Endpoint(
                lane,
                urls[lane] or urls[other],
                model=environment.get(f"{name}_MODEL", "").strip(),
                key=environment.get(f"{name}_KEY", "") or environment.get("SD_SERVER_KEY", ""),
                extra=_extra(environment, f"{name}_EXTRA"),
                silence=float(_whole(environment, "SD_SERVER_TIMEOUT") or SILENCE),
                probabilities=environment.get("SD_SERVER_LOGPROBS", "1") != "0",
            )
        )
    plain, speculative = made
    if (plain.root, plain.model, plain.extra) == (
        speculative.root,
        speculative.model,
        speculative.extra,
    ):
        raise SdError(
            "bad_server",
            "Both lanes would ask the same server the same thing. Give two addresses, or switch "
            "one server by SD_PLAIN_MODEL or SD_PLAIN_EXTRA.",
            lane="plain",
        )
    return plain, speculative


def _order(environment: Mapping[str, str]) -> str:
    """Lanes on one machine run one after the other, or each would slow the other."""
    wish = environment.get("SD_SERVER_LANES", "auto").strip()
    if wish not in ("auto", IN_TURN, TOGETHER):
        raise SdError(
            "bad_server", f'SD_SERVER_LANES={wish!r} must be "{IN_TURN}" or "{TOGETHER}".', lane=""
        )
    # Two names may be one machine; only the owner knows that they are two.
    return IN_TURN if wish == "auto" else wish


def _extra(environment: Mapping[str, str], name: str) -> dict[str, Any]:
    text = environment.get(name, "").strip()
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise SdError("bad_server", f"{name} must be a JSON object, as in {{}}.", lane="")
    return value


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if text and (not text.isdecimal() or int(text) < 1):
        raise SdError("bad_server", f"{name}={text!r} must be a whole number above 0.", lane="")
    return int(text) if text else None


def _reason(ending: Ending) -> str:
    """Why a text ended, in the words of a trace."""
    if ending.reason == "length":
        return "length"
    return "stop" if isinstance(ending.stop, str) else "end"


def _server_seconds(ending: Ending) -> float | None:
    """llama.cpp's own clock for the decode phase."""
    value = ending.timings.get("predicted_ms")
    return round(value / 1e3, 6) if isinstance(value, (int, float)) else None
