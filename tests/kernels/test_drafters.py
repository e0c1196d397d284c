"""Look-up, tables, turns, lengths: what is guessed and when, not only that it is harmless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import ngrams
from kernels.acceptance import Guess, Judged, Verdict
from kernels.clock import LaneClock
from kernels.drafters import (
    CHANCE_BY_MATCH,
    LEAST_FREE_REACH,
    Drafting,
    LookupDrafter,
    TurnDrafter,
)
from kernels.errors import SdError
from kernels.length import AdaptiveLength, FixedLength, draft_length
from kernels.ngrams import NgramTable
from kernels.pairs import presets
from kernels.settings import Settings

SIZE = 50


def lookup(temperature: float = 0.0, **values: Any) -> LookupDrafter:
    settings = Settings("x", temperature=temperature)
    return LookupDrafter(vocab_size=SIZE, settings=settings, clock=LaneClock(), **values)


def guesses(drafter: Any, context: list[int], m: int, round_: int = 1) -> list[int]:
    steps = list(drafter.draft(context, m, round_))
    return [guess.token for step in steps for guess in step.guesses]


def by_hand(context: list[int], m: int) -> list[int]:
    """The definition, without an index: after the last longest match, while it may well stand."""
    for n in range(8, 1, -1):
        for end in range(len(context) - 1, n - 1, -1):
            if len(context) >= n and context[end - n : end] == context[len(context) - n :]:
                found, reach = context[end : end + 1], CHANCE_BY_MATCH[n]
                for i, token in enumerate(context[end + 1 : end + m], start=1):
                    reach *= CHANCE_BY_MATCH[min(8, n + i)]
                    if reach < LEAST_FREE_REACH:
                        break
                    found.append(token)
                return found
    return []


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 16), st.data())
def test_look_up_finds_the_last_longest_match(text: list[int], m: int, data: Any) -> None:
    drafter = lookup()
    begin = data.draw(st.integers(0, len(text)))
    list(drafter.read(text[:begin]))
    for end in range(max(begin, 1), len(text) + 1):
        assert guesses(drafter, text[:end], m, round_=end) == by_hand(text[:end], m)


def test_look_up_needs_two_equal_tokens() -> None:
    assert guesses(lookup(), [1, 2, 3, 9, 3], 4) == []
    assert guesses(lookup(), [1, 2, 3, 9, 2, 3], 4) == [9, 2, 3]


def test_guesses_are_not_learned() -> None:
    """Within a round the context ends in guesses, which may never become text."""
    drafter = lookup()
    text = [1, 2, 3, 1, 2]
    assert guesses(drafter, text, 1, round_=1) == [3]
    assert guesses(drafter, [*text, 3, 7, 7], 1, round_=1) == []
    assert guesses(drafter, [*text, 9, 9], 1, round_=2) == []
    assert drafter._index[(1, 2)] == 5


def test_look_up_is_certain() -> None:
    (step,) = lookup(temperature=1.0).draft([1, 2, 3, 1, 2], 1, 1)
    (guess,) = step.guesses
    assert guess.q is not None
    assert guess.q[guess.token] == 1.0
    assert guess.q.sum() == 1.0
    assert step.by == guess.by == "lookup"
    assert step.rows == 0


def table(**entries: tuple[int, float]) -> NgramTable:
    return NgramTable({tuple(map(int, key[1:].split("_"))): v for key, v in entries.items()})


def test_a_table_stands_behind_the_text() -> None:
    usual = table(_1_2=(7, 0.9), _2_7=(8, 0.8), _8=(9, 0.7))
    assert guesses(lookup(table=usual), [5, 1, 2], 2) == [7, 8]
    assert guesses(lookup(table=usual), [5, 1, 2], 9) == [7, 8, 9]
    assert guesses(lookup(table=usual), [5, 1, 2, 3, 3], 2) == []
    # The text itself comes first, and the table goes on where it ends.
    assert guesses(lookup(table=usual), [1, 2, 4, 1, 2], 1) == [4]
    assert guesses(lookup(table=usual), [3, 8, 3, 3, 8], 9) == [3, 3, 8, 9]


def test_unlikely_entries_are_left_to_the_model() -> None:
    usual = table(_1=(7, 0.9), _7=(8, 0.2), _8=(1, 0.9))
    assert guesses(lookup(table=usual), [1], 3) == [7, 8, 1]
    assert guesses(lookup(table=usual, least=0.3), [1], 3) == [7]


def test_a_free_guess_ends_where_it_would_rarely_stand() -> None:
    usual = table(_1=(1, 0.3))
    assert guesses(lookup(table=usual), [1], 9) == [1, 1]  # 0.3, 0.09, then 0.027


def test_a_table_never_proposes_what_the_target_cannot_read() -> None:
    assert guesses(lookup(table=table(_1=(SIZE, 0.9))), [1], 4) == []


class Fixed:
    """A drafter that says what it is told, one token a step."""

    def __init__(self, *tokens: int, by: str, confidence: float = 1.0) -> None:
        self.tokens, self.by, self.readings = tokens, by, 0
        self.confidence = confidence

    def read(self, prompt: Any) -> Iterator[Drafting]:
        self.readings += 1
        return iter(())

    def draft(self, context: Any, m: int, round_: int) -> Iterator[Drafting]:
        for token in self.tokens[:m]:
            guess = Guess(token, None, self.by, confidence=self.confidence)
            yield Drafting([guess], 0, 0, 1, self.by)


def test_turns_ask_the_next_where_the_first_is_silent() -> None:
    first, second = Fixed(1, by="lookup"), Fixed(3, by="model")
    turns = TurnDrafter(first, second)
    list(turns.read([1]))
    assert (first.readings, second.readings) == (1, 1)
    assert guesses(turns, [0], 4) == [1, 1, 1, 1]
    first.tokens = ()
    assert guesses(turns, [0], 2) == [3, 3]
    second.tokens = ()
    assert guesses(turns, [0], 2) == []


def test_turns_change_place_by_place() -> None:
    usual = lookup(table=table(_3=(5, 0.9), _5=(6, 0.9)), least=0.3)
    assert guesses(TurnDrafter(usual, Fixed(3, by="model")), [1], 7) == [3, 5, 6, 3, 5, 6, 3]


def test_turns_end_where_guesses_rarely_stand() -> None:
    assert guesses(TurnDrafter(Fixed(3, by="model", confidence=0.45)), [1], 9) == [3, 3]
    assert guesses(TurnDrafter(Fixed(3, by="model", confidence=0.1)), [1], 9) == [3]


# ---- lengths -----------------------------------------------------------------------------------


def verdict(*origins: str) -> Verdict:
    return Verdict([Judged(0, origin) for origin in origins])  # type: ignore[arg-type]


def sure(*confidences: float, by: str = "model") -> list[Guess]:
    return [Guess(0, None, by, confidence=confidence) for confidence in confidences]


def test_adaptive_length_goes_on_while_guesses_stand() -> None:
    length = AdaptiveLength(least=0.3)
    assert length.most() == 16
    assert length.goes_on([])
    assert length.goes_on(sure(0.9, 0.9, 0.9))
    assert not length.goes_on(sure(0.9, 0.3))


def test_adaptive_length_corrects_a_drafter_that_promises_too_much() -> None:
    length = AdaptiveLength(least=0.3)
    for _ in range(30):
        length.learn(sure(0.8, 0.8), verdict("rejected", "supplied"))
    assert not length.goes_on(sure(0.8))
    assert length.goes_on(sure(0.8, by="lookup")), "each drafter for itself"
    for _ in range(60):
        length.learn(sure(0.8), verdict("accepted", "bonus"))
    assert length.goes_on(sure(0.8))
    assert length.goes_on(sure(0.4)), "and one that promises too little"


def test_adaptive_length_learns_only_from_what_was_judged() -> None:
    length, other = AdaptiveLength(), AdaptiveLength()
    length.learn(sure(0.5, 0.5, 0.5), verdict("accepted", "rejected", "supplied"))
    other.learn(sure(0.5, 0.5), verdict("accepted", "rejected", "supplied"))
    length.learn([], verdict("target"))
    assert vars(length) == vars(other)


def test_settings_choose_the_length() -> None:
    assert isinstance(draft_length(Settings("x", m="adaptive")), AdaptiveLength)
    fixed = draft_length(Settings("x", m=7))
    assert isinstance(fixed, FixedLength)
    fixed.learn(sure(0.1), verdict("rejected"))
    assert fixed.goes_on(sure(0.0))
    assert fixed.most() == 7


# ---- the table ---------------------------------------------------------------------------------


def test_the_table_counts_the_targets_choices(tmp_path: Path) -> None:
    # After 5 6 the target chose 7 twice and 8 once, whatever was then written.
    texts = [([5], [6, 9], [6, 7]), ([5], [6, 9], [6, 7]), ([5], [6, 9], [6, 8])]
    counted = NgramTable.count(texts)
    assert counted.find([0, 5, 6]) == (7, 2 / 4)
    assert counted.find([1, 6]) == (7, 2 / 4)
    assert counted.find([5]) == (6, 3 / 4)
    assert counted.find([9]) is None
    assert counted.find([]) is None
    counted.save(tmp_path / "t.npz")
    again = NgramTable.load(tmp_path / "t.npz")
    assert len(again) == len(counted)
    assert again.find([0, 5, 6]) == (7, pytest.approx(0.5, abs=1 / 255))
    assert not list(tmp_path.glob("*.part"))


def test_the_table_keeps_the_commonest() -> None:
    texts = [([1], [2], [2])] * 3 + [([3], [4], [4])] * 2 + [([5], [6], [6])]
    counted = NgramTable.count(texts, sizes={2: 0, 1: 2})
    assert [counted.find([i]) is not None for i in (1, 3, 5)] == [True, True, False]


def test_ties_in_the_table_go_to_the_lowest_id() -> None:
    counted = NgramTable.count([([1], [9], [9]), ([1], [4], [4])])
    assert counted.find([1]) == (4, 1 / 3)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a zip", b"text"])
def test_a_damaged_table_is_an_error_with_a_code(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(content)
    with pytest.raises(SdError) as damaged:
        NgramTable.load(path)
    assert damaged.value.code == "corrupt_weights"


def test_the_shipped_table() -> None:
    shipped = NgramTable.load(Path(ngrams.__file__).parent / presets()["embedded"].ngrams)
    assert len(shipped) == 38_000
