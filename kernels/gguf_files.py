"""A GGUF file becomes a Hugging Face folder: config, tokenizer, BF16 safetensors.

Done once, so that every later start reads the same few files whatever the weights' origin. The
`gguf` package reads and de-quantises; what is ours is the naming, the order of the query and key
rows, and the tokenizer. transformers can load GGUF too, but needs another package for it, takes a
few times as long, and (5.24) cuts digits differently from the original, see `_PRE_TOKENIZERS`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from kernels import storage
from kernels.errors import SdError

_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# How text is cut before byte-pair merging, by the name that the file gives (tokenizer.ggml.pre).
# Without it a GGUF tokenizer differs from the original one: SmolLM2 sets every digit apart *first*,
# so a blank line before "1." stays one token; cut by GPT-2's rule alone it becomes two.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(use_regex: bool) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), _byte_level(False)]
    )


_PRE_TOKENIZERS: dict[str, pre_tokenizers.PreTokenizer] = {
    "gpt-2": _byte_level(True),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), _byte_level(True)]
    ),
    "llama-bpe": _split(_LLAMA3),
    "qwen2": _split(_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")),
}


def convert(
    gguf_path: Path,
    folder: Path,
    *,
    source: dict[str, Any],
    progress: storage.Progress = storage.silent,
) -> None:
    """Write `folder` (config, tokenizer, BF16 safetensors, manifest) from a GGUF file.

    The folder appears whole or not at all. One tensor at a time is in memory.
    Raises SdError: `unsupported_weights`, `corrupt_weights`, `disk_full`, `cache_not_writable`.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(gguf_path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except SdError:
        raise
    except Exception as error:  # a damaged file fails anywhere in the reader, in any way
        raise storage.corrupt(gguf_path, f"it cannot be read as GGUF ({error})") from error
    architecture = fields["general.architecture"]
    if architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise _unsupported(gguf_path, f"architecture {architecture!r} (known: {known})")
    if any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        raise _unsupported(gguf_path, "scaled rotary positions, which GGUF does not describe fully")

    needed = 2 * sum(int(tensor.n_elements) for tensor in reader.tensors)
    storage.require_space(folder.parent, needed)
    part = folder.with_name(folder.name + ".part")
    with storage.disk_errors(part.parent, needed):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            _write_json(part / "config.json", _config(fields, reader.tensors))
            _write_json(part / "generation_config.json", _generation_config(fields))
            _write_tokenizer(part, fields, gguf_path)
            _write_weights(part, reader, fields, progress)
            storage.publish(part, folder, source)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _unsupported(path: Path, reason: str) -> SdError:
    return SdError(
        "unsupported_weights",
        f"{path} cannot be converted: {reason}. Give the model's safetensors folder or "
        "Hugging Face id instead.",
        path=str(path),
        reason=reason,
    )


def _write_json(path: Path, value: Any) -> None:
    storage.write_file(path, [json.dumps(value, indent=2, ensure_ascii=False).encode()])


def _config(fields: dict[str, Any], tensors: Any) -> dict[str, Any]:
    architecture = fields["general.architecture"]

    def of(key: str, default: Any = None) -> Any:
        return fields.get(f"{architecture}.{key}", default)

    heads = of("attention.head_count")
    theta = of("rope.freq_base", 10000.0)
    names = {tensor.name for tensor in tensors}
    return {
        "architectures": [_ARCHITECTURES[architecture]],
        "model_type": architecture,
        "attention_bias": "blk.0.attn_q.bias" in names,
        "vocab_size": next(int(t.shape[1]) for t in tensors if t.name == "token_embd.weight"),
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": of("attention.head_count_kv", heads),
        "head_dim": of("attention.key_length", of("embedding_length") // heads),
        "hidden_act": "silu",
        "max_position_embeddings": of("context_length"),
        # The file holds single precision; its shortest decimal form is the number that was meant.
        "rms_norm_eps": float(str(np.float32(of("attention.layer_norm_rms_epsilon")))),
        "rope_theta": float(theta),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(theta)},
        "tie_word_embeddings": "output.weight" not in names,
        "dtype": "bfloat16",
        **_special_ids(fields),
    }


def _special_ids(fields: dict[str, Any]) -> dict[str, int]:
    named = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
    ids = {ours: fields.get(f"tokenizer.ggml.{theirs}_token_id") for theirs, ours in named.items()}
    return {name: int(value) for name, value in ids.items() if value is not None}


def _generation_config(fields: dict[str, Any]) -> dict[str, Any]:
    ids = _special_ids(fields)
    # Files name the end of a turn apart from the end of a text; either one ends an answer.
    turn = fields.get("tokenizer.ggml.eot_token_id")
    if turn is not None and "eos_token_id" in ids and int(turn) != ids["eos_token_id"]:
        return {**ids, "eos_token_id": [ids["eos_token_id"], int(turn)]}
    return ids


def _write_tokenizer(part: Path, fields: dict[str, Any], gguf_path: Path) -> None:
    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise _unsupported(gguf_path, f"tokenizer {kind!r} with {pre!r} (known: gpt2 with {known})")
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            # Llama 3's merges do not build every token of its vocabulary.
            ignore_merges=pre == "llama-bpe",
        )
    )
    backend.pre_tokenizer = _PRE_TOKENIZERS[pre]
    backend.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.add_tokens(
        [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    special = {
        f"{name.removesuffix('_token_id')}_token": tokens[i]
        for name, i in _special_ids(fields).items()
    }
    if fields.get("tokenizer.ggml.add_bos_token", False):
        start = special["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", special_tokens=[(start, tokens.index(start))]
        )
    storage.write_file(part / "tokenizer.json", [backend.to_str().encode()])
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    if template := fields.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    _write_json(part / "tokenizer_config.json", settings)


def _write_weights(
    part: Path, reader: Any, fields: dict[str, Any], progress: storage.Progress
) -> None:
    """Write model.safetensors tensor by tensor: a length, a JSON header, the bytes in its order.

    The library can write BF16 only from torch, which takes seconds to import, and only all at once.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in reader.tensors:
        end = offset + 2 * int(tensor.n_elements)
        header[_name(tensor.name, part)] = {
            "dtype": "BF16",
            "shape": [int(extent) for extent in reversed(tensor.shape)],
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned

    def chunks() -> Iterator[bytes]:
        yield len(text).to_bytes(8, "little") + text
        for done, tensor in enumerate(reader.tensors, 1):
            yield _bfloat16(_values(tensor, fields)).tobytes()
            progress("convert", done, len(reader.tensors))

    storage.write_file(part / "model.safetensors", chunks())


def _name(name: str, path: Path) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise _unsupported(path, f"unknown tensor {name!r}")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def _values(tensor: Any, fields: dict[str, Any]) -> npt.NDArray[np.float32]:
    """The tensor in FP32, in the order of rows that Hugging Face uses."""
    import gguf

    values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    values = values.reshape([int(extent) for extent in reversed(tensor.shape)])
    query, key = ".attn_q." in tensor.name, ".attn_k." in tensor.name
    if fields["general.architecture"] == "llama" and (query or key):
        # llama.cpp pairs neighbouring rows for the rotation, Hugging Face pairs row i of a head
        # with row i + head_dim / 2.
        heads = fields["llama.attention.head_count"]
        if key:
            heads = fields.get("llama.attention.head_count_kv", heads)
        half = values.shape[0] // heads // 2
        shape = values.shape
        values = values.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(shape)
    return values


def _bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """FP32 → the bits of BF16, to nearest, ties to even (weights are finite)."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
