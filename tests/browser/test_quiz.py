"""The closing questions in a browser: answered at once, by mouse and keys, kept across languages."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from app import quiz
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def test_answers_come_at_once_and_stay(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    expect(page.locator("[data-question]")).to_have_count(8)
    assert page.locator('.contents a[href="#quiz"]').count() == 1
    for question in quiz.questions("en"):
        field = page.locator(f'[data-question="{question.number}"]')
        wrong = (question.answer + 1) % len(question.options)
        field.get_by_role("radio", name=question.options[wrong]).check()
        expect(field.locator(".quiz-verdict")).to_have_text("✗ Not quite.")
        expect(field.locator("details")).to_have_attribute("open", "")
        expect(field.locator('[data-verdict="right"]').first).to_contain_text(
            question.options[question.answer]
        )
    first = page.locator('[data-question="1"]')
    first.get_by_role("radio").nth(0).focus()
    page.keyboard.press("ArrowDown")
    expect(first.locator(".quiz-verdict")).to_have_text("✓ Right.")
    page.get_by_role("link", name="中文").click()
    expect(first.locator(".quiz-verdict")).to_have_text("✓ 对。")
    expect(page.locator('[data-question="2"] .quiz-verdict')).to_have_text("✗ 不太对。")
    page.wait_for_url("**lang=zh**")
    page.reload()
    ready(page)
    expect(first.locator(".quiz-verdict")).to_have_text("✓ 对。")


def test_without_scripts_the_answers_unfold(open_page: OpenPage) -> None:
    page = open_page(
        lang="zh", width=360, options={"java_script_enabled": False}, allow=[r"js \(csp\)"]
    )
    field = page.locator('[data-question="6"]')
    expect(field.locator("details p").last).to_be_hidden()
    field.locator("summary").click()
    expect(field.locator("details p").first).to_have_text("1.75 个")
    box = field.bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360
