"""HTTP routes: the article, modules and data of the figures, the other language, health.

Bokeh keeps the routes of an application in a module-level list that it reads when the server is
made; Panel changes that list the same way. `register` adds ours in front, so that `panel serve app`
needs no flag. The article is one of them: its bytes are made once for each language and theme and
sent to everybody, where Bokeh would make a document, a session and the HTML anew for each reader
(BENCHMARKS.md, "Two hundred readers"). No page of ours opens a Bokeh session, so the routes for
those answer 404.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import bokeh
import bokeh.server.tornado
from bokeh.server.urls import per_app_patterns, toplevel_patterns
from panel.io.server import RootHandler
from tornado.httpserver import HTTPServer
from tornado.web import HTTPError, RequestHandler

import content
import figures
from app import live, metrics, page, policy
from app.classroom import socket as classroom
from app.live import LiveHandler
from app.measure import MeasureHandler
from app.places import Served
from app.races import as_text
from figures.export.bundle import names as modules_of
from figures.export.standalone import BOKEH

FIGURES = Path(figures.__file__).parent
STATIC = Path(__file__).parent / "static"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
}
HTML = "text/html; charset=utf-8"
#: Languages, themes and figures, at one address of the app, are fewer; an address is the reader's
#: to choose, so what is kept for it is bounded.
PAGES = 256
#: Seconds that a connection may be silent, its headers or body half sent.
SILENT = 30
#: Bytes of the longest request body: no route of ours takes one.
BODY = 64 * 1024
#: Bytes of the longest request line and headers together.
HEADERS = 32 * 1024


@dataclass(frozen=True)
class Ready:
    """An answer as bytes: plain, compressed, its kind, its ETag and more headers."""

    body: bytes
    small: bytes
    mime: str
    etag: str
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, body: bytes, mime: str, headers: tuple[tuple[str, str], ...] = ()) -> Ready:
        """Compress once; the ETag is of the bytes before that."""
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(body, gzip.compress(body, 9), mime, etag, headers)


class Ours(RequestHandler):
    """What all our routes share: counted, and with the headers that keep a browser strict."""

    # Bokeh and Panel give their per-application context to every handler.
    def initialize(self, **_: Any) -> None:
        """Take no options."""

    def set_default_headers(self) -> None:
        """Set the headers of every answer, errors too."""
        for name, value in policy.HEADERS:
            self.set_header(name, value)
        self.clear_header("Server")

    def head(self, *arguments: str) -> None:
        """Answer as GET does; Tornado leaves the body out."""
        self.get(*arguments)

    def on_finish(self) -> None:
        """Count the answer."""
        metrics.REQUESTS.labels(type(self).__name__, str(self.get_status())).inc()


class Compressed(Ours):
    """A handler that sends cached bytes, compressed where the reader's browser can."""

    #: What an answer depends on besides its address, for caches in between.
    varies = "Accept-Encoding"
    ready: Ready | None = None

    def send(self, ready: Ready) -> None:
        """Answer with the bytes, or with their gzip when that is accepted."""
        self.ready = ready
        self.set_header("Content-Type", ready.mime)
        self.set_header("Vary", self.varies)
        # Revalidate always: Tornado answers 304 by ETag, and an updated server is seen at once.
        self.set_header("Cache-Control", "no-cache")
        for name, value in ready.headers:
            self.set_header(name, value)
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.finish(ready.small)
        else:
            self.finish(ready.body)

    def compute_etag(self) -> str | None:
        """Return the one that was made with the bytes."""
        if self.ready is None:
            return None
        packed = "Content-Encoding" in self._headers
        return f'{self.ready.etag[:-1]}-gzip"' if packed else self.ready.etag


@lru_cache(maxsize=1024)
def _file(path: Path, changed_ns: int) -> Ready:
    """Read a file once per version of it."""
    return Ready.of(path.read_bytes(), TYPES[path.suffix])


