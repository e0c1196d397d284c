"""The engine of this repository measures: the real pair, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.sources import KernelSource
from kernels import roofline, roofline_live
from kernels.errors import SdError
from kernels.model import load_decoder


@pytest.mark.real_model
def test_the_servers_model_says_what_transformers_says(
    embedded_pair: Any, embedded_folder: Path
) -> None:
    source = KernelSource()
    source._loaded = embedded_pair
    shares: list[float] = []
    sentence = "The capital of France is Paris, and the capital of Spain is Madrid"
    found = source.measure("mask", {"sentence": sentence}, shares.append)
    witness = load_decoder(embedded_folder, backend="hf", precision="fp32")
    tokens = embedded_pair.tokenizer.encode(sentence)
    logits = witness.forward(tokens, witness.new_cache(len(tokens)))[-9:]
    choices = logits.argmax(dim=-1).tolist()
    (engine,) = found["engines"]
    assert [row["id"] for row in engine["alone"]] == choices
    for run in engine["together"]:
        assert [row["id"] for row in run["rows"]] == choices[-run["m"] - 1 :]
    assert found["model"] == embedded_pair.target_id
    assert shares == sorted(shares) and shares[-1] == 1
    with pytest.raises(SdError, match="shorter"):
        source.measure("mask", {"sentence": "word " * 65}, shares.append)


@pytest.mark.real_model
def test_the_loaded_model_is_timed_as_it_is(
    embedded_pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofline, "VISIT_SECONDS", 0.0)
    shares: list[float] = []
    name = embedded_pair.target_id
    record = roofline_live.measure(
        embedded_pair.target, name, watch=shares.append, tokens=(1, 2, 8), seconds=0.0
    )
    (series,) = record["series"]
    assert [point["k"] for point in series["points"]] == [1, 2, 8]
    assert series["shape"] == name
    assert series["bytes"] == embedded_pair.target.weight_bytes
    assert min(shares) == 0 and max(shares) <= 1

    def stop(share: float) -> None:
        raise SdError("cancelled", "Somebody wants to race.")

    with pytest.raises(SdError, match="race"):
        roofline_live.measure(embedded_pair.target, name, watch=stop)
