"""Small HTTP servers for the tests, one way to start and stop them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Quiet(BaseHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, *_: object) -> None:
        pass


class QuietFiles(Quiet, SimpleHTTPRequestHandler):
    """Sends files of a folder."""


@contextmanager
def listening(handler: Callable[..., Any], port: int = 0) -> Iterator[int]:
    """Answer requests to this machine with a handler; yields the port, a free one if it is 0."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def files(folder: Path, kind: type[QuietFiles] = QuietFiles, port: int = 0) -> Iterator[int]:
    """Serve a folder that need not exist yet; yields the port."""
    with listening(partial(kind, directory=str(folder)), port) as found:
        yield found