class Files(Compressed):
    """Modules, styles and recorded data below one folder: these kinds of file and no others."""

    root: Path

    def get(self, name: str) -> None:
        """Send one file below the folder."""
        path = (self.root / name).resolve()
        if path.suffix not in TYPES or not path.is_relative_to(self.root) or not path.is_file():
            raise HTTPError(404)
        self.send(_file(path, path.stat().st_mtime_ns))


class FigureFiles(Files):
    """What is in `figures/`."""

    root = FIGURES


class StaticFiles(Files):
    """What is in `app/static/`, which Bokeh would send uncompressed."""

    root = STATIC


@lru_cache(maxsize=PAGES)
def _preloads(place: Served) -> str:
    """Name every module of the page, so that a browser need not read one to learn of the next.

    Otherwise it asks for them in six waves, each a round trip long.
    """
    entries = [STATIC / "article.js", *(each.folder() / "view.js" for each in figures.every())]
    names = dict.fromkeys(name for entry in entries for name in modules_of(entry))
    return "".join(f'<link rel="modulepreload" href="{place.file(name)}">\n' for name in names)


@lru_cache(maxsize=PAGES)
def _article(lang: str, theme: str, base: str) -> Ready:
    place = Served(base)
    html = page.article_page(lang, theme, place).replace("</head>", f"{_preloads(place)}</head>", 1)
    # Only our own pages may put the article into a frame.
    return Ready.of(html.encode(), HTML, policy.of_page(html, framed_by="'self'"))


@lru_cache(maxsize=PAGES)
def _figure(figure_id: str, lang: str, theme: str, base: str) -> Ready:
    html = page.figure_page(figure_id, lang, theme, Served(base))
    charted = (FIGURES / figure_id / "chart.py").exists()
    headers = policy.of_page(html, framed_by="*", inline_styles=charted)
    return Ready.of(html.encode(), HTML, headers)


class Pages(Compressed):
    """Pages whose bytes depend on language and theme alone.

    The state of the figures stands in the address too; the page's script reads it in the browser.
    """

    varies = "Accept-Encoding, Accept-Language"

    def asked(self, path: str) -> page.Request:
        """Return what the reader asked for; `path` is the app's own address."""
        return page.Request.of(
            arguments=self.request.arguments, headers=self.request.headers, path=path
        )


class ArticlePage(Pages):
    """The article."""

    def get(self) -> None:
        """Send the page in the language and theme that the reader wants."""
        request = self.asked(self.request.path)
        self.send(_article(request.lang, request.theme, request.base))


class FigurePage(Pages):
    """One figure alone, for an iframe on somebody's page."""

    def get(self, figure_id: str) -> None:
        """Send the page of one figure in the state that the address names."""
        request = self.asked(base_of(self, "/figure/"))
        if figure_id not in figures.IDS:
            raise HTTPError(404)
        self.send(_figure(figure_id, request.lang, request.theme, request.base))


@lru_cache(maxsize=PAGES)
def _styleguide(lang: str, theme: str, base: str) -> Ready:
    html = page.styleguide_page(lang, theme, Served(base))
    return Ready.of(html.encode(), HTML, policy.of_page(html, framed_by="'self'"))


class StyleguidePage(Pages):
    """The design system at work."""

    def get(self) -> None:
        """Send it in the language and theme that the reader wants."""
        request = self.asked(base_of(self, "/styleguide"))
        self.send(_styleguide(request.lang, request.theme, request.base))


class Library(Compressed):
    """BokehJS, which Bokeh itself would send uncompressed (1.3 MB instead of 0.35)."""

    def get(self) -> None:
        """Send the library that belongs to the installed Bokeh."""
        self.send(_file(BOKEH, BOKEH.stat().st_mtime_ns))


