"""The article and the work sheet on paper, printed by Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import content
import figures
from app.classroom import worksheet
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


def pages_of(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def printed(page: Page, tmp_path: Path) -> bytes:
    path = tmp_path / "print.pdf"
    page.pdf(path=path, prefer_css_page_size=True, print_background=True)
    return path.read_bytes()


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_article_prints_as_figures_and_text(
    open_page: OpenPage, tmp_path: Path, lang: str
) -> None:
    page = open_page(lang=lang, theme="dark", query={"roofline.k": "9"})
    page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    pdf = printed(page, tmp_path)
    assert 15 <= pages_of(pdf) <= 32
    assert page.locator("html").get_attribute("data-theme") == "dark", "as it was before"
    # What the print saw: the same rules, on the screen.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("html").get_attribute("data-theme") == "light"
    for hidden in (".bar", ".contents", ".sd-foot", ".sd-controls", ".sd-bet", ".sd-transport",
                   ".sd-stage .sd-control", ".rc-choice", ".worksheet-link"):  # fmt: skip
        assert page.locator(f"{hidden}:visible").count() == 0, hidden
    for figure in figures.IDS:
        box = page.locator(f"#sd-{figure}")
        assert box.locator(".sd-title").is_visible() and box.locator(".sd-say").is_visible()
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(
        figures.get("roofline")(k=9).describe(lang)
    )
    # A figure fits on a page, in width and in height, and keeps the layout of the screen.
    sizes = page.locator(".sd-figure").evaluate_all(
        "all => all.map(x => { const r = x.getBoundingClientRect(); return [x.dataset.figure, r.width, r.height]; })"
    )
    for figure, width, height in sizes:
        assert width <= 665, figure
        assert height <= 1000, figure
    # Every address that the text links to stands in the notes, under the number beside the link.
    wanted = page.locator('main a[href^="http"]').evaluate_all(
        "all => all.map(a => [Number(a.dataset.note), a.href])"
    )
    notes = page.locator(".print-notes li").evaluate_all(
        "all => all.map(x => encodeURI(x.textContent))"
    )
    assert len(notes) == len(set(notes)) > 5
    assert all(notes[number - 1] == href for number, href in wanted)
    page.emulate_media(media="screen")
    assert page.locator(".print-notes").is_hidden()


@pytest.mark.parametrize("lang", content.LANGUAGES)
@pytest.mark.parametrize("answers", ["", "1"])
def test_the_work_sheet_is_two_pages(
    open_page: OpenPage, tmp_path: Path, lang: str, answers: str
) -> None:
    state = {"branch.n": "6", "race.recording": "loses"}
    page = open_page(
        "/app/worksheet", lang=lang, query=state | ({"answers": answers} if answers else {})
    )
    page.locator("html[data-ready]").wait_for(state="attached", timeout=90_000)
    assert pages_of(printed(page, tmp_path)) == 2
    # Every figure left a picture, none of its controls, and no text is cut off.
    for figure in figures.IDS:
        picture = page.locator(f'.ws-picture[data-figure="{figure}"]')
        assert picture.locator(".sd-stage svg, .sd-stage img, .sd-stage .rc-token").count() > 0, (
            figure
        )
        assert picture.locator("input:visible, select:visible, .sd-play:visible").count() == 0
    assert page.locator('[data-figure="branch"] .br-chip').count() == 6
    for chart in ("roofline", "speedup"):
        assert (
            page.locator(f'[data-figure="{chart}"] img').first.evaluate("x => x.naturalWidth") > 900
        )
    cut = page.locator(".ws-text").evaluate_all(
        "all => all.filter(x => x.scrollHeight > x.clientHeight + 1).map(x => x.textContent.slice(0, 60))"
    )
    assert cut == []
    assert page.evaluate(
        "[...document.querySelectorAll('.ws-page')].every(x => x.scrollHeight <= x.clientHeight)"
    )
    tasks = worksheet.tasks(lang, "loses")
    right = page.locator(".ws-right").all_inner_texts()
    if answers:
        assert [text.split("\u2002", 1)[1] for text in right] == [t.options[t.right] for t in tasks]
        assert tasks[4].right == 0, "this recording loses"
    else:
        assert right == [] and page.locator(".ws-answer").count() == 0


def test_the_sheet_of_the_article_shows_its_figures_as_they_stand(open_page: OpenPage) -> None:
    page = open_page(lang="en", query={"branch.n": "4"})
    page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    page.locator("[data-worksheet]").click()
    page.wait_for_url("**/worksheet?**")
    page.locator("html[data-ready]").wait_for(state="attached", timeout=90_000)
    assert page.locator('[data-figure="branch"] .br-chip').count() == 4
    page.locator('[data-set="answers"]').check()
    page.wait_for_url("**answers=1**")
    assert "branch.n=4" in page.url
    page.locator("html[data-ready]").wait_for(state="attached", timeout=90_000)
    page.locator('.ws-bar [lang="zh"]').click()
    page.wait_for_url("**lang=zh**")
    assert "branch.n=4" in page.url and "answers=1" in page.url
