"""Passes inferred from when tokens arrive: what can be known of a server's lane from outside.

A pass of the target ends with the arrival of its tokens and is taken to have begun with the arrival
before. In the plain lane a pass makes one token, however tokens arrive. In the speculative lane
tokens that arrive together come from one verification: all but the last were guesses that held, the
last is the target's own. Whether that one stands for a rejected guess or is a bonus, and what was
guessed in vain, cannot be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.passes import Pass, Token
from kernels.settings import Settings
from kernels.summary import LaneLog
from kernels.wire import Arrival, Counts, Word

#: Events of a stream this many seconds apart at most may belong to one pass …
NEAR = 0.002
#: … but never when that is more than this share of a plain pass.
NEAR_SHARE = 0.25
#: A pass shows 64 tokens at most (docs/trace.md).
MOST_TOKENS = 64


@dataclass
class InferredLane:
    """One lane's arrivals on their way to passes. Times in seconds on the lane's clock.

    reference: seconds of a typical plain pass, once known; it bounds what counts as together.
    whole: each event of the stream is a pass (vLLM); llama.cpp sends the tokens of one pass one by
    one. told: the server counts its tokens in mid-stream, so ours are counted right.
    """

    name: str
    whole: bool = False
    told: bool = False
    log: LaneLog = field(default_factory=LaneLog)
    words: list[Word] = field(default_factory=list)
    reason: str | None = None
    reference: float | None = None
    clock: float = 0.0
    _open: list[Word] = field(default_factory=list)
    _last: float = 0.0
    _began: bool = False
    _prompt: int = 0
    _intervals: list[float] = field(default_factory=list)

    @property
    def typical(self) -> float | None:
        """Median seconds of a pass so far."""
        ordered = sorted(self._intervals)
        return ordered[len(ordered) // 2] if ordered else None

    def add(self, arrival: Arrival) -> list[Pass]:
        """Take in an arrival; returns the passes that are complete with it."""
        done: list[Pass] = []
        words = list(arrival.words)
        self.words += words
        self._prompt = arrival.prompt_tokens or self._prompt
        self.told |= arrival.completion_tokens is not None
        if not self._began:
            self._began = True
            first, words = words[:1], words[1:]
            done.append(self._pass("prefill", arrival.at, self._prompt, first))
        elif self._open and (self.whole or arrival.at - self._last > self._near()):
            done += self.close()
        self._open += words
        self._last = arrival.at
        # A plain pass is one token: nothing to wait for.
        return done + (self.close() if self.name == "plain" else [])

    def settle(self) -> list[Pass]:
        """Nothing has come for a while: what is open is complete."""
        return self.close()

    def close(self) -> list[Pass]:
        """The open pass, or passes, if any."""
        words, self._open = self._open, []
        if not words:
            return []
        if self.name == "plain":
            start, step = self.clock, (self._last - self.clock) / len(words)
            return [
                self._pass("decode", start + step * number, 1, [word])
                for number, word in enumerate(words, 1)
            ]
        pieces = [words[i : i + MOST_TOKENS] for i in range(0, len(words), MOST_TOKENS)]
        return [
            self._pass("verify" if len(piece) > 1 else "decode", self._last, len(piece), piece)
            for piece in pieces
        ]

    def _near(self) -> float:
        return NEAR if self.reference is None else min(NEAR, NEAR_SHARE * self.reference)

    def _pass(self, kind: Any, end: float, rows: int, words: list[Word]) -> Pass:
        start, self.clock = self.clock, max(end, self.clock)
        if kind != "prefill":
            self._intervals.append(self.clock - start)
        last = len(words) - 1
        tokens = [
            Token(word.id or 0, word.text, "accepted" if i < last else "target", p=word.p)
            for i, word in enumerate(words)
        ]
        return Pass(kind, start, self.clock, rows, tokens)


def agreement(plain: InferredLane, speculative: InferredLane, settings: Settings) -> dict[str, Any]:
    """Whether the lanes wrote the same: by token ids where both servers tell them, else by text.

    As in kernels/race.py, less the logits, which no server tells.
    """
    if not settings.greedy:
        return {"kind": "sampled"}
    if any(lane.reason in (None, "cancelled") for lane in (plain, speculative)):
        return {"kind": "unfinished"}
    sides = [plain.words, speculative.words]
    by = "ids" if all(word.id is not None for side in sides for word in side) else "text"
    if by == "ids":
        mine, theirs = ([word.id for word in side] for side in sides)
        if mine == theirs:
            return {"kind": "identical", "by": by}
        at = _parting(mine, theirs)
    else:
        texts = ["".join(word.text for word in side) for side in sides]
        if texts[0] == texts[1]:
            return {"kind": "identical", "by": by}
        character = _parting(*texts)
        at = min(_token_at(side, character) for side in sides)
    shown = [side[at] if at < len(side) else Word("") for side in sides]
    return {
        "kind": "differs",
        "by": by,
        "position": at,
        **{
            lane.name: {"id": word.id or 0, "text": word.text}
            for lane, word in zip((plain, speculative), shown, strict=True)
        },
    }


def _parting(one: Any, other: Any) -> int:
    """Index of the first difference; the shorter one's length if it is the other's beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _token_at(words: list[Word], character: int) -> int:
    """The token that holds a character."""
    seen = 0
    for number, word in enumerate(words):
        seen += len(word.text)
        if seen > character:
            return number
    return len(words)


