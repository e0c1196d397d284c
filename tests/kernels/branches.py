"""Run a program of random draws once for every way the draws can fall, with exact weights.

The decoders draw in two places only: `draw` (a token from a distribution) and `accepts`. While
a program is enumerated, each call to one of them becomes a branch: for every interval of u on
which the outcome is the same, the *real* function is called with u in the middle of it, and the
interval's width is the branch's probability. So the functions themselves are under test too, and
the resulting distribution of texts is exact up to float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest

from kernels import acceptance, drafters, plain


class Branches:
    """Depth-first search over the choices that a program makes."""

    def __init__(self) -> None:
        self._path: list[list[int]] = []  # [choice, number of choices] at each depth
        self._depth = 0
        self._weight = 1.0

    def choose(self, weights: Sequence[float]) -> int:
        """The branch taken here in this run; weights: probability of each."""
        if self._depth == len(self._path):
            self._path.append([0, len(weights)])
        choice = self._path[self._depth][0]
        self._depth += 1
        self._weight *= weights[choice]
        return choice

    def distribution(self, program: Callable[[], Hashable]) -> dict[Any, float]:
        """The probability of each result of `program`."""
        result: dict[Any, float] = defaultdict(float)
        while True:
            self._depth, self._weight = 0, 1.0
            outcome = program()
            result[outcome] += self._weight
            while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
                self._path.pop()
            if not self._path:
                return dict(result)
            self._path[-1][0] += 1


def exact_distribution(program: Callable[[], Hashable]) -> dict[Any, float]:
    """The exact distribution of `program`'s result over all its draws."""
    branches = Branches()
    real_draw, real_accepts = acceptance.draw, acceptance.accepts

    def draw(p: np.ndarray, u: float) -> int:
        edges = np.concatenate([[0.0], np.cumsum(p) / p.sum()])
        possible = np.flatnonzero(np.diff(edges) > 0)
        chosen = possible[branches.choose([float(edges[i + 1] - edges[i]) for i in possible])]
        return real_draw(p, float(edges[chosen] + edges[chosen + 1]) / 2)

    def accepts(p: float, q: float, u: float) -> bool:
        ratio = min(1.0, p / q)
        intervals = [(a, b) for a, b in ((0.0, ratio), (ratio, 1.0)) if b > a]
        a, b = intervals[branches.choose([b - a for a, b in intervals])]
        return real_accepts(p, q, (a + b) / 2)

    with pytest.MonkeyPatch.context() as patch:
        for module in (acceptance, drafters, plain):
            patch.setattr(module, "draw", draw)
        patch.setattr(acceptance, "accepts", accepts)
        return branches.distribution(program)
