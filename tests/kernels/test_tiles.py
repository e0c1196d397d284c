"""The recorded tile schedule: right product, every tile once, times that add up."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import numpy as np
import pytest

from kernels.tiles import ATTEMPTS, Tile, TiledProduct, check, record


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return record(rows=384, columns=257, tile_rows=32, tokens=(1, 5), repeats=3)


def test_the_product_is_that_of_one_plain_product() -> None:
    random = np.random.default_rng(3)
    weights = random.standard_normal((384, 1823), dtype=np.float32)
    x = random.standard_normal((5, 1823), dtype=np.float32)
    product = TiledProduct(weights, 32, 2)
    try:
        y, seconds, events = product.run(x, trace=True)
    finally:
        product.close()
    # Weights are rounded to BF16 (8 bits): 1823 terms of about 2⁻⁹ relative error each.
    expected = x.astype(np.float64) @ weights.astype(np.float64).T
    np.testing.assert_allclose(y, expected, atol=6 * np.sqrt(1823) * 2**-9)
    assert seconds > 0
    assert len(events) == 12


def test_the_time_is_the_units_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that is scheduled late must not make the product look fast."""
    product = TiledProduct(np.ones((64, 8), np.float32), 32, 2)
    real = Tile.times

    def slow(self: Tile, x: Any, out: Any) -> None:
        time.sleep(0.05)
        real(self, x, out)

    class Late(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            ticket = super().wait(timeout)
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.1)
            return ticket

    monkeypatch.setattr(Tile, "times", slow)
    monkeypatch.setattr("kernels.tiles.threading.Barrier", Late)
    try:
        assert product.run(np.ones((1, 8), np.float32), trace=False)[1] >= 0.05
    finally:
        product.close()


def test_tiles_must_cover_the_matrix() -> None:
    with pytest.raises(ValueError, match="no multiple"):
        TiledProduct(np.zeros((10, 4), np.float32), 3, 1)


def test_a_record_holds_its_invariants(small: dict[str, Any]) -> None:
    check(small)
    assert [run["k"] for run in small["runs"]] == [1, 5]
    assert small["runs"][1]["macs_per_tile"] == 5 * small["runs"][0]["macs_per_tile"]
    for run in small["runs"]:
        assert run["relative_error"] < 1e-2
        assert run["untraced_s"] > 0
        assert set(run["columns"]["unit"]) <= set(range(small["units"]))


@pytest.mark.parametrize(
    ("busy", "measured", "contaminated"),
    [([True, True, False], 3, False), ([False], 1, False), ([True] * ATTEMPTS, ATTEMPTS, True)],
)
def test_disturbed_runs_are_repeated(
    monkeypatch: pytest.MonkeyPatch, busy: list[bool], measured: int, contaminated: bool
) -> None:
    left = iter(busy)

    class Contention:
        def __enter__(self) -> Contention:
            return self

        def __exit__(self, *exc: object) -> None:
            self.contaminated = next(left)

    monkeypatch.setattr("kernels.tiles.machine.Contention", Contention)
    result = record(rows=64, columns=64, tile_rows=32, tokens=(1,), repeats=1)
    assert result["contaminated"] is contaminated
    assert len(busy) - len(list(left)) == measured


def twice(value: dict[str, Any]) -> None:
    value["runs"][0]["columns"]["tile"][0] = value["runs"][0]["columns"]["tile"][1]


def backwards(value: dict[str, Any]) -> None:
    c = value["runs"][0]["columns"]
    c["done"][3] = c["issue"][3] - 1


def longer(value: dict[str, Any]) -> None:
    value["runs"][1]["traced_s"] += 1.0


def smaller(value: dict[str, Any]) -> None:
    value["tile"]["bytes"] -= 4


@pytest.mark.parametrize("spoil", [twice, backwards, longer, smaller])
def test_a_spoiled_record_is_refused(small: dict[str, Any], spoil: Any) -> None:
    value = copy.deepcopy(small)
    spoil(value)
    with pytest.raises(ValueError, match=r"tile|two things|span"):
        check(value)
