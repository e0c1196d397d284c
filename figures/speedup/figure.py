"""The speed-up figure: its state, its words, its table, its chart."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import param

from figures.figure import Figure
from figures.speedup import model
from figures.text import fixed, num, times
from kernels.hardware import presets


class Speedup(Figure):
    """What speculative decoding gains for a draft, a machine and a batch of the reader's choice."""

    id = "speedup"
    bet_answer = 1
    units: ClassVar[dict[str, str]] = {
        "m": "tokens",
        "c": "plain passes",
        "overhead": "plain passes",
        "batch": "sequences",
        "growth": "plain passes a token",
        "custom_tflops": "TFLOP/s",
        "custom_gbs": "GB/s",
    }
    #: What the last race measured: alpha, c, v, m, measured, formula. The race figure tells it.
    private: ClassVar[dict[str, Any]] = {"measured": None}

    m = param.Integer(4, bounds=(1, model.M_MAX), doc="Drafted tokens a round.")
    alpha = param.Number(0.8, bounds=(0.0, 1.0), step=0.01, doc="Acceptance rate.")
    c = param.Number(0.05, bounds=(0.0, 1.0), step=0.005, doc="Cost of one step of the draft.")
    overhead = param.Number(
        0.0, bounds=(0.0, 8.0), step=0.05, doc="What a round costs besides its passes."
    )
    verify = param.Selector(
        default="roofline",
        objects=["roofline", "growth"],
        doc="Where v comes from: the ideal roofline, or a measured cost of each further token.",
    )
    hardware = param.Selector(default="h100-sxm", objects=[*presets(), model.CUSTOM], doc="Device.")
    batch = param.Integer(1, bounds=(1, 512), doc="Sequences that share one reading of weights.")
    corner = param.Selector(
        default="sharp", objects=["sharp", "soft"], doc="Corner of the roofline."
    )
    flops_share = param.Number(1.0, bounds=(0.1, 1.0), step=0.01, doc="Share of the peak FLOP/s.")
    bandwidth_share = param.Number(
        1.0, bounds=(0.1, 1.0), step=0.01, doc="Share of the peak bandwidth."
    )
    custom_tflops = param.Number(100.0, bounds=(0.01, 100000.0), doc="FLOP/s of a custom device.")
    custom_gbs = param.Number(1000.0, bounds=(1.0, 1000000.0), doc="Bandwidth of a custom device.")
    growth = param.Number(
        0.0, bounds=(-0.1, 1.0), step=0.01, doc="What each further token adds to a pass."
    )

    def params(self) -> model.Params:
        """Return the state as the model takes it."""
        return model.Params(**{n: getattr(self, n) for n in model.Params.__dataclass_fields__})

    def describe(self, lang: str) -> str:
        """Say what a round yields and costs, and which m would be best."""
        words, p = self.words(lang), self.params()
        here, top = model.round_of(p, p.m), model.best(p)
        values = {
            "alpha": fixed(p.alpha),
            "c": num(p.c),
            "m": p.m,
            "tokens": fixed(here.tokens),
            "cost": fixed(here.cost),
            "speedup": times(here.speedup),
            "best": top.m,
            "top": times(top.speedup),
        }
        sentences = [words["say.here"].format(**values)]
        if top.speedup <= 1:
            sentences.append(words["say.hopeless"].format(**values))
        elif top.m == model.M_MAX:
            sentences.append(words["say.edge"].format(**values))
        elif top.m == p.m:
            sentences.append(words["say.best"].format(**values))
        else:
            key = "say.loses" if here.speedup < 1 else "say.better"
            sentences.append(words[key].format(**values))
        return ("" if lang == "zh" else " ").join(sentences)

    def table(self, lang: str) -> list[list[str]]:
        """Return a row an m, with the chosen one and the best one among them."""
        words, p = self.words(lang), self.params()
        top = model.best(p).m
        rows = [[words[f"table.{c}"] for c in ("m", "tokens", "v", "cost", "speedup")]]
        for m in sorted({1, 2, 4, 8, 16, 32, p.m, top}):
            r = model.round_of(p, m)
            name = words["table.best"].format(m=m) if m == top else str(m)
            rows.append(
                [name, fixed(r.tokens), fixed(r.verification), fixed(r.cost), times(r.speedup)]
            )
        return rows

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return devices, presets and the recorded races."""
        return {
            "hardware": {
                k: {"name": v.name, "flops": v.flops, "bandwidth": v.bandwidth}
                for k, v in presets().items()
            },
            "presets": model.PRESETS,
            "runs": [asdict(run) for run in model.runs()],
        }

    @classmethod
    def chart(cls, lang: str) -> dict[str, Any]:
        """Return the chart over m with the map of m and α below it."""
        from figures.speedup.chart import item

        return item(cls.words(lang))


FIGURE = Speedup
