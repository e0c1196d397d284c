"""Figure `speedup`: the formula against sums, simulation and text; presets against reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import content
from figures.speedup import model
from figures.speedup.figure import Speedup
from kernels.hardware import presets


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 0.9, 0.999999, 1.0])
@pytest.mark.parametrize("m", [1, 2, 7, 32])
def test_expected_tokens_is_the_sum_of_powers(alpha: float, m: int) -> None:
    series = sum(alpha**i for i in range(m + 1))
    assert model.expected_tokens(alpha, m) == pytest.approx(series, rel=1e-9)


def test_a_round_simulated_token_by_token_yields_what_the_formula_says() -> None:
    rng = np.random.default_rng(5)
    kept = (rng.random((200_000, 6)) < 0.7).cumprod(axis=1).sum(axis=1)
    assert model.expected_tokens(0.7, 6) == pytest.approx((kept + 1).mean(), abs=0.02)


def test_the_default_and_the_first_preset_are_the_articles_table() -> None:
    numbers = content.numbers()
    p = Speedup(**model.PRESETS["example"]).params()
    for m in (1, 2, 4, 8, 16):
        r = model.round_of(p, m)
        assert r.tokens == pytest.approx(numbers[f"example.tokens{m}"].value)
        assert r.cost == pytest.approx(numbers[f"example.cost{m}"].value)
        assert r.speedup == pytest.approx(numbers[f"example.speedup{m}"].value)
    assert model.best(p).m == numbers["example.best_m"].value == p.m
    assert model.best(replace(p, alpha=0.9)).speedup == pytest.approx(4.674, abs=1e-3)  # the bet
    assert model.best(replace(p, alpha=0.9)).m == 13


def test_v_is_the_rooflines() -> None:
    p = model.Params()
    assert model.verification(p, 32) == 1  # 33 tokens, knee at 295
    knee = 989e12 / 3.35e12
    assert model.verification(replace(p, batch=512), 4) == pytest.approx(5)
    assert model.verification(replace(p, batch=128), 4) == pytest.approx(640 / knee)
    soft = replace(p, batch=128, corner="soft")
    expected = ((1 + (640 / knee) ** 3) / (1 + (128 / knee) ** 3)) ** (1 / 3)
    assert model.verification(soft, 4) == pytest.approx(expected)
    half = replace(p, batch=128, flops_share=0.5)
    assert model.verification(half, 4) == pytest.approx(640 / (knee / 2))
    own = replace(p, hardware="custom", custom_tflops=1.0, custom_gbs=500.0)
    assert model.verification(own, 7) == pytest.approx(8 / 2)
    assert model.verification(replace(p, verify="growth", growth=0.25), 4) == 2
    assert model.verification(replace(p, verify="growth", growth=-0.1), 32) == 0.5


def test_break_even_is_where_the_speedup_is_one() -> None:
    p = model.Params(c=0.2, overhead=0.1)
    for m in (1, 3, 10):
        alpha = model.break_even(p, m)
        assert alpha is not None
        assert model.round_of(replace(p, alpha=alpha), m).speedup == pytest.approx(1)
    # The article: with m = 1 it pays when α > c + v − 1.
    assert model.break_even(model.Params(c=0.3), 1) == pytest.approx(0.3)
    assert model.break_even(model.Params(overhead=8), 4) is None


def test_presets_lose_as_the_reports_say() -> None:
    def of(name: str, **changes: object) -> model.Params:
        return replace(model.Params(**model.PRESETS[name]), **changes)

    def gain(p: model.Params) -> float:
        return model.round_of(p, p.m).speedup

    # llama.cpp 10664: between 7 and 23 % slower, 19.67 against 22.16 tokens/s.
    assert 0.77 < gain(of("poor")) < 0.93
    assert gain(of("poor")) == pytest.approx(19.67 / 22.16, abs=0.01)
    # llama.cpp 25908: slower at α = 0.9 whatever m, and fast without the overhead.
    assert of("overhead").alpha == 0.9
    assert model.best(of("overhead")).speedup < 1 < model.best(of("overhead", overhead=0)).speedup
    assert of("overhead").c == pytest.approx(1000 / 474.6 / (12 - 4 * 1000 / 474.6), abs=0.01)
    # vLLM 17984: behind at batch 32, further behind for larger m, ahead alone.
    assert gain(of("batch")) < 1 < gain(of("batch", batch=1))
    assert gain(of("batch", m=12)) < gain(of("batch"))
    # Our measurement: 33 ms for a row, 88 for four.
    assert model.verification(of("slope"), 3) == pytest.approx(88 / 33, rel=0.01)
    assert gain(of("slope")) < 1


def test_the_puzzle_needs_the_batch() -> None:
    assert not model.puzzle(model.Params())
    assert not any(model.puzzle(model.Params(**x)) for x in model.PRESETS.values())
    assert not any(model.puzzle(model.Params(alpha=0.9, hardware=h)) for h in presets())
    assert model.puzzle(model.Params(alpha=0.9, batch=512))


def test_sentences_name_the_best_m() -> None:
    assert "m = 4" in Speedup().describe("en") and "best m is 8" in Speedup().describe("en")
    assert "No other m" in Speedup(m=8).describe("en")
    assert "No m wins" in Speedup(**model.PRESETS["overhead"]).describe("en")
    assert "slower" in Speedup(**model.PRESETS["poor"]).describe("en")
    assert "longest" in Speedup(alpha=1.0).describe("en")


def test_recorded_races_are_points_with_everything_the_formula_needs() -> None:
    for run in model.runs():
        p = model.Params(
            alpha=run.alpha, c=run.c, m=round(run.m), verify="growth", growth=(run.v - 1) / run.m
        )
        if run.m == round(run.m):
            assert model.round_of(p, round(run.m)).speedup == pytest.approx(run.formula, rel=1e-3)
        assert run.date.startswith("20") and run.device
