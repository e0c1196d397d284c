"""Numbers for Prometheus: what the server does and how the races go. None of a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()

#: A registry of our own: what libraries put into the default one is not ours to show.
REGISTRY = CollectorRegistry()
CONTENT_TYPE = CONTENT_TYPE_LATEST
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

REQUESTS = Counter(
    "sd_http_requests_total", "Answers by route and status.", ["route", "status"], registry=REGISTRY
)
RACES = Counter(
    "sd_races_total", "Races by how they ended: end, cancelled, or the code of an error.",
    ["result"], registry=REGISTRY,
)  # fmt: skip
JOINED = Counter(
    "sd_races_joined_total", "Requests answered by a race that was under way.", registry=REGISTRY
)
REFUSED = Counter("sd_refused_total", "Requests not taken, by code.", ["code"], registry=REGISTRY)
FRAMES = Counter("sd_frames_total", "Frames sent to pages.", registry=REGISTRY)
DROPPED = Counter(
    "sd_readers_dropped_total", "Connections closed by the server, by reason.", ["reason"],
    registry=REGISTRY,
)  # fmt: skip
ENGINES = Counter("sd_engine_starts_total", "Engine processes started.", registry=REGISTRY)
WAIT = Histogram(
    "sd_queue_wait_seconds", "From the request to the first event of a race.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 60, 120, 300), registry=REGISTRY,
)  # fmt: skip
_NOW = {
    "readers": Gauge("sd_readers", "Connected pages.", registry=REGISTRY),
    "waiting": Gauge("sd_races_waiting", "Races in the queue.", registry=REGISTRY),
    "active": Gauge("sd_races_active", "Races that share the device now.", registry=REGISTRY),
}
_ENGINE = Gauge("sd_engine_up", "1 while the engine's process runs.", registry=REGISTRY)


def text(state: Mapping[str, Any]) -> bytes:
    """Return everything in Prometheus' text format; `state` is `live.state()`."""
    for name, gauge in _NOW.items():
        gauge.set(int(state.get(name) or 0))
    _ENGINE.set(state.get("engine") == "on")
    made: bytes = generate_latest(REGISTRY)
    return made
