"""Addresses of a class: the teacher's secret link, and the one that is put on the wall."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
import sys
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

import psutil
import segno

#: Shorter keys of an owner's own could be guessed.
SHORTEST_KEY = 8
#: Characters of the longest address that a page may offer.
LONGEST = 200
#: Addresses of this machine that are offered at most.
OFFERED = 4
QUERY = "class"


@cache
def key() -> str:
    """Return the teacher's key: ``SD_TEACHER_KEY``, or one drawn for this run of the server.

    Raises:
        ValueError: the owner's key is too short to be a secret, or would not survive a link.
    """
    chosen = os.environ.get("SD_TEACHER_KEY", "")
    if not chosen:
        return secrets.token_urlsafe(18)
    if len(chosen) < SHORTEST_KEY or not chosen.isascii() or not chosen.isprintable():
        raise ValueError(f"SD_TEACHER_KEY needs {SHORTEST_KEY} or more letters, digits or signs")
    return chosen


def is_key(given: Any) -> bool:
    """Whether this is the teacher's key; the time it takes says nothing about a wrong one."""
    return isinstance(given, str) and secrets.compare_digest(given.encode(), key().encode())


def public_url() -> str | None:
    """Return the address of the article as the world sees it (``SD_PUBLIC_URL``), or None.

    Raises:
        ValueError: it is not an http(s) address.
    """
    chosen = os.environ.get("SD_PUBLIC_URL", "").rstrip("/")
    if not chosen:
        return None
    checked = _checked(chosen)
    if checked is None:
        raise ValueError(f"SD_PUBLIC_URL={chosen!r} must be like https://example.org/app")
    return checked


def announcement() -> str:
    """Return what the terminal says when the server starts. An owner's own key is not printed.

    Raises:
        ValueError: ``SD_TEACHER_KEY`` or ``SD_PUBLIC_URL`` cannot be used.
    """
    own = "SD_TEACHER_KEY" in os.environ and bool(os.environ["SD_TEACHER_KEY"])
    secret = key()
    port, _ = listening()
    prefix = _argument("--prefix", "").strip("/")
    base = public_url() or f"http://localhost:{port}/{prefix}{'/' if prefix else ''}app"
    shown = "<SD_TEACHER_KEY>" if own else quote(secret, safe="")
    return f"For a teacher, not to be passed on: {base}?mode=present#teacher={shown}"


def listening() -> tuple[int, bool]:
    """Return the port of this server, and whether only this very machine can reach it.

    Read from the process's own sockets, so it holds whatever the command line said.
    """
    wanted = _argument("--port", "5006")
    found: dict[int, bool] = {}
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN:
            port = connection.laddr.port
            local = ipaddress.ip_address(connection.laddr.ip.partition("%")[0]).is_loopback
            found[port] = found.get(port, True) and local
    port = int(wanted) if wanted.isdecimal() and int(wanted) in found else min(found, default=5006)
    return port, found.get(port, False)


def _argument(name: str, default: str) -> str:
    """Return the value of an option of the command line that started this process."""
    for here, following in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if here == name:
            return following
        if here.startswith(f"{name}="):
            return here.partition("=")[2]
    return default


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this machine in its networks, the likeliest first."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing: it only chooses the way out.
            probe.connect(("192.0.2.1", 9))
            found.append(probe.getsockname()[0])
        except OSError:
            pass
    for addresses in psutil.net_if_addrs().values():
        found += [a.address for a in addresses if a.family == socket.AF_INET]
    usable = [a for a in dict.fromkeys(found) if not ipaddress.ip_address(a).is_loopback]
    return usable[:OFFERED]


def offers(seen: Any) -> list[dict[str, Any]]:
    """Return the addresses that a class may be given, the best first.

    Each is ``{"url", "code", "only_here"}``: the address that opens the article as a student, its
    QR code (rows of ``"0110…"`` with the quiet zone), and whether nobody but this machine can open
    it. `seen` is the article's address as the teacher's own browser has it: right behind a proxy,
    useless if it is this machine's own name.
    """
    public, given = public_url(), _checked(seen)
    if public is not None:
        return [_offer(public, only_here=False)]
    if given is None:
        return []
    parts = urlsplit(given)
    if not _loopback(parts.hostname or ""):
        return [_offer(given, only_here=False)]
    _, local = listening()
    if local:
        return [_offer(given, only_here=True)]
    port = f":{parts.port}" if parts.port else ""
    found = [
        _offer(f"{parts.scheme}://{address}{port}{parts.path}", only_here=False)
        for address in own_addresses()
    ]
    return found or [_offer(given, only_here=True)]


def _offer(base: str, *, only_here: bool) -> dict[str, Any]:
    url = f"{base}?{QUERY}"
    return {"url": url, "code": code(url), "only_here": only_here}


@cache
def code(url: str) -> list[str]:
    """Return the QR code of an address (ISO/IEC 18004, error correction at least M)."""
    drawn = segno.make_qr(url, error="m")
    return ["".join("1" if cell else "0" for cell in row) for row in drawn.matrix_iter(border=4)]


def _checked(value: Any) -> str | None:
    """Return an http(s) address without query and fragment, or None."""
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        return None
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return None
    named = re.fullmatch(r"[\w.:-]+", parts.hostname or "", re.ASCII)
    if parts.scheme not in ("http", "https") or not named or parts.username is not None:
        return None
    assert parts.hostname is not None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
