"""Figure `accept` in a browser: draws, dragging by mouse, touch and keys, contexts, link and language."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import Locator, Page, expect

from figures import distribution as d
from figures.accept import model
from figures.accept.figure import Accept, contexts
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser
PATH = "/app/figure/accept"
TEXTS = ["50,30,20", "70,20,10", "0,0,1", "1,1", "", "-1,x,5", "1e-3,.5,2.", "10,20,30,40"]


def start(page: Page) -> Locator:
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-accept")
    figure.locator(".ac-knob").first.wait_for()
    return figure


def scrub(figure: Locator, n: int) -> None:
    figure.get_by_label("Position in time").evaluate(
        "(e, n) => { e.value = n / 400 * 1000; e.dispatchEvent(new Event('input')); }", n
    )


def test_arithmetic_and_draws_are_those_of_python(open_page: OpenPage) -> None:
    page = open_page(PATH)
    start(page)
    cases = [(p, q, size) for p, q in itertools.product(TEXTS, repeat=2) for size in (2, 3, 4)]
    got = page.evaluate(
        """async (cases) => { const d = await import('#sd/distribution.js'), m = await import('/app/figures/accept/model.js');
        return cases.map(([a, b, size]) => { const p = d.weightsOf(a, size), q = d.weightsOf(b, size);
          return [p, q, d.acceptance(p, q), d.residual(p, q), m.puzzle(p, q), m.draws(p, q, 7, 60).map(x => [x.guess, x.height, x.accepted, x.written, x.place])]; }); }""",
        cases,
    )
    for (a, b, size), (p, q, alpha, residual, puzzle, draws) in zip(cases, got, strict=True):
        ours = d.weights_of(a, size), d.weights_of(b, size)
        assert (p, q) == ours
        assert alpha == pytest.approx(d.acceptance(*ours), rel=1e-12)
        assert residual == pytest.approx(d.residual(*ours), rel=1e-12)
        assert puzzle == model.puzzle(*ours)
        # Draw for draw, with the same generator and seed.
        made = model.draws(*ours, 7, 60)
        assert draws == [[x.guess, x.height, x.accepted, x.written, x.place] for x in made]
    moved = page.evaluate(
        """async () => { const d = await import('#sd/distribution.js');
        return [d.moved([.5, .3, .2], 0, .9), d.moved([1, 0, 0], 0, .5), d.moved([.5, .3, .2], 2, 7), d.moved([1/3, 1/3, 1/3], 1, 1/3)]; }"""
    )
    assert moved[:3] == ["90,6,4", "50,25,25", "0,0,100"]
    assert sum(map(float, moved[3].split(","))) == pytest.approx(100)


def test_bars_are_dragged_and_keyed(open_page: OpenPage) -> None:
    page = open_page(PATH, width=900)
    figure = start(page)
    knob = figure.get_by_role("slider", name="q of “the”")
    knob.scroll_into_view_if_needed()
    at = knob.locator(".ac-ring").bounding_box()
    assert at
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 20)
    page.mouse.move(x, y + 45.6)  # 228 px are 1, so 0.2 down to 0.5
    page.mouse.up()
    expect(knob).to_have_attribute("aria-valuenow", "50")
    q = "50,33.3,16.7"
    expect(figure.locator(".sd-say")).to_have_text(Accept(q=q).describe("en"))
    knob.press("ArrowDown")
    expect(knob).to_have_attribute("aria-valuenow", "49")
    knob.press("End")
    expect(knob).to_have_attribute("aria-valuenow", "100")
    knob.press("Home")
    expect(knob).to_have_attribute("aria-valuenow", "0")


def test_a_finger_drags_a_bar(open_page: OpenPage) -> None:
    page = open_page(PATH, width=360, touch=True)
    figure = start(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    knob = figure.get_by_role("slider", name="p of “a”")
    knob.scroll_into_view_if_needed()
    at = knob.locator(".ac-ring").bounding_box()
    assert at
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    before = page.evaluate("scrollY")
    session = page.context.new_cdp_session(page)
    for kind, dy in (("touchStart", 0), ("touchMove", -40), ("touchMove", -68.4), ("touchEnd", 0)):
        points = [] if kind == "touchEnd" else [{"x": x, "y": y + dy}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.wait_for_timeout(100)
    assert int(knob.get_attribute("aria-valuenow") or 0) == pytest.approx(60, abs=1)
    assert page.evaluate("scrollY") == before


def test_draws_contexts_presets_and_puzzle(open_page: OpenPage) -> None:
    page = open_page(PATH, query={"accept.p": "x,1", "accept.tokens": "|", "accept.seed": "-4"})
    figure = start(page)
    expect(figure.locator(".sd-warn")).to_have_count(1)
    odd = Accept(p="x,1", tokens="|", seed=0)
    expect(figure.locator(".sd-say")).to_have_text(odd.describe("en"))
    figure.get_by_role("button", name="Reset").click()
    for n in (1, 37, 400):
        scrub(figure, n)
        expect(figure.locator(".sd-say")).to_have_text(Accept().describe("en", t=n))
    figure.get_by_role("button", name="Step back").click()
    expect(figure.locator(".sd-say")).to_have_text(Accept().describe("en", t=399))
    name = next(iter(contexts()))
    figure.get_by_label("p and q of").select_option(name)
    expect(figure.locator(".sd-say")).to_have_text(Accept(context=name).describe("en", t=399))
    # Moving a bar of a recorded context makes it the reader's own.
    knob = figure.locator(".ac-knob").nth(1)
    knob.press("Home")
    expect(figure.get_by_label("p and q of")).to_have_value("own")
    for label, state in (
        ("nothing in common", {"tokens": "the|a|this|one", "p": "60,40,0,0", "q": "0,0,30,70"}),
        ("p = q", {"q": "50,30,20"}),
    ):
        figure.get_by_role("button", name=label).click()
        expect(figure.locator(".sd-say")).to_have_text(Accept(**state).describe("en", t=399))
    figure.get_by_role("button", name="Puzzle").click()
    figure.get_by_role("slider", name="q of “the”").press("End")
    expect(figure.locator(".sd-solved")).to_be_empty()
    p = figure.get_by_role("slider", name="p of “the”")
    for _ in range(12):  # down to 38 %: still the favourite, but α is 0.38
        p.press("ArrowDown")
    expect(figure.locator(".sd-solved")).not_to_be_empty()
    figure.get_by_role("button", name="Reset").click()
    figure.get_by_role("button", name="One token more").click()
    expect(figure.locator(".ac-knob")).to_have_count(8)


def test_it_plays_and_stands_still_where_no_motion_is_wanted(open_page: OpenPage) -> None:
    page = open_page(PATH)
    figure = start(page)
    figure.get_by_label("Speed").select_option("64")
    figure.locator(".sd-play").click()
    expect(figure.locator(".sd-say")).to_contain_text("drawn:")
    figure.locator(".sd-play").click()
    still = start(open_page(PATH, reduced_motion=True))
    still.locator(".sd-play").click()
    expect(still.locator(".sd-say")).to_have_text(Accept().describe("en", t=400))
