"""How many tokens to draft in a round: a fixed m, or one that follows how sure the guesses are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernels.acceptance import Guess, Verdict
from kernels.drafters import LEAST_REACH
from kernels.settings import ADAPTIVE, BOUNDS, Settings


class DraftLength(Protocol):
    """Decides how far a round drafts."""

    def most(self) -> int:
        """The most guesses of the coming round."""
        ...

    def goes_on(self, guesses: Sequence[Guess]) -> bool:
        """Whether to draft further after these guesses."""
        ...

    def learn(self, guesses: Sequence[Guess], verdict: Verdict) -> None:
        """Take in what became of the round's guesses."""
        ...


class FixedLength:
    """The same m in every round."""

    def __init__(self, m: int) -> None:
        self._m = m

    def most(self) -> int:
        """m."""
        return self._m

    def goes_on(self, guesses: Sequence[Guess]) -> bool:
        """Yes, up to m."""
        return True

    def learn(self, guesses: Sequence[Guess], verdict: Verdict) -> None:
        """Nothing to learn."""


class AdaptiveLength:
    """Drafts on while all guesses so far are likely enough to stand.

    That chance is the product of their confidences, each corrected by how often guesses of that
    drafter have been kept lately compared with what it promised: a guess judged counts `memory`
    times as much as the one after it, and two imagined ones that went as promised stand at the
    start. The decision uses guesses that are certain to be verified, never the ones it will let
    through, so the text stays exactly the target's; and no clock, so a seed replays.
    """

    def __init__(self, least: float = LEAST_REACH, memory: float = 0.95) -> None:
        self._least = least
        self._memory = memory
        self._kept: dict[str, float] = {}
        self._promised: dict[str, float] = {}

    def most(self) -> int:
        """The largest m there is."""
        return int(BOUNDS["m"][1])

    def goes_on(self, guesses: Sequence[Guess]) -> bool:
        """Whether the guesses so far all stand with at least the least chance."""
        reach = 1.0
        for guess in guesses:
            reach *= min(1.0, guess.confidence * self._trust(guess.by))
        return reach >= self._least

    def learn(self, guesses: Sequence[Guess], verdict: Verdict) -> None:
        """Compare promises with what was kept."""
        for guess, place in zip(guesses, verdict.places, strict=False):
            kept, promised = self._kept.get(guess.by, 2.0), self._promised.get(guess.by, 2.0)
            self._kept[guess.by] = kept * self._memory + (place.origin == "accepted")
            self._promised[guess.by] = promised * self._memory + guess.confidence
            if place.origin == "rejected":
                return

    def _trust(self, by: str) -> float:
        return self._kept.get(by, 2.0) / self._promised.get(by, 2.0)


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


def draft_length(settings: Settings) -> DraftLength:
    """The one that the settings ask for."""
    if settings.m == ADAPTIVE:
        return AdaptiveLength()
    assert isinstance(settings.m, int)
    return FixedLength(settings.m)
