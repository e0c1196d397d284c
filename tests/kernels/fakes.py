"""Small models whose exact distributions are known, behind the same interface as the real ones."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.passes import Pass
from kernels.race import Lane, encode_prompt, plain_lane, speculative_lane
from kernels.settings import Settings

POISON = -1  # what a rolled-back slot holds: reading it gives NaN logits


class FakeCache:
    """Holds the tokens themselves in the slots where a real cache holds their keys and values."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.slots = [POISON] * capacity

    def rollback(self, length: int) -> None:
        assert 0 <= length <= self.length, f"rollback from {self.length} forward to {length}"
        self.slots[length : self.length] = [POISON] * (self.length - length)
        self.length = length


class TabularDecoder:
    """A Markov model: the next token's logits depend on the last `order` tokens.

    It finds those tokens in its cache, as attention would, so a cache that is stale, shifted or
    shared shows in the logits. `table` has shape (V,) * order + (V,); a shorter context repeats the
    first token.
    """

    device = "cpu"
    precision = "exact"

    def __init__(
        self,
        table: np.ndarray,
        *,
        context_length: int = 64,
        end_tokens: tuple[int, ...] = (),
        name: str = "tabular",
        head_ids: Sequence[int] | None = None,
    ) -> None:
        self.table = table.astype(np.float32)
        self.order = table.ndim - 1
        self.vocab_size = table.shape[-1]
        self.context_length = context_length
        self.end_tokens = end_tokens
        self.name = name
        self.head_ids = None if head_ids is None else np.array(head_ids, dtype=np.int32)
        self.caches: weakref.WeakSet[FakeCache] = weakref.WeakSet()

    def new_cache(self, capacity: int) -> FakeCache:
        assert capacity <= self.context_length, "a cache beyond the context"
        cache = FakeCache(capacity)
        self.caches.add(cache)
        return cache

    def forward(
        self, tokens: Sequence[int], cache: FakeCache, *, last_only: bool = False
    ) -> np.ndarray:
        assert tokens, "a pass over nothing"
        assert cache in self.caches, "somebody else's cache"
        assert cache.length + len(tokens) <= cache.capacity, "past the end of the cache"
        rows = []
        for token in tokens:
            assert 0 <= token < self.vocab_size, f"token {token} is not in the vocabulary"
            cache.slots[cache.length] = token
            cache.length += 1
            rows.append(self.row(cache.slots[: cache.length]))
        logits = np.stack(rows[-1:] if last_only else rows)
        if self.head_ids is not None:
            unknown = np.setdiff1d(np.arange(self.vocab_size), self.head_ids)
            logits[:, unknown] = -np.inf
        return logits

    def forward_compact(
        self, tokens: Sequence[int], cache: FakeCache, *, last_only: bool = False
    ) -> np.ndarray:
        logits = self.forward(tokens, cache, last_only=last_only)
        return logits if self.head_ids is None else logits[:, self.head_ids]

    def row(self, text: Sequence[int]) -> np.ndarray:
        """Logits (V,) after `text`."""
        last = list(text[-self.order :])
        last = [text[0]] * (self.order - len(last)) + last
        if POISON in text:
            return np.full(self.vocab_size, np.nan, dtype=np.float32)
        return self.table[tuple(last)].copy()


def random_table(
    seed: int, vocab_size: int, order: int = 1, spread: float = 1.5, zeros: float = 0.0
) -> np.ndarray:
    """Logits drawn from a normal; a share `zeros` of them −∞ (never a whole row)."""
    rng = np.random.default_rng(seed)
    table = rng.normal(0, spread, (vocab_size,) * (order + 1))
    gone = rng.random(table.shape) < zeros
    gone[..., 0] = False
    table[gone] = -np.inf
    return table


class LetterTokenizer:
    """Token i is the i-th letter. Enough for text; `end_tokens` have none."""

    def __init__(self, end_tokens: tuple[int, ...] = ()) -> None:
        self.end_tokens = end_tokens
        self.special_tokens = frozenset(end_tokens)

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 97 for c in text]

    def chat(self, prompt: str) -> list[int]:
        return self.encode(prompt)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.token_text(t) for t in tokens if t not in self.end_tokens)

    def token_text(self, token: int) -> str:
        return chr(97 + token)

    def token_bytes(self, token: int) -> bytes:
        return self.token_text(token).encode()


@dataclass
class FakePair:
    target: Any
    draft: Any
    tokenizer: Any = field(default_factory=LetterTokenizer)
    name: str = "fake"
    guarantee: str = "exact"
    ngrams: Any = None


def softmax(z: np.ndarray) -> np.ndarray:
    z = z.astype(np.float64)
    e = np.exp(z - z.max())
    return e / e.sum()


def exact_sequences(
    row: Callable[[Sequence[int]], np.ndarray], prompt: Sequence[int], length: int
) -> dict[tuple[int, ...], float]:
    """The probability of every continuation of `length` tokens, straight from the definition.

    row(text): the distribution (V,) of the next token.
    """
    result: dict[tuple[int, ...], float] = {}
    size = len(row(prompt))
    for tokens in itertools.product(range(size), repeat=length):
        probability = 1.0
        for i, token in enumerate(tokens):
            probability *= float(row([*prompt, *tokens[:i]])[token])
            if probability == 0:
                break
        if probability:
            result[tokens] = probability
    return result


def greedy_sequence(decoder: TabularDecoder, prompt: Sequence[int], length: int) -> list[int]:
    """The oracle of greedy decoding: no cache, no engine."""
    text = list(prompt)
    for _ in range(length):
        text.append(int(np.argmax(decoder.row(text))))
    return text[len(prompt) :]


def run_lane(
    pair: FakePair, settings: Settings, lane: str = "speculative"
) -> tuple[Lane, list[Pass]]:
    """One lane run to its end, and its passes."""
    make = {"plain": plain_lane, "speculative": speculative_lane}[lane]
    lane_ = make(pair, encode_prompt(pair, settings), settings)
    passes = list(lane_.passes)
    return lane_, passes
