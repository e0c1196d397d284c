"""What the measured roofline times: the engine's kernels and plain PyTorch, on a CPU or a GPU.

Method (each point costs wrong numbers where it is left out): weights that total at least three
times the last-level cache, read in turn; random data, never zeros, which cost less power and so run
faster; on a GPU a graph of the whole pass, timed by events on the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from kernels import machine, memory, storage, weights
from kernels.model import Decoder, load_decoder
from kernels.packed import Product, pack
from kernels.roofline import BYTES, KINDS, Subject
from kernels.tiles import TILE_ROWS, TiledProduct

_UNKNOWN_CACHE = 64 << 20
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CHECKED_ROWS = 64


def resolve_device(device: str) -> str:
    """Return "cpu" or "cuda[:n]" for "auto" and for what it names."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def describe(device: str) -> dict[str, Any]:
    """The device for a record; a GPU's name beside that of its host."""
    host = machine.describe()
    if not device.startswith("cuda"):
        return dict(host)
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory": properties.total_memory,
        "units": properties.multi_processor_count,
        "host": host,
    }


def last_level_cache(device: str) -> int:
    """Bytes of the last cache before memory; a guess on the safe side where nobody tells."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = []
    for file in _CACHES.glob("index*/size"):
        text = file.read_text("ascii").strip()
        sizes.append(int(text.rstrip("KM")) << (20 if text.endswith("M") else 10))
    return max(sizes, default=_UNKNOWN_CACHE)


def require_memory(device: str, shapes: Sequence[tuple[int, int]], least: int) -> None:
    """Raise SdError `not_enough_memory` if the weights would not fit."""
    # In FP32 once for torch and once as the source of the packed ones.
    largest = max(4 * 2 * max(least // 2, rows * columns) for rows, columns in shapes)
    memory.require(largest + (256 << 20), "The measurement", device)


def read_bandwidth(device: str, least: int, repeats: int = 15) -> dict[str, Any]:
    """How fast this device reads: a sum over FP32 numbers, the best of `repeats`."""
    x = torch.rand(max(least, 256 << 20) // 4, device=device)
    times = []
    for _ in range(repeats):
        _synchronise(device)
        start = time.perf_counter()
        x.sum()
        _synchronise(device)
        times.append(time.perf_counter() - start)
    return {"bandwidth": 4 * x.numel() / min(times), "method": "torch.sum, FP32, best"}


def subjects(
    device: str, shapes: Sequence[tuple[int, int]], least: int, only: Sequence[str]
) -> Iterator[Subject]:
    """What to time on `device`, made one at a time; the engine's own kernel first.

    only: names of `roofline.KINDS`; none for all. What this machine cannot do is left out.
    """
    wanted = set(only or KINDS)
    if device.startswith("cuda"):
        for rows, columns in shapes:
            yield cuda_graph(rows, columns, least, device)
        return
    torch.set_num_threads(machine.usable_cores())
    folder = weights.local() if "engine" in wanted else None
    if folder is not None:
        yield engine(folder)
    makers = {"native": native, "packed": packed_torch, "plain": plain_torch}
    for rows, columns in shapes:
        for name, make in makers.items():
            subject = make(rows, columns, least) if name in wanted else None
            if subject is not None:
                yield subject


def engine(folder: Path) -> Subject:
    """Whole passes of the model in `folder`."""
    decoder = load_decoder(folder, device="cpu")
    return whole_passes(decoder, weights.describe(folder), storage.parameter_count(folder))


def whole_passes(
    decoder: Decoder, name: str, parameters: int | None = None, most: int = 1 << 12
) -> Subject:
    """Passes of a loaded model, as a prompt of k tokens is read, logits for each.

    name: of its weights. parameters: None for those of the matrices that a pass reads. most: the
    largest k.
    """
    most = min(most, decoder.context_length)
    cache = decoder.new_cache(most)
    tokens = np.random.default_rng(2).integers(0, decoder.vocab_size, most).tolist()
    about = decoder.describe()
    size = BYTES[about.precision]
    parameters = parameters or decoder.weight_bytes // size

    def run(k: int) -> float:
        cache.rollback(0)
        start = time.perf_counter()
        decoder.forward(tokens[:k], cache)
        _synchronise(decoder.device)
        return time.perf_counter() - start

    return Subject(
        kernel=f"{about.backend} decoder, whole passes",
        precision=about.precision,
        shape=name,
        parameters=parameters,
        bytes=size * parameters,
        run=run,
    )


def native(rows: int, columns: int, least: int) -> Subject | None:
    """The C decoder's product in BF16, by all cores, tiles taken from a queue.

    None where there is no compiler: there the engine runs on torch.
    """
    random = np.random.default_rng(0)
    matrices = ceil(least / (2 * rows * columns))
    source = random.standard_normal((matrices * rows, columns), dtype=np.float32)
    product = TiledProduct(source, TILE_ROWS, machine.usable_cores())
    if product.tiles[0].bytes != 2 * TILE_ROWS * columns:
        product.close()
        return None
    inputs = _Inputs(columns)

    def run(k: int) -> float:
        return product.run(inputs[k], trace=False)[1]

    y = product.run(inputs[3], trace=False)[0]
    return Subject(
        kernel=product.tiles[0].kernel,
        precision="bf16",
        shape=_shape(rows, columns, matrices),
        parameters=source.size,
        bytes=2 * source.size,
        run=run,
        relative_error=_deviation(y[:, :_CHECKED_ROWS], inputs[3], source[:_CHECKED_ROWS]),
        close=product.close,
    )


def packed_torch(rows: int, columns: int, least: int) -> Subject | None:
    """PyTorch's FP32 product with weights packed for oneDNN; None where that does not work."""
    return _torch(rows, columns, least, "torch, packed for oneDNN", lambda w: pack(w, None))


