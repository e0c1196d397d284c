"""The prose and the roofline figure read about an H100 and a 70B model in two files: they agree."""

from __future__ import annotations

import pytest

import content
from kernels import hardware


def test_presets_agree_with_the_prose() -> None:
    value = {key: number.value for key, number in content.numbers().items()}
    h100, model = hardware.presets()["h100-sxm"], hardware.shapes()["dense-70b"]
    assert h100.bandwidth == value["h100.bandwidth"]
    assert h100.flops == value["h100.flops"]
    assert h100.memory == value["h100.memory"]
    assert model.parameters == value["model70b.parameters"]
    assert hardware.PRECISIONS["bf16"] == value["bf16.bytes"]


def test_the_figure_computes_what_the_prose_says() -> None:
    value = {key: number.value for key, number in content.numbers().items()}
    h100, model = hardware.presets()["h100-sxm"], hardware.shapes()["dense-70b"]
    one = hardware.forward(h100, model, 1)
    assert one.read == pytest.approx(value["model70b.read_time"])
    assert one.compute == pytest.approx(value["model70b.compute_time"])
    assert hardware.knee(h100, model) == pytest.approx(value["h100.knee"])
