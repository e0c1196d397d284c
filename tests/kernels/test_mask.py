"""One pass over m + 1 tokens against m + 1 passes: the comparison sees what it should."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from figures.mask.figure import FIGURE
from kernels import mask
from kernels.cache import Cache
from kernels.errors import SdError
from kernels.model import Description

VOCABULARY = 11


class Causal:
    """Logits that depend on every token up to the row's own, as a fixed hash of the prefix.

    With `leak` a row also depends on how many tokens the pass holds, as with a mask that fails.
    """

    vocab_size = VOCABULARY
    context_length = 64

    def __init__(self, leak: float = 0.0) -> None:
        self.leak = leak
        self.seen: dict[Cache, list[int]] = {}
        self.rows = 0

    def new_cache(self, capacity: int) -> Cache:
        cache = Cache(capacity)
        self.seen[cache] = []
        return cache

    def forward(self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False) -> Any:
        cache.require(len(tokens))
        del self.seen[cache][cache.length :]
        rows = []
        for token in tokens:
            self.seen[cache].append(token)
            rng = np.random.default_rng(self.seen[cache])
            rows.append(rng.standard_normal(VOCABULARY).astype(np.float32))
        cache.length += len(tokens)
        self.rows += len(tokens)
        logits = np.stack(rows) + self.leak * len(tokens)
        return logits[-1:] if last_only else logits

    def describe(self) -> Description:
        return Description("fake", "cpu", "fp32", 1, "a test")


class Letters:
    def encode(self, text: str) -> list[int]:
        return [ord(c) % VOCABULARY for c in text]

    def token_text(self, token: int) -> str:
        return chr(ord("a") + token)


@pytest.mark.parametrize("m", [1, 3, 5])
def test_rows_are_those_of_the_whole_sentence(m: int) -> None:
    tokens = [3, 1, 4, 1, 5, 9]
    decoder = Causal()
    whole = decoder.forward(tokens, decoder.new_cache(6))[-m - 1 :]
    assert (mask.rows_together(decoder, tokens, m) == whole).all()
    assert (mask.rows_alone(decoder, tokens, m) == whole).all()


def test_alone_really_runs_one_row_at_a_time() -> None:
    """A decoder that treats a pass of many rows differently must be caught."""
    tokens = [3, 1, 4, 1, 5, 9]
    leaky = mask.compare(Causal(leak=0.5), Letters(), tokens, range(1, 5))
    for run in leaky["together"]:
        gaps = [row["difference"] for row in run["rows"]]
        assert gaps == pytest.approx([run["m"] * 0.5] * (run["m"] + 1))
    tight = mask.compare(Causal(), Letters(), tokens, range(1, 5))
    assert all(row["difference"] == 0 for run in tight["together"] for row in run["rows"])


def test_probability_and_rank_of_the_next_token() -> None:
    tokens = [3, 1, 4, 1]
    decoder = Causal()
    logits = decoder.forward(tokens, decoder.new_cache(4)).astype(np.float64)
    rows = mask.compare(decoder, Letters(), tokens, range(1, 3))["alone"]
    for row, z, after in zip(rows, logits[1:], [4, 1], strict=False):
        p = np.exp(z) / np.exp(z).sum()
        assert row["next"]["p"] == pytest.approx(p[after], rel=1e-5)
        assert row["next"]["rank"] == 1 + (p > p[after]).sum()
        assert row["id"] == p.argmax()
    assert "next" not in rows[-1]


def test_a_record_of_two_engines_and_a_sentence_too_short() -> None:
    found = mask.record(Causal(), Causal(), Letters(), source="x", sentence="abcdefghijkl")  # type: ignore[arg-type]
    assert json.loads(json.dumps(found)) == found
    assert found["engines_apart"] == [0.0] * 9
    short = mask.record(Causal(), Causal(), Letters(), source="x", sentence="abc")  # type: ignore[arg-type]
    assert [run["m"] for run in short["engines"][0]["together"]] == [1, 2]
    with pytest.raises(SdError, match="longer sentence"):
        mask.record(Causal(), Causal(), Letters(), source="x", sentence="a")  # type: ignore[arg-type]


def test_a_record_without_a_witness_with_a_bound_and_somebody_watching() -> None:
    decoder: Any = Causal()
    shares: list[float] = []
    found = mask.record(
        decoder,
        None,
        Letters(),
        source="x",
        sentence="abcdef",
        most=6,
        watch=shares.append,  # type: ignore[arg-type]
    )
    whole = mask.record(decoder, decoder, Letters(), source="x", sentence="abcdef")  # type: ignore[arg-type]
    assert found["engines"] == whole["engines"][:1]
    assert "engines_apart" not in found
    # Before each of the m + 1 = 6 single passes, and before each pass over 6, 5, … 2.
    assert shares == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6] + [1] * 5)
    with pytest.raises(SdError) as long:
        mask.record(decoder, None, Letters(), source="x", sentence="abcdefg", most=6)  # type: ignore[arg-type]
    assert (long.value.code, long.value.detail) == (
        "sentence_too_long", {"tokens": 7, "limit": 6},
    )  # fmt: skip

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mask.record(decoder, None, Letters(), source="x", sentence="abc", watch=stop)  # type: ignore[arg-type]


@pytest.mark.real_model
def test_the_shipped_record_is_what_the_target_says_here(embedded_pair: Any) -> None:
    """Another machine may round otherwise: the choices stand, the logits to two decimals or so."""
    shipped = json.loads(Path(FIGURE.records()["default"]).read_text("utf-8"))
    tokens = embedded_pair.tokenizer.encode(mask.SENTENCE)
    assert tokens == [token["id"] for token in shipped["tokens"]]
    found = mask.compare(embedded_pair.target, embedded_pair.tokenizer, tokens, range(4, 5))
    for here, there in zip(found["alone"], shipped["engines"][0]["alone"][-5:], strict=True):
        assert here["id"] == there["id"]
        assert here["logit"] == pytest.approx(there["logit"], abs=0.05)
    assert max(row["difference"] for row in found["together"][0]["rows"]) < 1e-3
