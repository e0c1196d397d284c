"""`python -m kernels race`: the two lanes in a terminal, and a trace of the run."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from kernels.settings import DRAFTERS, Settings, whole_or_adaptive
from kernels.trace import Trace

DEFAULT_PROMPT = "List five fruits and say in one sentence what each tastes like."

#: The same meanings as on the page: target blue, draft amber, accepted green, rejected red.
STYLE = {
    "target": "",
    "accepted": "green",
    "supplied": "blue",
    "bonus": "bold yellow underline",
    "rejected": "red strike",
}
BAR = {"prefill": "cyan", "decode": "blue", "verify": "blue", "draft": "yellow"}


def main(argv: list[str]) -> int:
    """Run one race. Returns 0, or 1 if greedy lanes came out different."""
    options = _parser().parse_args(argv)
    settings = Settings(
        prompt=options.prompt,
        chat=not options.no_chat,
        m=options.m,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        seed=options.seed,
        length=options.length,
        drafter=options.drafter,
        stop=tuple(options.stop),
    )
    console = Console(stderr=options.json)
    pair = _load(options, console)

    from kernels.race import race  # after the progress bar: this imports numpy

    command = shlex.join(["python", "-m", "kernels", "race", *argv])
    events: list[dict[str, Any]] = []
    screen = Screen(width=console.width)
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            for event in race(pair, settings, command=command):
                events.append(event)
                screen.add(event)
                if console.is_terminal or event["type"] == "end":
                    live.update(screen.render(), refresh=True)
    except KeyboardInterrupt:
        return 130
    if not console.is_terminal:
        console.print()  # rich leaves the cursor at the end of the last panel
    end = events[-1]
    console.print(statistics(end))
    trace = Trace.from_events(events)
    if options.trace:
        trace.write(options.trace)
        console.print(f"trace written to {options.trace}", highlight=False)
    if options.chrome:
        options.chrome.write_text(json.dumps(trace.to_chrome_trace()), "utf-8")
        console.print(f"open {options.chrome} at https://ui.perfetto.dev", highlight=False)
    if options.json:
        print(json.dumps({"agreement": end["agreement"], "stats": end["stats"]}))
    return 1 if end["agreement"]["kind"] == "differs" else 0


class Screen:
    """What the terminal shows: for each lane its text, a strip of its passes, and its rate."""

    def __init__(self, width: int) -> None:
        self._width = max(20, width - 4)
        self._text = {"plain": Text(), "speculative": Text()}
        self._refused: Text | None = None  # the last rejected guess, shown until the next pass
        self._passes: dict[str, list[dict[str, Any]]] = {"plain": [], "speculative": []}

    def add(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        if event["type"] != "pass":
            return
        lane = event["lane"]
        self._passes[lane].append(event)
        if lane == "speculative":
            self._refused = None
        for token in event["tokens"]:
            if token["origin"] == "rejected":
                self._refused = Text(token["text"], STYLE["rejected"])
            elif token["origin"] in STYLE:
                self._text[lane].append(token["text"], STYLE[token["origin"]])

    def render(self) -> Group:
        """Both lanes, drawn on one time axis."""
        clock = max((p[-1]["end"] for p in self._passes.values() if p), default=0.0)
        panels = []
        for lane, text in self._text.items():
            shown = text.copy()
            if lane == "speculative" and self._refused is not None:
                shown.append_text(self._refused)
            strip = Text.assemble(*self._strip(lane, clock))
            panels.append(Panel(Group(shown, strip), title=self._title(lane), title_align="left"))
        return Group(*panels)

    def _strip(self, lane: str, clock: float) -> Iterator[tuple[str, str]]:
        """One character for each slice of the clock, coloured by what ran in its middle."""
        passes = iter(self._passes[lane])
        current = next(passes, None)
        for cell in range(self._width):
            at = (cell + 0.5) * clock / self._width
            while current and current["end"] < at:
                current = next(passes, None)
            if current is None:
                return
            running = current["start"] <= at
            draft = current.get("by") is not None
            yield "▇", ("yellow" if draft else BAR[current["kind"]]) if running else "bright_black"

    def _title(self, lane: str) -> str:
        passes = self._passes[lane]
        emitted = sum(
            token["origin"] in ("target", "accepted", "supplied", "bonus")
            for event in passes
            for token in event["tokens"]
        )
        if emitted < 2:
            return lane
        first = next(event["end"] for event in passes if event["tokens"])
        seconds = passes[-1]["end"] - first
        rate = (emitted - 1) / seconds if seconds > 0 else 0.0
        return f"{lane}  {passes[-1]['end']:.2f} s  {emitted} tokens  {rate:.1f} tokens/s"


def statistics(end: dict[str, Any]) -> Table:
    """The numbers of the `end` event, for people."""
    stats, speedup = end["stats"], end["stats"]["speedup"]
    acceptance = stats["acceptance"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = {
        "text of the two lanes": _agreement(end["agreement"]),
        "plain": f"{_number(stats['plain']['tokens_per_s'])} tokens/s",
        "speculative": f"{_number(stats['speculative']['tokens_per_s'])} tokens/s",
        "acceptance rate α": f"{_number(acceptance['alpha'])} "
        f"(95 %: {_number(acceptance['low'])} to {_number(acceptance['high'])}, "
        f"{acceptance['judged']} guesses)",
        "cost ratio c, verification v": f"{_number(stats['c'])}, {_number(stats['v'])} passes",
        "guesses kept": ", ".join(
            f"{by} {log['accepted']} of {log['judged']} ({_number(log['ms'])} ms each)"
            for by, log in acceptance["by"].items()
        ),
        "tokens a target pass": _number(stats["tokens_per_pass"]),
        "speed-up measured": f"{_number(speedup['measured'])} ×",
        "speed-up by the formula": f"{_number(speedup['formula'])} × "
        f"(with v = 1: {_number(speedup['ideal'])} ×)",
    }
    if speedup["factors"]:
        rows["from ideal to measured"] = ", ".join(
            f"{name} × {_number(factor)}" for name, factor in speedup["factors"].items()
        )
    for name, value in rows.items():
        table.add_row(Text(name, "bold"), Text(value))
    return table


def _agreement(agreement: dict[str, Any]) -> str:
    if agreement["kind"] != "differs":
        return str(agreement["kind"])
    sides = " and ".join(
        f"{agreement[lane]['text']!r} (logit {agreement[lane]['logit']:g})"
        for lane in ("plain", "speculative")
    )
    return f"differs at token {agreement['position']}: {sides}, gap {agreement['gap']:g}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _load(options: argparse.Namespace, console: Console) -> Any:
    from kernels.pairs import load_pair

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        console=console,
        transient=True,
    ) as bar:
        tasks: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        return load_pair(
            options.pair,
            target=options.target,
            draft=options.draft,
            progress=progress,
            device=options.device,
            precision=options.precision,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernels race",
        description="Write one answer twice, by plain and by speculative decoding, and compare.",
    )
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, help="what to answer")
    parser.add_argument(
        "--no-chat", action="store_true", help="continue the prompt, without chat template"
    )
    parser.add_argument(
        "--m",
        type=whole_or_adaptive,
        default=Settings.m,
        help='drafted tokens a round, 1 to 16, or "adaptive"',
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--top-k", type=int, default=0, help="0 keeps all tokens")
    parser.add_argument("--top-p", type=float, default=1.0, help="1 keeps all tokens")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, help="1 is none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, default=96, help="new tokens at most")
    parser.add_argument("--drafter", choices=DRAFTERS, default="both", help="who guesses")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end where this text appears"
    )
    parser.add_argument("--pair", default="embedded", help="a preset pair of models")
    parser.add_argument("--target", help="path or Hugging Face id of the large model")
    parser.add_argument("--draft", help='path or id of the small model, or "none"')
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    parser.add_argument("--precision", default="auto", help="auto, bf16, fp32")
    parser.add_argument("--trace", type=Path, help="write a recording to this file")
    parser.add_argument("--chrome", type=Path, help="write it for ui.perfetto.dev as well")
    parser.add_argument("--json", action="store_true", help="print the statistics as one line")
    return parser
