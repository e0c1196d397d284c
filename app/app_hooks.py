"""What `panel serve app` runs once: our routes join the server, and the race starts and stops."""

from __future__ import annotations

import sys
from typing import Any

from app import live, logs, routes
from app.classroom import address, pages
from app.limits import limits

# Wrong settings end the server at once, in a sentence; from a hook below they would only be logged.
try:
    logs.configure()
    limits()
except ValueError as error:
    sys.exit(f"{error}. app/limits.py says what can be set.")

# This module is read while the application is built, before the server exists: the one moment at
# which per-application routes can still be added.
routes.register()
pages.register()


def on_server_loaded(server_context: Any) -> None:
    """Start the worker that owns the device; tell the owner the teacher's secret link."""
    live.start()
    print(address.announcement(), flush=True)


def on_server_unloaded(server_context: Any) -> None:
    """Stop the worker; a race in progress ends with a message."""
    live.stop()
