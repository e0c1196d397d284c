"""The tile figure: its state and its words."""

from __future__ import annotations

from typing import Any, ClassVar

import param

from figures.figure import Figure
from figures.text import duration, num, si
from figures.tiles import model


class Tiles(Figure):
    """One layer's weights stream from memory through the compute units, as a kernel really ran."""

    id = "tiles"
    bet_answer = 2
    private: ClassVar[dict[str, Any]] = {"t": 0.0}
    units: ClassVar[dict[str, str]] = {"speed": "×"}

    run = param.Selector(
        default="decode",
        objects=list(model.RUNS),
        doc="Which recorded run plays: one token, m + 1 = 5 tokens, or a prompt of 128.",
    )
    speed = param.Number(1.0, bounds=(0.25, 4.0), step=0.25, doc="Playback speed.")

    def describe(self, lang: str, t: float = 0.0) -> str:
        """Say how far the run has come `t` seconds after its start."""
        words, f = self.words(lang), model.frame(model.shipped(), self.run, t)
        return (
            words["say"]
            .format(
                k=model.RUNS[self.run],
                done=num(f.done, 5),
                tiles=num(f.tiles, 5),
                bytes=si(f.bytes, "B"),
                total=si(f.total_bytes, "B"),
                macs=si(f.macs, ""),
            )
            .replace("  ", " ")
        )

    def table(self, lang: str) -> list[list[str]]:
        """Return the three runs side by side."""
        words, record = self.words(lang), model.shipped()
        frames = [model.frame(record, run, 1e6) for run in model.RUNS]
        runs = [model.find(record, run) for run in model.RUNS]
        return [
            [words["table.quantity"], *(f"k = {run['k']}" for run in runs)],
            [words["table.tiles"], *(num(f.tiles, 5) for f in frames)],
            [words["table.bytes"], *(si(f.total_bytes, "B", 6) for f in frames)],
            [words["table.macs"], *(si(f.total_macs, "") for f in frames)],
            [words["table.intensity"], *(num(f.total_macs / f.total_bytes) for f in frames)],
            [words["table.untraced"], *(duration(run["untraced_s"]) for run in runs)],
            [words["table.traced"], *(duration(run["traced_s"]) for run in runs)],
            [
                words["table.bandwidth"],
                *(
                    si(f.total_bytes / r["untraced_s"], "B/s")
                    for f, r in zip(frames, runs, strict=True)
                ),
            ],
        ]


FIGURE = Tiles
