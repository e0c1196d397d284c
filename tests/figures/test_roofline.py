"""Figure 1: the state, its words and its table."""

import pytest

from figures.roofline import model
from figures.roofline.figure import Roofline


def test_the_default_is_the_articles_example() -> None:
    frame = model.frame(Roofline().params())
    assert frame.here.read == pytest.approx(140e9 / 3.35e12)
    assert frame.knee == pytest.approx(295.22, abs=0.01)
    assert not frame.fits
    assert frame.needs == 140e9


def test_the_sentence_reads_the_point() -> None:
    assert "41.8 ms" in Roofline(k=5).describe("en")
    assert "290" in Roofline(k=5).describe("en")  # tokens that are still free: 295 − 5
    assert "285 ms" not in Roofline(k=5).describe("en")
    high = Roofline(k=2000).describe("en")
    assert "283 ms" in high  # 2·2000·70e9 / 989e12
    assert "6.77" in high  # 283.1 / 41.79
    assert "41.8 ms" in Roofline(k=5).describe("zh")


def test_nothing_is_said_to_be_free_past_the_knee() -> None:
    p = Roofline(k=300)
    assert model.frame(p.params()).free == 0
    assert "free" not in p.describe("en") and "cost nothing" not in p.describe("en")


def test_the_puzzle_has_solutions_and_the_default_is_none() -> None:
    def ratio(**state: object) -> float:
        p = Roofline(k=9, **state).params()
        frame = model.frame(p)
        return frame.here.time / frame.decode.time

    assert ratio() < 2
    assert ratio(batch=64) < 2 <= ratio(batch=128)
    assert ratio(model="qwen3-30b-a3b") >= 2


def test_a_custom_device() -> None:
    p = Roofline(hardware="custom", custom_tflops=1.0, custom_gbs=100.0, custom_gb=300.0).params()
    frame = model.frame(p)
    assert frame.here.read == pytest.approx(1.4)
    assert frame.knee == pytest.approx(10)
    assert frame.fits


def test_table_has_a_column_for_each_marker() -> None:
    rows = Roofline(k=7).table("en")
    assert rows[0][1:] == ["k = 1", "k = 5", "k = 7", "k = 2,048"]
    assert all(len(row) == 5 for row in rows)


def test_an_address_sets_and_clamps_the_state() -> None:
    figure, clamped = Roofline.parse(
        {
            "roofline.k": "99999",
            "roofline.batch": "8",
            "roofline.hardware": "<b>",
            "roofline.m": "nan",
            "tiles.k": "3",
        }
    )
    assert (figure.k, figure.batch, figure.hardware, figure.m) == (8192, 8, "h100-sxm", 4)
    assert sorted(clamped) == ["hardware", "k", "m"]


def test_measured_machines_enter_with_their_fit() -> None:
    for key, own in model.measured().items():
        frame = model.frame(Roofline(hardware=key, model="smollm2-135m").params())
        assert frame.here.read == pytest.approx(2 * 134.5e6 / own["bandwidth"])
        assert frame.fits
        assert [p[0] for p in own["points"]] == sorted({p[0] for p in own["points"]})
        assert all(low <= middle <= high for _, middle, low, high in own["points"])
        assert not own["contaminated"], "a disturbed measurement must not ship"
