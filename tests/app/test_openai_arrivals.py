"""What is read out of a server's stream: events, words, passes that their arrival suggests."""

from __future__ import annotations

from typing import Any

import pytest

from app.inferred import NEAR, InferredLane, agreement, statistics
from kernels.settings import Settings
from kernels.wire import Arrival, Counts, Ending, Malformed, Word, read

SETTINGS = Settings("count", length=20)

# --- passes from arrivals -------------------------------------------------------------------------


def words(*texts: str) -> tuple[Word, ...]:
    return tuple(Word(text) for text in texts)


def test_tokens_that_arrive_together_are_one_pass() -> None:
    lane = InferredLane("speculative", reference=0.02)
    passes = []
    for at, text in ((0.1, "a"), (0.12, "b"), (0.1205, "c"), (0.1209, "d"), (0.14, "e")):
        passes += lane.add(Arrival(at, words(text)))
    passes += lane.close()
    assert [(p.kind, len(p.tokens)) for p in passes] == [
        ("prefill", 1),
        ("verify", 3),
        ("decode", 1),
    ]
    assert [t.origin for t in passes[1].tokens] == ["accepted", "accepted", "target"]
    assert [p.end for p in passes] == pytest.approx([0.1, 0.1209, 0.14])
    assert [p.start for p in passes] == pytest.approx([0.0, 0.1, 0.1209])


def test_fast_passes_are_not_taken_for_one() -> None:
    lane = InferredLane("speculative", reference=NEAR / 2)
    passes = []
    for number in range(4):
        passes += lane.add(Arrival(0.1 + number * 0.4 * NEAR, words("x")))
    assert [p.kind for p in passes + lane.close()] == ["prefill", "decode", "decode", "decode"]


def test_a_plain_pass_makes_one_token_however_they_arrive() -> None:
    lane = InferredLane("plain")
    lane.add(Arrival(0.1, words("a")))
    passes = lane.add(Arrival(0.2, words("b", "c")))
    assert [(p.kind, p.start, p.end) for p in passes] == [
        ("decode", 0.1, pytest.approx(0.15)),
        ("decode", pytest.approx(0.15), pytest.approx(0.2)),
    ]


def test_rates_by_hand() -> None:
    plain, speculative = InferredLane("plain"), InferredLane("speculative", whole=True)
    for lane, arrivals in (
        (plain, [(1.0, "a"), (1.5, "b"), (2.0, "c"), (2.5, "d"), (3.0, "e")]),
        (speculative, [(1.0, "a"), (1.6, "bcd"), (2.0, "e")]),
    ):
        for at, text in arrivals:
            for item in lane.add(Arrival(at, words(*text), completion_tokens=0)):
                lane.log.add(item, item.end)
        for item in lane.close():
            lane.log.add(item, item.end)
        lane.reason = "length"
    told: dict[str, Any] = {"plain": {}, "speculative": {}}
    stats = statistics(plain, speculative, Counts("x", 8, 2), told, 4)
    assert stats["plain"]["tokens_per_s"] == pytest.approx(2)
    assert stats["speculative"]["tokens_per_s"] == pytest.approx(4)
    assert stats["speedup"]["measured"] == pytest.approx(2)
    assert stats["speedup"]["total"] == pytest.approx(1.5)
    assert stats["tokens_per_pass"] == pytest.approx(2)
    assert stats["server"]["counts"]["rate"] == pytest.approx(0.25)
    assert agreement(plain, speculative, SETTINGS) == {"kind": "identical", "by": "text"}


def test_where_texts_part() -> None:
    plain, speculative = InferredLane("plain", reason="end"), InferredLane("speculative")
    plain.words, speculative.words = [*words("a b", " c", " d")], [*words("a", " b c", " e")]
    assert agreement(plain, speculative, SETTINGS) == {"kind": "unfinished"}
    speculative.reason = "end"
    found = agreement(plain, speculative, SETTINGS)
    assert (found["position"], found["plain"]["text"]) == (2, " d")
    speculative.words = [*words("a b", " c")]
    assert agreement(plain, speculative, SETTINGS)["kind"] == "differs", "one is longer"
    plain.words, speculative.words = [Word("a", 1), Word("b", 2)], [Word("a", 1), Word("b", 3)]
    assert agreement(plain, speculative, SETTINGS)["by"] == "ids", "equal texts, other tokens"
    assert agreement(plain, speculative, SETTINGS)["position"] == 1


# --- events of a stream ---------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["", "[]", "3", "{", "null", '{"error": {"message": "x"}}'])
def test_what_is_no_event(data: str) -> None:
    with pytest.raises(Malformed):
        read(data, 0.0, 0, Ending())


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"choices": 3}',
        '{"choices": []}',
        '{"choices": [null]}',
        '{"choices": [{"delta": 7}]}',
        '{"choices": [{"delta": {"content": null}}]}',
        '{"choices": [{"delta": {"role": "assistant"}, "logprobs": [1]}], "usage": null}',
    ],
)
def test_events_without_text(data: str) -> None:
    assert read(data, 1.0, 3, Ending()).words == ()


def test_probabilities_and_texts_of_tokens() -> None:
    told = '{"content": [{"token": "a", "logprob": 0.0}, {"token": "b", "logprob": -Infinity}]}'
    choice = f'{{"delta": {{"content": "ab"}}, "token_ids": [5, 6], "logprobs": {told}}}'
    data = f'{{"choices": [{choice}]}}'
    first, second = read(data, 1.0, 0, Ending()).words
    assert (first, second) == (Word("a", 5, 1.0), Word("b", 6, None))
    # Pieces that do not make up the text are not believed.
    other = data.replace('"token": "a"', '"token": "?"')
    assert [word.text for word in read(other, 1.0, 0, Ending()).words] == ["ab", ""]
