"""One simulated reader: a browser's requests over its own connections, and a real WebSocket."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

#: A browser opens so many connections to a host.
CONNECTIONS = 6
#: Seconds without which an answer counts as lost.
PATIENCE = 60.0
IMPORT = re.compile(
    r"""(?:^|[;\s}])(?:import|export)\s*(?:[\w*${}\s,]+\s*from\s*)?["']([^"']+)["']""", re.M
)


@lru_cache(maxsize=256)
def parse(text: str) -> Any:
    """Read a message. Two hundred readers of one race get the same text: read it once."""
    return json.loads(text)


class _Page(HTMLParser):
    """What the page's HTML names: files, import map, the state for its script."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.data: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note stylesheets, icons, preloaded modules and scripts."""
        found = {name: value or "" for name, value in attrs}
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "modulepreload"):
            self.files.append(found["href"])
        if tag == "script":
            if "src" in found:
                self.files.append(found["src"])
            self._inside = found.get("id") or found.get("type", "")

    def handle_endtag(self, tag: str) -> None:
        """Leave the script."""
        self._inside = ""

    def handle_data(self, data: str) -> None:
        """Keep what stands inside a script."""
        if self._inside:
            self.data[self._inside] = self.data.get(self._inside, "") + data


@dataclass(frozen=True)
class Plan:
    """What a browser fetches after the page itself: waves, each known after the one before.

    Attributes:
        waves: before the page is ready.
        later: while the reader scrolls: charts, their library, records.
        socket: address of the WebSocket.
    """

    waves: tuple[tuple[str, ...], ...]
    later: tuple[str, ...]
    socket: str


async def plan(session: aiohttp.ClientSession, address: str) -> Plan:
    """Read the page and its modules as a browser would and note what they ask for."""
    html = await _text(session, address)
    page = _Page()
    page.feed(html)
    names: dict[str, str] = json.loads(page.data.get("importmap", "{}")).get("imports", {})
    boot = json.loads(page.data["boot"])
    seen: set[str] = set()
    waves: list[tuple[str, ...]] = []

    async def follow(files: list[str]) -> None:
        wave = [file for file in dict.fromkeys(files) if file not in seen]
        while wave:
            seen.update(wave)
            waves.append(tuple(wave))
            found: list[str] = []
            for file in wave:
                text = await _text(session, file)
                if urlsplit(file).path.endswith(".js"):
                    found += [_resolve(name, file, address, names) for name in IMPORT.findall(text)]
            wave = [file for file in dict.fromkeys(found) if file not in seen]

    await follow([urljoin(address, file) for file in page.files])
    # The page's script imports the views itself, once it runs.
    await follow([urljoin(address, figure["view"]) for figure in boot["figures"].values()])
    later: list[str] = []
    for figure in boot["figures"].values():
        chart = figure.get("chart")
        if chart:
            later += [urljoin(address, chart["library"]), urljoin(address, chart["item"])]
        later += [urljoin(address, record) for record in list(figure["records"].values())[:1]]
    socket = urljoin(address, f"{boot['base']}/live").replace("http", "ws", 1)
    return Plan(tuple(waves), tuple(dict.fromkeys(later)), socket)


def _resolve(name: str, file: str, page: str, names: dict[str, str]) -> str:
    """Return the address of an imported module, the import map's longest prefix first."""
    for prefix in sorted(names, key=len, reverse=True):
        if name == prefix or (prefix.endswith("/") and name.startswith(prefix)):
            return urljoin(page, names[prefix] + name[len(prefix) :])
    return urljoin(file, name)


async def _text(session: aiohttp.ClientSession, address: str) -> str:
    async with session.get(address) as answer:
        answer.raise_for_status()
        return await answer.text()


@dataclass
class Seen:
    """What the readers met, all together. Times in seconds."""

    errors: Counter[str] = field(default_factory=Counter)
    html: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    requests: int = 0
    bytes: int = 0
    frames: int = 0
    finished: int = 0


