"""Any other causal model, through transformers' own forward: slower, and correct.

The cache keeps the tokens it stands for. Where transformers can shorten its own cache by whole
positions, a rollback does that; where it cannot (sliding windows), the pass after a rollback reads
the kept tokens again; models with a recurrent state read them again in every pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.cache import Cache
from kernels.errors import SdError
from kernels.llama_config import end_tokens, read_json
from kernels.model import Description, NotFinite, describe_on_torch

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class HfCache(Cache):
    """The tokens read so far and, if it is still valid for them, transformers' cache."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.tokens: list[int] = []
        self.past: Any = None

    def rollback(self, length: int) -> None:
        """See Cache.rollback."""
        removed = self.length - length
        super().rollback(length)
        del self.tokens[length:]
        if removed and self.past is not None:
            if length and _shortens(self.past):
                self.past.crop(-removed)
            else:
                self.past = None


class HfDecoder:
    """A causal model of any architecture that transformers knows without remote code."""

    head_ids: NDArray[np.int32] | None = None

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        precision: str = "auto",
        threads: int | None = None,
        reason: str = "asked for",
    ) -> None:
        """Load the model in `folder`.

        precision: "auto" is fp32 on a CPU and bf16 on a GPU. Raises SdError("unsupported_model")
        if transformers cannot load it from safetensors alone.
        """
        from transformers import AutoModelForCausalLM

        if threads:
            torch.set_num_threads(threads)
        if precision == "auto":
            precision = "fp32" if device == "cpu" else "bf16"
        try:
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=_DTYPES[precision],
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
            if loading["missing_keys"]:  # transformers would fill them with random numbers
                raise ValueError(f"it lacks {', '.join(sorted(loading['missing_keys'])[:3])}")
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise SdError(
                "unsupported_model",
                f"transformers cannot load {folder}: {error}. Choose another model, or install a "
                "newer transformers if the model is newer than this one.",
                reason=str(error),
            ) from error
        self._model = model.to(device).eval()
        text = model.config.get_text_config(decoder=True)
        self.name = folder.name
        self.vocab_size = int(text.vocab_size)
        self.context_length = int(getattr(text, "max_position_embeddings", None) or 1 << 20)
        self.end_tokens = end_tokens(folder, read_json(folder / "config.json"))
        self.device = device
        self.precision = precision
        self.weight_bytes = sum(p.nbytes for p in model.parameters())
        self._reason = reason
        parameters = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in parameters
        # The argument and the result have the same name; which one, depends on the version.
        self._cache_name = next((n for n in ("cache", "past_key_values") if n in parameters), None)

    def describe(self) -> Description:
        """What runs, where, how precisely."""
        import transformers

        reason = f"transformers {transformers.__version__}; {self._reason}"
        return describe_on_torch(self, "hf", reason)

    def new_cache(self, capacity: int) -> HfCache:
        """An empty cache for `capacity` tokens (at most context_length, else ValueError)."""
        if capacity > self.context_length:
            raise ValueError(f"{self.name} reads at most {self.context_length} tokens")
        return HfCache(capacity)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False) -> Tensor:
        """See kernels.model.Decoder.forward."""
        if not isinstance(cache, HfCache):
            raise TypeError("this cache belongs to another decoder")
        count = len(tokens)
        if not count:
            raise ValueError("a forward pass needs at least one token")
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            raise ValueError(f"a token lies outside the vocabulary of {self.vocab_size}")
        cache.require(count)
        unread = list(tokens) if cache.past is not None else [*cache.tokens, *tokens]
        options: dict[str, Any] = {}
        if self._keeps:
            options["logits_to_keep"] = 1 if last_only else count
        if self._cache_name:
            options |= {self._cache_name: cache.past, "use_cache": True}
        cache.past = None  # a failed pass must not leave a half-written cache
        out = self._model(input_ids=torch.tensor([unread], device=self.device), **options)
        logits: Tensor = out.logits[0, -(1 if last_only else count) :].float()
        if not bool(torch.isfinite(logits).all()):
            raise NotFinite(self.name)
        past = getattr(out, self._cache_name, None) if self._cache_name else None
        if _is_attention(past):
            cache.past = past
        cache.tokens.extend(tokens)
        cache.length += count
        return logits

    def forward_compact(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> Tensor:
        """As forward: the head is whole."""
        return self.forward(tokens, cache, last_only=last_only)


def _is_attention(past: Any) -> bool:
    """Whether this cache holds keys and values only; a recurrent state cannot read a block."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    return all(type(layer) in kinds for layer in getattr(past, "layers", [None]))


def _shortens(past: Any) -> bool:
    """Whether every layer of this cache keeps all positions, so that its end can be cut off."""
    from transformers.cache_utils import DynamicLayer

    return all(type(layer) is DynamicLayer for layer in past.layers)
