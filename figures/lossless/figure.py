"""The lossless figure: its state, its words, its table, the runs of real models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, ClassVar

import param

from figures import distribution
from figures.figure import HERE, Figure
from figures.lossless import model
from figures.text import fixed, num

RECORD = HERE / "lossless" / "recorded" / "pair.json"
#: Lines of the proof; 0 shows none.
LINES = 5


@cache
def record() -> dict[str, Any]:
    """Read what `python -m kernels lossless` counted."""
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return found


class Lossless(Figure):
    """Right and wrong rules, drawn from up to a million times, beside what they converge to."""

    id = "lossless"
    bet_answer = 0
    units: ClassVar[dict[str, str]] = {"n": "draws"}

    tokens = param.String("the|a|this", doc="The vocabulary, two to six tokens.")
    p = param.String("50,30,20", doc="Weights of the target's distribution.")
    q = param.String("70,20,10", doc="Weights of the draft's distribution.")
    rule = param.Selector(default="exact", objects=list(model.RULES), doc="Rule whose bars show.")
    n = param.Integer(1000, bounds=(0, model.DRAWS), doc="Draws of every rule.")
    seed = param.Integer(1, bounds=(0, 9999), doc="Seed of the draws.")
    line = param.Integer(0, bounds=(0, LINES), doc="Lines of the proof that are unfolded.")
    token = param.Integer(0, bounds=(0, distribution.SIZES[1] - 1), doc="Token of the proof.")
    experiment = param.Integer(
        0, bounds=(0, max(0, len(record()["experiments"]) - 1)), doc="Which recorded context."
    )
    length = param.Selector(
        default="next", objects=["next", "pair"], doc="Recorded outcomes: next token, or two."
    )

    def distributions(self) -> tuple[list[str], list[float], list[float]]:
        """Return tokens, p and q."""
        tokens = distribution.tokens_of(self.tokens)
        size = len(tokens)
        return (
            tokens,
            distribution.weights_of(self.p, size),
            distribution.weights_of(self.q, size),
        )

    def counts(self) -> dict[str, list[int]]:
        """Make the draws of the state, in plain Python: a second or so for each 10⁵."""
        _, p, q = self.distributions()
        sampler = model.Sampler(p, q, self.seed)
        sampler.run(self.n)
        return sampler.counts

    def describe(self, lang: str) -> str:
        """Say how far the chosen rule's draws are from p, and how far it will stay."""
        words = self.words(lang)
        _, p, q = self.distributions()
        values = {
            "rule": words[f"rule.{self.rule}"],
            "bias": num(model.bias(self.rule, p, q)),
            "n": num(self.n, 7),
        }
        if self.n == 0:
            sentences = [words["say.none"].format(**values)]
        else:
            found = model.fit(self.counts()[self.rule], p)
            edge = model.band(self.n, sum(x > 0 for x in p))
            values |= {"distance": num(found.distance), "band": num(edge)}
            inside = "inside" if found.distance <= edge else "outside"
            sentences = [words[f"say.{inside}"].format(**values)]
            if found.pvalue is not None:
                sentences.append(words["say.fit"].format(pvalue=chance(found.pvalue)))
        key = "biased" if model.bias(self.rule, p, q) > 1e-9 else "unbiased"
        sentences.append(words[f"say.{key}"].format(**values))
        return ("" if lang == "zh" else " ").join(sentences)

    def table(self, lang: str) -> list[list[str]]:
        """Return a row a rule, then a row a token of the chosen rule."""
        words = self.words(lang)
        tokens, p, q = self.distributions()
        counts = self.counts()
        heads = ("rule", "distance", "pvalue", "bias")
        rows = [[words[f"table.{c}"] for c in heads]]
        for rule in model.RULES:
            found = model.fit(counts[rule], p)
            away = num(found.distance) if self.n else "–"
            value = "–" if found.pvalue is None else chance(found.pvalue)
            rows.append([words[f"rule.{rule}"], away, value, num(model.bias(rule, p, q))])
        rows.append([words[f"table.{c}"] for c in ("token", "p", "observed", "limit")])
        to = model.limit(self.rule, p, q)
        for token, x, c, end in zip(tokens, p, counts[self.rule], to, strict=True):
            rows.append(
                [token, fixed(x, 4), fixed(c / self.n, 4) if self.n else "–", fixed(end, 4)]
            )
        return rows

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return the counted runs of the real models."""
        return {"record": record()}


def chance(value: float) -> str:
    """Return a p-value in words."""
    return "< 0.0001" if value < 1e-4 else num(value, 2)


FIGURE = Lossless