class Reader:
    """One reader.

    Args:
        address: of the page.
        plan: what the page makes a browser fetch.
        seen: where to note what happens.
        clock: seconds; the server's own monotonic clock, so that lags can be told.
    """

    def __init__(
        self, address: str, plan: Plan, seen: Seen, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.address, self.plan, self.seen, self.clock = address, plan, seen, clock
        self.have = 0  # events of the race that is followed
        self.race = ""
        self.asked: float | None = None  # when, while a race of its own has not begun
        self.private = False  # it has asked for one
        self.over = asyncio.Event()
        self.ready = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._task: asyncio.Task[None] | None = None
        self._fresh = False

    async def open(self) -> None:
        """Open the page, its files and the WebSocket; the page is ready with the server's hello."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS),
            headers={"Accept-Encoding": "gzip", "Accept-Language": "en"},
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
            auto_decompress=False,  # a browser's work is not the server's
        )
        begun = self.clock()
        await self._get(self.address)
        self.seen.html.append(self.clock() - begun)
        for wave in self.plan.waves:
            await asyncio.gather(*(self._get(file) for file in wave))
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.address))
        try:
            self._socket = await self._session.ws_connect(self.plan.socket, origin=origin)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.note(f"socket: {type(error).__name__}")
            return
        self._task = asyncio.create_task(self._listen())
        try:
            await asyncio.wait_for(self.ready.wait(), PATIENCE)
        except TimeoutError:
            self.note("no hello")
            return
        self.seen.ready.append(self.clock() - begun)

    async def scroll(self) -> None:
        """Fetch what comes into view."""
        for file in self.plan.later:
            await self._get(file)

    def note(self, error: str) -> None:
        """Count an error."""
        self.seen.errors[error] += 1

    async def send(self, **message: Any) -> None:
        """Send a request over the WebSocket."""
        if self._socket is None or self._socket.closed:
            self.note("socket closed")
            return
        await self._socket.send_str(json.dumps(message))

    async def run(self, settings: dict[str, Any], pair: str) -> None:
        """Ask for a race of one's own."""
        self._watch("")
        self.private, self.asked = True, self.clock()
        await self.send(do="run", pair=pair, settings=settings)

    async def follow(self, race: str) -> None:
        """Follow the race that everybody follows."""
        if self._socket is not None:
            self._watch(race)
            await self.send(do="follow", race=race)

    def _watch(self, race: str) -> None:
        self.race, self.have, self._fresh = race, 0, True
        self.over.clear()

    async def close(self) -> None:
        """Leave."""
        try:
            if self._socket is not None:
                await self._socket.close()
            if self._task is not None:
                await self._task
        finally:
            if self._session is not None:
                await self._session.close()

    async def drop(self) -> None:
        """Leave without a word, as a phone that loses its network does."""
        assert self._socket is not None
        assert self._session is not None
        transport = self._socket.get_extra_info("transport")
        if transport is not None:
            transport.abort()
        if self._task is not None:
            self._task.cancel()
        await self._session.close()

    async def _get(self, address: str) -> None:
        assert self._session is not None
        self.seen.requests += 1
        try:
            async with self._session.get(address) as answer:
                self.seen.bytes += len(await answer.read())
                if answer.status != 200:
                    self.note(f"HTTP {answer.status}: {urlsplit(address).path}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.note(f"{type(error).__name__}: {urlsplit(address).path}")

    async def _listen(self) -> None:
        assert self._socket is not None
        leaving = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)
        while True:
            frame = await self._socket.receive()
            if frame.type is aiohttp.WSMsgType.TEXT:
                self._take(parse(frame.data))
            elif frame.type in (*leaving, aiohttp.WSMsgType.ERROR):
                if self._socket.close_code not in (None, 1000):
                    self.note(f"closed: {self._socket.close_code}")
                return

    def _take(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "hello":
                self.ready.set()
            case "asked":
                if self.asked is not None:
                    self.race = message["race"]
            case "refused" | "failed":
                self.note(f"{message['type']}: {message.get('code') or message.get('error')}")
                self.over.set()
            case "events" if message["race"] == self.race:
                self._events(message)

    def _events(self, message: dict[str, Any]) -> None:
        now, events = self.clock(), message["events"]
        if message["from"] != self.have:
            self.note("a gap in the events")
        self.have = message["from"] + len(events)
        self.seen.frames += 1
        # The first frame may bring what happened before this reader came.
        if not self._fresh:
            self.seen.lag.append(now - message["at"])
        self._fresh = False
        if self.asked is not None and events:
            self.seen.wait.append(now - self.asked)
            self.asked = None
        for event in events:
            if event["type"] == "error":
                self.note(f"race: {event['code']}")
            if event["type"] in ("end", "error"):
                self.seen.finished += 1
                self.over.set()
