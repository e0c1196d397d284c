"""The live race over a raw WebSocket: ``/app/live``.

A page sends JSON objects: ``{"do": "run", "pair": "embedded", "settings": {…}}``, ``{"do":
"cancel"}``, ``{"do": "resume", "race": id, "have": 12}``, ``{"do": "follow", "race": id}``. It
gets ``hello`` (what may be chosen), ``loading`` / ``ready`` / ``failed`` (the models), ``asked``
(its race's id), ``queue`` (its place), ``events`` (the events of docs/trace.md, several in a
frame) and ``refused`` (an error with code and detail that is not part of a race).
docs/architecture.md describes them.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.parse import urlparse

from bokeh.server.util import check_allowlist
from bokeh.settings import settings as bokeh_settings
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from app.hub import Hub, Reader
from app.limits import limits
from app.worker import Worker
from kernels.errors import SdError

#: Bytes of the longest message from a page; a prompt of the longest kind fits.
LONGEST_MESSAGE = 256 * 1024
PING_SECONDS = 20.0
#: Close codes of RFC 6455 that mean "the reader has left", as against a broken connection.
LEFT = (1000, 1001)
REFUSED = 1008
REQUESTS = ("run", "cancel", "resume", "follow")

_hub: Hub | None = None


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
    if os.environ.get("SD_WARM", "0") not in ("", "0"):
        IOLoop.current().add_callback(lambda: hub().measurements.measure_when_idle())


def stop() -> None:
    """Stop the engine."""
    if _hub is not None:
        _hub.stop()


def state() -> dict[str, Any]:
    """Return what the race is waiting for, for ``/health``."""
    return {} if _hub is None else _hub.state()


def refusal(error: SdError) -> dict[str, Any]:
    """Return the message that tells a page why its request was not taken."""
    return error.as_event() | {"type": "refused"}


class LiveHandler(WebSocketHandler):
    """One page's connection."""

    reader: Reader | None = None
    pumping: asyncio.Task[None] | None = None

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
        reader = Reader(self._write)
        try:
            hub().join(reader)
        except SdError as error:
            self.write_message(json.dumps(refusal(error)))
            self.close(REFUSED, error.code)
            return
        self.reader = reader
        self.pumping = asyncio.create_task(reader.pump())

    async def _write(self, text: str) -> None:
        try:
            await self.write_message(text)
        except WebSocketClosedError:
            return

    def on_message(self, message: str | bytes) -> None:
        """Do what the page asks; refuse what is not one of the three requests."""
        if self.reader is None:
            return
        try:
            request = json.loads(message)
            if not isinstance(request, dict) or request.get("do") not in REQUESTS:
                raise ValueError("not a request")
        except (ValueError, RecursionError):
            # Our page never sends such a thing.
            self.close(REFUSED, "malformed message")
            return
        try:
            self._do(self.reader, request)
        except SdError as error:
            self.reader.tell(**refusal(error))

    @staticmethod
    def _do(reader: Reader, request: dict[str, Any]) -> None:
        match request["do"]:
            case "run":
                hub().ask(reader, str(request.get("pair"))[:200], request.get("settings") or {})
            case "cancel":
                if reader.race is not None:
                    hub().cancel(reader.race)
            case "follow":
                hub().follow(reader, str(request.get("race"))[:64])
            case "resume":
                have = request.get("have")
                start = have if type(have) is int and have >= 0 else 0
                hub().resume(reader, str(request.get("race"))[:64], start)

    def on_close(self) -> None:
        """Leave the hub."""
        if self.pumping is not None:
            self.pumping.cancel()
        if self.reader is not None:
            hub().leave(self.reader, broken=self.close_code not in LEFT)
            self.reader = None
