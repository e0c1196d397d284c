"""The race: two lanes write the same text on one device, plain and speculative.

The lanes take turns. The next turn always goes to the lane whose own clock is behind, so both move
on the screen at the pace they really have, while neither is charged for the other's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernels import machine
from kernels.clock import LaneClock
from kernels.drafters import Drafter, LookupDrafter, ModelDrafter, TurnDrafter
from kernels.errors import SdError
from kernels.length import draft_length
from kernels.passes import Pass, Token
from kernels.plain import PlainDecoding
from kernels.randomness import Randomness
from kernels.sampling import probability
from kernels.settings import Settings
from kernels.speculative import SpeculativeDecoding
from kernels.summary import LaneLog, summarize
from kernels.transcript import Reason, Transcript

if TYPE_CHECKING:
    from kernels.pairs import Pair

Event = dict[str, Any]

#: Below this chance a guess of the n-gram table is worse than asking the draft model.
LEAST_CHANCE = 0.3


@dataclass
class Lane:
    """One lane: its clock, its text so far and what it has reported."""

    name: str
    clock: LaneClock
    transcript: Transcript
    passes: Iterator[Pass]
    log: LaneLog = field(default_factory=LaneLog)
    winners: list[tuple[float, float]] = field(default_factory=list)  # greedy: see `_note_winners`
    closed: bool = False

    def step(self) -> Pass | None:
        """The lane's next pass, or None at its end. Only this runs on its clock."""
        self.clock.resume()
        try:
            return next(self.passes, None)
        finally:
            self.clock.pause()


def race(
    pair: Pair,
    settings: Settings,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    command: str = "",
) -> Iterator[Event]:
    """Run both lanes and yield the events of docs/trace.md: start, passes, finishes, end.

    cancelled: asked before every pass; once true, unfinished lanes finish with reason "cancelled".
    command: how this run was started, for the header. Raises SdError before the first event when
    the prompt does not fit (codes "empty_prompt", "prompt_too_long") and at any later pass when the
    model fails ("not_finite").
    """
    prompt = encode_prompt(pair, settings)
    lanes = [plain_lane(pair, prompt, settings), speculative_lane(pair, prompt, settings)]
    yield {"type": "start", "header": header(pair, settings, len(prompt), command)}
    while running := [lane for lane in lanes if not lane.closed]:
        lane = min(running, key=lambda lane: lane.clock.now())
        item = None if cancelled() else lane.step()
        if item is None:
            lane.closed = True
            reason: Reason = lane.transcript.finished or "cancelled"
            yield {
                "type": "finish",
                "lane": lane.name,
                "reason": reason,
                "clock": _seconds(lane.clock.now()),
            }
            continue
        lane.log.add(item, lane.clock.now())
        if settings.greedy:
            _show_probabilities(item)
            _note_winners(lane, item)
        yield pass_event(lane.name, item)
    plain, speculative = lanes
    yield {
        "type": "end",
        "agreement": agreement(plain, speculative, settings, pair),
        "stats": summarize(plain.log, speculative.log, settings),
    }


def encode_prompt(pair: Pair, settings: Settings) -> list[int]:
    """The prompt's tokens, in the chat template if asked for."""
    if not settings.prompt.strip():
        raise SdError("empty_prompt", "The prompt is empty: write at least one word.")
    if settings.chat:
        return list(pair.tokenizer.chat(settings.prompt))
    return list(pair.tokenizer.encode(settings.prompt))


def plain_lane(pair: Pair, prompt: list[int], settings: Settings) -> Lane:
    """The lane that makes one token a pass."""
    clock, transcript = LaneClock(), _transcript(pair, prompt, settings)
    decoding = PlainDecoding(
        pair.target, transcript, settings, Randomness(settings.seed, "plain"), clock
    )
    return Lane("plain", clock, transcript, decoding.run())


def speculative_lane(pair: Pair, prompt: list[int], settings: Settings) -> Lane:
    """The lane that drafts and verifies."""
    clock, transcript = LaneClock(), _transcript(pair, prompt, settings)
    randomness = Randomness(settings.seed, "speculative")
    decoding = SpeculativeDecoding(
        pair.target,
        drafter(pair, settings, randomness, clock, len(prompt) + transcript.limit),
        transcript,
        settings,
        randomness,
        clock,
        draft_length(settings),
    )
    return Lane("speculative", clock, transcript, decoding.run())


