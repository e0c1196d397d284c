"""``python -m app serve``: ``panel serve`` on this folder; ``build``: the same as files; ``load``.

Everything after ``serve`` goes to ``panel serve`` unchanged. Around it: the address in words, a
browser if there is one to open, and a port in use is said so with what to do about it.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import sys
from pathlib import Path

DEFAULT_PORT = 5006
USAGE = """usage: python -m app serve [options of panel serve]
       python -m app build [-o site] [--base-url URL]   the article as files for any static host
       python -m app load [--readers 200] [--json]      many readers at once, and what they cost
       python -m app record --prompt TEXT [--trace FILE]  one race as a recording

  --plain-url URL --speculative-url URL   race two OpenAI-compatible servers (docs/engines.md)
  --port 6001                             another port
  --address 0.0.0.0 --allow-websocket-origin HOST:PORT
                                          let other machines read along
  --help                                  all options of panel serve
"""


def browser_to_open(environment: dict[str, str], terminal: bool, platform: str) -> bool:
    """Whether ``serve`` should open a browser.

    ``SHOW=1`` and ``SHOW=0`` decide; without them it opens one for somebody who sits at a terminal
    of a machine with a screen. Over SSH, in CI or in a container it would start a browser that
    nobody sees, or a text browser that takes the terminal.
    """
    wish = environment.get("SHOW", "")
    if wish:
        return wish != "0"
    if not terminal or environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    return platform in ("darwin", "win32") or bool(screen)


def port_in_use(port: int, address: str | None) -> bool:
    """Whether something else listens there: binds as the server will, and lets go.

    An address that does not exist is not "in use": panel serve reports that itself.
    """
    try:
        places = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        return False
    for family, kind, protocol, _, place in places:
        with socket.socket(family, kind, protocol) as trial:
            if os.name == "posix":  # elsewhere it would allow two servers on one port
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                trial.bind(place)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False


def serve(arguments: list[str]) -> None:
    """Run ``panel serve`` on this folder until it is stopped; exits 1 if the port is taken."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--address")
    seen, _ = parser.parse_known_args(arguments)
    asks_for_help = "-h" in arguments or "--help" in arguments

    flags: list[str] = []
    if not asks_for_help:
        if seen.port and port_in_use(seen.port, seen.address):
            sys.exit(
                f"Port {seen.port} is in use, perhaps by another `make serve`: is the article "
                f"already at http://localhost:{seen.port}?\n"
                f'If not, choose another port: make serve ARGS="--port {seen.port + 1}"'
                f"  (python -m app serve --port {seen.port + 1})"
            )
        if seen.port:
            print(
                f"Starting the article at http://localhost:{seen.port}  (Ctrl-C stops it)",
                flush=True,
            )
        if browser_to_open(dict(os.environ), sys.stdout.isatty(), sys.platform):
            flags.append("--show")

    # panel's main() reads sys.argv, whatever it is given.
    sys.argv = ["panel", "serve", str(Path(__file__).resolve().parent), *flags, *arguments]
    from panel.command import main

    main()


def main(arguments: list[str]) -> None:
    """Dispatch the command line; prints the usage for anything unknown."""
    if arguments[:1] == ["serve"]:
        from app.record import take_servers

        serve(take_servers(arguments[1:]))
        return
    if arguments[:1] == ["record"]:
        from app import record

        sys.exit(record.main(arguments[1:]))
    if arguments[:1] == ["build"]:
        from app.static_site import command as build

        sys.exit(build.main(arguments[1:]))
    if arguments[:1] == ["load"]:
        from app.load import command

        def stop(*_: object) -> None:
            """Told to end, it ends its server too, as after Ctrl-C."""
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, stop)
        sys.exit(command.main(arguments[1:]))
    asked = arguments[:1] in (["-h"], ["--help"])
    print(USAGE, end="", file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)


if __name__ == "__main__":
    main(sys.argv[1:])
