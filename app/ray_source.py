"""Races on a Ray cluster (``app/ray_app.py``): the page server as a thin front end.

The events come from a replica as they happen there, clocks included. Where a replica is lost in
mid-race, the race is begun again on another one, and the page sees it from its beginning.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from app.limits import Limits
from app.ray_settings import APPLICATION, RaySettings
from app.sources import Event, KernelSource, Progress
from kernels.errors import SdError
from kernels.settings import Settings

LOG = logging.getLogger("sd.ray")
#: How often a race is begun, at most.
TRIES = 3
#: Seconds between two looks at whether the race has been cancelled.
LOOK_EVERY = 0.1


class Lost(Exception):
    """The replica that ran a race is gone."""


class Cluster(Protocol):
    """What is needed of a cluster: the one in `_Ray`, or a test's."""

    def meet(self) -> None:
        """Find the cluster; quick once it has been found. Raises SdError if it is not there."""
        ...

    def stream(self, pair: str, settings: dict[str, Any]) -> Stream:
        """Begin a race."""
        ...


class Stream(Protocol):
    """A race under way in the cluster."""

    def __iter__(self) -> Iterator[Event]:
        """Yield events; raises Lost when the replica is gone."""
        ...

    def cancel(self) -> None:
        """Make the replica let go of it."""
        ...


class RaySource:
    """The cluster's replicas, as many races at once as they take; more wait in its queue."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, cluster: Cluster | None = None
    ) -> None:
        try:
            self.settings = RaySettings.of(environment)
            # As many as the hub lets through; more wait with it, in its queue of readers.
            self.at_once = Limits.of(environment).active
        except ValueError as error:
            raise SdError("bad_server", str(error)) from error
        self._cluster: Cluster = cluster or _Ray(self.settings.address)
        self._met = False

    def describe(self) -> list[dict[str, Any]]:
        """The pairs that the settings name: replicas and page server have the same."""
        offered = KernelSource().describe()
        return [{k: v for k, v in entry.items() if k != "measures"} for entry in offered]

    def prepare(self, pair: str, progress: Progress) -> None:
        """Find the cluster; a replica has its models loaded, and loads another pair if asked."""
        if self._met:
            return
        progress("connect", 0, 1)
        self._cluster.meet()
        self._met = True
        progress("connect", 1, 1)

    def run(self, pair: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Yield the events of a race in the cluster; a new ``start`` begins it again."""
        for attempt in range(1, TRIES + 1):
            stream = self._cluster.stream(pair, settings.as_dict())
            try:
                yield from self._follow(stream, cancelled)
                return
            except Lost as lost:
                LOG.warning(
                    "a replica was lost in mid-race (%s), try %d of %d", lost, attempt, TRIES
                )
        raise SdError(
            "engine_failed",
            f"The machine that ran the race was lost {TRIES} times. Try again later.",
            reason="replica lost",
        )

    def _follow(self, stream: Stream, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """A race's events until its end, or until it has been cancelled."""
        news: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()

        def read() -> None:
            try:
                for event in stream:
                    news.put(event)
                news.put(None)
            except Exception as fault:
                news.put(fault)

        threading.Thread(target=read, name="cluster", daemon=True).start()
        seen: list[Event] = []
        over = False
        try:
            while not over:
                if cancelled():
                    yield from _cut(seen)
                    return
                try:
                    event = news.get(timeout=LOOK_EVERY)
                except queue.Empty:
                    continue
                if isinstance(event, Exception):
                    raise event
                over = event is None
                if event is None:
                    continue
                if event["type"] == "error":
                    detail = dict(event["detail"])
                    raise SdError(event["code"], str(detail.pop("message", "")), **detail)
                seen.append(event)
                yield event
        finally:
            if not over:
                stream.cancel()
        if not seen or seen[-1]["type"] != "end":
            raise Lost("the stream ended before the race")


def _cut(seen: list[Event]) -> list[Event]:
    """What a race that has been cancelled still owes: its ends."""
    from app.record import closed

    return closed(seen)[len(seen) :] if seen else []


class _Ray:
    """A Ray cluster, met at the first race."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._handle: Any = None
        self._meeting = threading.Lock()

    def meet(self) -> None:
        with self._meeting:
            if self._handle is None:
                self._handle = self._find()

    def stream(self, pair: str, settings: dict[str, Any]) -> Stream:
        self.meet()
        return _RayStream(self._handle.race.remote(pair, settings))

    def _find(self) -> Any:
        try:
            import ray
            from ray import serve
        except ImportError:
            raise SdError(
                "cluster_unreachable",
                'Ray is not installed here: pip install -c constraints.txt -e ".[ray]".',
                reason="not installed",
            ) from None
        try:
            ray.init(address=self._address, log_to_driver=False, ignore_reinit_error=True)
            return serve.get_app_handle(APPLICATION).options(stream=True)
        except Exception as error:
            LOG.error("the cluster cannot be reached", exc_info=error)
            raise SdError(
                "cluster_unreachable",
                "The cluster does not answer: is it running, and does it serve app.ray_app?",
                reason=type(error).__name__,
            ) from error


class _RayStream:
    """One streaming call."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Event]:
        from ray.exceptions import RayError, RayTaskError

        try:
            yield from self._response
        except RayTaskError:
            raise  # a fault of the engine's own
        except RayError as error:
            raise Lost(type(error).__name__) from error

    def cancel(self) -> None:
        self._response.cancel()
