"""What a race has come to at a time t, and the sentence that says so.

Everything follows from the events of a trace (docs/trace.md); nothing is measured here. `model.js`
does the same in the browser, and a test compares the two. Times are seconds on the lanes' clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

from figures.text import duration, num, times
from kernels.trace import Trace

RECORDED = Path(__file__).parent / "recorded"
EMITTED = frozenset({"target", "accepted", "supplied", "bonus"})
#: Two clocks within this many seconds are at the same moment.
SAME = 1e-9
#: Share of a run that is behind when the figure opens.
OPENING = 0.35
#: Longest piece of text quoted in a sentence, in characters.
QUOTE = 24


@dataclass(frozen=True)
class Counts:
    """What one lane has done by a time. rounds: passes of the target after the prompt was read."""

    tokens: int = 0
    rounds: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    supplied: int = 0
    bonus: int = 0
    clock: float = 0.0
    decode_from: float = 0.0

    @property
    def rate(self) -> float | None:
        """Tokens a second after the prompt was read; None before there are any."""
        seconds = self.clock - self.decode_from
        return (self.tokens - 1) / seconds if self.tokens > 1 and seconds > 0 else None


class Run:
    """A trace, by lane: passes in order, and where each ends."""

    def __init__(self, trace: Trace) -> None:
        self.header = trace.header
        #: Whether its passes were not measured but inferred from outside (docs/trace.md).
        self.inferred = "source" in trace.header
        self.passes: dict[str, list[dict[str, Any]]] = {"plain": [], "speculative": []}
        self.finish: dict[str, float] = {}
        self.reason: dict[str, str] = {}
        self.end: dict[str, Any] = trace.events[-1]
        for event in trace.events:
            if event["type"] == "pass":
                mark = {"inferred": True} if self.inferred else {}
                self.passes[event["lane"]].append(event | mark)
            elif event["type"] == "finish":
                self.finish[event["lane"]] = event["clock"]
                self.reason[event["lane"]] = event["reason"]
        self.ends = {lane: [p["end"] for p in passes] for lane, passes in self.passes.items()}

    @property
    def duration(self) -> float:
        """When the slower lane is done."""
        return max([*self.finish.values(), *(e[-1] for e in self.ends.values() if e)], default=0.0)

    def done(self, lane: str, t: float) -> int:
        """How many passes of a lane have ended by t."""
        return bisect_right(self.ends[lane], t + SAME)

    def moments(self) -> list[float]:
        """The times that stepping stops at.

        Each pass of the speculative lane, then what the plain lane still does alone, then the end.
        """
        speculative = self.ends["speculative"]
        last = speculative[-1] if speculative else 0.0
        rest = [end for end in self.ends["plain"] if end > last + SAME]
        stops = [0.0, *speculative, *rest, self.duration]
        return [t for i, t in enumerate(stops) if i == 0 or t > stops[i - 1] + SAME]

    def opening(self) -> float:
        """The time that the figure opens at: after some rounds, marks to see but no result yet."""
        rounds = [p["end"] for p in self.passes["speculative"] if p["kind"] == "verify"]
        early = [end for end in rounds if end <= OPENING * self.duration]
        return (early or rounds[:1] or [0.0])[-1]

    def counts(self, lane: str, t: float) -> Counts:
        """What the lane has done by t."""
        done = self.passes[lane][: self.done(lane, t)]
        origins = [token["origin"] for p in done for token in p["tokens"]]
        finished = lane in self.finish and t + SAME >= self.finish[lane]
        reading = [p["end"] for p in done if p["kind"] == "prefill"]
        rounds = sum(p["kind"] in ("verify", "decode") for p in done)
        return Counts(
            tokens=sum(origin in EMITTED for origin in origins),
            rounds=rounds,
            target_passes=rounds + any(p["kind"] == "prefill" and "by" not in p for p in done),
            draft_passes=sum(p["kind"] == "draft" for p in done),
            drafted=origins.count("drafted"),
            accepted=origins.count("accepted"),
            rejected=origins.count("rejected"),
            supplied=origins.count("supplied"),
            bonus=origins.count("bonus"),
            clock=self.finish[lane] if finished else done[-1]["end"] if done else 0.0,
            decode_from=reading[-1] if reading else 0.0,
        )


@cache
def recording(path: Path) -> Run:
    """Read a recording that ships with the figure.

    Raises:
        TraceError: it is no usable trace.
    """
    return Run(Trace.read(path))


def wilson(kept: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927, doi 10.1080/01621459.1927.10502953)."""
    if judged == 0:
        return 0.0, 1.0
    z, rate = 1.96, kept / judged
    middle = rate + z * z / (2 * judged)
    spread = z * sqrt(rate * (1 - rate) / judged + z * z / (4 * judged * judged))
    scale = 1 + z * z / judged
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def number(stats: Mapping[str, Any], *names: str) -> float | None:
    """Return one number of the statistics, or None where there is none."""
    value: Any = stats
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and value is not True else None


