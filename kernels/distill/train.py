"""Fit a draft to a corpus: batches, schedule, checkpoints, resume.

A run is a folder: settings.json, log.jsonl (one line each evaluation), last.pt (to resume), best.pt
(highest held-out score). Everything that decides the next step, the optimiser's state included,
is in last.pt, and batches depend on (seed, epoch) alone: a killed run continues as if it had not
been.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.distill import loss as losses
from kernels.distill.corpus import Corpus, batches_in_order, epoch_batches, make_batch
from kernels.distill.draft import Draft
from kernels.distill.muon import Muon


@dataclass(frozen=True)
class TrainSettings:
    """How a draft is trained.

    `layers` are the target's layers it starts from, `head` the rows of its head, `batch` the
    answers a step. Rates are peak rates: reached after `warm_up` steps, left for `final_rate` of
    them over the last share `decay` of the run. `kl` and `tv` weigh the two losses. With
    `muon_rate` Muon moves the layers' matrices.
    """

    layers: tuple[int, ...] = (0, 1)
    head: int = 8192
    epochs: float = 6.0
    batch: int = 16
    rate: float = 1e-3
    head_rate: float = 1e-3
    muon_rate: float = 0.0
    decay: float = 1.0
    final_rate: float = 0.02
    warm_up: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    kl: float = 1.0
    tv: float = 0.0
    seed: int = 0
    evaluate_every: int = 200


@dataclass(frozen=True)
class Score:
    """A draft on held-out answers, from the recorded top tokens. `greedy_match`: share of positions
    where both most probable tokens are the same; `alpha_bound`: Σ min(p, q) over the recorded
    tokens, a lower bound of α at temperature 1; `greedy_by_temperature`: by the answers' own."""

    kl: float
    greedy_match: float
    alpha_bound: float
    greedy_by_temperature: dict[str, float]

    @property
    def value(self) -> float:
        """What "better" means: half greedy match on greedy text, half overlap at temperature 1."""
        greedy = self.greedy_by_temperature.get("0.0", self.greedy_match)
        return 0.5 * (greedy + self.alpha_bound)


@torch.no_grad()
def score(draft: Draft, held_out: Corpus, *, batch: int = 16) -> Score:
    """Measure a draft on a held-out corpus (no full target distribution is needed)."""
    kl, count = 0.0, 0
    match, overlap, temperature = [], [], []
    for part in batches_in_order(held_out, batch):
        top_ids, top_p = torch.from_numpy(part.top_ids), torch.from_numpy(part.top_p)
        logits = draft(torch.from_numpy(part.input_ids), torch.from_numpy(part.rows))
        args = (logits, draft.position_of, top_ids, top_p)
        kl += float(losses.forward_kl(*args)) * len(part.rows)
        count += len(part.rows)
        overlap.append(losses.overlap(*args).numpy())
        match.append((draft.head_ids[logits.argmax(1)] == top_ids[:, 0]).numpy())
        temperature.append(part.temperature)
    matches, temperatures = np.concatenate(match), np.concatenate(temperature)
    return Score(
        kl=kl / count,
        greedy_match=float(matches.mean()),
        alpha_bound=float(np.concatenate(overlap).mean()),
        greedy_by_temperature={
            f"{t:.1f}": float(matches[temperatures == t].mean()) for t in np.unique(temperatures)
        },
    )


def rate_factor(step: int, steps: int, warm_up: int, decay: float, final: float) -> float:
    """Linear warm-up, 1, and over the last share `decay` of the steps a half cosine to `final`."""
    if step < warm_up:
        return (step + 1) / warm_up
    begin = max(float(warm_up), steps * (1 - decay))
    share = (step - begin) / max(1.0, steps - begin)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, share))))


def make_optimizers(draft: Draft, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or, with `muon_rate`, Muon for the layers' matrices."""
    layers = [p for n, p in draft.named_parameters() if "layers" in n and p.requires_grad]
    head = list(draft.lm_head.parameters())
    norm = list(draft.model.norm.parameters())
    matrices = [p for p in layers if p.ndim == 2] if settings.muon_rate else []
    others = [p for p in layers if settings.muon_rate == 0 or p.ndim != 2]
    made: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [
                {"params": others + norm, "lr": settings.rate},
                {"params": head, "lr": settings.head_rate},
            ],
            betas=(0.9, 0.95),
            weight_decay=settings.weight_decay,
            fused=True,
        )
    ]
    if matrices:
        made.append(Muon(matrices, lr=settings.muon_rate, weight_decay=settings.weight_decay))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


