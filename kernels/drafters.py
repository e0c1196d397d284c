"""Who guesses: a small model, look-up in the text so far, or both in turn.

A drafter proposes tokens together with the distribution q each was drawn from. Nothing else about
it matters for correctness: a bad drafter costs time, never a different text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.acceptance import Guess
from kernels.clock import LaneClock
from kernels.randomness import Purpose, Randomness
from kernels.sampling import Distribution, distribution, draw, fit, host, most_probable
from kernels.settings import Settings

if TYPE_CHECKING:
    from kernels.model import Decoder


@dataclass(slots=True)
class Drafting:
    """One step of a drafter: the guesses it adds, and what it cost.

    start, end: seconds on the lane's clock. rows: tokens the draft model read (0 for look-up).
    logits: the row the guess came from, (1, H) for a head of H tokens; column: the guess in it. No
    guesses: only reading.
    """

    guesses: list[Guess]
    start: float
    end: float
    rows: int
    by: str
    logits: NDArray[Any] | None = None
    column: int | None = None


class Drafter(Protocol):
    """Anything that guesses."""

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """Prepare for a prompt, before the first round (a model reads it into its cache)."""
        ...

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """Guess up to m tokens after `context`, one step at a time.

        context: all tokens so far; from one round to the next it only grows, but earlier guesses
        may not be in it. The caller may stop the iterator early.
        """
        ...


class ModelDrafter:
    """A small language model that runs ahead of the target, with its own KV cache.

    The cache holds tokens it has read, guesses included. Before each step it is rolled back to what
    it shares with the text, so rejected guesses leave it and nothing is ever read at a wrong place.
    When the draft's context is shorter than the text, it reads on from the recent half of it. A
    head that knows only some tokens leaves q = 0 for the others.
    """

    by = "model"

    def __init__(
        self,
        decoder: Decoder,
        *,
        vocab_size: int,
        capacity: int,
        settings: Settings,
        randomness: Randomness,
        clock: LaneClock,
    ) -> None:
        """vocab_size: the target's. capacity: the longest text of this run, in tokens."""
        self._decoder = decoder
        self._vocab_size = vocab_size
        self._head = decoder.head_ids  # the tokens it scores, None for all
        self._capacity = min(capacity, decoder.context_length)
        self._cache = decoder.new_cache(self._capacity)
        self._settings = settings
        self._randomness = randomness
        self._clock = clock
        self._begin = 0  # where in the text the cache begins
        self._read: list[int] = []  # the tokens in the cache

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """Read the prompt into the cache, all but its last token."""
        # The last token of the prompt stays for the first draft step, which reads on from there.
        if self._readable(prompt) and len(prompt) > 1:
            start = self._clock.now()
            rows = self._forward(prompt[:-1])[0]
            yield Drafting([], start, self._clock.now(), rows, self.by)

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """Guess token by token, one pass each."""
        if not self._readable(context):
            return
        text = list(context)
        for _ in range(m):
            start = self._clock.now()
            rows, logits = self._forward(text)
            end = self._clock.now()
            guess, column = self._pick(logits[-1], text, round_)
            text.append(guess.token)
            yield Drafting([guess], start, end, rows, self.by, logits, column)

    def _pick(self, row: NDArray[Any], text: Sequence[int], round_: int) -> tuple[Guess, int]:
        """Choose from q: the target's sampling settings apply to the draft alike.

        row: logits (H,) of the tokens that the draft's head knows. Returns guess and its column.
        """
        seen = self._columns(text) if self._settings.repetition_penalty != 1 else ()
        if self._settings.greedy:
            column = most_probable(row, self._settings, seen)
            return Guess(self._token(column), None, self.by), column
        q = distribution(row, self._settings, seen)
        column = draw(q, self._randomness.uniform(Purpose.DRAFT, len(text), round_))
        return Guess(self._token(column), self._spread(q), self.by), column

    def _forward(self, text: Sequence[int]) -> tuple[int, NDArray[np.float32]]:
        """Read what is new in `text`; how many tokens that was, and the last logits (1, H)."""
        unread = self._catch_up(text)
        logits = host(self._decoder.forward_compact(unread, self._cache, last_only=True))
        self._read += unread
        if self._head is None:
            logits = fit(logits, self._vocab_size)
        return len(unread), logits

    def _token(self, column: int) -> int:
        return column if self._head is None else int(self._head[column])

    def _columns(self, tokens: Sequence[int]) -> Sequence[int]:
        """The columns of the head that score `tokens`."""
        if self._head is None:
            return tokens
        return [int(column) for column in np.flatnonzero(np.isin(self._head, list(tokens)))]

    def _spread(self, q: Distribution) -> Distribution:
        """q (H,) of the head's tokens as (V,) over all of them: 0 for those it does not know."""
        if self._head is None:
            return q
        whole = np.zeros(self._vocab_size)
        whole[self._head] = q
        return whole

    def _catch_up(self, text: Sequence[int]) -> list[int]:
        """Roll the cache back to what it shares with `text`; the tokens it then has to read.

        At least the last token is read again, for its logits.
        """
        if not self._begin < len(text) <= self._begin + self._capacity:
            # The text has outgrown the cache (or, after guesses ran ahead, begins before it).
            self._begin = max(0, len(text) - max(1, self._capacity // 2))
            self._read.clear()
        window = list(text[self._begin :])
        shared = min(len(self._read), len(window) - 1)
        while self._read[:shared] != window[:shared]:
            shared -= 1
        self._cache.rollback(shared)
        del self._read[shared:]
        return window[shared:]

    def _readable(self, text: Sequence[int]) -> bool:
        """Whether the draft knows all tokens (the target's vocabulary may be padded further)."""
        return max(text) < self._decoder.vocab_size


class LookupDrafter:
    """Guesses that the text repeats itself: continue as after the last equal n-gram.

    Prompt and text so far are the source (Saxena 2023, "prompt lookup decoding"); behind it an
    optional fixed table of n-grams and what usually follows. It costs microseconds; its q is
    one-hot, since it always proposes exactly this token.
    """

    by = "lookup"

    def __init__(
        self,
        *,
        vocab_size: int,
        settings: Settings,
        clock: LaneClock,
        longest: int = 4,
        shortest: int = 2,
        table: Mapping[tuple[int, ...], int] | None = None,
        table_length: int = 2,
    ) -> None:
        """longest, shortest: n of the n-grams. table: from `table_length` tokens to the next."""
        self._vocab_size = vocab_size
        self._settings = settings
        self._clock = clock
        self._lengths = range(longest, shortest - 1, -1)
        self._table = table or {}
        self._table_length = table_length
        self._index: dict[tuple[int, ...], int] = {}  # n-gram → where its continuation begins
        self._indexed = 0  # how many tokens of the text have continuations in the index

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """Index the prompt; no step, as it takes microseconds."""
        self._learn(prompt)
        return iter(())

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """Guess all at once, or nothing."""
        start = self._clock.now()
        self._learn(context)
        tokens = self._find(context, m)
        end = self._clock.now()
        if tokens:
            yield Drafting([self._guess(token) for token in tokens], start, end, 0, self.by)

    def _guess(self, token: int) -> Guess:
        if self._settings.greedy:
            return Guess(token, None, self.by)
        return Guess(token, one_hot(token, self._vocab_size), self.by)

    def _learn(self, context: Sequence[int]) -> None:
        """Index every n-gram that has a continuation; later ones replace earlier ones."""
        for end in range(max(self._indexed, 1), len(context)):
            for n in self._lengths:
                if end >= n:
                    self._index[tuple(context[end - n : end])] = end
        self._indexed = len(context)

    def _find(self, context: Sequence[int], m: int) -> list[int]:
        for n in self._lengths:
            begin = self._index.get(tuple(context[-n:]))
            if begin is not None and len(context) >= n:
                return list(context[begin : begin + m])
        text = list(context[-self._table_length :])
        found: list[int] = []
        while len(found) < m:
            token = self._table.get(tuple(text[-self._table_length :]))
            if token is None:
                break
            found.append(token)
            text.append(token)
        return found


class TurnDrafter:
    """Look-up first, because it is free; the model where look-up knows nothing."""

    def __init__(self, *drafters: Drafter) -> None:
        self._drafters = drafters

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """All drafters read the prompt."""
        for drafter in self._drafters:
            yield from drafter.read(prompt)

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """The guesses of the first drafter that has any."""
        for drafter in self._drafters:
            guessed = False
            for step in drafter.draft(context, m, round_):
                guessed = True
                yield step
            if guessed:
                return


def one_hot(token: int, vocab_size: int) -> Distribution:
    """All probability on one token, (V,)."""
    q = np.zeros(vocab_size)
    q[token] = 1.0
    return q
