"""The log: one line a record, whatever a reader has sent, and no prompt in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from app import logs

NASTY = "x\x1b[2J\r\n\x07forged line\u2028中文"


@pytest.fixture
def logged() -> Iterator[Callable[..., tuple[logging.Logger, io.StringIO]]]:
    """Configures the root logger's only handler and gives what it writes."""
    root = logging.getLogger()
    saved = root.handlers[:], root.level, logging.raiseExceptions
    stream = io.StringIO()

    def configure(**environment: str) -> tuple[logging.Logger, io.StringIO]:
        root.handlers[:] = [logging.StreamHandler(stream)]
        root.setLevel(logging.INFO)
        logs.configure(environment)
        return logging.getLogger("a.part"), stream

    yield configure
    root.handlers[:], _, logging.raiseExceptions = saved
    root.setLevel(saved[1])


def test_a_reader_cannot_forge_a_line_or_move_the_cursor(
    logged: Callable[..., tuple[logging.Logger, io.StringIO]],
) -> None:
    logger, stream = logged()
    logger.warning("said %s", NASTY)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert lines[0].endswith(r"x\x1b[2J\r\n\x07forged line\u2028中文")
    assert "WARNING a.part" in lines[0]


def test_json_lines_hold_everything_and_stay_one_line(
    logged: Callable[..., tuple[logging.Logger, io.StringIO]],
) -> None:
    logger, stream = logged(SD_LOG="json")
    try:
        raise ValueError(NASTY)
    except ValueError:
        logger.exception("said %s", NASTY, extra={"race": "abc", "seconds": 1.5})
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line.isascii()
    entry = json.loads(line)
    assert entry["message"] == f"said {NASTY}"
    assert (entry["level"], entry["part"]) == ("error", "a.part")
    assert (entry["race"], entry["seconds"]) == ("abc", 1.5)
    assert "ValueError" in entry["traceback"]
    assert entry["time"].endswith("+00:00")


@pytest.mark.parametrize("chosen", ["text", "json"])
def test_addresses_are_logged_without_what_a_reader_has_written(
    logged: Callable[..., tuple[logging.Logger, io.StringIO]], chosen: str
) -> None:
    _, stream = logged(SD_LOG=chosen)
    summary = "GET /app?race.prompt=my%20secret (127.0.0.1)"
    logging.getLogger("tornado.access").info("%d %s %.2fms", 200, summary, 1.5)
    text = stream.getvalue()
    assert "secret" not in text
    assert "200 GET /app? (127.0.0.1) 1.50ms" in text


def test_another_format_is_refused(
    logged: Callable[..., tuple[logging.Logger, io.StringIO]],
) -> None:
    with pytest.raises(ValueError, match="SD_LOG='xml' must be one of text, json"):
        logged(SD_LOG="xml")
