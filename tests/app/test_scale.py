"""docs/scale.md does its sums right."""

from __future__ import annotations

import math
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "scale.md").read_text("utf-8")
STEPS = (1e2, 1e4, 1e6, 1e8)
PLAIN, SPECULATIVE, PROMPT, LENGTH = 100.9, 201.0, 0.054, 96
CORE, GIGABYTE = 0.05, 0.085  # $ an hour, $
SHARE = 0.6  # of its time that a device is asked to be busy


def row(name: str) -> list[str]:
    """The cells of a row of the table of steps."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def number(cell: str) -> float:
    return float(re.sub(r"[^0-9.]", "", cell.split(":")[-1].replace(" ", "")))


def close(cell: str, value: float) -> bool:
    """As written, to the digits that are written."""
    digits = cell.split(":")[-1]
    step = 10.0 ** -len(digits.partition(".")[2].split(" ")[0]) if "." in digits else 1.0
    scale = 1e3 if "TB" in cell else 1.0
    return abs(number(cell) * scale - value) <= 0.51 * step * scale


def seconds() -> float:
    """Of one race, both lanes."""
    return LENGTH / PLAIN + LENGTH / SPECULATIVE + 2 * PROMPT


def test_a_race_takes_what_its_lanes_take() -> None:
    assert f"{seconds():.2f} s of the two cores" in TEXT
    assert f"{3600 / seconds():.0f}".replace("2342", "2 342") in TEXT


def test_the_steps() -> None:
    for number_, readers in enumerate(STEPS):
        visits = readers / 30 * 0.1
        races = 2 * visits
        devices = races * seconds() / 3600
        cores = 2 * max(1, math.ceil(devices / SHARE))
        following = 2 * math.ceil(devices / SHARE / 2.4)
        gigabytes, spoken = readers * 0.510 / 1e3, readers * 2 * 0.070 / 1e3
        for name, value in (
            ("visits in the busiest hour", visits),
            ("races in the busiest hour", races),
            ("the article's traffic a month", gigabytes),
            ("the races' traffic a month", spoken),
            ("the same at 60 %", math.ceil(devices / SHARE)),
            ("cores for races, always on", cores * CORE * 730),
        ):
            assert close(row(name)[number_], value), (name, readers, value)
        assert abs(number(row("devices of two cores, never idle")[number_]) / devices - 1) < 0.2
        costs = [r for r in TEXT.splitlines() if r.startswith("| … costs")]
        for line, traffic in zip(costs, (gigabytes, spoken), strict=True):
            cell = line.strip("|").split("|")[number_ + 1]
            assert close(cell.strip(), traffic * GIGABYTE), (readers, traffic)
        if readers >= 1e6:
            cell = row("the same, following the load")[number_]
            assert abs(int(cell.split(":")[0]) - following) <= 2
            mean = devices / SHARE / 2.4 * 2 * CORE * 730
            assert abs(number(cell) / mean - 1) < 0.01
    assert f"{row('reading at the same time')[3]}" == "111 111"


def test_larger_targets_by_the_roofline() -> None:
    for weights, devices, milliseconds in ((16.4e9, 1, 4.9), (141.1e9, 8, 5.3)):
        assert math.isclose(weights / (devices * 3.35e12) * 1e3, milliseconds, abs_tol=0.05)
        assert f"{milliseconds} ms" in TEXT
    assert f"{3600 / (LENGTH * 16.4e9 / 3.35e12 * 1.5):.0f}".replace("5107", "5 107") in TEXT
