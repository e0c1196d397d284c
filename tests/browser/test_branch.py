"""The branch figure in a browser: its arithmetic, each control, both languages, links."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Any

import pytest
from playwright.sync_api import expect

from figures.branch import model
from figures.branch.figure import Branch
from tests.browser.conftest import OpenPage
from tests.browser.harness import rows, says, start

pytestmark = pytest.mark.browser
DRAWN = ".br-chip"

GRID = [
    dict(
        zip(
            ("n", "pattern", "mode", "wrong", "seed", "condition", "body", "rollback", "m", "c"),
            case,
            strict=True,
        )
    )
    | {"accuracy": 0.6}
    for case in itertools.product(
        (2, 9, 16),
        ("TTTN", "", "n1x0T"),
        model.MODES,
        (0, 0b1010101010101),
        (0, 9999),
        (1, 7),
        (1, 12),
        (0, 3),
        (1, 5),
        (0.01, 0.37),
    )
][::53]


def close(a: Any, b: Any) -> bool:
    """Equal, numbers to 1e-9."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, bool | str):
        return a == b
    return abs(a - b) <= 1e-9


def becomes(figure: Any, lane: int, expected: str) -> None:
    """The variables beside a lane become those."""
    figure.page.wait_for_function(
        "([i, text]) => document.querySelectorAll('#sd-branch .br-vars')[i].textContent === text",
        arg=[lane, expected],
        timeout=15_000,
    )


def test_the_browsers_arithmetic_is_pythons(open_page: OpenPage) -> None:
    page = open_page()
    start(page, "branch", DRAWN)
    found = page.evaluate(
        """async (grid) => {
          const { scene } = await import(document.querySelector('script[type=importmap]')
            .textContent.match(/"(\\/[^"]*)web\\/"/)[1] + "branch/model.js");
          return grid.map(scene);
        }""",
        GRID,
    )
    for case, js in zip(GRID, found, strict=True):
        python = json.loads(json.dumps(asdict(model.scene(**case))))
        assert close(python, js), case


def test_mouse_keyboard_and_the_url(open_page: OpenPage) -> None:
    page = open_page()
    figure = start(page, "branch", DRAWN)
    says(figure, Branch().describe("en"))
    chips = figure.locator(".br-chip")

    chips.nth(1).click()
    says(figure, Branch(wrong=0b1010).describe("en"))
    chips.nth(3).click()
    says(figure, Branch(wrong=0b10).describe("en"))
    # One stop for Tab, arrows inside, Enter and Space to change.
    assert figure.locator('.br-chip[tabindex="0"]').count() == 1
    chips.nth(3).focus()
    for key in ("ArrowRight", "Enter"):
        page.keyboard.press(key)
    says(figure, Branch(wrong=0b10010).describe("en"))
    for key in ("Home", "Space", "End", "Enter"):
        page.keyboard.press(key)
    says(figure, Branch(wrong=0b10010011).describe("en"))
    assert chips.nth(7).get_attribute("aria-label").startswith("Iteration 8, x = 43: guess T")

    # A bar of the guessing lane is a way to the same thing.
    lane = figure.locator(".br-lane").nth(1).locator("svg")
    box = lane.bounding_box()
    end = Branch(wrong=0b10010011).scene().guessing.end
    lane.click(position={"x": 48 + (box["width"] - 50) * (end - 1) / 80, "y": 12})
    says(figure, Branch(wrong=0b00010011).describe("en"))

    keys = {"condition": "End", "body": "Home", "rollback": "ArrowRight", "n": "ArrowRight"}
    for name, key in keys.items():
        figure.locator(f'[data-control="{name}"] input').press(key)
    state = {"wrong": 0b10011, "condition": 12, "body": 1, "rollback": 3, "n": 9}
    says(figure, Branch(**state).describe("en"))
    assert rows(figure) == Branch(**state).table("en")

    page.wait_for_function("() => location.search.includes('branch.condition=12')")
    for name, value in state.items():
        assert f"branch.{name}={value}" in page.url

    # The address alone brings the state back, and the other language shows the same state.
    page.reload()
    figure = start(page, "branch", DRAWN)
    says(figure, Branch(**state).describe("en"))
    page.locator('[data-switch="zh"]').click()
    says(figure, Branch(**state).describe("zh"))
    assert rows(figure) == Branch(**state).table("zh")

    figure.get_by_role("button", name="重置此图").click()
    says(figure, Branch().describe("zh"))


