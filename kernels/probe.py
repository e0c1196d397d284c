"""Which equality holds here: do rows computed together have the bits of rows computed one by one?

Greedy speculative decoding returns exactly what plain decoding returns if a verification of m + 1
rows gives the logits that m + 1 single passes give. The C decoder promises that; for torch it
depends on the processor and the libraries. So it is tried at start-up, with the very decoder that
will run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kernels.model import Decoder

# A verification of m drafts has m + 1 rows; beyond these a lane would not speculate.
ROWS = (2, 3, 4, 5, 6, 8, 9, 17)
_CONTEXT = 8


@dataclass(frozen=True)
class Guarantee:
    """`kind`: "bitwise" or "close"; `difference`: largest |Δ logit|; `rows`: what was tried."""

    kind: str
    difference: float
    rows: tuple[int, ...]


def probe(decoder: Decoder, rows: Sequence[int] = ROWS) -> Guarantee:
    """Compare a pass of each number of rows with the same tokens read one at a time.

    Takes max(rows) + len(rows) + 1 short passes. Raises ValueError if the context is too short for
    the smallest entry of `rows`; entries that do not fit are left out.
    """
    room = decoder.context_length - _CONTEXT
    rows = tuple(n for n in rows if n <= room)
    if not rows:
        raise ValueError(f"{decoder.name} reads too few tokens to probe")
    most = max(rows)
    # Fixed ids spread over the vocabulary; any tokens do.
    ids = [(7919 * (i + 1)) % decoder.vocab_size for i in range(_CONTEXT + most)]
    cache = decoder.new_cache(_CONTEXT + most)
    decoder.forward(ids[:_CONTEXT], cache, last_only=True)
    alone = np.concatenate([_host(decoder.forward([i], cache)) for i in ids[_CONTEXT:]])
    same, difference = True, 0.0
    for count in rows:
        cache.rollback(_CONTEXT)
        together = _host(decoder.forward(ids[_CONTEXT : _CONTEXT + count], cache))
        same = same and np.array_equal(together.view(np.uint32), alone[:count].view(np.uint32))
        finite = np.isfinite(alone[:count])  # a reduced head gives −inf elsewhere
        gap = np.abs(together[finite] - alone[:count][finite])
        difference = max(difference, float(gap.max()))
    return Guarantee("bitwise" if same else "close", difference, rows)


def _host(logits: Any) -> NDArray[np.float32]:
    array = logits if isinstance(logits, np.ndarray) else logits.float().cpu().numpy()
    return np.ascontiguousarray(array, np.float32)
