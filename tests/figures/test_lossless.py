"""Figure `lossless`: what each rule converges to, by enumeration and by drawing; the two tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from figures.distribution import residual
from figures.lossless import model
from figures.lossless.figure import Lossless, record
from figures.rng import Rng
from tests.figures.pairs import PAIRS

P, Q = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1)


def enumerate_rule(rule: str, p: tuple[float, ...], q: tuple[float, ...]) -> list[float]:
    """What comes out, by adding up everything that can happen, from the rule's own words."""
    size, out = len(p), [0.0] * len(p)
    left = residual(p, q)
    if rule == "greedy":
        guesses = {max(range(size), key=lambda i: (q[i], -i)): 1.0}
    else:
        guesses = {x: q[x] for x in range(size) if q[x] > 0}
    for x, chance in guesses.items():
        if rule == "always":
            out[x] += chance
        elif rule == "equal":
            for own in range(size):
                out[x] += chance * p[own]  # accepted if own == x, and x is written if not
        else:
            stays = min(1.0, p[x] / q[x])
            out[x] += chance * stays
            for y, share in enumerate(p if rule == "again" else left):
                out[y] += chance * (1 - stays) * share
    return out


@pytest.mark.parametrize("rule", model.RULES)
def test_limits_by_exact_enumeration(rule: str) -> None:
    for p, q in PAIRS:
        limit = model.limit(rule, p, q)
        assert math.dist(limit, enumerate_rule(rule, p, q)) < 1e-12
        assert abs(sum(limit) - 1) < 1e-12


def test_only_the_rule_is_always_exact() -> None:
    assert max(model.bias("exact", p, q) for p, q in PAIRS) == 0
    for rule in model.RULES[1:]:
        assert max(model.bias(rule, p, q) for p, q in PAIRS) > 0.05


def test_hand_computed_biases() -> None:
    assert model.limit("again", P, Q) == pytest.approx([0.6, 0.26, 0.14])  # the bet
    assert model.bias("again", P, Q) == pytest.approx(0.1)
    assert model.bias("always", P, Q) == model.bias("equal", P, Q) == pytest.approx(0.2)
    # transformers issue 32867: p = 0.6, q = 0.8 comes out 0.75.
    assert model.limit("greedy", (0.6, 0.4), (0.8, 0.2)) == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("rule", model.RULES)
def test_draws_go_where_the_closed_form_says(rule: str) -> None:
    sampler = model.Sampler(P, Q, seed=11)
    sampler.run(40_000)
    wanted = np.array(model.limit(rule, P, Q)) * 40_000
    assert chisquare(sampler.counts[rule], wanted).pvalue > 1e-3
    if rule != "exact":
        assert model.fit(sampler.counts[rule], P).pvalue == pytest.approx(0, abs=1e-12)


def test_draws_with_zeros_and_equals() -> None:
    sampler = model.Sampler((0.6, 0.4, 0.0), (0.0, 0.5, 0.5), seed=2)
    sampler.run(5_000)
    assert sampler.counts["exact"][2] == 0 < sampler.counts["always"][2]
    same = model.Sampler(P, P, seed=2)
    same.run(5_000)
    assert same.counts["exact"] == same.counts["always"] == same.counts["again"]


def test_going_on_is_the_same_as_going_at_once() -> None:
    one, two = model.Sampler(P, Q, 5), model.Sampler(P, Q, 5)
    one.run(777)
    two.run(100)
    two.run(777)
    two.run(50)  # already there
    assert one.counts == two.counts and one.n == two.n == 777


