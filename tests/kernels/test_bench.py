"""The bench: every promised number is there, counts are right, and a slow peer is a slow peer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import bench, peers
from kernels.model import Description, load_decoder
from kernels.prompts import LEVELS, Prompt, prompts
from kernels.trace_check import MAX_PROMPT
from tests.kernels import tiny
from tests.kernels.fakes import FakePair, TabularDecoder, random_table
from tests.kernels.test_decoding_models import PROMPT, Numbers

#: What `python -m kernels bench --json` promises.
PROMISED = {
    "read_bandwidth_gbs",
    "plain_tokens_per_s",
    "plain_share_of_bandwidth",
    "plain_vs_transformers",
    "speculative_vs_plain",
    "speculative_vs_transformers_assisted",
    "draft_only_vs_plain",
    "acceptance_rate",
    "cost_ratio",
    "verify_cost",
    "tokens_per_pass",
    "greedy_identical",
    "contaminated",
    "prompts",
}


class Described(TabularDecoder):
    weight_bytes = 1000

    def describe(self) -> Description:
        return Description("tabular", "cpu", "exact", 1, "a fake")


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    monkeypatch.setattr(bench, "read_bandwidth", lambda: 1e9)
    table = random_table(0, 26, 2)
    return FakePair(
        Described(table, context_length=256),
        Described(table + random_table(5, 26, 2) * 0.5, context_length=256),
    )


LETTERS = [Prompt("a", "easy", "x", "abcabc"), Prompt("b", "hard", "x", "hello")]


def test_shipped_prompts() -> None:
    assert len(prompts()) >= 12
    assert {prompt.level for prompt in prompts()} == set(LEVELS)
    assert len({prompt.id for prompt in prompts()}) == len(prompts())
    for prompt in prompts():
        assert prompt.text.isascii(), "the embedded pair speaks English only"
        assert 0 < len(prompt.text) < MAX_PROMPT


def test_measure(pair: FakePair) -> None:
    result = bench.measure(pair, LETTERS, 30, 4, 3)
    json.dumps(bench.rounded(result), allow_nan=False)
    assert result["greedy_identical"] is True
    assert result["read_bandwidth_gbs"] == 1.0
    assert result["plain_share_of_bandwidth"] == pytest.approx(
        1000 * result["plain_tokens_per_s"] / 1e9
    )
    assert [row["id"] for row in result["prompts"]] == ["a", "b"]
    for row in result["prompts"]:
        assert row["tokens"] == 29
        assert row["tokens_per_pass"] == pytest.approx(29 / row["passes"], rel=1e-5)
    passes = sum(row["passes"] for row in result["prompts"])
    assert result["tokens_per_pass"] == pytest.approx(58 / passes)
    assert 0 < result["acceptance_rate"] <= 1
    assert set(result["speculative_vs_plain_by_level"]) == {"easy", "hard"}


def test_lanes_that_differ_are_reported(pair: FakePair, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bench.finish
    runs = 0

    def finish(lane: Any) -> bench.Run:
        nonlocal runs
        runs += 1
        run = real(lane)
        if runs == 2:
            run.tokens[5] += 1
        return run

    monkeypatch.setattr(bench, "finish", finish)
    assert bench.measure(pair, LETTERS, 30, 4, 1)["greedy_identical"] is False


def test_without_a_draft(pair: FakePair) -> None:
    pair.draft = None
    result = bench.measure(pair, LETTERS[:1], 20, 4, 1)
    assert result["draft_only_vs_plain"] is None


def test_the_command_prints_one_line_with_everything(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernels.pairs.load_pair", lambda *a, **b: pair)
    monkeypatch.setattr(bench, "prompts", lambda: tuple(LETTERS))
    monkeypatch.setattr(
        peers,
        "compare",
        lambda *a: {"plain_vs_transformers": 2.0, "speculative_vs_transformers_assisted": 3.0},
    )
    assert bench.main(["--json", "--length", "20", "--repeat", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line).keys() >= PROMISED


def test_rounded_keeps_four_digits() -> None:
    assert bench.rounded({"a": [1.23456, 7, True, None, "x"]}) == {"a": [1.235, 7, True, None, "x"]}


def test_without_a_compiler_the_bandwidth_is_unknown(
    pair: FakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "read_bandwidth", lambda: None)
    result = bench.measure(pair, LETTERS[:1], 20, 4, 1)
    assert result["read_bandwidth_gbs"] is None
    assert result["plain_share_of_bandwidth"] is None


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Matrices this small lose more by waiting for a second thread than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_peers_get_the_same_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder as target and draft: transformers' assisted decoding runs too."""
    monkeypatch.setattr(peers, "LENGTHS", (2,))
    monkeypatch.setattr(peers, "PRECISIONS", ("fp32",))
    folder = tiny.save(tmp_path / "model", eos_token_id=0)
    pair = FakePair(load_decoder(folder), load_decoder(folder), Numbers())
    options = argparse.Namespace(pair="x", target=str(folder), draft=str(folder), m=4, length=8)
    prompt = Prompt("p", "easy", "x", " ".join(map(str, PROMPT)))
    result = peers.compare(pair, options, [prompt], lambda line: None)
    assert result["plain_vs_transformers"] > 0
    assert result["speculative_vs_transformers_assisted"] > 0
    assert result["speculative_vs_transformers_assisted_best"] > 0
    names = result["transformers_tokens_per_s"]
    assert set(names) == {
        "fp32",
        "fp32 assisted m=2",
    }
    options.draft = "none"
    assert (
        peers.compare(pair, options, [prompt], lambda line: None)[
            "speculative_vs_transformers_assisted"
        ]
        is None
    )
