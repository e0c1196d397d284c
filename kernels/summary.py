"""What a race measured: rates, costs, and the measured speed-up beside the formula's.

All times are the lanes' own clocks. The speed-up is that of the decode phase (time a token after
the first), since speculation changes nothing about reading the prompt. Costs are means, not
medians, so that the factors below multiply exactly to what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from kernels.length import expected_tokens
from kernels.passes import EMITTED, Pass
from kernels.settings import Settings


@dataclass
class DrafterLog:
    """One drafter's guesses: made, judged, kept; and the seconds it took to make them."""

    drafted: int = 0
    judged: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Its entry of the statistics; ms: a drafted token."""
        return {
            "drafted": self.drafted,
            "judged": self.judged,
            "accepted": self.accepted,
            "ms": _round(_times(_ratio(self.seconds, self.drafted), 1e3)),
        }


@dataclass
class LaneLog:
    """Counts and times of one lane, gathered pass by pass.

    clock: the lane's clock after the last pass. decode_from: its clock when the decode phase began
    (after everything that reads the prompt).
    """

    clock: float = 0.0
    first_token: float | None = None
    decode_from: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)  # by kind of pass
    passes: dict[str, int] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    drafters: dict[str, DrafterLog] = field(default_factory=dict)
    guesses: list[int] = field(default_factory=list)  # of each round

    def add(self, item: Pass, clock: float) -> None:
        """Count one pass; clock: the lane's clock after it."""
        self.clock = clock
        if item.kind == "prefill":
            self.decode_from = clock
            if self.first_token is None:
                self.first_token = clock
        self.seconds[item.kind] = self.seconds.get(item.kind, 0.0) + item.end - item.start
        self.passes[item.kind] = self.passes.get(item.kind, 0) + 1
        if item.kind == "draft":
            drafter = self._drafter(item.by)
            drafter.drafted += len(item.tokens)
            drafter.seconds += item.end - item.start
            return
        if item.kind != "prefill":
            self.guesses.append(item.rows - 1)  # the other row is the last token of the text
        for token in item.tokens:
            self.origins[token.origin] = self.origins.get(token.origin, 0) + 1
            if token.by is not None:
                drafter = self._drafter(token.by)
                drafter.accepted += token.origin == "accepted"
                drafter.judged += 1

    def _drafter(self, by: str | None) -> DrafterLog:
        return self.drafters.setdefault(str(by), DrafterLog())

    @property
    def drafted(self) -> int:
        """Guesses made."""
        return sum(drafter.drafted for drafter in self.drafters.values())

    @property
    def tokens(self) -> int:
        """Tokens in the text."""
        return sum(n for origin, n in self.origins.items() if origin in EMITTED)

    @property
    def decoded(self) -> int:
        """Tokens after the first one, which the prefill gives."""
        return max(0, self.tokens - 1)

    @property
    def rounds(self) -> int:
        """Target passes after the prefill."""
        return self.passes.get("verify", 0) + self.passes.get("decode", 0)

    @property
    def decode_seconds(self) -> float:
        """Seconds since the prompt was read."""
        return self.clock - self.decode_from

    @property
    def overhead(self) -> float:
        """Decode-phase seconds outside any pass: drawing, judging, text."""
        return self.decode_seconds - sum(
            self.seconds.get(kind, 0.0) for kind in ("decode", "draft", "verify")
        )

    def as_dict(self) -> dict[str, Any]:
        """This lane's entries of the statistics."""
        return {
            "tokens": self.tokens,
            "target_passes": self.rounds + min(1, self.passes.get("prefill", 0)),
            "clock_s": _round(self.clock),
            "first_token_s": _round(self.first_token),
            "decode_s": _round(self.decode_seconds),
            "tokens_per_s": _round(_ratio(self.decoded, self.decode_seconds)),
            "overhead_s": _round(self.overhead),
        }


