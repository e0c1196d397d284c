"""Errors that a reader or an owner of the server can act on.

Every one has a `code` (stable, lower case; the page words it in the reader's language) and a
`detail` of plain JSON values (what the wording needs). `str(error)` is the English wording for a
terminal: what happened, and what to do about it.
"""

from __future__ import annotations

from typing import Any


class SdError(Exception):
    """Something went wrong that we can explain.

    `code` names the kind, `detail` holds JSON values for the page's wording, `message` is for the
    terminal and ends with what to do.
    """

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail: dict[str, Any] = detail

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the constructor with the message alone and fail to unpickle.
        return _rebuild, (type(self), self.code, self.message, self.detail)

    def as_event(self) -> dict[str, Any]:
        """The event that travels to the page: {"type": "error", "code", "detail"}."""
        return {"type": "error", "code": self.code, "detail": {**self.detail, "message": str(self)}}


def _rebuild(
    kind: type[SdError], code: str, message: str, detail: dict[str, Any]
) -> SdError:  # pragma: no cover - runs in the process that unpickles
    error = kind.__new__(kind)
    SdError.__init__(error, code, message, **detail)
    return error
