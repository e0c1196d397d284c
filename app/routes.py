"""HTTP routes beside the page: modules and data of the figures, the other language, health.

Bokeh keeps the routes of an application in a module-level list that it reads when the server is
made; Panel changes that list the same way. `register` adds ours, so that `panel serve app` needs no
flag.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from typing import Any

import bokeh
from bokeh.server.urls import per_app_patterns
from tornado.web import HTTPError, RequestHandler

import content
import figures
from app import page
from app.live import LiveHandler
from app.measure import MeasureHandler
from app.places import Served

FIGURES = Path(figures.__file__).parent
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
}


class Compressed(RequestHandler):
    """A handler that sends cached bytes, compressed where the reader's browser can."""

    # Bokeh and Panel give their per-application context to every handler.
    def initialize(self, **_: Any) -> None:
        """Take no options."""

    def send(self, body: bytes, small: bytes, mime: str) -> None:
        """Answer with `body`, or with `small` (its gzip) when that is accepted."""
        self.set_header("Content-Type", mime)
        self.set_header("Vary", "Accept-Encoding")
        self.set_header("X-Content-Type-Options", "nosniff")
        # Revalidate always: Tornado answers 304 by ETag, and an updated server is seen at once.
        self.set_header("Cache-Control", "no-cache")
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            body = small
        self.finish(body)


@cache
def _file(path: Path, changed_ns: int) -> tuple[bytes, bytes]:
    """Read a file once per version of it."""
    body = path.read_bytes()
    return body, gzip.compress(body, 6)


class FigureFiles(Compressed):
    """Modules, styles and recorded data of the figures: these kinds of file and no others."""

    def get(self, name: str) -> None:
        """Send one file below `figures/`."""
        path = (FIGURES / name).resolve()
        if path.suffix not in TYPES or not path.is_relative_to(FIGURES) or not path.is_file():
            raise HTTPError(404)
        body, small = _file(path, path.stat().st_mtime_ns)
        self.send(body, small, TYPES[path.suffix])


class FigurePage(RequestHandler):
    """One figure alone, for an iframe on somebody's page."""

    def initialize(self, **_: Any) -> None:
        """Take no options."""

    def get(self, figure_id: str) -> None:
        """Send the page of one figure in the state that the address names."""
        request = page.Request.of(
            arguments=self.request.arguments,
            headers=self.request.headers,
            path=base_of(self, "/figure/"),
        )
        try:
            html = page.figure_page(figure_id, request.lang, request.theme, Served(request.base))
        except KeyError:
            raise HTTPError(404) from None
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(html)


class Library(Compressed):
    """BokehJS, which Bokeh itself would send uncompressed (1.3 MB instead of 0.35)."""

    def get(self) -> None:
        """Send the library that belongs to the installed Bokeh."""
        path = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
        self.send(*_file(path, path.stat().st_mtime_ns), TYPES[".js"])


@cache
def _json(make: Callable[..., Any], *arguments: Hashable) -> tuple[bytes, bytes]:
    """Serialise something that is made once per arguments."""
    body = json.dumps(make(*arguments), ensure_ascii=False, separators=(",", ":")).encode()
    return body, gzip.compress(body, 6)


def base_of(handler: RequestHandler, marker: str) -> str:
    """Return the address of the app from the address of one of its routes."""
    return handler.request.path.rsplit(marker, 1)[0]


class Bundle(Compressed):
    """Everything that changes with the language."""

    def get(self, lang: str) -> None:
        """Send the article and the words of one language."""
        if lang not in content.LANGUAGES:
            raise HTTPError(404)
        place = Served(base_of(self, "/content/"))
        self.send(*_json(page.bundle, lang, place), TYPES[".json"])


def _chart(figure_id: str, lang: str) -> Any:
    """Make a figure's chart."""
    return figures.get(figure_id).chart(lang)


class Chart(Compressed):
    """A figure's Bokeh chart as a `json_item`, made once per language."""

    def get(self, figure_id: str, lang: str) -> None:
        """Send one chart."""
        if figure_id not in figures.IDS or lang not in content.LANGUAGES:
            raise HTTPError(404)
        body, small = _json(_chart, figure_id, lang)
        if body == b"null":
            raise HTTPError(404)
        self.send(body, small, TYPES[".json"])


class Health(RequestHandler):
    """For load balancers: the page can be served; what the race waits for is told beside it."""

    def initialize(self, **_: Any) -> None:
        """Take no options."""

    def get(self) -> None:
        """Answer with the state of the server."""
        from app import live

        self.set_header("Cache-Control", "no-store")
        self.finish({"status": "ok", "race": live.state()})


ROUTES: list[tuple[str, type[RequestHandler]]] = [
    (r"/figures/([\w./-]+)", FigureFiles),
    (r"/content/(\w+)\.json", Bundle),
    (r"/chart/(\w+)\.(\w+)\.json", Chart),
    (r"/lib/bokeh\.min\.js", Library),
    (r"/figure/(\w+)", FigurePage),
    (r"/health", Health),
    (r"/live", LiveHandler),
    (r"/measure", MeasureHandler),
]


def register() -> None:
    """Add our routes to those that every application of this server gets; twice does no harm."""
    known = {pattern[0] for pattern in per_app_patterns}
    per_app_patterns[:0] = [route for route in ROUTES if route[0] not in known]
