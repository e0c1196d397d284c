"""What the tile figure shows at a moment of a recorded run, made by `kernels.tiles`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

#: The three runs, in the figure's words; each is the record's run of that many tokens.
RUNS: dict[str, int] = {"decode": 1, "verify": 5, "prefill": 128}


@dataclass(frozen=True)
class Frame:
    """The state of a run at a moment.

    Attributes:
        done: tiles finished.
        bytes: bytes of weights moved by them.
        macs: multiply-adds done with them.
        tiles, total_bytes, total_macs: the same at the end.
        span: length of the run, seconds.
    """

    done: int
    bytes: int
    macs: int
    tiles: int
    total_bytes: int
    total_macs: int
    span: float


def find(record: dict[str, Any], run: str) -> dict[str, Any]:
    """Return the run of a record that the figure calls `run`.

    Raises:
        KeyError: the record has no run of that many tokens.
    """
    for candidate in record["runs"]:
        if candidate["k"] == RUNS[run]:
            found: dict[str, Any] = candidate
            return found
    raise KeyError(run)


def frame(record: dict[str, Any], run: str, t: float) -> Frame:
    """Count what is finished `t` seconds after the start of a run."""
    chosen = find(record, run)
    finished = sum(done <= round(t * 1e9) for done in chosen["columns"]["done"])
    tiles, size = len(chosen["columns"]["tile"]), record["tile"]["bytes"]
    return Frame(
        done=finished,
        bytes=finished * size,
        macs=finished * chosen["macs_per_tile"],
        tiles=tiles,
        total_bytes=tiles * size,
        total_macs=tiles * chosen["macs_per_tile"],
        span=max(chosen["columns"]["done"]) / 1e9,
    )


@cache
def shipped() -> dict[str, Any]:
    """Return the record that comes with the figure."""
    path = Path(__file__).parent / "recorded" / "cpu.json"
    value: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return value
