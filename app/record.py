"""``python -m app record``: one race from whatever source the owner's settings name, as a trace.

The recorder goes through the seam (app/sources.py) as the server does, so it cannot tell which
engine it has. A race that breaks off is written as far as it got.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.sources import Source, source
from kernels.errors import SdError
from kernels.machine import Contention
from kernels.settings import Settings, whole_or_adaptive
from kernels.trace import Trace
from kernels.trace_check import LANES

#: Options that name servers, and the settings they stand for.
SERVERS = {
    "--plain-url": "SD_PLAIN_URL",
    "--speculative-url": "SD_SPECULATIVE_URL",
    "--plain-model": "SD_PLAIN_MODEL",
    "--speculative-model": "SD_SPECULATIVE_MODEL",
}


def take_servers(arguments: list[str]) -> list[str]:
    """Put the options that name servers into the environment; returns the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option, setting in SERVERS.items():
        parser.add_argument(option, dest=setting)
    given, rest = parser.parse_known_args(arguments)
    os.environ.update({name: value for name, value in vars(given).items() if value is not None})
    return rest


def record(
    engine: Source, settings: Settings, *, pair: str | None = None, command: str = ""
) -> tuple[Trace, SdError | None]:
    """Run one race and return its trace, and what broke it off if something did.

    command: for the header. Raises SdError where the race did not get as far as a first event.
    """
    chosen = pair or engine.describe()[0]["name"]
    engine.prepare(chosen, lambda *_: None)
    events: list[dict[str, Any]] = []
    fault = None
    with Contention() as contention:
        try:
            for event in engine.run(chosen, settings, lambda: False):
                if event["type"] == "start":
                    events.clear()  # a cluster begins again where a machine was lost
                events.append(event)
        except SdError as error:
            if not events:
                raise
            fault = error
    header = events[0]["header"]
    header["command"] = command or header["command"]
    if contention.others is not None and "source" not in header:
        header["device"]["others"] = round(max(contention.others, contention.stolen or 0.0), 4)
    return Trace.from_events(closed(events)), fault


def closed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a race that broke off, with what a trace needs at its end."""
    if events and events[-1]["type"] == "end":
        return events
    finished = {event["lane"] for event in events if event["type"] == "finish"}
    ends = {lane: max(_ends(events, lane), default=0.0) for lane in LANES}
    cut = [
        {"type": "finish", "lane": lane, "reason": "cancelled", "clock": ends[lane]}
        for lane in LANES
        if lane not in finished
    ]
    return [*events, *cut, {"type": "end", "agreement": {"kind": "unfinished"}, "stats": {}}]


def _ends(events: Iterable[dict[str, Any]], lane: str) -> list[float]:
    return [e["end"] for e in events if e["type"] == "pass" and e["lane"] == lane]


def main(arguments: list[str]) -> int:
    """Record one race; 0, or 1 if it broke off or greedy lanes came out different."""
    rest = take_servers(arguments)
    options = _parser().parse_args(rest)
    settings = Settings(
        options.prompt,
        chat=not options.no_chat,
        m=options.m,
        temperature=options.temperature,
        seed=options.seed,
        length=options.length,
    )
    command = shlex.join(["python", "-m", "app", "record", *rest])
    try:
        trace, fault = record(source(), settings, pair=options.pair, command=command)
    except SdError as error:
        print(f"record: {error}", file=sys.stderr)
        return 1
    if options.trace:
        trace.write(options.trace)
        print(f"trace written to {options.trace}", file=sys.stderr)
    end = trace.events[-1]
    if options.json:
        print(json.dumps({"agreement": end["agreement"], "stats": end["stats"]}))
    else:
        print(trace.text("speculative"))
        print(_summary(end), file=sys.stderr)
    if fault is not None:
        print(f"record: broken off: {fault}", file=sys.stderr)
    return 1 if fault is not None or end["agreement"]["kind"] == "differs" else 0


def _summary(end: dict[str, Any]) -> str:
    """One line of what it came to."""
    stats = end["stats"]
    if not stats:
        return "no statistics: the race has no end"
    rates = ", ".join(f"{lane} {stats[lane]['tokens_per_s']} tokens/s" for lane in LANES)
    speedup = stats["speedup"]["measured"]
    counts = stats.get("server", {}).get("counts")
    told = f"; the server counts {counts['accepted']} of {counts['drafted']}" if counts else ""
    return f"{rates}; {speedup} x; texts: {end['agreement']['kind']}{told}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app record",
        description="Record one race from the source that the settings name (docs/engines.md).",
        epilog="Servers: " + ", ".join(SERVERS) + ".",
    )
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--no-chat", action="store_true", help="continue the prompt")
    parser.add_argument(
        "--m",
        type=whole_or_adaptive,
        default=Settings.m,
        help="drafted tokens a round; servers have their own",
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=96, help="new tokens at most")
    parser.add_argument("--pair", help="which pair of the source; the first one by default")
    parser.add_argument("--trace", type=Path, help="write the recording to this file")
    parser.add_argument("--json", action="store_true", help="print the statistics as one line")
    return parser
