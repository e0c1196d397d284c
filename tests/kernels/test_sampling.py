"""Logits to distributions, against transformers' own processors, and the draw at its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.model import NotFinite
from kernels.sampling import (
    _candidates,
    distribution,
    draw,
    fit,
    host,
    most_probable,
    probability,
    top_k,
    top_p,
)
from kernels.settings import Settings

BELOW_ONE = 1 - 2.0**-53
ROW = np.array([2.0, 1.0, 0.5, -1.0, 0.0], dtype=np.float32)


def settings(**values: Any) -> Settings:
    return Settings("x", **({"temperature": 1.0} | values))


def oracle(row: np.ndarray, seen: list[int], s: Settings) -> np.ndarray:
    """The same steps by transformers' logits processors, in the order of its `generate`."""
    import torch
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    steps: list[Any] = []
    if s.repetition_penalty != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(s.repetition_penalty))
    steps.append(TemperatureLogitsWarper(s.temperature))
    if s.top_k:
        steps.append(TopKLogitsWarper(s.top_k))
    if s.top_p < 1:
        steps.append(TopPLogitsWarper(s.top_p))
    scores = LogitsProcessorList(steps)(torch.tensor([seen]), torch.from_numpy(row).double()[None])
    return scores[0].softmax(-1).numpy()


@pytest.mark.parametrize("temperature", [0.05, 0.7, 1.0, 1.8])
@pytest.mark.parametrize("top_k", [0, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [0.01, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("repetition_penalty", [0.8, 1.0, 1.3])
def test_processors_against_transformers(
    temperature: float, top_k: int, top_p: float, repetition_penalty: float
) -> None:
    s = settings(
        temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=repetition_penalty
    )
    rng = np.random.default_rng(7)
    for size in (5, 100, 3000):
        row = rng.normal(0, 3, size).astype(np.float32)
        seen = rng.integers(0, size, 20).tolist()
        expected = oracle(row, seen, s)
        got = distribution(row, s, seen)
        np.testing.assert_allclose(got, expected, atol=1e-12)
        assert got.sum() == pytest.approx(1, abs=1e-12)


def test_greedy_penalty_against_transformers() -> None:
    rng = np.random.default_rng(3)
    s = settings(temperature=0, repetition_penalty=1.7)
    for _ in range(50):
        row = rng.normal(0, 1, 40).astype(np.float32)
        seen = rng.integers(0, 40, 30).tolist()
        expected = oracle(row, seen, settings(repetition_penalty=1.7))
        assert most_probable(row, s, seen) == int(expected.argmax())


def test_a_penalty_changes_the_distribution() -> None:
    """A processor that is silently ignored must be seen (vllm #18902)."""
    plain = distribution(ROW, settings(), [0])
    penalized = distribution(ROW, settings(repetition_penalty=2.0), [0])
    assert penalized[0] < plain[0]
    # Once, however often the token occurs.
    assert (penalized == distribution(ROW, settings(repetition_penalty=2.0), [0, 0, 0])).all()


def test_ties_go_to_the_lowest_id() -> None:
    row = np.array([1.0, 3.0, 3.0, 2.0], dtype=np.float32)
    assert most_probable(row, settings(temperature=0)) == 1


def test_top_p_ties_keep_the_lowest_ids() -> None:
    p = np.array([0.25, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(top_p(p, 0.5), [0.5, 0.5, 0, 0])


def test_top_p_of_a_flat_large_row_reaches_past_the_first_block() -> None:
    p = np.full(30_000, 1 / 30_000)
    kept = top_p(p, 0.9)
    assert np.count_nonzero(kept) == pytest.approx(27_000, abs=1)
    assert kept.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "row",
    [[np.nan, 0, 0], [0, np.nan, 1], [np.inf, 0, 0], [-np.inf] * 3],
    ids=["nan first", "nan later", "infinity", "nothing"],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_not_finite_raise(row: list[float], temperature: float) -> None:
    """Never a token id of the vocabulary's size (vllm #53029)."""
    values = np.array(row, dtype=np.float32)
    choose = distribution if temperature else most_probable
    with pytest.raises(NotFinite):
        choose(values, settings(temperature=temperature))


def test_excluded_tokens_have_exactly_no_probability() -> None:
    row = np.array([0.0, -np.inf, 1.0], dtype=np.float32)
    assert distribution(row, settings())[1] == 0.0


@pytest.mark.parametrize("u", [0.0, 2.0**-53, 0.5, 1 - 2.0**-24, BELOW_ONE])
@pytest.mark.parametrize(
    "p",
    [
        [0.0, 1.0, 0.0],
        [0.0, 0.5, 0.5, 0.0],
        [0.0, 0.0, 1e-300],
        [1e-20, 1.0, 0.0],
        [0.1] * 10 + [0.0],
        [1 / 3] * 3 + [0.0],
    ],
    ids=str,
)
def test_draw_never_takes_an_impossible_token(p: list[float], u: float) -> None:
    token = draw(np.array(p), u)
    assert 0 <= token < len(p)
    assert p[token] > 0


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6).filter(any), st.integers(0, 2**20 - 1))
def test_draw_is_the_inverse_of_the_distribution_function(weights: list[int], n: int) -> None:
    """u in [F(x−1), F(x)) gives x: checked in whole numbers."""
    total = sum(weights)
    token = draw(np.array(weights, dtype=float), n / 2**20)
    below = sum(weights[:token]) * 2**20
    assert below <= n * total < below + weights[token] * 2**20


def test_fit_pads_with_impossible_tokens_and_cuts() -> None:
    row = np.array([[1.0, 2.0]], dtype=np.float32)
    padded = fit(row, 4)
    assert padded.shape == (1, 4)
    assert distribution(padded[0], settings())[2:].sum() == 0
    assert fit(np.ones((3, 5), dtype=np.float32), 2).shape == (3, 2)


def test_probability_is_the_softmax() -> None:
    expected = np.exp(ROW.astype(float)) / np.exp(ROW.astype(float)).sum()
    assert [probability(ROW, i) for i in range(5)] == pytest.approx(list(expected), rel=1e-6)


def test_host_takes_tensors_of_any_precision() -> None:
    import torch

    logits = torch.tensor([[1.0, 2.5]], dtype=torch.bfloat16, requires_grad=True)
    got = host(logits)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [[1.0, 2.5]])


@pytest.mark.parametrize("size", [5, 31, 64, 1000, 49_152])
@pytest.mark.parametrize("k", [1, 3, 40, 900])
def test_candidates_hold_the_largest(size: int, k: int) -> None:
    """The shortcut of top-k and top-p against a full sort, with many ties."""
    rng = np.random.default_rng(size + k)
    for values in (rng.normal(0, 1, size), rng.integers(0, 9, size).astype(float)):
        if k <= size:
            kept = np.sort(_candidates(values, k))[::-1]
            np.testing.assert_array_equal(kept[:k], np.sort(values)[::-1][:k])
            threshold = np.sort(values)[-k]
            cut = np.where(values < threshold, -np.inf, values)
            np.testing.assert_array_equal(top_k(values, k), cut)
