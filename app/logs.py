"""The server's log: lines for people, or one JSON object a line for machines (``SD_LOG=json``).

Whatever a reader sent reaches a terminal or a log with its control characters written out, and an
address without what stands behind its ``?``: that may be a prompt.
"""

from __future__ import annotations

import datetime
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


def configure(environment: Mapping[str, str] = os.environ) -> None:
    """Send every log record to standard error in the owner's format.

    A log on a full disk is no reason to stop: `logging` drops what it cannot write.

    Raises:
        ValueError: ``SD_LOG`` is neither "text" nor "json".
    """
    chosen = environment.get("SD_LOG", "").strip() or "text"
    if chosen not in FORMATS:
        raise ValueError(f"SD_LOG={chosen!r} must be one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if chosen == "json" else Lines())
    handler.addFilter(_NoQueries())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False