def plain_torch(rows: int, columns: int, least: int) -> Subject | None:
    """PyTorch's FP32 product as everybody calls it."""

    def linear(weight: torch.Tensor) -> Product:
        return lambda x: functional.linear(x, weight)

    return _torch(rows, columns, least, "torch, F.linear", linear)


def _torch(
    rows: int,
    columns: int,
    least: int,
    kernel: str,
    make: Callable[[torch.Tensor], Product | None],
) -> Subject | None:
    random = torch.Generator().manual_seed(0)
    matrices = ceil(least / (4 * rows * columns))
    products: list[Product] = []
    check = np.empty(0, np.float32)
    for number in range(matrices):
        weight = torch.randn(rows, columns, generator=random)
        if number == 0:
            check = weight[:_CHECKED_ROWS].numpy().copy()
        product = make(weight)
        if product is None:
            return None
        products.append(product)
    inputs = _Inputs(columns)

    @torch.inference_mode()
    def run(k: int) -> float:
        x = torch.from_numpy(inputs[k])
        start = time.perf_counter()
        for product in products:
            product(x)
        return time.perf_counter() - start

    with torch.inference_mode():
        y = products[0](torch.from_numpy(inputs[3])).numpy()[:, :_CHECKED_ROWS]
    return Subject(
        kernel=kernel,
        precision="fp32",
        shape=_shape(rows, columns, matrices),
        parameters=rows * columns * matrices,
        bytes=4 * rows * columns * matrices,
        run=run,
        relative_error=_deviation(y, inputs[3], check),
    )


def cuda_graph(rows: int, columns: int, least: int, device: str) -> Subject:
    """BF16 products over all matrices, captured in one CUDA graph for each k."""
    matrices = ceil(least / (2 * rows * columns))
    options: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    layers = [torch.randn(rows, columns, **options) for _ in range(matrices)]
    graphs: dict[int, tuple[Any, torch.Tensor, list[torch.Tensor]]] = {}

    def capture(k: int) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        x = torch.randn(k, columns, **options)
        side = torch.cuda.Stream(device)
        with torch.cuda.stream(side):
            for weight in layers:  # lets cuBLAS set itself up outside the capture
                functional.linear(x, weight)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [functional.linear(x, weight) for weight in layers]
        return graph, x, outputs

    @torch.inference_mode()
    def run(k: int) -> float:
        if k not in graphs:
            graphs[k] = capture(k)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graphs[k][0].replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    run(3)
    _, x, outputs = graphs[3]
    y = outputs[0].float().cpu().numpy()[:, :_CHECKED_ROWS]
    error = _deviation(y, x.float().cpu().numpy(), layers[0][:_CHECKED_ROWS].float().cpu().numpy())

    def close() -> None:
        graphs.clear()
        layers.clear()
        torch.cuda.empty_cache()

    return Subject(
        kernel="torch, F.linear in a CUDA graph",
        precision="bf16",
        shape=_shape(rows, columns, matrices),
        parameters=rows * columns * matrices,
        bytes=2 * rows * columns * matrices,
        run=run,
        relative_error=error,
        close=close,
    )


def _shape(rows: int, columns: int, matrices: int) -> str:
    return f"{rows} × {columns}" if matrices == 1 else f"{matrices} of {rows} × {columns}"


class _Inputs(dict[int, NDArray[np.float32]]):
    """Random activations (k, columns), made when first asked for."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self._columns = columns
        self._random = np.random.default_rng(1)

    def __missing__(self, k: int) -> NDArray[np.float32]:
        self[k] = self._random.standard_normal((k, self._columns), dtype=np.float32)
        return self[k]


def _deviation(
    y: NDArray[np.float32], x: NDArray[np.float32], weights: NDArray[np.float32]
) -> float:
    """Largest deviation of y from x · weightsᵀ in double precision, by the largest value."""
    expected = x.astype(np.float64) @ weights.astype(np.float64).T
    return float(np.abs(y - expected).max() / np.abs(expected).max())


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
