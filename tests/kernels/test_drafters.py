"""Look-up in the text so far, turns, and lengths: what is guessed, not only that it is harmless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.acceptance import Guess, Judged, Verdict
from kernels.clock import LaneClock
from kernels.drafters import Drafting, LookupDrafter, TurnDrafter
from kernels.length import AdaptiveLength, FixedLength, best_length, draft_length, speedup
from kernels.settings import Settings

SIZE = 50


def lookup(temperature: float = 0.0, **values: Any) -> LookupDrafter:
    settings = Settings("x", temperature=temperature)
    return LookupDrafter(vocab_size=SIZE, settings=settings, clock=LaneClock(), **values)


def guesses(drafter: Any, context: list[int], m: int, round_: int = 1) -> list[int]:
    steps = list(drafter.draft(context, m, round_))
    return [guess.token for step in steps for guess in step.guesses]


def by_hand(context: list[int], m: int, longest: int, shortest: int) -> list[int]:
    """The definition, without an index."""
    for n in range(longest, shortest - 1, -1):
        for end in range(len(context) - 1, n - 1, -1):
            if len(context) >= n and context[end - n : end] == context[len(context) - n :]:
                return context[end : end + m]
    return []


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 6), st.data())
def test_look_up_finds_the_last_longest_match(text: list[int], m: int, data: Any) -> None:
    drafter = lookup()
    begin = data.draw(st.integers(0, len(text)))
    list(drafter.read(text[:begin]))
    for end in range(max(begin, 1), len(text) + 1):
        context = text[:end]
        assert guesses(drafter, context, m) == by_hand(context, m, longest=4, shortest=2)


def test_look_up_needs_two_equal_tokens() -> None:
    assert guesses(lookup(), [1, 2, 3, 9, 3], 4) == []
    assert guesses(lookup(), [1, 2, 3, 9, 2, 3], 4) == [9, 2, 3]


def test_look_up_is_certain() -> None:
    (step,) = lookup(temperature=1.0).draft([1, 2, 3, 1, 2], 1, 1)
    (guess,) = step.guesses
    assert guess.q is not None
    assert guess.q[guess.token] == 1.0
    assert guess.q.sum() == 1.0
    assert step.by == guess.by == "lookup"
    assert step.rows == 0


def test_a_table_stands_behind_the_text() -> None:
    drafter = lookup(table={(1, 2): 7, (2, 7): 8, (7, 8): 9}, table_length=2)
    assert guesses(drafter, [5, 1, 2], 2) == [7, 8]
    assert guesses(drafter, [5, 1, 2], 9) == [7, 8, 9]
    assert guesses(drafter, [5, 1, 2, 3, 3], 2) == []
    text_first = lookup(table={(1, 2): 7}, table_length=2)
    assert guesses(text_first, [1, 2, 4, 1, 2], 1) == [4]


class Fixed:
    """A drafter that says what it is told."""

    def __init__(self, *tokens: int, by: str) -> None:
        self.tokens, self.by, self.readings = tokens, by, 0

    def read(self, prompt: Any) -> Iterator[Drafting]:
        self.readings += 1
        return iter(())

    def draft(self, context: Any, m: int, round_: int) -> Iterator[Drafting]:
        for token in self.tokens[:m]:
            yield Drafting([Guess(token, None, self.by)], 0, 0, 1, self.by)


def test_turns_ask_the_second_only_when_the_first_is_silent() -> None:
    first, second = Fixed(1, 2, by="lookup"), Fixed(3, 4, 5, by="model")
    turns = TurnDrafter(first, second)
    list(turns.read([1]))
    assert (first.readings, second.readings) == (1, 1)
    assert guesses(turns, [0], 4) == [1, 2]
    first.tokens = ()
    assert guesses(turns, [0], 2) == [3, 4]
    second.tokens = ()
    assert guesses(turns, [0], 2) == []


# ---- lengths -----------------------------------------------------------------------------------


def verdict(*origins: str) -> Verdict:
    return Verdict([Judged(0, origin) for origin in origins])  # type: ignore[arg-type]


def test_adaptive_length_follows_acceptance() -> None:
    length = AdaptiveLength()
    start = length.next()
    for _ in range(20):
        length.learn(verdict("accepted", "accepted", "bonus"))
    grown = length.next()
    for _ in range(30):
        length.learn(verdict("rejected", "supplied"))
    assert 1 <= length.next() < start < grown <= 16


def test_adaptive_length_ignores_rounds_without_guesses() -> None:
    length = AdaptiveLength()
    before = length.next()
    for _ in range(50):
        length.learn(verdict("target"))
    assert length.next() == before


@pytest.mark.parametrize("c", [0.0, 0.02, 0.12, 0.5, 1.0])
@pytest.mark.parametrize("v", [1.0, 1.4])
def test_best_length_is_the_best_of_all(c: float, v: float) -> None:
    for alpha in np.linspace(0, 1, 21):
        m = best_length(float(alpha), c, v)
        values = [speedup(float(alpha), n, c, v) for n in range(1, 17)]
        assert speedup(float(alpha), m, c, v) == max(values)
        assert m == 1 + values.index(max(values)), "the smallest of equals"


def test_settings_choose_the_length() -> None:
    assert isinstance(draft_length(Settings("x", m="adaptive")), AdaptiveLength)
    fixed = draft_length(Settings("x", m=7))
    assert isinstance(fixed, FixedLength)
    fixed.learn(verdict("rejected"))
    assert fixed.next() == 7
