"""gpu-check: what it says without a GPU, how parts fail, and its measures on a fake device."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernels.gpu import check, measure
from kernels.gpu.check import NotRun
from kernels.gpu.graphs import GraphDecoder
from kernels.packed import PackedDecoder
from kernels.race import race
from kernels.settings import Settings
from tests.kernels import tiny
from tests.kernels.fakes import FakePair, LetterTokenizer
from tests.kernels.gpu_fakes import FakeBackend

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


pytestmark = pytest.mark.usefixtures("as_on_a_gpu")


def make(model: PackedDecoder, padded: tuple[int, ...] = (32,)) -> GraphDecoder:
    return GraphDecoder(model, FakeBackend(), (padded[0], 64))


# Without a GPU ----------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_is_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "new" / "gpu.json"
    assert check.main(["--json", str(out), "--records", str(tmp_path / "records")]) == 0
    record = json.loads(out.read_text())
    assert record["schema"] == check.SCHEMA
    assert record["ran"] is False
    assert record["parts"] == record["failed"] == {}
    assert set(record["not_run"]) == set(check.PARTS)
    assert set(record["not_run"].values()) == {record["reason"]}
    assert torch.__version__ in record["reason"]
    assert not (tmp_path / "records").exists()
    assert record["reason"] in capsys.readouterr().err


# One part after the other -----------------------------------------------------------------------


def test_a_part_that_fails_does_not_stop_the_others() -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("the device went away")

    def impossible() -> dict[str, Any]:
        raise NotRun("no weights here")

    def needs_triton() -> dict[str, Any]:
        raise ImportError("No module named 'triton'", name="triton")

    def needs_more() -> dict[str, Any]:
        raise ImportError("No module named 'other'", name="other")

    found: dict[str, Any] = {}
    parts = {
        "broken": broken,
        "impossible": impossible,
        "triton": needs_triton,
        "other": needs_more,
        "fine": lambda: {"x": 1},
    }
    record = check.run(parts, found, 60)
    assert record["parts"] == {"fine": {"x": 1}}
    assert set(record["failed"]) == {"broken", "other"}
    assert "the device went away" in record["failed"]["broken"]
    assert record["not_run"]["impossible"] == "no weights here"
    assert "pip install" in record["not_run"]["triton"]


def test_nothing_starts_when_the_time_is_over() -> None:
    now = [0.0]

    def slow() -> dict[str, Any]:
        now[0] += 100
        return {}

    parts = dict.fromkeys("abc", slow)
    record = check.run(parts, {}, 150, clock=lambda: now[0])
    assert set(record["parts"]) == {"a", "b"}
    assert record["not_run"] == {"c": "150 seconds were over"}
    assert record["seconds"] == {"a": 100, "b": 100}


def test_every_part_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that only seems to be there: parts are found, records written, 1 returned."""
    monkeypatch.setattr(check, "no_gpu", lambda: None)
    monkeypatch.setattr("kernels.roofline_subjects.describe", lambda device: {"name": "Pretended"})
    fine = set(check.PARTS) - {"bandwidth", "decoding_135m", "decoding_7b", "race", "acceptance"}
    for name in fine:
        monkeypatch.setattr(check.Check, name, lambda self: {"made": "up"})
    for name in ("bandwidth", "race", "acceptance"):
        monkeypatch.setattr(check.Check, name, lambda self: 1 / 0)
    status = check.main(["--json", str(tmp_path / "o.json"), "--records", str(tmp_path)])
    record = json.loads((tmp_path / "o.json").read_text())
    assert status == 1
    assert set(record["parts"]) == fine == {"tiles", "roofline"}
    assert set(record["failed"]) >= {"bandwidth", "race", "acceptance"}
    assert json.loads((tmp_path / "tiles.json").read_text()) == {"made": "up"}
    assert (tmp_path / "roofline.json").exists()
    assert "ZeroDivisionError" in capsys.readouterr().err


# The measures -----------------------------------------------------------------------------------


