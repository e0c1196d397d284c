"""Every displayed equation, by its name: what it says is true, and it is what the prose prints.

Each check computes both sides in another way than the formula does: by counting, by simulation of
all cases, or by summing a series. The LaTeX is compared as well, so that an edited formula meets
its check again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pytest

import content
from content import LANGUAGES

LATEX = {
    "read-time": r"\frac{140\ \text{GB}}{3.35\ \text{TB/s}} \approx 41.8\ \text{ms}",
    "compute-time": r"\frac{140\ \text{GFLOP}}{989\ \text{TFLOP/s}} \approx 0.14\ \text{ms}",
    "pass-time": r"t(k) = \max\left(\frac{bN}{B},\ \frac{2Nk}{F}\right)",
    "knee": r"k_{\text{knee}} = \frac{bF}{2B}",
    "acceptance": r"\Pr[\text{accept } x] = \min\left(1,\ \frac{p(x)}{q(x)}\right)",
    "residual": r"r(x) = \frac{\max(0,\ p(x) - q(x))}{\sum_{y} \max(0,\ p(y) - q(y))}",
    "rejection": r"1 - \sum \min(p, q) = \sum \max(0,\ p - q)",
    "lossless": r"\min(p, q) + \max(0,\ p - q) = p",
    "acceptance-rate": r"\alpha = \sum \min(p, q) = 1 - \frac{1}{2}\sum \lvert p - q \rvert",
    "expected-tokens": (
        r"1 + \alpha + \alpha^{2} + \dots + \alpha^{m} = \frac{1 - \alpha^{m+1}}{1 - \alpha}"
    ),
    "speed-up": r"S = \frac{1 - \alpha^{m+1}}{(1 - \alpha)(m c + v)}",
}


def plain(latex: str) -> str:
    """Without the sentence's own comma or full stop, and with words in one language."""
    return re.sub(r"[.,]$", "", latex).replace("接受", "accept")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_prose_prints_the_equations_that_are_checked_here(lang: str) -> None:
    assert {k: plain(v) for k, v in content.article(lang).equations.items()} == LATEX


def test_every_equation_has_a_check_of_its_own() -> None:
    checks = {name for name in globals() if name.startswith("test_equation_")}
    assert checks == {f"test_equation_{name.replace('-', '_')}" for name in LATEX}


def distributions() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs p, q over 3 tokens on a grid, zeros, equality and disjointness among them."""
    grid = [g for g in itertools.product(range(6), repeat=3) if sum(g) == 5]
    for p, q in itertools.product(grid, grid):
        yield np.array(p) / 5, np.array(q) / 5


def walk(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, float]:
    """Follow each drafted token through the rule; return what comes out and how much is kept."""
    out, kept = np.zeros(3), 0.0
    short = np.maximum(0, p - q)
    for x in range(3):
        if q[x] == 0:  # never drafted
            continue
        keep = min(1.0, p[x] / q[x])
        out[x] += q[x] * keep
        kept += q[x] * keep
        if keep < 1:
            out += q[x] * (1 - keep) * short / short.sum()
    return out, kept


def test_equation_read_time() -> None:
    assert pytest.approx(41.8e-3, rel=1e-3) == 140e9 / 3.35e12


def test_equation_compute_time() -> None:
    assert pytest.approx(0.14e-3, rel=0.02) == 140e9 / 989e12


def test_equation_pass_time() -> None:
    # One pass on a machine that reads and computes in steps of a nanosecond, both at once.
    n, b, bandwidth, flops = 1000, 2, 50.0, 900.0
    for k in (1, 5, 9, 18, 40):
        to_read, to_compute, t = float(b * n), 2.0 * n * k, 0.0
        while to_read > 1e-9 or to_compute > 1e-9:
            step = min(x for x in (to_read / bandwidth, to_compute / flops) if x > 1e-12)
            to_read, to_compute = to_read - bandwidth * step, to_compute - flops * step
            to_read, to_compute, t = max(0.0, to_read), max(0.0, to_compute), t + step
        assert t == pytest.approx(max(b * n / bandwidth, 2 * n * k / flops))


def test_equation_knee() -> None:
    for b, bandwidth, flops, n in [(2, 3.35e12, 989e12, 70e9), (1, 2e12, 312e12, 7e9)]:
        k = b * flops / (2 * bandwidth)
        assert b * n / bandwidth == pytest.approx(2 * n * k / flops)


def test_equation_acceptance() -> None:
    # The largest share of offers one may keep without writing any token more often than p says.
    for p, q in distributions():
        for x in range(3):
            if q[x] > 0:
                keep = min(1.0, p[x] / q[x])
                assert q[x] * keep <= p[x] + 1e-15
                assert keep == 1.0 or q[x] * (keep + 1e-6) > p[x]


def test_equation_residual() -> None:
    for p, q in distributions():
        short = np.maximum(0, p - q)
        if short.sum() > 0:
            r = short / short.sum()
            assert r.sum() == pytest.approx(1)
            assert not np.any(r[p <= q])


def test_equation_rejection() -> None:
    for p, q in distributions():
        _, kept = walk(p, q)
        assert 1 - kept == pytest.approx(np.maximum(0, p - q).sum(), abs=1e-12)


def test_equation_lossless() -> None:
    for p, q in distributions():
        out, _ = walk(p, q)
        np.testing.assert_allclose(out, p, atol=1e-12)


def test_equation_acceptance_rate() -> None:
    for p, q in distributions():
        _, kept = walk(p, q)
        assert kept == pytest.approx(np.minimum(p, q).sum(), abs=1e-12)
        assert kept == pytest.approx(1 - np.abs(p - q).sum() / 2, abs=1e-12)


def expected_by_cases(alpha: float, m: int) -> float:
    """Average length of a round over all 2^m patterns of right and wrong guesses."""
    total = 0.0
    for guesses in itertools.product((True, False), repeat=m):
        right = next((i for i, ok in enumerate(guesses) if not ok), m)
        weight = np.prod([alpha if ok else 1 - alpha for ok in guesses])
        total += float(weight) * (right + 1)
    return total


def test_equation_expected_tokens() -> None:
    for alpha, m in itertools.product((0.0, 0.2, 0.8, 0.99), (1, 2, 4, 8)):
        cases = expected_by_cases(alpha, m)
        assert cases == pytest.approx((1 - alpha ** (m + 1)) / (1 - alpha))
        assert cases == pytest.approx(sum(alpha**i for i in range(m + 1)))
    assert expected_by_cases(1.0, 4) == 5


def test_equation_speed_up() -> None:
    # Time for many tokens: plainly one unit each, speculatively rounds of m c + v.
    for alpha, m, c, v in [(0.8, 4, 0.05, 1.0), (0.3, 2, 0.3, 1.1), (0.5, 1, 0.5, 1.0)]:
        rounds = 1e6 / expected_by_cases(alpha, m)
        formula = (1 - alpha ** (m + 1)) / ((1 - alpha) * (m * c + v))
        assert 1e6 / (rounds * (m * c + v)) == pytest.approx(formula)
    # With one guess a round it pays exactly when α > c + v − 1.
    assert (1 + 0.31) / (0.3 + 1) > 1 > (1 + 0.29) / (0.3 + 1)
