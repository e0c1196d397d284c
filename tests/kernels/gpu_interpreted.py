"""The Triton kernels in Triton's interpreter, against NumPy: run with TRITON_INTERPRET=1.

`python -m tests.kernels.gpu_interpreted` prints one JSON object: case → "" or what went wrong. A
process of its own, since Triton decides when a kernel is defined how it will run.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels.acceptance import Guess, judge_sampled
from kernels.model import NotFinite
from kernels.sampling import distribution
from kernels.settings import Settings

CASES: dict[str, Callable[[], None]] = {}
BELOW_ONE = 1 - 2.0**-24


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def check(
    target: NDArray[np.float32],
    draft: NDArray[np.float32],
    tokens: list[int],
    accept: list[float],
    replace: list[float],
    temperature: float = 1.0,
) -> Any:
    """The kernel's verdict, which must be that of the host's rule in double precision."""
    from kernels.gpu.acceptance_kernel import judge

    settings = Settings("x", temperature=temperature)
    guesses = [
        Guess(token, distribution(row, settings), "model")
        for token, row in zip(tokens, draft, strict=True)
    ]
    expected = judge_sampled(
        guesses,
        lambda i: distribution(target[i], settings),
        accept.__getitem__,
        replace.__getitem__,
        replace.__getitem__,
    )
    found = judge(
        guesses,
        torch.from_numpy(target),
        torch.from_numpy(draft),
        accept,
        replace,
        temperature,
    )
    assert len(found.places) == len(expected.places), (found, expected)
    for mine, theirs in zip(found.places, expected.places, strict=True):
        assert (mine.token, mine.origin, mine.by) == (theirs.token, theirs.origin, theirs.by)
        for name in ("p", "q", "u"):
            a, b = getattr(mine, name), getattr(theirs, name)
            assert (a is None) == (b is None)
            assert a is None or abs(a - b) < 1e-5, (name, a, b)
    return found


def logits(rows: int, size: int, seed: int, spread: float = 3.0) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    return (spread * random.standard_normal((rows, size))).astype(np.float32)


@case
def random_blocks() -> None:
    """Blocks of several lengths, a vocabulary that is no multiple of anything, temperatures."""
    random = np.random.default_rng(0)
    origins = set()
    for number, m in enumerate([0, 1, 2, 4, 4, 4, 4, 7]):
        size = 5003 if number % 2 else 203
        target = logits(m + 1, size, number)
        draft = (target[:m] + logits(m, size, 100 + number, 0.7)).astype(np.float32)
        tokens = [int(np.argmax(row + random.gumbel(size=size))) for row in draft]
        accept, replace = random.random(m).tolist(), random.random(m + 1).tolist()
        found = check(target, draft, tokens, accept, replace, (0.6, 1.0, 1.7)[number % 3])
        origins |= {place.origin for place in found.places}
    assert origins == {"accepted", "rejected", "supplied", "bonus", "target"}


@case
def equal_distributions_accept_everything() -> None:
    target = logits(5, 307, 1)
    tokens = [int(np.argmax(row)) for row in target[:4]]
    for accept in (0.0, 0.5, BELOW_ONE):
        found = check(target, target[:4].copy(), tokens, [accept] * 4, [0.3] * 5)
        assert [place.origin for place in found.places] == ["accepted"] * 4 + ["bonus"]
    # A number nearer to 1 than float32 has must not become 1. And every place is judged, so the
    # residual of p = q is computed too: it must be a token.
    from kernels.gpu.acceptance_kernel import launch

    both = torch.from_numpy(target), torch.from_numpy(target[:4].copy())
    rows = launch(*both, tokens, [1 - 2.0**-53] * 4, [0.9] * 5, 1.0).numpy()
    assert (rows[:4, 0] == 1).all()
    assert ((rows[:, 1] >= 0) & (rows[:, 1] < 307)).all()


@case
def one_hot_and_zero() -> None:
    """Look-up's one-hot q; a guess that the target never says; disjoint supports."""
    size = 203
    target = logits(2, size, 2)
    one_hot = np.full((1, size), -np.inf, np.float32)
    one_hot[0, 17] = 0.0
    p17 = float(distribution(target[0], Settings("x", temperature=1.0))[17])
    check(target, one_hot, [17], [p17 * 0.99], [0.4, 0.4])
    found = check(target, one_hot, [17], [p17 * 1.01], [0.4, 0.4])
    assert found.places[-1].origin == "supplied"
    assert found.places[-1].token != 17
    never = target.copy()
    never[0, 17] = -np.inf
    found = check(never, one_hot, [17], [0.0], [0.0, 0.0])  # u = 0 must not accept p = 0
    assert found.places[0].origin == "rejected"
    halves = np.full((2, size), -np.inf, np.float32)
    halves[:, 100:] = target[:, 100:]
    lower = np.full((1, size), -np.inf, np.float32)
    lower[0, :100] = target[0, :100]
    found = check(halves, lower, [5], [0.0], [BELOW_ONE, 0.5])
    assert found.places[-1].token >= 100


@case
def never_a_token_of_probability_zero() -> None:
    """At the ends of [0, 1), with holes in the support, over several blocks of the kernel."""
    size = 4500
    target = logits(1, size, 3, 0.1)
    target[0, : 2 * 1024] = -np.inf
    target[0, 4000:] = -np.inf
    target[0, ::3] = -np.inf
    for u in (0.0, 2.0**-24, 0.5, BELOW_ONE, 1 - 2.0**-53):
        from kernels.gpu.acceptance_kernel import judge

        place = judge([], torch.from_numpy(target), torch.empty(0, size), [], [u], 1.0).places[0]
        assert np.isfinite(target[0, place.token]), (u, place)
        assert place.p and place.p > 0


