"""A pair is two models that speak the same tokens and fit in memory; anything else says why not."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from kernels import hub, memory, pairs, storage
from kernels.errors import SdError
from kernels.pairs import Pair, load_pair, preset, presets
from kernels.tokenizer import Tokenizer
from tests.kernels.weights_world import Server, World, hub_files


def edited(folder: Path, out: Path, *, vocab: dict[int, str] | None = None, rows: int = 0) -> Path:
    """A copy with some tokens renamed or added, and the embedding padded to `rows`."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, out)
    (out / "manifest.json").unlink()
    tokenizer = json.loads((out / "tokenizer.json").read_text())
    names = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    names.update(vocab or {})
    tokenizer["model"]["vocab"] = {token: i for i, token in names.items()}
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    if rows:
        weights = load_file(out / "model.safetensors")
        name = "model.embed_tokens.weight"
        padding = torch.zeros(rows - len(weights[name]), weights[name].shape[1])
        weights[name] = torch.cat([weights[name], padding.bfloat16()])
        save_file(weights, out / "model.safetensors", {"format": "pt"})
        config = json.loads((out / "config.json").read_text())
        (out / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    return out


# --- presets ------------------------------------------------------------------------------------


def test_the_four_presets_and_the_error_that_lists_them() -> None:
    assert list(presets()) == ["embedded", "smollm2-1.7b", "qwen3-8b", "llama-3.1-70b"]
    for name, chosen in presets().items():
        assert preset(name) is chosen
        assert hub.is_id(chosen.target)
        assert chosen.ships_draft or hub.is_id(chosen.draft)
        # In BF16 both models fit in the memory that is stated, with room for caches.
        weights = 2 * (chosen.target_parameters + chosen.draft_parameters)
        assert weights < chosen.memory < 1.3 * weights + 1e9
    with pytest.raises(SdError) as caught:
        load_pair("gpt-5")
    assert caught.value.code == "unknown_pair"
    assert caught.value.detail == {"name": "gpt-5", "known": list(presets())}
    assert "embedded" in str(caught.value)


# width, layers, query width, key width, feed-forward width, vocabulary, tied, query and key norms:
# from each model's published config.json.
ARCHITECTURES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": (576, 30, 576, 192, 1536, 49152, True, 0),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": (2048, 24, 2048, 2048, 8192, 49152, True, 0),
    "Qwen/Qwen3-8B": (4096, 36, 4096, 1024, 12288, 151936, False, 128),
    "Qwen/Qwen3-0.6B": (1024, 28, 2048, 1024, 3072, 151936, True, 128),
    "meta-llama/Llama-3.1-70B-Instruct": (8192, 80, 8192, 1024, 28672, 128256, False, 0),
    "meta-llama/Llama-3.1-8B-Instruct": (4096, 32, 4096, 1024, 14336, 128256, False, 0),
}


def parameters(ref: str) -> int:
    d, layers, query, key, ffn, vocab, tied, head_norm = ARCHITECTURES[ref]
    layer = 2 * d * query + 2 * d * key + 3 * d * ffn + 2 * d + 2 * head_norm
    return layers * layer + d + (1 if tied else 2) * vocab * d


def test_parameter_counts_add_up() -> None:
    for chosen in presets().values():
        assert chosen.target_parameters == parameters(chosen.target)
        if not chosen.ships_draft:
            assert chosen.draft_parameters == parameters(chosen.draft)


# --- loading ------------------------------------------------------------------------------------


def test_a_pair_from_two_folders(tiny: Path) -> None:
    stages: list[str] = []
    pair = load_pair(
        target=str(tiny),
        draft=str(tiny),
        device="cpu",
        progress=lambda stage, done, total: stages.append(stage),
    )
    assert isinstance(pair, Pair)
    assert pair.name == "custom"
    assert pair.guarantee in {"bitwise", "close"}
    assert pair.target_id == "tiny.gguf"
    assert list(dict.fromkeys(stages)) == ["load", "probe"]
    tokens = pair.tokenizer.chat("the")
    assert pair.draft is not None
    outputs = [
        np.asarray(model.forward(tokens, model.new_cache(64)))
        for model in (pair.target, pair.draft)
    ]
    assert outputs[0].shape == (len(tokens), pair.target.vocab_size)
    assert np.array_equal(outputs[0], outputs[1])


