"""What holds for every figure: words in both languages, a usable schema, seeded draws."""

import json

import pytest

import content
import figures
from figures import text
from figures.figure import clamp
from figures.rng import Rng


@pytest.mark.parametrize("figure_id", figures.IDS)
@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_every_figure_keeps_the_contract(figure_id: str, lang: str) -> None:
    figure = figures.get(figure_id)
    assert figure.id == figure_id
    words = figure.words(lang)
    needed = {
        "title",
        "try",
        "caption",
        "puzzle.text",
        "puzzle.hint",
        "puzzle.answer",
        "bet.question",
        "bet.why",
    }
    assert needed <= set(words)
    options = [k for k in words if k.startswith("bet.option.")]
    assert len(options) >= 2
    assert figure.bet_answer is None or 0 <= figure.bet_answer < len(options)
    shown = figure()
    assert shown.describe(lang)
    rows = shown.table(lang)
    assert len({len(row) for row in rows}) == 1
    assert all(isinstance(cell, str) for row in rows for cell in row)


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_schema_is_complete(figure_id: str) -> None:
    figure = figures.get(figure_id)
    schema = figure.schema()
    for name, entry in schema.items():
        assert entry["type"] in ("integer", "number", "boolean", "choice", "text", "any"), name
        if entry.get("private"):
            continue
        assert entry["doc"], f"{figure_id}.{name} has no doc"
        if entry["type"] in ("integer", "number"):
            assert entry["min"] <= entry["default"] <= entry["max"], name
        assert clamp(entry, entry["default"]) == (entry["default"], False)
    json.dumps(figure.spec("en", base="/app"), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.1415571, 3, "0.142"),
        (41.791, 3, "41.8"),
        (1840.2, 3, "1,840"),
        (0, 3, "0"),
        (-2.5, 2, "−2.5"),
        (999.6, 3, "1,000"),
        (0.125, 2, "0.13"),
    ],
)
def test_numbers_in_words(value: float, digits: int, expected: str) -> None:
    assert text.num(value, digits) == expected


def test_durations_and_prefixes() -> None:
    assert text.duration(0.0418) == "41.8 ms"
    assert text.duration(12e-6) == "12 µs"
    assert text.duration(2.5) == "2.5 s"
    assert text.si(989e12, "FLOP/s") == "989 TFLOP/s"
    assert text.percent(0.415, 1) == "41.5%"


def test_the_generator_is_sfc32() -> None:
    # Straight from the published recurrence, with numpy's wrap-around instead of masks.
    import numpy as np

    state = np.array([0x9E3779B9, 0x243F6A88, 42, 1], dtype=np.uint32)

    def step() -> int:
        with np.errstate(over="ignore"):
            total = state[0] + state[1] + state[3]
            state[3] += np.uint32(1)
            state[0] = state[1] ^ (state[1] >> np.uint32(9))
            state[1] = state[2] + (state[2] << np.uint32(3))
            state[2] = (state[2] << np.uint32(21)) | (state[2] >> np.uint32(11))
            state[2] = state[2] + total
        return int(total)

    for _ in range(15):
        step()
    ours = Rng(42)
    assert [ours.bits() for _ in range(50)] == [step() for _ in range(50)]


def test_draws_are_uniform() -> None:
    from scipy.stats import kstest

    draws = Rng(7)
    sample = [draws.uniform() for _ in range(20_000)]
    assert min(sample) >= 0 and max(sample) < 1
    assert kstest(sample, "uniform").pvalue > 0.001
