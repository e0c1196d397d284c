"""A race as its readers get it: its events as text, made once however many follow.

A frame is put together from those texts; readers who have got equally far get the same string.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernels.settings import Settings

if TYPE_CHECKING:
    from app.readers import Reader

#: Most events in a frame: who comes late or is slow gets a long race in pieces.
MOST_EVENTS = 400


def as_text(message: Any) -> str:
    """Return JSON as it travels."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def same_run(pair: str, settings: Settings) -> str:
    """Return what two requests have in common that ask for the very same run."""
    return as_text([pair, settings.as_dict()])


@dataclass(eq=False)
class Race:
    """One race: waiting, under way or over.

    Attributes:
        id: a secret; who knows it may follow.
        readers: the pages that get its events. When the last one goes, it is cancelled.
        lasting: it goes on without readers (a race for a class that comes and goes).
        begun: it has had the device, if only for a moment.
        ending: it has been cancelled, though its last pass may not be over.
        over: nothing will be added any more.
        asked: when, on the monotonic clock.
    """

    id: str
    pair: str
    settings: Settings
    lasting: bool = False
    readers: set[Reader] = field(default_factory=set)
    begun: bool = False
    ending: bool = False
    over: bool = False
    asked: float = field(default_factory=time.monotonic)
    last: dict[str, Any] | None = None
    _texts: list[str] = field(default_factory=list)
    _came: list[float] = field(default_factory=list)
    _frames: dict[int, tuple[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def complete(self) -> bool:
        """Whether its last event says how it ended."""
        return self.last is not None and self.last["type"] in ("end", "error")

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its events so far, read back from their texts."""
        return [json.loads(text) for text in self._texts]

    def add(self, event: dict[str, Any]) -> None:
        """Take one more event; its readers are due."""
        self.last = event
        self._texts.append(as_text(event))
        self._came.append(time.monotonic())
        self._frames.clear()
        for reader in self.readers:
            reader.due()

    def frame(self, start: int) -> tuple[str, int]:
        """Return the frame with the events from number `start` on, and the number after its last.

        ``at`` is when its first event came here, on this machine's monotonic clock.
        """
        if start not in self._frames:
            stop = min(len(self._texts), start + MOST_EVENTS)
            text = (
                f'{{"type":"events","race":"{self.id}","from":{start},"at":{self._came[start]:.6f},'
                f'"events":[{",".join(self._texts[start:stop])}]}}'
            )
            self._frames[start] = (text, stop)
        return self._frames[start]
