"""Loading a decoder, and the two torch backends against transformers' own forward."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

from kernels import packed
from kernels.cache import Cache, ContextFull
from kernels.checkpoint import Checkpoint
from kernels.errors import SdError
from kernels.hf import HfDecoder
from kernels.llama_config import LlamaConfig, UnsupportedModel
from kernels.model import Decoder, NotFinite, load_decoder
from kernels.native import library
from kernels.packed import PackedDecoder
from tests.kernels import tiny

BACKENDS = ["packed", "hf"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("llama"))


@pytest.fixture(params=BACKENDS)
def decoder(request: pytest.FixtureRequest, folder: Path) -> Decoder:
    return load_decoder(folder, device="cpu", backend=request.param)


@pytest.mark.parametrize("kind", tiny.KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_logits_are_those_of_transformers(
    tmp_path: Path, kind: str, dtype: torch.dtype
) -> None:
    tiny.save(tmp_path, kind, dtype=dtype)
    tokens = tiny.some_tokens(150)
    decoder = PackedDecoder(tmp_path, precision="fp32")
    cache = decoder.new_cache(160)
    # A prompt, single tokens, blocks: the ways in which the algorithms call it.
    parts = [decoder.forward(tokens[a:b], cache) for a, b in [(0, 99), (99, 100), (100, 150)]]
    found = torch.cat(parts).numpy()
    np.testing.assert_allclose(found, tiny.oracle(tmp_path, tokens), atol=2e-4, rtol=0)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_packed_in_bf16_stays_near(tmp_path: Path, kind: str) -> None:
    tiny.save(tmp_path, kind, dtype=torch.bfloat16)
    tokens = tiny.some_tokens(60)
    decoder = PackedDecoder(tmp_path, precision="bf16")
    found = decoder.forward(tokens, decoder.new_cache(60)).numpy()
    expected = tiny.oracle(tmp_path, tokens)
    # Activations are rounded to 8 bits: 2⁻⁸ a step, a few steps in a row.
    assert np.abs(found - expected).mean() < 0.05 * expected.std()


def test_plain_products_where_packing_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tiny.oracle(folder, tiny.some_tokens(20))
    monkeypatch.setattr(packed, "pack", lambda weight, bias: None)
    decoder = PackedDecoder(folder)
    assert "plain products" in decoder.describe().reason
    found = decoder.forward(tiny.some_tokens(20), decoder.new_cache(20))
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-4, rtol=0)


def test_packing_that_computes_something_else_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = torch.randn(24, 16)
    if packed.pack(weight, None) is None:
        pytest.skip("this torch does not pack")

    class Wrong:
        _reorder_linear_weight = staticmethod(lambda weight, rows: weight)
        _linear_pointwise = staticmethod(
            lambda x, weight, bias, *rest: torch.nn.functional.linear(x, weight, bias) * 1.01
        )

    monkeypatch.setattr(packed.torch.ops, "mkldnn", Wrong)
    assert packed.pack(weight, None) is None


def test_hf_runs_an_architecture_that_the_lean_decoder_lacks(tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=101, n_embd=32, n_layer=2, n_head=2, n_positions=64, initializer_range=0.2
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    decoder = load_decoder(tmp_path, device="cpu")
    assert isinstance(decoder, HfDecoder)
    assert "gpt2" in decoder.describe().reason
    tokens = tiny.some_tokens(30, 101)
    cache = decoder.new_cache(64)
    found = torch.cat([decoder.forward(tokens[:20], cache), decoder.forward(tokens[20:], cache)])
    np.testing.assert_allclose(found.numpy(), tiny.oracle(tmp_path, tokens), atol=1e-4, rtol=0)


def test_hf_past_a_sliding_window_rolls_back_by_reading_again(tmp_path: Path) -> None:
    tiny.save(tmp_path, "mistral", sliding_window=8)
    decoder = HfDecoder(tmp_path)
    tokens = tiny.some_tokens(40)
    cache = decoder.new_cache(64)
    decoder.forward(tokens[:20], cache)
    decoder.forward([1, 2, 3], cache)  # a rejected draft, far past the window
    cache.rollback(20)
    found = decoder.forward(tokens[20:], cache)
    np.testing.assert_allclose(found.numpy(), tiny.oracle(tmp_path, tokens)[20:], atol=1e-4, rtol=0)


def count_rows(decoder: HfDecoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each pass of transformers' model reads from now on."""
    rows: list[int] = []
    original = decoder._model.forward

    def forward(**options: Any) -> Any:
        rows.append(options["input_ids"].shape[1])
        return original(**options)

    monkeypatch.setattr(decoder._model, "forward", forward)
    return rows


