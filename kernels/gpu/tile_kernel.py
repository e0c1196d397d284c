"""A tiled product in Triton that writes down its schedule: which unit took which tile, when.

y = x Wᵀ with W (M, K) in BF16, cut into tiles of whole rows as in kernels.tiles. As many programs
as the GPU has multiprocessors take tiles from one counter until none is left; each notes when it
took a tile and when it had stored the result, by the GPU's own nanosecond clock (%globaltimer), and
on which multiprocessor it ran (%smid). Without TRACED the same kernel does neither, and that is
what `untraced_s` measures.

In Triton's interpreter programs run one after the other and the clock does not exist: it shows that
the numbers are right, and nothing about schedules.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import globaltimer, smid

from kernels import machine
from kernels.tiles import SCHEMA

#: The layer that is recorded: the feed-forward input of a 70B Llama, 470 MB, many times the cache.
ROWS, COLUMNS = 28672, 8192
#: Rows of a tile: 1 MB of it takes a multiprocessor tens of microseconds, many ticks of the clock.
TILE_ROWS = 64
_STEP = 128
_FEWEST = 16  # rows of x below which the matrix units do not start


def product(
    weights: Tensor, x: Tensor, *, units: int, tile_rows: int = TILE_ROWS, traced: bool = False
) -> tuple[Tensor, Tensor]:
    """x Wᵀ, queued on the current stream.

    weights: (M, K), x: (k, K), both BF16 and contiguous, on one device; any sizes. units: programs.
    Returns y (k, M) float32, and the trace (tiles, 4) int64: unit, core, issue and done in ns (all
    zeros unless traced). Raises ValueError for shapes that do not fit.
    """
    if weights.ndim != 2 or x.ndim != 2 or x.shape[1] != weights.shape[1]:
        raise ValueError(f"x {tuple(x.shape)} does not fit weights {tuple(weights.shape)}")
    (rows, columns), tokens = weights.shape, x.shape[0]
    y = torch.empty((tokens, rows), dtype=torch.float32, device=x.device)
    queue = torch.zeros(1, dtype=torch.int32, device=x.device)
    trace = torch.zeros((triton.cdiv(rows, tile_rows), 4), dtype=torch.int64, device=x.device)
    _tiles[(units,)](
        weights,
        x,
        y,
        queue,
        trace,
        rows,
        columns,
        tokens,
        TILE=tile_rows,
        TOKENS=max(_FEWEST, triton.next_power_of_2(tokens)),
        STEP=_STEP,
        TRACED=traced,
        # The interpreter multiplies BF16 without a word and wrongly; exact in FP32 either way.
        UPCAST=triton.knobs.runtime.interpret,
        num_warps=8,
        num_stages=4,
    )
    return y, trace


@triton.jit
def _tiles(
    weights: tl.tensor,
    x: tl.tensor,
    y: tl.tensor,
    queue: tl.tensor,
    trace: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    tokens: tl.tensor,
    TILE: tl.constexpr,
    TOKENS: tl.constexpr,
    STEP: tl.constexpr,
    TRACED: tl.constexpr,
    UPCAST: tl.constexpr,
) -> None:
    token = tl.arange(0, TOKENS)
    step = tl.arange(0, STEP)
    tile = tl.atomic_add(queue, 1)
    while tile * TILE < rows:
        issue = tl.zeros((), tl.int64)
        if TRACED:
            issue = globaltimer()
        row = tile * TILE + tl.arange(0, TILE)
        # 64 bits: M · K passes 2³¹ in large layers.
        w_row = weights + row.to(tl.int64)[:, None] * columns
        x_row = x + token[:, None] * columns
        total = tl.zeros((TILE, TOKENS), tl.float32)
        for start in range(0, columns, STEP):
            column = start + step
            inside = column[None, :] < columns
            w = tl.load(w_row + column[None, :], mask=(row[:, None] < rows) & inside, other=0.0)
            a = tl.load(x_row + column[None, :], mask=(token[:, None] < tokens) & inside, other=0.0)
            if UPCAST:
                total += tl.dot(
                    w.to(tl.float32), tl.trans(a.to(tl.float32)), input_precision="ieee"
                )
            else:
                total += tl.dot(w, tl.trans(a))
        out = y + token[None, :].to(tl.int64) * rows + row[:, None]
        tl.store(out, total, mask=(row[:, None] < rows) & (token[None, :] < tokens))
        if TRACED:
            tl.debug_barrier()  # all warps have stored
            note = trace + tile * 4
            tl.store(note, tl.program_id(0).to(tl.int64))
            tl.store(note + 1, smid().to(tl.int64))
            tl.store(note + 2, issue)
            tl.store(note + 3, globaltimer())
        tile = tl.atomic_add(queue, 1)


def columns_of(trace: Any) -> tuple[dict[str, list[int]], float, int]:
    """The columns of a record's run, its span in seconds, and the clock's tick in ns.

    trace: (tiles, 4) int64, of `product`. In order of issue, times from the first issue on. The
    tick is the greatest step that all times are multiples of.
    """
    trace = np.asarray(trace)
    order = np.argsort(trace[:, 2], kind="stable")
    times = trace[:, 2:] - trace[:, 2].min()
    columns = {
        "tile": order.tolist(),
        "unit": trace[order, 0].tolist(),
        "core": trace[order, 1].tolist(),
        "issue": times[order, 0].tolist(),
        "done": times[order, 1].tolist(),
    }
    return columns, float(times.max()) / 1e9, int(np.gcd.reduce(times.reshape(-1)))


def record(
    device: str,
    *,
    rows: int = ROWS,
    columns: int = COLUMNS,
    tile_rows: int = TILE_ROWS,
    tokens: tuple[int, ...] = (1, 5, 128),
    repeats: int = 15,
    command: str,
) -> dict[str, Any]:
    """Measure on a CUDA device; a record in the form of kernels.tiles, which also checks it.

    tile_rows: a power of two of which `rows` is a multiple, else ValueError. Traced and untraced
    runs alternate; the traced run kept for each k is the one of median span.
    """
    if tile_rows & (tile_rows - 1) or rows % tile_rows:
        raise ValueError(f"tiles of {tile_rows} rows: a power of two that divides {rows}, please")
    from kernels.roofline_subjects import describe

    torch.manual_seed(0)
    options: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    weights = torch.randn(rows, columns, **options)  # random: zeros take less power, so run faster
    units = torch.cuda.get_device_properties(device).multi_processor_count
    runs, ticks = [], []
    for k in tokens:
        x = torch.randn(k, columns, **options)
        y, _ = product(weights, x, units=units, tile_rows=tile_rows)  # compiles
        product(weights, x, units=units, tile_rows=tile_rows, traced=True)
        some = slice(0, min(rows, 4 * tile_rows))
        expected = x.double() @ weights[some].double().T
        error = float((y[:, some] - expected).abs().max() / expected.abs().max())
        graph = torch.cuda.CUDAGraph()  # else the launch from Python would be timed too
        with torch.cuda.graph(graph):
            product(weights, x, units=units, tile_rows=tile_rows)
        untraced, traced = [], []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            untraced.append(start.elapsed_time(end) / 1e3)
            _, trace = product(weights, x, units=units, tile_rows=tile_rows, traced=True)
            traced.append(columns_of(trace.cpu().numpy()))
        traced.sort(key=lambda run: run[1])
        chosen, seconds, tick = traced[len(traced) // 2]
        ticks.append(tick)
        runs.append(
            {
                "k": k,
                "macs_per_tile": tile_rows * columns * k,
                "traced_s": seconds,
                "untraced_s": statistics.median(untraced),
                "relative_error": error,
                "columns": chosen,
            }
        )
    return {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command,
        "device": describe(device),
        "versions": dict(machine.versions("torch", "triton", "numpy")),
        "clock": {"kind": "globaltimer", "unit": "ns", "tick": min(ticks)},
        "kernel": "Triton, bfloat16 weights, one program a multiprocessor",
        "matrix": {"rows": rows, "columns": columns, "seed": 0},
        "tile": {"rows": tile_rows, "columns": columns, "bytes": 2 * tile_rows * columns},
        "units": units,
        "contaminated": False,
        "runs": runs,
    }
