"""The built copy in Chromium: from a disk and from a sub-path of a host, figures and all.

No server of ours runs here; whatever the page logs as an error or asks of another site fails.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import content
import figures
from app.static_site.build import build
from tests.browser.bench_site import asked_for, visit_figures
from tests.browser.conftest import leave
from tests.browser.harness import Watch
from tests.browser.site_server import serve

pytestmark = pytest.mark.browser

FIRST_VIEW = 700_000  # bytes, compressed
PLACES = ("file", "host")
PAIRS = list(zip(PLACES, content.LANGUAGES, strict=True))  # enough where both work alike
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "a site"  # a space, as disks have them
    build(folder)
    return folder


@pytest.fixture(scope="module")
def homes(copy: Path) -> Iterator[dict[str, str]]:
    with serve(copy) as url:
        yield {"file": copy.as_uri(), "host": url}


@pytest.fixture
def open_copy(
    browser: Browser, homes: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Open]:
    """Opens a page of the copy; a page that misbehaves fails the test at its end."""
    watches: list[Watch] = []

    def open_(place: str, path: str, *, width: int = 1440, allow: Any = (), **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(60_000)
        page = context.new_page()
        watches.append(Watch(page, allow))
        page.goto(f"{homes[place]}/{path}", wait_until="load")
        return page

    yield open_
    leave(watches, request)


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    return page


@pytest.mark.parametrize(("place", "lang"), PAIRS)
def test_every_figure_works(open_copy: Open, place: str, lang: str) -> None:
    page = ready(open_copy(place, f"{lang}/index.html"))
    visit_figures(page)
    for figure_id in figures.IDS:
        figure = figures.get(figure_id)
        if figure_id not in ("race", "tiles"):  # these two say what their recording shows
            expect(page.locator(f"#sd-{figure_id} .sd-say")).to_have_text(figure().describe(lang))
        assert (
            page.locator(f"#sd-{figure_id} .sd-error, #sd-{figure_id} .sd-warn:visible").count()
            == 0
        )
    assert page.locator("#sd-race .sd-badge[data-kind=recorded]").count() == 1


@pytest.mark.parametrize("place", PLACES)
def test_live_things_say_that_there_is_no_server(open_copy: Open, place: str) -> None:
    page = ready(open_copy(place, "en/index.html"))
    words = figures.get("race").words("en")
    race = page.locator("#sd-race")
    race.scroll_into_view_if_needed()
    expect(race.get_by_text(words["note.noserver"])).to_be_hidden()
    race.locator("input[value=live]").check()
    expect(race.get_by_text(words["note.noserver"])).to_be_visible()
    expect(race.get_by_role("button", name=words["control.start"])).to_have_count(0)
    footer = content.strings("en")["page.copy"]
    expect(page.locator("footer").get_by_text(footer)).to_be_visible()


@pytest.mark.parametrize("place", PLACES)
def test_the_language_changes_and_the_state_stays(open_copy: Open, place: str) -> None:
    page = ready(open_copy(place, "en/index.html?roofline.k=700#figure-roofline"))
    page.evaluate("document.querySelector('[data-switch=zh]').click()")
    page.wait_for_url("**/zh/index.html?*roofline.k=700*", timeout=60_000)
    ready(page)
    figure = figures.get("roofline")(k=700)
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(figure.describe("zh"))
    expect(page).to_have_title(content.article("zh").title)
    # Charts, records and the way back hold at the new address too.
    visit_figures(page)
    page.evaluate("document.querySelector('[data-switch=en]').click()")
    page.wait_for_url("**/en/index.html?*roofline.k=700*", timeout=60_000)
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(figure.describe("en"))
    page.reload()
    ready(page)
    expect(page.locator("#sd-roofline .sd-say")).to_have_text(figure.describe("en"))


@pytest.mark.parametrize("place", PLACES)
def test_the_way_in_takes_the_browsers_language(open_copy: Open, place: str) -> None:
    page = open_copy(place, "index.html?roofline.k=9#algorithm", locale="zh-TW")
    page.wait_for_url("**/zh/index.html?roofline.k=9#algorithm", timeout=60_000)
    page = open_copy(place, "index.html", locale="fr-FR")
    page.wait_for_url("**/en/index.html", timeout=60_000)
    page = open_copy(place, "index.html?lang=en", locale="zh-CN")
    page.wait_for_url("**/en/index.html*", timeout=60_000)
    ready(page)
    page = open_copy(place, "index.html", java_script_enabled=False, locale="zh-CN")
    for lang in content.LANGUAGES:
        expect(page.get_by_role("link", name=content.article(lang).title)).to_be_visible()
    page.get_by_role("link", name=content.article("zh").title).click()
    page.wait_for_url("**/zh/index.html", timeout=60_000)


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_a_figures_own_page(open_copy: Open, figure_id: str) -> None:
    place, lang = PAIRS[figures.IDS.index(figure_id) % 2]
    page = ready(open_copy(place, f"{lang}/figure/{figure_id}.html?theme=dark"))
    figure = figures.get(figure_id)
    expect(page.locator(".sd-title")).to_have_text(figure.words(lang)["title"])
    if (figure.folder() / "chart.py").exists():
        page.locator(".bk-Figure").first.wait_for()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.locator(".sd-error").count() == 0
    if figure_id == "mask":  # the state of a link, and the other language under the same address
        other = "en" if lang == "zh" else "zh"
        page.goto(f"{page.url.split('?')[0]}?lang={other}&mask.m=3")
        page.wait_for_url(f"**/{other}/figure/mask.html*", timeout=60_000)
        expect(ready(page).locator(".sd-say")).to_have_text(figure(m=3).describe(other))


def test_the_theme_is_there_before_the_page_is_painted(open_copy: Open) -> None:
    page = ready(open_copy("host", "en/index.html"))
    page.locator("#theme").select_option("dark")
    page = ready(page)
    page.goto(page.url.split("?")[0])
    # theme.js stands in the head: the body is not there yet when it has run.
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.locator("#theme").input_value() == "dark"


def test_what_a_reader_downloads(browser: Browser, homes: dict[str, str], copy: Path) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    first = asked_for(page, f"{homes['host']}/zh/index.html")
    page.close()
    assert {"zh/index.html"} < set(first)
    assert sum(len(gzip.compress((copy / name).read_bytes())) for name in first) <= FIRST_VIEW
    # Charts come when a reader comes near them, which another test sees.
    assert not any("bokeh" in name or "chart-" in name for name in first)


def test_the_lines_for_other_pages_lead_here(open_copy: Open) -> None:
    page = ready(open_copy("host", "en/index.html"))
    words = content.strings("en")
    mask = page.locator("#sd-mask")
    mask.scroll_into_view_if_needed()
    mask.get_by_role("button", name=words["ui.embed"]).click()
    frame = page.frame_locator("#sd-mask .sd-embed-preview")
    expect(frame.locator(".sd-title")).to_have_text(figures.get("mask").words("en")["title"])
    lines = mask.locator("dialog pre").inner_text()
    for address in re.findall(r'(?:href|src)="([^"]+)"', lines):
        reply = page.request.get(address.replace("&amp;", "&"))
        assert reply.ok, f"{address}: {reply.status}"
    assert "/frames.js" in lines and "/en/figure/mask.html" in lines


@pytest.mark.parametrize("width", [360, 1440])
def test_pages_of_words_fit(open_copy: Open, width: int) -> None:
    for path in ("en/numbers.html", "zh/numbers.html", "404.html"):
        page = open_copy("host", path, width=width)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page = open_copy("host", "index.html", width=width, java_script_enabled=False)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_an_address_that_leads_nowhere(browser: Browser, tmp_path: Path) -> None:
    """The host sends 404.html for any depth; a copy that knows where it stands links from there."""
    with serve(tmp_path / "empty") as url:
        port = int(url.split(":")[2].split("/")[0])
    build(tmp_path / "site", base_url=url)
    with serve(tmp_path / "site", port) as again:
        assert again == url
        page = browser.new_page()
        page.goto(f"{url}/a/b/c/nothing.html", wait_until="load")
        for lang in content.LANGUAGES:
            expect(
                page.get_by_text(content.strings(lang)["page.missing"], exact=True)
            ).to_be_visible()
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour != "rgba(0, 0, 0, 0)"  # its style sheet was found
        page.get_by_role("link", name=content.article("en").title).click()
        page.wait_for_url(f"{url}/en/index.html", timeout=60_000)
        page.close()
