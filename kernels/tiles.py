"""A tiled matrix product whose schedule is recorded: which unit took which tile, when.

One layer's weights, (M, K), are cut into tiles of whole rows. Each unit (a thread on a core of its own) takes
the next tile from a queue, streams it from memory, multiplies it with the activations x, (K, k), and drops it.
The same weights move for every k; only the arithmetic grows. What is written down is what happened.

    python -m kernels tiles --out figures/tiles/recorded/cpu.json

The record (schema `speculative-decoding-live/tiles/1`, JSON): header with clock, device, versions, command,
matrix, tile, and per k a run with typed columns `tile unit core issue done` (nanoseconds since the run's
start), its traced span and the untraced median, and the largest relative error against one plain product.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import torch

from kernels import machine

SCHEMA = "speculative-decoding-live/tiles/1"
#: The layer that is recorded unless another is asked for: attention output of a 70B Llama, 8192 × 8192.
ROWS = COLUMNS = 8192
#: Rows of one tile: 2 MB in FP32, large against a core's cache and small against the matrix.
TILE_ROWS = 64


def _core() -> Callable[[], int]:
    """Return a function that names the core it runs on (−1 where the system does not tell)."""
    try:
        call = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return lambda: -1
    return lambda: int(call())


class TiledProduct:
    """y = W x, tile by tile, by `units` threads that share one queue.

    Args:
        weights: (M, K), contiguous.
        tile_rows: rows of a tile; M must be a multiple of it.
        units: threads.

    Raises:
        ValueError: the tiles do not cover the matrix.
    """

    def __init__(self, weights: torch.Tensor, tile_rows: int, units: int) -> None:
        if weights.shape[0] % tile_rows:
            raise ValueError(f"{weights.shape[0]} rows are no multiple of {tile_rows}")
        self.tiles = weights.split(tile_rows)
        self.weights, self.tile_rows, self.units = weights, tile_rows, units
        self._pool = ThreadPoolExecutor(units, initializer=torch.set_num_threads, initargs=(1,))

    def run(self, x: torch.Tensor, *, trace: bool) -> tuple[torch.Tensor, float, list[list[int]]]:
        """Compute once.

        Args:
            x: (K, k).

        Returns:
            y (M, k); seconds from the first tile's start to the last one's end; for a traced run one row
            `[tile, unit, core, issue, done]` a tile, nanoseconds since the start, in order of issue.
        """
        y = torch.empty(self.weights.shape[0], x.shape[1])
        out = y.split(self.tile_rows)
        queue, core, clock = count(), _core(), time.perf_counter_ns
        gate = threading.Barrier(self.units + 1)
        rows: list[list[list[int]]] = [[] for _ in range(self.units)]

        def unit(number: int) -> None:
            mine = rows[number]
            gate.wait()
            # next() on a count is one bytecode: two units never get the same tile.
            while (tile := next(queue)) < len(self.tiles):
                issue = clock() if trace else 0
                torch.mm(self.tiles[tile], x, out=out[tile])
                if trace:
                    mine.append([tile, number, core(), issue, clock()])

        jobs = [self._pool.submit(unit, number) for number in range(self.units)]
        gate.wait()
        start = clock()
        for job in jobs:
            job.result()
        seconds = (clock() - start) / 1e9
        events = sorted((row for mine in rows for row in mine), key=lambda row: row[3])
        if events:
            first = events[0][3]
            events = [[t, u, c, issue - first, done - first] for t, u, c, issue, done in events]
            seconds = max(row[4] for row in events) / 1e9
        return y, seconds, events

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def record(
    *,
    rows: int = ROWS,
    columns: int = COLUMNS,
    tile_rows: int = TILE_ROWS,
    tokens: tuple[int, ...] = (1, 5, 128),
    repeats: int = 15,
    seed: int = 0,
    command: str = "",
) -> dict[str, Any]:
    """Measure and return a record; see the module's docstring.

    Traced and untraced runs alternate; the traced run kept for each k is the one whose span is the median.
    Weights are random, never zeros, and FP32; the matrix is far larger than the last-level cache.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, columns, generator=generator)
    units = machine.usable_cores()
    product = TiledProduct(weights, tile_rows, units)
    runs = []
    with machine.Contention() as contention:
        for k in tokens:
            x = torch.randn(columns, k, generator=generator)
            expected = weights @ x
            y, _, _ = product.run(x, trace=False)
            error = float((y - expected).abs().max() / expected.abs().max())
            traced, untraced = [], []
            for _ in range(repeats):
                untraced.append(product.run(x, trace=False)[1])
                _, seconds, events = product.run(x, trace=True)
                traced.append((seconds, events))
            traced.sort(key=lambda pair: pair[0])
            seconds, events = traced[len(traced) // 2]
            runs.append(
                {
                    "k": k,
                    "macs_per_tile": tile_rows * columns * k,
                    "traced_s": seconds,
                    "untraced_s": statistics.median(untraced),
                    "relative_error": error,
                    "columns": {
                        name: [row[i] for row in events]
                        for i, name in enumerate(("tile", "unit", "core", "issue", "done"))
                    },
                }
            )
    product.close()
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "command": command or "python -m kernels tiles",
        "device": machine.describe(),
        "versions": machine.versions("torch"),
        "clock": {"kind": "perf_counter_ns", "unit": "ns"},
        "matrix": {"rows": rows, "columns": columns, "dtype": "float32", "seed": seed},
        "tile": {"rows": tile_rows, "columns": columns, "bytes": tile_rows * columns * 4},
        "units": units,
        "contaminated": contention.contaminated,
        "runs": runs,
    }


