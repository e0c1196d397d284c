"""Which machine this is, and whether somebody else was using it. Free of torch."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any


def describe() -> dict[str, Any]:
    """The machine for a record: {"name", "cores", "system"}; cores: those this process may use."""
    return {
        "name": _processor(),
        "cores": usable_cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def timestamp() -> str:
    """Now, as records say when they were made: "2026-11-30T20:30:15Z"."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def usable_cores() -> int:
    """Cores this process may use: its affinity, and a container's quota if that is smaller."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def versions(*packages: str) -> Mapping[str, str]:
    """Python's version and those of installed `packages`."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return MappingProxyType(found)


@cache
def _processor() -> str:
    if sys.platform == "linux":
        try:
            for line in Path("/proc/cpuinfo").read_text().splitlines():
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
        except OSError:
            pass
    return platform.processor() or platform.machine() or "unknown processor"


class Contention:
    """How much of the machine others took while we measured, from Linux's /proc/stat.

    `others` is the share of all cores' time that neither was idle nor went to this process and its
    children; `stolen` the share that the hypervisor gave away. Both None where there is no /proc.
    """

    LIMIT = 0.05  # above this a measurement is marked as contaminated

    def __init__(self) -> None:
        self._part = 0.0

    def take_part(self, seconds: float) -> None:
        """Count processor time as ours that /proc/stat shows as others': of grandchildren, say."""
        self._part += seconds

    def __enter__(self) -> Contention:
        self._before = _processor_times()
        self.others: float | None = None
        self.stolen: float | None = None
        return self

    def __exit__(self, *exc: object) -> None:
        after = _processor_times()
        if self._before is None or after is None:
            return
        total, idle, stolen, own = (a - b for a, b in zip(after, self._before, strict=True))
        if total > 0:
            self.others = max(0.0, (total - idle - stolen - own - self._part) / total)
            self.stolen = stolen / total

    @property
    def contaminated(self) -> bool:
        """Whether others or the hypervisor took more than `LIMIT`."""
        return max(self.others or 0.0, self.stolen or 0.0) > self.LIMIT


def _processor_times() -> tuple[float, float, float, float] | None:
    """(total, idle, stolen, this process) in seconds since boot or start."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, waiting, irq, soft, stolen = (int(f) / tick for f in fields)
    own = os.times()
    total = user + nice + system + idle + waiting + irq + soft + stolen
    mine = own.user + own.system + own.children_user + own.children_system
    return total, idle + waiting, stolen, mine
