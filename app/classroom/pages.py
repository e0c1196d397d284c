"""HTTP routes of a class: its socket, its words."""

from __future__ import annotations

import json
from functools import lru_cache

from bokeh.server.urls import per_app_patterns
from tornado.web import HTTPError, RequestHandler

import content
from app.classroom.socket import RoomHandler
from app.routes import TYPES, Compressed, Ready

PREFIX = "class."


def words(lang: str) -> dict[str, str]:
    """Return the words of a class without their prefix: only pages in a class ask for them."""
    strings = content.strings(lang)
    return {k.removeprefix(PREFIX): v for k, v in strings.items() if k.startswith(PREFIX)}


@lru_cache
def _words(lang: str) -> Ready:
    return Ready.of(json.dumps(words(lang), ensure_ascii=False).encode(), TYPES[".json"])


class Words(Compressed):
    """The words of a class in one language."""

    def get(self, lang: str) -> None:
        """Send them."""
        if lang not in content.LANGUAGES:
            raise HTTPError(404)
        self.send(_words(lang))


ROUTES: list[tuple[str, type[RequestHandler]]] = [
    (r"/room", RoomHandler),
    (r"/class/(\w+)\.json", Words),
]


def register() -> None:
    """Add the routes to those that every application of this server gets; twice does no harm."""
    if not any(pattern[1] is RoomHandler for pattern in per_app_patterns):
        per_app_patterns[:0] = ROUTES
