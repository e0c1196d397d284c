"""The text of one lane: tokens, streamed pieces, and the rules that end it.

Both lanes end by this one object, token by token, so a speculative block stops exactly where plain
decoding would: at an end token or stop text in the middle of a block, or at the length limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from kernels.errors import SdError
from kernels.settings import Settings
from kernels.text import Detokenizer, HasBytes

Reason = Literal["end", "stop", "length", "context", "cancelled"]


def check_prompt(prompt: Sequence[int], context_length: int) -> None:
    """Refuse a prompt that leaves no room for one new token.

    Raises `SdError` with code "empty_prompt" or "prompt_too_long" (detail: tokens, limit).
    """
    if not prompt:
        raise SdError("empty_prompt", "The prompt is empty: write at least one word.")
    if len(prompt) >= context_length:
        raise SdError(
            "prompt_too_long",
            f"The prompt has {len(prompt)} tokens and the model reads {context_length}: "
            f"shorten it to {context_length - 1} tokens or fewer.",
            tokens=len(prompt),
            limit=context_length - 1,
        )


class Transcript:
    """The prompt and what has been written after it.

    `finished` is None while the lane goes on, else why it ended: "end" (an end token), "stop" (a
    stop text is complete), "length" (as many tokens as asked for), "context" (the target's context
    is full). End tokens are part of `tokens`; their text is empty.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        settings: Settings,
        tokenizer: HasBytes,
        *,
        context_length: int,
        end_tokens: Collection[int],
    ) -> None:
        check_prompt(prompt, context_length)
        self.prompt_length = len(prompt)
        self.tokens: list[int] = list(prompt)
        self.text = ""
        room = context_length - len(prompt)
        self.limit = min(settings.length, room)  # new tokens at most
        self._at_limit: Reason = "length" if settings.length <= room else "context"
        self._end_tokens = frozenset(end_tokens)
        self._stops = settings.stop
        self._longest_stop = max((len(stop) for stop in settings.stop), default=0)
        self._detokenizer = Detokenizer(tokenizer)
        self.finished: Reason | None = self._at_limit if self.limit == 0 else None

    @property
    def emitted(self) -> int:
        """How many new tokens there are."""
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """How many more may come."""
        return self.limit - self.emitted

    @property
    def new_tokens(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_length :]

    def append(self, token: int) -> str:
        """Add one token and say what text it completes; sets `finished` where the text ends."""
        assert self.finished is None, "a finished transcript takes no more tokens"
        self.tokens.append(token)
        ends = token in self._end_tokens
        piece = "" if ends else self._detokenizer.push(token)
        if ends:
            self.finished = "end"
        elif self._completes_stop(piece):
            self.finished = "stop"
        elif self.remaining == 0:
            self.finished = self._at_limit
        if self.finished:
            piece += self._detokenizer.flush()
        self.text += piece
        return piece

    def preview(self) -> Detokenizer:
        """A detokenizer at the present place, for the text of tokens that may be rejected."""
        return self._detokenizer.fork()

    def _completes_stop(self, piece: str) -> bool:
        tail = self.text[-self._longest_stop :] + piece if self._longest_stop else ""
        return any(stop in tail for stop in self._stops)
