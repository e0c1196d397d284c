"""The acceptance rule at one position, draw by draw.

A draw takes three uniform numbers. The first picks a token x from q. The second is a height u·q(x)
in the bar of q(x): below p(x) the guess is kept, otherwise refused (Leviathan et al. 2023,
algorithm 1; u·q < p is `kernels.acceptance.accepts`). The third picks the replacement y from max(0,
p − q), and with what is left of it a height within the part of p(y) that guesses do not fill. So
the draws written as y fill the bar of p(y) evenly, whatever q is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from figures.distribution import cumulative, kept, missing, pick
from figures.rng import Rng

#: Draws that the figure can make.
DRAWS = 400


@dataclass(frozen=True)
class Draw:
    """One draw. height: of the guess in the bar of q; place: of the written token in that of p."""

    guess: int
    height: float
    accepted: bool
    written: int
    place: float


def draws(p: Sequence[float], q: Sequence[float], seed: int, count: int = DRAWS) -> list[Draw]:
    """Make `count` draws. Each takes three numbers, so the n-th does not depend on the others."""
    rng = Rng(seed)
    common, short = kept(p, q), missing(p, q)
    of_q, of_short = cumulative(q), cumulative(short)
    made = []
    for _ in range(count):
        first, second, third = rng.uniform(), rng.uniform(), rng.uniform()
        guess = pick(of_q, first)
        height = second * q[guess]
        if height < p[guess]:
            made.append(Draw(guess, height, True, guess, height))
            continue
        # Refused with p = q in exact arithmetic cannot happen; rounding may leave nothing to draw
        # from.
        if of_short[-1] <= 0:
            made.append(Draw(guess, height, False, guess, p[guess] * second))
            continue
        written = pick(of_short, third)
        inside = third * of_short[-1] - (of_short[written] - short[written])
        place = common[written] + min(max(inside, 0.0), short[written])
        made.append(Draw(guess, height, False, written, place))
    return made


def counts(made: Sequence[Draw], size: int) -> list[int]:
    """Return how often each token was written."""
    found = [0] * size
    for draw in made:
        found[draw.written] += 1
    return found


def puzzle(p: Sequence[float], q: Sequence[float]) -> bool:
    """Both favour the same token, and more than half of the guesses are refused all the same."""

    def favourite(values: Sequence[float]) -> int | None:
        top = max(values)
        at = [i for i, x in enumerate(values) if x > top - 1e-9]
        return at[0] if len(at) == 1 else None

    return favourite(p) is not None and favourite(p) == favourite(q) and sum(kept(p, q)) < 0.5
