"""`python -m kernels lossless`: what it counts, on models whose exact distributions are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import lossless
from kernels.errors import SdError
from kernels.sampling import top_k
from tests.kernels.fakes import (
    FakePair,
    LetterTokenizer,
    TabularDecoder,
    exact_sequences,
    random_table,
    softmax,
)

RUNS = 1500
PROMPT = [0, 2]


def pair(**options: Any) -> tuple[TabularDecoder, TabularDecoder]:
    """A target and a draft that disagree, over five tokens."""
    target = TabularDecoder(random_table(1, 5, order=2), **options)
    draft = TabularDecoder(random_table(2, 5), head_ids=[0, 1, 3, 4])
    return target, draft


def exact(target: TabularDecoder) -> dict[tuple[int, ...], float]:
    """Probabilities of two more tokens when sampling from the three likeliest, by enumeration."""
    return exact_sequences(
        lambda text: softmax(top_k(target.row(list(text)).astype(np.float64), 3)), PROMPT, 2
    )


def test_remembered_logits_are_the_decoders() -> None:
    target, draft = pair()
    for decoder in (target, draft):
        remembered = lossless.Remembered(decoder)
        ours, theirs = remembered.new_cache(16), decoder.new_cache(16)
        for tokens, last_only in (([0, 1, 2], True), ([3, 4], False), ([1], False)):
            assert np.array_equal(
                remembered.forward(tokens, ours, last_only=last_only),
                decoder.forward(tokens, theirs, last_only=last_only),
            )
        before = remembered.computed
        ours.rollback(3)
        theirs.rollback(3)
        assert np.array_equal(remembered.forward([3, 4], ours), decoder.forward([3, 4], theirs))
        assert remembered.computed == before  # nothing is computed twice
        with pytest.raises(ValueError, match="roll back"):
            ours.rollback(99)


def test_counts_follow_the_exact_probabilities_of_both_lanes() -> None:
    target, draft = pair()
    expected = exact(target)
    found = lossless.count(
        lossless.Remembered(target),
        lossless.Remembered(draft),
        LetterTokenizer(),
        PROMPT,
        range(RUNS),
    )
    letters = LetterTokenizer()
    wanted = {letters.decode(key): p for key, p in expected.items()}
    assert {row["text"]: row["p"] for row in found["pair"]} == pytest.approx(wanted, abs=1e-6)
    for lane in ("plain", "speculative"):
        assert sum(row[lane] for row in found["pair"]) == RUNS
        away = sum(abs(row[lane] / RUNS - row["p"]) for row in found["pair"]) / 2
        # ½ √(χ²/n) at χ² with 8 degrees of freedom and one in a thousand: 0.066.
        assert away < 0.066, lane
    first = sum(row["p"] for row in found["pair"] if row["text"][0] == found["next"][0]["text"])
    assert found["next"][0]["p"] == pytest.approx(first)


def test_the_first_counted_token_is_a_guess() -> None:
    # The draft proposes what the target never says: guesses that were not judged would show.
    target = TabularDecoder(np.log(np.array([[0.5, 0.5, 1e-30]] * 3)))
    draft = TabularDecoder(np.log(np.array([[1e-30, 1e-30, 1.0]] * 3)))
    remembered = lossless.Remembered(target), lossless.Remembered(draft)
    outcomes = {
        lossless.outcome("speculative", *remembered, LetterTokenizer(), [0, 1], seed)
        for seed in range(200)
    }
    assert outcomes == {(a, b) for a in (0, 1) for b in (0, 1)}
    assert remembered[1].computed > 0  # it was asked


def test_a_text_may_end_with_its_first_token() -> None:
    target, draft = pair(end_tokens=(1,))
    found = lossless.count(
        lossless.Remembered(target),
        lossless.Remembered(draft),
        LetterTokenizer((1,)),
        PROMPT,
        range(300),
    )
    short = [row for row in found["pair"] if len(row["text"]) == 1]
    assert [row["text"] for row in short] == ["b"]
    for lane in ("plain", "speculative"):
        one = next(row for row in found["next"] if row["text"] == "b")
        assert short[0][lane] == one[lane]
    assert sum(row["p"] for row in found["pair"]) == pytest.approx(1)


def test_a_pair_without_a_draft_is_refused() -> None:
    with pytest.raises(SdError, match="--draft") as raised:
        lossless.record(FakePair(pair()[0], None), runs=1, command="")
    assert raised.value.code == "no_draft"


def test_the_command_writes_both_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = pair(context_length=400)
    draft.context_length = 400
    fake = FakePair(target, draft)
    fake.target_id, fake.draft_id = "target", "draft"  # type: ignore[attr-defined]
    letters = LetterTokenizer()
    monkeypatch.setattr(letters, "encode", lambda text: [len(text) % 5])
    monkeypatch.setattr(fake, "tokenizer", letters)
    monkeypatch.setattr(lossless, "load_pair", lambda: fake)
    out, contexts = tmp_path / "deep" / "pair.json", tmp_path / "contexts.json"
    assert lossless.main(["--runs", "20", "--out", str(out), "--contexts", str(contexts)]) == 0
    counted, found = json.loads(out.read_text()), json.loads(contexts.read_text())
    assert counted["runs"] == 20 and len(counted["experiments"]) == 2
    assert len(found["contexts"]) == lossless.KEPT and found["of"] == len(lossless.CONTEXTS)
    alphas = [lossless.overlap(context) for context in found["contexts"]]
    assert alphas == sorted(alphas, reverse=True)
    assert counted["command"].startswith("python -m kernels lossless --runs 20")
    assert "total variation distance" in capsys.readouterr().err
