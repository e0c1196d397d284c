"""The lean decoder on torch: for a GPU, and for a CPU without a C compiler.

The same architecture as kernels/native/decoder.c in few, large operations: fused q-k-v and gate-up
products, and a cache of fixed size so that attention has one shape. On a CPU the weights are packed
for oneDNN where torch offers that (its plain product of a few rows costs a multiple of one row's).

Rows and bits: oneDNN's packed products give a row the same bits beside any other rows, except when
it is alone; so a single row is computed twice over, as two. Whether that holds on the machine at
hand is not assumed but probed (`kernels.probe`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from kernels.cache import Cache
from kernels.checkpoint import Checkpoint, Stored
from kernels.llama_config import LlamaConfig, UnsupportedModel
from kernels.model import Description, NotFinite, describe_on_torch

Product: TypeAlias = Callable[[Tensor], Tensor]
_FEWEST_ROWS = 2


class PackedCache(Cache):
    """Keys and values in the decoder's precision, (layers, kv_heads, capacity, head_dim) each."""

    def __init__(self, config: LlamaConfig, capacity: int, like: Tensor) -> None:
        super().__init__(capacity)
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.keys = like.new_zeros(shape)
        self.values = like.new_zeros(shape)


class PackedDecoder:
    """A Llama-style model in torch operations; logits are float32 tensors on `device`."""

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        precision: str = "auto",
        threads: int | None = None,
        embedding_from: PackedDecoder | None = None,
        reason: str = "asked for",
    ) -> None:
        """Read the weights in `folder`.

        precision: "auto" is bf16 on a device that multiplies bf16 natively and a file that holds
        it, else fp32. threads: torch's, for the whole process; None leaves them. Raises
        UnsupportedModel, SdError("corrupt_weights").
        """
        self.config = config = LlamaConfig.read(folder)
        checkpoint = self._open(folder)
        self.name = folder.name
        self.vocab_size = config.vocab_size
        self.context_length = config.context_length
        self.end_tokens = config.end_tokens
        self.device = device
        self._reason = reason
        if threads:
            torch.set_num_threads(threads)
        if precision == "auto":
            stored = checkpoint["model.layers.0.mlp.down_proj.weight"].dtype
            precision = "bf16" if stored == "BF16" and _multiplies_bf16(device) else "fp32"
        self.precision = precision
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.head_ids: NDArray[np.int32] | None = None
        self._packed = True
        self.weight_bytes = 0
        self._read(checkpoint, embedding_from)

    def describe(self) -> Description:
        """What runs, where, how precisely."""
        how = "weights packed for oneDNN" if self._packed else "plain products"
        reason = f"torch {torch.__version__}, {how}; {self._reason}"
        return describe_on_torch(self, "packed", reason)

    def new_cache(self, capacity: int) -> PackedCache:
        """An empty cache for `capacity` tokens (at most context_length, else ValueError)."""
        if capacity > self.context_length:
            raise ValueError(f"{self.name} reads at most {self.context_length} tokens")
        return PackedCache(self.config, capacity, self._embedding.new_zeros(0))

    def require_tokens(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for no token at all, or one outside the vocabulary."""
        if not len(tokens):
            raise ValueError("a forward pass needs at least one token")
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            raise ValueError(f"a token lies outside the vocabulary of {self.vocab_size}")

    def forward(self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False) -> Tensor:
        """See kernels.model.Decoder.forward."""
        compact = self.forward_compact(tokens, cache, last_only=last_only)
        if self.head_ids is None:
            return compact
        full = compact.new_full((len(compact), self.vocab_size), -torch.inf)
        full[:, torch.from_numpy(self.head_ids).long().to(full.device)] = compact
        return full

    @torch.inference_mode()
    def forward_compact(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> Tensor:
        """See kernels.model.Decoder.forward_compact."""
        if not isinstance(cache, PackedCache):
            raise TypeError("this cache belongs to another decoder")
        self.require_tokens(tokens)
        count = len(tokens)
        cache.require(count)
        ids = torch.tensor(tokens, device=self.device)
        position = torch.arange(cache.length, cache.length + count, device=self.device)
        if count < _FEWEST_ROWS:
            # The copy stands at the same position: it writes the same key and value once more.
            ids, position = ids.expand(_FEWEST_ROWS), position.expand(_FEWEST_ROWS)
        chosen = [count - 1] if last_only else list(range(count))
        wanted = len(chosen)
        chosen += chosen[-1:] * (_FEWEST_ROWS - wanted)
        rows = torch.tensor(chosen, device=self.device)
        logits = self.compute(ids, position, rows, cache)[:wanted]
        if not bool(torch.isfinite(logits).all()):
            raise NotFinite(self.name)
        cache.length += count
        return logits

    @torch.inference_mode()
    def compute(self, ids: Tensor, position: Tensor, chosen: Tensor, cache: PackedCache) -> Tensor:
        """What a pass does on the device: logits (C, H) of the rows `chosen`, float32.

        ids, position: (T,) int64, the token of each row and where it stands; equal positions must
        hold equal tokens. chosen: (C,) int64. Keys and values go into `cache`, whose length is
        neither read nor changed. Nothing here waits for the device or depends on a value of the
        host, so a CUDA graph may hold it (kernels.gpu.graphs).
        """
        hidden = self._layers(ids, position, cache).index_select(0, chosen)
        return self._head(self._norm(hidden, self._final_norm)).float()

    # ---- the pass

    def _layers(self, ids: Tensor, position: Tensor, cache: PackedCache) -> Tensor:
        """The residual stream after all layers, float32 (T, width)."""
        c = self.config
        rows = len(ids)
        cosine, sine = self._cosine[position, None], self._sine[position, None]  # (T, 1, D/2)
        slot = torch.arange(cache.capacity, device=self.device)
        hidden_slots = slot > position[:, None, None]  # (T, 1, S): what a row must not see
        dead_slots = (slot > position[-1])[:, None]  # (S, 1): rejected or never written
        x = self._embedding[ids].float()
        for number, layer in enumerate(self._layer):
            qkv = layer.qkv(self._norm(x, layer.attention_norm))
            q, k, v = qkv.view(rows, -1, c.head_dim).split((c.heads, c.kv_heads, c.kv_heads), 1)
            if layer.q_norm is not None and layer.k_norm is not None:
                q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
            q, k = _rotate(q, cosine, sine), _rotate(k, cosine, sine)
            keys, values = cache.keys[number], cache.values[number]  # (G, S, D)
            keys.index_copy_(1, position, k.transpose(0, 1))
            values.index_copy_(1, position, v.transpose(0, 1))
            # (G, T · heads / G, D): the query heads that share a key-value head, together
            q = q.reshape(rows, c.kv_heads, -1, c.head_dim).transpose(0, 1)
            scores = q.flatten(1, 2) @ keys.transpose(1, 2)
            scores = scores.float().view(c.kv_heads, rows, -1, cache.capacity) * c.head_dim**-0.5
            weights = scores.masked_fill(hidden_slots, -torch.inf).softmax(-1)
            # A weight of 0 does not silence a NaN, so dead slots are emptied too.
            alive = values.masked_fill(dead_slots, 0)
            mixed = weights.to(values.dtype).flatten(1, 2) @ alive
            mixed = mixed.view(c.kv_heads, rows, -1, c.head_dim).transpose(0, 1)
            x = x + layer.output(mixed.reshape(rows, -1)).float()
            gate, up = layer.gate_up(self._norm(x, layer.ffn_norm)).chunk(2, -1)
            x = x + layer.down(functional.silu(gate) * up).float()
        return x

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm in float32, result in the decoder's precision."""
        x = x.float()
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.epsilon)
        return (x * scale * weight).to(self._dtype)

    # ---- loading

    def _open(self, folder: Path) -> Checkpoint:
        return Checkpoint(folder)

    def _read(self, checkpoint: Checkpoint, sharing: PackedDecoder | None) -> None:
        c = self.config
        cosine, sine = c.rope_tables(c.context_length)
        self._cosine = torch.from_numpy(cosine).to(self.device)
        self._sine = torch.from_numpy(sine).to(self.device)
        if sharing is None:
            stored = checkpoint.expect("model.embed_tokens.weight", (c.vocab_size, c.width))
            self._embedding = self._tensor(stored)
        else:
            same = (sharing.precision, sharing.device, sharing.config.width, sharing.vocab_size)
            if same != (self.precision, self.device, c.width, c.vocab_size):
                raise UnsupportedModel("it cannot share the embedding of a model of other sizes")
            self._embedding = sharing._embedding
        rows = c.vocab_size
        if "head_ids" in checkpoint:
            self.head_ids = checkpoint["head_ids"].data.astype(np.int32)
            rows = len(self.head_ids)
        if "lm_head.weight" in checkpoint:
            head = self._tensor(checkpoint.expect("lm_head.weight", (rows, c.width)))
        elif c.tied:
            head = self._embedding
        else:
            raise UnsupportedModel("it has no output head")
        self._head = self._product(head, None)
        self._final_norm = self._vector(checkpoint, "model.norm.weight", c.width)
        self._layer = [
            _Layer(self, checkpoint, f"model.layers.{number}.") for number in range(c.layers)
        ]

    def _tensor(self, stored: Stored) -> Tensor:
        data = np.ascontiguousarray(stored.data)
        if stored.dtype == "BF16":
            tensor = torch.from_numpy(data.view(np.int16).copy()).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(data.copy())
        return tensor.to(self.device, self._dtype)

    def _vector(self, checkpoint: Checkpoint, name: str, size: int) -> Tensor:
        return torch.from_numpy(checkpoint.expect(name, (size,)).float32()).to(self.device)

    def _product(self, weight: Tensor, bias: Tensor | None) -> Product:
        """x ↦ x · weightᵀ + bias, packed if that works here."""
        self.weight_bytes += weight.nbytes
        packed = pack(weight, bias) if self.device == "cpu" else None
        if packed is not None:
            return packed
        self._packed = False
        return lambda x: functional.linear(x, weight, bias)


