"""Races between servers: against servers without a model, that tell and fail as they are told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import record, sources
from app.openai_source import OpenAISource
from kernels.endpoint import ServerError
from kernels.errors import SdError
from kernels.settings import BadSetting, Settings
from kernels.trace import Trace, loads
from tests.app.conftest import SOURCE, Open
from tests.fake_openai import SPECULATIVE, FakeOpenAI

TEXT = "One two three four five 中文."
SETTINGS = Settings("count", length=20)


@pytest.fixture(params=["vllm", "llamacpp", "other"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[FakeOpenAI, FakeOpenAI]]:
    with (
        FakeOpenAI(kind=request.param) as plain,
        FakeOpenAI(kind=request.param, pieces=SPECULATIVE) as speculative,
    ):
        yield plain, speculative


@pytest.fixture
def vllm() -> Iterator[tuple[FakeOpenAI, FakeOpenAI]]:
    with FakeOpenAI() as plain, FakeOpenAI(pieces=SPECULATIVE) as speculative:
        yield plain, speculative


def made(pair: tuple[FakeOpenAI, FakeOpenAI], **environment: str) -> OpenAISource:
    plain, speculative = pair
    found = OpenAISource(
        {"SD_PLAIN_URL": plain.url, "SD_SPECULATIVE_URL": speculative.url, **environment}
    )
    for name in ("plain", "speculative"):  # no test waits for a real pause between tries
        object.__setattr__(getattr(found, name), "first_wait", 0.01)
    return found


def run(source: OpenAISource, settings: Settings = SETTINGS) -> list[dict[str, Any]]:
    return list(source.run("servers", settings, lambda: False))


# --- a race ---------------------------------------------------------------------------------------


def test_a_race_is_a_trace_that_says_what_was_not_measured(
    pair: tuple[FakeOpenAI, FakeOpenAI],
) -> None:
    trace = Trace.from_events(run(made(pair)))
    assert trace.text("plain") == trace.text("speculative") == TEXT
    assert loads(trace.dumps()).header == trace.header
    source = trace.header["source"]
    assert source["passes"] == "inferred"
    kind = {"vllm": "vLLM 0.32.0", "llamacpp": "llama.cpp b11549", "other": "OpenAI-compatible"}
    assert source["server"] == kind[pair[0].kind]
    stats = trace.events[-1]["stats"]
    for lane in ("plain", "speculative"):
        assert stats["server"][lane]["completion_tokens"] == 7
        assert stats[lane]["tokens"] == 7, "the server's count where an event holds several tokens"
        assert stats[lane]["overhead_s"] is None
    assert stats["acceptance"]["alpha"] is stats["c"] is stats["v"] is None
    by = "ids" if pair[0].kind == "vllm" else "text"
    assert trace.events[-1]["agreement"] == {"kind": "identical", "by": by}
    known = pair[0].kind != "other"
    assert trace.header["prompt_tokens"] == (31 if known else 0)
    counts = stats["server"]["counts"]
    assert (counts is not None) == known
    if counts:
        assert (counts["drafted"], counts["accepted"]) == (9, 3)
        assert counts["alone"] is (True if pair[0].kind == "vllm" else None)
    # No address of the owner's reaches a reader.
    assert str(pair[0].port) not in trace.dumps()


def test_what_is_asked_is_what_each_server_understands(
    pair: tuple[FakeOpenAI, FakeOpenAI],
) -> None:
    settings = Settings("count", length=9, temperature=0.5, seed=7, stop=("!",))
    run(made(pair, SD_PLAIN_EXTRA='{"speculative.n_max": 0}'), settings)
    plain, speculative = (server.requests[-1] for server in pair)
    for body in (plain, speculative):
        assert body["messages"] == [{"role": "user", "content": "count"}]
        assert (body["max_tokens"], body["temperature"], body["seed"]) == (9, 0.5, 7)
        assert body["stop"] == ["!"]
        assert body["stream"] is True
    assert plain["speculative.n_max"] == 0
    assert "speculative.n_max" not in speculative
    own = {"vllm": "return_token_ids", "llamacpp": "timings_per_token"}
    for kind, name in own.items():
        assert (name in plain) == (pair[0].kind == kind)
    run(made(pair), Settings("go on", chat=False, length=9))
    assert pair[0].requests[-1]["prompt"] == "go on"
    assert pair[0].paths[-1] == "/v1/completions"


def test_settings_that_a_server_lacks_are_refused() -> None:
    with FakeOpenAI(kind="other") as a, FakeOpenAI(kind="other") as b:
        for settings in (
            Settings("x", top_k=5),
            Settings("x", repetition_penalty=1.1),
            Settings("x", length=0),
        ):
            with pytest.raises(BadSetting):
                run(made((a, b)), settings)
        with pytest.raises(SdError, match="empty"):
            run(made((a, b)), Settings(" "))
        assert a.requests == []


def test_lanes_on_one_machine_run_one_after_the_other(
    vllm: tuple[FakeOpenAI, FakeOpenAI],
) -> None:
    for server in vllm:
        server.pause = 0.05
    lanes = [e["lane"] for e in run(made(vllm)) if e["type"] == "pass"]
    assert lanes == sorted(lanes)
    together = run(made(vllm, SD_SERVER_LANES="together"))
    lanes = [e["lane"] for e in together if e["type"] == "pass"]
    assert lanes != sorted(lanes)
    assert together[0]["header"]["source"]["lanes"] == "together"
    assert Trace.from_events(together).text("plain") == TEXT


def test_other_peoples_requests_make_the_count_suspect(
    vllm: tuple[FakeOpenAI, FakeOpenAI],
) -> None:
    vllm[1].strangers = 2
    assert run(made(vllm))[-1]["stats"]["server"]["counts"]["alone"] is False


def test_sampled_texts_need_not_agree(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[1].pieces = [["Two"], [" two"]]
    assert run(made(vllm))[-1]["agreement"]["kind"] == "differs"
    sampled = run(made(vllm), Settings("x", temperature=1.0))
    assert sampled[-1]["agreement"] == {"kind": "sampled"}


def test_a_key_and_a_model_of_the_owners(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    run(made(vllm, SD_SERVER_KEY="secret", SD_PLAIN_MODEL="tiny"))
    assert vllm[0].keys[-1] == "Bearer secret"
    with pytest.raises(ServerError, match="no model 'huge'"):
        run(made(vllm, SD_PLAIN_MODEL="huge"))


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[0].faults = ["busy", "later", "busy"]
    assert Trace.from_events(run(made(vllm))).text("plain") == TEXT
    assert len(vllm[0].requests) == 4


def test_a_refusal_is_not_tried_again_and_says_why(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[0].faults = ["refuse"]
    with pytest.raises(ServerError, match="max_tokens is too large") as refused:
        run(made(vllm))
    assert refused.value.code == "server_refused"
    assert refused.value.detail["status"] == 400
    assert len(vllm[0].requests) == 1


def test_nobody_there(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    with FakeOpenAI() as gone:
        source = made((vllm[0], gone))
    with pytest.raises(ServerError, match="is it running") as lost:
        source.prepare("servers", lambda *_: None)
    assert lost.value.code == "server_unreachable"
    assert lost.value.detail["lane"] == "speculative"
    assert "127.0.0.1" not in str(lost.value)


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize("fault", ["close", "end", "garbage", "error"])
def test_a_stream_that_breaks_leaves_what_had_arrived(
    vllm: tuple[FakeOpenAI, FakeOpenAI], fault: str, lane: int
) -> None:
    vllm[lane].faults = [fault]
    events: list[dict[str, Any]] = []
    with pytest.raises(ServerError) as broke:  # noqa: PT012 - what came before the fault counts
        for event in made(vllm).run("servers", SETTINGS, lambda: False):
            events.append(event)
    assert broke.value.code == "server_broke"
    name = ("plain", "speculative")[lane]
    assert broke.value.detail["lane"] == name
    before = sum(len(piece) for piece in vllm[lane].pieces[:2])
    assert broke.value.detail["tokens"] == before
    kept = [t for e in events if e["type"] == "pass" and e["lane"] == name for t in e["tokens"]]
    assert len(kept) == before
    # The server is itself again, and so is the source.
    assert Trace.from_events(run(made(vllm))).text("plain") == TEXT


def test_a_silent_server_is_given_up(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[0].faults = ["stall"]
    with pytest.raises(ServerError) as silent:
        run(made(vllm, SD_SERVER_TIMEOUT="1"))
    assert silent.value.code == "server_silent"


def test_an_endless_text_is_cut_off(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[0].faults, vllm[0].pause = ["endless"], 0.0
    with pytest.raises(ServerError, match="more than it was asked for"):
        run(made(vllm))


def test_cancelling_ends_the_servers_work(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    vllm[0].pause = 0.1
    events: list[dict[str, Any]] = []
    enough = lambda: sum(e["type"] == "pass" for e in events) >= 2  # noqa: E731
    for event in made(vllm).run("servers", SETTINGS, enough):
        events.append(event)
    assert [e["reason"] for e in events if e["type"] == "finish"] == ["cancelled"] * 2
    assert events[-1]["agreement"] == {"kind": "unfinished"}
    assert Trace.from_events(events).text("plain") != TEXT
    assert vllm[1].requests == []
    deadline = time.monotonic() + 30
    while vllm[0].gone == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert vllm[0].gone == 1, "the server sees the connection close"
    assert not [t for t in threading.enumerate() if t.name == "servers"]


def test_a_race_left_in_the_middle_leaves_no_thread(vllm: tuple[FakeOpenAI, FakeOpenAI]) -> None:
    events = made(vllm).run("servers", SETTINGS, lambda: False)
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name == "servers"]


# --- the recorder ---------------------------------------------------------------------------------


def servers(pair: tuple[FakeOpenAI, FakeOpenAI]) -> list[str]:
    return ["--plain-url", pair[0].url, "--speculative-url", pair[1].url]


@pytest.fixture
def settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SD_SOURCE", *sources.CHOSEN_BY, *record.SERVERS.values()):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("settings_of_ours")
def test_recording_servers(
    vllm: tuple[FakeOpenAI, FakeOpenAI], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.json"
    arguments = ["--prompt", "count", "--length", "9", "--trace", str(path)]
    assert record.main([*servers(vllm), *arguments]) == 0
    assert TEXT in capsys.readouterr().out
    trace = Trace.read(path)
    assert trace.text("plain") == TEXT
    assert "--prompt count" in trace.header["command"]
    assert vllm[0].url not in path.read_text("utf-8")


@pytest.mark.usefixtures("settings_of_ours")
def test_a_race_that_breaks_off_is_recorded_as_far_as_it_got(
    vllm: tuple[FakeOpenAI, FakeOpenAI], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vllm[1].faults = ["close"]
    path = tmp_path / "race.json"
    arguments = ["--prompt", "count", "--trace", str(path)]
    assert record.main([*servers(vllm), *arguments]) == 1
    assert "broke off after 4 tokens" in capsys.readouterr().err
    trace = Trace.read(path)
    assert trace.text("plain") == TEXT
    assert trace.text("speculative") == "One two three four"
    assert trace.events[-1]["agreement"] == {"kind": "unfinished"}


@pytest.mark.usefixtures("settings_of_ours")
def test_the_recorder_does_not_know_what_it_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SD_SOURCE", SOURCE)
    assert record.main(["--prompt", "the small model", "--length", "12", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["agreement"] == {"kind": "identical"}
    assert record.main(["--prompt", "refuse this"]) == 1
    assert "Too long" in capsys.readouterr().err


# --- on the page ----------------------------------------------------------------------------------


async def test_a_page_races_servers(
    visit: Open, monkeypatch: pytest.MonkeyPatch, vllm: tuple[FakeOpenAI, FakeOpenAI]
) -> None:
    monkeypatch.setenv("SD_SOURCE", "")
    monkeypatch.setenv("SD_PLAIN_URL", vllm[0].url)
    monkeypatch.setenv("SD_SPECULATIVE_URL", vllm[1].url)
    page = await visit()
    hello = await page.until("hello")
    assert [(p["name"], p["drafters"]) for p in hello["pairs"]] == [("servers", [])]
    page.run(pair="servers")
    await page.until("end")
    assert Trace.from_events(page.events).text("speculative") == TEXT
    vllm[1].faults = ["close"]
    page.run(pair="servers", seed=4)
    error = await page.until("error")
    assert (error["code"], error["detail"]["lane"]) == ("server_broke", "speculative")
    assert any(e["type"] == "pass" and e["lane"] == "speculative" for e in page.events)
    page.run(pair="servers", seed=5)
    await page.until("end")


def test_a_server_with_wrong_settings_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SD_SOURCE", raising=False)
    monkeypatch.setenv("SD_PLAIN_URL", "http://a/v1")
    with pytest.raises(ValueError, match="same server"):
        sources.check()


# --- the owner's settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SD_PLAIN_URL": "http://a/v1"},
        {"SD_PLAIN_URL": "http://a/v1", "SD_SPECULATIVE_URL": "http://a"},
        {"SD_PLAIN_URL": "ftp://a", "SD_SPECULATIVE_URL": "http://b"},
        {"SD_PLAIN_URL": "http://user:key@a", "SD_SPECULATIVE_URL": "http://b"},
        {"SD_PLAIN_URL": "localhost:8000", "SD_SPECULATIVE_URL": "http://b"},
        {"SD_PLAIN_URL": "http://a", "SD_PLAIN_EXTRA": "[1]"},
        {"SD_PLAIN_URL": "http://a", "SD_PLAIN_EXTRA": "{"},
        {"SD_PLAIN_URL": "http://a", "SD_SPECULATIVE_URL": "http://b", "SD_SERVER_TIMEOUT": "soon"},
        {"SD_PLAIN_URL": "http://a", "SD_SPECULATIVE_URL": "http://b", "SD_SERVER_LANES": "both"},
    ],
)
def test_wrong_settings_are_refused_in_words(environment: dict[str, str]) -> None:
    with pytest.raises(SdError) as refused:
        OpenAISource(environment)
    assert refused.value.code == "bad_server"


def test_one_server_can_be_switched() -> None:
    both = {"SD_SPECULATIVE_URL": "https://a/v1"}
    OpenAISource(both | {"SD_PLAIN_MODEL": "alone"})
    source = OpenAISource(both | {"SD_PLAIN_EXTRA": '{"speculative.n_max": 0}'})
    assert source.plain.root == source.speculative.root == "https://a"


def test_the_settings_choose_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SD_SOURCE", *sources.CHOSEN_BY):
        monkeypatch.delenv(name, raising=False)
    assert type(sources.source()).__name__ == "KernelSource"
    monkeypatch.setenv("SD_PLAIN_URL", "http://a/v1")
    monkeypatch.setenv("SD_SPECULATIVE_URL", "http://b/v1")
    assert type(sources.source()).__name__ == "OpenAISource"
    monkeypatch.setenv("SD_SOURCE", SOURCE)
    assert type(sources.source()).__name__ == "FakeSource"


def test_the_documentation_names_every_setting() -> None:
    root = Path(sources.__file__).parent
    text = (root.parent / "docs" / "engines.md").read_text("utf-8")
    used = {
        "SD_PLAIN_URL", "SD_SPECULATIVE_URL", "SD_PLAIN_MODEL", "SD_PLAIN_EXTRA", "SD_PLAIN_KEY",
        "SD_SERVER_KEY", "SD_SERVER_TITLE", "SD_SERVER_DEVICE", "SD_SERVER_M", "SD_SERVER_LANES",
        "SD_SERVER_TIMEOUT", "SD_SERVER_LOGPROBS", "SD_RAY", "SD_SOURCE",
    }  # fmt: skip
    assert {name for name in used if name not in text} == set()
