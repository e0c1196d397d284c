"""The trace format: round trip, size, and refusal of everything that is not a trace."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.race import race
from kernels.settings import Settings
from kernels.trace import Trace, compact, expand, loads, validate
from kernels.trace_check import MAX_BYTES, SCHEMA, TraceError
from tests.kernels.fakes import FakePair, TabularDecoder, random_table


def run(**settings: Any) -> list[dict[str, Any]]:
    target = random_table(0, 26, 2)
    pair = FakePair(
        TabularDecoder(target, context_length=512),
        TabularDecoder(target + random_table(5, 26, 2) * 0.6, context_length=512),
    )
    return list(race(pair, Settings("hello", **settings)))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.from_events(run(length=40, temperature=1.0, drafter="both"))


def as_json(trace: Trace) -> dict[str, Any]:
    return json.loads(trace.dumps())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("m", [1, 4, "adaptive"])
def test_round_trip_is_exact(temperature: float, m: int | str, tmp_path: Path) -> None:
    events = run(length=60, temperature=temperature, m=m)
    trace = Trace.from_events(events)
    trace.write(tmp_path / "t.json")
    again = Trace.read(tmp_path / "t.json")
    assert again == trace
    assert again.events == [e for e in events if e["type"] != "start"]
    assert not list(tmp_path.glob("*.part"))


def test_two_hundred_tokens_stay_small() -> None:
    # An always-wrong draft is the worst case: five passes for each token.
    wrong = TabularDecoder(-4 * random_table(0, 26, 2), context_length=512)
    pair = FakePair(TabularDecoder(random_table(0, 26, 2), context_length=512), wrong)
    settings = Settings("hello", length=200, temperature=1.0, drafter="model")
    text = Trace.from_events(race(pair, settings)).dumps()
    assert len(text.encode()) < 100_000


def test_text_is_what_the_lane_wrote(trace: Trace) -> None:
    assert len(trace.text("plain")) == 40  # one letter a token
    assert len(trace.text("speculative")) == 40


def test_times_add_up(trace: Trace) -> None:
    for lane in ("plain", "speculative"):
        passes = [e for e in trace.events if e["type"] == "pass" and e["lane"] == lane]
        clock = next(
            e["clock"] for e in trace.events if e["type"] == "finish" and e["lane"] == lane
        )
        ends = [0.0] + [p["end"] for p in passes]
        assert all(p["start"] >= end for p, end in zip(passes, ends, strict=False))
        assert passes[-1]["end"] <= clock
        assert sum(p["end"] - p["start"] for p in passes) <= clock


def test_markup_is_text() -> None:
    events = run(length=3)
    events[1]["tokens"][0]["text"] = "<img src=x onerror=alert(1)>"
    trace = loads(Trace.from_events(events).dumps())
    assert trace.text(events[1]["lane"]).startswith("<img src=x onerror=alert(1)>")


def first_pass(value: dict[str, Any], kind: str) -> dict[str, Any]:
    """Replace the first compact pass of a kind by its object form, and return that."""
    for i, event in enumerate(value["events"]):
        if isinstance(event, list) and event[1] == kind:
            value["events"][i] = expand(event)
            return value["events"][i]
    raise AssertionError(kind)


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


#: The header's account of a run that was seen from outside.
SEEN = {"version": 1, "server": "x", "passes": "inferred", "lanes": "in turn", "m": None}

HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "wrong schema": lambda v: v.update(schema="speculative-decoding-live/trace/2"),
    "no schema": lambda v: v.pop("schema"),
    "extra entry": lambda v: v.update(script="x"),
    "header is a list": lambda v: v.update(header=[]),
    "header lacks the device": lambda v: v["header"].pop("device"),
    "header too deep": lambda v: v["header"]["versions"].update(a=deep(9)),
    "header too wide": lambda v: v["header"]["versions"].update({str(i): "" for i in range(200)}),
    "long device": lambda v: v["header"]["device"].update(name="x" * 10_000),
    "m out of range": lambda v: v["header"]["settings"].update(m=99),
    "m is a bool": lambda v: v["header"]["settings"].update(m=True),
    "events is an object": lambda v: v.update(events={}),
    "no end": lambda v: v["events"].pop(),
    "two ends": lambda v: v["events"].append(v["events"][-1]),
    "finish twice": lambda v: v["events"].insert(-1, v["events"][-2]),
    "unknown event": lambda v: v["events"].insert(0, {"type": "eval"}),
    "event is a number": lambda v: v["events"].insert(0, 7),
    "array of wrong length": lambda v: v["events"].insert(0, [0, "decode"]),
    "lane out of range": lambda v: v["events"][0].__setitem__(0, 2),
    "lane negative": lambda v: v["events"][0].__setitem__(0, -1),
    "unknown kind": lambda v: v["events"][0].__setitem__(1, "sleep"),
    "time is text": lambda v: v["events"][0].__setitem__(2, "0"),
    "time runs backwards": lambda v: v["events"][0].__setitem__(3, -5),
    "time is huge": lambda v: v["events"][-3].__setitem__(3, 10**18),
    "rows negative": lambda v: v["events"][0].__setitem__(4, -1),
    "unknown drafter": lambda v: first_pass(v, "draft").update(by="oracle"),
    "draft without drafter": lambda v: first_pass(v, "draft").pop("by"),
    "plain lane verifies": lambda v: first_pass(v, "verify").update(lane="plain"),
    "token without text": lambda v: first_pass(v, "decode")["tokens"][0].pop("text"),
    "token text is markup object": lambda v: first_pass(v, "decode")["tokens"][0].update(text={}),
    "token text endless": lambda v: first_pass(v, "decode")["tokens"][0].update(text="x" * 5000),
    "token id negative": lambda v: first_pass(v, "decode")["tokens"][0].update(id=-1),
    "token id fractional": lambda v: first_pass(v, "decode")["tokens"][0].update(id=1.5),
    "origin of another kind": lambda v: first_pass(v, "decode")["tokens"][0].update(
        origin="accepted"
    ),
    "p above 1": lambda v: first_pass(v, "verify")["tokens"][0].update(p=1.5),
    "u is null": lambda v: first_pass(v, "verify")["tokens"][0].update(u=None),
    "too many tokens": lambda v: first_pass(v, "draft").update(
        tokens=first_pass(v, "draft")["tokens"] * 65
    ),
    "accepted after supplied": lambda v: first_pass(v, "verify").update(
        tokens=[
            {"id": 1, "text": "a", "origin": "supplied"},
            {"id": 1, "text": "a", "origin": "accepted"},
        ]
    ),
    "stats with a million": lambda v: v["events"][-1]["stats"].update(x=[0] * 1_000_000),
    "source of a later version": lambda v: v["header"].update(source=SEEN | {"version": 2}),
    "source with more": lambda v: v["header"].update(source=SEEN | {"address": "x"}),
    "source that was measured": lambda v: v["header"].update(source=SEEN | {"passes": "measured"}),
    "source without lanes": lambda v: v["header"].update(source={**SEEN, "lanes": None}),
    "inferred yet rejected": lambda v: v["header"].update(source=SEEN),
    "agreement unknown": lambda v: v["events"][-1]["agreement"].update(kind="maybe"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_traces_are_refused(trace: Trace, name: str) -> None:
    value = copy.deepcopy(as_json(trace))
    validate(copy.deepcopy(value))
    HOSTILE[name](value)
    with pytest.raises(TraceError) as refused:
        validate(value)
    assert refused.value.code == "bad_trace"
    assert refused.value.detail["where"]
    assert refused.value.detail["why"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        b"\xff\xfe",
        '{"schema": NaN}',
        '{"schema": 1e999}',
        "[" * 100_000,
        '{"schema":' + "9" * 10_000 + "}",
        " " * (MAX_BYTES + 1),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_files_that_are_no_trace(text: str | bytes) -> None:
    with pytest.raises(TraceError):
        loads(text)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1_000_000_000)  # sparse: no disk is used
    with pytest.raises(TraceError, match="larger"):
        Trace.read(path)


#: What a JSON schema cannot say, or says less strictly: only `validate` refuses these.
BEYOND_THE_SCHEMA = {
    "header too deep",
    "header too wide",
    "no end",
    "two ends",
    "finish twice",
    "time runs backwards",
    "draft without drafter",
    "plain lane verifies",
    "origin of another kind",
    "accepted after supplied",
    "inferred yet rejected",
    "stats with a million",
}


@pytest.fixture(scope="module")
def schema() -> Any:
    import jsonschema

    text = (Path(__file__).parents[2] / "docs" / "trace.schema.json").read_text("utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def test_the_schema_takes_both_forms(schema: Any, trace: Trace) -> None:
    schema.validate(as_json(trace))
    objects = {"schema": SCHEMA, "header": trace.header, "events": trace.events}
    schema.validate(json.loads(json.dumps(objects)))


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - BEYOND_THE_SCHEMA))
def test_the_schema_refuses_what_we_refuse(schema: Any, trace: Trace, name: str) -> None:
    value = copy.deepcopy(as_json(trace))
    HOSTILE[name](value)
    assert not schema.is_valid(value)


def test_a_run_seen_from_outside_has_target_tokens_last(schema: Any, trace: Trace) -> None:
    value = as_json(trace)
    value["header"]["source"] = SEEN
    value["events"] = [
        [0, "prefill", 0, 5, 0, None, [[0, "a"]]],
        [0, "decode", 5, 9, 1, None, [[0, " b"]]],
        [1, "prefill", 0, 5, 0, None, [[0, "a"]]],
        [1, "verify", 5, 9, 2, None, [[0, " b", "accepted"], [0, " c", "target"]]],
        value["events"][-1],
    ]
    schema.validate(value)
    seen = validate(copy.deepcopy(value))
    assert seen.text("speculative") == "a b c"
    assert validate(json.loads(seen.dumps())) == seen
    for origins in (["target", "accepted"], ["accepted"], ["accepted", "bonus"]):
        value["events"][3][6] = [[0, "x", origin] for origin in origins]
        with pytest.raises(TraceError):
            validate(copy.deepcopy(value))
    value["events"][3][6] = [[0, " b", "accepted"], [0, " c", "target"]]
    del value["header"]["source"]
    with pytest.raises(TraceError):
        validate(value)


def test_a_failed_run_leaves_no_trace() -> None:
    with pytest.raises(TraceError):
        Trace.from_events([{"type": "error", "code": "prompt_too_long", "detail": {}}])


def test_compact_and_expand_are_inverse(trace: Trace) -> None:
    for event in trace.events:
        assert expand(json.loads(json.dumps(compact(event)))) == event


def test_chrome_trace_holds_every_pass(trace: Trace) -> None:
    chrome = json.loads(json.dumps(trace.to_chrome_trace()))
    spans = [row for row in chrome["traceEvents"] if row["ph"] == "X"]
    passes = [event for event in trace.events if event["type"] == "pass"]
    assert len(spans) == len(passes)
    for span, event in zip(spans, passes, strict=True):
        assert span["ts"] == round(event["start"] * 1e6)
        assert span["dur"] == round((event["end"] - event["start"]) * 1e6) >= 0
        assert span["name"] == event["kind"]
    names = {row["tid"] for row in chrome["traceEvents"] if row["name"] == "thread_name"}
    assert {span["tid"] for span in spans} == names == {1, 2, 3}


def test_importing_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, kernels.trace; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "numpy", "rich", "transformers"} & set(loaded)