def check(value: dict[str, Any]) -> None:
    """Hold a record against what must be true of any schedule.

    Raises:
        ValueError: a tile is missing or taken twice, ends before it starts, one unit works on two tiles at
            once, the bytes do not add up to the matrix, or the span is not the traced time.
    """
    tiles = value["matrix"]["rows"] // value["tile"]["rows"]
    whole = value["matrix"]["rows"] * value["matrix"]["columns"] * 4
    if tiles * value["tile"]["bytes"] != whole:
        raise ValueError("the tiles' bytes do not add up to the matrix")
    for run in value["runs"]:
        c = run["columns"]
        if sorted(c["tile"]) != list(range(tiles)):
            raise ValueError(f"k = {run['k']}: not every tile exactly once")
        free: dict[int, int] = {}
        for unit, issue, done in sorted(zip(c["unit"], c["issue"], c["done"], strict=True)):
            if done < issue or issue < free.get(unit, 0):
                raise ValueError(f"k = {run['k']}: unit {unit} does two things at once")
            free[unit] = done
        if abs(max(c["done"]) / 1e9 - run["traced_s"]) > 1e-6:
            raise ValueError(f"k = {run['k']}: the span is not the traced time")


def main(argv: list[str]) -> int:
    """Record a schedule and print or write it."""
    parser = argparse.ArgumentParser(prog="python -m kernels tiles", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--tile-rows", type=int, default=TILE_ROWS)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 5, 128], metavar="K")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="file to write; standard output without it")
    options = parser.parse_args(argv)
    result = record(
        rows=options.rows,
        columns=options.columns,
        tile_rows=options.tile_rows,
        tokens=tuple(options.tokens),
        repeats=options.repeats,
        command=" ".join(["python -m kernels tiles", *argv]),
    )
    check(result)
    text = json.dumps(result, separators=(",", ":"))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", "utf-8")
    else:
        print(text)
    for run in result["runs"]:
        rate = whole_bytes(result) / run["untraced_s"] / 1e9
        print(
            f"k = {run['k']}: {run['untraced_s'] * 1e3:.1f} ms untraced, {run['traced_s'] * 1e3:.1f} ms "
            f"traced, {rate:.1f} GB/s",
            file=sys.stderr,
        )
    return 0


def whole_bytes(value: dict[str, Any]) -> int:
    """Return the bytes of the recorded matrix: what every run reads."""
    return int(value["matrix"]["rows"] * value["matrix"]["columns"] * 4)
