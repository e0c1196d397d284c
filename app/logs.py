"""The server's log: lines for people, or one JSON object a line for machines (``SD_LOG=json``).

Whatever a reader sent reaches a terminal or a log with its control characters written out, and an
address without what stands behind its ``?``: that may be a prompt.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

FORMATS = ("text", "json")
#: Of a log record, whatever else it carries.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def plain(text: str) -> str:
    """Return text with control characters written out: they could move a terminal's cursor."""
    return "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text
    )


class _NoQueries(logging.Filter):
    """Cuts the addresses of the access log at their question mark."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record's arguments; lets every record through."""
        if isinstance(record.args, tuple):
            record.args = tuple(_cut(a) if isinstance(a, str) else a for a in record.args)
        return True


def _cut(summary: str) -> str:
    """Shorten "GET /app?race.prompt=… (127.0.0.1)" to "GET /app? (127.0.0.1)"."""
    before, mark, after = summary.partition("?")
    return f"{before}? {after.rpartition(' ')[2]}" if mark else summary


class Lines(logging.Formatter):
    """One line a record; a traceback follows on its own lines, written out as well."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level, part and message."""
        moment = datetime.datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        text = f"{moment} {record.levelname} {record.name}: {plain(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            text += "\n" + "\n".join(plain(line) for line in trace.splitlines())
        return text


class JsonLines(logging.Formatter):
    """One JSON object a record, in ASCII: whatever the text holds, it stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with everything that was given as ``extra``."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        entry |= {k: v for k, v in record.__dict__.items() if k not in _USUAL}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _Careless(io.RawIOBase):
    """A file descriptor that drops what cannot be written: the disk of the log may be full."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether somebody watches."""
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        """Write, or do not; says that all was written."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, data)
        return len(data)


def careless_output() -> None:
    """Send what this process prints to standard error, and never fail for it."""
    stream = io.TextIOWrapper(
        io.BufferedWriter(_Careless(2)), "utf-8", "backslashreplace", line_buffering=True
    )
    sys.stdout = sys.stderr = stream


def configure(environment: Mapping[str, str] = os.environ) -> None:
    """Write every log record in the owner's format, to wherever logs already go.

    A log on a full disk is no reason to stop: `logging` drops what it cannot write.

    Raises:
        ValueError: ``SD_LOG`` is neither "text" nor "json".
    """
    chosen = environment.get("SD_LOG", "").strip() or "text"
    if chosen not in FORMATS:
        raise ValueError(f"SD_LOG={chosen!r} must be one of {', '.join(FORMATS)}")
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stderr))
        root.setLevel(logging.INFO)
    for handler in root.handlers:
        handler.setFormatter(JsonLines() if chosen == "json" else Lines())
        if not any(isinstance(each, _NoQueries) for each in handler.filters):
            handler.addFilter(_NoQueries())
    logging.raiseExceptions = False
