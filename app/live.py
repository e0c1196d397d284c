"""The live race over a raw WebSocket: ``/app/live``.

A page sends JSON objects: ``{"do": "run", "pair": "embedded", "settings": {…}}``, ``{"do":
"cancel"}``, ``{"do": "resume", "race": id, "have": 12}``, ``{"do": "follow", "race": id}``. It
gets ``hello`` (what may be chosen), ``loading`` / ``ready`` / ``failed`` (the models), ``asked``
(its race's id), ``queue`` (its place), ``events`` (the events of docs/trace.md, several in a
frame), ``refused`` (an error with code and detail that is not part of a race) and ``stopping`` (the
server is being restarted). docs/architecture.md describes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Awaitable
from typing import Any, NoReturn
from urllib.parse import urlparse

from bokeh.server.util import check_allowlist
from bokeh.settings import settings as bokeh_settings
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from app import metrics, sources
from app.hub import Hub
from app.limits import limits
from app.readers import Reader
from app.worker import Worker
from kernels.errors import SdError

#: Bytes of the longest message from a page; a prompt of the longest kind fits.
LONGEST_MESSAGE = 256 * 1024
PING_SECONDS = 20.0
#: Close codes of RFC 6455 that mean "the reader has left", as against a broken connection.
LEFT = (1000, 1001)
REFUSED = 1008
RESTARTING = 1012
#: So many seconds' worth of messages a page may send at once.
BURST = 5
#: Seconds that the last frames get to leave before the connections are closed.
LAST_WORDS = 0.3
REQUESTS = ("run", "cancel", "resume", "follow")

_hub: Hub | None = None
_finishing: asyncio.Future[None] | None = None  # held, or it might be collected


def hub() -> Hub:
    """Return the hub of this server, made on first use (in the event loop)."""
    global _hub
    if _hub is None:
        call = IOLoop.current().add_callback
        _hub = Hub(
            limits(),
            lambda on_message, on_exit: Worker(call, on_message=on_message, on_exit=on_exit),
        )
    return _hub


def start() -> None:
    """Check the owner's settings; start the engine only if told to (``SD_WARM=1``).

    Otherwise the first page that comes near the race does: a server nobody reads costs nothing.

    Raises:
        ValueError: a setting is wrong.
    """
    limits()
    sources.check()
    IOLoop.current().add_callback(_listen_for_sigterm)
    if os.environ.get("SD_WARM", "0") not in ("", "0"):
        IOLoop.current().add_callback(lambda: hub().measurements.measure_when_idle())


def _on_sigterm() -> None:
    """Told to end: say so, let races under way go on for a while, then stop the server.

    Bokeh would stop at once. A second signal does.
    """
    loop = IOLoop.current()
    if _hub is None or _hub.leaving:
        loop.stop()
        return
    _hub.wind_up()

    async def finish(hub: Hub) -> None:
        until = time.monotonic() + hub.limits.drain
        while hub.active and time.monotonic() < until:
            await asyncio.sleep(0.05)
        hub.give_up()
        await asyncio.sleep(LAST_WORDS)
        for reader in list(hub.readers):
            reader.close(RESTARTING, "the server is being restarted")
        await asyncio.sleep(0)
        loop.stop()

    global _finishing
    _finishing = asyncio.ensure_future(finish(_hub))


def _listen_for_sigterm() -> None:
    """Take the signal over from Bokeh, which has just begun to listen for it."""
    # Not every system has such signals, and only the main thread may listen for them.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _on_sigterm)


def stop() -> None:
    """Stop the engine."""
    if _hub is not None:
        _hub.stop()


def state() -> dict[str, Any]:
    """Return what the race is waiting for, for ``/health``."""
    return {} if _hub is None else _hub.state()


def refusal(error: SdError) -> dict[str, Any]:
    """Return the message that tells a page why its request was not taken."""
    metrics.REFUSED.labels(error.code).inc()
    return error.as_event() | {"type": "refused"}


class Unwanted(Exception):
    """Ends a connection at once: whatever else it has sent is not even read."""


class LiveHandler(WebSocketHandler):
    """One page's connection."""

    reader: Reader | None = None
    _rate = _burst = 0.0  # messages a second that it may send in the long run, and at once
    _allowance = 0.0  # messages that it may still send now
    _counted = 0.0  # when that was worked out

    def initialize(self, **_: Any) -> None:
        """Take no options (Bokeh gives every handler some)."""

    @property
    def max_message_size(self) -> int:
        """Longer messages close the connection."""
        return LONGEST_MESSAGE

    @property
    def ping_interval(self) -> float:
        """Notice a peer that vanished, and keep proxies from closing a quiet line."""
        return PING_SECONDS

    def check_origin(self, origin: str) -> bool:
        """Accept pages of this very host, and those that the owner let in for Bokeh as well."""
        host = urlparse(origin).netloc.lower()
        if host and host == self.request.headers.get("Host", "").lower():
            return True
        server: Any = self.application
        allowed = bokeh_settings.allowed_ws_origin() or server.websocket_origins
        return bool(host) and bool(check_allowlist(host, list(allowed)))

    def open(self, *_: str, **__: str) -> None:
        """Join the hub; say so where there is no room."""
        reader = Reader(self._write, self.close)
        try:
            hub().join(reader)
        except SdError as error:
            self.write_message(json.dumps(refusal(error)))
            self.close(REFUSED, error.code)
            return
        self.reader = reader
        rate = hub().limits.rate
        self._may_send(rate, BURST * rate)

    def _write(self, text: str) -> Awaitable[None]:
        """Send a frame; what this returns is done when it has left."""
        try:
            return self.write_message(text)
        except WebSocketClosedError:
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            gone.set_result(None)
            return gone

    def on_message(self, message: str | bytes) -> None:
        """Do what the page asks; refuse what is not one of the three requests."""
        if self.reader is None:
            return
        self._count()
        try:
            request = json.loads(message)
            if not isinstance(request, dict) or request.get("do") not in REQUESTS:
                raise ValueError("not a request")
        except (ValueError, RecursionError):
            # Our page never sends such a thing.
            self._refuse("malformed message")
        try:
            self._do(self.reader, request)
        except SdError as error:
            self.reader.tell(**refusal(error))

    def _may_send(self, rate: float, burst: float) -> None:
        """Let the page send so many messages a second from now on, and at once."""
        self._rate, self._burst = rate, burst
        self._allowance, self._counted = burst, time.monotonic()

    def _count(self) -> None:
        """Take note of a message; a page that sends more than it may is cut off."""
        now = time.monotonic()
        self._allowance += (now - self._counted) * self._rate
        self._allowance, self._counted = min(self._allowance, self._burst) - 1, now
        if self._allowance < 0:
            self._refuse("too many messages")

    def _refuse(self, reason: str) -> NoReturn:
        """Say why, and hang up: a polite close would go on reading what else comes."""
        metrics.DROPPED.labels(reason).inc()
        self.close(REFUSED, reason)
        raise Unwanted(reason)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Keep what a hostile page provokes out of the log; it is counted."""
        if not isinstance(value, Unwanted):
            super().log_exception(typ, value, tb)

    @staticmethod
    def _do(reader: Reader, request: dict[str, Any]) -> None:
        match request["do"]:
            case "run":
                hub().ask(reader, str(request.get("pair"))[:200], request.get("settings") or {})
            case "cancel":
                hub().quit(reader)
            case "follow":
                hub().follow(reader, str(request.get("race"))[:64])
            case "resume":
                have = request.get("have")
                start = have if type(have) is int and have >= 0 else 0
                hub().follow(reader, str(request.get("race"))[:64], start)

    def on_close(self) -> None:
        """Leave the hub."""
        if self.reader is not None:
            hub().leave(self.reader, broken=self.close_code not in LEFT)
            self.reader = None
