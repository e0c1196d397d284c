"""A static host for the tests: a folder under a sub-path, as GitHub Pages serves a project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hosts import QuietFiles, files

PREFIX = "/some/where"
#: As docs/site.md gives it: whatever a page needs beyond it fails the tests.
POLICY = re.search(
    r"^Content-Security-Policy: (.+)$",
    (Path(__file__).resolve().parents[2] / "docs" / "site.md").read_text("utf-8"),
    re.MULTILINE,
)[1]  # type: ignore[index]


class _Handler(QuietFiles):
    """Only what is below the sub-path exists; 404.html is the answer for the rest of it."""

    def translate_path(self, path: str) -> str:
        if not path.startswith(f"{PREFIX}/"):
            return "/nowhere"
        return super().translate_path(path.removeprefix(PREFIX))

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a folder; yields its address without a trailing slash."""
    with files(folder, _Handler, port) as found:
        yield f"http://127.0.0.1:{found}{PREFIX}"
