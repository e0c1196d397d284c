"""What an OpenAI-compatible server's stream says, event by event; no connection here.

Besides the common protocol: vLLM's token ids, log probabilities and running counts, llama.cpp's
timings. Whatever is missing is None, whatever is malformed raises `Malformed`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any


class Malformed(Exception):
    """What arrived is not the protocol."""


@dataclass(frozen=True)
class Counts:
    """The server's own account of its guesses.

    drafts: rounds with guesses; None where only tokens are counted. alone: whether no other request
    was counted meanwhile; None where that cannot be told.
    """

    where: str
    drafted: int
    accepted: int
    drafts: int | None = None
    alone: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Its entry of a trace's statistics."""
        rate = self.accepted / self.drafted if self.drafted else None
        return {
            "from": self.where,
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "rate": None if rate is None else float(f"{rate:.6g}"),
            "alone": self.alone,
        }


@dataclass(frozen=True)
class Word:
    """One token as the server tells it. id, p (its probability): None where it does not."""

    text: str
    id: int | None = None
    p: float | None = None


@dataclass(frozen=True)
class Arrival:
    """What one event of the stream brought: tokens, and when it was here.

    prompt_tokens, completion_tokens: the server's own counts so far, None where it gives none.
    """

    at: float
    words: tuple[Word, ...]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass
class Ending:
    """How a stream ended; filled while it runs.

    usage: the server's last account of tokens. timings: llama.cpp's own clock, in milliseconds.
    """

    reason: str = ""
    stop: Any = None
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    model: str = ""


def read(data: str, at: float, before: int, ending: Ending) -> Arrival:
    """Read one event; `before`: tokens that came earlier, by our count."""
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        raise Malformed("sent what is not JSON") from None
    if not isinstance(chunk, dict):
        raise Malformed("sent what is not an object")
    if "error" in chunk:
        raise Malformed(reason(data))
    ending.model = str(chunk.get("model") or ending.model)
    usage, timings = entries(chunk, "usage"), entries(chunk, "timings")
    ending.usage |= usage
    ending.timings |= timings
    prompt = usage.get("prompt_tokens", timings.get("prompt_n"))
    made = usage.get("completion_tokens", timings.get("predicted_n"))
    choices = items(chunk, "choices")
    if not choices or not isinstance(choices[0], dict):
        return Arrival(at, (), prompt, made)
    choice = choices[0]
    delta = entries(choice, "delta") or choice
    # A model that thinks aloud writes that into a field of its own; it is text all the same.
    text = "".join(
        str(delta.get(name) or "") for name in ("reasoning_content", "reasoning", "content", "text")
    )
    if choice.get("finish_reason"):
        ending.reason, ending.stop = str(choice["finish_reason"]), choice.get("stop_reason")
    ids = [x for x in items(choice, "token_ids") if isinstance(x, int)]
    if isinstance(made, int) and timings and not text:
        made = before  # llama.cpp counts a token that is still on its way
    number = len(ids) or (made - before if isinstance(made, int) else int(bool(text)))
    if number <= 0 and text:
        number = 1
    return Arrival(at, _words(text, ids, max(0, number), choice.get("logprobs")), prompt, made)


def _words(text: str, ids: list[int], number: int, logprobs: Any) -> tuple[Word, ...]:
    """The tokens of one event: with texts of their own where the server tells them apart."""
    if number == 0:
        return ()
    texts = [text] + [""] * (number - 1)
    chances: list[float | None] = [None] * number
    told = _told(logprobs)
    if len(told) == number:
        chances = [_probability(logprob) for _, logprob in told]
        if "".join(piece for piece, _ in told) == text:
            texts = [piece for piece, _ in told]
    known: list[int | None] = [*ids] if len(ids) == number else [None] * number
    return tuple(Word(*word) for word in zip(texts, known, chances, strict=True))


def _told(logprobs: Any) -> list[tuple[str, Any]]:
    """(text, log probability) of each token: chat and text completions say it differently."""
    if not isinstance(logprobs, dict):
        return []
    entries = [entry for entry in items(logprobs, "content") if isinstance(entry, dict)]
    if entries:
        return [(str(entry.get("token", "")), entry.get("logprob")) for entry in entries]
    tokens, values = items(logprobs, "tokens"), items(logprobs, "token_logprobs")
    return [(str(token), value) for token, value in zip(tokens, values, strict=False)]


def _probability(logprob: Any) -> float | None:
    if not isinstance(logprob, (int, float)) or not math.isfinite(logprob):
        return None
    return float(f"{min(1.0, math.exp(min(0.0, logprob))):.6g}")


def reason(text: str) -> str:
    """What a server says in a refusal, short enough to show."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()[:200] or "no reason given"
    error = found.get("error", found) if isinstance(found, dict) else found
    message = error.get("message", error.get("detail", error)) if isinstance(error, dict) else error
    return str(message)[:200]


def items(value: Any, name: str) -> list[Any]:
    """A list within an answer; empty where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def entries(value: Any, name: str) -> dict[str, Any]:
    """An object within an answer; empty where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