class _Layer:
    """One layer's products and norms."""

    def __init__(self, decoder: PackedDecoder, checkpoint: Checkpoint, at: str) -> None:
        c = decoder.config
        query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim
        parts = (("q", query), ("k", key), ("v", key))

        def matrix(name: str, rows: int, columns: int) -> Tensor:
            return decoder._tensor(checkpoint.expect(f"{at}{name}.weight", (rows, columns)))

        def norm(name: str, size: int) -> Tensor:
            return decoder._vector(checkpoint, f"{at}{name}.weight", size)

        bias = None
        if c.qkv_bias:
            bias = torch.cat(
                [
                    decoder._tensor(checkpoint.expect(f"{at}self_attn.{n}_proj.bias", (rows,)))
                    for n, rows in parts
                ]
            )
        qkv = torch.cat([matrix(f"self_attn.{n}_proj", rows, c.width) for n, rows in parts])
        both = torch.cat([matrix(f"mlp.{n}_proj", c.ffn, c.width) for n in ("gate", "up")])
        self.qkv = decoder._product(qkv, bias)
        self.output = decoder._product(matrix("self_attn.o_proj", c.width, query), None)
        self.gate_up = decoder._product(both, None)
        self.down = decoder._product(matrix("mlp.down_proj", c.width, c.ffn), None)
        self.attention_norm = norm("input_layernorm", c.width)
        self.ffn_norm = norm("post_attention_layernorm", c.width)
        self.q_norm = norm("self_attn.q_norm", c.head_dim) if c.qk_norm else None
        self.k_norm = norm("self_attn.k_norm", c.head_dim) if c.qk_norm else None


