"""What makes a trace one that can be shown: the rules of docs/trace.md, one by one.

A recording may come from anyone, so everything is checked before anything is drawn: entries, types,
bounds, order. `TraceError` names the first place that breaks a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from kernels.errors import SdError
from kernels.settings import ADAPTIVE, BOUNDS

SCHEMA = "speculative-decoding-live/trace/1"
#: Version of the header's `source`, the account of a run whose passes were not measured.
SOURCE_VERSION = 1

LANES = ("plain", "speculative")
KINDS = ("prefill", "decode", "draft", "verify")
EMITTED = frozenset({"target", "accepted", "supplied", "bonus"})
DRAFTERS = ("model", "lookup")
REASONS = ("end", "stop", "length", "context", "cancelled")
AGREEMENTS = ("identical", "differs", "sampled", "unfinished")
#: The origin of a token that a pass of this kind holds, where only one is possible.
IMPLIED_ORIGIN = {"prefill": "target", "decode": "target", "draft": "drafted"}

MAX_BYTES = 2_000_000
MAX_EVENTS = 40_000
MAX_TEXT = 400  # characters of one token or one short string
MAX_PROMPT = 40_000
MAX_SECONDS = 100_000.0
MICROSECONDS = 1_000_000


class TraceError(SdError):
    """Not a trace that can be shown. `detail`: where in the file, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            "bad_trace",
            f"This is not a usable trace: {where} {why}. Record it again with "
            "`python -m kernels race --trace FILE`.",
            where=where,
            why=why,
        )


def check(value: Any) -> None:
    """Raise TraceError unless `value` is a run with all its passes as objects."""
    _object(value, "the file", {"schema", "header", "events"})
    if value["schema"] != SCHEMA:
        raise TraceError("schema", f"is not {SCHEMA}")
    _header(value["header"])
    events = value["events"]
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise TraceError("events", f"is not a list of at most {MAX_EVENTS}")
    clocks = dict.fromkeys(LANES, 0.0)
    finished: set[str] = set()
    inferred = "source" in value["header"]
    for number, event in enumerate(events):
        last = number == len(events) - 1
        _event(event, f"events[{number}]", clocks, finished, last=last, inferred=inferred)
    if not events or events[-1]["type"] != "end":
        raise TraceError("events", "does not close with an end event")


def _header(header: Any) -> None:
    _object(
        header,
        "header",
        {
            "created",
            "command",
            "device",
            "versions",
            "pair",
            "settings",
            "prompt_tokens",
            "guarantee",
        },
        optional={"source"},
    )
    for name in ("created", "command", "guarantee"):
        _text(header[name], f"header.{name}", MAX_PROMPT)
    _number(header["prompt_tokens"], "header.prompt_tokens", 0, 10_000_000, whole=True)
    for name in ("device", "versions", "pair", "settings"):
        _object(header[name], f"header.{name}")
        _plain(header[name], f"header.{name}", MAX_PROMPT)
    _text(header["device"].get("name"), "header.device.name")
    for name in ("name", "target"):
        _text(header["pair"].get(name), f"header.pair.{name}")
    settings = header["settings"]
    _text(settings.get("prompt"), "header.settings.prompt", MAX_PROMPT)
    if settings.get("m") != ADAPTIVE:
        _number(settings.get("m"), "header.settings.m", *BOUNDS["m"], whole=True)
    _number(settings.get("temperature"), "header.settings.temperature", *BOUNDS["temperature"])
    if "source" in header:
        _source(header["source"])


def _source(source: Any) -> None:
    _object(source, "header.source", {"version", "server", "passes", "lanes", "m"})
    if source["version"] != SOURCE_VERSION:
        raise TraceError("header.source.version", f"is not {SOURCE_VERSION}")
    _text(source["server"], "header.source.server")
    _one_of(source["passes"], ("inferred",), "header.source.passes")
    _one_of(source["lanes"], ("in turn", "together"), "header.source.lanes")
    if source["m"] is not None:
        _number(source["m"], "header.source.m", 1, 1000, whole=True)


def _event(
    event: Any,
    where: str,
    clocks: dict[str, float],
    finished: set[str],
    *,
    last: bool,
    inferred: bool,
) -> None:
    _object(event, where)
    kind = event.get("type")
    if kind == "pass":
        _pass(event, where, clocks, finished, inferred)
    elif kind == "finish":
        _object(event, where, {"type", "lane", "reason", "clock"})
        _one_of(event["lane"], LANES, f"{where}.lane")
        _one_of(event["reason"], REASONS, f"{where}.reason")
        _number(event["clock"], f"{where}.clock", clocks[event["lane"]] - 1e-6, MAX_SECONDS)
        if event["lane"] in finished:
            raise TraceError(where, "finishes a lane twice")
        finished.add(event["lane"])
    elif kind == "end":
        _object(event, where, {"type", "agreement", "stats"})
        _object(event["agreement"], f"{where}.agreement")
        _one_of(event["agreement"].get("kind"), AGREEMENTS, f"{where}.agreement.kind")
        _plain(event["agreement"], f"{where}.agreement", MAX_TEXT)
        _object(event["stats"], f"{where}.stats")
        _plain(event["stats"], f"{where}.stats", MAX_TEXT)
        if not last:
            raise TraceError(where, "is an end event before the last one")
    else:
        raise TraceError(f"{where}.type", "is not pass, finish or end")


