"""`python -m kernels bench`: how fast is this engine, on this machine, honestly?

What limits a decoder at one token a pass is memory: a pass reads every weight once, so no engine on
this machine can make more tokens/s than bandwidth ÷ bytes of the weights. The bench therefore
measures the bandwidth first and gives plain decoding as a share of that limit. Then, prompt by
prompt and taking turns, it times plain decoding, speculation (both drafters; the model alone), and
the same models in transformers, plain and assisted (peers.py). Medians over the repeats; nothing is
timed side by side. `--peers vllm,llama.cpp` adds their servers (peer_servers.py). It ends with one
JSON line. `contaminated` says that somebody else used the processor meanwhile: then measure again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import machine
from kernels.prompts import LEVELS, Prompt, prompts
from kernels.race import Lane, encode_prompt, plain_lane, speculative_lane
from kernels.settings import Settings, whole_or_adaptive
from kernels.summary import LaneLog, summarize

if TYPE_CHECKING:
    from kernels.pairs import Pair

PEER_PROMPTS = 3  # transformers is slow: one prompt of each level


@dataclass
class Run:
    """One lane over one prompt: its tokens and its log."""

    tokens: list[int]
    log: LaneLog

    @property
    def seconds_a_token(self) -> float:
        """Of the decode phase."""
        return self.log.decode_seconds / max(1, self.log.decoded)


def main(argv: list[str]) -> int:
    """Measure, print progress and a table to stderr and one JSON line to stdout."""
    options = _parser().parse_args(argv)
    from kernels.pairs import load_pair

    pair = load_pair(options.pair, target=options.target, draft=options.draft)
    chosen = prompts()[:: options.every]
    with machine.Contention() as contention:
        result = measure(pair, chosen, options.length, options.m, options.repeat, _say)
        if not options.no_peers:
            from kernels.peers import compare

            result |= compare(pair, options, _one_of_each_level(chosen), _say)
        if options.peers:
            from kernels import peer_servers

            result |= peer_servers.compare(pair, options, chosen, _say, contention)
    result["contaminated"] = contention.contaminated
    result |= {"others_share": contention.others, "stolen_share": contention.stolen}
    print(json.dumps(rounded(result)))
    return 0


def measure(
    pair: Pair,
    chosen: Iterable[Prompt],
    length: int,
    m: int | str,
    repeat: int,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Everything about our own engine: the entries of the JSON line except the peers'.

    length: new tokens at most. m: drafted tokens a round. repeat: runs of each lane and prompt.
    """
    bandwidth = read_bandwidth()
    say(f"read bandwidth {bandwidth / 1e9:.1f} GB/s" if bandwidth else "read bandwidth unknown")
    rows = []
    for prompt in chosen:
        row = measure_prompt(pair, prompt, length, m, repeat)
        rows.append(row)
        say(
            f"{prompt.id:12}{prompt.level:8}plain {row['plain_tokens_per_s']:6.1f}/s   "
            f"both {row['speculative_vs_plain']:.2f} x   model {_times(row['model_vs_plain'])}   "
            f"{row['tokens_per_pass']:.2f} tokens a pass"
        )
    plain = _rate(rows, "plain_tokens_per_s")
    weights = getattr(pair.target, "weight_bytes", None)
    return {
        "schema": "speculative-decoding-live/bench/1",
        "created": machine.timestamp(),
        "device": machine.describe(),
        "versions": dict(machine.versions("torch", "transformers", "numpy")),
        "pair": {"name": pair.name, "target": pair.target.name, "draft": _name(pair.draft)},
        "backend": pair.target.describe().backend,
        "precision": pair.target.precision,
        "m": m,
        "length": length,
        "repeat": repeat,
        "read_bandwidth_gbs": bandwidth / 1e9 if bandwidth else None,
        "plain_tokens_per_s": plain,
        "plain_share_of_bandwidth": weights * plain / bandwidth if weights and bandwidth else None,
        "speculative_tokens_per_s": _rate(rows, "speculative_tokens_per_s"),
        "speculative_vs_plain": _rate(rows, "speculative_tokens_per_s") / plain,
        "speculative_vs_plain_by_level": {
            level: _rate(some, "speculative_tokens_per_s") / _rate(some, "plain_tokens_per_s")
            for level in LEVELS
            if (some := [row for row in rows if row["level"] == level])
        },
        "draft_only_vs_plain": _rate(rows, "model_tokens_per_s") / plain if pair.draft else None,
        "acceptance_rate": _pooled(rows, "accepted", "judged"),
        "cost_ratio": _median(rows, "cost_ratio"),
        "verify_cost": _median(rows, "verify_cost"),
        "tokens_per_pass": _pooled(rows, "tokens", "passes"),
        "greedy_identical": all(row["greedy_identical"] for row in rows),
        "prompts": rows,
    }


