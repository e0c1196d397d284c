"""Plain decoding: one forward pass of the target a token. The yardstick, and the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from kernels.clock import LaneClock
from kernels.passes import Kind, Pass, Token
from kernels.randomness import Purpose, Randomness
from kernels.sampling import distribution, draw, host, most_probable
from kernels.settings import Settings
from kernels.transcript import Transcript

if TYPE_CHECKING:
    from kernels.model import Decoder


class PlainDecoding:
    """Writes `transcript` to its end, yielding each pass after it has happened."""

    def __init__(
        self,
        target: Decoder,
        transcript: Transcript,
        settings: Settings,
        randomness: Randomness,
        clock: LaneClock,
    ) -> None:
        self.target = target
        self.transcript = transcript
        self.settings = settings
        self.randomness = randomness
        self.clock = clock
        self.cache = target.new_cache(len(transcript.tokens) + transcript.limit)

    def run(self) -> Iterator[Pass]:
        """Prefill, then one decode pass a token, until the transcript is finished."""
        unread = list(self.transcript.tokens)  # the prompt first, then each new token
        kind: Kind = "prefill"
        while not self.transcript.finished:
            start = self.clock.now()
            logits = host(self.target.forward(unread, self.cache, last_only=True))  # (1, V)
            end = self.clock.now()
            token = choose(logits[-1], self.transcript, self.settings, self.randomness)
            emitted = Token(token, self.transcript.append(token), "target")
            yield Pass(kind, start, end, len(unread), [emitted], logits=logits)
            unread, kind = [token], "decode"


def choose(
    row: NDArray[Any], transcript: Transcript, settings: Settings, randomness: Randomness
) -> int:
    """The target's next token from its logits (V,), as plain decoding takes it."""
    if settings.greedy:
        return most_probable(row, settings, transcript.tokens)
    p = distribution(row, settings, transcript.tokens)
    return draw(p, randomness.uniform(Purpose.TARGET, len(transcript.tokens)))