def wilson(kept: int, judged: int, z: float = 1.96) -> tuple[float, float]:
    """The interval that holds the true rate with 95 % confidence (Wilson 1927).

    Unlike the usual ± it stays inside [0, 1] and is honest for few guesses. Guesses of one text are
    not independent, so it is a little too narrow.
    """
    if judged == 0:
        return 0.0, 1.0
    rate = kept / judged
    middle = rate + z * z / (2 * judged)
    spread = z * math.sqrt(rate * (1 - rate) / judged + z * z / (4 * judged * judged))
    scale = 1 + z * z / judged
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def summarize(plain: LaneLog, speculative: LaneLog, settings: Settings) -> dict[str, Any]:
    """The `stats` of a trace; every number is None where the run was too short to have it."""
    counts = {
        origin: speculative.origins.get(origin, 0)
        for origin in ("accepted", "rejected", "supplied", "bonus")
    }
    kept, judged = counts["accepted"], counts["accepted"] + counts["rejected"]
    low, high = wilson(kept, judged)
    verifications = speculative.passes.get("verify", 0)
    draft_s, verify_s = (
        speculative.seconds.get("draft", 0.0),
        speculative.seconds.get("verify", 0.0),
    )
    plain_pass = _ratio(plain.seconds.get("decode", 0.0), plain.passes.get("decode", 0))
    c = _ratio(_ratio(draft_s, speculative.drafted), plain_pass)
    v = _ratio(_ratio(verify_s, verifications), plain_pass)
    alpha = _ratio(kept, judged)
    m = settings.m if isinstance(settings.m, int) else _ratio(speculative.drafted, verifications)
    return {
        "plain": plain.as_dict() | {"pass_ms": _round(_times(plain_pass, 1e3))},
        "speculative": speculative.as_dict()
        | counts
        | {
            "target": speculative.origins.get("target", 0),
            "rounds": speculative.rounds,
            "drafted": speculative.drafted,
            "draft_passes": speculative.passes.get("draft", 0),
            "draft_ms": _round(_times(_ratio(draft_s, speculative.drafted), 1e3)),
            "verify_ms": _round(_times(_ratio(verify_s, verifications), 1e3)),
        },
        "acceptance": {
            "judged": judged,
            "accepted": kept,
            "alpha": _round(alpha),
            "low": _round(low),
            "high": _round(high),
            "by": {by: log.as_dict() for by, log in sorted(speculative.drafters.items())},
        },
        "m": settings.m if isinstance(settings.m, int) else _round(m),
        "c": _round(c),
        "v": _round(v),
        "tokens_per_pass": _round(_ratio(speculative.decoded, speculative.rounds)),
        "speedup": explain(plain, speculative, alpha, m, c, v),
    }


def explain(
    plain: LaneLog,
    speculative: LaneLog,
    alpha: float | None,
    m: float | None,
    c: float | None,
    v: float | None,
) -> dict[str, Any]:
    """From the ideal speed-up to the measured one, one factor at a time; their product is exact.

    ideal: the formula with a verification as cheap as a plain pass (v = 1). Then the factors:
    verification (v is not 1), guesses (rounds with fewer of them than m, at the end or where
    look-up found less: tokens lost against work saved), variation (α differs from place to place,
    so rounds do not give the formula's mean), overhead (time outside the passes). formula: ideal ×
    verification.
    """
    per_plain = _ratio(plain.decode_seconds, plain.decoded)
    measured = _ratio(per_plain, _ratio(speculative.decode_seconds, speculative.decoded))
    total = _ratio(_ratio(plain.clock, plain.tokens), _ratio(speculative.clock, speculative.tokens))
    result: dict[str, Any] = {
        "measured": _round(measured),
        "total": _round(total),
        "ideal": None,
        "formula": None,
        "factors": None,
    }
    if alpha is None or m is None or c is None or v is None or measured is None:
        return result
    pass_s = plain.seconds["decode"] / plain.passes["decode"]
    work = sum(speculative.seconds.get(kind, 0.0) for kind in ("decode", "draft", "verify"))
    per_round = work / speculative.rounds / pass_s
    tokens = speculative.decoded / speculative.rounds
    expected = expected_tokens(alpha, m)
    as_guessed = sum(expected_tokens(alpha, n) for n in speculative.guesses) / speculative.rounds
    ideal, formula = expected / (m * c + 1), expected / (m * c + v)
    factors = {
        "verification": formula / ideal,
        "guesses": (as_guessed / per_round) / formula,
        "variation": tokens / as_guessed,
        "overhead": measured / (tokens / per_round),
    }
    return result | {
        "ideal": _round(ideal),
        "formula": _round(formula),
        "factors": {name: _round(factor) for name, factor in factors.items()},
    }


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def _times(a: float | None, b: float) -> float | None:
    return None if a is None else a * b


def _round(value: float | None) -> float | None:
    """Six significant digits: beyond what was measured, and short in a file."""
    return None if value is None else float(f"{value:.6g}")