def measure_prompt(
    pair: Pair, prompt: Prompt, length: int, m: int | str, repeat: int
) -> dict[str, Any]:
    """One prompt, greedy: plain, both drafters, the model alone, taking turns `repeat` times."""
    both = Settings(prompt.text, length=length, m=m)  # type: ignore[arg-type]
    lanes: dict[str, Callable[[], Lane]] = {
        "plain": lambda: plain_lane(pair, encode_prompt(pair, both), both),
        "speculative": lambda: speculative_lane(pair, encode_prompt(pair, both), both),
    }
    if pair.draft is not None:
        alone = replace(both, drafter="model")
        lanes["model"] = lambda: speculative_lane(pair, encode_prompt(pair, alone), alone)
    runs: dict[str, list[Run]] = {name: [] for name in lanes}
    for _ in range(repeat):
        for name, make in lanes.items():
            runs[name].append(finish(make()))
    rates = {
        name: 1 / statistics.median(run.seconds_a_token for run in some)
        for name, some in runs.items()
    }
    middle = {
        name: sorted(some, key=lambda run: run.seconds_a_token)[len(some) // 2]
        for name, some in runs.items()
    }
    stats = summarize(middle["plain"].log, middle["speculative"].log, both)
    model = summarize(middle["plain"].log, middle.get("model", middle["speculative"]).log, both)
    return {
        "id": prompt.id,
        "level": prompt.level,
        "tokens": middle["plain"].log.decoded,
        "passes": middle["speculative"].log.rounds,
        "plain_tokens_per_s": rates["plain"],
        "speculative_tokens_per_s": rates["speculative"],
        "model_tokens_per_s": rates.get("model"),
        "speculative_vs_plain": rates["speculative"] / rates["plain"],
        "model_vs_plain": rates["model"] / rates["plain"] if "model" in rates else None,
        "accepted": stats["acceptance"]["accepted"],
        "judged": stats["acceptance"]["judged"],
        "acceptance_rate": stats["acceptance"]["alpha"],
        "by": stats["acceptance"]["by"],
        # Of the model alone: look-up costs nothing, which would hide what the model costs.
        "model_acceptance_rate": model["acceptance"]["alpha"],
        "cost_ratio": model["c"],
        "verify_cost": stats["v"],
        "tokens_per_pass": stats["tokens_per_pass"],
        "speedup": stats["speedup"],
        "greedy_identical": len({tuple(run.tokens) for some in runs.values() for run in some}) == 1,
    }


def finish(lane: Lane) -> Run:
    """Run a lane to its end."""
    while (item := lane.step()) is not None:
        lane.log.add(item, lane.clock.now())
    return Run(lane.transcript.new_tokens, lane.log)


def read_bandwidth() -> float | None:
    """Bytes/s that the decoder's threads read from memory; None where it cannot be compiled."""
    from kernels.native.bandwidth import read_bandwidth as measured
    from kernels.native.library import NativeUnavailable

    try:
        return measured()
    except NativeUnavailable:
        return None


def rounded(value: Any) -> Any:
    """The same JSON value with numbers of four significant digits: more was not measured."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _rate(rows: list[dict[str, Any]], name: str) -> float:
    """Tokens/s over all rows together: total tokens over total time."""
    tokens = sum(row["tokens"] for row in rows)
    return float(tokens / sum(row["tokens"] / row[name] for row in rows))


def _pooled(rows: list[dict[str, Any]], above: str, below: str) -> float | None:
    total = sum(row[below] for row in rows)
    return sum(row[above] for row in rows) / total if total else None


def _median(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return statistics.median(values) if values else None


def _one_of_each_level(chosen: Iterable[Prompt]) -> list[Prompt]:
    first = {prompt.level: prompt for prompt in reversed(list(chosen))}
    return [first[level] for level in LEVELS if level in first][:PEER_PROMPTS]


def _name(decoder: Any) -> str | None:
    return None if decoder is None else str(decoder.name)


def _times(value: float | None) -> str:
    return "  –   " if value is None else f"{value:.2f} x"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _names(text: str) -> tuple[str, ...]:
    from kernels.peer_servers import SERVERS

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := set(names) - set(SERVERS):
        raise argparse.ArgumentTypeError(f"{min(unknown)}: known are {', '.join(SERVERS)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernels bench",
        description="Measure plain and speculative decoding on this machine; one JSON line.",
    )
    parser.add_argument("--json", action="store_true", help="accepted for clarity; always JSON")
    parser.add_argument("--pair", default="embedded", help="a preset pair of models")
    parser.add_argument("--target", help="path or Hugging Face id of the large model")
    parser.add_argument("--draft", help='path or id of the small model, or "none"')
    parser.add_argument(
        "--m", type=whole_or_adaptive, default=Settings.m, help='1 to 16, or "adaptive"'
    )
    parser.add_argument("--length", type=int, default=96, help="new tokens a prompt")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each lane and prompt")
    parser.add_argument("--every", type=int, default=1, help="take every n-th prompt only")
    parser.add_argument("--no-peers", action="store_true", help="leave transformers out")
    parser.add_argument(
        "--peers",
        type=_names,
        default=(),
        metavar="NAMES",
        help="vllm, llama.cpp or both with a comma: real servers, timed beside ours",
    )
    parser.add_argument(
        "--engines",
        type=Path,
        default=Path("build/engines"),
        help="folder of their environments, see scripts/engines.sh",
    )
    parser.add_argument(
        "--gguf", type=Path, help="the target for llama.cpp, if not the embedded one"
    )
    return parser