def step_loss(draft: Draft, corpus: Corpus, indices: list[int], settings: TrainSettings) -> Tensor:
    """The weighted loss of one batch, a scalar."""
    batch = make_batch(corpus, indices)
    logits = draft(torch.from_numpy(batch.input_ids), torch.from_numpy(batch.rows))
    args = (
        logits,
        draft.position_of,
        torch.from_numpy(batch.top_ids),
        torch.from_numpy(batch.top_p),
    )
    total = logits.new_zeros(())
    if settings.kl:
        total = total + settings.kl * losses.forward_kl(*args)
    if settings.tv:
        total = total + settings.tv * losses.total_variation(*args)
    return total


def _fixed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that must not change within a run."""
    return {k: v for k, v in settings.items() if k not in {"epochs", "decay", "evaluate_every"}}


def _save(path: Path, value: Any) -> None:
    part = path.with_name(path.name + ".part")
    torch.save(value, part)
    part.replace(path)


def _steps(corpus: Corpus, settings: TrainSettings, start: int) -> Iterator[tuple[int, list[int]]]:
    """(step, answers) from `start` on, without end."""
    per_epoch = len(epoch_batches(corpus, settings.batch, settings.seed, 0))
    epoch = start // per_epoch
    skip = start % per_epoch
    step = start
    while True:
        for indices in epoch_batches(corpus, settings.batch, settings.seed, epoch)[skip:]:
            yield step, indices
            step += 1
        epoch, skip = epoch + 1, 0


def train(
    draft: Draft,
    corpus: Corpus,
    held_out: Corpus,
    settings: TrainSettings,
    folder: Path,
    *,
    report: Callable[[dict[str, Any]], None] = lambda line: None,
    stop_after: int | None = None,
) -> Score:
    """Train until `settings.epochs`, resuming where `folder` left off; returns the last score.

    A run may be made longer or shorter when it is resumed: `epochs` and `decay` are free to change
    as long as the rate has not begun to fall.

    `report` receives every line of log.jsonl. `stop_after` ends the call after that many steps of
    the run, as a kill would (tests). Raises ValueError when `folder` holds a run with other
    settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    steps = int(settings.epochs * len(epoch_batches(corpus, settings.batch, settings.seed, 0)))
    wanted = json.loads(json.dumps(asdict(settings)))
    settings_file, last, best_file = (folder / n for n in ("settings.json", "last.pt", "best.pt"))
    if settings_file.exists() and _fixed(json.loads(settings_file.read_text())) != _fixed(wanted):
        raise ValueError(f"{folder} holds a run with other settings: give another --run folder.")
    settings_file.write_text(json.dumps(wanted, indent=2))

    optimizers = make_optimizers(draft, settings)
    start, seconds, seen, best = 0, 0.0, 0, -1.0
    if last.exists():
        state = torch.load(last, weights_only=True)
        draft.load_state_dict(state["weights"], strict=False)
        for optimizer, values in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        start, seconds, seen = state["step"], state["seconds"], state["tokens"]
        best = state["best"]

    def checkpoint(step: int) -> None:
        _save(
            last,
            {
                "weights": draft.trained(),
                "optimizers": [o.state_dict() for o in optimizers],
                "step": step,
                "seconds": seconds,
                "tokens": seen,
                "best": best,
            },
        )

    losses_since: list[float] = []
    result = score(draft, held_out)
    for step, indices in _steps(corpus, settings, start):
        done = step >= steps
        halted = stop_after is not None and step >= stop_after
        if done or halted or step % settings.evaluate_every == 0:
            result = score(draft, held_out)
            if result.value > best and step > 0:
                best = result.value
                _save(best_file, {"weights": draft.trained(), "step": step})
            line = {
                "step": step,
                "steps": steps,
                "tokens": seen,
                "seconds": round(seconds, 1),
                "loss": round(float(np.mean(losses_since)), 5) if losses_since else None,
                "value": round(result.value, 5),
                **asdict(result),
            }
            if step > start or not last.exists():
                with (folder / "log.jsonl").open("a") as stream:
                    stream.write(json.dumps(line) + "\n")
            report(line)
            losses_since = []
            checkpoint(step)
        if done or halted:
            break
        begun = time.process_time()
        factor = rate_factor(step, steps, settings.warm_up, settings.decay, settings.final_rate)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.zero_grad(set_to_none=True)
        value = step_loss(draft, corpus, indices, settings)
        value.backward()
        torch.nn.utils.clip_grad_norm_(
            [p for p in draft.parameters() if p.requires_grad], settings.clip
        )
        for optimizer in optimizers:
            optimizer.step()
        losses_since.append(float(value.detach()))
        seen += sum(len(corpus.answer(i)) for i in indices)
        # Processor time: a run that others pause counts only what it computed.
        seconds += time.process_time() - begun
    return result
