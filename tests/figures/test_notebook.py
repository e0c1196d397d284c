"""Figures as objects: parameters, errors, and what an object and its two hosts tell each other."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import panel
import pytest

import figures
from figures import mask, race, roofline
from figures import notebook as under_test
from figures.export.standalone import standalone

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_every_figure_can_be_called_and_knows_its_parameters(figure_id: str) -> None:
    figure = getattr(figures, figure_id)(lang="zh")
    assert isinstance(figure, figures.get(figure_id))
    assert repr(figure) == f"{figure_id}(lang='zh')"
    schema = figures.get(figure_id).schema()
    assert figure.state() == {n: e["default"] for n, e in schema.items() if not e.get("private")}


def test_packages_are_still_packages() -> None:
    code = (
        "from figures import roofline\nimport figures.roofline.model\n"
        "assert roofline.model.K_MAX and roofline(k=2).k == 2"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_parameters_are_attributes_with_bounds() -> None:
    figure = roofline(k=5, lang="en")
    figure.k = 8
    assert (figure.k, repr(figure)) == (8, "roofline(k=8, lang='en')")
    with pytest.raises(ValueError, match=r"Roofline\.k' must be at most 8192, not 8193"):
        figure.k = 8193
    with pytest.raises(ValueError, match="must be an integer"):
        figure.k = "many"
    with pytest.raises(ValueError, match="does not accept 'none'"):
        figure.hardware = "none"
    with pytest.raises(ValueError, match="takes at most 2000 characters, not 2001"):
        mask(sentence="a" * 2001)
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        roofline(k=0)
    with pytest.raises(ValueError, match="lang 'fr' is none of zh, en"):
        figure.lang = "fr"
    assert figure.k == 8


def test_a_slip_of_the_pen_is_told() -> None:
    with pytest.raises(TypeError, match="mask has no parameter 'z'; it has m, output, "):
        mask(z=1)
    figure = mask()
    with pytest.raises(AttributeError, match="mask has no parameter 'M'; it has m, output, "):
        figure.M = 3


def test_what_is_shown_is_the_exported_page_in_its_present_state() -> None:
    figure = mask(m=3)
    figure.reject = 1
    figure.lang = "zh"
    found = re.fullmatch(
        r'<iframe data-sd="[0-9a-f]{16}" title="[^"]+" srcdoc="([^"]+)"[^>]+></iframe>',
        figure.html(),
    )
    assert found
    page = html.unescape(found[1])
    assert page == standalone("mask", lang="zh", state=figure.state(), joined=True)
    assert figures.get("mask")(m=3, reject=1).describe("zh") in html.unescape(page)
    # Notebook servers stop an output of more than a megabyte a second.
    assert len(roofline().html()) < 700_000


def hosts() -> list[Any]:
    return [
        pytest.param(lambda f: under_test._notebook_link(f, "token"), id="anywidget"),
        pytest.param(panel.panel, id="panel"),
    ]


@pytest.mark.parametrize("host_of", hosts())
def test_object_and_host_keep_the_same_values(host_of: Any) -> None:
    figure = race(m=3)
    host = host_of(figure)
    assert host.names == list(figure.state())
    assert {name: getattr(host, f"sd_{name}") for name in host.names} == figure.state()
    figure.close = True  # a name that widgets have too
    assert host.sd_close is True
    heard: list[Any] = []
    figure.param.watch(heard.append, ["m", "temperature", "close"])
    host.sd_m = 5
    host.sd_temperature = 1  # JSON knows one kind of number
    assert (figure.m, figure.temperature) == (5, 1.0)
    assert isinstance(figure.temperature, float)
    host.sd_m = 99  # never from our own page
    assert (figure.m, host.sd_m) == (16, 16)
    assert [event.name for event in heard] == ["m", "temperature", "m"]


def test_a_browser_s_message_sets_the_figure() -> None:
    figure = roofline()
    link = under_test._notebook_link(figure, "token")
    link.set_state({"sd_k": 9, "sd_precision": "int4"})
    assert (figure.k, figure.precision) == (9, "int4")


def test_a_panel_app_serves_the_object() -> None:
    figure = mask(m=2)
    component = panel.panel(figure)
    assert component.frame_html == figure.html()
    assert panel.Column(figure)[0].frame_html == figure.html()


def test_without_anywidget_a_notebook_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_in_kernel", lambda: True)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.warns(UserWarning, match="pip install anywidget"):
        shown = mask()._repr_html_()
    assert shown.startswith("<iframe ")
