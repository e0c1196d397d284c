"""Accelerators, model shapes and the ideal roofline of one forward pass. Free of torch.

The model of a pass: it reads every weight it uses once, and for every token it does two FLOPs a
weight. Reading and computing overlap fully, so the pass lasts as long as the longer of the two:

    t(k) = max(bytes(N) / BW, 2 · B · k · N / F)

with N parameters, B sequences in the batch, k tokens of each, BW bytes a second, F FLOP/s. The
knee is the k at which both are equal: bytes_per_weight · F / (2 · BW · B) (2 bytes and 2 FLOPs
cancel in BF16).

"Beyond the ideal" adds the KV cache to what is read and attention to what is computed.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

#: Bytes of one weight. Arithmetic stays 16-bit in all of them.
PRECISIONS: dict[str, float] = {"bf16": 2.0, "int8": 1.0, "int4": 0.5}
#: Bytes of one element of the KV cache.
KV_ELEMENT = 2


@dataclass(frozen=True)
class Hardware:
    """One device's data sheet.

    Attributes:
        flops: dense 16-bit FLOP/s.
        bandwidth: memory bandwidth, B/s.
        memory: capacity, bytes.
        source: key of `sources()`.
        unconfirmed: names of fields for which no vendor's page could be read.
        cache: of the last level, bytes; 0 where it is not known.
    """

    name: str
    flops: float
    bandwidth: float
    memory: float
    source: str = ""
    unconfirmed: tuple[str, ...] = ()
    cache: float = 0.0


@dataclass(frozen=True)
class Shape:
    """What the roofline needs to know of a model: counts, no weights."""

    name: str
    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    active: float = 0.0
    experts: int = 0
    active_experts: int = 0
    kv_bytes: float = 0.0

    def used(self) -> float:
        """Return the parameters that one token is multiplied with."""
        return self.active or self.parameters

    def read(self, tokens: float) -> float:
        """Return the parameters that a pass over `tokens` tokens reads.

        For a mixture of experts: the shared part and, with each token choosing K of E experts
        evenly and independently, E · (1 − (1 − K/E)^tokens) experts in expectation.
        """
        if not self.experts:
            return self.parameters
        expert = (self.parameters - self.active) / (self.experts - self.active_experts)
        shared = self.active - self.active_experts * expert
        miss = 1 - self.active_experts / self.experts
        return shared + self.experts * (1 - miss**tokens) * expert

    def kv_per_token(self) -> float:
        """Return the bytes that one token occupies in the KV cache (16-bit)."""
        if self.kv_bytes:
            return self.kv_bytes
        return 2.0 * KV_ELEMENT * self.kv_heads * self.head_dim * self.layers


@dataclass(frozen=True)
class Pass:
    """One forward pass; seconds, bytes and FLOPs.

    Attributes:
        weight_bytes, kv_bytes: what is read.
        flops, attention_flops: what is computed.
        read, compute: seconds of each alone.
        time: seconds of the pass, max(read, compute).
    """

    weight_bytes: float
    kv_bytes: float
    flops: float
    attention_flops: float
    read: float
    compute: float
    time: float = field(init=False)

    def __post_init__(self) -> None:
        """Full overlap: the longer one decides."""
        object.__setattr__(self, "time", max(self.read, self.compute))


def forward(
    hardware: Hardware,
    model: Shape,
    k: float,
    *,
    batch: int = 1,
    context: int = 0,
    precision: str = "bf16",
) -> Pass:
    """Return the ideal pass over `k` tokens of each of `batch` sequences.

    Args:
        context: tokens already in each sequence's KV cache; 0 leaves the cache and attention out.
        precision: a key of `PRECISIONS`.

    Formula for attention: 4 · layers · heads · head_dim · k · context FLOPs a sequence (two
    products of 2 FLOPs a multiply-add).
    """
    weight_bytes = model.read(batch * k) * PRECISIONS[precision]
    kv_bytes = batch * context * model.kv_per_token()
    flops = 2.0 * batch * k * model.used()
    attention = 4.0 * batch * model.layers * model.heads * model.head_dim * k * context
    return Pass(
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
        flops=flops,
        attention_flops=attention,
        read=(weight_bytes + kv_bytes) / hardware.bandwidth,
        compute=(flops + attention) / hardware.flops,
    )


def knee(
    hardware: Hardware,
    model: Shape,
    *,
    batch: int = 1,
    context: int = 0,
    precision: str = "bf16",
) -> float:
    """Return the k at which computing takes as long as reading.

    Closed form for a dense model without a KV cache; otherwise by bisection (computing grows in
    proportion to k, reading more slowly, so there is one crossing). Infinite where none lies
    below 10⁷ tokens.
    """
    if not model.experts and not context:
        return PRECISIONS[precision] * hardware.flops / (2.0 * hardware.bandwidth * batch)

    def excess(k: float) -> float:
        p = forward(hardware, model, k, batch=batch, context=context, precision=precision)
        return p.compute - p.read

    low, high = 0.0, 1e7
    if excess(high) < 0:
        return float("inf")
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return high


def scaled(hardware: Hardware, *, flops_share: float, bandwidth_share: float) -> Hardware:
    """Return the device at the share of its data sheet that a real kernel reaches."""
    return Hardware(
        name=hardware.name,
        flops=hardware.flops * flops_share,
        bandwidth=hardware.bandwidth * bandwidth_share,
        memory=hardware.memory,
        source=hardware.source,
        unconfirmed=hardware.unconfirmed,
        cache=hardware.cache,
    )


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "hardware.toml").read_text("utf-8"))


@cache
def presets() -> dict[str, Hardware]:
    """Return the devices, id → data sheet."""
    return {
        key: Hardware(**(row | {"unconfirmed": tuple(row.get("unconfirmed", ()))}))
        for key, row in _file()["hardware"].items()
    }


@cache
def shapes() -> dict[str, Shape]:
    """Return the models, id → shape."""
    return {key: Shape(**row) for key, row in _file()["model"].items()}


@cache
def sources() -> dict[str, dict[str, str]]:
    """Return where the data sheets were read: key → title, url, accessed."""
    return {k: {n: str(v) for n, v in row.items()} for k, row in _file()["source"].items()}
