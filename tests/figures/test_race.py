"""The race figure: arithmetic by hand and against other witnesses, recordings, words."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

import content
from app import measure
from figures.race import model
from figures.race.figure import RECORDINGS, Race, rows, sentence
from kernels.settings import BOUNDS, Settings
from kernels.trace import SCHEMA, validate

FOLDER = Path(model.__file__).parent


def token(text: str, origin: str, **more: Any) -> dict[str, Any]:
    return {"id": ord(text[0]) if text else 0, "text": text, "origin": origin} | more


def item(
    lane: str, kind: str, start: float, end: float, rows: int, *tokens: Any, **more: Any
) -> dict[str, Any]:
    fixed = {"type": "pass", "lane": lane, "kind": kind, "start": start, "end": end, "rows": rows}
    return fixed | {"tokens": list(tokens)} | more


def drafted(start: float, text: str, **more: Any) -> dict[str, Any]:
    guess = token(text, "drafted", **more)
    return item("speculative", "draft", start, start + 0.1, 1, guess, by="model")


def by_hand(agreement: dict[str, Any] | None = None, **stats: Any) -> model.Run:
    """Three rounds that can be counted on the fingers; plain passes last 1 s, drafts 0.1 s."""
    events: list[dict[str, Any]] = [
        item("plain", "prefill", 0, 2, 5, token("a", "target")),
        item("speculative", "prefill", 0, 2, 5, token("a", "target")),
        item("speculative", "prefill", 2, 2.25, 4, by="model"),
        drafted(2.25, "b", q=0.5),
        drafted(2.35, "c", q=0.25),
        item("plain", "decode", 2, 3, 1, token("b", "target")),
        item(
            *("speculative", "verify", 2.5, 3.5, 3),
            token("b", "accepted", p=0.25, q=0.5, u=0.25, by="model"),
            token("c", "rejected", p=0.05, q=0.25, u=0.75, by="model"),
            token("\n", "supplied", p=0.5),
        ),
        item("plain", "decode", 3, 4, 1, token("\n", "target")),
        item(
            *("speculative", "draft", 3.5, 3.50001, 0),
            *(token(t, "drafted", q=1) for t in ("d", " e")),
            by="lookup",
        ),
        item("plain", "decode", 4, 5, 1, token("d", "target")),
        item(
            *("speculative", "verify", 3.75, 4.75, 3),
            token("d", "accepted", p=0.9, q=1, by="lookup"),
            token(" e", "accepted", p=0.8, q=1, by="lookup"),
            token("", "bonus", p=0.7),
        ),
        item("plain", "decode", 5, 6, 1, token(" e", "target")),
        item("speculative", "decode", 5, 6, 1, token("f", "target")),
        {"type": "finish", "lane": "speculative", "reason": "end", "clock": 6.5},
        item("plain", "decode", 6, 7, 1, token("", "target")),
        {"type": "finish", "lane": "plain", "reason": "length", "clock": 7},
        {"type": "end", "agreement": agreement or {"kind": "identical"}, "stats": stats},
    ]
    header = {
        "created": "2026-11-30T12:00:00Z",
        "command": "by hand",
        "device": {"name": "paper"},
        "versions": {},
        "pair": {"name": "hand", "target": "t", "draft": "d"},
        "settings": {"prompt": "x", "m": 2, "temperature": 0.5},
        "prompt_tokens": 5,
        "guarantee": "exact",
    }
    return model.Run(validate({"schema": SCHEMA, "header": header, "events": events}))


def test_counts_by_hand() -> None:
    run = by_hand()
    assert run.duration == 7
    at_start = run.counts("speculative", 1.9)
    assert (at_start.tokens, at_start.target_passes, at_start.clock, at_start.rate) == (
        0,
        0,
        0,
        None,
    )
    # A pass counts from the moment it ends.
    assert [run.counts("speculative", t).tokens for t in (2, 3.49, 3.5, 4.75, 6)] == [1, 1, 3, 6, 7]
    mid = run.counts("speculative", 4.75)
    assert (mid.rounds, mid.target_passes, mid.draft_passes, mid.drafted) == (2, 3, 3, 4)
    assert (mid.accepted, mid.rejected, mid.supplied, mid.bonus) == (3, 1, 1, 1)
    assert mid.rate == pytest.approx(5 / (4.75 - 2.25))
    end = run.counts("speculative", 7)
    assert (end.rounds, end.clock) == (3, 6.5), "the lane's clock stands still when it is done"
    assert run.counts("plain", 7).rate == pytest.approx(5 / 5)


def test_stepping_stops_at_each_pass_once() -> None:
    run = by_hand()
    assert run.moments() == [0, 2, 2.25, 2.35, 2.45, 3.5, 3.50001, 4.75, 6, 7]
    assert run.opening() == 3.5, "the first verification, for want of an earlier one"


@pytest.mark.parametrize(
    ("t", "said"),
    [
        (0, "Both lanes begin by reading the prompt, 5 tokens."),
        (2, "At 2 s, tokens written: plain 1, speculative 1. "
            "The target reads the prompt in 2 s and gives the first token, ‘a’."),
        (2.25, "plain 1, speculative 1. The draft reads the prompt too, in 250 ms."),
        (2.45, "The draft guesses ‘c’ in 100 ms, with q = 0.25."),
        (3.5, "guess 2, ‘c’, is rejected with p = 0.05, q = 0.25 and a draw of 0.75 ≥ p/q = 0.2; "
              "the target supplies ‘⏎’."),
        (3.51, "proposes ‘d e’, in 10 µs."),
        (4.75, "m = 2, 1 s: every guess holds, and the last row gives a bonus, ‘#0’."),
        (6, "At 6 s the speculative lane is done, and the plain lane has 5 tokens."),
        (7, "Both texts are the same, token for token."),
    ],
)  # fmt: skip
def test_sentences_by_hand(t: float, said: str) -> None:
    run = by_hand()
    assert sentence(Race.words("en"), model.moment(run, t), "en").endswith(said)


def test_a_greedy_rejection_and_an_early_end_have_their_own_sentences() -> None:
    words = Race.words("en")
    refused = item(
        *("speculative", "verify", 0, 0.01, 5),
        token(" x", "accepted", p=0.9),
        token(" y", "rejected", p=0.1, q=0.6),
        token(" z", "supplied", p=0.8),
    )
    key, values = model.about(refused)
    assert words[f"pass.{key}"].format(**values) == (
        "One verification, m = 4, 10 ms: guess 2, ‘y’ (p = 0.1), is not the target’s first choice; "
        "it supplies ‘z’ (p = 0.8)."
    )
    ended = item("speculative", "verify", 0, 0.01, 5, token(" x", "accepted"))
    assert model.about(ended)[0] == "ended"
    assert model.about(item("plain", "decode", 0, 1, 1, token(" ", "target")))[1]["token"] == "␣"
    assert model.about(item("speculative", "decode", 0, 1, 1, token("x", "target")))[0] == "decode"


def test_a_result_that_differs_shows_position_and_logits() -> None:
    side = {"id": 7, "text": " cat", "logit": 12.25}
    other = {"id": 8, "text": "\n", "logit": 12.5}
    apart = {"kind": "differs", "position": 41, "plain": side, "speculative": other, "gap": 0.0}
    run = by_hand(apart, speedup={"measured": 0.5}, tokens_per_pass=1.2)
    said = sentence(Race.words("en"), model.moment(run, 7), "en")
    assert said.startswith("Speculation lost, 0.50×: a round cost as much as 2.4 plain passes")
    for part in ("token 42", "‘cat’", "12.25", "‘⏎’", "12.5", "more than 0;"):
        assert part in said


@pytest.mark.parametrize("kind", ["sampled", "unfinished", "identical", "differs"])
def test_odd_statistics_of_a_foreign_file_do_no_harm(kind: str) -> None:
    for stats in (
        {},
        {"speedup": 3, "acceptance": [1]},
        {"speedup": {"measured": "fast"}, "m": True},
    ):
        run = by_hand({"kind": kind}, **stats)
        assert model.ladder(run.end["stats"]) is None
        for lang in content.LANGUAGES:
            assert sentence(Race.words(lang), model.moment(run, 7), lang)
            assert len(rows(Race.words(lang), run.end["stats"])) > 10


@pytest.mark.parametrize(("kept", "judged"), [(0, 1), (1, 1), (3, 9), (70, 100), (0, 50), (50, 50)])
def test_the_interval_is_wilsons(kept: int, judged: int) -> None:
    oracle = binomtest(kept, judged).proportion_ci(0.95, method="wilson")
    assert model.wilson(kept, judged) == pytest.approx((oracle.low, oracle.high), abs=1e-4)
    assert model.wilson(0, 0) == (0, 1)


def test_expected_tokens_is_the_sum_of_a_geometric_series() -> None:
    for alpha in (0, 0.3, 0.9, 1):
        for m in (1, 4, 16):
            oracle = sum(alpha**i for i in range(m + 1))
            assert model.expected_tokens(alpha, m) == pytest.approx(oracle)


def test_the_bet_is_settled_by_the_edges_it_names() -> None:
    assert [model.bet(x) for x in (0.4, 0.999, 1, 1.29, 1.3, 1.99, 2, 7)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]


# --- state and words ------------------------------------------------------------------------------


def test_the_figures_bounds_are_inside_the_engines() -> None:
    schema = Race.schema()
    for name in ("m", "temperature", "top_k", "top_p", "seed", "length"):
        low, high = BOUNDS[name]
        assert low <= schema[name]["min"] <= schema[name]["max"] <= high
    for prompt in Race.data()["prompts"]:
        Settings(prompt=prompt["text"])
        assert prompt["level"] in (("easy", "medium", "hard") if prompt["lang"] == "en" else "")
    languages = {prompt["lang"] for prompt in Race.data()["prompts"]}
    assert languages == {"en", "zh"}


def test_a_link_cannot_ask_for_nonsense() -> None:
    figure, clamped = Race.parse(
        {"race.m": "99", "race.temperature": "nan", "race.recording": "../../x", "race.t": "5",
         "race.length": "33.4", "race.keep": "true", "race.prompt": "x" * 3000, "other.m": "1"}
    )  # fmt: skip
    assert isinstance(figure, Race)
    assert (figure.m, figure.temperature, figure.length, figure.keep) == (16, 0.0, 33, True)
    assert figure.recording in RECORDINGS
    assert len(figure.prompt) == 2000
    assert set(clamped) == {"m", "temperature", "recording", "length", "prompt"}


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_every_moment_of_every_recording_can_be_said(lang: str) -> None:
    words = Race.words(lang)
    for name in RECORDINGS:
        run = model.recording(model.RECORDED / f"{name}.json")
        said = {sentence(words, model.moment(run, t), lang) for t in run.moments()}
        assert len(said) > 0.8 * len(run.moments())
        assert not any(re.search(r"\{\w+\}", text) for text in said)
        assert Race(recording=name).describe(lang) in said
        table = Race(recording=name).table(lang)
        assert {len(row) for row in table} == {3}
        assert len(table) >= 16


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_words_are_complete_used_and_alike_in_both_languages() -> None:
    zh, en = Race.words("zh"), Race.words("en")
    assert zh.keys() == en.keys()
    own = {key for key in en if not key.startswith("ui.")}
    assert {k for k in own if places(zh[k]) != places(en[k])} == set()
    assert {k for k in own if k.startswith("recording.")} == {
        f"recording.{name}" for name in ("label", "live", "file", *RECORDINGS)
    }
    source = "".join(
        p.read_text("utf-8") for p in sorted(FOLDER.glob("*.*")) if p.suffix != ".toml"
    )
    # Keys put together from a family and a name: `t(`pass.${key}`)`, words[f"table.{name}"].
    families = set(re.findall(r"[`\"']([a-z_]+\.(?:[a-z]+_)?)[${]", source))
    frame = ("title", "try", "caption", "bet.", "puzzle.")
    unused = {
        key
        for key in own
        if f'"{key}"' not in source
        and not any(key.startswith(family) for family in (*families, *frame))
    }
    assert unused == set()
    for code in ("empty_prompt", "prompt_too_long", "weights_not_found", "disk_full", "cancelled"):
        assert f"error.{code}" in own


def test_every_error_that_can_end_a_race_has_words() -> None:
    root = FOLDER.parent.parent
    source = "".join(
        p.read_text("utf-8") for f in ("kernels", "app") for p in (root / f).glob("*.py")
    )
    codes = set(re.findall(r'(?:SdError|super\(\).__init__)\(\s*"([a-z_]+)",', source))
    codes |= set(re.findall(r'"code": "([a-z_]+)"', source))
    # Of other commands, and of faults in our own code, which the page tells by their message.
    elsewhere = {
        "bad_trace",
        "context_full",
        "engine_missing",
        *(set(measure.ERRORS) - {"engine_failed", "server_busy"}),
    }
    assert {"weights_not_found", "server_busy", "cancelled", "not_finite"} <= codes
    assert {code for code in codes - elsewhere if f"error.{code}" not in Race.words("en")} == set()


def test_the_description_is_small_and_json() -> None:
    spec = Race.spec("en", base="/app")
    assert len(json.dumps(spec)) < 40_000
    assert set(spec["records"]) == set(RECORDINGS)
    assert spec["betAnswer"] is None