def expected_tokens(alpha: float, m: float) -> float:
    """Tokens a round, (1 − α^(m+1)) / (1 − α): Leviathan et al. 2023 (arXiv 2211.17192), eq. 1."""
    return m + 1 if alpha >= 1 else (1 - alpha ** (m + 1)) / (1 - alpha)


def ladder(stats: Mapping[str, Any]) -> list[tuple[str, float]] | None:
    """From the formula's tokens a round to the measured speed-up, one cost at a time.

    Each rung is what the speed-up would be if only the costs up to it counted: every guess with the
    same α; drafting at c; verification at v (here stands the formula); rounds with fewer guesses
    than m; α that varies; time outside the passes. The last rung is the measured speed-up. The
    factors are docs/trace.md's, and multiply exactly.
    """
    alpha, m = number(stats, "acceptance", "alpha"), number(stats, "m")
    ideal, formula = number(stats, "speedup", "ideal"), number(stats, "speedup", "formula")
    guesses = number(stats, "speedup", "factors", "guesses")
    variation = number(stats, "speedup", "factors", "variation")
    measured = number(stats, "speedup", "measured")
    if alpha is None or m is None or ideal is None or formula is None:
        return None
    if guesses is None or variation is None or measured is None:
        return None
    return [
        ("tokens", expected_tokens(alpha, m)),
        ("drafting", ideal),
        ("formula", formula),
        ("guesses", formula * guesses),
        ("variation", formula * guesses * variation),
        ("measured", measured),
    ]


def bet(measured: float) -> int:
    """Index of the option of the bet that a measured speed-up makes right."""
    return sum(measured >= edge for edge in (1.0, 1.3, 2.0))


def shown(token: Mapping[str, Any]) -> str:
    """A token's text as a sentence quotes it: line ends and blanks visible, never empty."""
    text = token["text"].replace("\n", "⏎").replace("\t", "⇥")
    return text.strip(" ") or "␣" * len(text) or f"#{token['id']}"


def quote(tokens: list[dict[str, Any]]) -> str:
    """Several tokens' text as a sentence quotes it."""
    text = "".join(token["text"] for token in tokens)
    text = text.replace("\n", "⏎").replace("\t", "⇥").strip(" ")
    return (text if len(text) <= QUOTE else text[:QUOTE] + "…") or "␣"


def probability(value: float | None) -> str:
    """A probability, or a ratio of two, as a sentence gives it."""
    if value is None:
        return "–"
    return num(value, 1 if value < 0.001 else 2)