def test_hf_reads_a_token_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = HfDecoder(folder)
    rows = count_rows(decoder, monkeypatch)
    cache = decoder.new_cache(30)
    tokens = tiny.some_tokens(12)
    decoder.forward(tokens[:7], cache)
    decoder.forward([1, 2, 3], cache)
    cache.rollback(8)
    decoder.forward(tokens[8:], cache)
    assert rows == [7, 3, 4]


def test_hf_with_a_recurrent_state_reads_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    config = MambaConfig(vocab_size=101, hidden_size=32, num_hidden_layers=2, state_size=8)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    decoder = HfDecoder(tmp_path)
    rows = count_rows(decoder, monkeypatch)
    tokens = tiny.some_tokens(12, 101)
    cache = decoder.new_cache(30)
    decoder.forward(tokens[:7], cache)
    decoder.forward([1, 2, 3], cache)
    cache.rollback(7)
    found = decoder.forward(tokens[7:], cache)
    assert rows == [7, 10, 12]
    np.testing.assert_allclose(found.numpy(), tiny.oracle(tmp_path, tokens)[7:], atol=1e-4, rtol=0)


def test_rollback_leaves_no_trace(decoder: Decoder, folder: Path) -> None:
    tokens = tiny.some_tokens(30)
    expected = tiny.oracle(folder, tokens)
    cache = decoder.new_cache(64)
    decoder.forward(tokens[:10], cache)
    for wrong in ([5, 6, 7], [9], tiny.some_tokens(20, seed=4)):
        decoder.forward(wrong, cache)
        cache.rollback(10)
    found = decoder.forward(tokens[10:], cache)
    np.testing.assert_allclose(found.numpy(), expected[10:], atol=2e-4, rtol=0)
    cache.rollback(0)
    found = decoder.forward(tokens, cache)
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-4, rtol=0)


def test_dead_slots_of_the_packed_cache_are_never_read(folder: Path) -> None:
    decoder = PackedDecoder(folder)
    tokens = tiny.some_tokens(16)
    clean = decoder.new_cache(40)
    decoder.forward(tokens[:8], clean)
    expected = decoder.forward(tokens[8:], clean)
    cache = decoder.new_cache(40)
    decoder.forward(tokens[:8], cache)
    cache.keys[:, :, 8:] = torch.nan
    cache.values[:, :, 8:] = torch.nan
    assert torch.equal(decoder.forward(tokens[8:], cache), expected)


def test_last_only_is_the_last_row(decoder: Decoder) -> None:
    tokens = tiny.some_tokens(12)
    every = decoder.forward(tokens, decoder.new_cache(12))
    last = decoder.forward(tokens, decoder.new_cache(12), last_only=True)
    assert tuple(last.shape) == (1, decoder.vocab_size)
    np.testing.assert_allclose(last.numpy(), every[-1:].numpy(), atol=1e-5, rtol=0)


def test_limits_and_bad_tokens(decoder: Decoder) -> None:
    cache = decoder.new_cache(10)
    decoder.forward(tiny.some_tokens(8), cache)
    with pytest.raises(ContextFull):
        decoder.forward([1, 2, 3], cache)
    for tokens in ([], [-1], [decoder.vocab_size]):
        with pytest.raises(ValueError):
            decoder.forward(tokens, cache)
    with pytest.raises(TypeError):
        decoder.forward([1], Cache(8))
    assert cache.length == 8
    decoder.forward([1, 2], cache)
    with pytest.raises(ValueError, match="at most 512"):
        decoder.new_cache(513)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_are_not_numbers_raise(folder: Path, tmp_path: Path, backend: str) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    tensors = load_file(damaged / "model.safetensors")
    tensors["model.layers.0.self_attn.v_proj.weight"][0, 0] = float("inf")
    save_file(tensors, damaged / "model.safetensors", metadata={"format": "pt"})
    decoder = load_decoder(damaged, device="cpu", backend=backend)
    cache = decoder.new_cache(8)
    with pytest.raises(NotFinite) as caught:
        decoder.forward([1, 2], cache)
    assert caught.value.code == "not_finite"
    assert cache.length == 0


def test_the_packed_reduced_head(folder: Path, tmp_path: Path) -> None:
    target = PackedDecoder(folder)
    tensors = load_file(folder / "model.safetensors")
    ids = torch.tensor([7, 3, 200], dtype=torch.int32)
    del tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"][ids.long()].clone()
    save_file({**tensors, "head_ids": ids}, tmp_path / "model.safetensors")
    shutil.copy(folder / "config.json", tmp_path)
    draft = load_decoder(tmp_path, device="cpu", backend="packed", embedding_from=target)
    full = target.forward([1, 2, 3], target.new_cache(3))
    wide = draft.forward([1, 2, 3], draft.new_cache(3))
    torch.testing.assert_close(wide[:, ids.long()], full[:, ids.long()], atol=1e-5, rtol=0)
    assert torch.isinf(wide).sum() == 3 * (draft.vocab_size - 3)
    with pytest.raises(UnsupportedModel):
        load_decoder(tmp_path, device="cpu", backend="hf", embedding_from=target)


