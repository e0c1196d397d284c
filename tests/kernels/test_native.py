"""The C decoder: against transformers, and bit for bit against itself in every arrangement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from kernels.cache import ContextFull
from kernels.errors import SdError
from kernels.llama_config import UnsupportedModel
from kernels.model import NotFinite
from kernels.native import decoder as native
from kernels.native import library
from kernels.native.decoder import NativeCache, NativeDecoder
from tests.kernels import tiny

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not library.find_compilers(), reason="no C compiler"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("llama"), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def decoder(folder: Path) -> NativeDecoder:
    return NativeDecoder(folder)


def bits(logits: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(logits).view(np.uint32)


@pytest.mark.parametrize("kind", tiny.KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    tiny.save(tmp_path, kind, dtype=dtype)
    tokens = tiny.some_tokens(150)  # past the original context of the llama3 scaling
    decoder = NativeDecoder(tmp_path)
    assert decoder.precision == ("bf16" if dtype == torch.bfloat16 else "fp32")
    expected = tiny.oracle(tmp_path, tokens)
    found = decoder.forward(tokens, decoder.new_cache(200))
    assert expected.std() > 0.5  # lively, or the tolerance would mean nothing
    np.testing.assert_allclose(found, expected, atol=2e-4, rtol=0)


def test_a_long_context(tmp_path: Path) -> None:
    """Past the position tables' first size, in caches that grow them one after the other."""
    tiny.save(tmp_path, max_position_embeddings=2048, num_hidden_layers=2)
    decoder = NativeDecoder(tmp_path)
    tokens = tiny.some_tokens(1300)
    expected = tiny.oracle(tmp_path, tokens)
    for count in (600, 1300):
        found = decoder.forward(tokens[:count], decoder.new_cache(count), last_only=True)
        np.testing.assert_allclose(found, expected[count - 1 : count], atol=5e-4, rtol=0)


def test_a_row_has_the_same_bits_in_any_company(decoder: NativeDecoder) -> None:
    tokens = tiny.some_tokens(240)
    whole = decoder.forward(tokens, decoder.new_cache(240))
    cache = decoder.new_cache(240)
    start = 0
    for rows in [*range(1, 18), 32, 55]:  # 240 in all
        part = decoder.forward(tokens[start : start + rows], cache)
        np.testing.assert_array_equal(bits(part), bits(whole[start : start + rows]))
        start += rows
    assert start == cache.length == 240


