"""What the roofline figure shows, from its parameters. The formulas are in `kernels.hardware`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.hardware import (
    PRECISIONS,
    Hardware,
    Pass,
    Shape,
    forward,
    knee,
    presets,
    scaled,
    shapes,
)

#: Tokens of a pass: from one to a long prompt.
K_MAX = 8192
#: A prompt of this length stands for prefill.
PREFILL = 2048
CUSTOM = "custom"
#: The machine that serves the page, once it has been measured (app/measure.py). Here, where nothing
#: is measured, and on the page until then, the first shipped machine stands in for it.
LIVE = "live"


@dataclass(frozen=True)
class Params:
    """The state of the figure; see `figure.Roofline` for units and bounds."""

    k: int = 1
    m: int = 4
    hardware: str = "h100-sxm"
    model: str = "dense-70b"
    precision: str = "bf16"
    batch: int = 1
    context: int = 0
    flops_share: float = 1.0
    bandwidth_share: float = 1.0
    custom_tflops: float = 100.0
    custom_gbs: float = 1000.0
    custom_gb: float = 24.0


@dataclass(frozen=True)
class Frame:
    """What is drawn: the pass at k, the knee, and the passes of the three markers."""

    here: Pass
    knee: float
    decode: Pass
    verify: Pass
    prefill: Pass
    fits: bool
    needs: float
    free: int


def device(p: Params) -> Hardware:
    """Return the device of the figure's state, scaled by the efficiency shares."""
    if p.hardware == CUSTOM:
        base = Hardware(CUSTOM, p.custom_tflops * 1e12, p.custom_gbs * 1e9, p.custom_gb * 1e9)
    else:
        base = devices()[p.hardware]
    return scaled(base, flops_share=p.flops_share, bandwidth_share=p.bandwidth_share)


def frame(p: Params) -> Frame:
    """Compute the figure. `free` is how many more tokens fit under the knee at no cost."""
    hardware, shape = device(p), shapes()[p.model]

    def at(k: float) -> Pass:
        return forward(hardware, shape, k, batch=p.batch, context=p.context, precision=p.precision)

    bend = knee(hardware, shape, batch=p.batch, context=p.context, precision=p.precision)
    needs = weights(shape, p.precision) + p.batch * p.context * shape.kv_per_token()
    return Frame(
        here=at(p.k),
        knee=bend,
        decode=at(1),
        verify=at(p.m + 1),
        prefill=at(PREFILL),
        # A measured machine has no data sheet: its memory is not known and nothing is said.
        fits=not hardware.memory or needs <= hardware.memory,
        needs=needs,
        free=max(0, int(min(bend, 1e9)) - p.k),
    )


def weights(shape: Shape, precision: str) -> float:
    """Return the bytes of all weights, used in a pass or not."""
    return shape.parameters * PRECISIONS[precision]


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the figure needs of a record of `kernels.roofline`.

    Of the first series, the engine's own kernel: its points (k, median, p10, p90 in seconds), the
    bytes they read, the fitted limits and their knee, and where, when and how it was measured.
    """
    series = record["series"][0]
    return {
        "device": record["device"]["name"],
        "cores": record["device"].get("cores"),
        "created": record["created"],
        "command": record["command"],
        "contaminated": record["contaminated"],
        "visits": series["visits"],
        "disturbed": series["disturbed"],
        "kernel": series["kernel"],
        "model": series["shape"],
        "precision": series["precision"],
        "bytes": series["bytes"],
        "points": [[p["k"], p["median"], p["p10"], p["p90"]] for p in series["points"]],
        "flops": series["hard"]["flops"],
        "bandwidth": series["hard"]["bandwidth"],
        "knee": series["hard"]["knee"],
        "error": series["hard"]["error"],
    }


@cache
def measured() -> dict[str, dict[str, Any]]:
    """Return the shipped measurements (made by `kernels.roofline`), id → `summary`."""
    return {
        f"measured-{path.stem}": summary(json.loads(path.read_text("utf-8")))
        for path in sorted((Path(__file__).parent / "recorded").glob("*.json"))
    }


@cache
def devices() -> dict[str, Hardware]:
    """Return data sheets and measured machines (at their fitted limits), id → device."""
    machines = {
        key: Hardware(m["device"], m["flops"], m["bandwidth"], 0.0, "measured")
        for key, m in measured().items()
    }
    return presets() | machines | {LIVE: next(iter(machines.values()))}
