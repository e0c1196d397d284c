"""The draft: the target's first layers, its embedding, and a short head.

transformers' Llama layers do the arithmetic, so that what is trained is what `assistant_model`
and the engine's own decoder compute. Only frequent tokens get a row in the head: the others have
q = 0 and are never drafted, which costs acceptance and no correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Draft(nn.Module):
    """`layers` decoder layers, a final norm, and a head of H rows over `head_ids` (H,).

    The embedding is the target's, shared and never trained: see share_embedding.
    """

    head_ids: Tensor
    position_of: Tensor

    def __init__(self, config: Any, head_ids: np.ndarray) -> None:
        from transformers import LlamaModel

        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, len(head_ids), bias=False)
        ids = torch.from_numpy(head_ids.astype(np.int64))
        position = torch.full((config.vocab_size,), -1, dtype=torch.int64)
        position[ids] = torch.arange(len(ids))
        self.register_buffer("head_ids", ids)
        # position_of[t] is the head's row for token t, -1 where it has none.
        self.register_buffer("position_of", position, persistent=False)

    def share_embedding(self, target: Any) -> None:
        """Use the target's embedding from now on, the same tensor, and keep training off it."""
        self.model.embed_tokens.weight = target.model.embed_tokens.weight
        self.model.embed_tokens.weight.requires_grad_(False)

    def hidden(self, input_ids: Tensor) -> Tensor:
        """(B, L) → (B, L, d), after the final norm."""
        hidden: Tensor = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        return hidden

    def forward(self, input_ids: Tensor, rows: Tensor) -> Tensor:
        """Logits (A, H) at the flattened positions `rows` (A,) of input_ids (B, L)."""
        hidden = self.hidden(input_ids)
        logits: Tensor = self.lm_head(hidden.reshape(-1, hidden.shape[-1])[rows])
        return logits

    def trained(self) -> dict[str, Tensor]:
        """All but the shared embedding: weights by their Hugging Face names, and `head_ids`."""
        return {k: v for k, v in self.state_dict().items() if "embed_tokens" not in k}


def load_target(folder: Path) -> Any:
    """The target as transformers' model in FP32, in evaluation mode.

    Raises FileNotFoundError when the folder holds no model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    # One line of ours says more than a bar for every load.
    logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no config.json: give the target's weights folder.")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in the target's folder, with its chat template."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def draft_config(target_config: Any, layers: int) -> Any:
    """The target's configuration with fewer layers and a head of its own."""
    config = deepcopy(target_config)
    config.num_hidden_layers = layers
    config.tie_word_embeddings = False
    config.use_cache = False
    # Llama's per-layer list, where a configuration carries one, must be as long as the model.
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    return config


def start_from_target(target: Any, layers: Sequence[int], head_ids: np.ndarray) -> Draft:
    """A draft whose layers are copies of the target's layers `layers`, whose norm is the target's
    and whose head rows are the target's output rows of `head_ids`.

    The first layers are the ones to take: 0 and 1 start far better than 0 and 29, or 28 and 29.
    """
    draft = Draft(draft_config(target.config, len(layers)), head_ids)
    draft.share_embedding(target)
    with torch.no_grad():
        for mine, theirs in enumerate(layers):
            draft.model.layers[mine].load_state_dict(target.model.layers[theirs].state_dict())
        draft.model.norm.load_state_dict(target.model.norm.state_dict())
        output = target.get_output_embeddings().weight
        draft.lm_head.weight.copy_(output[torch.from_numpy(head_ids.astype(np.int64))])
    return draft
