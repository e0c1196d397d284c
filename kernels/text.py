"""Text out of tokens, one token at a time, without broken characters.

A byte-level token may end in the middle of a character (most Chinese characters and every emoji
are several bytes, often several tokens). The detokenizer shows only what can no longer change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
#: An unfinished UTF-8 sequence is at most three bytes, hence at most three replacement marks.
LONGEST_UNFINISHED = 3


class Decodes(Protocol):
    """The one method of a tokenizer that this module needs."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens; special tokens have none."""
        ...


class Detokenizer:
    """Turns tokens into pieces of text whose concatenation is the text of all tokens.

    Decoding everything again at each token would take quadratic time, so it keeps a window that
    begins at the last complete chunk: enough context for tokenizers that treat the first token of a
    text specially, and short.
    """

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._context = 0  # how many tokens of the window are context, already shown in full
        self._shown = 0  # how many characters of the window's text are out

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is unfinished."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        stable = _without_unfinished(text)
        piece = stable[self._shown :]
        self._shown = max(self._shown, len(stable))
        if stable == text and piece:
            # Everything is out: what was new becomes the context of what follows.
            self._window = self._window[self._context :]
            self._context = len(self._window)
            self._shown = len(self._tokenizer.decode(self._window))
        return piece

    def flush(self) -> str:
        """What was held back, at the end of the text: the mark of a character never finished."""
        text = self._tokenizer.decode(self._window)
        piece = text[self._shown :]
        self._shown = len(text)
        return piece

    def fork(self) -> Detokenizer:
        """An independent copy, to see the text of tokens that may yet be rejected."""
        twin = Detokenizer(self._tokenizer)
        twin._window = self._window.copy()
        twin._context = self._context
        twin._shown = self._shown
        return twin


def _without_unfinished(text: str) -> str:
    """`text` without marks at its end that a next token may turn into a character."""
    end = len(text)
    while end and text[end - 1] == REPLACEMENT and len(text) - end < LONGEST_UNFINISHED:
        end -= 1
    return text[:end]
