"""The roofline figure: its state, its words, its chart."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import param

from figures.figure import Figure
from figures.roofline.model import CUSTOM, K_MAX, PREFILL, Params, devices, frame, measured
from figures.text import duration, num, si
from kernels.hardware import PRECISIONS, shapes, sources


class Roofline(Figure):
    """Time of one ideal forward pass over k tokens, for a device and a model of one's choice."""

    id = "roofline"
    bet_answer = 2
    units: ClassVar[dict[str, str]] = {
        "k": "tokens",
        "m": "tokens",
        "batch": "sequences",
        "context": "tokens",
        "custom_tflops": "TFLOP/s",
        "custom_gbs": "GB/s",
        "custom_gb": "GB",
    }

    k = param.Integer(1, bounds=(1, K_MAX), doc="Tokens that one pass handles per sequence.")
    m = param.Integer(4, bounds=(1, 16), doc="Drafted tokens; a verification handles m + 1.")
    hardware = param.Selector(default="h100-sxm", objects=[*devices(), CUSTOM], doc="Device.")
    model = param.Selector(default="dense-70b", objects=[*shapes()], doc="Shape of the model.")
    precision = param.Selector(default="bf16", objects=[*PRECISIONS], doc="Bytes of one weight.")
    batch = param.Integer(1, bounds=(1, 512), doc="Sequences that share one reading of weights.")
    context = param.Integer(0, bounds=(0, 131072), doc="Tokens in each sequence's KV cache.")
    flops_share = param.Number(1.0, bounds=(0.1, 1.0), step=0.01, doc="Share of the peak FLOP/s.")
    bandwidth_share = param.Number(
        1.0, bounds=(0.1, 1.0), step=0.01, doc="Share of the peak bandwidth."
    )
    custom_tflops = param.Number(100.0, bounds=(0.01, 100000.0), doc="FLOP/s of a custom device.")
    custom_gbs = param.Number(1000.0, bounds=(1.0, 1000000.0), doc="Bandwidth of a custom device.")
    custom_gb = param.Number(24.0, bounds=(0.1, 100000.0), doc="Memory of a custom device.")

    def params(self) -> Params:
        """Return the state as the model takes it."""
        return Params(**{n: getattr(self, n) for n in Params.__dataclass_fields__})

    def describe(self, lang: str) -> str:
        """Read the point aloud."""
        words, f = self.words(lang), frame(self.params())
        memory_bound = f.here.read >= f.here.compute
        text = words["say.memory" if memory_bound else "say.compute"].format(
            k=num(self.k, 5),
            time=duration(f.here.time),
            read=duration(f.here.read),
            compute=duration(f.here.compute),
            per=duration(f.here.time / self.k),
            ratio=num(f.here.time / f.decode.time),
        )
        if memory_bound and f.free:
            text = words["say.free"].format(before=text, free=num(f.free, 7))
        return text

    def table(self, lang: str) -> list[list[str]]:
        """Return the numbers of the pass at k, beside decoding and verifying."""
        words, f = self.words(lang), frame(self.params())
        columns = [f.decode, f.verify, f.here, f.prefill]
        heads = [1, self.m + 1, self.k, PREFILL]
        rows = [[words["table.quantity"], *(f"k = {num(k, 5)}" for k in heads)]]
        rows += [
            [words["table.weights"], *(si(c.weight_bytes, "B") for c in columns)],
            [words["table.kv"], *(si(c.kv_bytes, "B") for c in columns)],
            [words["table.flops"], *(si(c.flops + c.attention_flops, "FLOP") for c in columns)],
            [words["table.read"], *(duration(c.read) for c in columns)],
            [words["table.compute"], *(duration(c.compute) for c in columns)],
            [words["table.time"], *(duration(c.time) for c in columns)],
            [
                words["table.per_token"],
                *(duration(c.time / k) for c, k in zip(columns, heads, strict=True)),
            ],
            [words["table.knee"], num(f.knee), "", "", ""],
        ]
        return rows

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return the presets with their sources."""
        return {
            "hardware": {k: asdict(v) for k, v in devices().items()},
            "measured": measured(),
            "models": {k: asdict(v) for k, v in shapes().items()},
            "sources": sources(),
        }

    @classmethod
    def chart(cls, lang: str) -> dict[str, Any]:
        """Return the log-log chart."""
        from figures.roofline.chart import item

        return item(cls.words(lang))


FIGURE = Roofline
