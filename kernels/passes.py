"""What a lane reports after each forward pass (or look-up): the unit of time in the race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

Kind = Literal["prefill", "decode", "draft", "verify"]
Origin = Literal["target", "drafted", "accepted", "rejected", "supplied", "bonus"]

#: Origins whose token enters the text.
EMITTED: frozenset[Origin] = frozenset({"target", "accepted", "supplied", "bonus"})


@dataclass(slots=True)
class Token:
    """One token of a pass.

    text: what it adds to the text, without broken characters (empty while one is unfinished).
    p, q: its probability under target and draft where known; u: the number that judged it.
    by: the drafter that guessed it, "model" or "lookup".
    """

    id: int
    text: str
    origin: Origin
    p: float | None = None
    q: float | None = None
    u: float | None = None
    by: str | None = None


@dataclass(slots=True)
class Pass:
    """One forward pass. start, end: seconds on the lane's own clock. rows: tokens it read.

    logits: the target's rows (n, V), for display; a decoder may overwrite them in its next pass.
    by: which drafter, for draft passes and for the draft's own prefill.
    """

    kind: Kind
    start: float
    end: float
    rows: int
    tokens: list[Token]
    by: str | None = None
    logits: NDArray[Any] | None = None
