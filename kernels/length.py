"""How many tokens to draft in a round: a fixed m, or one that follows how well guessing goes."""

from __future__ import annotations

from typing import Protocol

from kernels.acceptance import Verdict
from kernels.settings import ADAPTIVE, BOUNDS, Settings

#: Cost of a drafted token in plain passes that the adaptive length reckons with. A constant, not
#: the measured one, so that a run with the same seed drafts the same lengths on every machine.
ASSUMED_COST = 0.1


class DraftLength(Protocol):
    """Chooses m before each round."""

    def next(self) -> int:
        """m of the coming round."""
        ...

    def learn(self, verdict: Verdict) -> None:
        """Take in what became of the last round's guesses."""
        ...


class FixedLength:
    """The same m in every round."""

    def __init__(self, m: int) -> None:
        self._m = m

    def next(self) -> int:
        """m."""
        return self._m

    def learn(self, verdict: Verdict) -> None:
        """Nothing to learn."""


class AdaptiveLength:
    """The m that would be best if guesses went on being accepted as often as lately.

    α is estimated as a forgetful average: each judged guess counts `memory` times as much as the
    one after it, and two imagined guesses (one kept, one not) stand at the start. The length
    depends on past verdicts only, never on the guesses that it will let through, so the text stays
    exactly the target's.
    """

    def __init__(self, cost: float = ASSUMED_COST, memory: float = 0.9) -> None:
        self._cost = cost
        self._memory = memory
        self._kept = 1.0
        self._judged = 2.0

    def next(self) -> int:
        """The best m for the estimate of α."""
        return best_length(self._kept / self._judged, self._cost)

    def learn(self, verdict: Verdict) -> None:
        """Count the judged guesses."""
        for place in verdict.places:
            if place.origin in ("accepted", "rejected"):
                self._kept = self._kept * self._memory + (place.origin == "accepted")
                self._judged = self._judged * self._memory + 1.0


def expected_tokens(alpha: float, m: float) -> float:
    """Tokens a round with m guesses, each kept with probability α: (1 − α^(m+1)) / (1 − α).

    Leviathan et al. 2023, equation 1.
    """
    if alpha >= 1:
        return m + 1
    return float((1 - alpha ** (m + 1)) / (1 - alpha))


def speedup(alpha: float, m: float, c: float, v: float = 1.0) -> float:
    """How much faster than plain decoding: tokens a round over its cost m·c + v in plain passes.

    c: cost of a drafted token; v: cost of a verification, both in plain passes.
    """
    return expected_tokens(alpha, m) / (m * c + v)


def best_length(alpha: float, c: float, v: float = 1.0) -> int:
    """The smallest m within the settings' bounds that makes `speedup` largest."""
    low, high = (int(bound) for bound in BOUNDS["m"])
    return max(range(low, high + 1), key=lambda m: (speedup(alpha, m, c, v), -m))


def draft_length(settings: Settings) -> DraftLength:
    """The one that the settings ask for."""
    if settings.m == ADAPTIVE:
        return AdaptiveLength()
    assert isinstance(settings.m, int)
    return FixedLength(settings.m)
