"""Every figure, through the one contract: words, table, link, bet, puzzle, reset, keyboard, stillness."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

import content
import figures
from figures import text
from figures.rng import Rng
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

FOLLOWS_A_FORMULA = [f for f in figures.IDS if f != "race"]


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_words_and_tables_are_those_of_python(open_page: OpenPage, lang: str) -> None:
    page = ready(open_page(lang=lang))
    for figure_id in FOLLOWS_A_FORMULA:
        figure = figures.get(figure_id)()
        root = page.locator(f"#sd-{figure_id}")
        root.scroll_into_view_if_needed()
        expect(root.locator(".sd-say")).to_have_text(figure.describe(lang))
        expect(root.locator(".sd-panel .sd-table th").first).to_be_attached()
        rows = page.evaluate(
            "(id) => [...document.querySelectorAll(`#sd-${id} .sd-panel .sd-table tr`)].map(r => [...r.children].map(c => c.textContent))",
            figure_id,
        )
        assert rows == figure.table(lang)


def test_every_figure_has_its_frame(open_page: OpenPage) -> None:
    page = ready(
        open_page(lang="en", options={"permissions": ["clipboard-read", "clipboard-write"]})
    )
    words = content.strings("en")
    for number, figure_id in enumerate(figures.IDS, start=1):
        root = page.locator(f"#sd-{figure_id}")
        root.scroll_into_view_if_needed()
        assert f"Figure {number}" in root.locator(".sd-title").inner_text()
        assert root.locator(".sd-badge").count() >= 1
        # The bet answers at once, or says what it waits for.
        root.locator(".sd-bet-options button").first.click()
        expect(root.locator(".sd-bet-why")).not_to_be_empty()
        root.get_by_role("button", name=words["ui.puzzle"], exact=True).click()
        expect(root.locator(".sd-puzzle")).to_be_visible()
        root.get_by_role("button", name=words["ui.table"], exact=True).click()
        expect(root.locator(".sd-puzzle")).to_be_hidden()
        expect(root.locator(".sd-panel .sd-table")).to_be_visible()
        root.get_by_role("button", name=words["ui.embed"], exact=True).click()
        dialog = root.get_by_role("dialog")
        assert f"/app/figure/{figure_id}?lang=en" in dialog.locator("pre").inner_text()
        dialog.get_by_role("button", name=words["ui.close"], exact=True).click()
        root.get_by_role("button", name=words["ui.copy_link"], exact=True).click()
        expect(root.get_by_text(words["ui.copied"])).to_be_visible()
        link = page.evaluate("navigator.clipboard.readText()")
        assert link.endswith(f"#figure-{figure_id}")


def test_controls_have_names_and_sizes(open_page: OpenPage) -> None:
    page = ready(open_page(lang="zh", width=390, touch=True))
    faults = page.evaluate(
        """() => [...document.querySelectorAll('.sd-figure button, .sd-figure input, .sd-figure select, .sd-figure textarea')]
        .filter(e => e.checkVisibility() && !e.closest('.sd-visually-hidden') && !e.classList.contains('sd-visually-hidden'))
        .flatMap(e => {
            const where = `${e.closest('.sd-figure').id} ${e.outerHTML.slice(0, 80)}`;
            const name = e.getAttribute('aria-label') || e.textContent.trim() || [...(e.labels ?? [])].map(l => l.textContent.trim()).join('');
            const r = (e.type === 'checkbox' ? e.closest('label') ?? e : e).getBoundingClientRect();
            return [...(name ? [] : [`no name: ${where}`]), ...(r.height >= 24 && r.width >= 24 ? [] : [`${r.width}×${r.height}: ${where}`])];
        })"""
    )
    assert faults == []


def test_everything_is_reached_by_keyboard(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    for figure_id in figures.IDS:
        reached = page.evaluate(
            """(id) => {
                const focusable = [...document.querySelectorAll(`#sd-${id} :is(button, input, select, textarea, summary, [tabindex])`)].filter(e => e.checkVisibility() && !e.disabled);
                return focusable.filter(e => { e.focus(); return document.activeElement !== e; }).map(e => e.outerHTML.slice(0, 80));
            }""",
            figure_id,
        )
        assert reached == [], figure_id


def test_numbers_are_written_as_python_writes_them(open_page: OpenPage) -> None:
    page = ready(open_page())
    values = [
        0,
        0.5,
        0.125,
        1 / 3,
        2.675,
        41.791,
        99.95,
        999.5,
        1840.2,
        123456.7,
        1e-7,
        9.995e-5,
        -2.5,
        7e12,
        1e16,
        0.0004999,
    ]
    script = """async (values) => { const f = await import('#sd/format.js');
        return values.map(v => [f.num(v), f.num(v, 'zh', 5), f.duration(Math.abs(v)), f.si(v, 'B'), f.fixed(v), f.percent(v, 'en', 1)]); }"""
    got = page.evaluate(script, values)
    expected = [
        [
            text.num(v),
            text.num(v, 5),
            text.duration(abs(v)),
            text.si(v, "B"),
            text.fixed(v),
            text.percent(v, 1),
        ]
        for v in values
    ]
    assert got == expected


def test_draws_are_those_of_python(open_page: OpenPage) -> None:
    page = ready(open_page())
    seeds = [0, 1, 42, 2**31 - 1, 2**32 - 1, 123456789]
    got = page.evaluate(
        "async (seeds) => { const { rng } = await import('#sd/rng.js'); return seeds.map(s => { const r = rng(s); return Array.from({length: 40}, () => r.bits()); }); }",
        seeds,
    )
    for seed, draws in zip(seeds, got, strict=True):
        ours = Rng(seed)
        assert draws == [ours.bits() for _ in range(40)]


def test_bad_values_are_brought_to_the_nearest_allowed(open_page: OpenPage) -> None:
    page = ready(open_page())
    from figures.figure import clamp

    cases = []
    for figure_id in figures.IDS:
        for name, entry in figures.get(figure_id).schema().items():
            if entry["type"] != "any":
                cases += [
                    (figure_id, name, v)
                    for v in ("7", "-3", "1e99", "2.5", "nan", "", "true", "<b>", "x" * 3000)
                ]
    got = page.evaluate(
        """async (cases) => { const { clampTo } = await import('#sd/model.js');
        const { figures } = JSON.parse(document.getElementById('boot').textContent);
        return JSON.stringify(cases.map(([f, n, v]) => clampTo(figures[f].schema[n], v))); }""",
        cases,
    )
    for (figure_id, name, value), (js, changed) in zip(cases, json.loads(got), strict=True):
        expected = clamp(figures.get(figure_id).schema()[name], value)
        assert (js, changed) == expected, (figure_id, name, value[:20])
