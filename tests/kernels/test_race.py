"""The race as a whole: clocks, turns, cancelling, seeds, statistics. T8, T11, T14."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernels import clock
from kernels import race as race_module
from kernels.errors import SdError
from kernels.length import expected_tokens, speedup
from kernels.model import NotFinite
from kernels.race import race
from kernels.settings import Settings
from kernels.summary import LaneLog, summarize, wilson
from kernels.trace import Trace
from tests.kernels.fakes import FakePair, TabularDecoder, random_table, run_lane

Event = dict[str, Any]


def pair(size: int = 12, noise: float = 0.6, **target: Any) -> FakePair:
    table = random_table(0, size, 2)
    return FakePair(
        TabularDecoder(table, **({"context_length": 512} | target)),
        TabularDecoder(table + random_table(5, size, 2) * noise, context_length=512),
    )


def settings(**values: Any) -> Settings:
    return Settings("abc", **({"length": 40} | values))


def without_times(events: list[Event]) -> list[Any]:
    """What was said and decided; the order in which the lanes took turns depends on their speed."""
    lanes: dict[str, list[Any]] = {"plain": [], "speculative": []}
    for event in events:
        if event["type"] == "pass":
            lanes[event["lane"]].append((event["kind"], event["rows"], event["tokens"]))
    return [lanes, events[-1]["agreement"]]


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that only models move: each pass takes 1 ms, each drafted token 0.1 ms."""
    now = [0]
    monkeypatch.setattr(clock.time, "perf_counter_ns", lambda: now[0])
    real = TabularDecoder.forward

    def forward(self: TabularDecoder, *arguments: Any, **named: Any) -> np.ndarray:
        now[0] += 100_000 if self.name == "draft" else 1_000_000
        return real(self, *arguments, **named)

    monkeypatch.setattr(TabularDecoder, "forward", forward)
    return now


# ---- turns and clocks --------------------------------------------------------------------------


def test_the_lane_that_is_behind_goes_next(ticking: list[int]) -> None:
    models = pair()
    models.draft.name = "draft"
    clocks = {"plain": 0.0, "speculative": 0.0}
    running = {"plain", "speculative"}
    for event in race(models, settings()):
        if event["type"] == "pass":
            lane = event["lane"]
            assert clocks[lane] == min(clocks[name] for name in running)
            assert event["start"] == pytest.approx(clocks[lane])
            clocks[lane] = event["end"]
        elif event["type"] == "finish":
            running.discard(event["lane"])
            assert event["clock"] == pytest.approx(clocks[event["lane"]])


def test_a_lane_is_not_charged_for_the_other(ticking: list[int]) -> None:
    """Plain: 40 passes of 1 ms, whatever the other lane and the reader take between events."""
    models = pair()
    models.draft.name = "draft"
    events = []
    for event in race(models, settings()):
        ticking[0] += 77_000_000  # a slow reader
        events.append(event)
    finish = {e["lane"]: e["clock"] for e in events if e["type"] == "finish"}
    assert finish["plain"] == pytest.approx(0.040)
    passes = [e for e in events if e["type"] == "pass" and e["lane"] == "speculative"]
    by_model = sum(e.get("by") == "model" for e in passes)
    targets = sum("by" not in e for e in passes)
    assert finish["speculative"] == pytest.approx(by_model * 1e-4 + targets * 1e-3)


def test_measured_speedup_is_the_formulas_when_nothing_else_costs(ticking: list[int]) -> None:
    models = pair(noise=0.0)
    models.draft.name = "draft"
    events = list(race(models, settings(length=1 + 5 * 8, drafter="model", m=4)))
    result = events[-1]["stats"]
    assert result["acceptance"]["alpha"] == 1
    assert result["c"] == pytest.approx(0.1)
    assert result["v"] == pytest.approx(1)
    assert result["speedup"]["measured"] == pytest.approx(5 / 1.4, rel=1e-5)
    assert result["speedup"]["formula"] == pytest.approx(5 / 1.4, rel=1e-5)
    assert result["speedup"]["factors"]["overhead"] == pytest.approx(1, rel=1e-5)


# ---- events ------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("drafter", ["both", "model", "lookup"])
def test_the_stream_of_events_is_a_valid_trace(temperature: float, drafter: str) -> None:
    events = list(race(pair(), settings(temperature=temperature, drafter=drafter)))
    assert [event["type"] for event in events if event["type"] != "pass"] == [
        "start",
        "finish",
        "finish",
        "end",
    ]
    trace = Trace.from_events(events)
    for lane in ("plain", "speculative"):
        assert len(trace.text(lane)) == 40
    if temperature == 0:
        assert trace.text("plain") == trace.text("speculative")
        assert events[-1]["agreement"] == {"kind": "identical"}