def drafter(
    pair: Pair, settings: Settings, randomness: Randomness, clock: LaneClock, capacity: int
) -> Drafter:
    """The drafter asked for; raises SdError "no_draft" if that needs a model the pair lacks."""
    lookup = LookupDrafter(
        vocab_size=pair.target.vocab_size,
        settings=settings,
        clock=clock,
        table=pair.ngrams,
        least=0.0 if pair.draft is None or settings.drafter == "lookup" else LEAST_CHANCE,
    )
    if settings.drafter == "lookup" or (settings.drafter == "both" and pair.draft is None):
        return lookup
    if pair.draft is None:
        raise SdError(
            "no_draft",
            f"The pair {pair.name} has no draft model: choose the look-up drafter.",
            pair=pair.name,
        )
    model = ModelDrafter(
        pair.draft,
        vocab_size=pair.target.vocab_size,
        capacity=capacity,
        settings=settings,
        randomness=randomness,
        clock=clock,
    )
    return model if settings.drafter == "model" else TurnDrafter(lookup, model)


def header(pair: Pair, settings: Settings, prompt_tokens: int, command: str) -> dict[str, Any]:
    """Everything needed to run this race again, and to judge its times."""
    target, draft = pair.target, pair.draft
    return {
        "created": machine.timestamp(),
        "command": command,
        "device": machine.describe() | {"device": target.device, "precision": target.precision},
        "versions": dict(machine.versions("torch", "transformers", "numpy")),
        "pair": {
            "name": pair.name,
            "target": target.name,
            "draft": None if draft is None else draft.name,
        },
        "settings": settings.as_dict(),
        "prompt_tokens": prompt_tokens,
        "guarantee": str(getattr(pair, "guarantee", "unknown")),
    }


def pass_event(lane: str, item: Pass) -> Event:
    """A pass as its JSON object."""
    event: Event = {
        "type": "pass",
        "lane": lane,
        "kind": item.kind,
        "start": _seconds(item.start),
        "end": _seconds(item.end),
        "rows": item.rows,
    }
    if item.by is not None:
        event["by"] = item.by
    event["tokens"] = [_token(token) for token in item.tokens]
    return event


def _token(token: Token) -> dict[str, Any]:
    result: dict[str, Any] = {"id": token.id, "text": token.text, "origin": token.origin}
    for name in ("p", "q", "u"):
        value = getattr(token, name)
        if value is not None:
            result[name] = float(f"{value:.6g}")
    if token.by is not None:
        result["by"] = token.by
    return result


def _seconds(value: float) -> float:
    return round(value, 6)


def _transcript(pair: Pair, prompt: list[int], settings: Settings) -> Transcript:
    return Transcript(
        prompt,
        settings,
        pair.tokenizer,
        context_length=pair.target.context_length,
        end_tokens={*pair.target.end_tokens, *pair.tokenizer.end_tokens},
    )


def _show_probabilities(item: Pass) -> None:
    """Add p to the tokens of a greedy verification, which decides without it.

    It is the target's own probability at temperature 1, so that a reader sees how sure it was.
    Worked out while no lane's clock runs.
    """
    if item.kind == "verify" and item.logits is not None:
        row = 0
        for token in item.tokens:
            token.p = probability(item.logits[row], token.id)
            row += token.origin == "accepted"


# ---- agreement ---------------------------------------------------------------------------------


def _note_winners(lane: Lane, item: Pass) -> None:
    """Remember, for every emitted token, its logit and its lead over the runner-up."""
    if item.kind == "draft" or item.logits is None or not item.tokens:
        return
    emitted = [token for token in item.tokens if token.origin != "rejected"]
    for row, token in zip(item.logits, emitted, strict=False):
        lane.winners.append((float(row[token.id]), _lead(row, token.id)))


def _lead(row: NDArray[Any], winner: int) -> float:
    """How far the winner's logit is above the best of the others."""
    others = max(row[:winner].max(initial=-np.inf), row[winner + 1 :].max(initial=-np.inf))
    return float(row[winner] - others)


def agreement(plain: Lane, speculative: Lane, settings: Settings, pair: Pair) -> dict[str, Any]:
    """Whether the two lanes wrote the same.

    {"kind": "sampled"} (they need not), "unfinished" (cancelled), "identical", or "differs" with
    the position of the first difference among the new tokens, each lane's token with its logit
    there, and `gap`: the larger of the two leads over the runner-up. A gap near 0 is a
    floating-point tie.
    """
    if not settings.greedy:
        return {"kind": "sampled"}
    if plain.transcript.finished is None or speculative.transcript.finished is None:
        return {"kind": "unfinished"}
    mine, theirs = plain.transcript.new_tokens, speculative.transcript.new_tokens
    if mine == theirs:
        return {"kind": "identical"}
    position = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    sides = {}
    for lane, token in ((plain, mine[position]), (speculative, theirs[position])):
        sides[lane.name] = {
            "id": token,
            "text": pair.tokenizer.token_text(token),
            "logit": float(f"{lane.winners[position][0]:.6g}"),
        }
    gap = max(lane.winners[position][1] for lane in (plain, speculative))
    return {"kind": "differs", "position": position, **sides, "gap": float(f"{gap:.6g}")}
