"""Who guesses: a small model, look-up in the text so far, or both in turn.

A drafter proposes tokens together with the distribution q each was drawn from. Nothing else about
it matters for correctness: a bad drafter costs time, never a different text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.acceptance import Guess
from kernels.clock import LaneClock
from kernels.randomness import Purpose, Randomness
from kernels.sampling import (
    Distribution,
    distribution,
    draw,
    fit,
    host,
    most_probable,
    probability,
)
from kernels.settings import Settings

if TYPE_CHECKING:
    from kernels.model import Decoder
    from kernels.ngrams import NgramTable


@dataclass(slots=True)
class Drafting:
    """One step of a drafter: the guesses it adds (none: only reading), and what it cost.

    start, end: seconds on the lane's clock. rows: tokens the draft model read (0 for look-up).
    """

    guesses: list[Guess]
    start: float
    end: float
    rows: int
    by: str


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
            guess = self._pick(logits[-1], text, round_)
            text.append(guess.token)
            yield Drafting([guess], start, end, rows, self.by)

    def _pick(self, row: NDArray[Any], text: Sequence[int], round_: int) -> Guess:
        """Choose from q: the target's sampling settings apply to the draft alike.

        row: logits (H,) of the tokens that the draft's head knows. The largest probability serves
        as confidence: on held-out text it is about the share of guesses that the target keeps, at
        temperature 0 and 1.
        """
        seen = self._columns(text) if self._settings.repetition_penalty != 1 else ()
        if self._settings.greedy:
            column = most_probable(row, self._settings, seen)
            chance = probability(row, column)
            return Guess(self._token(column), None, self.by, chance, chance)
        q = distribution(row, self._settings, seen)
        column = draw(q, self._randomness.uniform(Purpose.DRAFT, len(text), round_))
        return Guess(
            self._token(column), self._spread(q), self.by, float(q[column]), float(q.max())
        )

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


#: How often the token after an equal n-gram is the same again: greedy text of the embedded pair, on
#: topics the draft has not seen (13 500 places). From 8 tokens on it hardly grows.
CHANCE_BY_MATCH = {2: 0.53, 3: 0.63, 4: 0.68, 5: 0.8, 6: 0.8, 7: 0.8, 8: 0.94}

#: Even a free guess lengthens the verification: not worth it below this chance.
LEAST_FREE_REACH = 0.05


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
        table: NgramTable | None = None,
        least: float = 0.0,
    ) -> None:
        """table: what usually follows. least: leave out entries of it with less chance."""
        self._vocab_size = vocab_size
        self._settings = settings
        self._clock = clock
        self._table = table
        self._least = least
        self._index: dict[tuple[int, ...], int] = {}  # n-gram → where its continuation begins
        self._indexed = 0  # how many tokens of the text have continuations in the index
        self._round = 0  # the round that the index was last brought up to date in

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """Index the prompt; no step, as it takes microseconds."""
        self._learn(prompt)
        return iter(())

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """Guess all at once, or nothing."""
        start = self._clock.now()
        if round_ != self._round:  # later in a round the context ends in guesses
            self._learn(context)
            self._round = round_
        found = self._find(context, m)
        end = self._clock.now()
        if found:
            yield Drafting([self._guess(*item) for item in found], start, end, 0, self.by)

    def _guess(self, token: int, chance: float) -> Guess:
        q = None if self._settings.greedy else one_hot(token, self._vocab_size)
        return Guess(token, q, self.by, 1.0, chance)

    def _learn(self, context: Sequence[int]) -> None:
        """Index every n-gram that has a continuation; later ones replace earlier ones."""
        for end in range(max(self._indexed, 1), len(context)):
            for n in CHANCE_BY_MATCH:
                if end >= n:
                    self._index[tuple(context[end - n : end])] = end
        self._indexed = len(context)

    def _find(self, context: Sequence[int], m: int) -> list[tuple[int, float]]:
        """Up to m (token, chance): as in the text after the longest match, then by the table."""
        found: list[tuple[int, float]] = []
        reach = 1.0
        recent = list(context[-2:])
        for token, chance in chain(self._repeats(context), self._usual(recent)):
            reach *= chance
            if len(found) == m or (found and reach < LEAST_FREE_REACH):
                break
            found.append((token, chance))
            recent.append(token)
        return found

    def _repeats(self, context: Sequence[int]) -> Iterator[tuple[int, float]]:
        """What followed the last equal n-gram of the text, the longest n first."""
        longest = max(CHANCE_BY_MATCH)
        for n in reversed(CHANCE_BY_MATCH):
            begin = self._index.get(tuple(context[-n:])) if len(context) >= n else None
            if begin is not None:
                for i, token in enumerate(context[begin:]):
                    # Each guess that holds makes the match one token longer.
                    yield token, CHANCE_BY_MATCH[min(n + i, longest)]
                return

    def _usual(self, recent: Sequence[int]) -> Iterator[tuple[int, float]]:
        """What the table says after `recent`, which grows with every guess taken."""
        while self._table is not None:
            entry = self._table.find(recent)
            if entry is None or entry[1] < self._least or entry[0] >= self._vocab_size:
                return
            yield entry


#: Guess on only while all guesses so far stand with at least this chance: below it the next one
#: rarely earns what it costs (best of 0.15 to 0.55 on held-out text, BENCHMARKS.md).
LEAST_REACH = 0.25


class TurnDrafter:
    """At every place the first drafter that has a guess: look-up, because it is free, then a model.

    It guesses fewer than m tokens where the guesses so far are unlikely to stand.
    """

    def __init__(self, *drafters: Drafter) -> None:
        self._drafters = drafters

    def read(self, prompt: Sequence[int]) -> Iterator[Drafting]:
        """All drafters read the prompt."""
        for drafter in self._drafters:
            yield from drafter.read(prompt)

    def draft(self, context: Sequence[int], m: int, round_: int) -> Iterator[Drafting]:
        """One step of one drafter at a time."""
        text, reach = list(context), 1.0
        while (left := m - len(text) + len(context)) > 0 and reach >= LEAST_REACH:
            steps = (step for each in self._drafters for step in each.draft(text, left, round_))
            step = next(steps, None)
            if step is None:
                return
            for guess in step.guesses:
                text.append(guess.token)
                reach *= guess.confidence
            yield step


def one_hot(token: int, vocab_size: int) -> Distribution:
    """All probability on one token, (V,)."""
    q = np.zeros(vocab_size)
    q[token] = 1.0
    return q
