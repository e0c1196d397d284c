"""Numbers drawn at random that can be drawn again.

A counter-based generator (Philox 4×64, Salmon et al. 2011) is a function of a key and a counter: no
state to share, nothing to fall out of step. The key is (seed, lane); the counter is (purpose,
position, round). So a seed replays exactly, the two lanes are independent, and no number is ever
used for two decisions: a position that is drafted again in a later round gets fresh numbers.
"""

from __future__ import annotations

import enum

import numpy as np


class Purpose(enum.IntEnum):
    """What a number decides."""

    DRAFT = 1  # which token the draft proposes
    ACCEPT = 2  # whether the target keeps it
    RESIDUAL = 3  # which token replaces a rejected one
    TARGET = 4  # which token comes straight from p: plain decoding, the bonus token


class Randomness:
    """The uniform numbers of one lane of one run."""

    def __init__(self, seed: int, lane: str) -> None:
        # The lane's name enters as bytes, so that lanes need no registry of numbers.
        self._key = np.array([seed, int.from_bytes(lane.encode()[:8], "little")], dtype=np.uint64)

    def uniform(self, purpose: Purpose, position: int, round_: int = 0) -> float:
        """u in [0, 1), a multiple of 2⁻⁵³, the same at every call with these arguments.

        position: index of the new token that the number decides about. round_: which draft-verify
        round asks (0 in plain decoding).
        """
        counter = np.array([0, purpose, position, round_], dtype=np.uint64)
        raw = np.random.Philox(key=self._key, counter=counter).random_raw()
        return (int(raw) >> 11) * 2.0**-53
