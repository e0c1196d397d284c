"""Weights in safetensors files, mapped into memory and handed out tensor by tensor.

The format (https://github.com/huggingface/safetensors#format): eight bytes with the length of a
JSON header, the header (name → type, shape, byte range), then the bytes. We map it ourselves
because NumPy has no bfloat16, and the library's other front ends import torch, which costs seconds
at start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.errors import SdError
from kernels.llama_config import read_json

# The stored type → the NumPy type that holds its bits.
_NUMPY = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
_HEADER_LIMIT = 100_000_000


@dataclass(frozen=True)
class Stored:
    """One tensor as it lies in the file; bfloat16 is given as the uint16 that holds its bits."""

    name: str
    dtype: str
    data: NDArray[Any]

    def float32(self) -> NDArray[np.float32]:
        """The values as float32 (exact, except for F64)."""
        if self.dtype == "BF16":
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        return self.data.astype(np.float32)


class Checkpoint(Mapping[str, Stored]):
    """All tensors of a folder: model.safetensors, or the shards that its index names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tensors: dict[str, Stored] = {}
        index = folder / "model.safetensors.index.json"
        if (folder / "model.safetensors").is_file():
            files = {"model.safetensors"}
        elif index.is_file():
            files = set(read_json(index).get("weight_map", {}).values())
        else:
            raise SdError(
                "weights_not_found",
                f"{folder} holds no model.safetensors. Give a folder with a model in that format.",
                folder=str(folder),
            )
        for name in sorted(files):
            # An index is a stranger's text: it may name files beside it, nothing else.
            if Path(name).name != name:
                raise _corrupt(index, f"it names a file outside the folder: {name!r}")
            self._tensors.update(_read(folder / name))

    def __getitem__(self, name: str) -> Stored:
        try:
            return self._tensors[name]
        except KeyError:
            raise _corrupt(self.folder, f"the tensor {name!r} is missing") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def expect(self, name: str, shape: tuple[int, ...]) -> Stored:
        """The tensor, if it has this shape and holds floating-point numbers."""
        tensor = self[name]
        if tensor.data.shape != shape or tensor.dtype.startswith("I"):
            found = f"{tensor.dtype} {tensor.data.shape}"
            raise _corrupt(self.folder, f"{name} is {found}, the configuration says {shape}")
        return tensor


def _read(file: Path) -> dict[str, Stored]:
    try:
        raw = np.memmap(file, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise _corrupt(file, str(error)) from error
    size = int.from_bytes(raw[:8].tobytes(), "little")
    if len(raw) < 8 or size > min(len(raw) - 8, _HEADER_LIMIT):
        raise _corrupt(file, "its header is cut off")
    body = raw[8 + size :]
    try:
        header = json.loads(raw[8 : 8 + size].tobytes())
        return {
            name: _stored(name, entry, body)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _corrupt(file, str(error)) from error


def _stored(name: str, entry: dict[str, Any], body: NDArray[np.uint8]) -> Stored:
    if entry["dtype"] not in _NUMPY:
        raise ValueError(f"{name} has the type {entry['dtype']}, which is not read here")
    dtype = np.dtype(_NUMPY[entry["dtype"]])
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not 0 <= start <= end <= len(body) or end - start != prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} lies outside the file; it was not written to its end")
    data = np.frombuffer(body, dtype, prod(shape), start).reshape(shape)
    return Stored(name, entry["dtype"], data)


def _corrupt(file: Path, why: str) -> SdError:
    return SdError(
        "corrupt_weights", f"{file} is damaged: {why}. Fetch it again.", file=str(file), why=why
    )
