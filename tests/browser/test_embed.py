"""Figures in frames of another site: heights, theme, laziness, and messages that change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, expect

import content
import figures
from tests.browser.conftest import OpenPage
from tests.browser.harness import ROOT, Server
from tests.hosts import files

pytestmark = pytest.mark.browser

EN = content.strings("en")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """A site of somebody else, on a port of its own: ``host(name, html)`` gives the address."""
    with files(tmp_path) as port:

        def put(name: str, html: str) -> str:
            (tmp_path / name).write_text(html, encoding="utf-8")
            return f"http://localhost:{port}/{name}"

        yield put


def site(server: Server, body: str) -> str:
    return f"""<!DOCTYPE html><html><head><meta charset="utf-8"><title>A blog</title>
<link rel="icon" href="data:,"><style>body {{ margin: 8px; background: #fff }}
body.night {{ background: #111 }}</style></head><body>{body}
<script src="{server.url}/app/static/frames.js" defer></script></body></html>"""


def link(server: Server, address: str) -> str:
    return f'<a class="sd-embed" href="{server.url}/app/figure/{address}">A figure</a>'


def settled(page: Page, nth: int) -> FrameLocator:
    """The nth frame, once its figure stands and its height has been passed on."""
    frame = page.locator("iframe.sd-embed").nth(nth)
    frame.scroll_into_view_if_needed()
    inside = frame.content_frame
    inside.locator("html[data-ready]").wait_for(state="attached")
    fits(page, nth)
    return inside


def fits(page: Page, nth: int) -> None:
    """The nth frame comes to be as high as its figure."""
    frame = page.locator("iframe.sd-embed").nth(nth)
    inside = frame.content_frame
    # A browser lays out no frame that nobody sees.
    frame.scroll_into_view_if_needed()
    for _ in range(100):
        high = inside.locator("#figure").evaluate(
            "e => Math.ceil(e.getBoundingClientRect().height)"
        )
        if high > 200 and frame.evaluate("e => e.offsetHeight") == high:
            return
        page.wait_for_timeout(200)
    pytest.fail(f"frame {nth} does not follow its figure's height")


def test_three_figures_on_somebody_elses_page(
    open_page: OpenPage, server: Server, host: Callable[[str, str], str]
) -> None:
    figure = figures.get("mask")
    body = (
        link(server, "mask?lang=en&mask.m=2")
        + f'<iframe class="sd-embed" src="{server.url}/app/figure/mask?lang=zh&m=3" title="x"'
        ' style="border:0;width:100%"></iframe>' + link(server, "branch?lang=en&controls=few")
    )
    page = open_page(host("blog.html", site(server, body)), lang=None)
    first, second, third = (settled(page, nth) for nth in range(3))
    # The same figure twice, in two states and two languages: neither knows of the other.
    expect(first.locator(".sd-say")).to_have_text(figure(m=2).describe("en"))
    expect(second.locator(".sd-say")).to_have_text(figure(m=3).describe("zh"))
    first.locator('[data-control="m"] input').press("ArrowRight")
    expect(first.locator(".sd-say")).to_have_text(figure(m=3).describe("en"))
    expect(second.locator(".sd-say")).to_have_text(figure(m=3).describe("zh"))
    second.locator('[data-control="m"] input').press("ArrowRight")
    expect(first.locator(".sd-say")).to_have_text(figure(m=3).describe("en"))
    assert third.locator(".sd-foot").is_hidden()
    # Heights follow: a panel opens, the window becomes a phone's.
    before = page.locator("iframe.sd-embed").first.evaluate("e => e.offsetHeight")
    first.get_by_role("button", name=EN["ui.table"]).click()
    expect(first.locator(".sd-panel .sd-table")).to_be_visible()
    fits(page, 0)
    assert page.locator("iframe.sd-embed").first.evaluate("e => e.offsetHeight") > before
    page.set_viewport_size({"width": 390, "height": 800})
    for nth in range(3):
        fits(page, nth)


def test_the_theme_is_that_of_the_page_around(
    open_page: OpenPage, server: Server, host: Callable[[str, str], str]
) -> None:
    body = link(server, "mask?lang=en") + link(server, "mask?lang=en&theme=light")
    page = open_page(host("blog.html", site(server, body)), lang=None, system_theme="dark")
    following, fixed = settled(page, 0), settled(page, 1)
    expect(following.locator("html")).to_have_attribute("data-theme", "light")
    page.evaluate("document.body.classList.add('night')")
    expect(following.locator("html")).to_have_attribute("data-theme", "dark")
    expect(fixed.locator("html")).to_have_attribute("data-theme", "light")


def test_a_figure_far_away_is_a_link(
    open_page: OpenPage, server: Server, host: Callable[[str, str], str]
) -> None:
    body = f'<div style="height:6000px"></div>{link(server, "tiles?lang=en")}'
    page = open_page(host("blog.html", site(server, body)), lang=None)
    place = page.locator("a.sd-embed")
    expect(place).to_have_css("display", "grid")
    assert not any("/figure/" in url for url in open_page.watch(page).requests)
    place.scroll_into_view_if_needed()
    settled(page, 0)
    assert place.count() == 0


def test_messages_of_others_change_nothing(
    open_page: OpenPage, server: Server, host: Callable[[str, str], str]
) -> None:
    # A frame beside the figure's tells the page a height, and the figure a theme.
    liar = host(
        "liar.html",
        """<!DOCTYPE html><title>x</title><link rel="icon" href="data:,"><script>
        setInterval(() => {
            parent.postMessage({ type: "sd-height", figure: "mask", height: 4321 }, "*");
            parent.frames[0].postMessage({ type: "sd-theme", theme: "dark" }, "*");
        }, 50)</script>""",
    )
    body = f"""<iframe class="sd-embed" src="{server.url}/app/figure/mask?lang=en" title="x"
        style="border:0;width:100%"></iframe><iframe src="{liar}" id="liar"></iframe>"""
    page = open_page(host("blog.html", site(server, body)), lang=None)
    frame = settled(page, 0)
    page.evaluate(
        """() => {
            const frame = document.querySelector("iframe.sd-embed").contentWindow;
            for (const data of ["sd-theme", null, 7, { type: "sd-theme", theme: "<img src=x>" }, { type: "sd-set", name: "m", value: 8 }])
              frame.postMessage(data, "*");
        }"""
    )
    page.wait_for_timeout(500)
    fits(page, 0)
    assert page.locator("#liar").evaluate("e => e.offsetHeight") < 400
    assert frame.locator("html").get_attribute("data-theme") == "light"
    expect(frame.locator(".sd-say")).to_have_text(figures.get("mask")().describe("en"))
    assert frame.locator("img").count() == 0


@pytest.mark.parametrize("figure_id", ["branch", "race"])
def test_a_strict_policy_lets_a_mechanism_through(
    open_page: OpenPage, server: Server, figure_id: str
) -> None:
    page = open_page(f"/app/figure/{figure_id}", lang="en")
    page.locator("html[data-ready]").wait_for(state="attached")
    policy = page.evaluate(
        "async () => (await fetch(location.href)).headers.get('Content-Security-Policy')"
    )
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    # It is in force: what it forbids does not happen.
    assert (
        page.evaluate(
            """() => {
            const style = document.createElement("style");
            style.textContent = "body { outline: 3px solid red }";
            document.head.append(style);
            return getComputedStyle(document.body).outlineStyle;
        }"""
        )
        == "none"
    )
    watch = open_page.watch(page)
    refusals = [text for text in watch.seen if "Content Security Policy" in text]
    assert len(refusals) == 1, refusals  # the one provoked here
    watch.seen.clear()


def test_the_dialog_shows_what_it_gives(open_page: OpenPage, server: Server) -> None:
    page = open_page(
        lang="en",
        query={"mask.m": "2"},
        options={"permissions": ["clipboard-read", "clipboard-write"]},
    )
    page.locator("html[data-ready]").wait_for(state="attached")
    root = page.locator("#sd-mask")
    root.scroll_into_view_if_needed()
    root.get_by_role("button", name=EN["ui.embed"], exact=True).click()
    dialog = page.get_by_role("dialog", name=EN["ui.embed"])
    expect(dialog).to_be_visible()
    preview = dialog.locator("iframe").content_frame
    expect(preview.locator(".sd-say")).to_have_text(figures.get("mask")(m=2).describe("en"))
    dialog.locator("select[name=lang]").select_option("zh")
    dialog.locator("select[name=theme]").select_option("dark")
    dialog.locator("select[name=controls]").select_option("none")
    expect(preview.locator(".sd-say")).to_have_text(figures.get("mask")(m=2).describe("zh"))
    expect(preview.locator("html")).to_have_attribute("data-theme", "dark")
    expect(preview.locator(".sd-controls")).to_be_hidden()
    snippet = dialog.locator("pre")
    address = f"{server.url}/app/figure/mask?lang=zh&amp;theme=dark&amp;controls=none&amp;mask.m=2"
    expect(snippet).to_contain_text(f'<a class="sd-embed" href="{address}">')
    expect(snippet).to_contain_text(f'<script src="{server.url}/app/static/frames.js" defer>')
    dialog.locator("select[name=kind]").select_option("frame")
    expect(snippet).to_have_text(
        f'<iframe src="{address}" title="{figures.get("mask").words("en")["title"]}" width="100%" '
        'height="640" loading="lazy" style="border:0"></iframe>'
    )
    dialog.locator("input[name=state]").uncheck()
    expect(snippet).not_to_contain_text("mask.m")
    dialog.get_by_role("button", name=EN["ui.copy"], exact=True).click()
    expect(dialog.get_by_text(EN["ui.copied"])).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == snippet.inner_text()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_the_script_for_other_pages_is_small() -> None:
    assert (ROOT / "app" / "static" / "frames.js").stat().st_size < 2048
