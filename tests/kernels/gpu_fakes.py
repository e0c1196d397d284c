"""A graph backend without a GPU: it records operations and repeats exactly those.

As with CUDA graphs, Python does not run again at a replay: every number it knew is frozen and every
address fixed. What a capture computed is lost until the first replay. Whatever would make the host
wait is refused during capture. And nothing happens before somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# What reads a value on the host, or brings one from memory that Python made.
_WAITING = {
    getattr(torch.ops.aten, name)
    for name in ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "lift_fresh")
}


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, dict[int, Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in _WAITING:
            raise RuntimeError(f"{func}: operation not permitted when a stream is capturing")
        result = func(*args, **kwargs)
        given = {_address(tensor) for tensor in _tensors((args, kwargs))}
        # An output in the memory of an input is a view, or that input changed: nothing to keep.
        made = {
            place: tensor
            for place, tensor in enumerate(_tensors(result))
            if _address(tensor) not in given
        }
        self.calls.append((func, args, kwargs, made))
        return result


class FakeBackend:
    """See kernels.gpu.graphs.Backend. `captures` and `waits` count what was asked for."""

    def __init__(self) -> None:
        self.captures = 0
        self.waits = 0
        self._queue: list[Callable[[], None]] = []

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        body()
        with torch.inference_mode(), _Recorder() as recorder:
            body()
        with torch.inference_mode():
            for _, _, _, made in recorder.calls:
                for tensor in made.values():
                    if tensor.is_floating_point():
                        tensor.fill_(torch.nan)

        @torch.inference_mode()
        def replay() -> None:
            for func, args, kwargs, made in recorder.calls:
                again = func(*args, **kwargs)
                if made:
                    results = _tensors(again)
                    for place, tensor in made.items():
                        tensor.copy_(results[place])

        return lambda: self._queue.append(replay)

    def host(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    def copy(self, to: Tensor, source: Tensor) -> None:
        def step() -> None:
            to.copy_(source)

        self._queue.append(step)

    def wait(self) -> None:
        self.waits += 1
        for step in self._queue:
            step()
        self._queue.clear()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