def test_greedy_tokens_show_the_models_own_probabilities() -> None:
    models = pair()
    events = list(race(models, settings(drafter="model")))
    text = [0, 1, 2]
    drafted: list[float] = []
    checked = 0
    for event in events:
        if event["type"] != "pass" or event["lane"] != "speculative":
            continue
        if event["kind"] == "draft":
            drafted.append(event["tokens"][0]["q"])
        for token in event["tokens"]:
            if event["kind"] == "verify":
                row = models.target.row(text).astype(float)
                p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
                assert token["p"] == pytest.approx(p[token["id"]], rel=1e-5)
                assert "u" not in token
                if token["origin"] in ("accepted", "rejected"):
                    assert token["q"] == drafted.pop(0)
                    checked += 1
            if token["origin"] in ("target", "accepted", "supplied", "bonus"):
                text.append(token["id"])
        if event["kind"] == "verify":
            drafted.clear()
    assert checked > 20


def test_a_pair_without_draft_falls_back_to_look_up_or_says_so() -> None:
    models = pair()
    models.draft = None
    events = list(race(models, settings(drafter="both", length=60)))
    assert events[0]["header"]["pair"]["draft"] is None
    assert events[-1]["agreement"] == {"kind": "identical"}
    with pytest.raises(SdError) as refused:
        list(race(models, settings(drafter="model")))
    assert refused.value.code == "no_draft"


def test_differing_lanes_are_shown_with_their_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target whose rows differ in a block: what floating-point ties do on some machines."""

    class Wavering(TabularDecoder):
        def forward(self, tokens: Any, cache: Any, **named: Any) -> np.ndarray:
            logits = super().forward(tokens, cache, **named)
            if len(tokens) > 1 and cache.length > 10:
                logits[0] = np.roll(logits[0], 1)
            return logits

    table = random_table(0, 12, 2)
    models = FakePair(Wavering(table, context_length=512), pair().draft)
    events = list(race(models, settings(drafter="model")))
    agreement = events[-1]["agreement"]
    assert agreement["kind"] == "differs"
    texts = {lane: Trace.from_events(events).text(lane) for lane in ("plain", "speculative")}
    position = agreement["position"]
    assert texts["plain"][:position] == texts["speculative"][:position]
    for lane in ("plain", "speculative"):
        assert agreement[lane]["text"] == texts[lane][position]
        row = models.target.row([0, 1, 2, *(ord(c) - 97 for c in texts["plain"][:position])])
        assert agreement[lane]["logit"] == pytest.approx(float(row.max()), rel=1e-5)
    first, second = np.sort(row)[::-1][:2]
    assert agreement["gap"] == pytest.approx(float(first - second), rel=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_in_the_model_is_an_error_not_a_token(temperature: float) -> None:
    table = np.full((12, 12, 12), np.nan)
    table[1, 2] = 0.0  # fine after the prompt, damaged after that
    models = FakePair(TabularDecoder(table, context_length=512), None)
    events = race(models, settings(temperature=temperature))
    with pytest.raises(NotFinite):
        list(events)


# ---- T8: seeds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [4, "adaptive"])
def test_a_seed_replays_exactly(m: int | str) -> None:
    models = pair()
    runs = [
        without_times(list(race(models, settings(temperature=1.0, seed=seed, m=m))))
        for seed in (5, 5, 6)
    ]
    assert runs[0] == runs[1]
    assert runs[0][0]["plain"] != runs[2][0]["plain"]
    assert runs[0][0]["speculative"] != runs[2][0]["speculative"]


def test_the_plain_lane_does_not_know_the_other() -> None:
    texts = {
        tuple(
            run_lane(models, settings(temperature=1.0, m=m, drafter=drafter), "plain")[
                0
            ].transcript.new_tokens
        )
        for models in (pair(), pair(noise=3.0))
        for m in (1, 9)
        for drafter in ("lookup", "model")
    }
    assert len(texts) == 1


def test_lanes_with_one_seed_are_independent() -> None:
    """χ² of the joint distribution of the two lanes' second tokens."""
    size = 3
    table = random_table(0, size)
    models = FakePair(TabularDecoder(table), TabularDecoder(random_table(1, size)))
    joint = np.zeros((size, size))
    for seed in range(700):
        s = Settings("ab", length=2, temperature=1.0, seed=seed, drafter="model")
        tokens = [
            run_lane(models, s, lane)[0].transcript.new_tokens[1]
            for lane in ("plain", "speculative")
        ]
        joint[tuple(tokens)] += 1
    statistic, _, freedom, _ = stats.chi2_contingency(joint)
    assert statistic < stats.chi2.ppf(0.9999, freedom)


# ---- T11: cancelling and memory ----------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2, 7, 30])
def test_cancel_takes_effect_before_the_next_pass(after: int) -> None:
    events: list[Event] = []

    def cancelled() -> bool:
        return sum(event["type"] == "pass" for event in events) >= after

    for event in race(pair(), settings(), cancelled=cancelled):
        events.append(event)  # one by one: `cancelled` looks at what has arrived
    assert sum(event["type"] == "pass" for event in events) == after
    assert [e["reason"] for e in events if e["type"] == "finish"] == ["cancelled"] * 2
    assert events[-1]["agreement"] == {"kind": "unfinished"}
    Trace.from_events(events)  # a cancelled run is still a recording


