"""Numbers and units in words, as `web/format.js` writes them; a test compares the two."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal


def num(value: float, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits, thousands separated, no exponent."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    exact = Decimal(repr(float(value)))
    if exact == 0:
        return "0"
    places = 0 if abs(value) >= 10**digits else digits - 1 - exact.adjusted()
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{rounded:,f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")


def fixed(value: float, decimals: int = 2) -> str:
    """Return `value` with a fixed number of decimals."""
    if not math.isfinite(value):
        return "–"
    step = Decimal(1).scaleb(-decimals)
    return f"{Decimal(repr(float(value))).quantize(step, ROUND_HALF_UP):,f}".replace("-", "−")


def duration(seconds: float, digits: int = 3) -> str:
    """Return a duration given in seconds: "42 ms", "1.3 s", "12 µs"."""
    size = abs(seconds)
    if size == 0:
        return "0 ms"
    if size < 99.95e-6:
        return f"{num(seconds * 1e6, digits)} µs"
    if size < 0.99995:
        return f"{num(seconds * 1e3, digits)} ms"
    return f"{num(seconds, digits)} s"


def si(value: float, unit: str, digits: int = 3) -> str:
    """Return `value` with an SI prefix: `si(140e9, "B")` is "140 GB"."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{num(value / size, digits)} {prefix}{unit}"
    return f"{num(value, digits)} {unit}"


def percent(value: float, decimals: int = 0) -> str:
    """Return a share as a percentage: 0.42 is "42%"."""
    return f"{fixed(value * 100, decimals)}%"


def times(value: float) -> str:
    """Return a factor: "2.31×"."""
    return f"{fixed(value, 2)}×"
