"""The branch figure: its state, its words, its table."""

from __future__ import annotations

from typing import Any, ClassVar

import param

from figures.branch import model
from figures.figure import Figure
from figures.text import fixed, num, percent


class Branch(Figure):
    """A loop that waits for its condition beside one that guesses it."""

    id = "branch"
    bet_answer = 1
    units: ClassVar[dict[str, str]] = {
        "n": "iterations",
        "condition": "units of time",
        "body": "units of time",
        "rollback": "units of time",
        "m": "tokens",
        "c": "target passes",
    }
    #: The playhead stands at the end until somebody plays; a number too large means "the end".
    private: ClassVar[dict[str, Any]] = {"t": 1e9, "speed": 1}

    n = param.Integer(8, bounds=(2, 16), doc="Iterations of the loop.")
    pattern = param.String(
        "TTTN", doc="How the condition turns out, repeated: T holds, N does not."
    )
    mode = param.Selector(
        default="hand",
        objects=list(model.MODES),
        doc="Who guesses: the reader (`wrong`), chance (`accuracy`, `seed`), or a predictor.",
    )
    wrong = param.Integer(
        0b1000, bounds=(0, 2**16 - 1), doc="Bit i set: guess i is wrong. Counts in mode hand."
    )
    accuracy = param.Number(
        0.75, bounds=(0.0, 1.0), step=0.05, doc="Chance that a guess is right. Mode draw."
    )
    seed = param.Integer(1, bounds=(0, 9999), doc="Seed of the guesses. Mode draw.")
    condition = param.Integer(6, bounds=(1, 12), doc="C: time until a condition is known.")
    body = param.Integer(4, bounds=(1, 12), doc="B: time that either branch takes.")
    rollback = param.Integer(2, bounds=(0, 12), doc="R: time to go back after a wrong guess.")
    llm = param.Boolean(False, doc="Show the language model's timeline too.")
    m = param.Integer(4, bounds=(1, 8), doc="Tokens that the draft proposes in a round.")
    c = param.Number(
        0.12, bounds=(0.01, 1.0), step=0.01, doc="Time of a draft step in passes of the target."
    )

    def scene(self) -> model.Scene:
        """Compute what the present state shows."""
        return model.scene(
            n=self.n,
            pattern=self.pattern,
            mode=self.mode,
            wrong=self.wrong,
            accuracy=self.accuracy,
            seed=self.seed,
            condition=self.condition,
            body=self.body,
            rollback=self.rollback,
            m=self.m,
            c=self.c,
        )

    def describe(self, lang: str) -> str:
        """Say how long both loops take, whether guessing pays, and what they compute."""
        words, s = self.words(lang), self.scene()
        without, guessing = s.without.end, s.guessing.end
        key = "faster" if guessing < without else "slower" if guessing > without else "even"
        sentences = [
            words[f"say.{key}"].format(
                n=self.n,
                right=sum(s.right),
                without=num(without),
                guessing=num(guessing),
                speedup=fixed(without / guessing),
                lost=num(guessing - without),
            ),
            words["say.breakeven"].format(
                share=percent(s.breakeven),
                total=s.without.commits[-1].total,
                skipped=s.without.commits[-1].skipped,
            ),
        ]
        if self.llm:
            sentences.append(
                words["say.llm"].format(
                    n=self.n,
                    m=self.m,
                    passes=sum(x.kind == "pass" for x in s.together.segments),
                    speedup=fixed(s.alone.end / s.together.end),
                )
            )
        return ("" if lang == "zh" else " ").join(sentences)

    def table(self, lang: str) -> list[list[str]]:
        """Return a row an iteration, and the totals."""
        words, s = self.words(lang), self.scene()
        columns = ("iteration", "value", "truth", "guess", "verdict", "without", "guessing")
        rows = [[words[f"table.{c}"] for c in columns]]
        for i, right in enumerate(s.right):
            rows.append(
                [
                    str(i + 1),
                    str(s.values[i]),
                    "T" if s.outcomes[i] else "N",
                    "T" if s.guesses[i] else "N",
                    words["chip.right" if right else "chip.wrong"],
                    num(s.without.commits[i].time),
                    num(s.guessing.commits[i].time),
                ]
            )
        ends = [words["table.total"], *[""] * 4, num(s.without.end), num(s.guessing.end)]
        rows.append(ends)
        if self.llm:
            rows.append([words["table.alone"], *[""] * 4, num(s.alone.end), ""])
            rows.append([words["table.together"], *[""] * 4, "", num(s.together.end)])
        return rows


FIGURE = Branch
