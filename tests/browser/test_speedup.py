"""Figure `speedup` in a browser: arithmetic, dragging, presets, recorded races, a theme and a language."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

import content
from figures.speedup import model
from figures.speedup.figure import Speedup
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser
PATH = "/app/figure/speedup"
EN = content.strings("en")


def start(page: Page) -> Locator:
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-speedup")
    figure.locator(".su-names text").first.wait_for(state="attached")  # the chart has been drawn
    return figure


def shown(page: Page) -> dict[str, str]:
    """The figure's state, from the link it offers."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name=EN["ui.copy_link"]).click()
    expect(page.get_by_text(EN["ui.copied"])).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    pairs = parse_qsl(urlsplit(link).query)
    return {k.removeprefix("speedup."): v for k, v in pairs if k.startswith("speedup.")}


def test_arithmetic_is_that_of_python(open_page: OpenPage) -> None:
    page = open_page(PATH)
    start(page)
    grid = [
        model.Params(alpha=a, c=c, overhead=o, batch=b, corner=k, hardware=d)
        for a, c, o, b, k, d in itertools.product(
            (0, 0.37, 0.9, 1),
            (0, 0.11),
            (0, 2.5),
            (1, 48, 512),
            ("sharp", "soft"),
            ("h100-sxm", "custom"),
        )
    ]
    grid += [model.Params(verify="growth", growth=g) for g in (-0.1, 0, 0.7)]
    grid += [replace(model.Params(), flops_share=0.3, bandwidth_share=0.8, batch=256)]
    got = page.evaluate(
        """async (grid) => { const m = await import('/app/figures/speedup/model.js');
        const { figure } = JSON.parse(document.getElementById('boot').textContent);
        return grid.map(p => { const all = m.rounds(figure.data, p);
          return [all.map(r => [r.tokens, r.v, r.cost, r.speedup]), m.best(all).m, m.breakEven(figure.data, p, 5, 1.5)]; }); }""",
        [asdict(p) for p in grid],
    )
    for p, (rounds, best, even) in zip(grid, got, strict=True):
        for m, row in enumerate(rounds, start=1):
            r = model.round_of(p, m)
            assert row == pytest.approx([r.tokens, r.verification, r.cost, r.speedup], rel=1e-9)
        assert best == model.best(p).m
        expected = model.break_even(p, 5, 1.5)
        assert even is None if expected is None else even == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("touch", [False, True])
def test_the_map_is_dragged(open_page: OpenPage, touch: bool) -> None:
    page = open_page(PATH, width=390 if touch else 1000, touch=touch)
    figure = start(page)
    box = figure.locator(".su-chart").bounding_box()
    assert box
    handle = figure.locator(".su-chart svg > g").last
    handle.scroll_into_view_if_needed()
    at = handle.locator("circle").last.bounding_box()
    assert at
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    if touch:
        session = page.context.new_cdp_session(page)
        for kind, dx, dy in (
            ("touchStart", 0, 0),
            ("touchMove", 40, 20),
            ("touchMove", 60, 40),
            ("touchEnd", 0, 0),
        ):
            points = [] if kind == "touchEnd" else [{"x": x + dx, "y": y + dy}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        dx, dy = 60, 40
    else:
        dx, dy = 120, 60
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 40, y + 10)
        page.mouse.move(x + dx, y + dy)
        page.mouse.up()
    page.wait_for_timeout(100)
    state = shown(page)
    column = (box["width"] - 58 - 46) / model.M_MAX
    assert int(state["m"]) == pytest.approx(4 + dx / column, abs=1)
    assert float(state["alpha"]) == pytest.approx(0.8 - dy / 210, abs=0.02)
    figure_now = Speedup(m=int(state["m"]), alpha=float(state["alpha"]))
    expect(figure.locator(".sd-say")).to_have_text(figure_now.describe("en"))


def test_presets_runs_keyboard_and_puzzle(open_page: OpenPage) -> None:
    page = open_page(PATH, query={"speedup.m": "99", "speedup.alpha": "x"})
    figure = start(page)
    assert figure.locator(".sd-warn").count() == 2
    figure.get_by_role("button", name="Reset").click()
    for name, label in (
        ("poor", "Poor draft"),
        ("overhead", "Overhead"),
        ("batch", "Batch of 32"),
        ("slope", "No flat stretch"),
        ("example", "The text’s example"),
    ):
        figure.get_by_role("button", name=label, exact=True).click()
        expect(figure.locator(".sd-say")).to_have_text(
            Speedup(**model.PRESETS[name]).describe("en")
        )
        expect(figure.locator(".su-note")).not_to_be_empty()
        expect(figure.get_by_role("button", name=label, exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )
    figure.get_by_label("m, drafted tokens a round").press("ArrowRight")
    expect(figure.locator(".sd-say")).to_have_text(Speedup(m=9).describe("en"))
    expect(figure.locator(".su-note")).to_be_empty()
    if model.runs():
        # An adaptive run has an average m, which the slider cannot take: choose one with a whole m.
        place, run = next((i, r) for i, r in enumerate(model.runs()) if float(r.m).is_integer())
        figure.get_by_text("Recorded races as points").click()
        figure.get_by_role("button", name="Take α, c and v").nth(place).click()
        assert float(shown(page)["alpha"]) == pytest.approx(run.alpha, abs=1e-4)
        expect(figure.locator(".sd-say")).to_contain_text(f"{run.formula:.2f}×")
    figure.get_by_role("button", name="Reset").click()
    figure.get_by_role("button", name="Puzzle").click()
    figure.get_by_label("α, acceptance rate").press("End")
    expect(figure.locator(".sd-solved")).to_be_empty()
    figure.get_by_label("Batch, sequences").press("End")
    expect(figure.locator(".sd-solved")).not_to_be_empty()


def test_the_map_follows_the_theme(open_page: OpenPage) -> None:
    page = open_page(PATH, theme="light")
    start(page)
    fill = "() => Bokeh.documents.at(-1).get_model_by_name('cells').data.fill[0]"
    light = page.evaluate(fill)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"(before) => ({fill})() !== before", arg=light)
