"""The decoder on a GPU: each pass is one CUDA graph, captured once and replayed.

A pass of a small model is some thousand short kernels; launching them one by one takes longer than
running them. A graph holds them all, but also every address and every number that Python knew at
capture. So whatever changes from pass to pass lies in tensors at fixed addresses: token ids,
positions, and which rows are wanted. The length of the text enters only through positions, from
which the attention mask follows. (Positions frozen at capture, rows of an earlier and longer pass
left in the padding: vllm #43682, #46324, sglang #10892.)

Rows and bits: decoding one token and verifying m + 1 of them replay *the same graph*, padded to the
same `PADDED[0]` rows, over keys and values of the same span. So both run the same kernels on the
same shapes, and a row's result can only depend on where among the rows it stands; `kernels.probe`
tries whether it does. Padding repeats the last token at its own position: it writes the same key
and value once more. Prompts go through graphs with more rows, for both lanes alike.

Waiting: a pass copies its inputs, replays and copies its logits on one stream, then waits once for
an event. That one wait is what choosing a token on the host needs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.cache import Cache
from kernels.model import Description, NotFinite
from kernels.packed import PackedCache, PackedDecoder

#: Rows of the graphs. The first is for decoding and verification (m + 1 ≤ 17), and is how many rows
#: of logits any pass computes; the others are for prompts, which longer ones pass in pieces.
PADDED = (32, 128, 512)
#: Positions of the shortest cache; longer ones hold twice as many, and so on.
_SHORTEST_SPAN = 256
#: Bytes that the attention scores of one layer may take: limits the rows of a long cache's graphs.
_MOST_SCORES = 1 << 30
#: Caches kept, with their graphs, for the next run: two lanes of a target, twice.
_SPARE = 4


class Backend(Protocol):
    """What makes and runs graphs. All calls are in order, on one stream; only `wait` waits."""

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Record what `body` does on the device; a call of the result does that again."""
        ...

    def host(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory of the host that the device can copy from and to by itself."""
        ...

    def copy(self, to: Tensor, source: Tensor) -> None:
        """Queue a copy."""
        ...

    def wait(self) -> None:
        """Return when everything queued so far is done."""
        ...


class CudaBackend:
    """Graphs of CUDA on a stream of their own."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device)
        self._done = torch.cuda.Event()
        # Graphs run one after the other, so they can share the memory of their intermediates.
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """See Backend. `body` runs before, twice, so that libraries set themselves up."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()  # weights and caches were written on another stream
            with torch.cuda.stream(self._stream):
                body()
                body()
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                body()

        def replay() -> None:
            with torch.cuda.stream(self._stream):
                graph.replay()

        return replay

    def host(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """See Backend: pinned memory."""
        return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def copy(self, to: Tensor, source: Tensor) -> None:
        """See Backend."""
        with torch.cuda.stream(self._stream):
            to.copy_(source, non_blocking=True)

    def wait(self) -> None:
        """See Backend: for an event, not for the whole device."""
        self._done.record(self._stream)
        self._done.synchronize()


class Graph:
    """A pass over `rows` rows of one storage, at fixed addresses.

    Attributes:
        staging: (2 · rows + C,) int64 on the host: ids, positions, and the C rows wanted.
        logits: (C, H) float32 on the device, of the last replay.
        finite: (C,) bool: whether all of a row's logits are numbers.
        replay: queues the pass over the inputs of the last `run` once more.
    """

    logits: Tensor
    finite: Tensor

    def __init__(
        self, model: PackedDecoder, memory: PackedCache, rows: int, chosen: int, backend: Backend
    ) -> None:
        self.rows = rows
        size = 2 * rows + chosen
        self.staging = backend.host((size,), torch.int64)
        # Zeros are a sound input: the capture reads token 0 at position 0 of an empty cache.
        self._input = torch.zeros(size, dtype=torch.int64, device=model.device)

        def body() -> None:
            ids, position, wanted = self._input.split((rows, rows, chosen))
            self.logits = model.compute(ids, position, wanted, memory)
            self.finite = torch.isfinite(self.logits).all(-1)

        self.backend = backend
        self.replay = backend.capture(body)

    def run(self, tokens: Sequence[int], position: int, wanted: Sequence[int]) -> None:
        """Queue a pass over `tokens`, the first at `position`. wanted: at most C of its rows."""
        ids, positions, chosen = self.staging.numpy().reshape(-1), self.rows, 2 * self.rows
        count = len(tokens)
        ids[:count] = tokens
        ids[count:positions] = tokens[-1]
        ids[positions : positions + count] = np.arange(position, position + count)
        ids[positions + count : chosen] = position + count - 1
        ids[chosen : chosen + len(wanted)] = wanted
        ids[chosen + len(wanted) :] = wanted[-1]
        self.backend.copy(self._input, self.staging)
        self.replay()


class Storage:
    """Keys and values for `span` positions and the graphs over them; serves one cache at a time."""

    def __init__(
        self, model: PackedDecoder, span: int, padded: Sequence[int], backend: Backend
    ) -> None:
        self.span = span
        self.memory = model.new_cache(span)
        row = 4 * model.config.heads * span
        self.graphs = [
            Graph(model, self.memory, rows, padded[0], backend)
            for rows in padded
            if rows == padded[0] or rows * row <= _MOST_SCORES
        ]

    def graph(self, count: int) -> Graph:
        """The smallest one for `count` rows."""
        return next(graph for graph in self.graphs if graph.rows >= count)


class GraphCache(Cache):
    """A cache whose keys and values lie where graphs expect them."""

    def __init__(self, capacity: int, storage: Storage) -> None:
        super().__init__(capacity)
        self.storage = storage


class GraphDecoder:
    """A packed decoder (`model`) whose passes are graphs; see kernels.model.Decoder.

    Logits are NumPy arrays: they were copied to the host anyway, since that is where tokens are
    chosen. `padded` are the graphs' rows, ascending.
    """

    def __init__(
        self,
        model: PackedDecoder,
        backend: Backend | None = None,
        padded: tuple[int, ...] = PADDED,
    ) -> None:
        self.model = model
        self.name = model.name
        self.vocab_size = model.vocab_size
        self.context_length = model.context_length
        self.end_tokens = model.end_tokens
        self.device = model.device
        self.precision = model.precision
        self.weight_bytes = model.weight_bytes
        self.head_ids = model.head_ids
        self.backend = backend or CudaBackend(model.device)
        self._padded = padded
        self._spare: list[Storage] = []
        columns = self.vocab_size if self.head_ids is None else len(self.head_ids)
        self._logits = self.backend.host((padded[0], columns), torch.float32)
        self._finite = self.backend.host((padded[0],), torch.bool)

    def describe(self) -> Description:
        """What runs, where, how precisely."""
        inner = self.model.describe()
        rows = ", ".join(str(rows) for rows in self._padded)
        return Description(
            backend=inner.backend,
            device=inner.device,
            precision=inner.precision,
            threads=inner.threads,
            reason=f"{inner.reason}; graphs of {rows} rows",
        )

    def new_cache(self, capacity: int) -> GraphCache:
        """An empty cache for `capacity` tokens (at most context_length, else ValueError).

        Takes a storage that an earlier cache has left, or captures graphs for a new one, which
        costs a fraction of a second; so no pass ever waits for a capture.
        """
        if capacity > self.context_length:
            raise ValueError(f"{self.name} reads at most {self.context_length} tokens")
        span = _SHORTEST_SPAN
        while span < capacity:
            span *= 2
        span = min(span, self.context_length)
        storage = next((spare for spare in self._spare if spare.span == span), None)
        if storage is None:
            storage = Storage(self.model, span, self._padded, self.backend)
        else:
            self._spare.remove(storage)
        cache = GraphCache(capacity, storage)
        weakref.finalize(cache, _give_back, self._spare, storage)
        return cache

    def forward(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """See kernels.model.Decoder.forward."""
        compact = self.forward_compact(tokens, cache, last_only=last_only)
        if self.head_ids is None:
            return compact
        full = np.full((len(compact), self.vocab_size), -np.inf, np.float32)
        full[:, self.head_ids] = compact
        return full

    def forward_compact(
        self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """See kernels.model.Decoder.forward_compact."""
        if not isinstance(cache, GraphCache):
            raise TypeError("this cache belongs to another decoder")
        self.model.require_tokens(tokens)
        cache.require(len(tokens))
        parts = list(self._pieces(tokens, cache, last_only))
        cache.length += len(tokens)
        return parts[-1] if last_only else np.concatenate(parts)

    def _pieces(
        self, tokens: Sequence[int], cache: GraphCache, last_only: bool
    ) -> Iterator[NDArray[np.float32]]:
        """Logits piece by piece, (1, H) each with last_only, else one row a token."""
        graphs = cache.storage.graphs
        most = (graphs[-1] if last_only else graphs[0]).rows
        for start in range(0, len(tokens), most):
            piece = tokens[start : start + most]
            wanted = [len(piece) - 1] if last_only else range(len(piece))
            graph = cache.storage.graph(len(piece))
            graph.run(piece, cache.length + start, wanted)
            count = len(wanted)
            self.backend.copy(self._finite[:count], graph.finite[:count])
            self.backend.copy(self._logits[:count], graph.logits[:count])
            # Once: for the logits, and so that the staging memory may be written again.
            self.backend.wait()
            if not self._finite[:count].all():
                raise NotFinite(self.name)
            # A copy: the next pass, of the other lane perhaps, writes here.
            yield self._logits[:count].numpy().copy()


def _give_back(spare: list[Storage], storage: Storage) -> None:
    """Keep a storage whose cache is gone, and the `_SPARE` most recent ones only."""
    spare.append(storage)
    del spare[:-_SPARE]
