"""The acceptance rule at its edges: equal, disjoint, one-hot, u = 0 and u almost 1."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.acceptance import Guess, accepts, judge_greedy, judge_sampled, residual
from kernels.sampling import Distribution

ALMOST_ONE = 1 - 2.0**-24

weights = st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any)


def normalised(counts: list[int]) -> Distribution:
    return np.array(counts, dtype=float) / sum(counts)


def test_u_zero_rejects_a_token_the_target_never_says() -> None:
    assert not accepts(0.0, 0.5, 0.0)  # with <= this would be accepted


def test_u_almost_one_accepts_where_p_is_not_below_q() -> None:
    assert accepts(0.3, 0.3, ALMOST_ONE)
    assert accepts(0.4, 0.3, ALMOST_ONE)
    assert not accepts(0.29, 0.3, ALMOST_ONE)


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 63))
def test_accepts_exactly_when_u_is_below_the_ratio(a: int, b: int, n: int) -> None:
    # Denominators that are powers of two: every product below is exact in float64.
    p, q, u = a / 64, b / 64, n / 64
    assert accepts(p, q, u) == (Fraction(n, 64) < Fraction(a, b))


@given(weights, weights)
def test_residual_is_the_positive_part_normalised(a: list[int], b: list[int]) -> None:
    size = max(len(a), len(b))
    p = normalised(a + [0] * (size - len(a)))
    q = normalised(b + [0] * (size - len(b)))
    r = residual(p, q)
    assert r.sum() == pytest.approx(1, abs=1e-12)
    assert (r >= 0).all()
    assert (r[(q >= p) & ~np.isclose(p, q)] == 0).all()
    over = np.clip(p - q, 0, None)
    if over.sum() > 1e-9:
        np.testing.assert_allclose(r, over / over.sum(), atol=1e-12)
        # With the accepted part it makes up p exactly: the identity the proof rests on.
        np.testing.assert_allclose(np.minimum(p, q) + over.sum() * r, p, atol=1e-12)


def test_residual_of_equal_distributions_is_not_nan() -> None:
    p = np.array([0.2, 0.8])
    np.testing.assert_array_equal(residual(p, p), p)


def test_residual_of_disjoint_distributions_is_p() -> None:
    p, q = np.array([0.0, 0.3, 0.7]), np.array([1.0, 0.0, 0.0])
    np.testing.assert_array_equal(residual(p, q), p)


def test_residual_of_a_one_hot_guess_excludes_it() -> None:
    r = residual(np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(r, [0, 0.6, 0.4])


def judge(p: list[list[float]], q: list[list[float]], tokens: list[int], u: float) -> list[str]:
    guesses = [Guess(t, np.array(row), "model") for t, row in zip(tokens, q, strict=True)]
    verdict = judge_sampled(
        guesses, lambda i: np.array(p[i]), lambda i: u, lambda i: u, lambda i: u
    )
    return [f"{place.origin}:{place.token}" for place in verdict.places]


@pytest.mark.parametrize("u", [0.0, 0.5, ALMOST_ONE])
def test_equal_distributions_accept_always(u: float) -> None:
    row = [0.25, 0.75]
    assert judge([row] * 3, [row] * 2, [1, 0], u)[:2] == ["accepted:1", "accepted:0"]


@pytest.mark.parametrize("u", [0.0, 0.5, ALMOST_ONE])
def test_disjoint_distributions_never_accept(u: float) -> None:
    places = judge([[0.0, 1.0]] * 2, [[1.0, 0.0]], [0], u)
    assert places == ["rejected:0", "supplied:1"]


@pytest.mark.parametrize("u", [0.0, ALMOST_ONE])
def test_one_hot_target_takes_its_token(u: float) -> None:
    assert judge([[0.0, 1.0]] * 2, [[0.5, 0.5]], [1], u) == ["accepted:1", "bonus:1"]
    assert judge([[0.0, 1.0]] * 2, [[0.5, 0.5]], [0], u) == ["rejected:0", "supplied:1"]


def test_nothing_is_judged_after_a_rejection() -> None:
    asked = []

    def target(i: int) -> Distribution:
        asked.append(i)
        return np.array([0.0, 1.0])

    q = np.array([1.0, 0.0])
    judge_sampled([Guess(0, q, "model")] * 3, target, *[lambda i: 0.5] * 3)
    assert asked == [0]


def test_without_guesses_the_token_is_a_plain_step() -> None:
    assert judge([[0.0, 1.0]], [], [], 0.5) == ["target:1"]
    verdict = judge_greedy([], lambda i: 7)
    assert [(place.origin, place.token) for place in verdict.places] == [("target", 7)]


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ([1, 2, 3, 4], ["accepted:1", "accepted:2", "accepted:3", "bonus:4"]),
        ([9, 2, 3, 4], ["rejected:1", "supplied:9"]),
        ([1, 9, 3, 4], ["accepted:1", "rejected:2", "supplied:9"]),
        ([1, 2, 9, 4], ["accepted:1", "accepted:2", "rejected:3", "supplied:9"]),
    ],
)
def test_greedy_keeps_the_common_prefix(best: list[int], expected: list[str]) -> None:
    verdict = judge_greedy([Guess(t, None, "model") for t in (1, 2, 3)], best.__getitem__)
    assert [f"{place.origin}:{place.token}" for place in verdict.places] == expected
    assert [place.token for place in verdict.emitted] == [
        place.token for place in verdict.places if place.origin != "rejected"
    ]
