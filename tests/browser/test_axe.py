"""What axe finds: nothing, on every page, in both languages and themes, and in the states of figures."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

import content
import figures
from app.static_site.build import build
from tests.browser.conftest import OpenPage
from tests.browser.site_server import serve

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
STILL = {"reduced_motion": True}


def violations(page: Page, context: str | None = None) -> list[str]:
    """One line for each element that breaks a rule; `context` is a CSS selector."""
    response = Axe().run(page, context, OPTIONS).response
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))} {node['failureSummary']} {node['html'][:200]}"
        for rule in response["violations"]
        for node in rule["nodes"]
    ]


def report(found: dict[str, list[str]]) -> None:
    """Fail with every line of every state."""
    lines = [f"{name}: {line}" for name, each in found.items() for line in each]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    return page


def test_axe_sees_a_fault(open_page: OpenPage) -> None:
    """A page with a picture without words, so that silence means something."""
    page = open_page("data:text/html,<html lang=en><title>x</title><img src='data:,'>", lang=None)
    assert any(line.startswith("image-alt") for line in violations(page))


@pytest.mark.parametrize(("lang", "width"), [("zh", 390), ("en", 1440)])
def test_the_article(open_page: OpenPage, lang: str, width: int) -> None:
    page = ready(open_page(lang=lang, theme="light", width=width, **STILL))
    for figure_id in figures.IDS:
        visit(page, figure_id)
    found = {"light": violations(page)}
    page.locator("#theme").select_option("dark")
    found["dark"] = violations(page)
    report(found)


def visit(page: Page, figure_id: str) -> Locator:
    """The figure, once it stands and its chart has come."""
    page.locator(f"#figure-{figure_id}").scroll_into_view_if_needed()
    figure = page.locator(f"#sd-{figure_id}")
    figure.locator(".sd-say:not(:empty)").wait_for(state="attached")
    if (figures.get(figure_id).folder() / "chart.py").exists():
        figure.locator(".bk-Figure").first.wait_for(timeout=60_000)
    return figure


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_the_states_of_a_figure(open_page: OpenPage, figure_id: str) -> None:
    number = figures.IDS.index(figure_id)
    lang, theme = ("zh", "en")[number % 2], ("light", "dark")[number // 2 % 2]
    words = content.strings(lang)
    page = ready(
        open_page(
            f"/app/figure/{figure_id}",
            lang=lang,
            theme=theme,
            # A warning about an address that asks for nonsense is one of the states.
            query={"roofline.hardware": "custom", f"{figure_id}.nonsense": "1"},
            **STILL,
        )
    )
    figure = page.locator(f"#sd-{figure_id}")
    figure.locator(".sd-say:not(:empty)").wait_for(state="attached")

    def button(name: str) -> Locator:
        return figure.get_by_role("button", name=words[name])

    # As the figure opens is seen on the article.
    expect(figure.locator(".sd-warn").first).to_be_visible()
    for act in (figure.locator(".sd-bet-options button").last, figure.locator(".sd-play").first):
        if act.count():
            act.click()
    button("ui.puzzle").click()
    figure.locator(".sd-panel summary").click()
    found = {"bet, played, puzzle": violations(page)}
    button("ui.table").click()
    found["table"] = violations(page)
    button("ui.embed").click()
    found["embed"] = violations(page)
    report(found)


def test_the_other_pages(open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = {}
    for path, lang, theme in [
        ("/app/styleguide", "zh", "dark"),
        ("/app/worksheet", "en", "light"),
    ]:
        page = open_page(path, lang=lang, theme=theme, width=390, **STILL)
        page.wait_for_load_state("networkidle")
        found[path] = violations(page)
        page.context.close()
    folder = tmp_path_factory.mktemp("axe") / "site"
    with serve(folder) as url:
        build(folder, base_url=url)
        for name in ["zh/numbers.html", "404.html"]:
            found[name] = violations(open_page(f"{url}/{name}", lang=None, theme=None))
    report(found)


def test_the_class(open_page: OpenPage) -> None:
    page = open_page(lang="en", query={"mode": "present"}, **STILL)
    inside = page.frame_locator("#sd-magnified")
    inside.locator("html[data-ready]").wait_for(state="attached", timeout=60_000)
    report({"present": violations(page)})