def test_predictors_chance_and_the_language_model(open_page: OpenPage) -> None:
    page = open_page()
    figure = start(page, "branch", DRAWN)
    pattern = figure.locator('[data-control="pattern"] input')
    for mode, text in (("taken", "TN"), ("onebit", "TTN"), ("twobit", "NNT oops")):
        figure.locator(f'[data-control="mode"] input[value="{mode}"]').check()
        pattern.fill(text)
        says(figure, Branch(mode=mode, pattern=text).describe("en"))
    # The memory that the counter had before each guess stands in the strip.
    memory = figure.locator(".br-chip .br-memory").all_inner_texts()
    assert memory == [str(x) for x in Branch(mode="twobit", pattern="NNT").scene().memory]
    figure.get_by_role("button", name="Pattern TTTN").click()
    says(figure, Branch(mode="twobit").describe("en"))

    # A guess changed by hand keeps the others as the predictor left them.
    figure.locator(".br-chip").first.click()
    says(figure, Branch(mode="hand", wrong=0b10001001).describe("en"))

    figure.locator('[data-control="mode"] input[value="draw"]').check()
    figure.locator('[data-control="seed"] input').fill("77")
    figure.locator('[data-control="seed"] input').press("Enter")
    figure.locator('[data-control="accuracy"] input').press("ArrowLeft")
    says(figure, Branch(mode="draw", seed=77, accuracy=0.7, wrong=0b10001001).describe("en"))

    assert figure.locator(".br-overlay").is_hidden()
    figure.locator('[data-control="llm"] input').check()
    figure.locator('[data-control="m"] input').press("End")
    figure.locator('[data-control="c"] input').press("Home")
    state = {"mode": "draw", "seed": 77, "accuracy": 0.7, "llm": True, "m": 8, "c": 0.01}
    says(figure, Branch(**state).describe("en"))
    assert rows(figure) == Branch(**state).table("en")
    assert figure.locator(".br-overlay .br-lane svg").count() == 2


def test_playing_stepping_and_the_end(open_page: OpenPage) -> None:
    page = open_page()
    figure = start(page, "branch", DRAWN)
    variables = figure.locator(".br-vars")
    assert variables.nth(1).inner_text() == "total = 453 · skipped = 2 ✓ same result"
    figure.get_by_role("button", name="From the start").click()
    becomes(figure, 0, "total = 0 · skipped = 0")
    # The first event of either lane: the guessed body is done at 4, the conditions are known at 6.
    step = figure.get_by_role("button", name="Step forward")
    step.click()
    step.click()
    becomes(figure, 1, "total = 86 · skipped = 0")
    assert variables.nth(0).inner_text() == "total = 0 · skipped = 0"
    figure.locator(".sd-transport select").select_option("4")
    figure.get_by_role("button", name="Play").click()
    becomes(figure, 0, "total = 453 · skipped = 2")
    figure.get_by_role("button", name="Play").wait_for()
    # The playhead is nobody's business but the view's.
    assert "branch.t" not in page.url


def test_bet_puzzle_and_a_bad_link(open_page: OpenPage) -> None:
    page = open_page(
        query={"branch.n": "400", "branch.wrong": "-3", "branch.mode": "psychic", "branch.t": "3"}
    )
    figure = start(page, "branch", DRAWN)
    says(figure, Branch(n=16, wrong=0).describe("en"))
    assert figure.locator(".sd-warn").count() == 3
    assert "same result" in figure.locator(".br-vars").nth(1).inner_text()
    figure.get_by_role("button", name="Not at all").click()
    answer = figure.get_by_role("button", name="By the rollback alone")
    assert answer.get_attribute("data-verdict") == "right"
    expect(figure.locator(".sd-bet-why")).to_have_text(Branch.words("en")["bet.why"])

    solved = figure.locator(".sd-solved")
    figure.get_by_role("button", name="Puzzle").click()
    for i in range(8):
        figure.locator(".br-chip").nth(i).click()
    assert solved.inner_text() == ""
    for _ in range(2):
        figure.locator('[data-control="rollback"] input').press("ArrowRight")
    solved.get_by_text("min(C, B)").wait_for()


def test_touch_narrow_and_still(open_page: OpenPage, shot: Any) -> None:
    page = open_page(
        lang="zh", theme="dark", width=360, height=780, touch=True, reduced_motion=True,
        query={"branch.n": "16", "branch.llm": "true"},
    )  # fmt: skip
    figure = start(page, "branch", DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    chip = figure.locator(".br-chip").nth(12)
    box = chip.bounding_box()
    assert box["width"] >= 24
    assert box["height"] >= 24
    chip.tap()
    says(figure, Branch(n=16, wrong=0b1000000001000, llm=True).describe("zh"))
    # No motion wanted: play goes to the end at once.
    figure.get_by_role("button", name="从头开始").tap()
    figure.get_by_role("button", name="播放").tap()
    figure.locator(".br-vars").nth(1).get_by_text("结果相同").wait_for()
    sizes = figure.locator("svg text").evaluate_all(
        "ts => ts.map(t => parseFloat(getComputedStyle(t).fontSize))"
    )
    assert min(sizes) >= 11
    shot(page, "branch-zh-dark-360")
