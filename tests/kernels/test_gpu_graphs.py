"""The GPU's decoder on recorded and replayed passes: buffers, padding, positions (T4, T11, T12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels import model as loading
from kernels.cache import ContextFull
from kernels.gpu import graphs
from kernels.gpu.graphs import GraphCache, GraphDecoder
from kernels.model import NotFinite, load_decoder
from kernels.packed import PackedDecoder
from kernels.probe import probe
from tests.kernels import tiny
from tests.kernels.gpu_fakes import FakeBackend

PADDED = (6, 16, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("llama"), num_hidden_layers=2)


pytestmark = pytest.mark.usefixtures("as_on_a_gpu")


@pytest.fixture(scope="module")
def text() -> list[int]:
    return tiny.some_tokens(120)


@pytest.fixture(scope="module")
def expected(folder: Path, text: list[int]) -> NDArray[np.float32]:
    """transformers' logits (120, V) of `text`."""
    return tiny.oracle(folder, text)


def decoder(folder: Path, **options: Any) -> GraphDecoder:
    return GraphDecoder(PackedDecoder(folder), FakeBackend(), **{"padded": PADDED, **options})


def same(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(found, expected, atol=2e-4, rtol=0)


def test_any_order_of_lengths_after_capture(
    folder: Path, text: list[int], expected: NDArray[np.float32]
) -> None:
    """Prompts, blocks and single tokens, longer and shorter in turn, over roll-backs."""
    graphs = decoder(folder)
    cache = graphs.new_cache(130)
    captured = graphs.backend.captures
    at = 0
    for count, back, last_only in [
        (50, 0, True),  # in pieces of 32
        (5, 3, False),
        (1, 0, True),
        (6, 5, False),
        (2, 1, False),
        (1, 0, False),
        (20, 0, False),  # in pieces of 6
        (11, 10, True),
        (3, 2, False),
        (1, 0, True),
    ]:
        found = graphs.forward(text[at : at + count], cache, last_only=last_only)
        wanted = expected[at : at + count]
        same(found, wanted[-1:] if last_only else wanted)
        at += count - back
        cache.rollback(at)
    assert graphs.backend.captures == captured == len(PADDED)


def test_a_rejected_block_and_padding_leave_no_trace(
    folder: Path, text: list[int], expected: NDArray[np.float32]
) -> None:
    graphs = decoder(folder)
    cache = graphs.new_cache(64)
    graphs.forward(text[:10], cache)
    graphs.forward(tiny.some_tokens(6, seed=3), cache)  # other tokens, all rejected
    cache.rollback(10)
    cache.storage.memory.keys[:, :, 10:] = torch.nan  # past the length nothing may be read
    cache.storage.memory.values[:, :, 10:] = torch.nan
    same(graphs.forward(text[10:13], cache), expected[10:13])
    # Three rows were padded to six; only three positions were written.
    assert torch.isfinite(cache.storage.memory.keys[:, :, :13]).all()
    assert torch.isnan(cache.storage.memory.keys[:, :, 13:]).all()


def test_two_caches_take_turns(
    folder: Path, text: list[int], expected: NDArray[np.float32]
) -> None:
    graphs = decoder(folder)
    one, two = graphs.new_cache(60), graphs.new_cache(60)
    first = graphs.forward(text[:5], one)
    kept = first.copy()
    graphs.forward(text[60:90], two, last_only=True)
    assert np.array_equal(first, kept), "the result of a pass changed in the next one"
    same(graphs.forward(text[5:9], one), expected[5:9])


def test_a_cache_full_to_the_last_position(
    folder: Path, text: list[int], expected: NDArray[np.float32]
) -> None:
    graphs = decoder(folder)
    cache = graphs.new_cache(20)
    graphs.forward(text[:19], cache, last_only=True)
    same(graphs.forward(text[19:20], cache), expected[19:20])  # the padding has no room either
    with pytest.raises(ContextFull):
        graphs.forward(text[20:21], cache)
    assert cache.length == 20


def test_one_wait_a_pass(folder: Path, text: list[int]) -> None:
    graphs = decoder(folder)
    cache = graphs.new_cache(100)
    graphs.forward(text[:30], cache, last_only=True)
    before = graphs.backend.waits
    graphs.forward(text[30:35], cache)
    assert graphs.backend.waits == before + 1


def test_plain_and_verification_replay_one_graph(folder: Path) -> None:
    """Whatever the number of rows up to the padding: the same kernels on the same shapes."""
    graphs = decoder(folder, padded=graphs_padded())
    storage = graphs.new_cache(40).storage
    assert {storage.graph(count) for count in range(1, 18)} == {storage.graphs[0]}
    found = probe(graphs)
    assert found.difference < 1e-4
    assert found.kind == ("bitwise" if found.difference == 0 else "close")


def graphs_padded() -> tuple[int, ...]:
    return graphs.PADDED


def test_a_position_frozen_at_capture_is_caught(
    folder: Path, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake is worth its name: a decoder that asks the host for a position fails in it."""
    layers = PackedDecoder._layers

    def frozen(self: PackedDecoder, ids: Any, position: Any, cache: Any) -> Any:
        at = int(position[0])
        return layers(self, ids, torch.arange(at, at + len(ids)), cache)

    monkeypatch.setattr(PackedDecoder, "_layers", frozen)
    with pytest.raises(RuntimeError, match="capturing"):
        decoder(folder).new_cache(40)


def test_storages_are_used_again(
    folder: Path, text: list[int], expected: NDArray[np.float32]
) -> None:
    graphs = decoder(folder, padded=(4,))
    captures = set()
    for run in range(4):
        one, two = graphs.new_cache(40 + run), graphs.new_cache(40 + run)
        assert one.storage is not two.storage
        graphs.forward(text[run : run + 4], two)
        same(graphs.forward(text[:3], one), expected[:3])
        del one, two
        captures.add(graphs.backend.captures)
    assert captures == {2}
    held = [graphs.new_cache(300 if n % 2 else 40) for n in range(6)]
    del held
    assert len(graphs._spare) == 4


def test_long_caches_get_graphs_of_fewer_rows(
    folder: Path, text: list[int], expected: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_MOST_SCORES", 4 * 6 * 256 * 16)
    some = decoder(folder)
    short, long = some.new_cache(100), some.new_cache(300)
    assert [graph.rows for graph in short.storage.graphs] == [6, 16]
    assert [graph.rows for graph in long.storage.graphs] == [6]
    same(some.forward(text, long, last_only=True), expected[-1:])


def test_a_reduced_head_and_a_shared_embedding(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    target = PackedDecoder(folder)
    tensors = load_file(folder / "model.safetensors")
    ids = torch.tensor([3, 5, 8, 13, 21, 100], dtype=torch.int32)
    tensors["lm_head.weight"] = tensors["lm_head.weight"][ids.long()].clone()
    tensors["head_ids"] = ids
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    draft = GraphDecoder(
        PackedDecoder(tmp_path, embedding_from=target), FakeBackend(), padded=PADDED
    )
    tokens = tiny.some_tokens(6)
    whole = tiny.oracle(folder, tokens)
    compact = draft.forward_compact(tokens, draft.new_cache(10))
    same(compact, whole[:, ids])
    full = draft.forward(tokens, draft.new_cache(10))
    assert np.isneginf(np.delete(full, ids.numpy(), 1)).all()
    same(full[:, ids], whole[:, ids])


def test_what_is_refused(folder: Path, text: list[int]) -> None:
    some = decoder(folder)
    cache = some.new_cache(50)
    with pytest.raises(ValueError, match="at least one token"):
        some.forward([], cache)
    with pytest.raises(ValueError, match="vocabulary"):
        some.forward([203], cache)
    with pytest.raises(ValueError, match="at most 512"):
        some.new_cache(513)
    with pytest.raises(TypeError, match="another decoder"):
        some.forward(text[:2], some.model.new_cache(50))
    some.model._final_norm[0] = torch.nan  # in the weights: graphs read them where they are
    with pytest.raises(NotFinite):
        some.forward(text[:40], cache, last_only=True)
    assert cache.length == 0


def test_a_cuda_device_means_graphs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """load_decoder's choice, with a device that only seems to be there."""
    chosen: list[str] = []

    class Pretending(PackedDecoder):
        def __init__(self, folder: Path, *, device: str, **options: Any) -> None:
            chosen.append(device)
            super().__init__(folder, device="cpu", **options)

    monkeypatch.setattr("kernels.packed.PackedDecoder", Pretending)
    monkeypatch.setattr(graphs, "CudaBackend", lambda device: FakeBackend())
    monkeypatch.setattr(loading, "has_cuda", lambda: True)
    target = load_decoder(folder)
    assert isinstance(target, GraphDecoder)
    assert chosen == ["cuda"]
    sharing = load_decoder(folder, device="cuda:1", embedding_from=target)
    assert isinstance(sharing, GraphDecoder)
    assert sharing.model._embedding is target.model._embedding
    assert "graphs of 32, 128, 512 rows" in target.describe().reason


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu(
    folder: Path, text: list[int], expected: NDArray[np.float32], precision: str
) -> None:
    some = load_decoder(folder, device="cuda", precision=precision)
    cache = some.new_cache(130)
    assert isinstance(cache, GraphCache)
    parts = [some.forward(text[:50], cache, last_only=True)]
    parts += [some.forward(text[a:b], cache) for a, b in [(50, 55), (55, 56), (56, 90)]]
    cache.rollback(60)
    parts.append(some.forward(text[60:], cache))
    found = np.concatenate([*parts[:-2], parts[-2][:4], parts[-1]])
    if precision == "fp32":
        np.testing.assert_allclose(found, expected[49:], atol=1e-3, rtol=0)
    else:
        assert np.abs(found - expected[49:]).mean() < 0.05 * expected.std()
    assert probe(some).kind in ("bitwise", "close")
