"""``make soak``: is the server's memory flat over 2 000 opened and closed sessions?

    python -m tests.app.soak [--sessions 2000]

Each opens the page, its files and a WebSocket; every fifth asks for a race, every tenth of them
leaves without a word in its middle. Prints one JSON line; ends with 1 if the memory of the server
grew by more than `MOST` from the first quarter of the sessions to the end, or anything else failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import aiohttp
import psutil

from app.load.command import answering, serving
from app.load.reader import Plan, Reader, Seen, plan
from tests.app.conftest import SETTINGS, SOURCE

#: Bytes of growth that are still noise: pools of the allocator, caches of the interpreter.
MOST = 4 * 2**20
AT_ONCE = 4


async def session(number: int, address: str, found: Plan, seen: Seen) -> None:
    """One reader's visit."""
    reader = Reader(address, found, seen)
    await reader.open()
    if number % 5 == 0:
        await reader.run(SETTINGS | {"seed": number, "length": 24}, "embedded")
        if number % 50 == 0:
            await asyncio.sleep(0.05)
            await reader.drop()
            return
        await asyncio.wait_for(reader.over.wait(), 120)
    await reader.close()


async def soak(sessions: int, address: str, process: psutil.Process) -> dict[str, object]:
    """Run them, a few at once, and follow the server's memory."""
    async with aiohttp.ClientSession() as client:
        await answering(client, address, process)
        found = await plan(client, address)
    seen, memory = Seen(), []
    numbers = iter(range(sessions))

    async def visitor() -> None:
        for number in numbers:
            await session(number, address, found, seen)
            memory.append(process.memory_info().rss)

    await asyncio.gather(*(visitor() for _ in range(AT_ONCE)))
    tenth = max(1, sessions // 10)
    early = statistics.median(memory[sessions // 4 : sessions // 4 + tenth])
    late = statistics.median(memory[-tenth:])
    return {
        "sessions": sessions,
        "errors": dict(seen.errors),
        "requests": seen.requests,
        "races": seen.finished,
        "memory_mb": [round(m / 2**20, 1) for m in memory[tenth - 1 :: tenth]],
        "growth_bytes_a_session": round((late - early) / (0.75 * sessions), 1),
        "flat": late - early <= MOST,
    }


def main() -> int:
    """Run it; 0 if memory was flat and nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.app.soak")
    parser.add_argument("--sessions", type=int, default=2000)
    chosen = parser.parse_args()
    os.environ |= {"SD_SOURCE": SOURCE, "FAKE_PASS_MS": "1", "SD_KEEP_SECONDS": "2"}
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "log") as (page, process):
        result = asyncio.run(soak(chosen.sessions, page, process))
    print(json.dumps(result))
    return 0 if result["flat"] and not result["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
