"""The speed-up formula: tokens a round over what a round costs, and presets in which it loses.

Time is counted in plain passes of the target. With acceptance rate α, m drafted tokens, c the cost
of a draft step, v of a verification and o whatever else a round costs (Leviathan et al. 2023,
theorem 3.8, with v and o kept instead of 1 and 0):

    S(m) = (1 − α^(m+1)) / (1 − α) / (m·c + v(m) + o)

v comes from the roofline (`kernels.hardware`), dense weights in BF16 and no KV cache: B sequences
with m + 1 tokens each against B with one. Its corner is sharp, max(read, compute), or rounded,
(read³ + compute³)^⅓, which fits measured passes better. Or v grows by a measured share g with each
further token: v = 1 + g·m, never below ½ (a few tokens may run faster than one by choice of kernel,
but such a slope does not go on).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.hardware import Hardware, forward, presets, scaled, shapes

M_MAX = 32
CUSTOM = "custom"
#: v for any dense model: parameters cancel, so one shape stands for all.
SHAPE = "dense-70b"
RECORDED = Path(__file__).parents[1] / "race" / "recorded"


@dataclass(frozen=True)
class Params:
    """The state of the figure; see `figure.Speedup` for units and bounds."""

    m: int = 4
    alpha: float = 0.8
    c: float = 0.05
    overhead: float = 0.0
    verify: str = "roofline"
    hardware: str = "h100-sxm"
    batch: int = 1
    corner: str = "sharp"
    flops_share: float = 1.0
    bandwidth_share: float = 1.0
    custom_tflops: float = 100.0
    custom_gbs: float = 1000.0
    growth: float = 0.0


@dataclass(frozen=True)
class Round:
    """One round with m drafted tokens: tokens it yields, plain passes it costs, their ratio."""

    m: int
    tokens: float
    verification: float
    cost: float
    speedup: float


def expected_tokens(alpha: float, m: int) -> float:
    """Return 1 + α + … + α^m, the mean tokens of a round; m + 1 at α = 1."""
    return m + 1.0 if alpha >= 1 else (1 - alpha ** (m + 1)) / (1 - alpha)


def device(p: Params) -> Hardware:
    """Return the device of the state, scaled by the shares that real kernels reach."""
    if p.hardware == CUSTOM:
        base = Hardware(CUSTOM, p.custom_tflops * 1e12, p.custom_gbs * 1e9, 1.0)
    else:
        base = presets()[p.hardware]
    return scaled(base, flops_share=p.flops_share, bandwidth_share=p.bandwidth_share)


def verification(p: Params, m: int) -> float:
    """Return v: a pass over m + 1 tokens a sequence in units of a pass over one."""
    if p.verify == "growth":
        return max(0.5, 1 + p.growth * m)

    def time(k: int) -> float:
        one = forward(device(p), shapes()[SHAPE], k, batch=p.batch)
        if p.corner == "sharp":
            return one.time
        return float((one.read**3 + one.compute**3) ** (1 / 3))

    return time(m + 1) / time(1)


def round_of(p: Params, m: int) -> Round:
    """Return the round with `m` drafted tokens."""
    tokens, v = expected_tokens(p.alpha, m), verification(p, m)
    cost = m * p.c + v + p.overhead
    return Round(m, tokens, v, cost, tokens / cost)


def best(p: Params) -> Round:
    """Return the fastest round over m = 1 … 32; of equals (but for rounding) the shortest."""
    top = round_of(p, 1)
    for m in range(2, M_MAX + 1):
        longer = round_of(p, m)
        if longer.speedup > top.speedup * (1 + 1e-9):
            top = longer
    return top


def break_even(p: Params, m: int, level: float = 1.0) -> float | None:
    """Return the α at which S(m) = level, by bisection; None where no α up to 1 reaches it."""
    cost = level * (m * p.c + verification(p, m) + p.overhead)
    if cost > m + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if expected_tokens(middle, m) >= cost else (middle, high)
    return high


def puzzle(p: Params) -> bool:
    """A good, cheap draft without overhead that loses at every m: only the batch is left."""
    return p.alpha >= 0.9 and p.c <= 0.05 and p.overhead == 0 and best(p).speedup < 1


#: What each preset sets; everything else goes to its default. Which report it mirrors, and what of
#: it is assumed because the report does not say, stands in the words `preset.<id>.note`.
PRESETS: dict[str, dict[str, Any]] = {
    # The example of the text.
    "example": {"alpha": 0.8, "c": 0.05, "m": 8},
    # llama.cpp issue 10664: 7 to 23 % slower; 19.67 against 22.16 tokens/s is 0.89.
    "poor": {"alpha": 0.28, "c": 0.07, "m": 8, "hardware": "a100-80"},
    # llama.cpp issue 25908: α = 0.9, 12 ms of work and 20 ms of something else in a round. A draft
    # step is 1 / 474.6 s; four of them leave 3.6 ms for the verification: c = 2.1 / 3.6, o = 20 /
    # 3.6.
    "overhead": {"alpha": 0.9, "c": 0.58, "m": 4, "overhead": 5.55},
    # vLLM issue 17984: a 70B with a 1B draft, behind at batch 32, further behind for a larger m.
    "batch": {"alpha": 0.6, "c": 0.13, "m": 8, "batch": 32, "corner": "soft", "flops_share": 0.7},
    # MLX pull request 1281 in kind; the number is ours: torch's FP32 product on two EPYC cores took
    # 88 ms for four rows and 33 ms for one, so g = (88 / 33 − 1) / 3.
    "slope": {"alpha": 0.7, "c": 0.05, "m": 3, "verify": "growth", "growth": 0.56},
}


@dataclass(frozen=True)
class Run:
    """A recorded race: what was measured, and what the formula says of its α, c and v."""

    name: str
    prompt: str
    m: float
    alpha: float
    c: float
    v: float
    measured: float
    formula: float
    device: str
    date: str


@cache
def runs() -> tuple[Run, ...]:
    """Return the recorded races that were long enough to give all quantities."""
    found = []
    for path in sorted(RECORDED.glob("*.json")):
        trace = json.loads(path.read_text("utf-8"))
        header, end = trace["header"], trace["events"][-1]
        stats = end.get("stats", {})
        speedup = stats.get("speedup", {})
        values = {
            "m": stats.get("m"),
            "alpha": stats.get("acceptance", {}).get("alpha"),
            "c": stats.get("c"),
            "v": stats.get("v"),
            "measured": speedup.get("measured"),
            "formula": speedup.get("formula"),
        }
        if all(isinstance(x, int | float) and math.isfinite(x) for x in values.values()):
            found.append(
                Run(
                    name=path.stem,
                    prompt=header["settings"]["prompt"],
                    device=header["device"]["name"],
                    date=header["created"][:10],
                    **values,
                )
            )
    return tuple(found)
