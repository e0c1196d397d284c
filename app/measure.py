"""What readers let this server measure: its roofline, and one pass against many (figure `mask`).

``POST /app/measure`` with ``{"what": "roofline"}`` or ``{"what": "mask", "sentence": "…"}`` asks
for a measurement, or how far it is: a page repeats it about once a second until the state is
"done" or "refused". ``{"what": "roofline", "again": true}`` measures anew. ``GET /app/measure``
tells of the roofline and starts nothing.

=========  =========================================================================================
``state``  with
=========  =========================================================================================
none       ``able``: whether the engine can; null before it has started (only to GET)
waiting    races come first, or others who asked
loading    engine and models: ``stage`` ``done`` ``total`` as in the race's news, or null
running    ``share``, 0 to 1
done       ``record`` (mask), ``measured`` and ``age`` in seconds (roofline)
refused    ``error``: ``code`` and ``detail``
=========  =========================================================================================

One measurement runs at a time, and none beside a race. A roofline needs some ten quiet seconds: it
starts when nobody races and stops within a visit when somebody wants to; later it begins anew.
Pages whose sentence is looked at wait for one race at most, and hold the next one up for
`LONGEST` seconds at most. Results are kept for every reader of this server.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from tornado.web import HTTPError, RequestHandler

from figures.roofline.model import summary
from kernels.errors import SdError

if TYPE_CHECKING:
    from app.hub import Hub
    from app.worker import Message

ROOFLINE, MASK = "roofline", "mask"
#: Seconds that a waiting race grants a measurement that is nearly done.
LONGEST = 3.0
#: How often a short measurement is begun before it is given up because of races.
TRIES = 3
#: Seconds after which nobody waits for an answer any more.
ASKER_GONE = 15.0
#: Seconds within which "again" gives the last roofline, and a fault is not tried anew.
AGAIN = 30.0
FAULT_KEPT = 5.0
#: Measurements that may wait, and results of sentences that are kept.
MOST_WAITING = 20
MOST_KEPT = 200
LONGEST_BODY = 16 * 1024
#: Codes of `error` that a page has words for; the others come from loading the models.
ERRORS = (
    "cannot_measure",
    "empty_sentence",
    "engine_failed",
    "sentence_too_long",
    "sentence_too_short",
    "server_busy",
    "too_many_requests",
)


@dataclass
class Job:
    """One measurement, from being asked for until its result is forgotten."""

    what: str
    options: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    asked: float = field(default_factory=time.monotonic)
    share: float | None = None  # None while the engine has not begun
    tries: int = 0
    result: Any = None
    error: dict[str, Any] | None = None
    ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has a result or a fault."""
        return self.ended is not None

    def end(self, *, result: Any = None, error: dict[str, Any] | None = None) -> None:
        """Keep the outcome."""
        self.result, self.error, self.ended = result, error, time.monotonic()


