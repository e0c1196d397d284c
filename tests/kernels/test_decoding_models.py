"""The algorithm on real decoders: tiny random models everywhere, the default pair where it is.

Oracle: transformers' own `generate`, and fresh forward passes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels.model import load_decoder
from kernels.race import encode_prompt, race, speculative_lane
from kernels.settings import Settings
from kernels.trace import Trace
from tests.kernels import tiny
from tests.kernels.fakes import FakePair, run_lane

LENGTH = 30
PROMPT = tiny.some_tokens(12, seed=3)


class Numbers:
    """A tokenizer for models without one: token 17 is " 17"."""

    end_tokens = ()
    special_tokens: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in text.split()]

    chat = encode

    def token_text(self, token: int) -> str:
        return f" {token}"

    def token_bytes(self, token: int) -> bytes:
        return f" {token}".encode()


@dataclass
class Models:
    """A random target, a noisy copy of it as draft, and one with a head of some tokens."""

    target: Path
    draft: Path
    reduced: Path
    greedy: list[int]


def noisy(source: Path, folder: Path, noise: float) -> Path:
    torch.manual_seed(1)
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if "norm" not in name:
            tensors[name] = tensor + noise * tensor.std() * torch.randn_like(tensor)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def reduced(source: Path, folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    tensors = load_file(source / "model.safetensors")
    ids = torch.arange(0, tiny.SHAPE["vocab_size"], 2, dtype=torch.int32)
    del tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"][ids.long()].clone()
    save_file({**tensors, "head_ids": ids}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("models")
    target = tiny.save(root / "target")
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    prompt = torch.tensor([PROMPT])
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=LENGTH,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return Models(
        target,
        noisy(target, root / "draft", 0.05),
        reduced(target, root / "reduced"),
        out[0, len(PROMPT) :].tolist(),
    )


@pytest.fixture(scope="module", params=["native", "packed", "hf"])
def pair(request: pytest.FixtureRequest, models: Models) -> Iterator[FakePair]:
    # One thread: matrices this small lose more by waiting for a second one than they gain.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loaded = FakePair(
        load_decoder(models.target, backend=request.param, precision="fp32"),
        load_decoder(models.draft, backend=request.param, precision="fp32"),
        Numbers(),
    )
    loaded.target.end_tokens = ()
    yield loaded
    torch.set_num_threads(threads)


def settings(**values: Any) -> Settings:
    prompt = " ".join(map(str, PROMPT))
    return Settings(prompt, **({"length": LENGTH, "drafter": "model"} | values))


@pytest.mark.parametrize("lane", ["plain", "speculative"])
def test_greedy_text_is_transformers_own(pair: FakePair, models: Models, lane: str) -> None:
    done, _ = run_lane(pair, settings(m=4), lane)
    assert done.transcript.new_tokens == models.greedy


@pytest.mark.parametrize("m", [1, 2, 5, "adaptive"])
def test_greedy_text_does_not_depend_on_m(pair: FakePair, models: Models, m: int | str) -> None:
    done, passes = run_lane(pair, settings(m=m, drafter="both"))
    assert done.transcript.new_tokens == models.greedy
    origins = {token.origin for item in passes for token in item.tokens}
    assert {"accepted", "rejected", "supplied"} <= origins, "a draft that is sometimes right"


def test_a_reduced_head(models: Models) -> None:
    target = load_decoder(models.target, backend="native", precision="fp32")
    target.end_tokens = ()
    draft = load_decoder(models.reduced, precision="fp32", embedding_from=target)
    pair = FakePair(target, draft, Numbers())
    done, passes = run_lane(pair, settings(m=4))
    assert done.transcript.new_tokens == models.greedy
    guesses = {token.id for item in passes if item.kind == "draft" for token in item.tokens}
    assert all(token % 2 == 0 for token in guesses)
    for temperature in (0.0, 1.0):
        events = list(race(pair, settings(temperature=temperature, repetition_penalty=1.1)))
        Trace.from_events(events)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_verified_rows_are_those_of_a_fresh_pass(pair: FakePair, temperature: float) -> None:
    """T4 on real caches: after every round, what was verified against one forward of the text."""
    s = settings(m=4, temperature=temperature, seed=2)
    lane = speculative_lane(pair, encode_prompt(pair, s), s)
    checked = 0
    for item in lane.passes:
        if item.kind not in ("verify", "decode"):
            continue
        tokens = lane.transcript.tokens
        emitted = sum(token.origin != "rejected" for token in item.tokens)
        cache = pair.target.new_cache(len(tokens))
        fresh = np.asarray(pair.target.forward(tokens[:-1], cache))[-emitted:]
        np.testing.assert_allclose(item.logits[:emitted], fresh, atol=2e-4)
        checked += emitted
    assert checked == LENGTH - 1


def test_native_verification_is_bitwise(models: Models) -> None:
    target = load_decoder(models.target, backend="native")
    target.end_tokens = ()
    pair = FakePair(target, load_decoder(models.draft, backend="native"), Numbers())
    s = settings(m=4)
    _, plain = run_lane(pair, s, "plain")
    lane = speculative_lane(pair, encode_prompt(pair, s), s)
    rows = [item.logits.copy() for item in plain]
    place = 0
    for item in lane.passes:
        if item.kind == "draft" or not item.tokens:
            continue
        for row, _ in zip(
            item.logits, [t for t in item.tokens if t.origin != "rejected"], strict=False
        ):
            np.testing.assert_array_equal(row.view(np.uint32), rows[place][0].view(np.uint32))
            place += 1
    assert place == LENGTH


def test_seeds_replay_on_real_decoders(pair: FakePair) -> None:
    texts = [
        run_lane(pair, settings(m=3, temperature=0.9, top_p=0.95, seed=seed))[
            0
        ].transcript.new_tokens
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_draft_context_shorter_than_the_text(models: Models, tmp_path: Path) -> None:
    short = tmp_path / "short"
    shutil.copytree(models.draft, short)
    config = (short / "config.json").read_text()
    (short / "config.json").write_text(
        config.replace('"max_position_embeddings": 512', '"max_position_embeddings": 20')
    )
    pair = FakePair(load_decoder(models.target), load_decoder(short), Numbers())
    pair.target.end_tokens = ()
    assert pair.draft.context_length == 20
    done, _ = run_lane(pair, settings(m=4))
    assert done.transcript.new_tokens == models.greedy


# ---- the default pair --------------------------------------------------------------------------


@pytest.mark.real_model
@pytest.mark.parametrize("m", [1, 4, 8, "adaptive"])
def test_the_default_pair_races_to_the_same_text(embedded_pair: Any, m: int | str) -> None:
    prompt = "Give me a packing list for a week at a lighthouse."
    events = list(race(embedded_pair, Settings(prompt, m=m, length=40)))
    assert events[-1]["agreement"] == {"kind": "identical"}
    trace = Trace.from_events(events)
    assert trace.text("plain") == trace.text("speculative")
    assert trace.text("plain").isascii()


@pytest.mark.real_model
def test_the_default_pair_says_what_transformers_would(
    embedded_pair: Any, embedded_folder: Path
) -> None:
    """Each greedy token is transformers' best in FP32, or within BF16's rounding of it."""
    from transformers import AutoModelForCausalLM

    settings = Settings("Explain in simple steps how to plant a seed.", length=48)
    lane, _ = run_lane(embedded_pair, settings, "plain")
    tokens = lane.transcript.tokens
    model = AutoModelForCausalLM.from_pretrained(embedded_folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    first = lane.transcript.prompt_length
    short = [
        float(logits[i - 1].max() - logits[i - 1, tokens[i]]) for i in range(first, len(tokens))
    ]
    assert max(short) < 0.15
    assert np.mean(np.array(short) == 0) > 0.9


@pytest.mark.real_model
@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_the_default_pair_samples(embedded_pair: Any, temperature: float) -> None:
    settings = Settings("Tell me about rain.", temperature=temperature, top_k=50, length=40, seed=3)
    events = list(race(embedded_pair, settings))
    again = list(race(embedded_pair, settings))
    traces = [Trace.from_events(some) for some in (events, again)]
    for lane in ("plain", "speculative"):
        assert traces[0].text(lane) == traces[1].text(lane)
    stats = events[-1]["stats"]["speculative"]
    assert (
        stats["accepted"] + stats["supplied"] + stats["bonus"] + stats["target"]
        == (stats["tokens"])
    )
