"""The lean decoder in C, seen from Python: weights packed at load, one call a forward pass."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.cache import Cache
from kernels.checkpoint import Checkpoint, Stored
from kernels.llama_config import LlamaConfig, UnsupportedModel
from kernels.model import Description, NotFinite
from kernels.native.library import (
    NO_MEMORY,
    NOT_FINITE,
    TYPES,
    Layer,
    Model,
    default_threads,
    library,
    pool,
)

_ROW = np.dtype(
    [("token", "i4"), ("position", "i4"), ("capacity", "i4"), ("logits_row", "i4"), ("cache", "u8")]
)
_HUGE_PAGE = 2 << 20


class NativeCache(Cache):
    """Keys and values in float32, in the panels that decoder.c reads.

    Memory: 8 · layers · kv_heads · head_dim bytes a position, rounded up to whole panels.
    """

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        super().__init__(capacity)
        width = library().sd_panel_width()
        self.padded = -(-capacity // width) * width
        self.storage = np.zeros(
            (config.layers, 2, config.kv_heads, self.padded * config.head_dim), np.float32
        )
        self.address = self.storage.ctypes.data


class NativeDecoder:
    """A Llama-style model whose whole forward pass is one call into C.

    `head_ids` is None for a full head. For a reduced head (a draft that scores only the H most
    frequent tokens) it holds their ids, int32 (H,), ascending order not required.
    """

    device = "cpu"

    def __init__(
        self,
        folder: Path,
        *,
        precision: str = "auto",
        threads: int | None = None,
        embedding_from: NativeDecoder | None = None,
    ) -> None:
        """Read and pack the weights in `folder`.

        precision: "bf16" or "fp32" for the weights (sums are float32 always); "auto" is bf16 where
        the file holds bf16, else fp32. embedding_from: share that decoder's token embedding, for a
        draft stored without one. Raises UnsupportedModel, SdError("corrupt_weights"),
        NativeUnavailable.
        """
        self._library = library()
        self.config = LlamaConfig.read(folder)
        checkpoint = Checkpoint(folder)
        self.name = folder.name
        self.vocab_size = self.config.vocab_size
        self.context_length = self.config.context_length
        self.end_tokens = self.config.end_tokens
        self._pool_size = threads or default_threads()
        self.threads = self._library.sd_pool_threads(pool(self._pool_size))
        if precision == "auto":
            stored = checkpoint["model.layers.0.mlp.down_proj.weight"].dtype
            precision = "bf16" if stored == "BF16" else "fp32"
        self.precision = precision
        self.head_ids: NDArray[np.int32] | None = None
        self._weights = _Weights(self, checkpoint, embedding_from)
        self._rope_for(min(self.context_length, 512))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices that a pass with one row reads (an untied embedding not)."""
        return self._weights.bytes_a_pass

    def describe(self) -> Description:
        """What runs, where, how precisely."""
        instructions = self._library.sd_instructions().decode()
        return Description(
            backend="native",
            device="cpu",
            precision=self.precision,
            threads=self.threads,
            reason=f"C decoder, {instructions}, float32 sums in a fixed order",
        )

    def new_cache(self, capacity: int) -> NativeCache:
        """An empty cache for `capacity` tokens (at most context_length, else ValueError)."""
        if capacity > self.context_length:
            raise ValueError(f"{self.name} reads at most {self.context_length} tokens")
        self._rope_for(capacity)
        return NativeCache(self.config, capacity)

    def forward(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """Append `tokens` (T of them) to `cache` and return logits, float32.

        (T, vocab_size), or (1, vocab_size) with last_only. With a reduced head the other tokens
        get -inf. Raises ContextFull (the cache is unchanged), NotFinite (the tokens are not
        appended), ValueError for no token or one outside the vocabulary.
        """
        return self._widen(self.forward_compact(tokens, cache, last_only=last_only))

    def forward_compact(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """As forward, but logits are (T, H): column j belongs to token head_ids[j]."""
        return self._run([(tokens, cache)], last_only)

    def forward_many(
        self, batch: Sequence[tuple[Sequence[int], Cache]], *, last_only: bool = True
    ) -> NDArray[np.float32]:
        """One pass for several sequences, each with its own cache.

        Logits in the order of the batch: (len(batch), V) with last_only, else one row a token.
        Each row has the same bits as alone. A cache may occur once.
        """
        if len({id(cache) for _, cache in batch}) != len(batch):
            raise ValueError("the same cache stands twice in the batch")
        return self._widen(self._run(batch, last_only))

    def _run(
        self, batch: Sequence[tuple[Sequence[int], Cache]], last_only: bool
    ) -> NDArray[np.float32]:
        rows = np.empty(sum(len(tokens) for tokens, _ in batch), _ROW)
        start = wanted = 0
        for tokens, cache in batch:
            if not isinstance(cache, NativeCache):
                raise TypeError("this cache belongs to another decoder")
            count = len(tokens)
            if not count:
                raise ValueError("a forward pass needs at least one token")
            cache.require(count)
            part = rows[start : start + count]
            if min(tokens) < 0 or max(tokens) >= self.vocab_size:
                raise ValueError(f"a token lies outside the vocabulary of {self.vocab_size}")
            part["token"] = tokens
            part["position"] = np.arange(cache.length, cache.length + count)
            part["capacity"] = cache.padded
            part["cache"] = cache.address
            if last_only:
                part["logits_row"] = -1
                part["logits_row"][-1] = wanted
                wanted += 1
            else:
                part["logits_row"] = np.arange(wanted, wanted + count)
                wanted += count
            start += count
        logits = np.empty((wanted, self._weights.head_padded), np.float32)
        status = self._library.sd_forward(
            pool(self._pool_size),
            ctypes.addressof(self._weights.model),
            len(rows),
            rows.ctypes.data,
            logits.ctypes.data,
            logits.shape[1],
        )
        if status == NO_MEMORY:
            raise MemoryError("no memory for the activations of this pass")
        if status == NOT_FINITE:
            raise NotFinite(self.name)
        for tokens, cache in batch:
            cache.length += len(tokens)
        return logits[:, : self._weights.head_rows]

    def _widen(self, compact: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.head_ids is None:
            return compact
        full = np.full((len(compact), self.vocab_size), -np.inf, np.float32)
        full[:, self.head_ids] = compact
        return full

    def _rope_for(self, positions: int) -> None:
        """Make the position tables reach at least `positions`; rounded up so they rarely grow."""
        if positions > len(self._weights.cosine):
            count = min(self.context_length, 1 << (positions - 1).bit_length())
            self._weights.set_rope(*self.config.rope_tables(count))


class _Weights:
    """The packed arrays and the C structures that point to them (kept alive together)."""

    model: Model

    def __init__(
        self, decoder: NativeDecoder, checkpoint: Checkpoint, sharing: NativeDecoder | None
    ) -> None:
        config, self._type = decoder.config, TYPES[decoder.precision]
        self._library = decoder._library
        self._panel = self._library.sd_panel_width()
        self._item = 2 if decoder.precision == "bf16" else 4
        self._kept: list[object] = []
        self.cosine = np.empty((0, config.head_dim // 2), np.float32)

        self.head_rows = config.vocab_size
        reduced = "head_ids" in checkpoint
        if reduced:
            ids = checkpoint["head_ids"].data.astype(np.int32)
            if ids.ndim != 1 or not len(ids) or ids.min() < 0 or ids.max() >= config.vocab_size:
                raise UnsupportedModel("its head_ids are not token ids")
            decoder.head_ids = ids
            self.head_rows = len(ids)
        self.head_padded = self._padded(self.head_rows)
        tied = config.tied and not reduced and "lm_head.weight" not in checkpoint

        head_elements = self.head_padded * config.width
        elements = config.layers * self._layer_elements(config) + head_elements
        self.bytes_a_pass = elements * self._item
        if sharing is None and not tied:
            elements += self._padded(config.vocab_size) * config.width
        self._arena = arena(elements * self._item + 64 * (4 * config.layers + 2))
        self._used = 0

        layers = (Layer * config.layers)()
        for index, layer in enumerate(layers):
            self._fill(layer, f"model.layers.{index}.", config, checkpoint)
        if sharing is None:
            shape = (config.vocab_size, config.width)
            embedding = self._take(self._padded(config.vocab_size), config.width)
            self._pack(embedding, checkpoint.expect("model.embed_tokens.weight", shape))
        else:
            other = sharing._weights
            same = (sharing.precision, sharing.config.width, sharing.vocab_size)
            if same != (decoder.precision, config.width, config.vocab_size):
                raise UnsupportedModel("it cannot share the embedding of a model of other sizes")
            self._kept.append(other)
            embedding = other.model.embedding
        if tied:
            head = embedding
        else:
            head = self._take(self.head_padded, config.width)
            shape = (self.head_rows, config.width)
            self._pack(head, checkpoint.expect("lm_head.weight", shape))
        self.model = Model(
            layers=config.layers, width=config.width, heads=config.heads,
            kv_heads=config.kv_heads, head_dim=config.head_dim, ffn=config.ffn,
            vocabulary=config.vocab_size, head_rows=self.head_rows, weight_type=self._type,
            epsilon=config.epsilon, embedding=embedding, head=head,
            final_norm=self._vector(checkpoint, "model.norm.weight", config.width),
            layer=ctypes.addressof(layers),
        )  # fmt: skip
        self._kept.append(layers)

    def set_rope(self, cosine: NDArray[np.float32], sine: NDArray[np.float32]) -> None:
        # The old tables stay alive: a pass in another thread may be reading them.
        self._kept += (cosine, sine)
        self.cosine = cosine
        self.model.sine = sine.ctypes.data
        self.model.cosine = cosine.ctypes.data

    def _padded(self, rows: int) -> int:
        return -(-rows // self._panel) * self._panel

    def _layer_elements(self, c: LlamaConfig) -> int:
        qkv = (c.heads + 2 * c.kv_heads) * c.head_dim * c.width
        o = self._padded(c.width) * c.heads * c.head_dim
        return qkv + o + 2 * self._padded(c.ffn) * c.width + self._padded(c.width) * c.ffn

    def _fill(self, layer: Layer, at: str, c: LlamaConfig, checkpoint: Checkpoint) -> None:
        query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim
        parts = (("q", query), ("k", key), ("v", key))

        layer.qkv = self._take(query + 2 * key, c.width)
        first = 0
        for name, rows in parts:
            source = checkpoint.expect(f"{at}self_attn.{name}_proj.weight", (rows, c.width))
            self._pack(layer.qkv, source, first)
            first += rows // self._panel
        layer.o = self._take(self._padded(c.width), query)
        self._pack(layer.o, checkpoint.expect(f"{at}self_attn.o_proj.weight", (c.width, query)))

        layer.gate_up = self._take(2 * self._padded(c.ffn), c.width)
        for first, name in enumerate(("gate", "up")):
            source = checkpoint.expect(f"{at}mlp.{name}_proj.weight", (c.ffn, c.width))
            self._pack(layer.gate_up, source, first, 2)
        layer.down = self._take(self._padded(c.width), c.ffn)
        self._pack(layer.down, checkpoint.expect(f"{at}mlp.down_proj.weight", (c.width, c.ffn)))

        layer.attention_norm = self._vector(checkpoint, f"{at}input_layernorm.weight", c.width)
        layer.ffn_norm = self._vector(checkpoint, f"{at}post_attention_layernorm.weight", c.width)
        if c.qkv_bias:
            bias = [
                checkpoint.expect(f"{at}self_attn.{name}_proj.bias", (rows,)).float32()
                for name, rows in parts
            ]
            layer.qkv_bias = self._keep(np.concatenate(bias))
        if c.qk_norm:
            layer.q_norm = self._vector(checkpoint, f"{at}self_attn.q_norm.weight", c.head_dim)
            layer.k_norm = self._vector(checkpoint, f"{at}self_attn.k_norm.weight", c.head_dim)

    def _take(self, rows: int, columns: int) -> int:
        """The address of the arena's next rows · columns elements, on a cache line of its own."""
        address = self._arena.ctypes.data + self._used
        self._used += -(-rows * columns * self._item // 64) * 64
        return address

    def _pack(self, to: int, source: Stored, first: int = 0, step: int = 1) -> None:
        data = source.data if source.dtype in ("BF16", "F32") else source.float32()
        kind = TYPES["bf16" if source.dtype == "BF16" else "fp32"]
        data = np.ascontiguousarray(data)
        rows, columns = data.shape
        self._library.sd_pack(to, self._type, data.ctypes.data, kind, rows, columns, first, step)

    def _vector(self, checkpoint: Checkpoint, name: str, size: int) -> int:
        return self._keep(checkpoint.expect(name, (size,)).float32())

    def _keep(self, array: NDArray[np.float32]) -> int:
        array = np.ascontiguousarray(array)
        self._kept.append(array)
        return int(array.ctypes.data)


def arena(size: int) -> NDArray[np.uint8]:
    """Fresh zeroed memory, in huge pages where the system gives them: fewer address look-ups."""
    raw = mmap.mmap(-1, size + _HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them; ordinary pages do
            raw.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(raw, np.uint8)
    offset = -whole.ctypes.data % _HUGE_PAGE
    return whole[offset : offset + size]
