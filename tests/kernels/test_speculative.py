"""Greedy speculative decoding against an oracle without cache: T1, T2, T3, T4, T9, T12."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.errors import SdError
from kernels.race import encode_prompt, race, speculative_lane
from kernels.settings import Settings
from tests.kernels.fakes import (
    FakePair,
    LetterTokenizer,
    TabularDecoder,
    greedy_sequence,
    random_table,
    run_lane,
)

SIZE = 6
PROMPT = "abcab"
IDS = [0, 1, 2, 0, 1]


def target(**values: Any) -> TabularDecoder:
    return TabularDecoder(random_table(1, SIZE, 2), **values)


def draft(kind: str, **values: Any) -> TabularDecoder:
    table = random_table(1, SIZE, 2)
    if kind == "similar":
        table = table + random_table(2, SIZE, 2) * 0.5
    elif kind == "random":
        table = random_table(3, SIZE, 2)
    elif kind == "wrong":
        table = -table  # its favourite is the target's least probable token
    return TabularDecoder(table, **values)


DRAFTS = ("self", "similar", "random", "wrong")


def settings(**values: Any) -> Settings:
    return Settings(PROMPT, **({"length": 24, "drafter": "model"} | values))


# ---- T1: equality ------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [*range(1, 10), 16, "adaptive"])
@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("drafter", ["model", "lookup", "both"])
def test_greedy_text_is_the_targets(m: int | str, kind: str, drafter: str) -> None:
    pair = FakePair(target(), draft(kind))
    lane, _ = run_lane(pair, settings(m=m, drafter=drafter))
    assert lane.transcript.new_tokens == greedy_sequence(pair.target, IDS, 24)


@pytest.mark.parametrize("kind", DRAFTS)
def test_greedy_text_with_a_penalty_is_plain_decodings(kind: str) -> None:
    pair = FakePair(target(), draft(kind))
    s = settings(repetition_penalty=1.4)
    plain, _ = run_lane(pair, s, "plain")
    speculative, _ = run_lane(pair, s)
    assert speculative.transcript.new_tokens == plain.transcript.new_tokens
    without = greedy_sequence(pair.target, IDS, 24)
    assert plain.transcript.new_tokens != without, "the penalty has to do something"


def test_a_perfect_draft_is_accepted_whole() -> None:
    _, passes = run_lane(FakePair(target(), draft("self")), settings(m=4, length=1 + 5 * 4))
    verified = [item for item in passes if item.kind == "verify"]
    assert [len(item.tokens) for item in verified] == [5] * 4
    assert {token.origin for item in verified for token in item.tokens} == {"accepted", "bonus"}


def test_a_wrong_draft_still_gives_one_token_a_round() -> None:
    _, passes = run_lane(FakePair(target(), draft("wrong")), settings(m=4, length=9))
    verified = [item for item in passes if item.kind == "verify"]
    for item in verified:
        assert [token.origin for token in item.tokens] == ["rejected", "supplied"]


def test_every_guess_is_verified() -> None:
    """The first one too (lattice #243): each guess is judged or behind a refusal."""
    _, passes = run_lane(FakePair(target(), draft("similar")), settings(m=3))
    guessed: list[int] = []
    for item in passes:
        if item.kind == "draft":
            guessed += [token.id for token in item.tokens]
        elif item.kind == "verify":
            assert item.rows == len(guessed) + 1
            judged = [t.id for t in item.tokens if t.origin in ("accepted", "rejected")]
            assert judged == guessed[: len(judged)]
            guessed.clear()


# ---- T2: ends ----------------------------------------------------------------------------------

GREEDY = greedy_sequence(target(), IDS, 24)


@pytest.mark.parametrize("k", range(24))
@pytest.mark.parametrize("kind", ["self", "similar", "wrong"])
def test_the_text_ends_at_an_end_token_wherever_it_falls(k: int, kind: str) -> None:
    end = GREEDY[k]
    expected = GREEDY[: GREEDY.index(end) + 1]
    for lane_name in ("plain", "speculative"):
        pair = FakePair(target(end_tokens=(end,)), draft(kind), LetterTokenizer((end,)))
        lane, passes = run_lane(pair, settings(m=4), lane_name)
        assert lane.transcript.new_tokens == expected
        assert lane.transcript.finished == "end"
        assert lane.transcript.text == pair.tokenizer.decode(expected)
        emitted = [
            t.id for p in passes for t in p.tokens if t.origin not in ("drafted", "rejected")
        ]
        assert emitted == expected, "nothing after the end is reported"


def test_the_first_of_several_end_tokens_ends() -> None:
    ends = (GREEDY[5], GREEDY[9])
    pair = FakePair(target(end_tokens=(ends[0],)), draft("self"), LetterTokenizer((ends[1],)))
    lane, _ = run_lane(pair, settings())
    assert lane.transcript.new_tokens == GREEDY[: min(map(GREEDY.index, ends)) + 1]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("k", range(0, 21, 2))
@pytest.mark.parametrize("kind", ["self", "similar"])
def test_the_text_ends_where_a_stop_text_is_complete(size: int, k: int, kind: str) -> None:
    text = LetterTokenizer().decode(GREEDY)
    stop = text[k : k + size]
    expected = text[: text.index(stop) + size]
    for lane_name in ("plain", "speculative"):
        pair = FakePair(target(), draft(kind))
        lane, _ = run_lane(pair, settings(stop=(stop,)), lane_name)
        assert lane.transcript.text == expected
        assert lane.transcript.finished == "stop"


def test_a_stop_text_in_the_prompt_does_not_end() -> None:
    lane, _ = run_lane(FakePair(target(), draft("self")), settings(stop=("abcab",), length=8))
    assert lane.transcript.emitted == 8


# ---- T3: limits --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("kind", ["self", "wrong"])
@pytest.mark.parametrize("lane_name", ["plain", "speculative"])
def test_length_is_exact(length: int, kind: str, lane_name: str) -> None:
    lane, passes = run_lane(
        FakePair(target(), draft(kind)), settings(m=5, length=length), lane_name
    )
    assert lane.transcript.new_tokens == GREEDY[:length]
    assert lane.transcript.finished == "length"
    if length == 0:
        assert passes == []


@pytest.mark.parametrize("room", range(1, 8))
@pytest.mark.parametrize("length", [6, 7, 8, 24])
def test_the_context_is_filled_exactly(room: int, length: int) -> None:
    """Fakes raise when a cache is larger than the context or a pass runs past its end."""
    for kind in DRAFTS:
        pair = FakePair(target(context_length=5 + room), draft(kind))
        lane, _ = run_lane(pair, settings(m=4, length=length))
        assert lane.transcript.new_tokens == GREEDY[: min(room, length)]
        assert lane.transcript.finished == ("length" if length <= room else "context")


@pytest.mark.parametrize("context", [2, 3, 5, 6, 7, 9, 16])
@pytest.mark.parametrize("m", [1, 4, 16])
def test_a_draft_with_a_shorter_context(context: int, m: int) -> None:
    pair = FakePair(target(), draft("similar", context_length=context))
    lane, _ = run_lane(pair, settings(m=m))
    assert lane.transcript.new_tokens == GREEDY


def test_a_draft_with_a_shorter_context_goes_on_guessing() -> None:
    pair = FakePair(target(), draft("self", context_length=8))
    _, passes = run_lane(pair, settings(m=4))
    assert passes[-1].kind == "verify"
    accepted = sum(token.origin == "accepted" for item in passes for token in item.tokens)
    assert accepted > 12


@pytest.mark.parametrize(
    ("prompt", "code"),
    [("", "empty_prompt"), ("  \n ", "empty_prompt"), ("a" * 64, "prompt_too_long")],
)
def test_prompts_that_cannot_be_answered(prompt: str, code: str) -> None:
    with pytest.raises(SdError) as refused:
        next(race(FakePair(target(), draft("self")), Settings(prompt)))
    assert refused.value.code == code
    if code == "prompt_too_long":
        assert refused.value.detail == {"tokens": 64, "limit": 63}


def test_the_longest_possible_prompt_has_room_for_one_token() -> None:
    lane, _ = run_lane(FakePair(target(), draft("self")), Settings("ab" * 31 + "a", length=9))
    assert lane.transcript.emitted == 1
    assert lane.transcript.finished == "context"


# ---- T4: caches --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DRAFTS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", ["model", "both"])
def test_caches_hold_the_text_after_each_round(kind: str, temperature: float, drafter: str) -> None:
    pair = FakePair(target(), draft(kind))
    s = settings(m=4, temperature=temperature, drafter=drafter)
    lane = speculative_lane(pair, encode_prompt(pair, s), s)
    tokens = lane.transcript.tokens
    (ours,) = pair.target.caches
    (theirs,) = pair.draft.caches
    assert ours is not theirs
    drafted: list[int] = []
    for item in lane.passes:
        if item.kind == "draft":
            if item.by == "model":
                # The draft has read the whole text and its own guesses but the newest.
                assert theirs.slots[: theirs.length] == tokens + drafted
                if temperature == 0:
                    assert item.tokens[0].id == int(pair.draft.row(tokens + drafted).argmax())
            drafted += [token.id for token in item.tokens]
        elif item.kind in ("verify", "decode"):
            assert ours.slots[: ours.length] == tokens[:-1]
            # What was verified, against a fresh forward.
            emitted = [t for t in item.tokens if t.origin != "rejected"]
            for i in range(len(emitted)):
                fresh = pair.target.row(tokens[: len(tokens) - len(emitted) + i])
                np.testing.assert_array_equal(item.logits[i], fresh)
            drafted.clear()


# ---- T9: vocabularies --------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("size", [4, 5, 7, 9])
def test_vocabularies_of_different_size(size: int, temperature: float) -> None:
    """A larger draft never proposes what the target cannot read; a smaller one has q = 0 there."""
    small = TabularDecoder(random_table(4, size, 2))
    pair = FakePair(target(), small)
    s = Settings("abcab", length=30, drafter="model", temperature=temperature)
    lane, passes = run_lane(pair, s)
    assert lane.transcript.emitted == 30
    assert all(token.id < SIZE for item in passes for token in item.tokens)
    if temperature == 0:
        assert lane.transcript.new_tokens == greedy_sequence(pair.target, IDS, 30)


def test_a_reduced_head_proposes_only_what_it_knows() -> None:
    pair = FakePair(target(), draft("self", head_ids=[0, 2, 5]))
    lane, passes = run_lane(pair, settings(m=4, repetition_penalty=1.2))
    plain, _ = run_lane(pair, settings(m=4, repetition_penalty=1.2), "plain")
    assert lane.transcript.new_tokens == plain.transcript.new_tokens
    guesses = {t.id for item in passes if item.kind == "draft" for t in item.tokens}
    assert guesses <= {0, 2, 5}
    assert any(t.origin == "accepted" for item in passes for t in item.tokens)


# ---- T12: one pair, many different runs --------------------------------------------------------


def test_runs_leave_nothing_behind_in_the_pair() -> None:
    pair = FakePair(target(), draft("similar"))
    for m, length in [(1, 24), (16, 3), (4, 24), (2, 0), (7, 11), (16, 24), (1, 1)]:
        for temperature in (0.0, 1.0):
            s = settings(m=m, length=length, temperature=temperature)
            lane, _ = run_lane(pair, s)
            assert lane.transcript.emitted == length
            if temperature == 0:
                assert lane.transcript.new_tokens == GREEDY[:length]