@case
def a_sum_that_rounds_downhill() -> None:
    """Two ways to add up a block differ in the last places; between them lies a hole of p = 0."""
    from kernels.gpu.acceptance_kernel import _BLOCK, launch

    size, around = _BLOCK + 300, np.arange(-24, 25)
    # With this seed the sum of the first block is 16 steps of 2⁻²⁴ above its running sum's end.
    target = logits(1, size, 31, 0.5)
    target[0, 7] = target[0, _BLOCK : _BLOCK + 200] = -np.inf
    p = distribution(target[0], Settings("x", temperature=1.0))
    draws = (np.round(p[:_BLOCK].sum() * 2.0**24) + around) * 2.0**-24
    # A one-hot q where p = 0 leaves p as the residual, so that one launch tries every number.
    draft = np.full((around.size, size), -np.inf, np.float32)
    draft[:, 7] = 0.0
    rows = torch.from_numpy(np.repeat(target, around.size + 1, 0)), torch.from_numpy(draft)
    m = around.size
    found = launch(*rows, [7] * m, [0.5] * m, [*draws, 0.5], 1.0).numpy()[:m]
    drawn = found[:, 1].astype(int)
    assert (drawn < _BLOCK).any() and (drawn >= _BLOCK).any()
    assert np.isfinite(target[0, drawn]).all(), drawn


@case
def frequencies() -> None:
    """What is emitted is distributed as p, summed over all guesses and a grid of u."""
    from kernels.gpu.acceptance_kernel import launch

    size, n = 6, 10
    target, draft = logits(2, size, 4, 1.0), logits(1, size, 5, 1.0)
    settings = Settings("x", temperature=1.0)
    p, q = distribution(target[0], settings), distribution(draft[0], settings)
    mass = np.zeros(size)
    grid = [(i + 0.5) / n for i in range(n)]
    draws = (
        torch.from_numpy(np.repeat(target[:1], n + 1, 0)),
        torch.from_numpy(np.repeat(draft, n, 0)),
    )
    for token in range(size):
        # A guess is kept for the u below p/q; what replaces it follows the second number.
        rows = launch(*draws, [token] * n, [BELOW_ONE] * n, [*grid, 0.5], 1.0).numpy()[:n]
        kept = min(1.0, float(rows[0, 2] / rows[0, 3]))
        mass[token] += q[token] * kept
        np.add.at(mass, rows[:, 1].astype(int), q[token] * (1 - kept) / n)
    # A step of the grid may fall on either side of a boundary.
    assert np.abs(mass - p).max() < 1.5 / n * (1 - np.minimum(p, q).sum())


@case
def rows_that_are_not_numbers_are_flagged() -> None:
    from kernels.gpu.acceptance_kernel import judge

    size = 2100
    for value, place in [(np.nan, 2099), (np.inf, 0), (np.nan, 0)]:
        for which in ("target", "draft"):
            target, draft = logits(3, size, 6), logits(2, size, 7)
            (target if which == "target" else draft)[0, place] = value
            try:
                judge(
                    [Guess(3, None, "model"), Guess(4, None, "model")],
                    torch.from_numpy(target),
                    torch.from_numpy(draft),
                    [0.5, 0.5],
                    [0.5] * 3,
                    1.0,
                )
            except NotFinite:
                continue
            raise AssertionError(f"{value} in {which} was not noticed")
    # Behind a rejection nobody looks.
    target, draft = logits(3, size, 6), logits(2, size, 7)
    target[0, 3], target[1:] = -np.inf, np.nan
    found = judge(
        [Guess(3, None, "model"), Guess(4, None, "model")],
        torch.from_numpy(target),
        torch.from_numpy(draft),
        [0.5, 0.5],
        [0.5] * 3,
        1.0,
    )
    assert [place.origin for place in found.places] == ["rejected", "supplied"]
    empty = np.full((1, size), -np.inf, np.float32)
    try:
        judge([], torch.from_numpy(empty), torch.empty(0, size), [], [0.5], 1.0)
    except NotFinite:
        return
    raise AssertionError("a row without any probability was not noticed")


@case
def what_does_not_fit_is_refused() -> None:
    from kernels.gpu.acceptance_kernel import launch
    from kernels.gpu.tile_kernel import product

    rows = torch.zeros(3, 10)
    for arguments in (
        (rows, rows[:1], [1, 2], [0.5, 0.5], [0.5] * 3),
        (rows, rows[:2], [1, 2], [0.5], [0.5] * 3),
        (rows, rows[:2], [1, 10], [0.5, 0.5], [0.5] * 3),
    ):
        try:
            launch(*arguments, 1.0)
        except ValueError:
            continue
        raise AssertionError("shapes that do not fit were taken")
    try:
        product(rows, torch.zeros(2, 9), units=1)
    except ValueError:
        return
    raise AssertionError("shapes that do not fit were taken")


@case
def awkward_tiles() -> None:
    """Sizes that no tile divides, in BF16: within rounding of a product in double precision."""
    from kernels.gpu.tile_kernel import product

    for rows, columns, tokens, tile_rows in [
        (1823, 781, 5, 256),
        (64, 16, 1, 64),
        (70, 130, 17, 32),
    ]:
        torch.manual_seed(rows)
        weights = torch.randn(rows, columns).bfloat16()
        x = torch.randn(tokens, columns).bfloat16()
        y, trace = product(weights, x, units=3, tile_rows=tile_rows)
        expected = x.double() @ weights.double().T
        assert y.shape == expected.shape
        error = float((y - expected).abs().max() / expected.abs().max())
        assert error < 1e-6, error
        assert not trace.any()


def main() -> int:
    assert os.environ.get("TRITON_INTERPRET") == "1"
    results = {}
    for name, function in CASES.items():
        try:
            function()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
