"""The acceptance rule of a whole block in one kernel launch, on logits that stay on the GPU.

The same rule as kernels.acceptance.judge_sampled (Leviathan et al. 2023, algorithm 1), with the
same uniform numbers: softmax of p and q at the temperature, the ratio test, the residual, and the
draw of the replacement or the bonus by inverse transform. One program a row judges its place
without knowing of the others; the host takes the places up to the first rejection. What comes back
is 20 bytes a row instead of a vocabulary.

Arithmetic is float32 here and float64 there, so a draw may differ where u lies within rounding
(about 1e-6) of a boundary. A token of probability 0 is never drawn, whatever the rounding. Top-k,
top-p and the repetition penalty are not covered; the host's rule handles those.

Rows with NaN, +inf or nothing but −inf are flagged, never drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.acceptance import Guess, Judged, Verdict
from kernels.model import NotFinite
from kernels.passes import Origin

_BLOCK = 2048
#: Columns of the kernel's result.
_STATUS, _TOKEN, _P_GUESS, _Q_GUESS, _P_TOKEN = range(5)
_FLAGGED = -1


def judge(
    guesses: Sequence[Guess],
    target: Tensor,
    draft: Tensor,
    accept_draws: Sequence[float],
    replace_draws: Sequence[float],
    temperature: float,
) -> Verdict:
    """Speculative sampling over one block of m guesses; see kernels.acceptance.judge_sampled.

    target: logits (m + 1, V) of p, draft: (m, V) of q (−inf where q = 0), float32, on one device,
    each row contiguous. The guesses' own q is not looked at. accept_draws: m numbers in [0, 1).
    replace_draws: m + 1 of them, for the residual at places 0 … m − 1 and the bonus at place m.
    Raises NotFinite for a row that is needed and flagged, ValueError for shapes that do not fit.
    """
    found = launch(
        target, draft, [guess.token for guess in guesses], accept_draws, replace_draws, temperature
    ).tolist()
    verdict = Verdict()
    for guess, row in zip(guesses, found, strict=False):
        if row[_STATUS] == _FLAGGED:
            raise NotFinite("The model")
        origin: Origin = "accepted" if row[_STATUS] == 1 else "rejected"
        p, q, u = row[_P_GUESS], row[_Q_GUESS], _below_one(accept_draws[len(verdict.places)])
        verdict.places.append(Judged(guess.token, origin, p, q, u, guess.by))
        if origin == "rejected":
            verdict.places.append(Judged(int(row[_TOKEN]), "supplied", row[_P_TOKEN]))
            return verdict
    row = found[-1]
    if row[_STATUS] == _FLAGGED:
        raise NotFinite("The model")
    origin = "bonus" if guesses else "target"
    verdict.places.append(Judged(int(row[_TOKEN]), origin, row[_P_TOKEN]))
    return verdict


def launch(
    target: Tensor,
    draft: Tensor,
    guesses: Sequence[int],
    accept_draws: Sequence[float],
    replace_draws: Sequence[float],
    temperature: float,
) -> Tensor:
    """Judge every place by itself: (m + 1, 5) float32 on the device, without waiting for it.

    Columns: status (1 accepted, 0 not, −1 flagged), the token drawn in its stead, p and q of the
    guess, p of that token. Token ids are exact in float32: vocabularies are below 2²⁴.
    """
    m, size = len(guesses), target.shape[1]
    if target.shape != (m + 1, size) or draft.shape != (m, size) or size >= 1 << 24:
        raise ValueError(f"{m} guesses need logits (m + 1, V) and (m, V), V below 2²⁴")
    if len(accept_draws) != m or len(replace_draws) != m + 1:
        raise ValueError(f"{m} guesses need m and m + 1 uniform numbers")
    if guesses and not 0 <= min(guesses) <= max(guesses) < size:
        raise ValueError(f"a guess lies outside the vocabulary of {size}")
    # One upload: guesses and draws, as float32 both.
    draws = [*accept_draws, 0.0, *replace_draws]
    numbers = np.array([*guesses, 0, *(_below_one(u) for u in draws)], np.float32)
    inputs = torch.from_numpy(numbers).to(target.device)
    result = torch.empty((m + 1, 5), dtype=torch.float32, device=target.device)
    _judge[(m + 1,)](
        target,
        draft,
        inputs,
        result,
        1.0 / temperature,
        size,
        m,
        target.stride(0),
        draft.stride(0),
        BLOCK=_BLOCK,
        num_warps=8,
    )
    return result


def _below_one(u: float) -> float:
    """u rounded down to a multiple of 2⁻²⁴: float32 holds it exactly, and it stays below 1."""
    return float(np.floor(u * 2.0**24) * 2.0**-24)


@triton.jit
def _softmax_terms(
    row: tl.tensor, size: tl.tensor, inverse: tl.tensor, used: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """(peak, Σ exp((x − peak) / T), sound) of a row of logits; used = 0 reads nothing."""
    lane = tl.arange(0, BLOCK)
    peak = tl.full((), float("-inf"), tl.float32)
    bad = tl.zeros((), tl.int32)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(row + at, mask=(at < size) & used, other=float("-inf"))
        # A maximum may drop NaN, so NaN and +inf are counted. NaN is what differs from itself.
        bad += tl.sum(((x != x) | (x == float("inf"))).to(tl.int32), 0)
        peak = tl.maximum(peak, tl.max(x, 0))
    sound = (bad == 0) & (peak > float("-inf"))
    safe = tl.where(sound, peak, 0.0)
    total = tl.zeros((), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(row + at, mask=(at < size) & used, other=float("-inf"))
        total += tl.sum(tl.exp((x - safe) * inverse), 0)
    return safe, tl.where(sound, total, 1.0), sound


@triton.jit
def _judge(
    target: tl.tensor,
    draft: tl.tensor,
    inputs: tl.tensor,
    result: tl.tensor,
    inverse: tl.tensor,
    size: tl.tensor,
    m: tl.tensor,
    target_stride: tl.tensor,
    draft_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    place = tl.program_id(0)
    guessed = place < m  # the last row has no guess to judge: its token is the bonus
    p_row = target + place.to(tl.int64) * target_stride
    q_row = draft + place.to(tl.int64) * draft_stride
    p_peak, p_sum, p_sound = _softmax_terms(p_row, size, inverse, True, BLOCK)
    q_peak, q_sum, q_sound = _softmax_terms(q_row, size, inverse, guessed, BLOCK)
    sound = p_sound & (q_sound | (place == m))

    guess = tl.load(inputs + place).to(tl.int32)
    accept_draw = tl.load(inputs + m + 1 + place)
    replace_draw = tl.load(inputs + 2 * (m + 1) + place)
    p_guess = tl.exp((tl.load(p_row + guess) - p_peak) * inverse) / p_sum
    q_logit = tl.load(q_row + guess, mask=guessed, other=float("-inf"))
    q_guess = tl.exp((q_logit - q_peak) * inverse) / q_sum
    accepted = guessed & (accept_draw * q_guess < p_guess)

    # What the residual max(0, p − q) adds up to; of the last row, where q = 0, it is p itself.
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((), tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(p_row + at, mask=at < size, other=float("-inf"))
        y = tl.load(q_row + at, mask=(at < size) & guessed, other=float("-inf"))
        p = tl.exp((x - p_peak) * inverse) / p_sum
        q = tl.exp((y - q_peak) * inverse) / q_sum
        total += tl.sum(tl.maximum(p - q, 0.0), 0)
    # p = q: a rejection has no probability, and if rounding made one, the residual is p.
    nothing = total <= 0.0
    wanted = replace_draw * tl.where(nothing, 1.0, total)

    before = tl.zeros((), tl.float32)
    token = tl.full((), 2147483647, tl.int32)
    last = tl.full((), -1, tl.int32)
    for start in range(0, size, BLOCK):
        at = start + lane
        x = tl.load(p_row + at, mask=at < size, other=float("-inf"))
        y = tl.load(q_row + at, mask=(at < size) & guessed, other=float("-inf"))
        p = tl.exp((x - p_peak) * inverse) / p_sum
        q = tl.exp((y - q_peak) * inverse) / q_sum
        weight = tl.where(nothing, p, tl.maximum(p - q, 0.0))
        # A scan in parallel may round downhill, so a weight of 0 is excluded by name.
        hit = (before + tl.cumsum(weight, 0) > wanted) & (weight > 0.0)
        token = tl.minimum(token, tl.min(tl.where(hit, at, 2147483647), 0))
        last = tl.maximum(last, tl.max(tl.where(weight > 0.0, at, -1), 0))
        before += tl.sum(weight, 0)
    token = tl.where(token > last, last, token)  # rounding at the very end
    p_token = tl.exp((tl.load(p_row + tl.maximum(token, 0)) - p_peak) * inverse) / p_sum

    row = result + place * 5
    tl.store(row, tl.where(sound, accepted.to(tl.float32), -1.0))
    tl.store(row + 1, tl.where(sound, token.to(tl.float32), -1.0))
    tl.store(row + 2, p_guess)
    tl.store(row + 3, q_guess)
    tl.store(row + 4, p_token)
