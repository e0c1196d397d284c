"""A trace: everything a run leaves behind, small enough to ship and strict enough to trust.

A run is a header and a list of events, the same JSON objects that travel to the page while it runs
(docs/trace.md describes them). In a file each pass is an array instead of an object, which makes it
three times smaller; `expand` and `compact` are the two directions. A trace may come from anyone, so
`validate` refuses whatever the player could stumble over. Free of torch and numpy.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import SdError

SCHEMA = "speculative-decoding-live/trace/1"

LANES = ("plain", "speculative")
KINDS = ("prefill", "decode", "draft", "verify")
ORIGINS = ("target", "drafted", "accepted", "rejected", "supplied", "bonus")
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


@dataclass(frozen=True)
class Trace:
    """A validated recording: `header` and expanded `events` as docs/trace.md describes them."""

    header: dict[str, Any]
    events: list[dict[str, Any]]

    @classmethod
    def from_events(cls, events: Iterable[Mapping[str, Any]]) -> Trace:
        """From what a race yields: `start` gives the header; loading and queue news are left out.

        Raises TraceError when the run did not get as far as its header, or ended in an error.
        """
        header: dict[str, Any] | None = None
        kept: list[dict[str, Any]] = []
        for event in events:
            if event["type"] == "start":
                header = event["header"]
            elif event["type"] in ("pass", "finish", "end"):
                kept.append(dict(event))
            elif event["type"] == "error":
                raise TraceError("the run", f"ended in an error ({event.get('code')})")
        if header is None:
            raise TraceError("the run", "has no start event")
        return validate({"schema": SCHEMA, "header": header, "events": kept})

    def dumps(self) -> str:
        """The file's text: one event a line, so that two recordings can be compared by diff."""
        lines = ",\n".join(_dump(compact(event)) for event in self.events)
        return f'{{"schema":{_dump(SCHEMA)},\n"header":{_dump(self.header)},\n"events":[\n{lines}\n]}}\n'

    def write(self, path: Path) -> None:
        """Write the file whole or not at all."""
        partial = path.with_name(path.name + ".part")
        partial.write_text(self.dumps(), "utf-8")
        os.replace(partial, path)

    @classmethod
    def read(cls, path: Path) -> Trace:
        """Read and validate; raises TraceError. Looks at the size before it reads."""
        if path.stat().st_size > MAX_BYTES:
            raise TraceError("the file", f"is larger than {MAX_BYTES} bytes")
        return loads(path.read_bytes())

    def text(self, lane: str) -> str:
        """What the lane wrote."""
        return "".join(
            token["text"]
            for event in self.events
            if event["type"] == "pass" and event["lane"] == lane
            for token in event["tokens"]
            if token["origin"] in EMITTED
        )

    def to_chrome_trace(self) -> dict[str, Any]:
        """The Trace Event Format of Chrome, which ui.perfetto.dev opens: one track a lane and model."""
        tracks = {
            ("plain", "target"): 1,
            ("speculative", "target"): 2,
            ("speculative", "draft"): 3,
        }
        pair = self.header["pair"]
        rows: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": pair["name"]}}
        ]
        for (lane, model), track in tracks.items():
            rows.append(
                {
                    "name": "thread_name",
                    "ph": "M",
                    "pid": 1,
                    "tid": track,
                    "args": {"name": f"{lane}: {model}"},
                }
            )
        for event in self.events:
            if event["type"] == "pass":
                model = "draft" if event.get("by") else "target"
                rows.append(
                    {
                        "name": event["kind"],
                        "cat": event["lane"],
                        "ph": "X",
                        "ts": round(event["start"] * MICROSECONDS),
                        "dur": round((event["end"] - event["start"]) * MICROSECONDS),
                        "pid": 1,
                        "tid": tracks[event["lane"], model],
                        "args": {
                            "rows": event["rows"],
                            "text": "".join(token["text"] for token in event["tokens"]),
                            "tokens": event["tokens"],
                        },
                    }
                )
        return {
            "traceEvents": rows,
            "displayTimeUnit": "ms",
            "otherData": {"schema": SCHEMA, "created": self.header["created"]},
        }


