"""The served article opens in both languages, and asks nothing of any other machine."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import content
import figures
from tests.browser.conftest import OpenPage

WHOLE_BROWSER = True  # as readers have it


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_article_opens(open_page: OpenPage, shot, lang: str) -> None:
    page = open_page(lang=lang)
    article = content.article(lang)
    assert page.title() == article.title
    assert page.locator("html").get_attribute("lang").split("-")[0] == lang
    headings = page.locator("h2").all_inner_texts()
    assert [title for title in headings if title in {s.title for s in article.sections}] == [
        section.title for section in article.sections
    ]
    shot(page, f"article-{lang}")


def test_the_root_leads_to_the_article(open_page: OpenPage) -> None:
    page = open_page("/", lang=None)
    assert page.url.split("?")[0].endswith("/app")
    assert page.title() == content.article("en").title


def test_the_root_keeps_what_the_address_asks_for(open_page: OpenPage) -> None:
    page = open_page("/", lang="zh", query={"roofline.k": "700"})
    page.locator("html[data-ready]").wait_for(state="attached")
    assert page.title() == content.article("zh").title
    assert page.url.split("?")[0].endswith("/app")
    said = figures.get("roofline")(k=700).describe("zh")
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(said)


@pytest.mark.parametrize(("locale", "lang"), [("zh-CN", "zh"), ("en-GB", "en"), ("fr-FR", "en")])
def test_the_browsers_preference_chooses_the_language(
    open_page: OpenPage, locale: str, lang: str
) -> None:
    page = open_page(lang=None, locale=locale)
    assert page.title() == content.article(lang).title
