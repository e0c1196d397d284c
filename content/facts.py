"""The numbers that the article states and the works that it cites."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

from content.errors import ROOT, ContentError
from content.words import read_toml

NUMBERS_FILE = ROOT / "numbers.toml"
REFERENCES_FILE = ROOT / "references.toml"


@dataclass(frozen=True)
class Number:
    """One constant: either looked up (``source``) or derived from others (``formula``)."""

    key: str
    value: float
    """In ``unit``: SI base units without a prefix (bytes, B/s, FLOP/s, seconds)."""
    unit: str
    """Empty for a pure number."""
    source: str
    """Who says so; empty if nobody had to be asked."""
    url: str
    accessed: date | None
    origin: str
    """For a number without a source or formula: ``ui.origin_<origin>`` says where it is from."""
    formula: str
    """Over the keys of other numbers, for example ``h100.flops / h100.bandwidth``; or empty."""
    used_in: tuple[str, ...]
    """Section ids, and figure ids as ``figure.<id>``."""

    @property
    def anchor(self) -> str:
        """The id of this number's row on the numbers page."""
        return "num-" + self.key.replace(".", "-")

    @property
    def shown(self) -> str:
        """The value as a reader would write it: ``3.35 TB/s``, ``41.79 ms``, ``295.2``."""
        return shown(self.value, self.unit)


@dataclass(frozen=True)
class Reference:
    """One work cited."""

    key: str
    authors: str
    title: str
    year: int
    where: str
    """Venue, repository or publisher."""
    url: str
    arxiv: str
    doi: str


@lru_cache
def numbers() -> dict[str, Number]:
    """Every constant by key, for example ``h100.bandwidth``; derived values are computed here.

    Raises:
        ContentError: an entry lacks a source or a formula, or its formula does not evaluate.
    """
    entries = _entries(read_toml(NUMBERS_FILE))
    found: dict[str, Number] = {}
    in_progress: list[str] = []

    def value_of(key: str) -> float:
        if key not in found:
            if key not in entries:
                raise KeyError(f"no number named {key}")
            if key in in_progress:
                raise ValueError(f"{key} depends on itself")
            in_progress.append(key)
            found[key] = _number(key, entries[key], value_of)
            in_progress.pop()
        return found[key].value

    for key in entries:
        value_of(key)
    return {key: found[key] for key in entries}


def _number(key: str, entry: dict[str, Any], value_of: Callable[[str], float]) -> Number:
    formula = str(entry.get("formula", ""))
    if formula and "value" in entry:
        raise ContentError(NUMBERS_FILE, f"{key}: a derived number states no value of its own")
    if sum(bool(entry.get(name)) for name in ("source", "origin", "formula")) != 1:
        raise ContentError(NUMBERS_FILE, f"{key}: needs a source, an origin or a formula")
    try:
        value = evaluate(formula, value_of) if formula else float(entry["value"])
    except (ArithmeticError, KeyError, SyntaxError, ValueError) as error:
        raise ContentError(NUMBERS_FILE, f"{key}: {formula!r}: {error}") from None
    return Number(
        key=key,
        value=value,
        unit=str(entry.get("unit", "")),
        source=str(entry.get("source", "")),
        url=str(entry.get("url", "")),
        accessed=entry.get("accessed"),
        origin=str(entry.get("origin", "")),
        formula=formula,
        used_in=tuple(entry.get("used_in", ())),
    )


@lru_cache
def references() -> dict[str, Reference]:
    """Every work cited, by key.

    Raises:
        ContentError: an entry lacks a field.
    """
    found: dict[str, Reference] = {}
    for key, entry in read_toml(REFERENCES_FILE).items():
        try:
            found[key] = Reference(
                key=key,
                authors=entry["authors"],
                title=entry["title"],
                year=entry["year"],
                where=entry["where"],
                url=entry["url"],
                arxiv=entry.get("arxiv", ""),
                doi=entry.get("doi", ""),
            )
        except KeyError as error:
            raise ContentError(REFERENCES_FILE, f"{key}: lacks {error}") from None
    return found


def _entries(table: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Flatten nested TOML tables to ``key → entry``; an entry has a value or a formula."""
    flat: dict[str, dict[str, Any]] = {}
    for name, value in table.items():
        if not isinstance(value, dict):
            raise ContentError(NUMBERS_FILE, f"{prefix}{name} stands outside any number")
        if "value" in value or "formula" in value:
            flat[prefix + name] = value
        else:
            flat |= _entries(value, f"{prefix}{name}.")
    return flat


_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def evaluate(formula: str, value_of: Callable[[str], float]) -> float:
    """Evaluate ``+ - * / **``, ``min`` and ``max`` over literals and dotted names.

    ``value_of`` looks up the names.

    Raises:
        ValueError: anything that is not arithmetic.
        SyntaxError: not an expression.
    """

    def walk(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as literal):
                return float(literal)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return _OPERATIONS[type(op)](walk(left), walk(right))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]):
                return (min if name == "min" else max)(walk(arg) for arg in args)
            case ast.Name() | ast.Attribute():
                return value_of(ast.unparse(node))
            case _:
                raise ValueError(f"not arithmetic: {ast.unparse(node)}")

    return walk(ast.parse(formula, mode="eval").body)


_LARGE = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_POWERS = ((1e12, " × 10¹²"), (1e9, " × 10⁹"), (1e6, " × 10⁶"))


def shown(value: float, unit: str) -> str:
    """Format a value with an SI prefix and four significant digits at most.

    Prefixes are decimal (1 GB = 1e9 bytes), as data sheets count. Units other than B, B/s, FLOP,
    FLOP/s and s carry no prefix: ``70 × 10⁹``, ``10,000``.
    """
    if unit in {"B", "B/s", "FLOP", "FLOP/s"}:
        scale, prefix = next(((s, f" {p}") for s, p in _LARGE if value >= s), (1.0, " "))
    elif unit == "s":
        scale, prefix = next(((s, f" {p}") for s, p in _SMALL if value >= s), (1e-9, " n"))
    else:
        scale, prefix = next(((s, p) for s, p in _POWERS if value >= s), (1.0, ""))
        prefix += " " if unit else ""
    scaled = value / scale
    digits = f"{scaled:.4g}" if scaled < 1e4 else f"{scaled:,.0f}"
    return f"{digits}{prefix}{unit}"
