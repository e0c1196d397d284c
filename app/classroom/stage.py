"""The race that a whole class watches: one reader of the hub, whose frames go to every page."""

from __future__ import annotations

import json
from typing import Any

from app.classroom.room import Room, SharedRace
from app.hub import Hub
from app.readers import Reader

EVENTS = '{"type":"events"'


class Stage:
    """Asks the hub for races in the room's name. They outlive the teacher's page.

    Args:
        room: who watches.
        hub: where races run.
    """

    def __init__(self, room: Room, hub: Hub) -> None:
        self.room, self.hub = room, hub
        self.reader: Reader | None = None
        self._race = SharedRace()
        self._names = ("", "")
        self._count = 0

    def run(self, pair: str, settings: dict[str, Any]) -> None:
        """Start a race for all; it replaces the one before.

        Raises:
            SdError: what `Hub.join` and `Hub.ask` refuse.
        """
        if self.reader is None:
            reader = Reader(self._write)
            self.hub.join(reader)
            self.reader = reader
        race = self.hub.ask(self.reader, pair, settings)
        # The hub's id lets a page take a race over (`resume`); the class knows it by another name.
        self._count += 1
        self._names = (race.id, f"class-{self._count}")
        self._race = SharedRace()
        self.room.share(self._race)

    def cancel(self) -> None:
        """End the race that is going on, if there is one."""
        if self.reader is not None and self.reader.race is not None:
            self.hub.cancel(self.reader.race)

    def close(self) -> None:
        """Let go of the hub."""
        if self.reader is not None:
            self.hub.leave(self.reader, broken=False)
            self.reader = None

    async def _write(self, text: str) -> None:
        """Take what the hub sends to its reader: a race's events are for all, news for teachers."""
        text = text.replace(*self._names, 1)
        if text.startswith(EVENTS):
            self.room.grow(self._race, text)
        else:
            self.room.tell_teachers(f"news {json.loads(text)['type']}", text)
