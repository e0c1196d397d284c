"""Reading: nothing jumps while the page arrives, anchors lead somewhere, words explain themselves."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

import content
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

SHIFT = """() => new Promise((done) => {
    const found = [];
    const name = (source) => source.node?.className || source.node?.nodeName || "?";
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries())
            if (!entry.hadRecentInput) found.push([entry.value, entry.sources.map(name)]);
    }).observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(found), 300);
})"""


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


@pytest.mark.parametrize(("width", "lang"), [(390, "zh"), (1440, "en")])
def test_the_first_view_does_not_shift(open_page: OpenPage, width: int, lang: str) -> None:
    page = ready(open_page(width=width, lang=lang))
    shifts = page.evaluate(SHIFT)
    assert sum(value for value, _ in shifts) < 0.01, shifts


def test_contents_open_by_key_and_lead_to_a_section(open_page: OpenPage) -> None:
    page = ready(open_page(width=390, lang="zh", touch=True))
    contents = page.locator("#contents")
    assert not contents.is_visible()
    page.locator(".contents-open").focus()
    page.keyboard.press("Enter")
    expect(contents).to_be_visible()
    names = [section.title for section in content.article("zh").sections]
    assert contents.locator("a").all_inner_texts()[: len(names)] == names
    strings = content.strings("zh")
    parts = [strings["page.part_1"], strings["page.part_2"]]
    assert contents.locator(".part").all_inner_texts() == parts
    contents.locator('a[href="#how-much-faster"]').tap()
    expect(contents).to_be_hidden()
    assert page.url.endswith("#how-much-faster")
    page.locator(".contents-open").tap()
    page.keyboard.press("Escape")
    expect(contents).to_be_hidden()


def test_figures_and_headings_have_addresses(open_page: OpenPage) -> None:
    page = ready(open_page())
    page.locator("#sd-roofline .sd-number").click()
    assert page.url.endswith("#figure-roofline")
    heading = page.locator("#decode a")
    heading.click()
    assert page.url.endswith("#decode")
    # The heading's mark is drawn by style: its words stay clean for whoever copies them.
    assert heading.inner_text() == "Writing one by one"


def shown(term: Locator) -> Locator:
    return term.locator(".sd-definition")


def test_a_definition_comes_by_key_and_by_finger_and_goes_on_escape(open_page: OpenPage) -> None:
    page = ready(open_page(width=390, touch=True))
    term = page.locator(".sd-term", has_text="knee").first
    term.scroll_into_view_if_needed()
    term.focus()
    expect(shown(term)).to_be_visible()
    box = shown(term).bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    page.keyboard.press("Escape")
    expect(shown(term)).to_be_hidden()
    term.tap()
    expect(shown(term)).to_be_visible()
    assert content.strings("en")["term.knee.definition"] in shown(term).inner_text()


def test_a_definition_stays_inside_a_wide_window(open_page: OpenPage) -> None:
    page = ready(open_page(width=1250))
    beyond = page.evaluate(
        """() => [...document.querySelectorAll(".sd-term")].filter((term) => {
            const note = term.querySelector(".sd-definition");
            note.style.display = "block";
            const { left, right } = note.getBoundingClientRect();
            note.style.display = "";
            return left < 0 || right > innerWidth;
        }).map((term) => term.firstChild.textContent)"""
    )
    assert beyond == []


def test_a_margin_note_stands_beside_the_text_where_there_is_room(open_page: OpenPage) -> None:
    page = ready(open_page(width=1440))
    note, text = page.locator(".sd-aside").first, page.locator("#one-or-many + p")
    wide_note, wide_text = note.bounding_box(), text.bounding_box()
    assert wide_note is not None and wide_text is not None
    assert wide_note["x"] >= wide_text["x"] + wide_text["width"]
    page.set_viewport_size({"width": 768, "height": 900})
    narrow_note, narrow_text = note.bounding_box(), text.bounding_box()
    assert narrow_note is not None and narrow_text is not None
    assert narrow_note["y"] + narrow_note["height"] <= narrow_text["y"]
