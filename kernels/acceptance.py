"""The acceptance rule: which guesses of the draft the target keeps, and what it says instead.

Speculative sampling (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023,
arXiv 2302.01318). For a token x that the draft drew from q, with p the target's distribution at the
same place:

    accept x with probability min(1, p(x) / q(x))
    else draw from the residual  norm(max(0, p − q)), and stop
    after the last guess is accepted, draw one more token from p: the bonus

Then the token at every place is distributed exactly as p, because q·min(1, p/q) = min(p, q) is what
acceptance contributes, and the residual fills in the rest of p, with the right total.

At temperature 0 both p and q put everything on one token, and the rule becomes: keep the guess if
it is the target's most probable token. That case has its own function, free of draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.passes import Origin
from kernels.sampling import Distribution, draw


@dataclass(slots=True)
class Guess:
    """One drafted token.

    q: the distribution (V,) it was drawn from, one-hot for look-up, None at temperature 0.
    by: "model" or "lookup". q_x: the drafter's probability of this token, for the record.
    confidence: the drafter's estimate that the target will keep it; it may decide how far to draft,
    never what is kept.
    """

    token: int
    q: Distribution | None
    by: str
    q_x: float = 1.0
    confidence: float = 1.0


@dataclass(slots=True)
class Judged:
    """What became of one place of the block. p and q: of `token`; u: the number that judged it."""

    token: int
    origin: Origin
    p: float | None = None
    q: float | None = None
    u: float | None = None
    by: str | None = None


@dataclass(slots=True)
class Verdict:
    """The judged places: accepted ones, then at most one rejected, then the target's own token."""

    places: list[Judged] = field(default_factory=list)

    @property
    def emitted(self) -> list[Judged]:
        """The places whose token enters the text."""
        return [place for place in self.places if place.origin != "rejected"]


def accepts(p: float, q: float, u: float) -> bool:
    """Whether a token with probabilities p and q is kept, given u uniform in [0, 1).

    Strictly below: with `<=`, u = 0 would accept a token that the target never says (p = 0).
    Written as u·q < p so that it needs no division; q > 0 because the token was drawn from q.
    """
    return u * q < p


def residual(p: Distribution, q: Distribution) -> Distribution:
    """norm(max(0, p − q)), shape (V,): what a rejected token is replaced from.

    Where nothing is left (p = q up to rounding, so a rejection has probability ~10⁻¹⁶) it is p.
    """
    left = p - q
    np.maximum(left, 0.0, out=left)
    total = left.sum()
    if total <= 0:
        return p
    left /= total
    return left


def judge_greedy(guesses: Sequence[Guess], best: Callable[[int], int]) -> Verdict:
    """Keep guesses as long as each is the target's most probable token.

    best(i): that token at place i of the block; asked for only as far as needed.
    """
    verdict = Verdict()
    for i, guess in enumerate(guesses):
        wanted = best(i)
        if guess.token != wanted:
            verdict.places += [
                Judged(guess.token, "rejected", q=guess.q_x, by=guess.by),
                Judged(wanted, "supplied"),
            ]
            return verdict
        verdict.places.append(Judged(guess.token, "accepted", q=guess.q_x, by=guess.by))
    verdict.places.append(Judged(best(len(guesses)), _last(guesses)))
    return verdict


def judge_sampled(
    guesses: Sequence[Guess],
    target: Callable[[int], Distribution],
    accept_draw: Callable[[int], float],
    residual_draw: Callable[[int], float],
    bonus_draw: Callable[[int], float],
) -> Verdict:
    """Speculative sampling over one block of m guesses.

    target(i): p (V,) at place i, 0 … m. accept_draw, residual_draw, bonus_draw: u in [0, 1) for
    place i, each a fresh number.
    """
    verdict = Verdict()
    for i, guess in enumerate(guesses):
        assert guess.q is not None, "a sampled run needs the distribution each guess came from"
        p, q = target(i), guess.q
        p_x, q_x, u = float(p[guess.token]), float(q[guess.token]), accept_draw(i)
        if not accepts(p_x, q_x, u):
            supplied = draw(residual(p, q), residual_draw(i))
            verdict.places += [
                Judged(guess.token, "rejected", p_x, q_x, u, guess.by),
                Judged(supplied, "supplied", float(p[supplied])),
            ]
            return verdict
        verdict.places.append(Judged(guess.token, "accepted", p_x, q_x, u, guess.by))
    p = target(len(guesses))
    bonus = draw(p, bonus_draw(len(guesses)))
    verdict.places.append(Judged(bonus, _last(guesses), float(p[bonus])))
    return verdict


def _last(guesses: Sequence[Guess]) -> Origin:
    """The token after all guesses is a gift; without any guess it is a plain step of the target."""
    return "bonus" if guesses else "target"
