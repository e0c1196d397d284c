"""The page itself: language and theme change in place, state survives, words stand without scripts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

import content
import figures
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def top_of(page: Page, selector: str) -> float:
    return page.locator(selector).first.bounding_box()["y"]  # type: ignore[index]


def test_language_changes_in_place(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en", query={"roofline.k": "700"}))
    page.evaluate("window.marker = 'same page'")
    # The bar is sticky, so its switch can be used from the middle of the article.
    page.locator("#figure-roofline").scroll_into_view_if_needed()
    page.mouse.wheel(0, 200)
    page.wait_for_timeout(400)
    before = top_of(page, "#figure-roofline")
    # Not Playwright's click: it scrolls to where a sticky element would stand without stickiness.
    page.evaluate("document.querySelector('[data-switch=zh]').click()")
    expect(page).to_have_title(content.article("zh").title)
    # The address changes last, when every figure stands in its place again.
    page.wait_for_url("**lang=zh**")
    page.wait_for_timeout(200)
    assert page.evaluate("window.marker") == "same page"
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert abs(top_of(page, "#figure-roofline") - before) < 40
    figure = figures.get("roofline")(k=700)
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(figure.describe("zh"))
    description = page.locator('meta[name="description"]').get_attribute("content")
    assert description == content.article("zh").description
    assert "lang=zh" in page.url and "roofline.k=700" in page.url
    headings = [s.title for s in content.article("zh").sections]
    assert (
        page.locator("section[data-section] h2 .anchor").all_inner_texts()[: len(headings)]
        == headings
    )
    page.locator('[data-switch="en"]').click()
    expect(page).to_have_title(content.article("en").title)
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(figure.describe("en"))


def test_theme_changes_in_place_and_is_remembered(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en", query={"branch.n": "5"}))
    page.evaluate("scrollTo({ top: 1500, behavior: 'instant' })")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.locator("#theme").select_option("dark")
    assert page.evaluate(paper) != light
    assert page.evaluate("scrollY") == 1500
    assert "theme=dark" in page.url and "branch.n=5" in page.url
    page.goto(page.url.replace("theme=dark", "").replace("&&", "&"))
    ready(page)
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_the_systems_theme_is_followed(open_page: OpenPage) -> None:
    page = ready(open_page(system_theme="dark"))
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(re.findall(r"\d+", colour)[0])
    assert red < 60


def test_a_state_survives_a_reload_and_nonsense_does_not_break_it(open_page: OpenPage) -> None:
    page = ready(
        open_page(
            query={
                "roofline.k": "1e999",
                "roofline.batch": "4",
                "roofline.model": "<img src=x onerror=alert(1)>",
                "nothing.x": "1",
            }
        )
    )
    say = page.locator("#sd-roofline .sd-say")
    expect(say).to_have_text(figures.get("roofline")(batch=4).describe("en"))
    assert page.locator("#sd-roofline .sd-warn").count() >= 1
    assert page.locator("#sd-roofline img").count() == 0
    page.reload()
    ready(page)
    expect(say).to_have_text(figures.get("roofline")(batch=4).describe("en"))


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_without_scripts_the_article_and_every_figure_speak(open_page: OpenPage, lang: str) -> None:
    # A browser told to run no scripts calls the preloaded modules blocked.
    page = open_page(lang=lang, options={"java_script_enabled": False}, allow=[r"js \(csp\)"])
    for figure_id in figures.IDS:
        figure = figures.get(figure_id)
        slot = page.locator(f"#figure-{figure_id}")
        assert figure().describe(lang) in slot.inner_text()
    assert page.locator("math").count() > 5


@pytest.mark.parametrize("widths", [(360, 390), (768, 1440, 2560)])
def test_nothing_sticks_out(open_page: OpenPage, widths: tuple[int, ...]) -> None:
    touch = widths[0] < 600
    page = ready(open_page(width=widths[0], touch=touch, lang="zh" if touch else "en"))
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo(0, document.body.scrollHeight / 3)")
        page.wait_for_timeout(600)  # charts take up their new width
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert sticking_out(page) == [], width


def sticking_out(page: Page) -> list[str]:
    """What is wider than its figure."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.sd-figure *')].filter((e) => {
            const figure = e.closest('.sd-figure').getBoundingClientRect(), r = e.getBoundingClientRect();
            const hidden = e.closest('.sd-visually-hidden, [hidden], .sd-tablewrap, pre, .sd-scroll');
            return !hidden && r.width > 1 && (r.right > figure.right + 1 || r.left < figure.left - 1);
        }).map((e) => `${e.closest('.sd-figure').id} ${e.tagName} ${String(e.getAttribute('class'))} ${e.textContent.slice(0, 40)}`)"""
    )


def test_every_anchor_of_the_contents_leads_somewhere(open_page: OpenPage) -> None:
    page = ready(open_page())
    dead = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => id && !document.getElementById(id))"
    )
    assert dead == []


def test_an_embedded_figure_stands_alone(open_page: OpenPage) -> None:
    page = open_page("/app/figure/roofline", lang="zh", query={"roofline.k": "9"})
    ready(page)
    expect(page.locator(".sd-say")).to_have_text(figures.get("roofline")(k=9).describe("zh"))
    assert page.locator(".sd-figure").count() == 1
