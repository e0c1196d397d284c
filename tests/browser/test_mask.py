"""The mask figure in a browser: its structure, each control, both languages, links."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Any

import pytest

from figures.mask import model
from figures.mask.figure import Mask
from tests.browser.conftest import OpenPage
from tests.browser.harness import rows, says, start

pytestmark = pytest.mark.browser
DRAWN = ".mk-row"

SENTENCES = [
    "one two three four five six seven eight nine ten",
    "  先猜，再让 GPU 验证\u3000😀 ！ ",
    "don't <b>panic</b>\n\tÉtude\u00a0ёж 한국어 a",
    "two words",
]


def lit(figure: Any) -> int:
    """How many inputs are lit."""
    return figure.locator('.mk-box:not([data-kind="output"]):not([data-dim])').count()


def test_the_browsers_structure_is_pythons(open_page: OpenPage) -> None:
    page = open_page()
    start(page, "mask", DRAWN)
    cases = [
        {"sentence": s, "m": m, "output": output, "reject": reject}
        for s, m, output, reject in itertools.product(SENTENCES, (1, 4, 8), (0, 3, 9), (0, 2, 9))
    ]
    found = page.evaluate(
        """async (cases) => {
          const { tokenize, verification } = await import(
            document.querySelector('script[type=importmap]')
              .textContent.match(/"(\\/[^"]*)web\\/"/)[1] + "mask/model.js");
          return cases.map((c) => verification(tokenize(c.sentence), c));
        }""",
        cases,
    )
    for case, js in zip(cases, found, strict=True):
        tokens = model.tokenize(case.pop("sentence"))
        assert js == json.loads(json.dumps(asdict(model.verification(tokens, **case)))), case


def test_pointing_choosing_and_rejecting(open_page: OpenPage) -> None:
    page = open_page()
    figure = start(page, "mask", DRAWN)
    says(figure, Mask().describe("en"))
    outputs, drafts = figure.get_by_role("radio"), figure.locator('[data-kind="draft"].mk-box')
    assert (outputs.count(), drafts.count(), figure.locator(".mk-row").count()) == (5, 4, 5)
    assert figure.locator(".mk-row").nth(2).locator(".mk-cell").count() == 11
    assert lit(figure) == 11

    # Pointing previews, leaving goes back, a click stays.
    outputs.nth(4).hover()
    page.wait_for_function("() => !document.querySelector('#sd-mask .mk-box[data-dim]')")
    says(figure, Mask().describe("en"))
    figure.locator(".sd-title").hover()
    page.wait_for_function(
        "() => document.querySelectorAll('#sd-mask .mk-box[data-dim]').length === 2"
    )
    for button, output in (("First check", 1), ("Last check", 4), ("Bonus", 5)):
        figure.get_by_role("button", name=button).click()
        says(figure, Mask(output=output).describe("en"))
    figure.locator(".mk-row").nth(1).click(position={"x": 300, "y": 12})
    says(figure, Mask(output=2).describe("en"))
    assert outputs.nth(1).get_attribute("aria-checked") == "true"

    # The keyboard: one stop, arrows choose.
    assert figure.locator('[role="radio"][tabindex="0"]').count() == 1
    outputs.nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    says(figure, Mask(output=4).describe("en"))
    page.keyboard.press("Home")
    says(figure, Mask(output=1).describe("en"))

    # Rejecting by click and by key; once more takes it back.
    drafts.nth(1).click()
    says(figure, Mask(output=1, reject=2).describe("en"))
    assert rows(figure) == Mask(output=1, reject=2).table("en")
    assert outputs.evaluate_all("os => os.map(o => o.dataset.fate)") == [
        "accepted", "supplied", "void", "void", "void",
    ]  # fmt: skip
    drafts.nth(0).focus()
    for key in ("ArrowRight", "Enter"):
        page.keyboard.press(key)
    says(figure, Mask(output=1).describe("en"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    says(figure, Mask(output=1, reject=3).describe("en"))

    figure.locator('[data-control="reject"] input').press("End")
    says(figure, Mask(output=1, reject=9).describe("en"))
    figure.get_by_role("button", name="Judge as").click()
    says(figure, Mask(output=1, reject=3).describe("en"))
    # "All accepted" stays that when there are more tokens to accept.
    figure.locator('[data-control="reject"] input').press("End")
    figure.locator('[data-control="m"] input').press("End")
    says(figure, Mask(output=1, reject=9, m=8).describe("en"))
    assert figure.locator(".mk-proof tbody tr").count() == 9

    page.wait_for_function("() => location.search.includes('mask.reject=9')")
    page.reload()
    figure = start(page, "mask", DRAWN)
    says(figure, Mask(output=1, reject=9, m=8).describe("en"))
    page.locator('[data-switch="zh"]').click()
    says(figure, Mask(output=1, reject=9, m=8).describe("zh"))
    assert rows(figure) == Mask(output=1, reject=9, m=8).table("zh")


def test_a_sentence_of_the_readers(open_page: OpenPage) -> None:
    page = open_page()
    figure = start(page, "mask", DRAWN)
    badge = figure.locator(".sd-badge")
    assert badge.get_attribute("data-kind") == "recorded"
    field = figure.locator('[data-control="sentence"] input')
    for sentence in (*SENTENCES, "<img src=x onerror=alert(1)> a b c"):
        field.fill(sentence)
        # A text field has no line breaks and no tabs of its own.
        typed = field.input_value()
        says(figure, Mask(sentence=typed).describe("en"))
        assert rows(figure) == Mask(sentence=typed).table("en")
    assert figure.locator("img").count() == 0
    assert badge.get_attribute("data-kind") == "ideal"
    assert "recorded sentence" in figure.locator(".mk-note").inner_text()
    field.fill("x")
    says(figure, Mask(sentence="x").describe("en"))
    assert "two words at least" in figure.locator(".mk-note").inner_text()
    # Many tokens on little room: the earliest share a column, the drafted ones never do.
    field.fill("word " * 40)
    says(figure, Mask(sentence="word " * 40).describe("en"))
    assert figure.locator('[data-kind="draft"].mk-box').count() == 4
    assert figure.locator(".mk-box", has_text="+").count() == 1
    figure.get_by_role("button", name="Back to the recorded").click()
    says(figure, Mask().describe("en"))


def test_bet_puzzle_and_a_bad_link(open_page: OpenPage) -> None:
    page = open_page(query={"mask.m": "0", "mask.output": "77", "mask.reject": "x"})
    figure = start(page, "mask", DRAWN)
    says(figure, Mask(m=1, output=9).describe("en"))
    assert figure.locator(".sd-warn").count() == 3
    figure.get_by_role("button", name="4: one for each").click()
    answer = figure.get_by_role("button", name="5: one more")
    assert answer.get_attribute("data-verdict") == "right"
    figure.get_by_role("button", name="Puzzle").click()
    for _ in range(5):
        figure.locator('[data-control="m"] input').press("ArrowRight")
    assert figure.locator(".sd-solved").inner_text() == ""
    figure.locator('[data-kind="draft"].mk-box').nth(2).click()
    figure.locator(".sd-solved").get_by_text("Reject draft 3").wait_for()


def test_touch_and_narrow(open_page: OpenPage, shot: Any) -> None:
    page = open_page(
        lang="zh", theme="dark", width=360, height=780, touch=True, query={"mask.m": "8"}
    )
    figure = start(page, "mask", DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    last = figure.get_by_role("radio").nth(8)
    for mark in (last, figure.locator('[data-kind="draft"].mk-box').nth(6)):
        box = mark.bounding_box()
        assert box["width"] >= 24
        assert box["height"] >= 24
    last.tap()
    says(figure, Mask(m=8, output=9).describe("zh"))
    figure.locator('[data-kind="draft"].mk-box').nth(6).tap()
    says(figure, Mask(m=8, output=9, reject=7).describe("zh"))
    sizes = figure.locator("svg text").evaluate_all(
        "ts => ts.map(t => parseFloat(getComputedStyle(t).fontSize))"
    )
    assert min(sizes) >= 11
    shot(page, "mask-zh-dark-360")
