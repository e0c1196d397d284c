"""`python -m kernels weights`: fetch and prepare weights ahead of time, and check what is there."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernels import storage, weights
from kernels.errors import SdError

_WORDS = {
    "wait": "another process is fetching them",
    "download": "downloading",
    "check": "checking",
    "convert": "converting",
}


def main(argv: list[str]) -> int:
    """Resolve the weights named in `argv` (default: the embedded pair's) and print their folder."""
    parser = argparse.ArgumentParser(prog="python -m kernels weights", description=__doc__)
    parser.add_argument(
        "ref", nargs="?", help="path or Hugging Face id (default: %(default)s)", default=None
    )
    parser.add_argument("--verify", action="store_true", help="compare every byte, not only sizes")
    parser.add_argument("--json", action="store_true", help="print one line of JSON on stdout")
    arguments = parser.parse_args(argv)
    started = time.perf_counter()
    try:
        with _terminal(quiet=arguments.json) as progress:
            folder = weights.resolve(arguments.ref, progress=progress)
            if arguments.verify and weights.repair(folder, progress=progress):
                folder = weights.resolve(arguments.ref, progress=progress)
    except SdError as error:
        if arguments.json:
            print(json.dumps(error.as_event()))
        print(error, file=sys.stderr)
        return 1
    size = sum(file.stat().st_size for file in storage.weight_files(folder))
    record = {
        "folder": str(folder),
        "source": weights.describe(folder),
        "parameters": storage.parameter_count(folder),
        "bytes": size,
        "seconds": round(time.perf_counter() - started, 3),
    }
    if arguments.json:
        print(json.dumps(record))
    else:
        print(f"{record['source']}\n{folder}  ({storage.megabytes(size)})")
    return 0


@contextmanager
def _terminal(*, quiet: bool) -> Iterator[storage.Progress]:
    """A progress bar on stderr, which appears only if there is something to wait for."""
    if quiet:
        yield storage.silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                words = _WORDS.get(stage, stage)
                tasks[stage] = bar.add_task(f"Weights: {words}", total=total)
                if not console.is_terminal:  # a log: one line a stage
                    console.print(f"Weights: {words} …")
            bar.update(tasks[stage], completed=done, total=total)

        yield report