class TestChoice:
    """Which backend load_decoder takes."""

    def test_native_first(self, folder: Path) -> None:
        if not library.find_compilers():
            pytest.skip("no C compiler")
        assert load_decoder(folder, device="cpu").describe().backend == "native"

    def test_packed_where_nothing_compiles_and_it_says_so(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none() -> None:
            raise library.NativeUnavailable("no C compiler was found")

        monkeypatch.setattr(library, "library", none)
        description = load_decoder(folder, device="cpu").describe()
        assert description.backend == "packed"
        assert "no C compiler was found" in description.reason
        with pytest.raises(library.NativeUnavailable):
            load_decoder(folder, device="cpu", backend="native")

    @pytest.mark.parametrize(
        "wrong",
        [{"backend": "jax"}, {"precision": "int4"}, {"backend": "native", "device": "cuda"}],
    )
    def test_unknown_choices(self, folder: Path, wrong: dict[str, str]) -> None:
        with pytest.raises(ValueError):
            load_decoder(folder, **wrong)

    def test_weights_that_transformers_would_invent_are_refused(
        self, folder: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(folder, tmp_path / "holed")
        tensors = load_file(folder / "model.safetensors")
        del tensors["model.embed_tokens.weight"]
        save_file(tensors, tmp_path / "holed" / "model.safetensors", metadata={"format": "pt"})
        for backend in ("packed", "hf"):
            with pytest.raises(SdError):
                load_decoder(tmp_path / "holed", device="cpu", backend=backend)

    def test_the_native_path_never_imports_torch(self, folder: Path) -> None:
        if not library.find_compilers():
            pytest.skip("no C compiler")
        script = (
            "import sys; from kernels.model import load_decoder; from kernels.probe import probe; "
            "probe(load_decoder(sys.argv[1], device='cpu')); sys.exit('torch' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", script, str(folder)], check=True, timeout=60)


class TestFiles:
    """Reading config.json and safetensors."""

    def test_several_end_tokens(self, folder: Path, tmp_path: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": [2, 9]}))
        (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
        assert LlamaConfig.read(tmp_path).end_tokens == (2, 5, 9)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "llama"}'])
    def test_a_bad_config_is_called_damaged(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(SdError) as caught:
            LlamaConfig.read(tmp_path)
        assert caught.value.code == "corrupt_weights"

    def test_version_4_spelling_of_positions(self, folder: Path, tmp_path: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        del config["rope_parameters"]
        old = {**config, "rope_theta": 777.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
        (tmp_path / "config.json").write_text(json.dumps(old))
        rope = LlamaConfig.read(tmp_path).rope
        assert (rope["theta"], rope["type"], rope["factor"]) == (777.0, "linear", 2.0)

    def test_shards(self, folder: Path, tmp_path: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        names = sorted(tensors)
        parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, part in parts.items():
            save_file({n: tensors[n] for n in part}, tmp_path / file)
        index = {n: file for file, part in parts.items() for n in part}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        found = Checkpoint(tmp_path)
        assert set(found) == set(tensors)
        for name in names:
            np.testing.assert_array_equal(found[name].data, tensors[name].numpy())

    def test_an_index_that_names_a_file_elsewhere(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"x": "../secret.safetensors"}})
        )
        with pytest.raises(SdError, match="outside the folder"):
            Checkpoint(tmp_path)

    @pytest.mark.parametrize("keep", [0, 4, 60, 5000])
    def test_a_file_cut_off_anywhere(self, folder: Path, tmp_path: Path, keep: int) -> None:
        whole = (folder / "model.safetensors").read_bytes()
        assert keep < len(whole)
        (tmp_path / "model.safetensors").write_bytes(whole[:keep])
        with pytest.raises(SdError) as caught:
            Checkpoint(tmp_path)
        assert caught.value.code == "corrupt_weights"

    def test_no_weights_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(SdError) as caught:
            Checkpoint(tmp_path)
        assert caught.value.code == "weights_not_found"

    def test_f16_and_f32_values(self, tmp_path: Path) -> None:
        values = torch.tensor([[1.5, -2.0, 3.1]])
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            save_file({"w": values.to(dtype)}, tmp_path / "model.safetensors")
            found = Checkpoint(tmp_path)["w"].float32()
            np.testing.assert_array_equal(found, values.to(dtype).float().numpy())