class Measurements:
    """The measurements of one server; lives in its event loop, as the hub does."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._running: Job | None = None
        self._stopping = False
        self._raced = False  # a race has run since the last short measurement
        self._recent: defaultdict[str, deque[float]] = defaultdict(deque)

    # --- the readers' side ----------------------------------------------------------------------

    def look(self) -> dict[str, Any]:
        """Tell of the roofline, without starting anything."""
        job = self._jobs.get(ROOFLINE)
        if job is None:
            return {"state": "none", "able": self._able(ROOFLINE)}
        return self._state(job)

    def ask(self, request: dict[str, Any], address: str) -> dict[str, Any]:
        """Ask for a measurement, or how far it is.

        Raises:
            SdError: `empty_sentence`, `sentence_too_long` (in characters), `cannot_measure`,
                `too_many_requests` of this address, `server_busy`.
            ValueError: it is not a request.
        """
        what, options, key = self._checked(request)
        job = self._jobs.get(key)
        if job is not None and job.ended is not None:
            age = time.monotonic() - job.ended
            # A disturbed roofline may be repeated at once.
            kept = FAULT_KEPT if job.error or (job.result or {}).get("contaminated") else AGAIN
            if (job.error or request.get("again") is True) and age > kept:
                job = None
        if job is None:
            job = self._new(what, options, key, address)
        job.asked = max(job.asked, time.monotonic())
        return self._state(job)

    def measure_when_idle(self) -> None:
        """Measure the roofline as soon as nobody races, though nobody has asked."""
        job = self._jobs.setdefault(ROOFLINE, Job(ROOFLINE, {}))
        job.asked = float("inf")
        self._hub.start()
        self._hub.proceed()

    def _checked(self, request: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        if request.get("what") == ROOFLINE:
            return ROOFLINE, {}, ROOFLINE
        sentence = request.get("sentence")
        if request.get("what") != MASK or not isinstance(sentence, str):
            raise ValueError("not a request")
        sentence = " ".join(sentence.split())
        if not sentence:
            raise SdError("empty_sentence", "The sentence is empty: write two words at least.")
        if len(sentence) > self._hub.limits.sentence:
            raise SdError(
                "sentence_too_long",
                f"The sentence has {len(sentence)} characters, this server takes "
                f"{self._hub.limits.sentence}: give a shorter one.",
                characters=len(sentence),
                limit=self._hub.limits.sentence,
            )
        return MASK, {"sentence": sentence}, f"{MASK} {sentence}"

    def _new(self, what: str, options: dict[str, Any], key: str, address: str) -> Job:
        if self._able(what) is False:
            raise SdError("cannot_measure", "This server's engine cannot measure.")
        self._drop_deserted()
        if self._hub.leaving:
            raise SdError("server_busy", "The server is on its way out; try again later.")
        if sum(not job.over for job in self._jobs.values()) >= MOST_WAITING:
            raise SdError("server_busy", "Too many measurements wait; try again later.")
        self._count(address)
        job = self._jobs[key] = Job(what, options)
        self._jobs.move_to_end(key)
        for old in [k for k, j in self._jobs.items() if j.over and k != ROOFLINE][:-MOST_KEPT]:
            del self._jobs[old]
        self._hub.start()
        self._hub.proceed()
        return job

    def _count(self, address: str) -> None:
        """Count a new measurement of this address; so many a minute are allowed."""
        now = time.monotonic()
        for known in [a for a, times in self._recent.items() if times[-1] < now - 60]:
            del self._recent[known]
        times = self._recent[address]
        while times and times[0] < now - 60:
            times.popleft()
        if len(times) >= self._hub.limits.measures:
            raise SdError(
                "too_many_requests",
                "So many measurements in a minute are too many; wait a little.",
                limit=self._hub.limits.measures,
                seconds=max(1, round(60 - (now - times[0]))),
            )
        times.append(now)

    def _pair(self) -> str | None:
        """The pair to measure with: the loaded one, else the default."""
        pairs = self._hub.pairs
        return self._hub.ready or (pairs[0]["name"] if pairs else None)

    def _able(self, what: str) -> bool | None:
        """Whether the engine can measure this; None before it has said what it offers."""
        pair = next((p for p in self._hub.pairs if p["name"] == self._pair()), None)
        return None if pair is None else what in pair.get("measures", ())

    def _state(self, job: Job) -> dict[str, Any]:
        if job.error is not None:
            return {"state": "refused", "error": job.error}
        if job.ended is not None:
            if job.what == MASK:
                return {"state": "done", "record": job.result}
            age = time.monotonic() - job.ended
            return {"state": "done", "measured": job.result, "age": round(age)}
        if job.share is not None:
            return {"state": "running", "share": round(job.share, 3)}
        if self._hub.running is None and self._hub.ready is None:
            news = self._hub.news or {}
            return {"state": "loading"} | {k: news.get(k) for k in ("stage", "done", "total")}
        return {"state": "waiting"}

    # --- the hub's side -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the engine is measuring."""
        return self._running is not None

    def race_begins(self) -> None:
        """The device goes to a race; the next short measurement may come after it."""
        self._raced = True

    def begin(self, *, racers: bool) -> bool:
        """Begin the next measurement that may run now; `racers`: somebody waits to race."""
        self._drop_deserted()
        for job in [j for j in self._jobs.values() if not j.over]:
            if self._able(job.what) is False:
                job.end(error=_error("cannot_measure"))
            elif racers and (job.what == ROOFLINE or not self._raced):
                continue
            else:
                self._begin(job)
                if racers:
                    self.make_way()
                return True
        return False

    def make_way(self) -> None:
        """Somebody wants to race: stop at once what takes long, in a moment what is short."""
        job = self._running
        if job is None or self._stopping:
            return
        self._stopping = True
        if job.what == ROOFLINE:
            self._stop(job)
        else:
            asyncio.get_running_loop().call_later(LONGEST, self._stop, job)

    def take(self, message: Message) -> None:
        """The engine reports on the measurement that it is at."""
        job = self._running
        if job is None or message["run"] != job.id:
            return
        if message["type"] == "progress":
            job.share = message["share"]
            return
        self._running = None
        error = message.get("error")
        if error is None:
            record = message["record"]
            job.end(result=summary(record) if job.what == ROOFLINE else record)
        elif error["code"] != "cancelled":
            job.end(error=error)
        elif job.what != ROOFLINE and job.tries >= TRIES:
            job.end(error=_error("server_busy"))
        else:
            job.share = None  # it waits again
        self._hub.proceed()

    def engine_lost(self) -> None:
        """The engine has died: whoever waits is told, and may ask anew."""
        self._running = None
        for job in self._jobs.values():
            if not job.over:
                job.end(error=_error("engine_failed", reason="exit"))

    def _begin(self, job: Job) -> None:
        assert self._hub.worker is not None
        self._running, self._stopping, self._raced = job, False, False
        job.tries += 1
        job.share = 0.0 if self._hub.ready else None
        self._hub.worker.send(
            do="measure", run=job.id, pair=self._pair(), what=job.what, options=job.options
        )

    def _stop(self, job: Job) -> None:
        if self._running is job and self._hub.worker is not None:
            self._hub.worker.send(do="cancel", run=job.id)

    def _drop_deserted(self) -> None:
        """Forget what nobody has asked about for a while and has not begun."""
        late = time.monotonic() - ASKER_GONE
        for key, job in list(self._jobs.items()):
            if not job.over and job is not self._running and job.asked < late:
                del self._jobs[key]


