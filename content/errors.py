"""The one error this package raises."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent


class ContentError(Exception):
    """A mistake in a content file, said with the file and, where known, the line.

    Prose is loaded strictly: an unknown number, citation, term or figure is a mistake that a reader
    would otherwise meet as a dead link, so it stops the page (and the tests) instead.
    """

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        place = path.relative_to(ROOT.parent) if path.is_relative_to(ROOT.parent) else path
        super().__init__(f"{place}:{line}: {message}" if line else f"{place}: {message}")
        self.path = path
        self.line = line
