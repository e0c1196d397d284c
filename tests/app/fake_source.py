"""A source of races without weights: the real race on two small tables, as slow as a test wants.

``SD_SOURCE=tests.app.fake_source:FakeSource``; passes of the target last ``FAKE_PASS_MS``
(default 4). Some prompts provoke: "crash" ends the process, "refuse" raises a known error,
"break" an unknown one, "slow" makes each pass of the target last 100 ms, "hang" makes the third one
last for ever, "nan" has no number in it from the third on, "memory" fills the device's memory in
it, "disk" the disk. ``FAKE_LOAD=fail`` makes
loading fail until a file named by ``FAKE_LOAD_AGAIN`` exists. It measures, too: a roofline of known
limits in ``FAKE_MEASURE_STEPS`` steps of 20 ms, disturbed where ``FAKE_MEASURE=disturbed``; not at
all where it is ``unable``. A sentence with the word "crash" ends the process, one with "slow"
takes as many steps as the roofline.
"""

from __future__ import annotations

import copy
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels import mask, roofline
from kernels.errors import SdError
from kernels.model import Description
from kernels.race import race
from kernels.settings import Settings
from tests.kernels.fakes import FakePair, TabularDecoder

# Words that must come through as they are: several scripts, markup, line ends, quotes.
WORDS = [
    *(" the", " small", " model", " guesses", " and", " large", " one", " checks", " a", " row"),
    *(" of", " words", ", ", ".\n", " then", " it", " goes", " on", " with", " what", " was"),
    *(" right", "中文", " 词元", "🙂", " <b>bold</b>", " &amp;", ' "quoted"', " so", " again"),
]
END = 0


class WordTokenizer:
    """Token 0 ends a text, token i is the i-th word."""

    end_tokens = (END,)
    special_tokens = frozenset({END})

    def encode(self, text: str) -> list[int]:
        return [1 + sum(word.encode()) % len(WORDS) for word in text.split()]

    def chat(self, prompt: str) -> list[int]:
        return [1, *self.encode(prompt), 2]

    def token_text(self, token: int) -> str:
        return self.token_bytes(token).decode()

    def token_bytes(self, token: int) -> bytes:
        return b"" if token == END else WORDS[token - 1].encode()

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(WORDS[token - 1] for token in tokens if token != END)


class SlowDecoder(TabularDecoder):
    """Takes its time for each pass, whatever the number of rows, as a memory-bound model does."""

    seconds = 0.0
    fault = ""
    passes = 0

    def describe(self) -> Description:
        return Description("table", "cpu", "fp32", 1, "a test")

    def forward(self, *arguments: Any, **options: Any) -> np.ndarray:
        time.sleep(self.seconds)
        self.passes += 1
        logits = super().forward(*arguments, **options)
        if self.passes < 3:
            return logits
        match self.fault:
            case "hang":
                time.sleep(3600)
            case "nan":
                logits = np.full_like(logits, np.nan)
            case "memory":
                raise OutOfMemoryError("Tried to allocate 20.00 GiB")
            case "disk":
                raise OSError(errno.ENOSPC, "No space left on device")
        return logits


class OutOfMemoryError(RuntimeError):
    """What torch raises, by its name."""


def fake_pair(milliseconds: float) -> FakePair:
    """A pair whose draft is right about two times out of three."""
    rng = np.random.default_rng(7)
    size = len(WORDS) + 1
    table = rng.normal(0, 1.5, (size, size, size))
    table[..., END] = -6
    guess = table + rng.normal(0, 0.55, table.shape)
    target = SlowDecoder(table, context_length=1100, end_tokens=(END,), name="table")
    draft = SlowDecoder(guess, context_length=1100, end_tokens=(END,), name="noisy table")
    target.seconds, draft.seconds = milliseconds / 1e3, milliseconds / 8e3
    return FakePair(target, draft, WordTokenizer(), name="fake", guarantee="bitwise")