def _error(code: str, **detail: Any) -> dict[str, Any]:
    return {"code": code, "detail": detail}


class MeasureHandler(RequestHandler):
    """``/app/measure``; see the module."""

    def initialize(self, **_: Any) -> None:
        """Take no options (Bokeh gives every handler some)."""

    def check_xsrf_cookie(self) -> None:
        """Another site's page cannot send this type of content, and `post` takes no other."""

    def get(self) -> None:
        """Tell of the roofline."""
        from app import live

        self._answer(live.hub().measurements.look())

    def post(self) -> None:
        """Ask for a measurement, or how far it is."""
        from app import live

        if self.request.headers.get("Content-Type", "").split(";")[0] != "application/json":
            raise HTTPError(415)
        origin = self.request.headers.get("Origin")
        if origin is not None and urlparse(origin).netloc != self.request.headers.get("Host"):
            raise HTTPError(403)
        if len(self.request.body) > LONGEST_BODY:
            raise HTTPError(413)
        try:
            request = json.loads(self.request.body)
            if not isinstance(request, dict):
                raise ValueError("not an object")
            address = self.request.remote_ip or ""
            self._answer(live.hub().measurements.ask(request, address))
        except SdError as error:
            event = error.as_event()
            self._answer({"state": "refused", "error": _error(event["code"], **event["detail"])})
        except (ValueError, RecursionError):
            raise HTTPError(400) from None

    def _answer(self, state: dict[str, Any]) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(state)