def _pass(
    event: Any, where: str, clocks: dict[str, float], finished: set[str], inferred: bool
) -> None:
    required = {"type", "lane", "kind", "start", "end", "rows", "tokens"}
    _object(event, where, required, optional={"by"})
    _one_of(event["lane"], LANES, f"{where}.lane")
    _one_of(event["kind"], KINDS, f"{where}.kind")
    if event["lane"] in finished:
        raise TraceError(where, "comes after its lane finished")
    _number(event["start"], f"{where}.start", clocks[event["lane"]] - 1e-6, MAX_SECONDS)
    _number(event["end"], f"{where}.end", event["start"], MAX_SECONDS)
    clocks[event["lane"]] = event["end"]
    _number(event["rows"], f"{where}.rows", 0, 10_000_000, whole=True)
    if "by" in event:
        _one_of(event["by"], DRAFTERS, f"{where}.by")
    elif event["kind"] == "draft":
        raise TraceError(where, "is a draft pass without its drafter")
    if event["lane"] == "plain" and event["kind"] in ("draft", "verify"):
        raise TraceError(where, "drafts in the plain lane")
    tokens = event["tokens"]
    if not isinstance(tokens, list) or len(tokens) > 64:
        raise TraceError(f"{where}.tokens", "is not a list of at most 64")
    for i, token in enumerate(tokens):
        _token(token, f"{where}.tokens[{i}]", event["kind"], inferred)
    if event["kind"] == "verify":
        _order([token["origin"] for token in tokens], f"{where}.tokens", inferred)


def _token(token: Any, where: str, kind: str, inferred: bool) -> None:
    _object(token, where, {"id", "text", "origin"}, optional={"p", "q", "u", "by"})
    _number(token["id"], f"{where}.id", 0, 2**31, whole=True)
    _text(token["text"], f"{where}.text")
    implied = IMPLIED_ORIGIN.get(kind)
    judged = ("accepted", "target") if inferred else ("accepted", "rejected", "supplied", "bonus")
    allowed = (implied,) if implied else judged
    _one_of(token["origin"], allowed, f"{where}.origin")
    for name in ("p", "q", "u"):
        if name in token:
            _number(token[name], f"{where}.{name}", 0, 1)
    if "by" in token:
        _one_of(token["by"], DRAFTERS, f"{where}.by")


def _order(origins: Sequence[str], where: str, inferred: bool) -> None:
    """accepted …, then: nothing (the text ended), or a bonus, or rejected and supplied.

    Seen from outside the last one is the target's, whichever of these it was.
    """
    rest = list(origins)
    while rest and rest[0] == "accepted":
        rest.pop(0)
    if rest not in ([["target"]] if inferred else [[], ["bonus"], ["rejected", "supplied"]]):
        raise TraceError(
            where, "are not accepted ones, then a bonus or a rejected and supplied one"
        )


def _object(
    value: Any, where: str, required: set[str] | None = None, optional: Iterable[str] = ()
) -> None:
    if not isinstance(value, dict):
        raise TraceError(where, "is not an object")
    if required is not None:
        missing = required - value.keys()
        if missing:
            raise TraceError(where, f"lacks {sorted(missing)[0]}")
        strange = value.keys() - required - set(optional)
        if strange:
            raise TraceError(where, f"has the unknown entry {sorted(strange)[0][:40]!r}")


def _text(value: Any, where: str, longest: int = MAX_TEXT) -> None:
    if not isinstance(value, str) or len(value) > longest:
        raise TraceError(where, f"is not a text of at most {longest} characters")


def _number(value: Any, where: str, low: float, high: float, *, whole: bool = False) -> None:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TraceError(where, f"is not a {'whole ' if whole else ''}number")
    if not (math.isfinite(value) and low <= value <= high):
        raise TraceError(where, f"is not between {low:g} and {high:g}")


def _one_of(value: Any, allowed: Sequence[Any], where: str) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise TraceError(where, "is not one of " + ", ".join(map(str, allowed)))


def _plain(value: Any, where: str, longest: int, depth: int = 0) -> None:
    """Bounded JSON: at most 5 levels, 100 entries a level, finite numbers."""
    if isinstance(value, (dict, list)):
        if depth > 4 or len(value) > 100:
            raise TraceError(where, "is too deep or too long")
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            _text(str(key), where, 100)
            _plain(item, f"{where}.{key}", longest, depth + 1)
    elif isinstance(value, str):
        _text(value, where, longest)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _number(value, where, -1e18, 1e18)
    elif value is not None and not isinstance(value, bool):
        raise TraceError(where, "is no JSON value")