#: What a fake measurement finds: bytes a second, FLOP/s.
BANDWIDTH, FLOPS = 20e9, 300e9


def fake_roofline(disturbed: bool) -> dict[str, Any]:
    """The record of a machine that follows its roofline exactly, 100 million BF16 weights."""
    subject = roofline.Subject("fake, whole passes", "bf16", "a table", 10**8, 2 * 10**8, float)
    tokens = (1, 2, 4, 8, 16, 32, 64, 256)
    seconds = {k: [max(2e8 / BANDWIDTH, k * 2e8 / FLOPS)] * 3 for k in tokens}
    timing = roofline.Timing(seconds, 24, 20 if disturbed else 0, contaminated=disturbed)
    return {
        "schema": roofline.SCHEMA,
        "created": "2026-11-30T12:00:00Z",
        "command": "live, on the page",
        "device": {"name": "Fake processor", "cores": 2},
        "contaminated": disturbed,
        "series": [roofline.summarise(subject, timing)],
    }


class FakeSource:
    """See the module."""

    def __init__(self) -> None:
        self.pair: FakePair | None = None

    def describe(self) -> list[dict[str, Any]]:
        drafters = ["both", "model", "lookup"]
        common: dict[str, Any] = {
            "languages": ["en"],
            "drafters": drafters,
            "download": 0,
            "memory": 0,
        }
        if os.environ.get("FAKE_MEASURE") != "unable":
            common["measures"] = ["roofline", "mask"]
        return [
            {"name": "embedded", "title": "A table", **common},
            {"name": "other", "title": "Another table", **common, "languages": ["zh", "en"]},
        ]

    def prepare(self, pair: str, progress: Callable[[str, int, int], None]) -> None:
        again = os.environ.get("FAKE_LOAD_AGAIN")
        if os.environ.get("FAKE_LOAD") == "fail" and not (again and Path(again).exists()):
            tried = [{"place": "here", "why": "nothing there"}]
            raise SdError("weights_not_found", "No weights.", tried=tried)
        if self.pair is None:
            for done in range(5):
                progress("download", done * 10, 40)
            progress("load", 1, 1)
            print("libraries print things; the messages must survive it")
            self.pair = fake_pair(float(os.environ.get("FAKE_PASS_MS", "4")))

    def run(
        self, pair: str, settings: Settings, cancelled: Callable[[], bool]
    ) -> Iterator[dict[str, Any]]:
        assert self.pair is not None
        words = settings.prompt.split()
        if "crash" in words:
            os._exit(3)
        if "refuse" in words:
            raise SdError("prompt_too_long", "Too long.", tokens=99, limit=9)
        if "break" in words:
            raise RuntimeError("a fault that nobody foresaw")
        # Races take turns: each has a target of its own.
        target = copy.copy(self.pair.target)
        target.seconds = 0.1 if "slow" in words else target.seconds
        target.fault = next((w for w in words if w in ("hang", "nan", "memory", "disk")), "")
        pair_: Any = replace(self.pair, target=target)
        return race(pair_, settings, cancelled=cancelled, command="a test")

    def measure(
        self, what: str, options: dict[str, Any], watch: Callable[[float], None]
    ) -> dict[str, Any]:
        assert self.pair is not None
        words = options.get("sentence", "").split()
        if "crash" in words:
            os._exit(3)
        steps = int(os.environ.get("FAKE_MEASURE_STEPS", "5"))
        if what == "roofline" or "slow" in words:
            for step in range(steps):
                watch(step / steps)
                time.sleep(0.02)
        if what == "roofline":
            return fake_roofline(os.environ.get("FAKE_MEASURE") == "disturbed")
        target: Any = self.pair.target
        target.seconds = 0.0
        tokenizer: Any = self.pair.tokenizer
        return mask.record(
            target,
            None,
            tokenizer,
            source="a table",
            sentence=options["sentence"],
            most=30,
            watch=watch,
        )
