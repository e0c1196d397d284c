"""A seeded generator that gives the same draws in Python and in the browser (`web/rng.js`).

sfc32, Chris Doty-Humphrey's "small fast counting" generator: 32-bit arithmetic only, so that both
languages compute it exactly.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF


class Rng:
    """Draws of a figure, repeatable from its seed.

    Args:
        seed: any integer; its low 32 bits are used.
    """

    def __init__(self, seed: int) -> None:
        self._a, self._b, self._c, self._counter = 0x9E3779B9, 0x243F6A88, seed & MASK, 1
        for _ in range(15):
            self.bits()

    def bits(self) -> int:
        """Return the next integer of 32 bits."""
        total = (self._a + self._b + self._counter) & MASK
        self._counter = (self._counter + 1) & MASK
        self._a = self._b ^ (self._b >> 9)
        self._b = (self._c + (self._c << 3)) & MASK
        self._c = ((self._c << 21) | (self._c >> 11)) & MASK
        self._c = (self._c + total) & MASK
        return total

    def uniform(self) -> float:
        """Return a number in [0, 1), never 1."""
        return self.bits() / 4294967296
