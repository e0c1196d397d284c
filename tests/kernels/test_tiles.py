"""The recorded tile schedule: right product, every tile once, times that add up."""

import copy
from typing import Any

import numpy as np
import pytest

from kernels.tiles import TiledProduct, check, record


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
