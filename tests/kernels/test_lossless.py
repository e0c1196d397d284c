"""T5 and T6: the distribution of the text is exactly the target's, by enumeration and by χ²."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kernels.race import encode_prompt, speculative_lane
from kernels.settings import Settings
from tests.kernels import proofs
from tests.kernels.fakes import FakePair, TabularDecoder, random_table
from tests.kernels.proofs import PROMPT, pair, target_row
from tests.kernels.test_sampling import oracle


def sampled(**values: Any) -> Settings:
    return Settings(PROMPT, **({"temperature": 1.0, "drafter": "model"} | values))


@pytest.mark.parametrize("proof", proofs.PROOFS, ids=lambda proof: proof.__name__)
def test_proof(proof: Callable[[], None]) -> None:
    proof()


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("zeros", [0.0, 0.4])
def test_one_round_is_exact(size: int, m: int, zeros: float) -> None:
    for seed in range(1 if size**m > 8 else 3):
        models = pair(size, seed=seed, zeros=zeros)
        proofs.one_round(models, sampled(m=m, length=2 + m))


@pytest.mark.parametrize(
    ("size", "m", "length"), [(2, 1, 6), (2, 2, 5), (2, 3, 5), (3, 2, 4), (4, 1, 3)]
)
def test_whole_texts_are_exact(size: int, m: int, length: int) -> None:
    proofs.whole_texts(pair(size, seed=3, order=1 + m % 2), sampled(m=m, length=length))


@pytest.mark.parametrize(
    "shape",
    [
        {"temperature": 0.4},
        {"temperature": 2.5},
        {"top_k": 1},
        {"top_k": 2},
        {"top_p": 0.5},
        {"top_p": 0.9, "temperature": 0.7},
        {"repetition_penalty": 1.8},
        {"repetition_penalty": 0.7, "top_k": 2, "temperature": 1.3},
    ],
    ids=str,
)
def test_shaped_distributions_are_exact(shape: dict[str, Any]) -> None:
    proofs.whole_texts(pair(3, seed=5), sampled(m=2, length=3, **shape))
    proofs.one_round(pair(3, seed=6), sampled(m=2, length=4, **shape))


@pytest.mark.parametrize("kind", ["self", "disjoint", "one-hot draft", "one-hot target", "head"])
def test_extreme_pairs_are_exact(kind: str) -> None:
    table, other = random_table(0, 3), random_table(50, 3)
    hot = np.full((3, 3), -np.inf)
    hot[np.arange(3), [1, 2, 0]] = 0.0
    no = -np.inf
    left, right = np.array([[0, 1, no]] * 3), np.array([[no, no, 0]] * 3)
    tables = {
        "self": (table, table),
        "disjoint": (left, right),
        "one-hot draft": (table, hot),
        "one-hot target": (hot, table),
        "head": (table, other),
    }[kind]
    head = [0, 2] if kind == "head" else None
    models = FakePair(TabularDecoder(tables[0]), TabularDecoder(tables[1], head_ids=head))
    proofs.whole_texts(models, sampled(m=2, length=4))


def test_both_drafters_in_turn_are_exact() -> None:
    models = pair(2, seed=8)
    proofs.whole_texts(models, sampled(m=2, length=5, drafter="both"))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.8)])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_recorded_q_is_the_drafts_distribution(
    temperature: float, top_k: int, top_p: float, penalty: float
) -> None:
    """T6: against transformers' processors at the very context, guesses before it included."""
    models = pair(8, order=2)
    s = sampled(
        m=4,
        length=25,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=penalty,
        seed=4,
    )
    lane = speculative_lane(models, encode_prompt(models, s), s)
    drafted: list[int] = []
    checked = 0
    for item in lane.passes:
        if item.kind == "draft":
            (token,) = item.tokens
            text = [*lane.transcript.tokens, *drafted]
            expected = oracle(models.draft.row(text), text, s)
            assert token.q == pytest.approx(expected[token.id], abs=1e-12)
            drafted.append(token.id)
        elif item.kind == "verify":
            text = lane.transcript.tokens[: len(lane.transcript.tokens)]
            emitted = sum(token.origin != "rejected" for token in item.tokens)
            before = text[: len(text) - emitted]
            for token in item.tokens:
                if token.origin == "rejected":
                    place = [*before]
                else:
                    place, before = before, [*before, token.id]
                expected = oracle(models.target.row(place), place, s)
                assert token.p == pytest.approx(expected[token.id], abs=1e-12)
                checked += 1
            drafted.clear()
    assert checked > 20


def test_drafted_tokens_follow_q() -> None:
    """χ² of what the draft proposes right after the prompt, over seeds."""
    models = pair(4, seed=1)
    counts = np.zeros((4, 4))
    for seed in range(800):
        s = sampled(m=1, length=3, seed=seed)
        lane = speculative_lane(models, encode_prompt(models, s), s)
        for item in lane.passes:
            if item.kind == "draft":
                counts[lane.transcript.tokens[-1], item.tokens[0].id] += 1
                break
    for context in range(4):
        row = counts[context]
        if row.sum() < 40:
            continue
        q = oracle(models.draft.row([context]), [context], sampled())
        statistic = float(((row - row.sum() * q) ** 2 / (row.sum() * q)).sum())
        assert statistic < stats.chi2.ppf(0.9999, 3)


def test_a_bad_draft_is_slow_but_right() -> None:
    """α of the two models by enumeration is what the rounds show: Σ min(p, q)."""
    models = pair(3, seed=2)
    s = sampled()
    kept = judged = 0
    expected = 0.0
    for seed in range(400):
        run = sampled(m=1, length=3, seed=seed)
        lane = speculative_lane(models, encode_prompt(models, run), run)
        for item in lane.passes:
            context = [lane.transcript.tokens[2]] if lane.transcript.emitted else []
            if item.kind == "verify":
                p = target_row(models, s, context)
                q = oracle(models.draft.row(context), context, s)
                expected += float(np.minimum(p, q).sum())
                kept += item.tokens[0].origin == "accepted"
                judged += 1
                break
    assert judged == 400
    assert abs(kept - expected) < 4 * np.sqrt(judged) / 2
