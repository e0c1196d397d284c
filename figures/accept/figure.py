"""The accept figure: its state, its words, its table, the contexts of real models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, ClassVar

import param

from figures import distribution
from figures.accept import model
from figures.figure import HERE, Figure
from figures.text import fixed, num, percent

RECORD = HERE / "accept" / "recorded" / "contexts.json"
OWN = "own"


@cache
def record() -> dict[str, Any]:
    """Read what `python -m kernels lossless` wrote about p and q of real contexts."""
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return found


def contexts() -> dict[str, dict[str, Any]]:
    """Return the recorded contexts, id → text, tokens, p, q."""
    return {context["id"]: context for context in record()["contexts"]}


class Accept(Figure):
    """One drafted position: p and q, what is kept, what is supplied, draws one by one."""

    id = "accept"
    bet_answer = 2
    #: Draws made so far; the fraction is the one on its way.
    private: ClassVar[dict[str, Any]] = {"t": 0, "speed": 1}

    context = param.Selector(
        default=OWN, objects=[OWN, *contexts()], doc="The reader's own p and q, or recorded ones."
    )
    tokens = param.String("the|a|this", doc="The reader's vocabulary, two to six tokens.")
    p = param.String("50,30,20", doc="Weights of the target's distribution.")
    q = param.String("70,20,10", doc="Weights of the draft's distribution.")
    seed = param.Integer(1, bounds=(0, 9999), doc="Seed of the draws.")

    def distributions(self) -> tuple[list[str], list[float], list[float]]:
        """Return tokens, p and q."""
        if self.context != OWN:
            found = contexts()[self.context]
            return found["tokens"], found["p"], found["q"]
        tokens = distribution.tokens_of(self.tokens)
        size = len(tokens)
        return (
            tokens,
            distribution.weights_of(self.p, size),
            distribution.weights_of(self.q, size),
        )

    def describe(self, lang: str, t: float = 0) -> str:
        """Say what is kept, what is missing, and what `t` draws came to."""
        words = self.words(lang)
        tokens, p, q = self.distributions()
        alpha = distribution.acceptance(p, q)

        def named(chosen: list[bool]) -> str:
            chosen_tokens = [x for x, c in zip(tokens, chosen, strict=True) if c]
            quoted = [words["say.token"].format(token=shown(x)) for x in chosen_tokens]
            return listed(quoted, words["say.and"], lang)

        sentences = [words["say.alpha"].format(alpha=fixed(alpha), share=percent(alpha))]
        if alpha > 1 - 1e-9:
            sentences.append(words["say.same"])
        elif alpha < 1e-9:
            sentences.append(words["say.disjoint"])
        else:
            over = named([b > a + 1e-9 for a, b in zip(p, q, strict=True)])
            under = named([a > b + 1e-9 for a, b in zip(p, q, strict=True)])
            sentences.append(words["say.mixed"].format(over=over, under=under))
            never = named([b == 0 < a for a, b in zip(p, q, strict=True)])
            if never:
                sentences.append(words["say.never"].format(tokens=never))
        made = model.draws(p, q, self.seed, int(t))
        if made:
            accepted = sum(draw.accepted for draw in made)
            sentences.append(
                words["say.drawn"].format(
                    n=num(len(made)), kept=num(accepted), refused=num(len(made) - accepted)
                )
            )
        return ("" if lang == "zh" else " ").join(sentences)

    def table(self, lang: str, t: float = 0) -> list[list[str]]:
        """Return a row a token."""
        words = self.words(lang)
        tokens, p, q = self.distributions()
        common, short = distribution.kept(p, q), distribution.missing(p, q)
        left = distribution.residual(p, q)
        written = model.counts(model.draws(p, q, self.seed, int(t)), len(p))
        heads = ("token", "p", "q", "kept", "missing", "chance", "residual", "written")
        rows = [[words[f"table.{c}"] for c in heads]]
        for i, token in enumerate(tokens):
            chance = percent(min(1, p[i] / q[i])) if q[i] > 0 else "–"
            values = [fixed(x[i], 3) for x in (p, q, common, short)]
            rows.append([shown(token), *values, chance, fixed(left[i], 3), str(written[i])])
        return rows

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return the recorded contexts: they are choices, so they are needed at once."""
        return {"record": record()}


def shown(token: str) -> str:
    """Return a token as the eye should read it: without the space it carries."""
    return token.strip() or "␣"


def listed(items: list[str], last: str, lang: str) -> str:
    """Return items as a list in a sentence, with the word `last` before the last one."""
    if lang == "zh" or len(items) < 2:
        return "、".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


FIGURE = Accept
