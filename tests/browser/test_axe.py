"""What axe finds: nothing, on every page, in both languages and themes, and in the states of figures."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

import content
import figures
from app import quiz
from app.static_site.build import build
from tests.browser.axe import report, violations
from tests.browser.conftest import OpenPage
from tests.browser.harness import Server
from tests.browser.site_server import serve

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

STILL = {"reduced_motion": True}


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


def test_what_comes_and_goes_while_one_reads(open_page: OpenPage, server: Server) -> None:
    """In mid-play, after a guess, with an answer, an explanation or an error: one visit, many states."""
    lost = "figures/lossless/view.js"
    page = open_page("about:blank", lang=None, allow=["lossless"])
    page.route(f"**/{lost}", lambda route: route.abort())
    page.goto(f"{server.url}/app?lang=en&theme=dark&mask.m=77")
    page.mouse.move(1, 1)
    ready(page)
    words = content.strings("en")
    found = {}

    # Everything at once: each run of axe walks the whole page.
    for figure_id in ("tiles", "race"):
        figure = visit(page, figure_id)
        figure.locator(".sd-transport select").select_option(index=0)
        figure.locator(".sd-transport input").fill("300")
        figure.locator(".sd-play").click()
        expect(figure.locator(".sd-play")).to_contain_text(words["ui.pause"])
    expect(page.locator("#figure-lossless .sd-error")).to_be_visible()
    for number, further in ((1, 0), (2, 1)):
        question = quiz.questions("en")[number - 1]
        option = (question.answer + further) % len(question.options)
        page.locator(f'[data-question="{number}"]').get_by_role("radio").nth(option).check()
    expect(page.locator(".quiz-verdict[data-verdict]")).to_have_count(2)
    mask = visit(page, "mask")
    expect(mask.locator(".sd-warn")).to_be_visible()
    guesses = mask.locator(".sd-bet-options button")
    guesses.first.click()
    expect(guesses.first).to_have_attribute("data-verdict", "wrong")
    term, source = (page.locator(f".prose {kind}").first for kind in (".sd-term", ".sd-num"))
    term.focus()
    expect(term.locator(".sd-definition")).to_be_visible()
    found["playing, guessed, answered, explained, lost"] = violations(
        page, "#sd-tiles, #sd-race, #sd-mask, #figure-lossless, #quiz, p:has(:focus)"
    )

    race = visit(page, "race")
    race.locator('input[type="file"]').set_input_files(
        {"name": "no.json", "mimeType": "application/json", "buffer": b"no trace"}
    )
    expect(race.locator(".rc-error")).not_to_be_empty()
    guesses.nth(figures.get("mask").bet_answer or 0).click()
    source.focus()
    found["refused, guessed right, a number's source"] = violations(
        page, "#sd-race, #sd-mask .sd-bet, p:has(:focus)"
    )

    mask.get_by_role("button", name=words["ui.embed"]).click()
    expect(mask.locator("dialog")).to_be_visible()
    found["embed"] = violations(page, "#sd-mask dialog")
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
