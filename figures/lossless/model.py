"""Five rules for judging a guess: what each converges to, draws of all of them, and two tests.

With p the target's distribution, q the draft's, α = Σ min(p, q), x drawn from q:

    exact    keep x with min(1, p/q), else draw from norm(max(0, p − q))      → p
    always   keep x                                                           → q
    equal    let the target draw too; keep x if equal, else take x all the same → q
    again    keep x with min(1, p/q), else draw from p           → min(p, q) + (1 − α)·p
    greedy   take the likeliest x of q, judge it as if drawn     → a·1[x] + (1 − a)·r

where a = min(1, p(x)/q(x)) and r is the residual (the case worked out in transformers issue 32867).

A draw takes three uniform numbers, the same for every rule: the guess, its verdict, the target's
own draw. `model.js` makes the same draws.

The band: Σ|f − p| = Σ √p · |f − p|/√p ≤ √(Σ (f − p)²/p) by Cauchy and Schwarz, and n times that sum
is χ², so of n draws from p itself at least 95 % lie within ½ √(χ²₀.₉₅/n) of p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from figures.distribution import acceptance, cumulative, kept, pick, residual
from figures.rng import Rng

RULES = ("exact", "always", "equal", "again", "greedy")
DRAWS = 1_000_000
#: Draws at which the distance is noted: eight a factor of ten.
CHECKPOINTS = tuple(sorted({math.floor(10 ** (i / 8) + 0.5) for i in range(8, 49)}))
#: Expected count below which outcomes are put together for the test of fit.
FEWEST = 5


def limit(rule: str, p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return the distribution that `rule` converges to."""
    match rule:
        case "exact":
            return list(p)
        case "always" | "equal":
            return list(q)
        case "again":
            alpha = acceptance(p, q)
            return [common + (1 - alpha) * x for common, x in zip(kept(p, q), p, strict=True)]
        case _:
            x = likeliest(q)
            stays = min(1.0, p[x] / q[x])
            return [
                (1 - stays) * r + (stays if i == x else 0.0) for i, r in enumerate(residual(p, q))
            ]


def likeliest(q: Sequence[float]) -> int:
    """Return the index of the largest entry, the first of equals."""
    return max(range(len(q)), key=lambda i: (q[i], -i))


class Sampler:
    """Draws of all rules: `counts[rule]` after `n` draws, repeatable from the seed."""

    def __init__(self, p: Sequence[float], q: Sequence[float], seed: int) -> None:
        self.n = 0
        self.counts = {rule: [0] * len(p) for rule in RULES}
        self._p, self._q, self._rng = p, q, Rng(seed)
        self._sums = cumulative(p), cumulative(q), cumulative(residual(p, q))
        self._top = likeliest(q)

    def run(self, to: int) -> None:
        """Go on until `to` draws are made."""
        p, q, uniform = self._p, self._q, self._rng.uniform
        of_p, of_q, of_r = self._sums
        counts, top = self.counts, self._top
        for _ in range(self.n, to):
            first, second, third = uniform(), uniform(), uniform()
            x = pick(of_q, first)
            own = pick(of_p, third)
            rest = pick(of_r, third)
            stays = second * q[x] < p[x]
            counts["exact"][x if stays else rest] += 1
            counts["always"][x] += 1
            counts["equal"][own if own == x else x] += 1
            counts["again"][x if stays else own] += 1
            counts["greedy"][top if second * q[top] < p[top] else rest] += 1
        self.n = max(self.n, to)


@dataclass(frozen=True)
class Fit:
    """How far counts are from p. pvalue: None where there are too few draws to tell."""

    distance: float
    chi2: float
    degrees: int
    pvalue: float | None


def fit(counts: Sequence[int], p: Sequence[float]) -> Fit:
    """Compare counts with p: total variation distance and Pearson's χ².

    Outcomes of which fewer than five are expected count as one (and join the rarest other one where
    they still are fewer). An outcome that p excludes settles the matter: p-value 0.
    """
    n = sum(counts)
    if n == 0:
        return Fit(0.0, 0.0, 0, None)
    distance = sum(abs(c / n - x) for c, x in zip(counts, p, strict=True)) / 2
    if any(c > 0 and x <= 0 for c, x in zip(counts, p, strict=True)):
        return Fit(distance, math.inf, 0, 0.0)
    cells = sorted((n * x, c) for c, x in zip(counts, p, strict=True) if x > 0)
    rare = [cell for cell in cells if cell[0] < FEWEST]
    usual = [cell for cell in cells if cell[0] >= FEWEST]
    if rare:
        pooled = (sum(e for e, _ in rare), sum(c for _, c in rare))
        if pooled[0] >= FEWEST or not usual:
            usual.append(pooled)
        else:
            usual[0] = (usual[0][0] + pooled[0], usual[0][1] + pooled[1])
    degrees = len(usual) - 1
    chi2 = sum((c - e) ** 2 / e for e, c in usual)
    return Fit(distance, chi2, degrees, survival(chi2, degrees) if degrees else None)


def survival(x: float, degrees: int) -> float:
    """Return P(χ² > x) for a whole number of degrees of freedom, in closed form.

    Even: e^(−y) Σ y^j/j! over j < k/2, with y = x/2. Odd: erfc(√y) + e^(−y) Σ y^(j−½)/Γ(j+½) over
    1 ≤ j ≤ (k−1)/2 (Abramowitz and Stegun 26.4.4 and 26.4.5).
    """
    y = x / 2
    if y <= 0:
        return 1.0
    if degrees % 2 == 0:
        term = total = 1.0
        for j in range(1, degrees // 2):
            term *= y / j
            total += term
        return min(1.0, math.exp(-y) * total)
    total, term = 0.0, math.sqrt(y) / (math.sqrt(math.pi) / 2)
    for j in range(1, (degrees - 1) // 2 + 1):
        total += term
        term *= y / (j + 0.5)
    return min(1.0, math.erfc(math.sqrt(y)) + math.exp(-y) * total)


def band(n: int, outcomes: int) -> float:
    """Return the distance within which 95 % or more of experiments with n draws from p stay."""
    if n <= 0 or outcomes < 2:
        return 1.0
    low, high = 0.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if survival(middle, outcomes - 1) > 0.05 else (low, middle)
    return min(1.0, math.sqrt(high / n) / 2)


def bias(rule: str, p: Sequence[float], q: Sequence[float]) -> float:
    """Return the total variation distance between p and what `rule` converges to."""
    return sum(abs(a - b) for a, b in zip(limit(rule, p, q), p, strict=True)) / 2


def puzzle(p: Sequence[float], q: Sequence[float]) -> bool:
    """`again` makes no error although p and q differ: then what is kept is proportional to p."""
    return bias("again", p, q) < 1e-6 and bias("always", p, q) > 0.05