def about(item: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The sentence about one pass: its key below `pass.` and what fills its places."""
    tokens, rows = item["tokens"], item["rows"]
    took = duration(item["end"] - item["start"])
    values = {"ms": took, "rows": num(rows, 6)}
    if item.get("inferred"):
        return inferred(item, values | {"n": num(len(tokens), 6)})
    match item["kind"]:
        case "prefill":
            if "by" in item:
                return "prefill_draft", values
            return "prefill", values | {"token": shown(tokens[0])} if tokens else values
        case "decode":
            key = "decode" if item["lane"] == "speculative" else "plain"
            return key, values | {"token": shown(tokens[0])}
        case "draft":
            guess = {"token": quote(tokens), "n": num(len(tokens), 6)}
            if item["by"] == "lookup":
                return "lookup", values | guess
            q = tokens[0].get("q") if tokens else None
            return "draft", values | guess | {"q": probability(q)}
    m, kept = rows - 1, sum(token["origin"] == "accepted" for token in tokens)
    values |= {"m": num(m, 6), "n": num(kept, 6)}
    refused = next((token for token in tokens if token["origin"] == "rejected"), None)
    if refused is None:
        if tokens and tokens[-1]["origin"] == "bonus":
            return "bonus", values | {"token": shown(tokens[-1])}
        return "ended", values
    p, q, u = refused.get("p"), refused.get("q"), refused.get("u")
    values |= {
        "i": num(kept + 1, 6),
        "guess": shown(refused),
        "token": shown(tokens[-1]),
        "p": probability(p),
        "q": probability(q),
    }
    if u is None or p is None or not q:
        return "refused", values | {"best": probability(tokens[-1].get("p"))}
    return "rejected", values | {"u": probability(u), "ratio": probability(p / q)}


def inferred(item: Mapping[str, Any], values: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The sentence about a pass that nobody has measured: what arrived, and when."""
    tokens = item["tokens"]
    several = "arrived" if len(tokens) > 1 else "arrived_one"
    key = "arrived_first" if item["kind"] == "prefill" else several
    return key, values | {"token": shown(tokens[-1])}


def moment(run: Run, t: float) -> list[tuple[str, dict[str, str]]]:
    """The sentences that say where the race stands at t: keys and what fills their places."""
    if t + SAME >= run.duration:
        return result(run)
    plain, speculative = run.counts("plain", t), run.counts("speculative", t)
    done = run.done("speculative", t)
    if done == 0 and run.done("plain", t) == 0:
        rows = run.header["prompt_tokens"]
        if run.inferred and not rows:
            return [("say.start_unseen", {})]
        return [("say.start", {"rows": num(rows, 6)})]
    standing = {
        "t": duration(t),
        "plain": num(plain.tokens, 6),
        "speculative": num(speculative.tokens, 6),
    }
    if done == len(run.passes["speculative"]):
        return [("say.waiting", standing)]
    if done == 0:
        return [("say.standing", standing)]
    key, values = about(run.passes["speculative"][done - 1])
    return [("say.standing", standing), (f"pass.{key}", values)]


def result(run: Run) -> list[tuple[str, dict[str, str]]]:
    """The sentences that close a race: what it came to, and whether the texts agree."""
    stats, agreement = run.end["stats"], run.end["agreement"]
    sentences: list[tuple[str, dict[str, str]]] = []
    measured, tokens = number(stats, "speedup", "measured"), number(stats, "tokens_per_pass")
    if agreement["kind"] != "unfinished" and measured and tokens:
        values = {"speedup": times(measured), "tokens": num(tokens), "cost": num(tokens / measured)}
        sentences.append((f"say.{'won' if measured >= 1 else 'lost'}", values))
    values = {}
    if agreement["kind"] == "differs":
        sides = {lane: agreement.get(lane) or {} for lane in ("plain", "speculative")}
        values = {
            "position": num((number(agreement, "position") or 0) + 1, 6),
            "plain": shown({"text": "", "id": 0} | sides["plain"]),
            "speculative": shown({"text": "", "id": 0} | sides["speculative"]),
            "plain_logit": num(number(sides["plain"], "logit") or 0, 6),
            "speculative_logit": num(number(sides["speculative"], "logit") or 0, 6),
            "gap": num(number(agreement, "gap") or 0, 3),
        }
    if not run.inferred:
        return [*sentences, (f"say.{agreement['kind']}", values)]
    unseen = {
        "differs": "differs_unseen",
        "identical": "identical_text" if agreement.get("by") == "text" else "identical",
    }
    sentences.append((f"say.{unseen.get(agreement['kind'], agreement['kind'])}", values))
    if count := server_count(stats):
        sentences.append(("say.counted", count))
    return [*sentences, ("say.inferred", {"server": run.header["source"]["server"]})]


def server_count(stats: Mapping[str, Any]) -> dict[str, str] | None:
    """What the server itself counted of its guesses; None where it told nothing."""
    drafted = number(stats, "server", "counts", "drafted")
    accepted = number(stats, "server", "counts", "accepted")
    if drafted is None or accepted is None:
        return None
    rate = num(accepted / drafted, 3) if drafted else "–"
    return {"drafted": num(drafted, 6), "accepted": num(accepted, 6), "rate": rate}
