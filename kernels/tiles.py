"""A tiled matrix product whose schedule is recorded: which unit took which tile, when.

One layer's weights, (M, K), are cut into tiles of whole rows. Each unit (a thread on a core of its
own) takes the next tile from a queue, streams it from memory, multiplies it with the activations x,
(k, K), and drops it. The same weights move for every k; only the arithmetic grows. What is written
down is what happened.

    python -m kernels tiles --out figures/tiles/recorded/cpu.json

With `--device cuda` the units are multiprocessors, the kernel is `kernels.gpu.tile_kernel`, and the
record has the same form.

The record (schema `speculative-decoding-live/tiles/1`, JSON): a header with clock, device,
versions, command, kernel, matrix and tile, and per k a run with columns `tile unit core issue
done` (nanoseconds since the run's start), its traced span, the untraced median, and the largest
relative error against a product in double precision.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels import machine
from kernels.native.library import NativeUnavailable
from kernels.native.product import PackedMatrix

SCHEMA = "speculative-decoding-live/tiles/1"
#: The layer that is recorded unless another is asked for: attention output of a 70B Llama, 8192
#: × 8192.
ROWS = COLUMNS = 8192
#: Rows of one tile: 1 MB in BF16, large against a core's L2 and small against the matrix.
TILE_ROWS = 64
#: How often a disturbed measurement is repeated before it is recorded as contaminated.
ATTEMPTS = 8


def _core() -> Callable[[], int]:
    """Return a function that names the core it runs on (−1 where the system does not tell)."""
    try:
        call = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return lambda: -1
    return lambda: int(call())


class Tile:
    """Some whole rows of W, ready to be multiplied; by the decoder's inner loop if it compiles."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows = rows.shape[0]
        self._packed: PackedMatrix | None
        try:
            self._packed = PackedMatrix(rows)
        except NativeUnavailable:
            self._weights = torch.from_numpy(rows)
            self._packed = None
        self.bytes = self._packed.bytes if self._packed else rows.nbytes

    def times(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write x · rowsᵀ; x (k, K), out (k, rows)."""
        if self._packed:
            self._packed.times(x, out)
        else:
            torch.mm(torch.from_numpy(x), self._weights.T, out=torch.from_numpy(out))

    @property
    def kernel(self) -> str:
        """Return which kernel multiplies, and the weights' type."""
        return "native, bfloat16 weights" if self._packed else "torch.mm, float32 weights"


class TiledProduct:
    """y = x Wᵀ, tile by tile, by `units` threads that share one queue.

    Args:
        weights: (M, K).
        tile_rows: rows of a tile; M must be a multiple of it.
        units: threads.

    Raises:
        ValueError: the tiles do not cover the matrix.
    """

    def __init__(self, weights: NDArray[np.float32], tile_rows: int, units: int) -> None:
        if weights.shape[0] % tile_rows:
            raise ValueError(f"{weights.shape[0]} rows are no multiple of {tile_rows}")
        self.tiles = [Tile(part) for part in np.split(weights, weights.shape[0] // tile_rows)]
        self.units = units
        self._pool = ThreadPoolExecutor(units, initializer=torch.set_num_threads, initargs=(1,))

    def run(
        self, x: NDArray[np.float32], *, trace: bool
    ) -> tuple[NDArray[np.float32], float, list[list[int]]]:
        """Compute once.

        Args:
            x: (k, K).

        Returns:
            y (k, M); seconds from the first tile's start to the last one's end; for a traced
            run one row `[tile, unit, core, issue, done]` a tile, nanoseconds since the start,
            in order of issue.
        """
        out = [np.empty((x.shape[0], tile.rows), np.float32) for tile in self.tiles]
        queue, core, clock = count(), _core(), time.perf_counter_ns
        gate = threading.Barrier(self.units)
        rows: list[list[list[int]]] = [[] for _ in range(self.units)]
        spans = [(0, 0)] * self.units

        def unit(number: int) -> None:
            mine = rows[number]
            gate.wait()
            begun = clock()
            # next() on a count is one bytecode: two units never get the same tile.
            while (tile := next(queue)) < len(self.tiles):
                issue = clock() if trace else 0
                self.tiles[tile].times(x, out[tile])
                if trace:
                    mine.append([tile, number, core(), issue, clock()])
            spans[number] = (begun, clock())

        jobs = [self._pool.submit(unit, number) for number in range(self.units)]
        for job in jobs:
            job.result()
        # By the units' own clocks: this thread may wake up late, when much of the work is done.
        seconds = (max(end for _, end in spans) - min(begun for begun, _ in spans)) / 1e9
        events = sorted((row for mine in rows for row in mine), key=lambda row: row[3])
        if events:
            first = events[0][3]
            events = [[t, u, c, issue - first, done - first] for t, u, c, issue, done in events]
            seconds = max(row[4] for row in events) / 1e9
        return np.concatenate(out, axis=1), seconds, events

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

    Traced and untraced runs alternate; the traced run kept for each k is the one whose span is the
    median. Weights are random, never zeros, and far larger in all than the last-level cache. For
    each k the runs are repeated until others left the processor alone meanwhile, ATTEMPTS times at
    most; failing that the record is contaminated.
    """
    random = np.random.default_rng(seed)
    weights = random.standard_normal((rows, columns), dtype=np.float32)
    units = machine.usable_cores()
    product = TiledProduct(weights, tile_rows, units)
    runs = []
    contaminated = False
    for k in tokens:
        x = random.standard_normal((k, columns), dtype=np.float32)
        y, _, _ = product.run(x, trace=False)
        some = slice(0, min(rows, 4 * tile_rows))
        expected = x.astype(np.float64) @ weights[some].astype(np.float64).T
        error = float(np.abs(y[:, some] - expected).max() / np.abs(expected).max())
        for _ in range(ATTEMPTS):
            with machine.Contention() as contention:
                traced, untraced = _times(product, x, repeats)
            if not contention.contaminated:
                break
        contaminated = contaminated or contention.contaminated
        seconds, events = sorted(traced, key=lambda pair: pair[0])[len(traced) // 2]
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
    tile = product.tiles[0]
    return {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command or "python -m kernels tiles",
        "device": dict(machine.describe()),
        "versions": dict(machine.versions("torch", "numpy")),
        "clock": {"kind": "perf_counter_ns", "unit": "ns"},
        "kernel": tile.kernel,
        "matrix": {"rows": rows, "columns": columns, "seed": seed},
        "tile": {"rows": tile_rows, "columns": columns, "bytes": tile.bytes},
        "units": units,
        "contaminated": contaminated,
        "runs": runs,
    }


def _times(
    product: TiledProduct, x: NDArray[np.float32], repeats: int
) -> tuple[list[tuple[float, list[list[int]]]], list[float]]:
    """Traced and untraced runs in turn: (seconds, events) of the ones, seconds of the others."""
    traced, untraced = [], []
    for _ in range(repeats):
        untraced.append(product.run(x, trace=False)[1])
        _, seconds, events = product.run(x, trace=True)
        traced.append((seconds, events))
    return traced, untraced


def check(value: dict[str, Any]) -> None:
    """Hold a record against what must be true of any schedule.

    Raises:
        ValueError: a tile is missing or taken twice, ends before it starts, one unit works on two
            tiles at once, the bytes do not add up to the matrix, or the span is not the traced
            time.
    """
    tiles = value["matrix"]["rows"] // value["tile"]["rows"]
    weights = value["matrix"]["rows"] * value["matrix"]["columns"]
    if tiles * value["tile"]["bytes"] not in (2 * weights, 4 * weights):
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
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--tile-rows", type=int, default=TILE_ROWS)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 5, 128], metavar="K")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, help="file to write; standard output without it")
    options = parser.parse_args(argv)
    measure: Callable[..., dict[str, Any]] = record
    if options.device != "cpu":
        from kernels.gpu import tile_kernel

        measure = functools.partial(tile_kernel.record, options.device)
    result = measure(
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
    moved = result["tile"]["bytes"] * (options.rows // options.tile_rows)
    for run in result["runs"]:
        print(
            f"k = {run['k']}: {run['untraced_s'] * 1e3:.1f} ms untraced, "
            f"{run['traced_s'] * 1e3:.1f} ms traced, {moved / run['untraced_s'] / 1e9:.1f} GB/s",
            file=sys.stderr,
        )
    return 0
