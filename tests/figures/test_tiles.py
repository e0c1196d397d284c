"""Figure 2: counts at a moment of the recorded run."""

import pytest

from figures.tiles import model
from figures.tiles.figure import Tiles
from kernels.tiles import check

RECORD = model.shipped()


def test_the_shipped_record_is_a_schedule() -> None:
    check(RECORD)
    assert not RECORD["contaminated"]
    assert RECORD["device"]["name"]
    assert RECORD["command"].startswith("python -m kernels tiles")


@pytest.mark.parametrize("run", list(model.RUNS))
def test_counts_end_at_the_exact_totals(run: str) -> None:
    end = model.frame(RECORD, run, 1e6)
    rows, columns = RECORD["matrix"]["rows"], RECORD["matrix"]["columns"]
    assert end.done == end.tiles
    assert end.bytes == end.total_bytes == 2 * rows * columns
    assert end.macs == end.total_macs == rows * columns * model.RUNS[run]
    assert model.frame(RECORD, run, 0).done == 0


def test_the_same_bytes_move_for_every_k() -> None:
    assert len({model.frame(RECORD, run, 0).total_bytes for run in model.RUNS}) == 1


def test_counts_never_fall() -> None:
    span = model.frame(RECORD, "verify", 0).span
    counts = [model.frame(RECORD, "verify", span * i / 50).done for i in range(51)]
    assert counts == sorted(counts)
    assert counts[-1] == model.frame(RECORD, "verify", 0).tiles


def test_the_puzzle_one_tile_of_the_prompt_does_the_work_of_a_whole_layer() -> None:
    first = min(model.find(RECORD, "prefill")["columns"]["done"]) / 1e9
    assert model.frame(RECORD, "prefill", first).macs == model.frame(RECORD, "decode", 0).total_macs


def test_words() -> None:
    assert "0 of 128 tiles" in Tiles().describe("en")
    assert "128 of 128 tiles" in Tiles(run="prefill").describe("en", t=1e6)
    assert len(Tiles().table("zh")) == 8
