"""What the algorithms need of a model, and how to load one.

A decoder appends tokens to a cache and returns logits. Three kinds exist, tried in this order:

- native (`kernels.native`): a whole pass in one C call, near the limit that memory sets; every row
  has the same bits whatever runs beside it;
- packed (`kernels.packed`): the same architecture on torch, on a GPU or where no compiler is;
- hf (`kernels.hf`): any other causal model, through transformers' own forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernels.cache import Cache
from kernels.errors import SdError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BACKENDS = ("native", "packed", "hf")


class NotFinite(SdError):
    """The logits hold NaN or infinity, so no token may be drawn from them."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "not_finite",
            f"{name} computed logits that are not numbers. Its weights are damaged, or they need a "
            'higher precision: fetch them again, or load with precision="fp32".',
            model=name,
        )


@dataclass(frozen=True)
class Description:
    """How a decoder runs. `reason`: why this backend, in words for a log or a tooltip."""

    backend: str
    device: str
    precision: str
    threads: int
    reason: str


class Decoder(Protocol):
    """A causal language model with an explicit cache.

    `head_ids` is None, or the int32 (H,) ids that a reduced head scores; forward gives every other
    token -inf, forward_compact returns only the H columns, which is cheaper to sample from.
    """

    name: str
    vocab_size: int
    context_length: int
    device: str
    precision: str
    end_tokens: tuple[int, ...]
    head_ids: NDArray[np.int32] | None

    def new_cache(self, capacity: int) -> Cache:
        """An empty cache for `capacity` tokens; ValueError above context_length."""
        ...

    def forward(self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False) -> Any:
        """Append T tokens at cache.length; logits, float32, (T, V), or (1, V) if last_only.

        An array of NumPy or a tensor of torch. Raises ContextFull, NotFinite, ValueError (no
        token, or one outside the vocabulary); the cache is as before then.
        """
        ...

    def forward_compact(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> Any:
        """As forward, with only the columns of head_ids (all, if that is None)."""
        ...

    def describe(self) -> Description:
        """Backend, device, precision, threads, and why."""
        ...


def load_decoder(
    folder: str | Path,
    *,
    device: str = "auto",
    precision: str = "auto",
    backend: str = "auto",
    threads: int | None = None,
    embedding_from: Decoder | None = None,
) -> Decoder:
    """Load the model in `folder` (config.json and safetensors).

    device: "auto" (a CUDA device if there is one, else the CPU), "cpu", "cuda", "cuda:1".
    precision: "auto", "bf16", "fp32" (of the weights). backend: "auto", or one of BACKENDS, which
    then must work. threads: of the CPU; None for all usable cores. embedding_from: the target
    whose token embedding a draft stored without one shares.
    Raises SdError (codes weights_not_found, corrupt_weights, unsupported_model), ValueError for an
    unknown choice, and what the chosen backend raises when it was named explicitly.
    """
    folder = Path(folder)
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend is auto, {', '.join(BACKENDS)}; not {backend!r}")
    if precision not in ("auto", "bf16", "fp32"):
        raise ValueError(f"precision is auto, bf16 or fp32; not {precision!r}")
    from kernels.native.decoder import NativeDecoder

    if embedding_from is not None and not isinstance(embedding_from, NativeDecoder):
        raise TypeError("embedding_from is not a native decoder")
    return NativeDecoder(
        folder, precision=precision, threads=threads, embedding_from=embedding_from
    )
