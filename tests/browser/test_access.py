"""Without a mouse, at 400 %, in the system's own colours: the article stays whole."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

import figures
from tests.browser.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

#: Where the focus is, and whether a reader can see it there. A radio button or a slider of SVG may show
#: it on what stands for it.
FOCUS = """() => {
    const here = document.activeElement;
    if (!here || here === document.body) return null;
    const probe = document.createElement('i');
    probe.style.color = 'var(--sd-focus)';
    here.parentElement.append(probe);
    const ring = getComputedStyle(probe).color;
    probe.remove();
    const shows = (e) => { const s = getComputedStyle(e); return (s.stroke === ring && parseFloat(s.strokeWidth) >= 3) || (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== 'none'; };
    const r = here.getBoundingClientRect();
    const mates = [here, here.nextElementSibling, here.parentElement, ...here.children].filter(Boolean);
    if (!window.stops) { window.stops = new Map(); window.last = null; }
    const again = window.stops.has(here);
    window.stops.set(here, window.stops.size);
    const forward = !window.last || !window.last.isConnected || Boolean(window.last.compareDocumentPosition(here) & (Node.DOCUMENT_POSITION_FOLLOWING));
    window.last = here;
    return {
        what: `${here.closest('[id]')?.id} ${here.outerHTML.slice(0, 160)}`,
        again, forward, shown: mates.some(shows),
        seen: r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth,
    };
}"""


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    return page


def test_the_tab_key_walks_through_the_article(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en", reduced_motion=True))
    faults: list[str] = []
    visited: set[str] = set()
    first: dict[str, Any] | None = None
    for _ in range(1500):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stop is None or stop["again"]:
            break
        first = first or stop
        visited |= {i for i in figures.IDS if stop["what"].startswith(f"sd-{i} ")}
        if not (stop["shown"] and stop["seen"] and stop["forward"]):
            faults.append(str(stop))
    else:
        pytest.fail("the Tab key never leaves the article")
    assert faults == []
    assert first and "skip" in first["what"]
    last = page.evaluate("document.querySelector('footer').contains(window.last)")
    assert last, "the walk ended before the page did: something holds the focus"


def test_nothing_sticks_out_at_four_hundred_per_cent(open_page: OpenPage) -> None:
    """A window of 1280 pixels at 400 % is one of 320 (WCAG 1.4.10)."""
    page = ready(open_page(lang="en", width=320, height=256, reduced_motion=True))
    wide = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter((e) => {
            const r = e.getBoundingClientRect();
            return r.width > 1 && r.right > innerWidth + 1 && !e.closest('.sd-visually-hidden, [hidden], .sd-tablewrap, .tablewrap, pre, .sd-scroll, .equation, math, svg, dialog, .sd-math');
        }).slice(0, 10).map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert wide == []


def test_forced_colours_leave_borders_and_marks(open_page: OpenPage) -> None:
    page = ready(
        open_page(lang="zh", query={"roofline.k": "9"}, options={"forced_colors": "active"})
    )
    plain = page.evaluate(
        """() => [...document.querySelectorAll('.sd-figure button:not([hidden])')].filter((e) => e.offsetWidth && getComputedStyle(e).borderTopStyle === 'none').map((e) => e.outerHTML.slice(0, 100))"""
    )
    assert plain == []
    options = page.locator("#sd-mask .sd-bet-options button")
    options.first.click()
    pressed, other = options.nth(0), options.nth(1)
    look = "e => { const s = getComputedStyle(e); return [s.backgroundColor, s.color, s.borderTopColor, s.borderTopWidth, s.outlineStyle].join(); }"
    assert pressed.evaluate(look) != other.evaluate(look)
