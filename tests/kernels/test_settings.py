"""Bounds of the settings, random numbers, and the command line around them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kernels import machine
from kernels.__main__ import COMMANDS, main
from kernels.errors import SdError
from kernels.randomness import Purpose, Randomness
from kernels.settings import BadSetting, Settings
from kernels.trace import Trace
from tests.kernels.fakes import FakePair, TabularDecoder, random_table

GOOD: dict[str, Any] = {
    "prompt": "Tell me",
    "chat": False,
    "m": "adaptive",
    "temperature": 0.7,
    "top_k": 40,
    "top_p": 0.9,
    "repetition_penalty": 1.1,
    "seed": 2**53 - 1,
    "length": 4096,
    "drafter": "lookup",
    "stop": ["\n\n", "END"],
}


def test_settings_survive_json() -> None:
    settings = Settings.from_dict(json.loads(json.dumps(GOOD)))
    assert Settings.from_dict(json.loads(json.dumps(settings.as_dict()))) == settings
    assert settings.stop == ("\n\n", "END")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", None),
        ("prompt", "x" * 40_001),
        ("chat", 1),
        ("m", 0),
        ("m", 17),
        ("m", 4.0),
        ("m", True),
        ("m", "Adaptive"),
        ("temperature", -0.1),
        ("temperature", 5.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("repetition_penalty", 0.0),
        ("seed", -1),
        ("seed", 2**53),
        ("length", -1),
        ("length", 4097),
        ("length", 10**30),
        ("drafter", "oracle"),
        ("drafter", ["model"]),
        ("stop", "END"),
        ("stop", [""]),
        ("stop", ["x" * 65]),
        ("stop", ["x"] * 9),
        ("stop", [3]),
        ("surprise", 1),
    ],
)
def test_settings_out_of_bounds_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadSetting) as refused:
        Settings.from_dict({**GOOD, name: value})
    assert refused.value.code == "bad_setting"
    assert refused.value.detail["name"] == name
    assert refused.value.detail["allowed"]
    json.dumps(refused.value.as_event())


@pytest.mark.parametrize("value", [None, [], "x", {}])
def test_settings_are_an_object_with_a_prompt(value: Any) -> None:
    with pytest.raises(BadSetting):
        Settings.from_dict(value)


# ---- random numbers ----------------------------------------------------------------------------


def test_uniform_numbers_are_uniform_and_repeat() -> None:
    random = Randomness(7, "plain")
    values = np.array([random.uniform(Purpose.TARGET, i) for i in range(4000)])
    assert values.min() >= 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-4
    assert [random.uniform(Purpose.TARGET, i) for i in range(9)] == values[:9].tolist()


def test_every_part_of_the_key_counts() -> None:
    numbers = [
        Randomness(seed, lane).uniform(purpose, position, round_)
        for seed in (0, 1, 2**53 - 1)
        for lane in ("plain", "speculative")
        for purpose in Purpose
        for position in (0, 1, 2**20)
        for round_ in (0, 1, 7)
    ]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("neighbour", ["position", "round", "purpose", "seed"])
def test_neighbouring_numbers_are_not_correlated(neighbour: str) -> None:
    pairs = []
    for i in range(2000):
        a = Randomness(i, "plain").uniform(Purpose.DRAFT, 5, 3)
        b = {
            "position": lambda i: Randomness(i, "plain").uniform(Purpose.DRAFT, 6, 3),
            "round": lambda i: Randomness(i, "plain").uniform(Purpose.DRAFT, 5, 4),
            "purpose": lambda i: Randomness(i, "plain").uniform(Purpose.ACCEPT, 5, 3),
            "seed": lambda i: Randomness(i + 1, "plain").uniform(Purpose.DRAFT, 5, 3),
        }[neighbour](i)
        pairs.append((a, b))
    correlation = np.corrcoef(np.array(pairs).T)[0, 1]
    assert abs(correlation) < 4 / np.sqrt(2000)


# ---- command line ------------------------------------------------------------------------------


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("argv", [[], ["fly"]])
def test_wrong_usage_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage" in capsys.readouterr().err


def test_the_dispatcher_loads_nothing_heavy() -> None:
    code = "import sys, kernels.__main__; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "numpy", "rich", "transformers"} & set(loaded)


@pytest.fixture
def fake_pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    from kernels import cli_race

    table = random_table(0, 12, 2)
    pair = FakePair(
        TabularDecoder(table, context_length=512),
        TabularDecoder(table + random_table(5, 12, 2) * 0.6, context_length=512),
    )
    monkeypatch.setattr(cli_race, "_load", lambda options, console: pair)
    return pair


def test_race_prints_and_records(
    fake_pair: FakePair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, chrome = tmp_path / "t.json", tmp_path / "c.json"
    argv = ["race", "--prompt", "abc", "--m", "3", "--length", "30", "--json"]
    assert main([*argv, "--trace", str(trace), "--chrome", str(chrome)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["agreement"] == {"kind": "identical"}
    recording = Trace.read(trace)
    assert recording.header["command"].startswith("python -m kernels race --prompt abc")
    assert recording.text("plain") == recording.text("speculative")
    assert recording.events[-1]["stats"] == printed["stats"]
    assert json.loads(chrome.read_text())["traceEvents"]


def test_race_says_what_is_wrong(fake_pair: FakePair, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["race", "--prompt", " "]) == 1
    assert "The prompt is empty" in capsys.readouterr().err
    assert main(["race", "--prompt", "a", "--temperature", "99"]) == 1
    assert "temperature" in capsys.readouterr().err


def test_race_adaptive_and_sampled(fake_pair: FakePair, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["race", "--prompt", "abc", "--m", "adaptive", "--temperature", "1", "--top-k", "5"]
    assert main(argv) == 0
    assert "sampled" in capsys.readouterr().out


def test_errors_carry_code_and_detail() -> None:
    error = SdError("some_code", "What to do.", number=3)
    assert error.as_event()["code"] == "some_code"
    assert error.as_event()["detail"]["number"] == 3


# ---- machine -----------------------------------------------------------------------------------


def test_machine_is_described_in_json() -> None:
    described = json.loads(json.dumps(machine.describe()))
    assert described["name"]
    assert described["cores"] >= 1
    found = machine.versions("numpy", "no-such-package")
    assert found["numpy"] == np.__version__
    assert "no-such-package" not in found


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux's /proc")
def test_contention_sees_others(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 50.0, 0.0, 10.0), (110.0, 52.0, 0.0, 11.0)])
    monkeypatch.setattr(machine, "_processor_times", lambda: next(times))
    with machine.Contention() as contention:
        pass
    assert contention.others == pytest.approx(0.7)  # 10 s: 2 idle, 1 ours, 7 of others
    assert contention.contaminated


def test_contention_counts_a_server_beside_us_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 50.0, 0.0, 10.0), (110.0, 52.0, 0.0, 11.0)])
    monkeypatch.setattr(machine, "_processor_times", lambda: next(times))
    with machine.Contention() as contention:
        contention.take_part(4)
        contention.take_part(2.7)
    assert contention.others == pytest.approx(0.03)
    assert not contention.contaminated


def test_contention_of_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(100.0, 50.0, 0.0, 10.0), (110.0, 55.0, 0.0, 14.9)])
    monkeypatch.setattr(machine, "_processor_times", lambda: next(times))
    with machine.Contention() as contention:
        pass
    assert not contention.contaminated


def test_contention_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_processor_times", lambda: None)
    with machine.Contention() as contention:
        pass
    assert contention.others is None
    assert not contention.contaminated
