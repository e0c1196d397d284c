"""``make ray-check``: a Ray cluster of two replicas on this machine, and what becomes of its races.

Runs in an environment that has Ray (scripts/engines.sh). Ten races that wait in one queue are run
by one replica and by two, each on a core of its own; then one of two replicas is killed in
mid-race. Prints one JSON line and fails if a race was lost in silence or came out different.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import ray
from ray import serve

from app.ray_app import APPLICATION, build
from app.ray_settings import RaySettings
from app.ray_source import RaySource
from app.record import record
from kernels.machine import Contention
from kernels.settings import Settings

RACES = 10
LENGTH = int(os.environ.get("RAY_CHECK_LENGTH", "48"))
PROMPTS = ("List ten things to know about kites.", "Write a short story about a lighthouse.")


def settings(number: int) -> Settings:
    """A race that takes a while, another one each time."""
    return Settings(PROMPTS[number % 2], length=LENGTH, seed=number, temperature=0.0)


def deploy(replicas: int) -> RaySource:
    """Serve this many replicas and nothing else; returns a page server's source."""
    given = {"SD_RAY": "auto", "SD_RAY_REPLICAS": str(replicas), "SD_RAY_CPUS": "1"}
    serve.run(build(RaySettings.of(given), gpus=False), name=APPLICATION, route_prefix=None)
    return RaySource(given)


def ten(source: RaySource) -> tuple[float, list[str]]:
    """Ten races, all asked for at once: seconds until the last has ended, and their texts."""
    start = time.monotonic()
    with ThreadPoolExecutor(RACES) as pool:
        traces = [t for t, _ in pool.map(lambda n: record(source, settings(n)), range(RACES))]
    return time.monotonic() - start, [trace.text("speculative") for trace in traces]


def replicas() -> list[psutil.Process]:
    """The processes of this cluster's replicas: descendants of ours only."""
    mine = psutil.Process().children(recursive=True)
    return [process for process in mine if "ServeReplica:" in "".join(process.cmdline())]


def lose_one(source: RaySource) -> dict[str, Any]:
    """Four races on two replicas, one of which is killed once both race."""
    begun: list[int] = [0] * 4
    ends: list[str] = [""] * 4
    first = threading.Event()

    def follow(number: int) -> None:
        try:
            for event in source.run("embedded", settings(number), lambda: False):
                begun[number] += event["type"] == "start"
                if event["type"] == "pass" and event["kind"] == "verify":
                    first.set()
                ends[number] = event["type"]
        except Exception as error:
            ends[number] = f"error: {error}"

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    first.wait(300)
    victim = replicas()[0]
    victim.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join(600)
    return {
        "killed_pid": victim.pid,
        "races": 4,
        "ended": ends.count("end"),
        "reported": sum(end.startswith("error") for end in ends),
        "begun_again": sum(begun) - 4,
        "lost": sum(not end for end in ends) + ends.count("start") + ends.count("pass"),
    }


def main() -> int:
    """Run the check; 1 if it fails."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        with Contention() as contention:
            alone, texts = ten(deploy(1))
            print(f"one replica: {alone:.1f} s", file=sys.stderr)
            two = deploy(2)
            pair, again = ten(two)
            print(f"two replicas: {pair:.1f} s", file=sys.stderr)
        killed = lose_one(two)
    finally:
        serve.shutdown()
        ray.shutdown()
    result = {
        "schema": "speculative-decoding-live/ray-check/1",
        "versions": {"ray": ray.__version__},
        "races": RACES,
        "length": LENGTH,
        "one_replica_s": round(alone, 2),
        "two_replicas_s": round(pair, 2),
        "throughput": round(alone / pair, 3),
        "same_texts": texts == again,
        "killed": killed,
        "others_share": contention.others,
    }
    print(json.dumps(result))
    fine = result["same_texts"] and killed["lost"] == 0 and killed["begun_again"] >= 1
    return 0 if fine and killed["ended"] + killed["reported"] == killed["races"] else 1


if __name__ == "__main__":
    sys.exit(main())
