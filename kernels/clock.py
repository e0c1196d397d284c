"""A lane's own clock: it runs only while that lane works."""

from __future__ import annotations

import time


class LaneClock:
    """Counts the seconds between `resume` and `pause`, and nothing else.

    Two lanes share one device by taking turns. Each keeps its own clock, so a lane is charged for
    everything it does itself (models, drawing, text) and never for the other's turn.
    """

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self._since: int | None = None

    def resume(self) -> None:
        """Run from now on."""
        self._since = time.perf_counter_ns()

    def pause(self) -> None:
        """Stand still until `resume`; harmless when it stands already."""
        if self._since is not None:
            self._elapsed_ns += time.perf_counter_ns() - self._since
            self._since = None

    def now(self) -> float:
        """Seconds on this clock."""
        running = 0 if self._since is None else time.perf_counter_ns() - self._since
        return (self._elapsed_ns + running) * 1e-9
