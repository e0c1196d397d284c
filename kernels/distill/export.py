"""The draft as files: the folder that the engine loads, and a full model for transformers.

Both are written beside their place and moved there at the end, so that a reader never meets half.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels.distill.draft import Draft, draft_config

# How far below the draft's own logits the tokens without a head row are put; see full_head.
DEPTH = 1000.0


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A fresh folder to fill; it takes `folder`'s place when the block ends without an error."""
    part, old = (folder.with_name(folder.name + suffix) for suffix in (".part", ".old"))
    for leftover in (part, old):
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    if folder.exists():
        folder.replace(old)
    part.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def save_draft(draft: Draft, folder: Path, *, card: str = "", curves: str = "") -> None:
    """Write the folder that the engine loads.

    model.safetensors (BF16 weights by their Hugging Face names, lm_head.weight (H, d), head_ids
    (H,) int32, no embedding), config.json, and where given the model card as README.md and the
    training log as curves.jsonl.
    """
    from safetensors.torch import save_file

    tensors = {
        k: v.to(torch.int32 if k == "head_ids" else torch.bfloat16).contiguous()
        for k, v in draft.trained().items()
    }
    with replacing(folder) as part:
        save_file(tensors, part / "model.safetensors", metadata={"format": "pt"})
        # safetensors leaves its file readable by its owner alone.
        (part / "model.safetensors").chmod(0o644)
        config = draft.config.to_diff_dict()
        config |= {"dtype": "bfloat16", "head_rows": len(draft.head_ids), "use_cache": True}
        for private in ("_name_or_path", "_model_name_or_path"):
            config.pop(private, None)
        (part / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        if curves:
            (part / "curves.jsonl").write_text(curves, encoding="utf-8")
        if card:
            (part / "README.md").write_text(card, encoding="utf-8")


def load_draft(folder: Path, target: Any) -> Draft:
    """Read what save_draft wrote, in FP32, with the target's embedding.

    Raises FileNotFoundError when the folder holds no draft, ValueError when it is another target's.
    """
    from safetensors.torch import load_file

    file = folder / "model.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"{folder} holds no model.safetensors: give a draft's folder.")
    tensors = load_file(file)
    config = json.loads((folder / "config.json").read_text())
    for key in ("hidden_size", "vocab_size"):
        if config[key] != getattr(target.config, key):
            raise ValueError(
                f"The draft in {folder} has {key} {config[key]}, the target "
                f"{getattr(target.config, key)}: it was distilled from another target."
            )
    head_ids = tensors["head_ids"].numpy()
    draft = Draft(draft_config(target.config, config["num_hidden_layers"]), head_ids)
    draft.share_embedding(target)
    missing, extra = draft.load_state_dict(
        {k: v if k == "head_ids" else v.float() for k, v in tensors.items()}, strict=False
    )
    if extra or any("embed_tokens" not in name for name in missing):
        raise ValueError(f"{file} does not hold the tensors of a draft: {missing}, {extra}.")
    return draft.eval()


def direction_of(hidden: Tensor) -> Tensor:
    """The shortest vector u (d,) for which u · h is closest to 1, in squares, over the hidden
    states h in `hidden` (N, d)."""
    ones = torch.ones(len(hidden), 1, dtype=torch.float64)
    # gelsd copes with hidden states that do not span the space.
    return torch.linalg.lstsq(hidden.double(), ones, driver="gelsd").solution[:, 0].float()


def full_head(draft: Draft, hidden: Tensor) -> Tensor:
    """A head of all V rows (V, d) that gives the draft's own logits on `head_ids`, unchanged, and
    one common, far lower logit to every other token.

    Llama's head has no bias, so the missing tokens cannot be put at −∞. But they can all share the
    row −DEPTH · u, where u · h ≈ 1 for the hidden states `hidden` (N, d): their logit is then about
    −DEPTH whatever the text, and exp(−DEPTH) is 0 in FP32. This needs hidden states that all lie
    on one side of the origin, as those of trained language models do.
    """
    head = (-DEPTH * direction_of(hidden)).repeat(draft.config.vocab_size, 1)
    head[draft.head_ids] = draft.lm_head.weight.detach().float()
    return head


@torch.no_grad()
def save_transformers(
    draft: Draft, tokenizer: Any, folder: Path, texts: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Write a LlamaForCausalLM with tokenizer, in FP32, usable as `assistant_model`.

    texts: token sequences whose hidden states place the missing tokens. Returns, over those
    positions, the largest probability that the missing tokens hold together (`missing_mass`) and
    the smallest distance between the best logit and theirs (`margin`). Raises ValueError when the
    missing tokens cannot be kept from winning.
    """
    from transformers import LlamaForCausalLM

    hidden = torch.cat([draft.hidden(torch.tensor([list(text)]))[0] for text in texts])
    head = full_head(draft, hidden)
    logits = hidden @ head.T
    outside = torch.ones(draft.config.vocab_size, dtype=torch.bool)
    outside[draft.head_ids] = False
    report = {
        "missing_mass": float(logits.softmax(1)[:, outside].sum(1).max()),
        "margin": float((logits[:, ~outside].amax(1) - logits[:, outside].amax(1)).min()),
    }
    if report["margin"] <= 0:
        raise ValueError(
            "This draft's hidden states do not share a side: tokens without a row win."
        )
    config = draft_config(draft.config, draft.config.num_hidden_layers)
    config.use_cache = True
    model = LlamaForCausalLM(config)
    model.model.load_state_dict(draft.model.state_dict())
    model.lm_head.weight.copy_(head)
    with replacing(folder) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
    return report