def test_random_weights_make_a_decoder() -> None:
    model = measure.RandomDecoder(SMALL, "cpu")
    assert model.precision == "bf16"
    # q, k, v, output, gate and up, down, and the tied head
    assert model.weight_bytes == 2 * (64 * 128 + 64 * 64 + 64 * 192 + 96 * 64 + 97 * 64)
    first = model.forward([1, 2, 3], model.new_cache(5))
    assert float(first.std()) > 0
    again = measure.RandomDecoder(SMALL, "cpu").forward([1, 2, 3], model.new_cache(5))
    assert torch.equal(first, again)
    untied = measure.RandomDecoder(SMALL | {"tie_word_embeddings": False}, "cpu")
    assert not torch.equal(untied.forward([1, 2, 3], untied.new_cache(5)), first)


def test_decoding_is_measured() -> None:
    found = measure.decoding(measure.RandomDecoder(SMALL, "cpu"), 1e9, passes=3, make=make)
    for kind, rows in (("padded", 32), ("one_row", 1)):
        part = found[kind]
        assert part["rows"] == rows
        assert part["share_of_bandwidth"] == found["weight_bytes"] / part["pass_s"] / 1e9
        assert part["plain_tokens_per_s"] * part["pass_s"] == pytest.approx(1)
    assert set(found["verify_cost"]) == {"2", "5", "9", "17"}
    assert found["rows_compared"] == 4 * 63
    json.dumps(found)


def test_rows_that_differ_are_counted() -> None:
    class Interacting(GraphDecoder):
        """One logit moves a little when nine rows run together."""

        def forward(self, tokens: Any, cache: Any, *, last_only: bool = False) -> Any:
            logits = super().forward(tokens, cache, last_only=last_only)
            if len(tokens) == 9:
                logits[3, 5] = np.nextafter(logits[3, 5], np.float32(np.inf))
            return logits

    model = measure.RandomDecoder(SMALL, "cpu")
    honest = measure.equality(make(model))
    found = measure.equality(Interacting(model, FakeBackend(), (32,)))
    assert found["guarantee"] == "close"
    assert found["rows_differing"] == honest["rows_differing"] + 7  # 63 rows, blocks of nine
    assert found["argmax_flipped"] == honest["argmax_flipped"]


def test_a_race_on_graphs_is_the_text_of_transformers(tmp_path: Path) -> None:
    """Both models on graphs, several m, greedy: both lanes write what the oracle writes."""
    from transformers import AutoModelForCausalLM

    big, small = tmp_path / "big", tmp_path / "small"
    tiny.save(big, vocab_size=26, eos_token_id=25)
    tiny.save(small, num_hidden_layers=1, vocab_size=26, eos_token_id=25)
    target, draft = (make(PackedDecoder(folder)) for folder in (big, small))
    pair = FakePair(target, draft, LetterTokenizer())
    model = AutoModelForCausalLM.from_pretrained(big, dtype=torch.float32)
    prompt = pair.tokenizer.encode("speculative")
    wanted = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=24,
        eos_token_id=25,
        pad_token_id=25,
    )[0].tolist()[len(prompt) :]
    assert len(set(wanted)) > 8  # a text, not one letter for ever
    settings = Settings("speculative", length=24, chat=False)
    for m in (1, 4, 16, 2):
        events = list(race(pair, replace(settings, m=m)))
        assert events[-1]["agreement"]["kind"] == "identical"
        emitted = [
            token["id"]
            for event in events
            if event["type"] == "pass" and event["lane"] == "speculative"
            for token in event["tokens"]
            if token["origin"] in ("target", "accepted", "supplied", "bonus")
        ]
        assert emitted == wanted
    found = measure.racing(pair, ["speculative"], length=12, m=2)
    assert found["greedy_identical"]
    assert len(found["races"]) == 2
    assert all(0 <= share < 1 for share in found["races"][0]["overhead"].values())


@pytest.mark.gpu
def test_everything_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    assert check.main(["--json", str(tmp_path / "o.json"), "--minutes", "0.5"]) == 0


def test_the_package_imports_nothing() -> None:
    before = set(sys.modules)
    importlib.reload(importlib.import_module("kernels.gpu"))
    assert set(sys.modules) == before