def test_a_thousand_runs_and_cancels_leave_nothing() -> None:
    models = pair(size=5)

    def some(runs: int) -> None:
        for i in range(runs):
            events = race(models, settings(length=6, temperature=float(i % 2), seed=i))
            for _ in range(i % 9):
                next(events)
            events.close()

    some(100)
    gc.collect()
    tracemalloc.start()
    try:
        some(100)  # what tracemalloc has not seen the birth of must not be counted at its rebirth
        gc.collect()
        before = tracemalloc.take_snapshot()
        some(800)
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Only what lines of the engine (and of its fakes) allocated: in a test process other threads
    # and late imports allocate too. A run that stayed alive would hold kilobytes of its own.
    ours = tracemalloc.Filter(True, "*/kernels/*.py")
    growth = after.filter_traces([ours]).compare_to(before.filter_traces([ours]), "lineno")
    grown = sum(line.size_diff for line in growth)
    largest = "\n".join(str(line) for line in growth[:5])
    assert grown < 100_000, f"{grown} bytes more after 800 runs:\n{largest}"
    assert not list(models.target.caches)
    assert not list(models.draft.caches)


# ---- T14: counts -------------------------------------------------------------------------------


@given(
    m=st.one_of(st.integers(1, 6), st.just("adaptive")),
    length=st.integers(0, 20),
    temperature=st.sampled_from([0.0, 1.0]),
    drafter=st.sampled_from(["both", "model", "lookup"]),
    seed=st.integers(0, 10),
    end=st.integers(0, 4),
)
def test_counts_add_up(
    m: int | str, length: int, temperature: float, drafter: str, seed: int, end: int
) -> None:
    models = pair(size=5, end_tokens=(end,))
    s = settings(m=m, length=length, temperature=temperature, drafter=drafter, seed=seed)
    events = list(race(models, s))
    numbers = events[-1]["stats"]
    lane = numbers["speculative"]
    tokens = [
        token
        for event in events
        if event["type"] == "pass" and event["lane"] == "speculative"
        for token in event["tokens"]
    ]
    emitted = sum(t["origin"] not in ("drafted", "rejected") for t in tokens)
    assert lane["accepted"] + lane["supplied"] + lane["bonus"] + lane["target"] == emitted
    assert lane["tokens"] == emitted <= length
    assert lane["drafted"] == sum(t["origin"] == "drafted" for t in tokens)
    judged = numbers["acceptance"]["judged"]
    assert judged == lane["accepted"] + lane["rejected"] <= lane["drafted"]
    assert sum(by["judged"] for by in numbers["acceptance"]["by"].values()) == judged
    assert sum(by["drafted"] for by in numbers["acceptance"]["by"].values()) == lane["drafted"]
    assert lane["rejected"] == lane["supplied"]
    if numbers["speedup"]["factors"]:
        factors = numbers["speedup"]["factors"].values()
        product = numbers["speedup"]["ideal"] * np.prod(list(factors))
        assert product == pytest.approx(numbers["speedup"]["measured"], rel=1e-4)


def test_a_run_of_one_token_has_no_rates() -> None:
    numbers = list(race(pair(), settings(length=1)))[-1]["stats"]
    assert numbers["acceptance"]["alpha"] is None
    assert numbers["speedup"]["measured"] is None
    assert numbers["plain"]["tokens"] == 1


def test_nothing_at_all_can_be_summarised() -> None:
    numbers = summarize(LaneLog(), LaneLog(), settings())
    assert numbers["plain"]["tokens"] == 0
    assert numbers["speedup"]["formula"] is None


@pytest.mark.parametrize(("kept", "judged"), [(0, 5), (5, 5), (37, 100), (1, 2), (900, 1000)])
def test_wilson_against_scipy(kept: int, judged: int) -> None:
    expected = stats.binomtest(kept, judged).proportion_ci(0.95, method="wilson")
    assert wilson(kept, judged) == pytest.approx((expected.low, expected.high), abs=2e-5)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.floats(0, 1), st.integers(1, 16))
def test_expected_tokens_is_the_mean_of_a_cut_geometric(alpha: float, m: int) -> None:
    # j accepted with probability α^j(1 − α), m with α^m; each round gives one token more.
    by_hand = sum((j + 1) * alpha**j * (1 - alpha) for j in range(m)) + (m + 1) * alpha**m
    assert expected_tokens(alpha, m) == pytest.approx(by_hand, rel=1e-9)
    assert speedup(alpha, m, 0.0) == pytest.approx(by_hand, rel=1e-9)


def test_race_encodes_chat_or_plain_text() -> None:
    models = pair()
    models.tokenizer.chat = lambda prompt: [1, *models.tokenizer.encode(prompt), 2]
    chat = race_module.encode_prompt(models, settings())
    plain = race_module.encode_prompt(models, settings(chat=False))
    assert chat == [1, 0, 1, 2, 2]
    assert plain == [0, 1, 2]
