"""A source of races without weights: the real race on two small tables, as slow as a test wants.

``SD_SOURCE=tests.app.fake_source:FakeSource``; passes of the target last ``FAKE_PASS_MS``
(default 4). Some prompts provoke: "crash" ends the process, "refuse" raises a known error,
"break" an unknown one, "slow" makes each pass of the target last 100 ms. ``FAKE_LOAD=fail`` makes
loading fail until a file named by ``FAKE_LOAD_AGAIN`` exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.errors import SdError
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

    def token_bytes(self, token: int) -> bytes:
        return b"" if token == END else WORDS[token - 1].encode()

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(WORDS[token - 1] for token in tokens if token != END)


class SlowDecoder(TabularDecoder):
    """Takes its time for each pass, whatever the number of rows, as a memory-bound model does."""

    seconds = 0.0

    def forward(self, *arguments: Any, **options: Any) -> np.ndarray:
        time.sleep(self.seconds)
        return super().forward(*arguments, **options)


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


class FakeSource:
    """See the module."""

    def __init__(self) -> None:
        self.pair: FakePair | None = None

    def describe(self) -> list[dict[str, Any]]:
        drafters = ["both", "model", "lookup"]
        common = {"languages": ["en"], "drafters": drafters, "download": 0, "memory": 0}
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
        slow = "slow" in words
        self.pair.target.seconds = 0.1 if slow else float(os.environ.get("FAKE_PASS_MS", "4")) / 1e3
        pair_: Any = self.pair
        return race(pair_, settings, cancelled=cancelled, command="a test")
