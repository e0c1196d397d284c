"""HTTP routes of a class: its socket, its words, its work sheet."""

from __future__ import annotations

from functools import lru_cache

from tornado.web import HTTPError, RequestHandler

import content
from app import policy
from app.classroom import worksheet
from app.classroom.socket import RoomHandler
from app.routes import HTML, PAGES, Compressed, Pages, Ready, base_of, json_of, put_first
from figures.race.figure import Race

PREFIX = "class."


def words(lang: str) -> dict[str, str]:
    """Return the words of a class without their prefix: only pages in a class ask for them."""
    strings = content.strings(lang)
    return {k.removeprefix(PREFIX): v for k, v in strings.items() if k.startswith(PREFIX)}


class Words(Compressed):
    """The words of a class in one language."""

    def get(self, lang: str) -> None:
        """Send them."""
        if lang not in content.LANGUAGES:
            raise HTTPError(404)
        self.send(json_of(words, lang))


@lru_cache(maxsize=PAGES)
def _sheet(lang: str, recording: str, answers: bool, base: str) -> Ready:
    html = worksheet.sheet(lang, recording, answers=answers, base=base)
    return Ready.of(html.encode(), HTML, policy.of_page(html, framed_by="'self'"))


class Sheet(Pages):
    """The work sheet: its script puts the figures into the state that the address names."""

    def get(self) -> None:
        """Send it, with answers if the address says so (`answers=1`)."""
        request = self.asked(base_of(self, "/worksheet"))
        recording = self.get_query_argument("race.recording", "")
        known = recording if recording in Race.param.recording.objects else ""
        answers = self.get_query_argument("answers", "") == "1"
        self.send(_sheet(request.lang, known, answers, request.base))


ROUTES: list[tuple[str, type[RequestHandler]]] = [
    (r"/room", RoomHandler),
    (r"/class/(\w+)\.json", Words),
    (r"/worksheet", Sheet),
]


def register() -> None:
    """Add our routes."""
    put_first(ROUTES)
