"""The shipped prompts: what the race offers and the bench measures. Free of torch."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LEVELS = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Prompt:
    """level: how easy its answer is to guess, one of LEVELS. kind: sort of text. text: English."""

    id: str
    level: str
    kind: str
    text: str


@cache
def prompts() -> tuple[Prompt, ...]:
    """All prompts of prompts.toml, in its order."""
    table = tomllib.loads((Path(__file__).parent / "prompts.toml").read_text("utf-8"))
    return tuple(Prompt(**entry) for entry in table["prompt"])
