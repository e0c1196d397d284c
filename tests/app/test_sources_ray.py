"""Races on a cluster, without Ray: a cluster of threads that loses machines when told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.limits import Limits
from app.ray_settings import RaySettings
from app.ray_source import TRIES, Lost, RaySource
from app.worker import ROOT
from kernels.errors import SdError
from kernels.settings import Settings
from kernels.trace import Trace
from tests.app.fake_source import FakeSource

SETTINGS = Settings("the small model", length=12, seed=3)


class Replicas:
    """A cluster, a replica for each race; `loses`: after how many events the next are lost."""

    def __init__(self, *loses: int) -> None:
        self.loses = list(loses)
        self.streams: list[OneRace] = []
        self.met = 0

    def meet(self) -> None:
        self.met += 1

    def stream(self, pair: str, settings: dict[str, Any]) -> OneRace:
        after = self.loses.pop(0) if self.loses else None
        self.streams.append(OneRace(pair, settings, after))
        return self.streams[-1]


class OneRace:
    def __init__(self, pair: str, settings: dict[str, Any], after: int | None) -> None:
        self.pair, self.settings, self.after = pair, settings, after
        self.cancelled = threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        engine = FakeSource()
        engine.prepare(self.pair, lambda *_: None)
        events = engine.run(self.pair, Settings.from_dict(self.settings), self.cancelled.is_set)
        try:
            for number, event in enumerate(events):
                if number == self.after:
                    raise Lost("ActorDiedError")
                yield event
        except SdError as error:
            yield error.as_event()

    def cancel(self) -> None:
        self.cancelled.set()


def run(cluster: Replicas, settings: Settings = SETTINGS) -> list[dict[str, Any]]:
    return list(RaySource({}, cluster).run("embedded", settings, lambda: False))


def test_a_race_in_the_cluster_is_a_race() -> None:
    cluster = Replicas()
    trace = Trace.from_events(run(cluster))
    assert trace.text("plain") == trace.text("speculative") != ""
    assert len(cluster.streams) == 1
    source = RaySource({}, cluster)
    assert source.at_once == Limits().active
    assert RaySource({"SD_MAX_ACTIVE": "64"}, cluster).at_once == 64
    source.prepare("embedded", lambda *_: None)
    assert cluster.met == 1
    assert source.describe()[0]["name"] == "embedded"
    assert "measures" not in source.describe()[0], "a replica's machine is not this one"


def test_a_lost_replica_begins_the_race_again() -> None:
    events = run(Replicas(9))
    assert [e["type"] for e in events].count("start") == 2
    assert Trace.from_events(events) == Trace.from_events(events[9:])
    assert Trace.from_events(events).text("plain") == Trace.from_events(run(Replicas())).text(
        "plain"
    )


def test_a_stream_that_ends_without_a_word_is_a_lost_replica() -> None:
    cluster = Replicas()
    whole = OneRace.__iter__

    class Short(OneRace):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            for number, event in enumerate(whole(self)):
                if number == 5:
                    return
                yield event

    cluster.stream = lambda pair, settings: (  # type: ignore[method-assign]
        cluster.streams.append(s := (OneRace if cluster.streams else Short)(pair, settings, None))
        or s
    )
    assert run(cluster)[-1]["type"] == "end"
    assert len(cluster.streams) == 2


def test_replicas_lost_again_and_again_are_reported() -> None:
    cluster = Replicas(*[4] * TRIES)
    with pytest.raises(SdError) as failed:
        run(cluster)
    assert failed.value.code == "engine_failed"
    assert len(cluster.streams) == TRIES


def test_a_fault_that_is_known_comes_through_with_its_detail() -> None:
    cluster = Replicas()
    with pytest.raises(SdError, match="Too long") as refused:
        run(cluster, Settings("refuse this"))
    assert refused.value.code == "prompt_too_long"
    assert refused.value.detail["limit"] == 9
    assert len(cluster.streams) == 1, "not tried again"


def test_a_fault_that_is_unknown_is_not_tried_again() -> None:
    cluster = Replicas()
    with pytest.raises(RuntimeError, match="nobody foresaw"):
        run(cluster, Settings("break this"))
    assert len(cluster.streams) == 1


def test_cancelling_lets_the_replica_go_at_once() -> None:
    cluster = Replicas()
    events: list[dict[str, Any]] = []
    enough = lambda: len(events) > 4  # noqa: E731
    for event in RaySource({}, cluster).run("embedded", Settings("slow words", length=200), enough):
        events.append(event)
    assert cluster.streams[0].cancelled.is_set()
    assert events[-1]["agreement"] == {"kind": "unfinished"}
    assert [e["reason"] for e in events if e["type"] == "finish"] == ["cancelled"] * 2
    Trace.from_events(events)


def test_cancelling_in_the_clusters_queue_shows_nothing() -> None:
    class Waiting(Replicas):
        def stream(self, pair: str, settings: dict[str, Any]) -> OneRace:
            race = super().stream(pair, settings)
            race.__class__ = type("Queued", (OneRace,), {"__iter__": queued})
            return race

    def queued(self: OneRace) -> Iterator[dict[str, Any]]:
        self.cancelled.wait(30)
        return iter(())

    cluster = Waiting()
    until = time.monotonic() + 0.3
    source = RaySource({}, cluster)
    assert list(source.run("embedded", SETTINGS, lambda: time.monotonic() > until)) == []
    assert cluster.streams[0].cancelled.is_set()


def test_leaving_in_the_middle_cancels() -> None:
    cluster = Replicas()
    events = RaySource({}, cluster).run("embedded", Settings("slow words"), lambda: False)
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert cluster.streams[0].cancelled.is_set()


def test_without_ray_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(SdError, match="pip install") as missing:
        RaySource({"SD_RAY": "auto"}).prepare("embedded", lambda *_: None)
    assert missing.value.code == "cluster_unreachable"


# --- the owner's settings -------------------------------------------------------------------------


def test_settings_of_a_cluster() -> None:
    found = RaySettings.of({"SD_RAY": "auto", "SD_RAY_REPLICAS": "2", "SD_RAY_GPUS": "0.5"})
    assert (found.address, found.fewest, found.most, found.gpus) == ("auto", 2, 2, 0.5)
    assert RaySettings.of({}) == RaySettings()
    assert RaySettings.of({"SD_RAY_REPLICAS": "2:16"}).most == 16


@pytest.mark.parametrize(
    "environment",
    [
        {"SD_RAY_REPLICAS": "0"},
        {"SD_RAY_REPLICAS": "4:2"},
        {"SD_RAY_REPLICAS": "many"},
        {"SD_RAY_QUEUE": "0"},
        {"SD_RAY_CPUS": "-1"},
        {"SD_RAY_GPUS": "x"},
    ],
)
def test_wrong_settings_name_the_variable(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(environment))):
        RaySettings.of(environment)
    with pytest.raises(SdError):
        RaySource(environment, Replicas())


CLAIM = """
import json, os, sys
from pathlib import Path
from app.ray_settings import claim_cores
taken = claim_cores(1, Path(sys.argv[1]))
print(json.dumps([taken, sorted(os.sched_getaffinity(0))]), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds threads the Linux way")
def test_replicas_of_one_machine_have_cores_of_their_own(tmp_path: Path) -> None:
    """Processes, since a binding is for a process's life: one core each, and none for the last."""
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:

        def claim() -> tuple[subprocess.Popen[str], list[int], list[int]]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CLAIM, str(tmp_path)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            assert process.stdout is not None
            taken, bound = json.loads(process.stdout.readline())
            return process, taken, bound

        claims = [claim() for _ in cores]
        assert sorted(core for _, taken, _ in claims for core in taken) == cores
        assert all(taken == bound for _, taken, bound in claims)
        assert claim()[1:] == ([], cores), "nothing left: not bound"
        claims[0][0].kill()  # its core is free again, however it ended
        claims[0][0].wait()
        assert claim()[1] == claims[0][1]