def statistics(
    plain: InferredLane,
    speculative: InferredLane,
    counts: Counts | None,
    told: dict[str, Any],
    m: int | None,
) -> dict[str, Any]:
    """The `stats` of an inferred trace: what was seen from outside, and what the servers told.

    α, c and v stay empty: they belong to passes that are measured.
    """
    tokens = {lane.name: _tokens(lane, told) for lane in (plain, speculative)}
    lanes = {lane.name: _lane(lane, tokens[lane.name]) for lane in (plain, speculative)}
    log, other = speculative.log, plain.log
    made, others = max(0, tokens["speculative"] - 1), max(0, tokens["plain"] - 1)
    drafted = None if counts is None else counts.drafted
    accepted = None if counts is None else counts.accepted
    per_token = _ratio(log.decode_seconds, made)
    return {
        "plain": lanes["plain"] | {"pass_ms": _digits(_ratio(other.decode_seconds * 1e3, others))},
        "speculative": lanes["speculative"]
        | {"rounds": log.rounds, "drafted": drafted, "accepted": accepted, "rejected": None}
        | {"supplied": None, "bonus": None},
        "acceptance": {"judged": 0, "accepted": 0, "alpha": None, "low": None, "high": None}
        | {"by": {}},
        "m": m,
        "c": None,
        "v": None,
        "tokens_per_pass": _digits(_ratio(made, log.rounds)),
        "speedup": {
            "measured": _digits(_ratio(_ratio(other.decode_seconds, others), per_token)),
            "total": _digits(_ratio(_ratio(other.clock, others + 1), _ratio(log.clock, made + 1))),
            "ideal": None,
            "formula": None,
            "factors": None,
        },
        "server": {"counts": None if counts is None else counts.as_dict(), **told},
    }


def _tokens(lane: InferredLane, told: dict[str, Any]) -> int:
    """Tokens of a lane: as seen, or where an event may hold several unseen, as the server says."""
    said = told[lane.name].get("completion_tokens")
    return said if isinstance(said, int) and not lane.told else lane.log.tokens


def _lane(lane: InferredLane, tokens: int) -> dict[str, Any]:
    """Time outside the passes cannot be seen: passes are taken to follow one another."""
    rate = _ratio(max(0, tokens - 1), lane.log.decode_seconds)
    given = {"tokens": tokens, "tokens_per_s": _digits(rate), "overhead_s": None}
    return lane.log.as_dict() | given


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or not b else a / b


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
