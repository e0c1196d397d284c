"""What the owner of the server decides about live races, through the environment.

===================  =======  ==================================================================
variable             default  meaning
===================  =======  ==================================================================
``SD_PAIRS``         (first)  pairs that readers may choose, by name from kernels/presets.toml,
                              separated by commas; the first one is loaded first
``SD_TARGET``        –        another target, by path or Hugging Face id: offered as "custom"
``SD_DRAFT``         –        its draft; without one, look-up drafting
``SD_DEVICE``        auto     where the models run: "cpu", "cuda", …
``SD_PRECISION``     auto     how their weights are held: "bf16", "fp32"
``SD_MAX_LENGTH``    512      longest text of a race, in tokens
``SD_MAX_PROMPT``    8000     longest prompt, in characters
``SD_MAX_QUEUE``     40       races that may wait
``SD_MAX_READERS``   500      connections at once
``SD_MAX_ACTIVE``    8        races that share the device in turns (each holds its caches in memory)
``SD_SLICE_SECONDS`` 2        how long a race has the device while others wait for it
``SD_MAX_RATE``      10       messages a second from one page, five times as many at once
``SD_SLOW_SECONDS``  20       how long a page may take nothing of what it is sent
``SD_STALL_SECONDS`` 300      how long an engine with races may be silent before it is started anew
``SD_DRAIN_SECONDS`` 10       how long the server, told to end, lets races go on
``SD_MAX_SENTENCE``  300      longest sentence of figure `mask` to run, in characters
``SD_MAX_MEASURES``  40       measurements that one address may ask for in a minute
``SD_KEEP_SECONDS``  60       how long a finished race can be fetched after a lost connection
``SD_LEAVE_SECONDS`` 15       how long a race waits for a reader whose connection broke
``SD_WARM``          0        1: load the first pair with the server, not with the first reader, and
                              measure its roofline while nobody races
``SD_LOG``           text     json: the log as one JSON object a line (``app/logs.py``)
``SD_SOURCE``        –        ``module:Class``, another source of races (``app/sources.py``)
===================  =======  ==================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernels.errors import SdError
from kernels.settings import BOUNDS, MAX_PROMPT_CHARACTERS, Settings


@dataclass(frozen=True)
class Limits:
    """Bounds of live races, see the table above. Times in seconds."""

    length: int = 512
    prompt: int = 8000
    queue: int = 40
    readers: int = 500
    sentence: int = 300
    measures: int = 40
    keep: float = 60.0
    leave: float = 15.0
    active: int = 8
    slice: float = 2.0
    rate: int = 10
    slow: float = 20.0
    stall: float = 300.0
    drain: float = 10.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Limits:
        """Read them from the environment.

        Raises:
            ValueError: a value is not a positive number; the message names the variable.
        """

        def whole(name: str, default: int, most: int | None = None) -> int:
            text = environment.get(name, "").strip()
            if not text:
                return default
            if not text.isdecimal() or int(text) < 1:
                raise ValueError(f"{name}={text!r} must be a whole number above 0")
            return int(text) if most is None else min(int(text), most)

        return cls(
            length=whole("SD_MAX_LENGTH", cls.length, int(BOUNDS["length"][1])),
            prompt=whole("SD_MAX_PROMPT", cls.prompt, MAX_PROMPT_CHARACTERS),
            queue=whole("SD_MAX_QUEUE", cls.queue),
            readers=whole("SD_MAX_READERS", cls.readers),
            sentence=whole("SD_MAX_SENTENCE", cls.sentence),
            measures=whole("SD_MAX_MEASURES", cls.measures),
            keep=float(whole("SD_KEEP_SECONDS", int(cls.keep))),
            leave=float(whole("SD_LEAVE_SECONDS", int(cls.leave))),
            active=whole("SD_MAX_ACTIVE", cls.active),
            slice=float(whole("SD_SLICE_SECONDS", int(cls.slice))),
            rate=whole("SD_MAX_RATE", cls.rate),
            slow=float(whole("SD_SLOW_SECONDS", int(cls.slow))),
            stall=float(whole("SD_STALL_SECONDS", int(cls.stall))),
            drain=float(whole("SD_DRAIN_SECONDS", int(cls.drain))),
        )

    def within(self, settings: dict[str, Any]) -> Settings:
        """Return a reader's settings, checked, the length brought under the owner's limit.

        Raises:
            SdError: `prompt_too_long` (in characters), `empty_prompt`, and what
                `Settings.from_dict` refuses.
        """
        prompt = settings.get("prompt") if isinstance(settings, dict) else None
        if isinstance(prompt, str) and len(prompt) > self.prompt:
            raise SdError(
                "prompt_too_long",
                f"The prompt has {len(prompt)} characters, this server takes {self.prompt}.",
                characters=len(prompt),
                limit=self.prompt,
            )
        checked = Settings.from_dict(settings)
        if not checked.prompt.strip():
            raise SdError("empty_prompt", "The prompt is empty: write at least one word.")
        if checked.length > self.length:
            checked = replace(checked, length=self.length)
        return checked


def limits() -> Limits:
    """Return the limits of this process."""
    return Limits.of(os.environ)
