"""The shape of a Llama-style model, read from the config.json that Hugging Face folders carry.

Covered: Llama, SmolLM2, Mistral, Qwen2 (bias on q, k, v), Qwen3 (norm on q and k); rotary positions
of the types default, linear and llama3. Anything else raises UnsupportedModel with the reason, and
`kernels.model.load_decoder` turns to transformers' own forward.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.errors import SdError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class UnsupportedModel(SdError):
    """The lean decoder does not compute this architecture."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "unsupported_model",
            f"The lean decoder cannot run this model: {reason}. "
            'Use load_decoder(…, backend="hf"), which runs it through transformers.',
            reason=reason,
        )


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes are counts of elements; `rope` holds the position parameters as the file gives them."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab_size: int
    context_length: int
    epsilon: float
    tied: bool
    qkv_bias: bool
    qk_norm: bool
    rope: dict[str, Any]
    end_tokens: tuple[int, ...]

    @staticmethod
    def read(folder: Path) -> LlamaConfig:
        """Parse folder/config.json (and generation_config.json for further end tokens).

        Raises UnsupportedModel for another architecture, SdError("corrupt_weights") if a needed
        entry is missing or not of its type.
        """
        raw = read_json(folder / "config.json")
        try:
            return _parse(raw, end_tokens(folder, raw))
        except (KeyError, TypeError, ValueError) as error:
            raise SdError(
                "corrupt_weights",
                f"{folder / 'config.json'} is not a model configuration: {error!r}. "
                "Fetch the folder again.",
                file=str(folder / "config.json"),
            ) from error

    def rope_tables(self, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosine and sine of every position's angles, float32, each (positions, head_dim / 2).

        The angle is the float32 product position · frequency, as in transformers, so that long
        contexts agree with it. llama3 scaling: Llama 3.1's frequency-dependent factor.
        """
        frequency = self.rope["theta"] ** -(
            np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim
        )
        if self.rope["type"] == "linear":
            frequency = frequency / self.rope["factor"]
        elif self.rope["type"] == "llama3":
            frequency = _llama3(frequency, self.rope)
        angle = np.arange(positions, dtype=np.float32)[:, None] * frequency.astype(np.float32)
        wide = angle.astype(np.float64)
        return np.cos(wide).astype(np.float32), np.sin(wide).astype(np.float32)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from `file`; SdError("corrupt_weights") if it is none or cannot be read."""
    try:
        raw = json.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise SdError(
            "corrupt_weights",
            f"{file} cannot be read: {error}. Fetch the model's folder again.",
            file=str(file),
        ) from error
    if not isinstance(raw, dict):
        raise SdError(
            "corrupt_weights",
            f"{file} does not hold a JSON object. Fetch the model's folder again.",
            file=str(file),
        )
    return raw


def end_tokens(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """Every id that config.json or generation_config.json calls end of sequence, ascending."""
    found: set[int] = set()
    sources = [config]
    if (folder / "generation_config.json").is_file():
        sources.append(read_json(folder / "generation_config.json"))
    for source in sources:
        value = source.get("eos_token_id")
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return tuple(sorted(int(token) for token in found))


def _parse(raw: dict[str, Any], ends: tuple[int, ...]) -> LlamaConfig:
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(f"its type is {family!r}, not one of {', '.join(FAMILIES)}")
    if raw.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"its activation is {raw['hidden_act']!r}, not 'silu'")
    if raw.get("attention_bias") or raw.get("mlp_bias"):
        raise UnsupportedModel("it has a bias on its output or feed-forward projections")
    heads = int(raw["num_attention_heads"])
    width = int(raw["hidden_size"])
    config = LlamaConfig(
        family=family,
        layers=int(raw["num_hidden_layers"]),
        width=width,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or width // heads),
        ffn=int(raw["intermediate_size"]),
        vocab_size=int(raw["vocab_size"]),
        context_length=_context_length(raw),
        epsilon=float(raw["rms_norm_eps"]),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        rope=_rope(raw),
        end_tokens=ends,
    )
    if config.heads % config.kv_heads or config.heads > 64 * config.kv_heads:
        raise UnsupportedModel(f"{heads} heads do not share {config.kv_heads} key-value heads")
    if config.head_dim % 32 or config.width % 16:
        raise UnsupportedModel(
            f"its head size ({config.head_dim}) or width ({width}) is not a multiple of 32 and 16"
        )
    return config


def _context_length(raw: dict[str, Any]) -> int:
    """Positions we allow. A sliding window is never left, so it needs no masking of our own."""
    length = int(raw["max_position_embeddings"])
    window = raw.get("sliding_window")
    slides = raw.get("use_sliding_window", raw.get("model_type") == "mistral")
    return min(length, int(window)) if window and slides else length


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """Position parameters, from transformers 5 (rope_parameters) or 4 (rope_scaling) spelling."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModel(f"its rotary positions are of type {kind!r}")
    if given.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModel("only part of each head is rotated")
    theta = given.get("rope_theta", raw.get("rope_theta", 10000.0))
    return {**given, "type": kind, "theta": float(theta)}


def _llama3(frequency: NDArray[np.float64], rope: dict[str, Any]) -> NDArray[np.float64]:
    """Slow turns are slowed by `factor`, fast ones kept, those between blended."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return frequency * (kept + (1 - kept) / factor)