def loads(data: str | bytes) -> Trace:
    """A trace from the text of a file, or TraceError."""
    if len(data) > MAX_BYTES:
        raise TraceError("the file", f"is larger than {MAX_BYTES} bytes")
    try:
        return validate(json.loads(data, parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:  # also: not UTF-8, a number of 10 000 digits
        raise TraceError("the file", "is not JSON text") from error


def _refuse_constant(name: str) -> None:
    raise TraceError("a number", f"is {name}")


def compact(event: Mapping[str, Any]) -> Any:
    """A pass as the array [lane, kind, start, end, rows, by, tokens] of a file; others unchanged.

    lane: 0 plain, 1 speculative; times in whole microseconds; each token
    [id, text, origin, p, q, u, by] without trailing nulls, its origin null where the kind implies it.
    """
    if event["type"] != "pass":
        return dict(event)
    implied = IMPLIED_ORIGIN.get(event["kind"])
    tokens = []
    for token in event["tokens"]:
        row = [
            token["id"],
            token["text"],
            None if token["origin"] == implied else token["origin"],
            *(token.get(name) for name in ("p", "q", "u", "by")),
        ]
        while row[-1] is None:
            row.pop()
        tokens.append(row)
    return [
        LANES.index(event["lane"]),
        event["kind"],
        round(event["start"] * MICROSECONDS),
        round(event["end"] * MICROSECONDS),
        event["rows"],
        event.get("by"),
        tokens,
    ]


def expand(row: Any) -> Any:
    """The way back from `compact`. Leaves anything that has not its shape for `validate` to refuse."""
    if not isinstance(row, list) or len(row) != 7 or not isinstance(row[6], list):
        return row
    lane, kind, start, end, rows, by, tokens = row
    if type(lane) is not int or not 0 <= lane < len(LANES) or not isinstance(kind, str):
        return row
    event: dict[str, Any] = {
        "type": "pass",
        "lane": LANES[lane],
        "kind": kind,
        "start": _seconds(start),
        "end": _seconds(end),
        "rows": rows,
    }
    if by is not None:
        event["by"] = by
    event["tokens"] = [_expand_token(token, kind) for token in tokens]
    return event


def _seconds(microseconds: Any) -> Any:
    return microseconds / MICROSECONDS if type(microseconds) is int else microseconds


def _expand_token(row: Any, kind: str) -> Any:
    if not isinstance(row, list) or not 2 <= len(row) <= 7:
        return row
    token: dict[str, Any] = {"id": row[0], "text": row[1]}
    origin = row[2] if len(row) > 2 else None
    token["origin"] = IMPLIED_ORIGIN.get(kind) if origin is None else origin
    for name, value in zip(("p", "q", "u", "by"), row[3:], strict=False):
        if value is not None:
            token[name] = value
    return token


# ---- validation --------------------------------------------------------------------------------


def validate(value: Any) -> Trace:
    """The trace in parsed JSON, with compact passes expanded, or TraceError naming place and reason."""
    _object(value, "the file", {"schema", "header", "events"})
    if value["schema"] != SCHEMA:
        raise TraceError("schema", f"is not {SCHEMA}")
    _header(value["header"])
    if not isinstance(value["events"], list) or len(value["events"]) > MAX_EVENTS:
        raise TraceError("events", f"is not a list of at most {MAX_EVENTS}")
    events = [expand(event) for event in value["events"]]
    clocks = dict.fromkeys(LANES, 0.0)
    finished: set[str] = set()
    for number, event in enumerate(events):
        _event(event, f"events[{number}]", clocks, finished, last=number == len(events) - 1)
    if not events or events[-1]["type"] != "end":
        raise TraceError("events", "does not close with an end event")
    return Trace(value["header"], events)


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
    if settings.get("m") != "adaptive":
        _number(settings.get("m"), "header.settings.m", 1, 16, whole=True)
    _number(settings.get("temperature"), "header.settings.temperature", 0, 5)


def _event(
    event: Any, where: str, clocks: dict[str, float], finished: set[str], *, last: bool
) -> None:
    _object(event, where)
    kind = event.get("type")
    if kind == "pass":
        _pass(event, where, clocks, finished)
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


def _pass(event: Any, where: str, clocks: dict[str, float], finished: set[str]) -> None:
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
        _token(token, f"{where}.tokens[{i}]", event["kind"])
    if event["kind"] == "verify":
        _order([token["origin"] for token in tokens], f"{where}.tokens")


def _token(token: Any, where: str, kind: str) -> None:
    _object(token, where, {"id", "text", "origin"}, optional={"p", "q", "u", "by"})
    _number(token["id"], f"{where}.id", 0, 2**31, whole=True)
    _text(token["text"], f"{where}.text")
    implied = IMPLIED_ORIGIN.get(kind)
    allowed = (implied,) if implied else ("accepted", "rejected", "supplied", "bonus")
    _one_of(token["origin"], allowed, f"{where}.origin")
    for name in ("p", "q", "u"):
        if name in token:
            _number(token[name], f"{where}.{name}", 0, 1)
    if "by" in token:
        _one_of(token["by"], DRAFTERS, f"{where}.by")


def _order(origins: Sequence[str], where: str) -> None:
    """accepted …, then: nothing (the text ended), or a bonus, or rejected and supplied."""
    rest = list(origins)
    while rest and rest[0] == "accepted":
        rest.pop(0)
    if rest not in ([], ["bonus"], ["rejected", "supplied"]):
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


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
