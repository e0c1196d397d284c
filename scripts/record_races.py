"""Record the races that ship with the article: ``python scripts/record_races.py [name …]``.

Runs each entry of ``figures/race/recordings.toml`` several times on the source that the settings
name (docs/engines.md; the default pair without any) and keeps the run whose speed-up is the median,
with the machine, versions, command and seed in its header. Entries that say ``servers = true`` are
recorded only when named, with SD_PLAIN_URL and SD_SPECULATIVE_URL set. Measure on a quiet machine:
how much of it others used meanwhile is written into the header, and above 5 % said aloud.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from app.record import record
from app.sources import Source, source
from kernels.machine import Contention
from kernels.settings import Settings
from kernels.trace import Trace

FOLDER = Path(__file__).resolve().parent.parent / "figures" / "race"


def run(engine: Source, name: str, settings: Settings) -> tuple[float, Trace]:
    """One race: its speed-up and its trace."""
    trace, fault = record(engine, settings, command=f"python scripts/record_races.py {name}")
    if fault is not None:
        raise fault
    return trace.events[-1]["stats"]["speedup"]["measured"] or 0.0, trace


def main(arguments: list[str]) -> int:
    """Record the named races, or all of them."""
    entries = tomllib.loads((FOLDER / "recordings.toml").read_text("utf-8"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *entries], default=[])
    parser.add_argument("--runs", type=int, default=5, help="how often; the median is kept")
    options = parser.parse_args(arguments)
    engine = source()
    for name in options.names or [n for n, entry in entries.items() if not entry.get("servers")]:
        settings = Settings(**{k: v for k, v in entries[name].items() if k != "servers"})
        run(engine, name, settings)  # warms caches up
        runs = sorted(
            (run(engine, name, settings) for _ in range(options.runs)), key=lambda r: r[0]
        )
        measured, trace = runs[len(runs) // 2]
        trace.write(FOLDER / "recorded" / f"{name}.json")
        others = trace.header["device"].get("others", 0.0)
        note = "" if others <= Contention.LIMIT else "  CONTAMINATED"
        spread = f"{runs[0][0]:.2f}–{runs[-1][0]:.2f}"
        print(f"{name:10} {measured:.2f}× ({spread}), others {others:.1%}{note}")
        print("   ", trace.text("speculative")[:160].replace("\n", "⏎"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
