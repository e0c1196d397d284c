"""A trace: everything a run leaves behind, small enough to ship and strict enough to trust.

A run is a header and a list of events, the same JSON objects that travel to the page while it runs
(docs/trace.md describes them). In a file each pass is an array instead of an object, which makes it
three times smaller; `expand` and `compact` are the two directions. A trace may come from anyone, so
`validate` refuses whatever a player could stumble over (trace_check.py). Free of torch and numpy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.trace_check import (
    EMITTED,
    IMPLIED_ORIGIN,
    LANES,
    MAX_BYTES,
    MICROSECONDS,
    SCHEMA,
    TraceError,
    check,
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
                kept.clear()  # a cluster begins again where a machine was lost
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
        head = f'"schema":{_dump(SCHEMA)},\n"header":{_dump(self.header)}'
        return f'{{{head},\n"events":[\n{lines}\n]}}\n'

    def write(self, path: Path) -> None:
        """Write the file whole or not at all."""
        partial = path.with_name(path.name + ".part")
        partial.write_text(self.dumps(), "utf-8")
        partial.replace(path)

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
        """Chrome's Trace Event Format, which ui.perfetto.dev opens: one track a lane and model."""
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
    [id, text, origin, p, q, u, by] without trailing nulls, origin null where the kind implies it.
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
    """The way back from `compact`; what has not its shape is left for `validate` to refuse."""
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


def validate(value: Any) -> Trace:
    """The trace in parsed JSON, its passes expanded, or TraceError naming place and reason."""
    if isinstance(value, dict) and isinstance(value.get("events"), list):
        value = {**value, "events": [expand(event) for event in value["events"]]}
    check(value)
    return Trace(value["header"], value["events"])


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
