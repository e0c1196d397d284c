"""From a row of logits to the distribution a token is drawn from, and the draw itself.

One function makes both p (target) and q (draft), so whatever shapes one shapes the other, and the
recorded q *is* the distribution the draft drew from. Order of the steps, as in most engines:
repetition penalty, temperature, top-k, top-p. Probability arithmetic is float64 numpy: the rows are
small and exactness is worth more here than microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.model import NotFinite
from kernels.settings import Settings

_BLOCK = 32  # entries of a block; see `_candidates`

Row = NDArray[np.floating[Any]]
Distribution = NDArray[np.float64]


def host(logits: Any) -> NDArray[np.float32]:
    """Logits (T, V) of any decoder as float32 numpy; waits for the device where there is one."""
    if isinstance(logits, np.ndarray):
        return logits.astype(np.float32, copy=False)
    result: NDArray[np.float32] = logits.detach().float().cpu().numpy()
    return result


def fit(row: Row, vocab_size: int) -> Row:
    """A row of logits cut or padded (with −∞) to `vocab_size` entries.

    Two models of one tokenizer may pad their vocabularies differently (151 936 and 152 064). What
    the target cannot read the draft must not propose; what the draft lacks it proposes with q = 0.
    """
    if row.shape[-1] >= vocab_size:
        return row[..., :vocab_size]
    padding = np.full((*row.shape[:-1], vocab_size - row.shape[-1]), -np.inf, dtype=row.dtype)
    return np.concatenate([row, padding], axis=-1)


def penalize(row: Row, seen: Iterable[int], penalty: float) -> Distribution:
    """Repetition penalty (Keskar et al. 2019): tokens in `seen` lose logit, once each.

    A positive logit is divided by `penalty`, a negative one multiplied. Returns a new row (V,).
    """
    ids = np.fromiter((i for i in set(seen) if i < row.shape[-1]), dtype=np.int64)
    changed = row.astype(np.float64)
    values = changed[ids]
    changed[ids] = np.where(values > 0, values / penalty, values * penalty)
    return changed


def top_k(z: Distribution, k: int) -> Distribution:
    """Logits (V,) with all but the k largest at −∞; ties with the k-th stay."""
    if k >= z.size:
        return z
    largest = np.partition(_candidates(z, k), -k)
    return np.where(z < largest[-k], -np.inf, z)


def top_p(p: Distribution, mass: float) -> Distribution:
    """The smallest set of most probable tokens whose mass reaches `mass`, renormalised (V,)."""
    order = _most_probable(p, mass)
    enough = int(np.searchsorted(np.cumsum(p[order]), mass)) + 1
    kept = np.zeros_like(p)
    chosen = order[:enough]
    kept[chosen] = p[chosen] / p[chosen].sum()
    return kept


def _most_probable(p: Distribution, mass: float) -> NDArray[np.intp]:
    """Ids by falling probability (ties by id), at least as many as hold `mass`.

    Sorting a whole vocabulary takes milliseconds; the head of it usually holds the mass.
    """
    size = 1024
    while size < p.size:
        head = np.flatnonzero(p >= _candidates(p, size).min())
        if p[head].sum() >= mass:
            break
        size *= 8
    else:
        head = np.arange(p.size)
    return head[np.argsort(-p[head], kind="stable")]


def _candidates(values: Distribution, k: int) -> Distribution:
    """At least k entries of `values` (n,), the k largest among them, where k ≤ n.

    The k-th largest of the maxima of blocks is a bound that at least k entries reach; finding it
    takes a tenth of the time that sorting out the k largest of a vocabulary would. (Which entries
    share a block does not matter; these are far apart, for speed.)
    """
    whole = values.size // _BLOCK * _BLOCK
    maxima = values[:whole].reshape(_BLOCK, -1).max(axis=0)
    if k > maxima.size:
        return values
    return values[values >= np.partition(maxima, -k)[-k]]


def distribution(row: Row, settings: Settings, seen: Iterable[int] = ()) -> Distribution:
    """The distribution (V,) a token is drawn from at temperature > 0.

    row: logits (V,). seen: tokens so far, prompt included, for the repetition penalty. Raises
    `NotFinite` instead of ever returning NaN.
    """
    if settings.repetition_penalty != 1:
        row = penalize(row, seen, settings.repetition_penalty)
    z = row.astype(np.float64)
    peak = z.max()
    if not np.isfinite(peak):  # NaN spreads into max, so one look suffices
        raise NotFinite("The model")
    z -= peak
    z /= settings.temperature
    if settings.top_k:
        z = top_k(z, settings.top_k)
    p: Distribution = np.exp(z, out=z)
    p /= p.sum()
    return top_p(p, settings.top_p) if settings.top_p < 1 else p


def most_probable(row: Row, settings: Settings, seen: Iterable[int] = ()) -> int:
    """The token that greedy decoding takes: the largest logit, ties to the lowest id."""
    if settings.repetition_penalty != 1:
        row = penalize(row, seen, settings.repetition_penalty)
    token = int(np.argmax(row))  # numpy returns the first of equals, and NaN counts as largest
    if not np.isfinite(row[token]):
        raise NotFinite("The model")
    return token


def draw(p: Distribution, u: float) -> int:
    """The token that the uniform number u in [0, 1) picks from p (V,), by inverse transform.

    Never a token of probability 0, whatever u: the search is for the first cumulative sum *above*
    u·Σp, and rounding at the very end falls back to the last token that has any probability.
    """
    cumulative = np.cumsum(p)
    token = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    if token >= p.size:
        token = int(np.flatnonzero(p)[-1])
    return token


def probability(row: Row, token: int) -> float:
    """The model's own probability of one entry of a row (temperature 1, nothing cut off)."""
    z = row.astype(np.float32, copy=False)
    peak = z.max()
    return float(np.exp(z[token] - peak, dtype=np.float64) / np.exp(z - peak).sum(dtype=np.float64))