def pack(weight: Tensor, bias: Tensor | None) -> Product | None:
    """A product with weight (N, K) packed for oneDNN, or None where that does not work.

    The two operations are private to torch: they may be missing, refuse this processor's precision,
    or change. So their result is compared with the plain product before they are believed.
    """
    try:
        ops = torch.ops.mkldnn
        packed = ops._reorder_linear_weight(weight, _FEWEST_ROWS)

        def product(x: Tensor) -> Tensor:
            result: Tensor = ops._linear_pointwise(x, packed, bias, "none", [], "")
            return result

        with torch.inference_mode():
            x = torch.linspace(-1, 1, 3 * weight.shape[1], dtype=torch.float32)
            x = x.view(3, -1).to(weight.dtype)
            plain = functional.linear(x, weight, bias).float()
            tolerance = (2e-2 if weight.dtype == torch.bfloat16 else 1e-4) * float(
                plain.abs().max() + 1
            )
            found = product(x).float()
            if found.shape != plain.shape or float((found - plain).abs().max()) > tolerance:
                return None
    except (RuntimeError, AttributeError, TypeError):
        return None
    return product


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn dimension i with i + D/2; x (T, H, D), tables (T, 1, D/2), in float32."""
    a, b = x.float().chunk(2, -1)
    turned = torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
    return turned.to(x.dtype)


def _multiplies_bf16(device: str) -> bool:
    if device != "cpu":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
