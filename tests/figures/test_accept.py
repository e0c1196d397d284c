"""Figure `accept`: the rule against exact enumeration, closed forms and counting; bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from figures import distribution as d
from figures.accept import model
from figures.accept.figure import Accept, contexts, listed, record
from figures.rng import Rng
from tests.figures.pairs import PAIRS


def test_alpha_is_the_overlap_and_one_minus_the_distance() -> None:
    for p, q in PAIRS:
        alpha = d.acceptance(p, q)
        assert abs(alpha - (1 - 0.5 * np.abs(np.subtract(p, q)).sum())) < 1e-12
        assert abs(alpha - (1 - d.distance(p, q))) < 1e-12


def test_kept_and_supplied_add_up_to_p_for_every_small_vocabulary() -> None:
    for p, q in PAIRS:
        # By enumeration of what can happen: guess x, keep it or not, supply y.
        written = [0.0] * len(p)
        for x, chance in enumerate(q):
            if chance == 0:
                continue
            stays = min(1.0, p[x] / chance)
            written[x] += chance * stays
            for y, share in enumerate(d.residual(p, q)):
                written[y] += chance * (1 - stays) * share
        assert math.dist(written, p) < 1e-12
        assert abs(sum(d.residual(p, q)) - 1) < 1e-12


def test_residual_of_equals_and_of_strangers() -> None:
    assert d.residual((0.5, 0.5), (0.5, 0.5)) == [0.5, 0.5]
    assert d.residual((1.0, 0.0), (0.0, 1.0)) == [1.0, 0.0]
    assert d.residual((0.5, 0.3, 0.2), (0.7, 0.2, 0.1)) == pytest.approx([0, 0.5, 0.5])


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ((0.5, 0.3, 0.2), (0.7, 0.2, 0.1)),
        ((0.4, 0.3, 0.2, 0.1), (0.6, 0.4, 0.0, 0.0)),
        ((0.6, 0.4, 0.0, 0.0), (0.0, 0.0, 0.3, 0.7)),
        ((0.25, 0.75), (0.25, 0.75)),
    ],
)
def test_draws_follow_p_and_fill_the_bars_evenly(p: tuple[float], q: tuple[float]) -> None:
    made = model.draws(p, q, seed=3, count=20_000)
    counts = np.array(model.counts(made, len(p)))
    wanted = np.array(p) * len(made)
    assert counts[wanted == 0].sum() == 0
    assert chisquare(counts[wanted > 0], wanted[wanted > 0]).pvalue > 1e-3
    share = np.mean([draw.accepted for draw in made])
    assert share == pytest.approx(d.acceptance(p, q), abs=0.012)
    for draw in made:
        assert 0 <= draw.height < q[draw.guess]
        assert 0 <= draw.place <= p[draw.written]
        # The rule itself, and a guess that is kept is what is written.
        assert draw.accepted == (draw.height < p[draw.guess])
        assert not draw.accepted or draw.written == draw.guess
    for token, high in enumerate(p):
        if high > 0.15:  # evenly: quarters of the bar hold equal numbers of dots
            places = [draw.place / high for draw in made if draw.written == token]
            quarters = np.histogram(places, bins=4, range=(0, 1))[0]
            assert chisquare(quarters).pvalue > 1e-3


def test_the_extremes_never_and_always_refuse() -> None:
    assert all(x.accepted for x in model.draws((0.5, 0.5), (0.5, 0.5), 1))
    assert not any(x.accepted for x in model.draws((1.0, 0.0), (0.0, 1.0), 1))


def test_a_draw_is_three_numbers_of_the_seed() -> None:
    rng = Rng(9)
    u = [rng.uniform() for _ in range(6)]
    first, second = model.draws((0.5, 0.5), (0.2, 0.8), 9, 2)
    for draw, (a, b, _) in zip((first, second), (u[:3], u[3:]), strict=True):
        assert draw.guess == (0 if a < 0.2 else 1)
        assert draw.height == pytest.approx(b * (0.2, 0.8)[draw.guess])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50,30,20", [0.5, 0.3, 0.2]),
        ("1", [1, 0, 0]),
        ("0,0,0", [1 / 3] * 3),
        ("-5,nan,2e0", [0, 0, 1]),
        ("inf,1,1,9", [0, 0.5, 0.5]),
        ("", [1 / 3] * 3),
        ("1_0,.5,.5", [0, 0.5, 0.5]),
    ],
)
def test_weights_are_read_from_any_text(text: str, expected: list[float]) -> None:
    assert d.weights_of(text, 3) == pytest.approx(expected)


def test_tokens_are_two_to_six() -> None:
    assert d.tokens_of("a|b") == ["a", "b"]
    assert d.tokens_of("only") == list(d.TOKENS)
    assert d.tokens_of("||") == list(d.TOKENS)
    assert len(d.tokens_of("a|b|c|d|e|f|g|h")) == 6


def test_pick_never_takes_what_has_no_probability() -> None:
    sums = d.cumulative([0.0, 0.3, 0.0, 0.7, 0.0])
    assert d.pick(sums, 0.0) == 1
    assert d.pick(sums, 0.3) == 3
    assert d.pick(sums, 1 - 2**-33) == 3
    assert d.pick(sums, 1.0) == 3  # beyond what a generator gives: still a token that exists


def test_sentences() -> None:
    text = Accept().describe("en")
    assert "80%" in text and "“the”" in text and "“a” and “this”" in text
    assert "never refused" not in text
    assert "no residual" in Accept(p="1,1,1", q="1,1,1").describe("en")
    assert "residual is p itself" in Accept(p="1,0,0", q="0,1,1").describe("en")
    assert "never offers" in Accept(p="1,1,1", q="1,1,0").describe("en")
    made = model.draws((0.5, 0.3, 0.2), (0.7, 0.2, 0.1), 1, 100)
    assert f"{sum(x.accepted for x in made)} kept" in Accept().describe("en", t=100)
    assert listed(["a", "b", "c"], "and", "en") == "a, b and c"
    assert Accept().table("en", t=100)[1][-1] == str(model.counts(made, 3)[0])


def test_the_puzzle() -> None:
    assert not model.puzzle((0.5, 0.3, 0.2), (0.7, 0.2, 0.1))
    assert model.puzzle((0.34, 0.33, 0.33), (1.0, 0.0, 0.0))
    assert not model.puzzle((0.0, 1.0), (1.0, 0.0))  # refused, but no common favourite
    assert not model.puzzle((0.25, 0.25, 0.25, 0.25), (1.0, 0.0, 0.0, 0.0))  # no favourite at all


def test_recorded_contexts_are_distributions() -> None:
    found = contexts()
    assert len(found) >= 4 and record()["pair"]["draft"]
    for context in found.values():
        assert sum(context["p"]) == pytest.approx(1) and sum(context["q"]) == pytest.approx(1)
        assert len(set(context["tokens"])) == len(context["tokens"]) <= d.SIZES[1]
        assert max(sum(x > 0 for x in context[n]) for n in "pq") <= record()["sampling"]["top_k"]
        assert Accept(context=context["id"]).describe("zh")


def test_no_sentence_shows_the_space_that_a_token_carries() -> None:
    for name in contexts():
        text = Accept(context=name).describe("en")
        assert "“ " not in text
        assert all(row[0] == row[0].strip() for row in Accept(context=name).table("en"))
