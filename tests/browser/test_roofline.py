"""Figure 1 in a browser: arithmetic, marker, slider, device, puzzle."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import Page, expect

from figures.roofline import model
from figures.roofline.figure import Roofline
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

STATES = [
    dict(
        zip(
            ("k", "hardware", "model", "precision", "batch", "context", "flops_share"),
            case,
            strict=True,
        )
    )
    for case in itertools.product(
        (1, 5, 300, 8192),
        ("h100-sxm", "m4-max", "custom"),
        ("dense-70b", "qwen3-30b-a3b", "deepseek-v3"),
        ("bf16", "int4"),
        (1, 32),
        (0, 32768),
        (1.0, 0.55),
    )
][::7]


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    opened = open_page(lang="en")
    opened.locator("html[data-ready]").wait_for(state="attached")
    opened.locator("#sd-roofline").scroll_into_view_if_needed()
    opened.locator(".roofline-chart canvas").first.wait_for()
    return opened


def test_the_browsers_arithmetic_is_pythons(page: Page) -> None:
    defaults = {n: getattr(model.Params(), n) for n in model.Params.__dataclass_fields__}
    got = page.evaluate(
        """async (states) => { const { frame } = await import('/app/figures/roofline/model.js');
        const { figures } = JSON.parse(document.getElementById('boot').textContent);
        return states.map(s => { const g = frame(figures.roofline.data, s);
            return { here: g.here, knee: g.knee === Infinity ? 'inf' : g.knee, needs: g.needs, fits: g.fits, free: g.free, verify: g.verify.time, prefill: g.prefill.time }; }); }""",
        [defaults | state for state in STATES],
    )
    for state, js in zip(STATES, got, strict=True):
        py = model.frame(model.Params(**state))
        knee = float("inf") if js["knee"] == "inf" else js["knee"]
        assert knee == pytest.approx(py.knee, rel=1e-9), state
        assert js["here"]["time"] == pytest.approx(py.here.time, rel=1e-9)
        assert js["here"]["read"] == pytest.approx(py.here.read, rel=1e-9)
        assert js["here"]["compute"] == pytest.approx(py.here.compute, rel=1e-9)
        assert js["here"]["weightBytes"] == pytest.approx(py.here.weight_bytes, rel=1e-9)
        assert js["verify"] == pytest.approx(py.verify.time, rel=1e-9)
        assert js["prefill"] == pytest.approx(py.prefill.time, rel=1e-9)
        assert js["needs"] == pytest.approx(py.needs, rel=1e-9)
        assert (js["fits"], js["free"]) == (py.fits, py.free)


def test_slider_marker_and_presets_move_the_point(page: Page) -> None:
    figure = page.locator("#sd-roofline")
    say = figure.locator(".sd-say")
    slider = figure.locator('[data-control="k"] input')
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(say).to_have_text(Roofline(k=2).describe("en"))
    page.keyboard.press("End")
    expect(say).to_have_text(Roofline(k=8192).describe("en"))
    page.keyboard.press("Home")
    expect(say).to_have_text(Roofline(k=1).describe("en"))

    handle = figure.locator("svg circle").last
    box = handle.bounding_box()
    assert box is not None
    before = len(page.context.pages[0].url)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 480, box["y"], steps=12)
    page.mouse.up()
    k = int(
        page.evaluate(
            "new Promise(r => setTimeout(() => r(new URLSearchParams(location.search).get('roofline.k')), 400))"
        )
    )
    assert 20 < k < 2000
    expect(say).to_have_text(Roofline(k=k).describe("en"))
    assert len(page.url) > before

    figure.get_by_role("button", name="verify").click()
    expect(say).to_have_text(Roofline(k=5).describe("en"))
    figure.get_by_role("button", name="prefill").click()
    expect(say).to_have_text(Roofline(k=2048).describe("en"))


def test_device_model_precision_batch(page: Page) -> None:
    figure = page.locator("#sd-roofline")
    say = figure.locator(".sd-say")
    figure.locator('[data-control="hardware"] select').select_option("m4-max")
    figure.locator('[data-control="model"] select').select_option("llama-8b")
    figure.get_by_role("radio", name="INT4").check()
    expect(say).to_have_text(
        Roofline(hardware="m4-max", model="llama-8b", precision="int4").describe("en")
    )
    assert "could not be confirmed" in figure.inner_text()
    figure.locator('[data-control="hardware"] select').select_option("custom")
    field = figure.locator('[data-control="custom_gbs"] input')
    field.fill("50")
    field.press("Enter")
    expect(say).to_have_text(
        Roofline(hardware="custom", custom_gbs=50, model="llama-8b", precision="int4").describe(
            "en"
        )
    )
    figure.get_by_role("button", name="Reset this figure").click()
    expect(say).to_have_text(Roofline().describe("en"))


def test_the_puzzle_is_solved_by_a_large_batch(page: Page) -> None:
    figure = page.locator("#sd-roofline")
    solved = figure.locator(".sd-solved")
    expect(solved).to_be_empty()
    batch = figure.locator('[data-control="batch"] input')
    batch.focus()
    page.keyboard.press("End")
    expect(solved).not_to_be_empty()


def test_dragging_asks_the_server_nothing(open_page: OpenPage) -> None:
    # Alone on its page: in the article, neighbours load what they need as they come near.
    page = open_page("/app/figure/roofline", lang="en")
    page.locator("html[data-ready]").wait_for(state="attached")
    page.locator(".roofline-chart canvas").first.wait_for()
    page.wait_for_load_state("networkidle")
    asked = len(open_page.watch(page).requests)
    slider = page.locator('#sd-roofline [data-control="k"] input')
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert len(open_page.watch(page).requests) == asked


def test_touch_drags_the_marker(open_page: OpenPage) -> None:
    page = open_page(lang="zh", width=390, touch=True)
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-roofline")
    figure.locator(".roofline-chart").scroll_into_view_if_needed()
    figure.locator(".roofline-chart canvas").first.wait_for()
    box = figure.locator("svg circle").last.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    client = page.context.new_cdp_session(page)
    scroll = page.evaluate("scrollY")
    client.send(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    for step in range(1, 9):
        client.send(
            "Input.dispatchTouchEvent",
            {"type": "touchMove", "touchPoints": [{"x": x + 12 * step, "y": y}]},
        )
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(400)
    k = int(page.evaluate("new URLSearchParams(location.search).get('roofline.k')"))
    assert k > 8
    assert page.evaluate("scrollY") == scroll
