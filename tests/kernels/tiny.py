"""Small random models made with transformers, which also serves as the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE: dict[str, Any] = {
    "vocab_size": 203,  # not a whole number of panels
    "hidden_size": 96,
    "intermediate_size": 152,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, tuple[type, type, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": False}),
    "llama-tied": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama-heads": (
        LlamaConfig,
        LlamaForCausalLM,
        {"num_key_value_heads": 6, "head_dim": 64, "num_hidden_layers": 1},
    ),
    "llama-128": (
        LlamaConfig,
        LlamaForCausalLM,
        {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128},
    ),
    "one-kv-head": (  # more query heads to a key-value head than rows in a kernel
        LlamaConfig,
        LlamaForCausalLM,
        {"num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 2},
    ),
    "llama3-rope": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3}),
    "linear-rope": (
        LlamaConfig,
        LlamaForCausalLM,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": 300}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"hidden_size": 192}),  # head_dim is 192 / 6
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
}


def save(
    folder: Path, kind: str = "llama", *, dtype: torch.dtype = torch.float32, **extra: Any
) -> Path:
    """Write a random model of this kind; its weights are large enough to make lively logits."""
    config_type, model_type, changes = KINDS[kind]
    torch.manual_seed(7)
    config = config_type(**{**SHAPE, "initializer_range": 0.15, **changes, **extra})
    model = model_type(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.5)
    model.to(dtype).save_pretrained(folder)
    return folder


def oracle(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits (T, V) of transformers' forward in float32, eager attention."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        return np.asarray(model(torch.tensor([list(tokens)])).logits[0].numpy())


def some_tokens(count: int, vocab_size: int = SHAPE["vocab_size"], seed: int = 0) -> list[int]:
    """Reproducible random token ids."""
    return [int(i) for i in np.random.default_rng(seed).integers(0, vocab_size, count)]
