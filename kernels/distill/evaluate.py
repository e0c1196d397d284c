"""How often the target would accept what a draft proposes, on topics that training never saw.

The target runs over held-out answers, so that its whole distribution is known, not its top eight.
An answer written at temperature T is judged at T: at 0 by greedy match, above by α = E[Σ min(p, q)]
with both distributions at T (Leviathan et al. 2023, theorem 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.distill.corpus import Corpus, make_batch
from kernels.distill.draft import Draft


def acceptance(target_logits: Tensor, draft_logits: Tensor, head_ids: Tensor, t: float) -> Tensor:
    """Probability that a token drafted from q is accepted, (A,), at temperature t.

    target_logits (A, V), draft_logits (A, H) over head_ids (H,). At t = 0 it is 1 where both most
    probable tokens are the same, else 0; above, Σ min(p, q), where q = 0 outside head_ids.
    """
    if t == 0:
        return (head_ids[draft_logits.argmax(1)] == target_logits.argmax(1)).float()
    p = (target_logits / t).softmax(1)[:, head_ids]
    q = (draft_logits / t).softmax(1)
    return torch.minimum(p, q).sum(1)


def tokens_per_pass(matches: np.ndarray, m: int) -> float:
    """Tokens that a target pass yields at temperature 0 with m drafted tokens a round.

    matches (A,): whether the draft's token was the target's at each position of one answer. Greedy
    rounds can be replayed from that alone, because every accepted prefix is the answer's own.
    """
    position, passes = 0, 0
    while position < len(matches):
        block = matches[position : position + m]
        wrong = np.flatnonzero(block == 0)
        accepted = int(wrong[0]) if len(wrong) else len(block)
        position += accepted + 1  # the correction, or the bonus token
        passes += 1
    return len(matches) / passes if passes else 0.0


@dataclass
class Tally:
    """Sums of acceptance; `share` is α."""

    total: float = 0.0
    count: int = 0

    def add(self, values: np.ndarray) -> None:
        """Enter the acceptance of some positions, (A,)."""
        self.total += float(values.sum())
        self.count += len(values)

    @property
    def share(self) -> float:
        """The mean acceptance, nan before the first position."""
        return self.total / self.count if self.count else float("nan")


@dataclass
class Evaluation:
    """α by temperature and by (domain, temperature) with the number of positions; tokens a target
    pass at temperature 0, mean over answers, by m."""

    by_temperature: dict[str, Tally] = field(default_factory=dict)
    by_domain: dict[str, dict[str, Tally]] = field(default_factory=dict)
    per_pass: dict[int, list[float]] = field(default_factory=dict)

    def add(self, values: np.ndarray, temperature: float, domain: str) -> None:
        """Enter the acceptance (A,) of one answer's positions."""
        key = f"{temperature:.1f}"
        self.by_temperature.setdefault(key, Tally()).add(values)
        self.by_domain.setdefault(domain, {}).setdefault(key, Tally()).add(values)
        if temperature == 0:
            for m in range(1, 9):
                self.per_pass.setdefault(m, []).append(tokens_per_pass(values, m))

    def as_json(self) -> dict[str, Any]:
        """Rounded to four digits, for a file."""

        def cell(tally: Tally) -> dict[str, Any]:
            return {"alpha": round(tally.share, 4), "positions": tally.count}

        return {
            "alpha": {t: cell(v) for t, v in sorted(self.by_temperature.items())},
            "alpha_by_domain": {
                domain: {t: cell(v) for t, v in sorted(row.items())}
                for domain, row in sorted(self.by_domain.items())
            },
            "tokens_per_pass_greedy": {
                str(m): round(float(np.mean(values)), 3)
                for m, values in sorted(self.per_pass.items())
                if values
            },
        }


def choose(temperature: np.ndarray, answers: int, *, seed: int = 0) -> list[int]:
    """`answers` indices, equally many of each temperature where there are enough."""
    rng = np.random.default_rng(seed)
    levels = np.unique(temperature)
    each = max(1, answers // len(levels))
    picked = [rng.permutation(np.flatnonzero(temperature == t))[:each] for t in levels]
    return sorted(int(i) for i in np.concatenate(picked))


class Judge:
    """Judges several drafts on the same answers; the target runs once an answer."""

    def __init__(self, target: Any, drafts: dict[str, Draft]) -> None:
        self.target = target
        self.drafts = drafts
        self.results = {name: Evaluation() for name in drafts}

    @torch.no_grad()
    def add(self, corpus: Corpus, i: int, domain: str) -> None:
        """Judge answer i of `corpus`, a text of the kind `domain`."""
        batch = make_batch(corpus, [i])
        input_ids, rows = torch.from_numpy(batch.input_ids), torch.from_numpy(batch.rows)
        target_logits = self.target(input_ids).logits[0][rows].float()
        t = round(float(corpus.temperature[i]), 2)
        for name, draft in self.drafts.items():
            values = acceptance(target_logits, draft(input_ids, rows), draft.head_ids, t).numpy()
            self.results[name].add(values, t, domain)