@lru_cache(maxsize=PAGES)
def json_of(make: Callable[..., Any], *arguments: Hashable) -> Ready:
    """Serialise something that is made once per arguments."""
    return Ready.of(as_text(make(*arguments)).encode(), TYPES[".json"])


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
        self.send(json_of(page.bundle, lang, place))


def _chart(figure_id: str, lang: str) -> Any:
    """Make a figure's chart."""
    return figures.get(figure_id).chart(lang)


class Chart(Compressed):
    """A figure's Bokeh chart as a `json_item`, made once per language."""

    def get(self, figure_id: str, lang: str) -> None:
        """Send one chart."""
        if figure_id not in figures.IDS or lang not in content.LANGUAGES:
            raise HTTPError(404)
        ready = json_of(_chart, figure_id, lang)
        if ready.body == b"null":
            raise HTTPError(404)
        self.send(ready)


class Health(Ours):
    """For load balancers: the page can be served; what the race waits for is told beside it."""

    def get(self) -> None:
        """Answer with the state of the server; 503 while it is on its way out."""
        self.set_header("Cache-Control", "no-store")
        race = live.state()
        leaving = bool(race.get("leaving"))
        self.set_status(503 if leaving else 200)
        status = "leaving" if leaving else "ok"
        self.finish({"status": status, "race": race, "class": classroom.state()})


class Measure(MeasureHandler, Ours):
    """What readers let this server measure."""


class Metrics(Ours):
    """For Prometheus: text, numbers only, nothing about any reader."""

    def get(self) -> None:
        """Answer with every number as it is now."""
        self.set_header("Content-Type", metrics.CONTENT_TYPE)
        self.set_header("Cache-Control", "no-store")
        self.finish(metrics.text(live.state()))


class NoSession(Ours):
    """Bokeh's own routes to a session: there is none, and nobody may make the server open one."""

    def get(self, *_: str) -> None:
        """Answer 404."""
        raise HTTPError(404)


class Home(RootHandler):
    """The server's root sends its reader on to the article; we keep what the address asks for."""

    async def get(self, *arguments: Any, **options: Any) -> None:
        """Redirect with the query; everything else is Panel's to answer."""
        names = list(self.applications)
        if self.request.query and self.use_redirect and len(names) == 1:
            self.redirect(f"{self.prefix or ''}{names[0]}?{self.request.query}")
        else:
            await super().get(*arguments, **options)


ROUTES: list[tuple[str, type[RequestHandler]]] = [
    (r"/?", ArticlePage),
    (r"/figures/([\w./-]+)", FigureFiles),
    (r"/static/([\w./-]+)", StaticFiles),
    (r"/content/(\w+)\.json", Bundle),
    (r"/chart/(\w+)\.(\w+)\.json", Chart),
    (r"/lib/bokeh\.min\.js", Library),
    (r"/figure/(\w+)", FigurePage),
    (r"/styleguide", StyleguidePage),
    (r"/health", Health),
    (r"/metrics", Metrics),
    (r"/live", LiveHandler),
    (r"/measure", Measure),
    (r"/ws", NoSession),
    (r"/metadata", NoSession),
    (r"/autoload\.js", NoSession),
]


def put_first(routes: list[tuple[str, type[RequestHandler]]]) -> None:
    """Put routes before those that every application of this server gets; twice does no harm."""
    ours = [handler for _, handler in routes]
    if not any(pattern[1] in ours for pattern in per_app_patterns):
        per_app_patterns[:0] = routes


def register() -> None:
    """Add our routes.

    Also bounds what a connection may cost before any route is reached: Tornado's own patience for
    headers that never end is an hour, and its longest body 100 MB.
    """
    put_first(ROUTES)
    # As Panel put its own there.
    toplevel_patterns[0] = (r"/?", Home)
    bokeh.server.tornado.RootHandler = Home
    HTTPServer.configure(
        None,
        idle_connection_timeout=SILENT,
        body_timeout=SILENT,
        max_body_size=BODY,
        max_header_size=HEADERS,
    )
