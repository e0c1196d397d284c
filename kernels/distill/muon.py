"""Muon in FP32: momentum whose matrix is made orthogonal before the step.

torch.optim.Muon orthogonalises in BF16, which processors without BF16 instructions emulate: a step
took 40 s instead of under one. Method: Jordan et al. 2024, "Muon: an optimizer for hidden layers";
scaling of the step to AdamW's size: Liu et al. 2025, arXiv:2502.16982.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# The quintic whose iterates push every singular value towards 1 (Jordan et al. 2024).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrix: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrix with all singular values about 1 (0.7 to 1.2), by Newton–Schulz."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """For matrices only. `lr` is in AdamW's scale: the step's root mean square is 0.2 · lr."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                mean = state["momentum"]
                mean.lerp_(weight.grad, 1 - momentum)
                # Nesterov: look ahead along the momentum.
                update = orthogonalized(weight.grad.lerp(mean, momentum))
                weight.mul_(1 - rate * group["weight_decay"])
                weight.add_(update, alpha=-rate * 0.2 * max(weight.shape) ** 0.5)