def test_without_a_draft(tiny: Path) -> None:
    for draft in (None, "none"):
        pair = load_pair(target=str(tiny), draft=draft, device="cpu")
        assert pair.draft is None
        assert pair.draft_id is None


def test_the_default_pair_by_name_with_another_draft(
    world: World, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = pairs.Preset(
        name="embedded",
        title="t",
        target=str(tiny),
        draft="drafts/not-there",
        target_parameters=1,
        download=1,
        memory=1,
        languages=("en",),
        licence="MIT",
    )
    monkeypatch.setattr(pairs, "presets", lambda: {"embedded": small})
    # A checkout without the shipped draft still runs; so does one with only its model card.
    monkeypatch.setattr(pairs, "_HERE", tmp_path)
    assert load_pair(device="cpu").draft is None
    (tmp_path / "drafts" / "not-there").mkdir(parents=True)
    (tmp_path / "drafts" / "not-there" / "README.md").write_text("a draft")
    assert load_pair(device="cpu").draft is None
    assert not small.has_draft
    pair = load_pair("embedded", draft=str(tiny), device="cpu")
    assert pair.name == "embedded"
    assert pair.draft is not None


def test_the_shipped_draft_shares_the_targets_embedding(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    whole = load_file(tiny / "model.safetensors")
    head_ids = torch.tensor([2, 50, 51, 200], dtype=torch.int32)
    draft = {
        name: value
        for name, value in whole.items()
        if name.startswith("model.layers.0.") or name == "model.norm.weight"
    }
    draft["lm_head.weight"] = whole["model.embed_tokens.weight"][head_ids.long()].clone()
    draft["head_ids"] = head_ids
    folder = tmp_path / "drafts" / "mine"
    folder.mkdir(parents=True)
    save_file(draft, folder / "model.safetensors")
    config = json.loads((tiny / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    monkeypatch.setattr(pairs, "_HERE", tmp_path)
    mine = dataclasses.replace(preset("embedded"), draft="drafts/mine")
    assert mine.has_draft
    pair = load_pair(target=str(tiny), draft="drafts/mine", device="cpu")
    assert pair.draft is not None
    assert pair.draft_id == "mine"
    assert pair.draft.vocab_size == pair.target.vocab_size
    logits = np.asarray(pair.draft.forward([5, 6], pair.draft.new_cache(8)))
    assert logits.shape == (2, pair.target.vocab_size)
    assert np.isfinite(logits).sum() == 2 * len(head_ids)
    assert np.isfinite(logits[:, head_ids.numpy()]).all()


def test_a_damaged_model_is_fetched_again_when_it_does_not_load(
    world: World, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = world.server
    server.hub_files = hub_files(tiny)
    server.hub_fault = "none"
    world.resolve("tiny/tiny-model")
    import kernels.model

    real, calls = kernels.model.load_decoder, []

    def load(folder: Path, **options: object) -> object:
        calls.append(folder)
        if len(calls) == 1:
            file = (Path(folder) / "model.safetensors").resolve()
            content = file.read_bytes()
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            raise ValueError("what was read makes no sense")
        return real(folder, **options)

    monkeypatch.setattr(kernels.model, "load_decoder", load)
    pair = load_pair(target="tiny/tiny-model", device="cpu")
    assert len(calls) == 2
    storage.check_folder(Path(calls[1]), full=True)
    assert pair.target_id == "tiny/tiny-model@aaaaaaaa"


# --- tokens -------------------------------------------------------------------------------------


def test_vocabularies_that_differ_only_in_padding_work(tiny: Path, tmp_path: Path) -> None:
    padded = edited(tiny, tmp_path / "padded", rows=320)
    for target, draft in ((tiny, padded), (padded, tiny)):
        pair = load_pair(target=str(target), draft=str(draft), device="cpu")
        assert pair.draft is not None
        assert {pair.target.vocab_size, pair.draft.vocab_size} == {264, 320}


def test_another_tokenizer_is_refused_with_a_reason(tiny: Path, tmp_path: Path) -> None:
    other = edited(tiny, tmp_path / "other", vocab={100: "strange"})
    with pytest.raises(SdError, match="id 100 is") as caught:
        load_pair(target=str(tiny), draft=str(other), device="cpu")
    assert caught.value.code == "tokenizer_mismatch"
    assert "'strange'" in caught.value.detail["reason"]


def test_a_draft_that_lacks_the_targets_tokens_is_refused(tiny: Path, tmp_path: Path) -> None:
    more = {i: f"extra{i}" for i in range(264, 300)}
    larger = edited(tiny, tmp_path / "larger", vocab=more, rows=320)
    with pytest.raises(SdError, match="the draft knows 264") as caught:
        load_pair(target=str(larger), draft=str(tiny), device="cpu")
    assert caught.value.code == "tokenizer_mismatch"
    # The other way round only the draft knows more: if much more, it is of another family.
    with pytest.raises(SdError, match="hold 264 and 300"):
        load_pair(target=str(tiny), draft=str(larger), device="cpu")
    few = edited(tiny, tmp_path / "few", vocab={264: "one more"}, rows=320)
    assert load_pair(target=str(tiny), draft=str(few), device="cpu").draft is not None


def test_a_draft_without_a_tokenizer_is_refused(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "bare")
    (tmp_path / "bare" / "manifest.json").unlink()
    (tmp_path / "bare" / "tokenizer.json").unlink()
    (tmp_path / "bare" / "tokenizer_config.json").unlink()
    with pytest.raises(SdError) as caught:
        load_pair(target=str(tiny), draft=str(tmp_path / "bare"), device="cpu")
    assert caught.value.code == "unsupported_weights"


# --- memory -------------------------------------------------------------------------------------


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda device="cpu": 1_000_000)
    with pytest.raises(SdError) as caught:
        load_pair(target=str(tiny), device="cpu")
    assert caught.value.code == "not_enough_memory"


def test_and_before_it_is_downloaded(
    world: World, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.server.hub_files = hub_files(tiny)
    world.server.hub_fault = "none"
    monkeypatch.setattr(memory, "available", lambda device="cpu": 1_000_000)
    with pytest.raises(SdError) as caught:
        load_pair(target="tiny/tiny-model", device="cpu")
    assert caught.value.code == "not_enough_memory"
    assert world.server.hub_downloads == 0


# --- the real one -------------------------------------------------------------------------------


@pytest.mark.real_model
def test_the_default_pair_loads_and_answers(embedded_folder: Path) -> None:
    pair = load_pair(device="cpu")
    assert pair.guarantee == "bitwise" or pair.target.describe().backend != "native"
    assert "SmolLM2-135M-Instruct" in pair.target_id
    tokens = pair.tokenizer.chat("What is the capital of France?")
    cache = pair.target.new_cache(len(tokens) + 16)
    answer: list[int] = []
    pending = tokens
    while len(answer) < 12 and (not answer or answer[-1] not in pair.tokenizer.end_tokens):
        logits = np.asarray(pair.target.forward(pending, cache, last_only=True))
        answer.append(int(logits[0].argmax()))
        pending = answer[-1:]
    assert "Paris" in pair.tokenizer.decode(answer)
    if pair.draft is not None:
        assert pair.draft.vocab_size == pair.target.vocab_size


def test_the_tokens_of_a_tokenizer_agree_with_themselves(tiny: Path) -> None:
    tokenizer = Tokenizer.from_folder(tiny)
    pairs.require_same_tokens(tokenizer, tokenizer, target_vocab=264, draft_vocab=264)
