"""What training minimises, on the target's recorded top tokens.

Of each position K tokens and their probabilities are known; the rest of the vocabulary is one
bucket with the remaining mass. Divergences over K + 1 outcomes are lower bounds of those over the
vocabulary (merging outcomes never raises them), and overlap, Σ min(p, q), an upper bound.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 1e-6


def bucketed(
    logits: Tensor, position_of: Tensor, top_ids: Tensor, top_p: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both models over K tokens and the rest.

    logits (A, H) of the draft, top_ids (A, K), top_p (A, K). Tokens without a row in the head fall
    into the rest. Returns p (A, K), log q (A, K), p_rest (A,), q_rest (A,); where a token has no
    row p is 0 and log q is 0, so that it adds nothing to any sum of p-weighted terms.
    """
    position = position_of[top_ids]
    known = position >= 0
    p = torch.where(known, top_p, torch.zeros_like(top_p))
    log_q = logits.gather(1, position.clamp(min=0)) - logits.logsumexp(1, keepdim=True)
    log_q = torch.where(known, log_q, torch.zeros_like(log_q))
    q_known = torch.where(known, log_q.exp(), torch.zeros_like(log_q))
    p_rest = (1 - p.sum(1)).clamp(min=0)
    q_rest = (1 - q_known.sum(1)).clamp(min=SMALL)
    return p, log_q, p_rest, q_rest


def forward_kl(logits: Tensor, position_of: Tensor, top_ids: Tensor, top_p: Tensor) -> Tensor:
    """Mean KL(p ‖ q) in nats a token over K tokens and the rest."""
    p, log_q, p_rest, q_rest = bucketed(logits, position_of, top_ids, top_p)
    entropy = (p * p.clamp(min=SMALL).log()).sum(1) + p_rest * p_rest.clamp(min=SMALL).log()
    return (entropy - (p * log_q).sum(1) - p_rest * q_rest.log()).mean()


def overlap(logits: Tensor, position_of: Tensor, top_ids: Tensor, top_p: Tensor) -> Tensor:
    """Σ min(p, q) over the K known tokens alone, (A,): at most the acceptance rate α at
    temperature 1 (Leviathan et al. 2023, theorem 3.5), since the rest is left out."""
    position = position_of[top_ids]
    known = position >= 0
    q = (logits.gather(1, position.clamp(min=0)) - logits.logsumexp(1, keepdim=True)).exp()
    return torch.where(known, torch.minimum(top_p, q), torch.zeros_like(q)).sum(1)


def total_variation(logits: Tensor, position_of: Tensor, top_ids: Tensor, top_p: Tensor) -> Tensor:
    """Mean of 1 − Σ min(p, q) over the K known tokens: one minus a lower bound of α."""
    return 1 - overlap(logits, position_of, top_ids, top_p).mean()
