"""Two distributions over a small vocabulary, as figures `accept` and `lossless` hold them.

A reader's p and q live in a link as text: tokens between bars (`the|a|this`), weights between
commas (`50,30,20`), brought to sum 1. `web/distribution.js` does the same; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Fewest and most tokens of a reader's own vocabulary.
SIZES = (2, 6)
TOKENS = ("the", "a", "this")
_WEIGHT = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e-?[0-9]{1,2})?")


def tokens_of(text: str) -> list[str]:
    """Return the tokens that a text names: two to six, or the default ones where it names fewer."""
    found = [token.strip()[:24] for token in text.split("|")]
    found = [token for token in found if token][: SIZES[1]]
    return found if len(found) >= SIZES[0] else list(TOKENS)


def weights_of(text: str, size: int) -> list[float]:
    """Return `size` probabilities: what is no number counts as 0, and all zeros as all equal."""
    parts = [part.strip() for part in text.split(",")][:size]
    values = [float(part) if _WEIGHT.fullmatch(part) else 0.0 for part in parts]
    values += [0.0] * (size - len(values))
    total = sum(values)
    return [1 / size] * size if total <= 0 else [value / total for value in values]


def kept(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return min(p, q): what a guess contributes to each token."""
    return [min(a, b) for a, b in zip(p, q, strict=True)]


def missing(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return max(0, p − q): what the target supplies of each token after a rejection."""
    return [max(0.0, a - b) for a, b in zip(p, q, strict=True)]


def acceptance(p: Sequence[float], q: Sequence[float]) -> float:
    """Return α = Σ min(p, q), the chance that a guess stays."""
    return sum(kept(p, q))


def residual(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return norm(max(0, p − q)); p itself where nothing is left (p = q)."""
    left = missing(p, q)
    total = sum(left)
    return [x / total for x in left] if total > 1e-12 else list(p)


def distance(p: Sequence[float], q: Sequence[float]) -> float:
    """Return the total variation distance ½ Σ |p − q|."""
    return sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def cumulative(p: Sequence[float]) -> list[float]:
    """Return running sums, added from the left."""
    sums, total = [], 0.0
    for x in p:
        total += x
        sums.append(total)
    return sums


def pick(sums: Sequence[float], u: float) -> int:
    """Return the index that u in [0, 1) draws: the first whose running sum lies above u · total.

    Where rounding leaves none, the last one that has any probability.
    """
    at = u * sums[-1]
    for i, total in enumerate(sums):
        if at < total:
            return i
    return max(i for i, total in enumerate(sums) if i == 0 or total > sums[i - 1])
