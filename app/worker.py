"""The server's end of the engine's process: starts it, talks to it, notices when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
#: -P: the folder the server was started in is not searched for modules.
COMMAND = (sys.executable, "-P", "-m", "app.engine")
#: Seconds that the process gets to end by itself.
PATIENCE = 3.0


class Worker:
    """The engine's process.

    Args:
        call: schedules a function in the server's event loop, from any thread.
        on_message: called in the loop with each message of the engine.
        on_exit: called in the loop once, when the process has ended without being told to; given
            why: "exit 3", "signal 9", or what `kill` was given.
        command: what to run.
    """

    def __init__(
        self,
        call: Callable[..., object],
        on_message: Callable[[Message], None],
        on_exit: Callable[[str], None],
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._call, self._on_message, self._on_exit = call, on_message, on_exit
        self._stopping = False
        self._killed = ""
        search = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": search, "PYTHONUTF8": "1"},
            encoding="utf-8",
            # Ctrl-C in the terminal is the server's to handle; it then closes our input.
            start_new_session=True,
        )
        self._outbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # Threads, not asyncio's subprocesses: those do not work in Tornado's loop on Windows. One
        # to write as well: a process that has been stopped takes nothing, and the server goes on.
        threading.Thread(target=self._write, name="race engine's orders", daemon=True).start()
        self._reader = threading.Thread(target=self._read, name="race engine", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id, for the log and tests."""
        return self._process.pid

    def send(self, **message: Any) -> None:
        """Send one command. A dead process is not an error here: `on_exit` tells of it."""
        self._outbox.put(json.dumps(message) + "\n")

    def kill(self, reason: str) -> None:
        """End a process that hangs; `on_exit` is told the reason."""
        self._killed = reason
        self._process.kill()

    def stop(self) -> None:
        """End the process and wait for it, a few seconds at most."""
        self._stopping = True
        self._outbox.put(None)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE)

    def _write(self) -> None:
        """Write what is sent until there is no more, or nobody to take it."""
        assert self._process.stdin is not None
        # A dead process is noticed by its silence; what was on its way to it is lost with it.
        with contextlib.suppress(OSError), self._process.stdin as commands:
            while (line := self._outbox.get()) is not None:
                commands.write(line)
                commands.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._tell(self._on_message, json.loads(line))
        status = self._process.wait()
        self._outbox.put(None)
        if not self._stopping:
            how = f"signal {-status}" if status < 0 else f"exit {status}"
            self._tell(self._on_exit, self._killed or how)

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._call(function, *arguments)
        except RuntimeError:  # the loop is closed: the server is on its way out
            return
