"""What the algorithms need of a model, and how to load one.

A decoder appends tokens to a cache and returns logits. Three kinds exist, tried in this order:

- native (`kernels.native`): a whole pass in one C call, near the limit that memory sets; every row
  has the same bits whatever runs beside it;
- packed (`kernels.packed`): the same architecture on torch, where no compiler is; and on a GPU,
  where each pass is one CUDA graph (`kernels.gpu.graphs`);
- hf (`kernels.hf`): any other causal model, through transformers' own forward.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kernels.cache import Cache
from kernels.errors import SdError
from kernels.llama_config import UnsupportedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

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


def describe_on_torch(decoder: Decoder, backend: str, reason: str) -> Description:
    """Describe a decoder that runs on torch, whose threads are those of the process."""
    import torch

    return Description(
        backend=backend,
        device=decoder.device,
        precision=decoder.precision,
        threads=torch.get_num_threads(),
        reason=reason,
    )


class Decoder(Protocol):
    """A causal language model with an explicit cache.

    `weight_bytes` counts the matrices that a pass with one row reads.

    `head_ids` is None, or the int32 (H,) ids that a reduced head scores; forward gives every other
    token -inf, forward_compact returns only the H columns, which is cheaper to sample from.
    """

    name: str
    vocab_size: int
    context_length: int
    device: str
    precision: str
    end_tokens: tuple[int, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices that a pass with one row reads."""
        ...

    @property
    def head_ids(self) -> NDArray[np.int32] | None:
        """None, or the int32 (H,) token ids that a reduced head scores."""
        ...

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
    then must work (a GPU always means packed, then hf). threads: of the CPU; None for all usable
    cores. embedding_from: the target whose token embedding a draft stored without one shares.
    Raises SdError (codes weights_not_found, corrupt_weights, unsupported_model), ValueError for an
    unknown choice, and what the chosen backend raises when it was named explicitly.
    """
    folder = Path(folder)
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend is auto, {', '.join(BACKENDS)}; not {backend!r}")
    if precision not in ("auto", "bf16", "fp32"):
        raise ValueError(f"precision is auto, bf16 or fp32; not {precision!r}")
    if device == "auto":
        device = "cuda" if has_cuda() and backend != "native" else "cpu"
    if backend == "native" and device != "cpu":
        raise ValueError(f"the native backend runs on the CPU, not on {device!r}")
    reason = "asked for" if backend != "auto" else f"the device is {device}"
    try:
        if device == "cpu" and backend in ("auto", "native"):
            native = _native(folder, precision, threads, embedding_from, required=backend != "auto")
            if not isinstance(native, str):
                return native
            reason = native
        if backend != "hf" and device.startswith("cuda"):
            return _graphs(folder, device, precision, embedding_from, reason)
        if backend != "hf":
            from kernels.packed import PackedDecoder

            return PackedDecoder(
                folder,
                device=device,
                precision=precision,
                threads=threads,
                embedding_from=_same_kind(embedding_from, PackedDecoder),
                reason=reason,
            )
    except UnsupportedModel as error:
        if backend != "auto" or embedding_from is not None:
            raise
        reason = error.detail["reason"]
    if embedding_from is not None:
        raise UnsupportedModel("transformers cannot share another model's embedding")
    from kernels.hf import HfDecoder

    return HfDecoder(folder, device=device, precision=precision, threads=threads, reason=reason)


def _native(
    folder: Path,
    precision: str,
    threads: int | None,
    embedding_from: Decoder | None,
    *,
    required: bool,
) -> Decoder | str:
    """The C decoder; or, unless it is required, the reason why it cannot be built here."""
    from kernels.native.decoder import NativeDecoder
    from kernels.native.library import NativeUnavailable, library

    try:
        library()
    except NativeUnavailable as error:
        if required:
            raise
        return f"no native build: {error}"
    shared = _same_kind(embedding_from, NativeDecoder)
    return NativeDecoder(folder, precision=precision, threads=threads, embedding_from=shared)


def _graphs(
    folder: Path, device: str, precision: str, embedding_from: Decoder | None, reason: str
) -> Decoder:
    """The packed decoder on a GPU, its passes captured as graphs."""
    from kernels.gpu.graphs import GraphDecoder
    from kernels.packed import PackedDecoder

    shared = _same_kind(embedding_from, GraphDecoder)
    model = PackedDecoder(
        folder,
        device=device,
        precision=precision,
        embedding_from=shared.model if shared else None,
        reason=reason,
    )
    return GraphDecoder(model)


def _same_kind(other: Decoder | None, kind: type[T]) -> T | None:
    if other is None or isinstance(other, kind):
        return other
    raise UnsupportedModel(
        f"it shares the embedding of {other.name}, which runs in another backend; load both alike"
    )


def has_cuda() -> bool:
    """Whether a CUDA device is there; torch, slow to import, is asked only if a driver is."""
    driver = any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))
    if not driver and sys.platform != "win32":
        return False
    import torch

    return torch.cuda.is_available()