def test_a_draw_is_three_numbers_of_the_seed() -> None:
    rng, sampler = Rng(4), model.Sampler(P, Q, 4)
    for n in range(1, 30):
        a, b, c = rng.uniform(), rng.uniform(), rng.uniform()
        before = {rule: list(x) for rule, x in sampler.counts.items()}
        sampler.run(n)
        wrote = {
            rule: next(i for i in range(3) if x[i] > before[rule][i])
            for rule, x in sampler.counts.items()
        }
        x = 0 if a < 0.7 else 1 if a < 0.9 else 2
        own = 0 if c < 0.5 else 1 if c < 0.8 else 2
        stays = b < P[x] / Q[x]
        assert wrote["always"] == wrote["equal"] == x
        assert wrote["exact"] == (x if stays else 1 if c < 0.5 else 2)
        assert wrote["again"] == (x if stays else own)
        assert wrote["greedy"] == (0 if b < 5 / 7 else 1 if c < 0.5 else 2)


@pytest.mark.parametrize("degrees", range(1, 10))
def test_survival_is_scipys(degrees: int) -> None:
    for x in (0.0, 0.01, 0.5, 1, 3, 10, 40, 200):
        expected = chi2.sf(x, degrees)
        assert model.survival(x, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_fit_is_pearsons() -> None:
    found = model.fit([48, 35, 17], P)
    expected = chisquare([48, 35, 17], [50, 30, 20])
    assert found.chi2 == pytest.approx(expected.statistic)
    assert found.pvalue == pytest.approx(expected.pvalue)
    assert found.distance == pytest.approx(0.05)
    assert found.degrees == 2
    assert model.fit([0, 0, 0], P).pvalue is None
    assert model.fit([1, 1, 0], P).pvalue is None  # too few to tell
    pooled = model.fit([96, 2, 2], (0.96, 0.03, 0.01))  # 3 and 1 expected: one cell, then 96 + 4
    assert pooled.degrees == 0 and pooled.pvalue is None
    impossible = model.fit([9, 1], (1.0, 0.0))
    assert impossible.pvalue == 0 and math.isinf(impossible.chi2)


def test_the_band_holds_for_draws_from_p_itself() -> None:
    rng = np.random.default_rng(1)
    for p in (P, (0.9, 0.05, 0.03, 0.02), (0.5, 0.5)):
        for n in (100, 10_000):
            counts = rng.multinomial(n, p, size=4000)
            away = np.abs(counts / n - np.array(p)).sum(axis=1) / 2
            inside = (away <= model.band(n, len(p))).mean()
            # 95 %, less three standard errors of 4000 trials; 100 draws come in whole steps, which
            # χ² does not know: of 100 throws of a coin 94.3 % are within.
            assert inside >= (0.94 if n > 100 else 0.932)
    assert model.band(0, 3) == 1.0


def test_the_puzzle_has_a_solution_that_is_not_trivial() -> None:
    assert model.puzzle((0.5, 0.5, 0.0), (0.25, 0.25, 0.5))
    assert not model.puzzle(P, P)
    assert not model.puzzle(P, Q)


def test_sentences() -> None:
    text = Lossless(n=1000).describe("en")
    assert "inside the band" in text and "goes to zero" in text and "1,000 draws" in text
    wrong = Lossless(n=1000, rule="again").describe("en")
    assert "outside the band" in wrong and "0.1 remains" in wrong
    assert "No draws yet" in Lossless(n=0).describe("en")
    assert "< 0.0001" in Lossless(n=1000, rule="always").describe("zh")


def test_the_record_counts_as_many_runs_as_it_says() -> None:
    found = record()
    assert found["pair"]["draft"] and found["device"]["name"] and found["command"]
    for experiment in found["experiments"]:
        for length in ("next", "pair"):
            rows = experiment[length]
            assert sum(row["p"] for row in rows) == pytest.approx(1)
            for lane in ("plain", "speculative"):
                counts = [row[lane] for row in rows]
                assert sum(counts) == found["runs"]
                fitted = model.fit(counts, [row["p"] for row in rows])
                assert fitted.pvalue is None or fitted.pvalue > 1e-3
        # Two tokens add up to one.
        for row in experiment["next"]:
            pairs = [r for r in experiment["pair"] if r["text"].startswith(row["text"])]
            assert sum(r["speculative"] for r in pairs) >= row["speculative"]
