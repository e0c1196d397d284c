"""Text out of tokens, one token at a time, without broken characters.

A token may end in the middle of a character (most Chinese characters and every emoji are several
bytes, often several tokens). Tokens stand for bytes; an incremental UTF-8 decoder keeps the bytes
of an unfinished character until the rest arrives, so what is shown never changes afterwards.
"""

from __future__ import annotations

import codecs
from typing import Protocol


class HasBytes(Protocol):
    """What this module needs of a tokenizer."""

    @property
    def special_tokens(self) -> frozenset[int]:
        """Ids that carry structure (start, end, roles) and no text."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for."""
        ...


class Detokenizer:
    """Turns tokens into pieces of text whose concatenation is the text of all tokens."""

    def __init__(self, tokenizer: HasBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is unfinished."""
        if token in self._tokenizer.special_tokens:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """At the end of the text: U+FFFD if a character was never finished, else nothing."""
        return self._decoder.decode(b"", final=True)

    def fork(self) -> Detokenizer:
        """An independent copy, to see the text of tokens that may yet be rejected."""
        twin = Detokenizer(self._tokenizer)
        twin._decoder.setstate(self._decoder.getstate())
        return twin
