"""What the owner decides about a Ray cluster, and the cores that a replica has to itself.

Free of Ray, so that it can be read and tested without it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

APPLICATION = "race"
DEPLOYMENT = "race"
#: Locks of cores that replicas hold; they go when the process does, however it ends.
_held: list[FileLock] = []


@dataclass(frozen=True)
class RaySettings:
    """See docs/engines.md. gpus: None for one each, where there are any."""

    address: str = ""
    fewest: int = 1
    most: int = 8
    queue: float = 2.0
    cpus: float = 1.0
    gpus: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> RaySettings:
        """Read them from the environment.

        Raises:
            ValueError: a value is out of its bounds; the message names the variable.
        """

        def number(name: str, default: float | None, least: float) -> float | None:
            text = environment.get(name, "").strip()
            if not text:
                return default
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not least <= value <= 10_000:
                raise ValueError(f"{name}={text!r} must be a number from {least:g} to 10000")
            return value

        replicas = environment.get("SD_RAY_REPLICAS", "").strip() or f"{cls.fewest}:{cls.most}"
        fewest, _, most = replicas.partition(":")
        bounds = (fewest, most or fewest)
        if not all(bound.isdecimal() for bound in bounds) or not 1 <= int(fewest) <= int(bounds[1]):
            raise ValueError(f"SD_RAY_REPLICAS={replicas!r} must be as 2 or 1:8")
        queue, cpus = number("SD_RAY_QUEUE", cls.queue, 0.1), number("SD_RAY_CPUS", cls.cpus, 0)
        assert queue is not None
        assert cpus is not None
        return cls(
            address=environment.get("SD_RAY", "").strip(),
            fewest=int(fewest),
            most=int(bounds[1]),
            queue=queue,
            cpus=cpus,
            gpus=number("SD_RAY_GPUS", None, 0),
        )


def claim_cores(count: int, folder: Path | None = None) -> list[int]:
    """Take `count` cores that no other replica on this machine has, and run on them alone.

    Returns them; empty where fewer are free (then nothing is bound) or binding is not possible.
    """
    bind = getattr(os, "sched_setaffinity", None)
    if bind is None:
        return []
    place = folder or Path(tempfile.gettempdir()) / "speculative-decoding-live-cores"
    place.mkdir(parents=True, exist_ok=True)
    taken: list[tuple[int, FileLock]] = []
    for core in sorted(os.sched_getaffinity(0)):
        lock = FileLock(place / f"{core}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        taken.append((core, lock))
        if len(taken) == count:
            break
    if len(taken) < count:
        for _, lock in taken:
            lock.release()
        return []
    _held.extend(lock for _, lock in taken)
    cores = [core for core, _ in taken]
    for thread in _threads():
        bind(thread, set(cores))
    return cores


def _threads() -> list[int]:
    """This process's threads: a binding holds for one, and for those that it starts later."""
    tasks = Path("/proc/self/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.is_dir() else [0]