@pytest.mark.parametrize("kind", ["llama-heads", "llama", "one-kv-head", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_64_rows_equal_one_by_one(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    decoder = NativeDecoder(tiny.save(tmp_path, kind, dtype=dtype))
    tokens = tiny.some_tokens(64, seed=1)
    together = decoder.forward(tokens, decoder.new_cache(64))
    cache = decoder.new_cache(64)
    alone = np.concatenate([decoder.forward([token], cache) for token in tokens])
    np.testing.assert_array_equal(bits(alone), bits(together))


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_thread_count_does_not_change_a_bit(folder: Path, threads: int, precision: str) -> None:
    tokens = tiny.some_tokens(40)
    one = NativeDecoder(folder, precision=precision, threads=1)
    many = NativeDecoder(folder, precision=precision, threads=threads)
    assert many.threads == threads
    np.testing.assert_array_equal(
        bits(one.forward(tokens, one.new_cache(40))), bits(many.forward(tokens, many.new_cache(40)))
    )


def test_sequences_in_one_batch_have_the_bits_of_each_alone(decoder: NativeDecoder) -> None:
    lengths = [3, 1, 20, 7, 11]
    prompts = [tiny.some_tokens(n, seed=n) for n in lengths]
    alone = []
    for prompt in prompts:
        cache = decoder.new_cache(40)
        first = decoder.forward(prompt, cache, last_only=True)
        alone.append((first, decoder.forward([5, 6], cache)))
    caches = [decoder.new_cache(40 + 8 * i) for i in range(len(prompts))]
    batch = decoder.forward_many(list(zip(prompts, caches, strict=True)))
    np.testing.assert_array_equal(bits(batch), bits(np.concatenate([a for a, _ in alone])))
    after = decoder.forward_many([([5, 6], cache) for cache in caches], last_only=False)
    np.testing.assert_array_equal(bits(after), bits(np.concatenate([b for _, b in alone])))
    assert [cache.length for cache in caches] == [n + 2 for n in lengths]


def test_last_only_is_the_last_row(decoder: NativeDecoder) -> None:
    tokens = tiny.some_tokens(150)
    every = decoder.forward(tokens, decoder.new_cache(150))
    last = decoder.forward(tokens, decoder.new_cache(150), last_only=True)
    assert last.shape == (1, decoder.vocab_size)
    np.testing.assert_array_equal(bits(last), bits(every[-1:]))


def test_rollback_leaves_no_trace_and_dead_slots_are_never_read(decoder: NativeDecoder) -> None:
    tokens = tiny.some_tokens(30)
    clean = decoder.new_cache(64)
    decoder.forward(tokens[:20], clean)
    expected = decoder.forward(tokens[20:25], clean)

    cache = decoder.new_cache(64)
    cache.storage[:] = np.nan  # whatever a former user of the memory left
    decoder.forward(tokens[:20], cache)
    decoder.forward(tokens[25:30], cache)
    cache.rollback(20)
    np.testing.assert_array_equal(bits(decoder.forward(tokens[20:25], cache)), bits(expected))

    cache.rollback(20)
    poison(decoder, cache, 20)
    np.testing.assert_array_equal(bits(decoder.forward(tokens[20:25], cache)), bits(expected))


def poison(decoder: NativeDecoder, cache: NativeCache, length: int) -> None:
    """NaN in every slot from `length` on, by asking which slots one more token writes."""
    for position in range(length, cache.capacity):
        before = cache.storage.copy()
        cache.storage[:] = 12345.0
        cache.length = position
        decoder.forward([0], cache)
        written = cache.storage != 12345.0
        assert written.sum() == cache.storage.size // cache.padded
        cache.storage[:] = before
        cache.storage[written] = np.nan
    cache.length = length


def test_context_full_leaves_the_cache_usable(decoder: NativeDecoder) -> None:
    cache = decoder.new_cache(10)
    decoder.forward(tiny.some_tokens(8), cache)
    with pytest.raises(ContextFull) as caught:
        decoder.forward([1, 2, 3], cache)
    assert caught.value.detail == {"length": 8, "count": 3, "capacity": 10}
    assert cache.length == 8
    assert decoder.forward([1, 2], cache).shape == (2, decoder.vocab_size)
    with pytest.raises(ValueError, match="at most 512"):
        decoder.new_cache(513)


@pytest.mark.parametrize("tokens", [[], [-1], [203], [5, 100_000]])
def test_bad_tokens_are_refused(decoder: NativeDecoder, tokens: list[int]) -> None:
    cache = decoder.new_cache(8)
    with pytest.raises(ValueError):
        decoder.forward(tokens, cache)
    assert cache.length == 0


def test_a_cache_cannot_stand_twice_in_a_batch(decoder: NativeDecoder) -> None:
    cache = decoder.new_cache(8)
    with pytest.raises(ValueError, match="twice"):
        decoder.forward_many([([1], cache), ([2], cache)])


@pytest.mark.parametrize("where", ["lm_head.weight", "model.layers.1.self_attn.v_proj.weight"])
def test_weights_that_are_not_numbers_raise(folder: Path, tmp_path: Path, where: str) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    tensors = load_file(damaged / "model.safetensors")
    tensors[where][3, 5] = float("nan")
    save_file(tensors, damaged / "model.safetensors")
    decoder = NativeDecoder(damaged)
    cache = decoder.new_cache(8)
    with pytest.raises(NotFinite):
        decoder.forward([1, 2, 3], cache)
    assert cache.length == 0


def test_a_reduced_head_scores_its_ids_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    target = NativeDecoder(folder)
    tensors = load_file(folder / "model.safetensors")
    ids = torch.tensor([7, 3, 200, 11, 42], dtype=torch.int32)
    del tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"][ids.long()].clone()
    save_file({**tensors, "head_ids": ids}, tmp_path / "model.safetensors")
    shutil.copy(folder / "config.json", tmp_path)
    draft = NativeDecoder(tmp_path, embedding_from=target)
    assert draft.head_ids is not None
    tokens = tiny.some_tokens(9)
    full = target.forward(tokens, target.new_cache(9))
    compact = draft.forward_compact(tokens, draft.new_cache(9))
    np.testing.assert_array_equal(bits(compact), bits(full[:, ids.numpy()]))
    wide = draft.forward(tokens, draft.new_cache(9))
    assert wide.shape == full.shape
    np.testing.assert_array_equal(bits(wide[:, draft.head_ids]), bits(compact))
    assert np.isneginf(np.delete(wide, draft.head_ids, axis=1)).all()
    assert target.head_ids is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "bias"),
        ({"rope_scaling": {"type": "yarn", "factor": 2}, "rope_parameters": None}, "yarn"),
        ({"head_dim": 80}, "80"),
    ],
)
def test_what_it_cannot_run_it_refuses_with_the_reason(
    folder: Path, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(UnsupportedModel, match=reason):
        NativeDecoder(tmp_path)


def test_a_sliding_window_limits_the_context(tmp_path: Path) -> None:
    tiny.save(tmp_path, "mistral")
    assert NativeDecoder(tmp_path).context_length == 300


def test_weights_of_another_shape_are_called_damaged(folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    config = json.loads((folder / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, "intermediate_size": 160}))
    with pytest.raises(SdError, match="configuration says") as caught:
        NativeDecoder(damaged)
    assert caught.value.code == "corrupt_weights"


def test_callers_in_several_threads_get_their_own_results(decoder: NativeDecoder) -> None:
    prompts = [tiny.some_tokens(20, seed=i) for i in range(4)]
    expected = [decoder.forward(p, decoder.new_cache(20)) for p in prompts]
    wrong: list[int] = []

    def ask(i: int) -> None:
        for _ in range(25):
            found = decoder.forward(prompts[i], decoder.new_cache(20))
            if not np.array_equal(bits(found), bits(expected[i])):
                wrong.append(i)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_decode(folder: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from kernels.native.decoder import NativeDecoder\n"
        "decoder = NativeDecoder(Path(sys.argv[1]), threads=2)\n"
        "first = decoder.forward([1, 2], decoder.new_cache(4)).tobytes()\n"
        "child = os.fork()\n"
        "same = decoder.forward([1, 2], decoder.new_cache(4)).tobytes() == first\n"
        "if not child: os._exit(0 if same else 3)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, timeout=60)


def test_an_idle_pool_sleeps(decoder: NativeDecoder) -> None:
    import time

    decoder.forward([1], decoder.new_cache(1))
    time.sleep(0.05)  # far past the spinning
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


@pytest.mark.real_model
def test_the_real_target_agrees_with_transformers_and_with_itself(embedded_folder: Path) -> None:
    decoder = NativeDecoder(embedded_folder)
    tokens = tiny.some_tokens(140, decoder.vocab_size)
    whole = decoder.forward(tokens, decoder.new_cache(160))
    expected = tiny.oracle(embedded_folder, tokens)
    # 30 layers of float32 sums in another order; the logits reach 36.
    np.testing.assert_allclose(whole, expected, atol=5e-3, rtol=0)
    np.testing.assert_array_equal(whole.argmax(1), expected.argmax(1))
    cache = decoder.new_cache(160)
    decoder.forward(tokens[:100], cache)
    for start, rows in [(100, 1), (101, 1), (102, 5), (107, 9), (116, 2), (118, 17), (135, 5)]:
        part = decoder.forward(tokens[start : start + rows], cache)
        np.testing.assert_array_equal(bits(part), bits(whole[start : start + rows]))


class TestBuild:
    """From source to library."""

    @pytest.fixture(autouse=True)
    def _compile_quickly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(library, "FLAGS", [f for f in library.FLAGS if f != "-O3"] + ["-O1"])

    def test_registers_of_any_width_give_the_same_bits(
        self, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """AVX-512, AVX2 and NEON differ in width: so may not their results. Here without the fused
        instruction, which not every processor has in every width."""
        flags, tokens, found = library.FLAGS, tiny.some_tokens(40), []
        for lanes in (4, 8, 16):
            monkeypatch.setattr(library, "FLAGS", [*flags, f"-DSD_LANES={lanes}"])
            lib = library.bind(library.build(tmp_path))
            assert lib.sd_panel_width() == 2 * lanes
            pool = lib.sd_pool_new(2)
            monkeypatch.setattr(native, "library", lambda lib=lib: lib)
            monkeypatch.setattr(native, "pool", lambda threads, pool=pool: pool)
            decoder = NativeDecoder(folder)
            cache = decoder.new_cache(64)
            parts = [decoder.forward(tokens[a:b], cache) for a, b in ((0, 33), (33, 34), (34, 40))]
            found.append(np.concatenate(parts))
        np.testing.assert_array_equal(bits(found[1]), bits(found[0]))
        np.testing.assert_array_equal(bits(found[2]), bits(found[0]))
        np.testing.assert_allclose(found[0], tiny.oracle(folder, tokens), atol=5e-4, rtol=0)

    def test_once_then_found(self, tmp_path: Path) -> None:
        made = library.build(tmp_path)
        stamp = made.stat().st_mtime_ns
        assert library.build(tmp_path) == made
        assert made.stat().st_mtime_ns == stamp

    def test_without_a_compiler_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setattr(library, "find_spec", lambda name: None)
        with pytest.raises(library.NativeUnavailable, match="pip install ziglang"):
            library.build(tmp_path)

    def test_a_broken_compiler_gives_way_to_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CC", "false")
        assert library.build(tmp_path).is_file()

    def test_a_miscompiled_library_never_gets_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = library.SOURCE.read_text()
        wrong = tmp_path / "decoder.c"
        changed = source.replace("pair & 0xffff0000u", "pair & 0xff000000u")
        assert changed != source
        wrong.write_text(changed)
        monkeypatch.setattr(library, "SOURCE", wrong)
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(library.NativeUnavailable, match="self-test"):
            library.build(tmp_path / "built")
        assert not list((tmp_path / "built").glob("*.so"))


def test_reading_touches_every_byte() -> None:
    """The bandwidth that decoding is compared with must come from reads that really happen."""
    lib, size = library.library(), 3 * 1024 * 256
    for threads in (1, 2, 3):
        memory = np.zeros(size // 4, np.uint32)
        for at in (0, 12_288, size // 4 - 16):  # lane 0 of the first register of a line
            memory[at] = 0x5A5A5A5A
            found = lib.sd_read(library.pool(threads), memory.ctypes.data, size)
            memory[at] = 0
            assert found == 0x5A5A5A5A, (threads, at)


def test_read_bandwidth_is_a_rate() -> None:
    from kernels.native.bandwidth import read_bandwidth

    assert 1e8 < read_bandwidth(0.05, size=32 << 20) < 1e13
