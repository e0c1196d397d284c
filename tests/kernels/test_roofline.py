"""The measured roofline: fits against known limits and SciPy, records against their rules."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from kernels import roofline, roofline_subjects
from kernels.errors import SdError
from kernels.roofline import Subject, check, fit_hard, fit_soft, hard, main, measure, soft

K = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256], np.float64)


@pytest.mark.parametrize(
    ("fit", "curve"), [(fit_hard, hard), (fit_soft, soft)], ids=["hard", "soft"]
)
@pytest.mark.parametrize(("read", "token"), [(9e-3, 7e-4), (2e-2, 2e-4), (1e-3, 5e-4)])
def test_the_limits_behind_exact_points_are_found(
    fit: Callable[..., Any], curve: Callable[..., Any], read: float, token: float
) -> None:
    found = fit(K, curve(K, read, token))
    assert found.read == pytest.approx(read, rel=1e-6)
    assert found.token == pytest.approx(token, rel=1e-6)
    assert found.knee == pytest.approx(read / token, rel=1e-6)
    assert found.error < 1e-6


def test_the_soft_curve_touches_both_limits() -> None:
    read, token = 0.02, 0.001
    assert soft(np.array([1e-3]), read, token)[0] == pytest.approx(read)
    assert soft(np.array([1e6]), read, token)[0] == pytest.approx(token * 1e6)
    # At the knee both are equal, so the third root of two times either.
    assert soft(np.array([20.0]), read, token)[0] == pytest.approx(2 ** (1 / 3) * read)
    assert (soft(K, read, token) > hard(K, read, token)).all()


@pytest.mark.parametrize("seed", range(4))
def test_noisy_points_are_fitted_as_scipy_fits_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    t = soft(K, 0.01, 6e-4) * np.exp(random.normal(0, 0.1, K.size))
    for fit, curve in ((fit_soft, soft), (fit_hard, hard)):

        def loss(at: Any, curve: Callable[..., Any] = curve) -> float:
            return float((np.log(t / curve(K, *np.exp(at))) ** 2).mean())

        starts = [(-4.6, -7.4), (-4.0, -8.0), (-5.0, -7.0)]
        best = min(
            (minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
             for start in starts),
            key=lambda result: result.fun,
        )  # fmt: skip
        found = fit(K, t)
        assert found.error**2 <= best.fun * (1 + 1e-6)
        if curve is soft:
            assert np.log(found.read) == pytest.approx(best.x[0], abs=1e-5)
            assert np.log(found.token) == pytest.approx(best.x[1], abs=1e-5)


def test_points_may_come_in_any_order_but_must_make_sense() -> None:
    t = hard(K, 0.01, 1e-3)
    order = np.random.default_rng(0).permutation(K.size)
    assert fit_hard(K[order], t[order]) == fit_hard(K, t)
    for k, seconds in (([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, 0.0]), ([], [])):
        with pytest.raises(ValueError):
            fit_hard(k, seconds)


def test_every_round_times_every_k(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "VISIT_SECONDS", 0.0)
    asked: list[int] = []

    def run(k: int) -> float:
        asked.append(k)
        return 0.5 * k + len(asked) * 1e-9

    subject = Subject("fake", "bf16", "4 × 4", 16, 32, run)
    timing = roofline.time_rounds(subject, (1, 2, 8), 0.0)
    assert asked == [1, 2, 8] * (1 + roofline.VISITS)  # a warm-up, then rounds
    series = roofline.summarise(subject, timing)
    assert [point["k"] for point in series["points"]] == [1, 2, 8]
    assert all(point["samples"] == roofline.VISITS for point in series["points"])
    assert series["points"][2]["median"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("busy", "counted", "contaminated"),
    [
        # Which rounds are disturbed; which rounds' times then count.
        ([True, False, True, False, False], [2, 4, 5], False),
        ([True] * 99, [1, 2, 3, 4, 5, 6], True),
        ([False, True, True, True, True, True, True], [1, 2, 3, 4, 5, 6], True),
    ],
)
def test_disturbed_visits_do_not_count_unless_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch, busy: list[bool], counted: list[int], contaminated: bool
) -> None:
    visits = 0

    class Contention:
        def __enter__(self) -> Contention:
            return self

        def __exit__(self, *exc: object) -> None:
            nonlocal visits
            self.contaminated = busy[visits // 2]
            visits += 1

    monkeypatch.setattr(roofline, "VISIT_SECONDS", 0.0)
    monkeypatch.setattr(roofline.machine, "Contention", Contention)
    monkeypatch.setattr(roofline.time, "perf_counter", lambda: visits / 2)
    subject = Subject("fake", "bf16", "4 × 4", 16, 32, lambda k: float(k * (visits // 2 + 1)))
    timing = roofline.time_rounds(subject, (1, 2), 1.0)
    assert sorted(timing.seconds[1]) == counted
    assert sorted(timing.seconds[2]) == [2 * one for one in counted]
    assert timing.contaminated is contaminated
    assert timing.visits == visits
    assert timing.disturbed == 2 * sum(busy[: visits // 2])


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofline, "VISIT_SECONDS", 0.01)
        return measure(
            device="cpu",
            tokens=(1, 2, 5, 9),
            seconds=0.0,
            least_bytes=300_000,
            shapes=((128, 192),),
            only=("native", "packed", "plain"),
        )


def test_a_record_of_this_machine(record: dict[str, Any]) -> None:
    check(json.loads(json.dumps(record)))
    kernels = [series["kernel"] for series in record["series"]]
    assert "torch, F.linear" in kernels
    assert len(kernels) == len(set(kernels))
    assert {series["shape"] for series in record["series"]} <= {
        "13 of 128 × 192", "7 of 128 × 192", "4 of 128 × 192"
    }  # fmt: skip
    for series in record["series"]:
        assert series["bytes"] >= 300_000
        assert series["bytes"] == series["parameters"] * {"bf16": 2, "fp32": 4}[series["precision"]]
        # BF16 weights carry 8 bits; FP32 sums differ in their order only.
        assert series["relative_error"] < {"bf16": 1e-2, "fp32": 1e-5}[series["precision"]]
    assert record["device"]["cores"] >= 1
    assert record["read"]["bandwidth"] > 0
    assert record["cache_bytes"] > 0


@pytest.mark.real_model
def test_whole_passes_of_the_embedded_target(embedded_folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofline, "VISIT_SECONDS", 0.0)
        result = measure(device="cpu", tokens=(1, 9), seconds=0.0, only=["engine"])
    check(result)
    (first,) = result["series"]
    assert first["parameters"] == 134_515_008
    assert "SmolLM2-135M-Instruct" in first["shape"]
    assert first["kernel"].endswith("decoder, whole passes")
    # Nine rows are nine times the arithmetic: the fit sees it even in a handful of samples.
    assert first["points"][1]["median"] > first["points"][0]["p10"]


def knee(value: dict[str, Any]) -> None:
    value["series"][0]["hard"]["knee"] *= 1.1


def order(value: dict[str, Any]) -> None:
    value["series"][0]["points"].reverse()


def zero(value: dict[str, Any]) -> None:
    value["series"][0]["points"][1]["p10"] = 0.0


def size(value: dict[str, Any]) -> None:
    value["series"][0]["parameters"] += 1


def schema(value: dict[str, Any]) -> None:
    value["schema"] = "something/1"


def empty(value: dict[str, Any]) -> None:
    value["series"] = []


@pytest.mark.parametrize("spoil", [knee, order, zero, size, schema, empty])
def test_a_spoilt_record_is_refused(
    record: dict[str, Any], spoil: Callable[[dict[str, Any]], None]
) -> None:
    spoilt = copy.deepcopy(record)
    spoil(spoilt)
    with pytest.raises(ValueError):
        check(spoilt)


def test_shipped_records_are_sound_and_small(root: Path) -> None:
    files = sorted((root / "figures" / "roofline" / "recorded").glob("*.json"))
    for file in files:
        assert file.stat().st_size <= 40_000
        check(json.loads(file.read_text("utf-8")))


def test_the_command_writes_the_record_and_says_what_it_found(
    tmp_path: Path,
    record: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: dict[str, Any] = {}

    def fake(**options: Any) -> dict[str, Any]:
        asked.update(options)
        return {**record, "contaminated": True}

    monkeypatch.setattr(roofline, "measure", fake)
    out = tmp_path / "deep" / "cpu.json"
    assert main(["--tokens", "4", "1", "1", "--out", str(out)]) == 0
    assert asked["tokens"] == [1, 4]
    check(json.loads(out.read_text()))
    said = capsys.readouterr().err
    assert "knee at k" in said
    assert "CONTAMINATED" in said
    with pytest.raises(SystemExit):
        main(["--tokens", "3"])


def test_weights_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.memory.available", lambda device="cpu": 1_000_000)
    with pytest.raises(SdError) as caught:
        measure(device="cpu")
    assert caught.value.code == "not_enough_memory"


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    result = measure(device="cuda", tokens=(1, 8, 512), seconds=0.5, shapes=((4096, 4096),))
    check(result)
    assert result["series"][0]["relative_error"] < 2e-2
    assert result["series"][0]["bytes"] >= 3 * result["cache_bytes"]


def test_the_last_level_cache_is_the_largest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, text in enumerate(("32K", "512K", "32768K")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{text}\n")
    monkeypatch.setattr(roofline_subjects, "_CACHES", tmp_path)
    assert roofline_subjects.last_level_cache("cpu") == 32 << 20
    monkeypatch.setattr(roofline_subjects, "_CACHES", tmp_path / "none")
    assert roofline_subjects.last_level_cache("cpu") == 64 << 20
