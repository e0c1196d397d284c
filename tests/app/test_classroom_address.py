"""The teacher's link and the address on the wall; its QR code read by a decoder of our own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from app.classroom import address


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SD_TEACHER_KEY", raising=False)
    monkeypatch.delenv("SD_PUBLIC_URL", raising=False)
    address.key.cache_clear()
    yield
    address.key.cache_clear()


def test_a_key_is_drawn_for_each_run_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = address.key()
    assert len(first) >= 20 and address.key() == first
    assert address.announcement().endswith(f"/app?mode=present#teacher={first}")
    address.key.cache_clear()
    assert address.key() != first


def test_the_owners_own_key_stays_out_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_TEACHER_KEY", "correct horse")
    assert address.is_key("correct horse")
    assert "correct horse" not in address.announcement()
    assert "<SD_TEACHER_KEY>" in address.announcement()
    for short in ("1234567", "schlüssel für lehrer"):
        monkeypatch.setenv("SD_TEACHER_KEY", short)
        address.key.cache_clear()
        with pytest.raises(ValueError, match="SD_TEACHER_KEY"):
            address.key()


def test_behind_a_proxy_the_browsers_own_address_is_right() -> None:
    for seen, url in {
        "https://class.example/spec/app/": "https://class.example/spec/app?class",
        "https://class.example:8443/app": "https://class.example:8443/app?class",
        "http://192.168.7.9:5006/app": "http://192.168.7.9:5006/app?class",
        "http://[2001:db8::5]:5006/app": "http://[2001:db8::5]:5006/app?class",
    }.items():
        (offer,) = address.offers(seen)
        assert (offer["url"], offer["only_here"]) == (url, False)


def test_the_owner_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SD_PUBLIC_URL", "https://lab.example/app/")
    (offer,) = address.offers("http://localhost:5006/app")
    assert offer["url"] == "https://lab.example/app?class"
    assert address.announcement().startswith("For a teacher")
    assert "https://lab.example/app?mode=present#teacher=" in address.announcement()
    for wrong in ("lab.example/app", "ftp://lab.example", "javascript:alert(1)", "https://"):
        monkeypatch.setenv("SD_PUBLIC_URL", wrong)
        with pytest.raises(ValueError, match="SD_PUBLIC_URL"):
            address.public_url()


def test_on_localhost_the_network_address_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address, "own_addresses", lambda: ["192.168.7.9", "10.0.0.4"])
    monkeypatch.setattr(address, "listening", lambda: (5006, False))
    for name in ("localhost", "127.0.0.1", "[::1]", "spec.localhost"):
        offers = address.offers(f"http://{name}:5006/app")
        urls = [offer["url"] for offer in offers]
        assert urls == ["http://192.168.7.9:5006/app?class", "http://10.0.0.4:5006/app?class"]
        assert not any(offer["only_here"] for offer in offers)
    # A server that listens on the loopback address alone: said so, instead of a dead address.
    monkeypatch.setattr(address, "listening", lambda: (5006, True))
    (offer,) = address.offers("http://localhost:5006/app")
    assert offer["only_here"] and offer["url"] == "http://localhost:5006/app?class"
    # Without a network there is nothing better either.
    monkeypatch.setattr(address, "listening", lambda: (5006, False))
    monkeypatch.setattr(address, "own_addresses", list)
    assert address.offers("http://localhost:5006/app")[0]["only_here"]


@pytest.mark.parametrize(
    "seen", [None, 5, "", "nonsense", "javascript:alert(1)", "http://a b/", "http://x:99999999/",
             "https://user:secret@class.example/app", "http://x/" + "a" * 300, "http://x\n.example/"],
)  # fmt: skip
def test_what_is_no_address_is_not_put_on_the_wall(seen: object) -> None:
    assert address.offers(seen) == []


def test_own_addresses_are_those_that_others_can_reach() -> None:
    for found in address.own_addresses():
        assert not found.startswith("127.")
        socket.inet_aton(found)


def test_it_knows_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, local in (("127.0.0.1", True), ("0.0.0.0", False)):
        with socket.create_server((place, 0)) as server:
            port = server.getsockname()[1]
            monkeypatch.setattr("sys.argv", ["panel", "serve", "app", "--port", str(port)])
            assert address.listening() == (port, local)
            monkeypatch.setattr("sys.argv", ["panel", "serve", "app", f"--port={port}"])
            assert address.listening() == (port, local)


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.4:5006/app?class", "https://class.example/app?class", "http://a.de/?class"],
)
def test_the_code_says_the_address(url: str) -> None:
    assert decode(address.code(url)) == url


def decode(rows: list[str]) -> str:
    """Read a QR code (ISO/IEC 18004) of version 1 to 3 in byte mode, without mending errors."""
    quiet = 4
    size = len(rows) - 2 * quiet
    assert {len(row) for row in rows} == {len(rows)}
    assert all("1" not in row for row in (*rows[:quiet], *rows[-quiet:]))
    cells = [[int(c) for c in row[quiet:-quiet]] for row in rows[quiet:-quiet]]
    version = (size - 17) // 4
    assert size == 17 + 4 * version and 1 <= version <= 3
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):  # the three finders
        square = [cells[top + i][left : left + 7] for i in range(7)]
        assert square[0] == square[6] == [1] * 7
        assert square[3] == [1, 0, 1, 1, 1, 0, 1]
    # Format: 15 bits around the first finder, masked; the first two name the level, three the mask.
    places = [(8, c) for c in (0, 1, 2, 3, 4, 5, 7, 8)] + [(r, 8) for r in (7, 5, 4, 3, 2, 1, 0)]
    form = int("".join(str(cells[r][c]) for r, c in places), 2) ^ 0b101010000010010
    level, mask = form >> 13, (form >> 10) & 7
    assert level in (0b00, 0b01, 0b11), "M, L or Q"
    masks = [
        lambda r, c: (r + c) % 2, lambda r, c: r % 2, lambda r, c: c % 3, lambda r, c: (r + c) % 3,
        lambda r, c: (r // 2 + c // 3) % 2, lambda r, c: r * c % 2 + r * c % 3,
        lambda r, c: (r * c % 2 + r * c % 3) % 2, lambda r, c: ((r + c) % 2 + r * c % 3) % 2,
    ]  # fmt: skip

    def used(r: int, c: int) -> bool:
        """Whether a cell belongs to the patterns, not to the data."""
        corner = (r < 9 and c < 9) or (r < 9 and c >= size - 8) or (r >= size - 8 and c < 9)
        at = size - 7
        aligned = version > 1 and abs(r - at) <= 2 and abs(c - at) <= 2
        return corner or r == 6 or c == 6 or aligned

    bits = []
    column, up = size - 1, True
    while column > 0:
        if column == 6:
            column -= 1
        for r in range(size - 1, -1, -1) if up else range(size):
            for c in (column, column - 1):
                if not used(r, c):
                    bits.append(cells[r][c] ^ (masks[mask](r, c) == 0))
        column, up = column - 2, not up

    if (version, level) == (3, 0b11):  # two blocks of 17 codewords, which take turns
        words = [bits[i : i + 8] for i in range(0, 34 * 8, 8)]
        bits = [bit for word in (*words[0::2], *words[1::2]) for bit in word]

    def number(start: int, length: int) -> int:
        return int("".join(str(int(bit)) for bit in bits[start : start + length]), 2)

    assert number(0, 4) == 0b0100, "byte mode"
    length = number(4, 8)
    return bytes(number(12 + 8 * i, 8) for i in range(length)).decode("ascii")
