"""Let the target write the text that a draft learns from, and record its probabilities.

Sampling is ordinary: one batch of prompts at a time, each row at its own temperature. Every batch
becomes a file of its own (a shard), so that a killed run loses one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.distill import corpus as corpora
from kernels.distill.corpus import Corpus
from kernels.distill.prompts import bank, chat_tokens

TOP = 8
# Two fifths greedy: that is what the race shows first.
TEMPERATURES = (0.0, 0.0, 0.6, 0.8, 1.0)


def pick(logits: Tensor, temperature: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row, (B,), from logits (B, V) at temperature (B,); 0 takes the most probable."""
    warm = logits / temperature.clamp(min=1e-6)[:, None]
    sampled = torch.multinomial(warm.softmax(1), 1, generator=generator)[:, 0]
    return torch.where(temperature == 0, logits.argmax(1), sampled)


@torch.no_grad()
def write(
    target: Any,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    *,
    length: int,
    end_tokens: Sequence[int],
    seed: int,
) -> Corpus:
    """Answers of at most `length` tokens to `prompts`, as a corpus, in the given order.

    Rows that have ended leave the batch, so that a few long answers do not pay for the short ones.
    """
    from transformers import DynamicCache

    generator = torch.Generator().manual_seed(seed)
    longest = max(len(p) for p in prompts)
    # Padded on the left, so that all rows continue at the same column.
    pad = [longest - len(p) for p in prompts]
    input_ids = torch.tensor([[0] * n + list(p) for n, p in zip(pad, prompts, strict=True)])
    mask = torch.tensor([[0] * n + [1] * len(p) for n, p in zip(pad, prompts, strict=True)])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    warmth = torch.tensor(temperatures, dtype=torch.float32)
    ends = torch.tensor(list(end_tokens))
    cache = DynamicCache(config=target.config)
    active = torch.arange(len(prompts))
    answers: list[list[int]] = [[] for _ in prompts]
    ids: list[list[np.ndarray]] = [[] for _ in prompts]
    ps: list[list[np.ndarray]] = [[] for _ in prompts]
    for _ in range(length):
        logits = (
            target(
                input_ids=input_ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            .logits[:, -1]
            .float()
        )
        token = pick(logits, warmth[active], generator)
        top_p, top_ids = logits.softmax(1).topk(TOP, dim=1)
        for row, answer in enumerate(active.tolist()):
            answers[answer].append(int(token[row]))
            ids[answer].append(top_ids[row].numpy().astype(np.uint16))
            ps[answer].append(top_p[row].numpy().astype(np.float16))
        alive = (~torch.isin(token, ends)).nonzero()[:, 0]
        if not len(alive):
            break
        if len(alive) < len(active):
            cache.batch_select_indices(alive)
            active, mask, positions, token = (
                active[alive],
                mask[alive],
                positions[alive],
                token[alive],
            )
        input_ids = token[:, None]
        mask = torch.cat([mask, torch.ones_like(input_ids)], 1)
        positions = positions[:, -1:] + 1
    return Corpus(
        prompt_tokens=np.concatenate([np.array(p, dtype=np.uint16) for p in prompts]),
        prompt_offsets=corpora.offsets_of([len(p) for p in prompts]),
        tokens=np.concatenate([np.array(a, dtype=np.uint16) for a in answers]),
        offsets=corpora.offsets_of([len(a) for a in answers]),
        top_ids=np.concatenate([np.stack(rows) for rows in ids]),
        top_p=np.concatenate([np.stack(rows) for rows in ps]),
        temperature=np.array(temperatures, dtype=np.float16),
    )


def plan(tokenizer: Any, answers: int, batch: int, seed: int) -> list[list[tuple[Any, float]]]:
    """Batches of (prompt tokens, temperature): the bank shuffled by `seed`, over again with other
    temperatures when `answers` exceeds it; like lengths share a batch."""
    rng = np.random.default_rng(seed)
    tokens = [chat_tokens(tokenizer, prompt.text) for prompt in bank()]
    order: list[int] = []
    while len(order) < answers:
        order += rng.permutation(len(tokens)).tolist()
    jobs = [(tokens[i], float(rng.choice(TEMPERATURES))) for i in order[:answers]]
    jobs.sort(key=lambda job: len(job[0]))
    batches = [jobs[i : i + batch] for i in range(0, len(jobs), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]


def generate(
    target: Any,
    tokenizer: Any,
    folder: Path,
    *,
    answers: int,
    batch: int,
    length: int,
    end_tokens: Sequence[int],
    seed: int,
    progress: Callable[[int, int, int], None] = lambda done, total, tokens: None,
) -> Corpus:
    """Write shards into `folder`, skipping those that are there, and return them joined.

    progress(batches done, batches in all, tokens so far)."""
    if target.config.vocab_size > 1 << 16:
        raise ValueError("A corpus stores token ids in 16 bits; this target has more tokens.")
    parts: list[Corpus] = []
    batches = plan(tokenizer, answers, batch, seed)
    for number, jobs in enumerate(batches):
        shard = folder / f"shard-{number:05d}.npz"
        if not shard.exists():
            write(
                target,
                [tokens for tokens, _ in jobs],
                [t for _, t in jobs],
                length=length,
                end_tokens=end_tokens,
                seed=seed * 100_003 + number,
            ).save(shard)
        parts.append(corpora.load(shard))
        progress(number + 1, len(batches), sum(len(p.tokens) for p in parts))
    return corpora.join(parts)
