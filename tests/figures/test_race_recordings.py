"""The recordings of the race: what they promise, where they come from, how they add up."""

from __future__ import annotations

import tomllib
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

import content
from figures.race import model
from figures.race.figure import RECORDINGS, Race
from kernels.pairs import presets
from kernels.settings import Settings
from kernels.trace import Trace

FOLDER = Path(model.__file__).parent


def recorded(name: str) -> Trace:
    return Trace.read(model.RECORDED / f"{name}.json")


#: Recordings whose passes were measured, and those seen from outside (docs/trace.md, `source`).
MEASURED = [name for name in RECORDINGS if "source" not in recorded(name).header]
INFERRED = [name for name in RECORDINGS if name not in MEASURED]


def test_the_recordings_cover_what_the_article_promises() -> None:
    entries = tomllib.loads((FOLDER / "recordings.toml").read_text("utf-8"))
    assert set(entries) == set(RECORDINGS), "recordings.toml and recorded/ differ"
    assert len(RECORDINGS) >= 6
    measured = {n: recorded(n).events[-1]["stats"]["speedup"]["measured"] for n in RECORDINGS}
    assert min(measured.values()) < 1 < max(measured.values()), "one wins, one loses"
    assert recorded("hot").header["settings"]["temperature"] > 0
    assert Race.recording in RECORDINGS


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_says_where_it_comes_from(name: str) -> None:
    path = model.RECORDED / f"{name}.json"
    header = recorded(name).header
    tokens = recorded(name).events[-1]["stats"]["plain"]["tokens"]
    assert path.stat().st_size < 100_000 * max(1.0, tokens / 200)
    datetime.strptime(header["created"], "%Y-%m-%dT%H:%M:%SZ")
    assert name in header["command"]
    assert header["device"]["name"]
    entries = tomllib.loads((FOLDER / "recordings.toml").read_text("utf-8"))
    assert (name in INFERRED) == bool(entries[name].pop("servers", False))
    if name in MEASURED:
        assert header["versions"]["torch"]
        assert header["pair"]["name"] == next(iter(presets())), "the default pair"
    else:
        assert header["source"]["server"] in [f"{k} {v}" for k, v in header["versions"].items()]
    assert Settings.from_dict(header["settings"]) == Settings(**entries[name])


def test_a_recording_from_a_server_says_what_it_is() -> None:
    assert INFERRED, "one ships"
    for name in INFERRED:
        run = model.recording(model.RECORDED / f"{name}.json")
        for lang in content.LANGUAGES:
            said = Race(recording=name).describe(lang)
            assert run.header["source"]["server"] in said
            assert Race.words(lang)["say.inferred"].split("{")[0] in said
        counts = run.end["stats"]["server"]["counts"]
        assert f"{counts['accepted']} of {counts['drafted']}" in Race(recording=name).describe("en")
        kinds = {p["kind"] for passes in run.passes.values() for p in passes}
        assert kinds <= {"prefill", "decode", "verify"}
        for lane in ("plain", "speculative"):
            counted = run.counts(lane, run.duration)
            assert counted.tokens == run.end["stats"][lane]["tokens"]
            assert counted.rate == pytest.approx(run.end["stats"][lane]["tokens_per_s"], rel=0.01)
        # Its passes leave no gaps: nothing outside them could be seen.
        for passes in run.passes.values():
            assert all(a["end"] == pytest.approx(b["start"]) for a, b in pairwise(passes))


@pytest.mark.parametrize("name", MEASURED)
def test_the_times_of_a_recording_add_up_to_its_clock(name: str) -> None:
    trace = recorded(name)
    for lane in ("plain", "speculative"):
        passes = [e for e in trace.events if e["type"] == "pass" and e["lane"] == lane]
        clock = next(
            e["clock"] for e in trace.events if e["type"] == "finish" and e["lane"] == lane
        )
        gaps = [b["start"] - a["end"] for a, b in pairwise(passes)]
        assert min(gaps) >= -1e-6, "passes of a lane do not overlap"
        inside = sum(p["end"] - p["start"] for p in passes)
        outside = passes[0]["start"] + sum(gaps) + clock - passes[-1]["end"]
        assert inside + outside == pytest.approx(clock, abs=1e-9)
        decode = sum(p["end"] - p["start"] for p in passes if p["kind"] != "prefill")
        stats = trace.events[-1]["stats"][lane]
        assert stats["decode_s"] == pytest.approx(decode + stats["overhead_s"], rel=1e-5, abs=2e-5)


@pytest.mark.parametrize("name", MEASURED)
def test_counting_a_recordings_events_gives_its_statistics(name: str) -> None:
    run = model.recording(model.RECORDED / f"{name}.json")
    stats = run.end["stats"]
    for lane in ("plain", "speculative"):
        counted = run.counts(lane, run.duration)
        assert counted.tokens == stats[lane]["tokens"]
        assert counted.target_passes == stats[lane]["target_passes"]
        assert counted.rate == pytest.approx(stats[lane]["tokens_per_s"], rel=0.01)
    c, s = run.counts("speculative", run.duration), stats["speculative"]
    for origin in (
        "drafted",
        "accepted",
        "rejected",
        "supplied",
        "bonus",
        "draft_passes",
        "rounds",
    ):
        assert getattr(c, origin) == s[origin]
    assert c.accepted + c.supplied + c.bonus + s["target"] == c.tokens
    judged = c.accepted + c.rejected
    interval = (stats["acceptance"]["low"], stats["acceptance"]["high"])
    assert model.wilson(c.accepted, judged) == pytest.approx(interval, abs=1e-5)


@pytest.mark.parametrize("name", MEASURED)
def test_the_ladder_leads_from_the_formula_to_the_measurement(name: str) -> None:
    stats = recorded(name).events[-1]["stats"]
    rungs = dict(model.ladder(stats) or [])
    m, c, v, alpha = stats["m"], stats["c"], stats["v"], stats["acceptance"]["alpha"]
    expected = sum(alpha**i for i in range(m + 1)) if isinstance(m, int) else rungs["tokens"]
    assert rungs["tokens"] == pytest.approx(expected, rel=1e-5)
    assert rungs["drafting"] == pytest.approx(expected / (m * c + 1), rel=1e-4)
    assert rungs["formula"] == pytest.approx(expected / (m * c + v), rel=1e-4)
    overhead = stats["speedup"]["factors"]["overhead"]
    assert rungs["variation"] * overhead == pytest.approx(rungs["measured"], rel=1e-4)


def test_greedy_recordings_wrote_the_same_text_twice() -> None:
    for name in RECORDINGS:
        trace = recorded(name)
        if trace.header["settings"]["temperature"] == 0:
            assert trace.text("plain") == trace.text("speculative") != ""
            assert trace.events[-1]["agreement"]["kind"] == "identical"
