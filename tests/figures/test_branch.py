"""The branch model against an event simulation, closed forms and cases worked out by hand."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import content
from figures.branch import model
from figures.branch.figure import FIGURE, Branch

DEFAULTS: dict[str, Any] = {
    "n": 8,
    "pattern": "TTTN",
    "mode": "hand",
    "wrong": 0,
    "accuracy": 0.5,
    "seed": 1,
    "condition": 6,
    "body": 4,
    "rollback": 2,
    "m": 4,
    "c": 0.12,
}


def clockwork(right: list[bool], c: int, b: int, r: int, *, guesses: bool) -> int:
    """Advance two units tick by tick; no formula for the length of an iteration is known here."""
    now = 0
    for good in right:
        left = {"check": c, "run": b if guesses else 0}
        known = False
        while True:
            if not known and left["check"] == 0:
                known = True
                if not guesses:
                    left["run"] = b
                elif not good:
                    left["run"] = r + b  # drop what ran ahead, go back, take the other branch
            if known and left["run"] == 0:
                break
            now += 1
            left = {unit: max(0, ticks - 1) for unit, ticks in left.items()}
    return now


costs = st.integers(1, 12)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=10), costs, costs, st.integers(0, 12))
def test_lanes_agree_with_a_tick_by_tick_machine(right: list[bool], c: int, b: int, r: int) -> None:
    values = model.values_of([True] * len(right))
    lane = model.guessing(values, right, c, b, r)
    assert lane.end == clockwork(right, c, b, r, guesses=True)
    assert model.waiting(values, c, b).end == clockwork(right, c, b, r, guesses=False)


@settings(max_examples=200, deadline=None)
@given(
    st.text("TN", min_size=1, max_size=6),
    st.integers(2, 16),
    st.sampled_from(model.MODES),
    st.integers(0, 2**16 - 1),
    costs,
    costs,
    st.integers(0, 12),
)
def test_closed_form_result_and_bars(
    pattern: str, n: int, mode: str, wrong: int, c: int, b: int, r: int
) -> None:
    asked = DEFAULTS | {"pattern": pattern, "n": n, "mode": mode, "wrong": wrong}
    s = model.scene(**asked | {"condition": c, "body": b, "rollback": r})
    k = sum(s.right)
    assert s.without.end == n * (c + b)
    assert s.guessing.end == k * max(c, b) + (n - k) * (c + r + b)
    if k != n * s.breakeven:
        assert (s.guessing.end < s.without.end) == (k / n > s.breakeven)
    # The loop's variables, computed by Python's own loop.
    total = sum(x for x in s.values if x >= 50)
    skipped = sum(x < 50 for x in s.values)
    for lane in (s.without, s.guessing):
        assert (lane.commits[-1].total, lane.commits[-1].skipped) == (total, skipped)
        assert [x.time for x in lane.commits] == sorted(x.time for x in lane.commits)
        # A unit does one thing at a time.
        for unit in ({"condition"}, {"body", "ahead", "wasted", "rollback", "redo"}):
            bars = [x for x in lane.segments if x.kind in unit]
            assert all(a.end <= z.start for a, z in itertools.pairwise(bars))
    kept = [x for x in s.guessing.segments if x.kind in ("ahead", "redo")]
    assert [x.index for x in kept] == list(range(n))
    assert all(x.end - x.start == b for x in kept)


def test_a_wrong_guess_costs_the_rollback_and_nothing_else() -> None:
    s = model.scene(**DEFAULTS | {"n": 2, "pattern": "T", "wrong": 0b11})
    assert s.guessing.end - s.without.end == 2 * 2
    one = [(x.kind, x.start, x.end) for x in s.guessing.segments if x.index == 0]
    assert one == [("condition", 0, 6), ("wasted", 0, 4), ("rollback", 6, 8), ("redo", 8, 12)]


def test_a_long_body_is_cut_short_when_the_condition_is_known() -> None:
    s = model.scene(**DEFAULTS | {"n": 2, "wrong": 0b11, "condition": 3, "body": 9})
    assert next(x for x in s.guessing.segments if x.kind == "wasted").end == 3


@pytest.mark.parametrize(
    ("kind", "pattern", "wrong"),
    [
        # Worked out on paper, eight iterations each: which guesses are wrong.
        ("taken", "TTTN", [4, 8]),
        ("onebit", "TTTN", [4, 5, 8]),
        ("twobit", "TTTN", [4, 8]),
        ("onebit", "TN", [2, 3, 4, 5, 6, 7, 8]),
        ("twobit", "TN", [2, 4, 6, 8]),
        ("twobit", "TTTTNNNN", [5, 6]),
        ("twobit", "N", [1]),
        ("onebit", "N", [1]),
    ],
)
def test_predictors(kind: str, pattern: str, wrong: list[int]) -> None:
    s = model.scene(**DEFAULTS | {"mode": kind, "pattern": pattern})
    assert [i + 1 for i, right in enumerate(s.right) if not right] == wrong
    assert s.misses[kind] == len(wrong)


def test_two_bit_memory_by_hand() -> None:
    _, memory = model.predict("twobit", model.outcomes("NNTTTTNN", 8))
    assert memory == [2, 1, 0, 1, 2, 3, 3, 2]


def test_patterns_that_readers_type() -> None:
    assert model.outcomes("t n1,0 ?", 5) == [True, False, True, False, True]
    assert model.outcomes("", 2) == model.outcomes("成立", 2) == [True, True]


def test_values_make_the_condition_turn_out_as_asked() -> None:
    conditions = model.outcomes("TTN", 16)
    assert [x >= 50 for x in model.values_of(conditions)] == conditions
    assert all(0 <= x < 100 for x in model.values_of(conditions))


def test_chance_follows_accuracy_and_seed() -> None:
    assert all(model.scene(**DEFAULTS | {"mode": "draw", "accuracy": 1.0}).right)
    assert not any(model.scene(**DEFAULTS | {"mode": "draw", "accuracy": 0.0}).right)
    draws = [
        model.scene(**DEFAULTS | {"n": 16, "mode": "draw", "accuracy": 0.7, "seed": seed}).right
        for seed in range(400)
    ]
    share = sum(map(sum, draws)) / (400 * 16)
    assert abs(share - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 6400)
    assert draws[0] != draws[1]


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8])
def test_tokens_of_a_round_are_those_of_the_formula(m: int, alpha: float) -> None:
    """Weigh every way the m guesses can fall: the mean is (1 − α^(m+1)) / (1 − α)."""
    mean = 0.0
    for right in itertools.product([True, False], repeat=m):
        lane = model.together([*right, True, True], 1.0, m, 0.1)
        first = lane.emitted[0].time
        weight = math.prod(alpha if r else 1 - alpha for r in right)
        mean += weight * sum(x.time == first for x in lane.emitted)
    assert mean == pytest.approx((1 - alpha ** (m + 1)) / (1 - alpha), abs=1e-12)


def test_the_language_models_lane_by_hand() -> None:
    lane = model.together([True, False, True, True, True, True], 10, 2, 0.1)
    # Round 1 drafts 0 and 1, keeps 0, supplies 1; round 2 drafts 2 and 3, keeps both, adds the
    # bonus 4; a last pass writes 5.
    origins = ["accepted", "supplied", "accepted", "accepted", "bonus", "target"]
    assert [(x.index, x.origin) for x in lane.emitted] == list(enumerate(origins))
    assert [x.time for x in lane.emitted] == [12, 12, 24, 24, 24, 34]
    fates = [x.fate for x in lane.segments if x.kind == "draft"]
    assert fates == ["accepted", "rejected", "accepted", "accepted"]
    assert model.together([False, True, True, True], 10, 3, 0.1).segments[1].fate == "dropped"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=16), st.integers(1, 8))
def test_the_language_model_writes_every_token_once(right: list[bool], m: int) -> None:
    lane = model.together(right, 6, m, 0.12)
    assert [x.index for x in lane.emitted] == list(range(len(right)))
    assert lane.end == pytest.approx(sum({"draft": 0.72, "pass": 6}[x.kind] for x in lane.segments))


def test_all_right_takes_one_pass_for_m_plus_one_tokens() -> None:
    assert model.together([True] * 15, 1, 4, 0.0).end == 3


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_words(lang: str) -> None:
    faster, even, slower = (
        Branch(wrong=0).describe(lang),
        Branch(wrong=0b1111, rollback=4).describe(lang),
        Branch(wrong=0xFF).describe(lang),
    )
    assert "1.67" in faster
    assert "48" in faster
    assert "16" in slower
    assert "80" in even
    for figure in (Branch(), Branch(llm=True, n=16, mode="twobit")):
        table = figure.table(lang)
        assert len({len(row) for row in table}) == 1
        assert len(table) == figure.n + (4 if figure.llm else 2)
        assert "{" not in figure.describe(lang)


def test_every_word_is_used() -> None:
    """No string without a use, none missing; the frame uses title, try, bet and puzzle."""
    sources = "".join(p.read_text("utf-8") for p in Path(FIGURE.folder()).iterdir() if p.is_file())
    own = {k for k in FIGURE.words("en") if not k.startswith("ui.")}
    for key in own:
        if key in ("title", "try", "caption") or key.startswith(("bet.", "puzzle.")):
            continue
        stem, _, last = key.rpartition(".")
        families = {
            "mark": "mark.${kind}",
            "table": "table.${c}",
            "mode": "mode.${",
            "lane": "lane.${name}",
            "say": "say.${key}",
            "map": "map.${row}",
            "control": "control.mode_${value}",
        }
        assert f'"{key}"' in sources or (stem in families and families[stem] in sources), key
        assert last
    for key in re.findall(r'\bt\("([a-z_.]+)"', sources):
        assert key in FIGURE.words("en"), key
    assert FIGURE.words("en").keys() == FIGURE.words("zh").keys()


def test_links_set_the_state_and_are_clamped() -> None:
    figure, clamped = Branch.parse(
        {"branch.n": "99", "branch.mode": "psychic", "branch.wrong": "5"}
    )
    assert (figure.n, figure.mode, figure.wrong) == (16, "hand", 5)
    assert sorted(clamped) == ["mode", "n"]
    assert Branch.schema()["t"]["private"]
