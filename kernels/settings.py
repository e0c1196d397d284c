"""What a reader may choose about one race, with the bounds that hold everywhere.

The same object is checked on the command line, in the server and in a recorded trace, so no value
out of bounds reaches the engine. Free of torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from kernels.errors import SdError

DRAFTERS = ("both", "model", "lookup")
ADAPTIVE: Literal["adaptive"] = "adaptive"

#: Inclusive bounds of the numeric settings. A seed fits a JavaScript number exactly.
BOUNDS: dict[str, tuple[float, float]] = {
    "m": (1, 16),
    "temperature": (0.0, 5.0),
    "top_k": (0, 1000),
    "top_p": (0.01, 1.0),
    "repetition_penalty": (0.5, 2.0),
    "seed": (0, 2**53 - 1),
    "length": (0, 4096),
}
MAX_PROMPT_CHARACTERS = 40_000
MAX_STOPS = 8
MAX_STOP_CHARACTERS = 64


class BadSetting(SdError):
    """A setting is out of its bounds or of the wrong type. `detail`: name, value, allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        shown = repr(value)[:80]
        super().__init__(
            "bad_setting",
            f"{name} = {shown} is not possible: give {allowed}.",
            name=name,
            value=shown,
            allowed=allowed,
        )


def whole_or_adaptive(text: str) -> int | Literal["adaptive"]:
    """m as a command line has it; ValueError for what is neither a number nor "adaptive"."""
    return ADAPTIVE if text == ADAPTIVE else int(text)


@dataclass(frozen=True)
class Settings:
    """One race. Raises `BadSetting` when a value is out of bounds.

    m: drafted tokens a round, 1 to 16, or "adaptive".
    temperature: 0 means greedy (the most probable token, ties to the lowest id).
    top_k: keep the k most probable tokens; 0 keeps all. top_p: keep the smallest set of most
    probable tokens that reaches this mass; 1 keeps all.
    repetition_penalty: 1 means none; above 1 makes tokens that already occur less likely.
    length: new tokens at most. stop: texts that end the answer where they appear.
    chat: wrap the prompt in the target's chat template.
    """

    prompt: str
    chat: bool = True
    m: int | Literal["adaptive"] = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    length: int = 96
    drafter: str = "both"
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str) or len(self.prompt) > MAX_PROMPT_CHARACTERS:
            raise BadSetting(
                "prompt", self.prompt, f"a text of at most {MAX_PROMPT_CHARACTERS} characters"
            )
        if not isinstance(self.chat, bool):
            raise BadSetting("chat", self.chat, "true or false")
        if self.m != ADAPTIVE:
            self._check_number("m", whole=True, also=f' or "{ADAPTIVE}"')
        for name in ("top_k", "seed", "length"):
            self._check_number(name, whole=True)
        for name in ("temperature", "top_p", "repetition_penalty"):
            self._check_number(name, whole=False)
        if self.drafter not in DRAFTERS:
            raise BadSetting("drafter", self.drafter, "one of " + ", ".join(DRAFTERS))
        if not isinstance(self.stop, (tuple, list)):
            raise BadSetting("stop", self.stop, "a list of texts")
        # Frozen, but a list from JSON is welcome; inside it is always a tuple.
        object.__setattr__(self, "stop", tuple(self.stop))
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= MAX_STOP_CHARACTERS:
                raise BadSetting("stop", text, f"texts of 1 to {MAX_STOP_CHARACTERS} characters")
        if len(self.stop) > MAX_STOPS:
            raise BadSetting("stop", self.stop, f"at most {MAX_STOPS} texts")

    def _check_number(self, name: str, *, whole: bool, also: str = "") -> None:
        value = getattr(self, name)
        low, high = BOUNDS[name]
        kinds = (int,) if whole else (int, float)
        allowed = f"a {'whole ' if whole else ''}number from {low:g} to {high:.16g}{also}"
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise BadSetting(name, value, allowed)
        if not math.isfinite(value) or not low <= value <= high:
            raise BadSetting(name, value, allowed)

    @property
    def greedy(self) -> bool:
        """True when every token is the most probable one and nothing is drawn."""
        return self.temperature == 0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from untrusted JSON; unknown names are refused, not ignored."""
        if not isinstance(values, Mapping):
            raise BadSetting("settings", values, "an object with named values")
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise BadSetting(str(name)[:40], values[name], "only " + ", ".join(sorted(known)))
        if "prompt" not in values:
            raise BadSetting("prompt", None, "a text")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Settings.from_dict` of it is equal to this object."""
        return {**asdict(self), "stop": list(self.stop)}
