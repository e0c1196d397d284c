"""The measured roofline: how long a pass over k tokens really takes on this machine.

Timed are whole passes of the embedded target, where its weights are on this machine, and what
dominates any model's pass: products of k rows of activations with far more weights than the
last-level cache holds, in the kernels that the engine uses and in plain PyTorch. Two limits are
fitted to the times t(k), with N parameters in `bytes` bytes:

    reading  a = bytes / bandwidth,   computing  b·k = 2·N·k / FLOP/s,   knee = a / b

once as their maximum (`hard`, the roofline of the textbook) and once as (a³ + (b·k)³)^⅓ (`soft`),
which follows real machines more closely around the knee.

    python -m kernels roofline --out figures/roofline/recorded/cpu.json

The record (schema `speculative-decoding-live/roofline/1`, JSON): header with device, versions,
command, `read` (bytes a second of a plain sum, the ceiling for any pass), `contaminated`, and
`series`, one a kernel and shape, the engine's own first: `kernel precision shape bytes parameters
relative_error` (null for whole passes), `points` (k, and seconds: median, p10, p90, and the number
of samples), `visits` and `disturbed` (see below), `hard` and `soft` (bandwidth B/s, flops FLOP/s,
knee tokens, error: root mean square of the relative deviation).

Every k is visited once a round, for a fraction of a second. A visit during which other processes or
the hypervisor took more than a twentieth of the processor (/proc/stat) is `disturbed` and left out;
where too few quiet ones come in time, all count and the record is `contaminated`: not to be shown
as fact.

Torch is loaded only by `measure`. Run it in a process of its own: it sets torch's threads.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import machine

SCHEMA = "speculative-decoding-live/roofline/1"
CPU_TOKENS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256)
GPU_TOKENS = (
    1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096
)  # fmt: skip
#: (rows, columns) of the products: attention output and both halves of the feed-forward network of
#: a 70B Llama. A CPU measures the first only: there the shape makes no difference.
SHAPES = ((8192, 8192), (28672, 8192), (8192, 28672))
#: What can be timed on a CPU: whole passes of the embedded target, the C decoder's product, and
#: PyTorch's with packed weights and as everybody calls it.
KINDS = ("engine", "native", "packed", "plain")
#: Bytes of a weight, by precision.
BYTES = {"bf16": 2, "fp32": 4}
#: The exponent of the soft roofline.
SOFT = 3.0
#: Fewest quiet visits to each k, however long they take.
VISITS = 3
#: Shortest time to judge by: the kernel counts the processor's time in hundredths of a second.
VISIT_SECONDS = 0.3
#: How many times the wanted seconds to wait for quiet visits.
PATIENCE = 6
_LEAST_BYTES = 128 << 20


@dataclass(frozen=True)
class Limits:
    """A fit: seconds of reading, seconds of computing a token, and how far the points lie from it.

    error: root mean square of ln(measured / fitted), so about the relative deviation.
    """

    read: float
    token: float
    error: float

    @property
    def knee(self) -> float:
        """Tokens at which computing takes as long as reading."""
        return self.read / self.token


def hard(k: NDArray[np.float64], read: float, token: float) -> NDArray[np.float64]:
    """max(read, token · k); k (n,), seconds."""
    return np.maximum(read, token * k)


def soft(k: NDArray[np.float64], read: float, token: float) -> NDArray[np.float64]:
    """(read³ + (token · k)³)^⅓; k (n,), seconds."""
    return (read**SOFT + (token * k) ** SOFT) ** (1 / SOFT)


def fit_hard(k: Sequence[float], seconds: Sequence[float]) -> Limits:
    """Least squares of the logarithms for `hard`.

    For each way to call the smaller k read-bound and the rest compute-bound, the best limits are
    geometric means; the best way wins. The largest k should lie beyond the knee, or else the knee
    found is a lower bound. Raises ValueError for fewer than two points.
    """
    x, t = _points(k, seconds)
    best: Limits | None = None
    for split in range(1, len(x)):
        read = float(np.exp(np.log(t[:split]).mean()))
        token = float(np.exp(np.log(t[split:] / x[split:]).mean()))
        candidate = Limits(read, token, _error(t, hard(x, read, token)))
        if best is None or candidate.error < best.error:
            best = candidate
    if best is None:
        raise ValueError("a fit needs at least two values of k")
    return best


def fit_soft(k: Sequence[float], seconds: Sequence[float]) -> Limits:
    """Least squares of the logarithms for `soft`, by Gauss–Newton from the hard fit."""
    x, t = _points(k, seconds)
    start = fit_hard(k, seconds)
    at = np.log([start.read, start.token])
    for _ in range(100):
        fitted = soft(x, *np.exp(at))
        # d ln(fitted) / d ln(read) is reading's share of the sum; the rest is computing's.
        share = (np.exp(at[0]) / fitted) ** SOFT
        slopes = np.stack([share, 1 - share], axis=1)
        step = np.linalg.lstsq(slopes, np.log(t / fitted), rcond=None)[0]
        at = at + np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-12:
            break
    read, token = (float(value) for value in np.exp(at))
    return Limits(read, token, _error(t, soft(x, read, token)))


def _points(
    k: Sequence[float], seconds: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, t = np.asarray(k, np.float64), np.asarray(seconds, np.float64)
    if x.shape != t.shape or (x <= 0).any() or (t <= 0).any():
        raise ValueError("k and seconds must be as many, and positive")
    order = np.argsort(x)
    return x[order], t[order]


def _error(measured: NDArray[np.float64], fitted: NDArray[np.float64]) -> float:
    return float(np.sqrt((np.log(measured / fitted) ** 2).mean()))


@dataclass
class Subject:
    """Something to time: `run(k)` does one pass over k tokens and returns its seconds."""

    kernel: str
    precision: str
    shape: str
    parameters: int
    bytes: int
    run: Callable[[int], float]
    relative_error: float | None = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Timing:
    """Times of a subject: k → seconds that count; of how many visits, and how many were disturbed.

    contaminated: some k had too few quiet visits, so all of its times count.
    """

    seconds: dict[int, list[float]]
    visits: int
    disturbed: int
    contaminated: bool


def time_rounds(
    subject: Subject,
    tokens: Sequence[int],
    seconds: float,
    watch: Callable[[float], None] = lambda share: None,
) -> Timing:
    """Visit every k once a round, for `seconds` and until each had VISITS quiet visits.

    Rounds, not one k after the other: what drifts (clocks, temperature) meets all k. Gives up on
    quiet after PATIENCE times `seconds`. `watch` hears before each visit what share of the work is
    done, 0 to 1; what it raises ends the measurement.
    """
    quiet: dict[int, list[list[float]]] = {k: [] for k in tokens}
    disturbed: dict[int, list[list[float]]] = {k: [] for k in tokens}
    for k in tokens:
        watch(0.0)
        subject.run(k)  # first touch, compilation, graph capture
    start = time.perf_counter()
    for round_ in count(1):
        for k in tokens:
            spent = time.perf_counter() - start
            found = sum(min(VISITS, len(visits)) for visits in quiet.values())
            # Quiet visits are all of it, unless patience ends first.
            watch(min(1.0, max(found / (VISITS * len(tokens)), spent / (PATIENCE * seconds + 1))))
            began = time.perf_counter()
            times: list[float] = []
            with machine.Contention() as contention:
                while not times or time.perf_counter() - began < VISIT_SECONDS:
                    times.append(subject.run(k))
            (disturbed if contention.contaminated else quiet)[k].append(times)
        spent = time.perf_counter() - start
        restless = [k for k in tokens if len(quiet[k]) < VISITS]
        if (spent >= seconds and not restless) or (
            spent >= PATIENCE * seconds and round_ >= VISITS
        ):
            break
    counted = {k: quiet[k] + (disturbed[k] if k in restless else []) for k in tokens}
    return Timing(
        seconds={k: [one for visit in visits for one in visit] for k, visits in counted.items()},
        visits=round_ * len(tokens),
        disturbed=sum(map(len, disturbed.values())),
        contaminated=bool(restless),
    )


def summarise(subject: Subject, timing: Timing) -> dict[str, Any]:
    """One entry of `series`: what was timed, the points, both fits."""
    points = []
    for k, values in timing.seconds.items():
        p10, median, p90 = (float(q) for q in np.percentile(values, (10, 50, 90)))
        points.append({"k": k, "median": median, "p10": p10, "p90": p90, "samples": len(values)})
    tokens = [point["k"] for point in points]
    medians = [point["median"] for point in points]

    def described(limits: Limits) -> dict[str, float]:
        return {
            "bandwidth": subject.bytes / limits.read,
            "flops": 2 * subject.parameters / limits.token,
            "knee": limits.knee,
            "error": limits.error,
        }

    return {
        "kernel": subject.kernel,
        "precision": subject.precision,
        "shape": subject.shape,
        "bytes": subject.bytes,
        "parameters": subject.parameters,
        "relative_error": subject.relative_error,
        "points": points,
        "visits": timing.visits,
        "disturbed": timing.disturbed,
        "contaminated": timing.contaminated,
        "hard": described(fit_hard(tokens, medians)),
        "soft": described(fit_soft(tokens, medians)),
    }


def measure(
    *,
    device: str = "auto",
    tokens: Sequence[int] | None = None,
    seconds: float = 10.0,
    least_bytes: int | None = None,
    shapes: Sequence[tuple[int, int]] | None = None,
    only: Sequence[str] = (),
    command: str = "python -m kernels roofline",
) -> dict[str, Any]:
    """Measure and return a record; see the module's docstring.

    seconds: for each series, at least. least_bytes: weights of a pass; None for three times the
    last-level cache, and 128 MiB at least. only: of KINDS, on a CPU; none for all. Raises
    SdError `not_enough_memory`, ValueError if nothing of it can be timed here.
    """
    from kernels import roofline_subjects as subjects

    device = subjects.resolve_device(device)
    cuda = device.startswith("cuda")
    cache = subjects.last_level_cache(device)
    least = least_bytes or max(3 * cache, _LEAST_BYTES)
    tokens = tuple(tokens or (GPU_TOKENS if cuda else CPU_TOKENS))
    shapes = tuple(shapes or (SHAPES if cuda else SHAPES[:1]))
    subjects.require_memory(device, shapes, least)
    series = []
    read = subjects.read_bandwidth(device, least)
    for subject in _each(subjects.subjects(device, shapes, least, only)):
        series.append(summarise(subject, time_rounds(subject, tokens, seconds)))
    if not series:
        raise ValueError(f"this machine can time none of: {', '.join(only)}")
    return {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command,
        "device": subjects.describe(device),
        "versions": dict(machine.versions("torch", "numpy")),
        "cache_bytes": cache,
        "read": read,
        "contaminated": any(one["contaminated"] for one in series),
        "series": series,
    }


def _each(subjects: Iterator[Subject]) -> Iterator[Subject]:
    """One after the other, each closed (and its memory given back) before the next is made."""
    for subject in subjects:
        try:
            yield subject
        finally:
            subject.close()


def check(record: dict[str, Any]) -> None:
    """Hold a record against what must be true of any. Raises ValueError with what is wrong."""
    if record.get("schema") != SCHEMA:
        raise ValueError(f"the schema is not {SCHEMA}")
    if not record["series"]:
        raise ValueError("it has no series")
    for series in record["series"]:
        name = f"{series['kernel']}, {series['shape']}"
        if series["bytes"] != series["parameters"] * BYTES[series["precision"]]:
            raise ValueError(f"{name}: the bytes do not follow from the parameters")
        k = [point["k"] for point in series["points"]]
        if k != sorted(set(k)):
            raise ValueError(f"{name}: k does not increase")
        for point in series["points"]:
            if not 0 < point["p10"] <= point["median"] <= point["p90"]:
                raise ValueError(f"{name}: k = {point['k']} has no sound time")
        for kind in ("hard", "soft"):
            fit = series[kind]
            # bandwidth = bytes / a, flops = 2 N / b, knee = a / b
            knee = series["bytes"] / fit["bandwidth"] * fit["flops"] / (2 * series["parameters"])
            if not 0.999 < knee / fit["knee"] < 1.001:
                raise ValueError(f"{name}: the {kind} knee does not follow from its limits")


def main(argv: list[str]) -> int:
    """Measure this machine, print what was found, write the record."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels roofline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--tokens", type=int, nargs="+", metavar="K", help="values of k")
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=(), help="on a CPU; all without"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each series, at least")
    parser.add_argument("--out", type=Path, help="file to write; standard output without it")
    options = parser.parse_args(argv)
    if options.tokens and (min(options.tokens) < 1 or len(set(options.tokens)) < 2):
        parser.error("--tokens needs at least two different values, each 1 or more")
    record = measure(
        device=options.device,
        tokens=sorted(set(options.tokens)) if options.tokens else None,
        seconds=options.seconds,
        only=options.only,
        command=" ".join(["python -m kernels roofline", *argv]),
    )
    check(record)
    text = json.dumps(record, indent=1)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", "utf-8")
    else:
        print(text)
    for line in _report(record):
        print(line, file=sys.stderr)
    return 0


def _report(record: dict[str, Any]) -> Iterator[str]:
    yield f"{record['device']['name']}: reads {record['read']['bandwidth'] / 1e9:.1f} GB/s"
    for series in record["series"]:
        size = f"{series['bytes'] / 1e6:.0f} MB"
        yield f"{series['kernel']}, {series['precision']}, {series['shape']}, {size}:"
        for kind in ("hard", "soft"):
            fit = series[kind]
            yield (
                f"  {kind}: {fit['bandwidth'] / 1e9:.1f} GB/s, {fit['flops'] / 1e9:.0f} GFLOP/s, "
                f"knee at k = {fit['knee']:.1f}, off by {100 * fit['error']:.1f} %"
            )
        times = ", ".join(f"{p['k']}: {1e3 * p['median']:.2f}" for p in series["points"])
        yield f"  ms by k: {times}"
        yield f"  {series['disturbed']} of {series['visits']} visits were disturbed"
    if record["contaminated"]:
        yield "CONTAMINATED: other processes were busy meanwhile. Repeat when it is quiet."
