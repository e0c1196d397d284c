"""The race figure in a browser, live: from the bet to the saved run, and everything that goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from figures.race import model
from figures.race.figure import Race
from kernels.trace import Trace
from tests.browser import race_page
from tests.browser.conftest import OpenPage
from tests.browser.harness import Server
from tests.browser.race_page import (
    ALONE,
    EN,
    FIGURE,
    at,
    choose,
    figure,
    go_live,
    to_end,
    written,
)

# Fixtures of this module: its pages come from a server whose races need no weights.
fake_server, server, patience = race_page.fake_server, race_page.server, race_page.patience


# --- live -------------------------------------------------------------------------------------------


def test_a_live_race_from_the_bet_to_the_saved_run(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(ALONE)
    found = figure(page)
    found.get_by_role("button", name=EN["bet.option.4"]).click()
    choose(found, "live")
    expect(found.locator(".rc-status")).to_have_text(EN["status.ready"])
    go_live(found)
    expect(found.locator(".sd-badge")).to_contain_text("live · ")
    expect(found.locator(".sd-play")).to_contain_text(EN["ui.pause"])
    expect(found.locator(".sd-say")).to_contain_text(EN["say.identical"], timeout=30_000)
    text = written(found, "plain")
    assert text == written(found, "speculative") != ""
    assert "<b>bold</b>" in text or "words" in text
    why = found.locator(".sd-bet-why").inner_text()
    assert re.match(r"Measured: \d+\.\d\d×", why)
    measured = float(re.findall(r"(\d+\.\d\d)×", why)[0])
    verdict = found.locator('.sd-bet button[data-verdict="right"]')
    assert verdict.inner_text() == EN[f"bet.option.{model.bet(measured) + 1}"]
    assert (
        found.locator('.rc-rung[data-rung="measured"] .rc-rungvalue').inner_text()
        == f"{measured:.2f}×"
    )

    # Saved and opened again it is the same run.
    choose(found, "recorded")
    with page.expect_download() as saved:
        found.get_by_role("button", name=EN["control.save"]).click()
    trace = Trace.read(Path(saved.value.path()))
    assert trace.text("plain") == text
    assert trace.header["settings"]["prompt"] == "what was the small model"
    picture = found.locator(".rc-lanes").inner_html()
    found.get_by_label(EN["recording.label"], exact=True).select_option("list")
    expect(found.locator(".sd-badge")).to_contain_text("recorded · ")
    found.locator('input[type="file"]').set_input_files(saved.value.path())
    expect(found.get_by_label(EN["recording.label"], exact=True)).to_have_value(" ")
    to_end(found)
    expect(found.locator(".sd-say")).to_contain_text(EN["say.identical"])

    def bare(html: str) -> str:
        # The clip paths and the tab stop of an element that was focused differ; what is drawn must not.
        noise = r'clip-\d+| ?tabindex="0"| ?style="[^"]*"| ?aria-value(now|text)="[^"]*"'
        return re.sub(noise, "", html)

    assert bare(found.locator(".rc-lanes").inner_html()) == bare(picture)
    found.get_by_label(EN["recording.label"], exact=True).select_option(label=EN["recording.live"])
    expect(found.locator(".sd-badge")).to_contain_text("live · ")


def test_settings_reach_the_engine_and_the_link(open_page: OpenPage) -> None:
    page = open_page("/app", query={"race.mode": "live", "race.m": "99", "race.pair": "nonsense"})
    found = figure(page)
    expect(found.locator(".sd-notes")).to_contain_text("race.m")
    found.locator("textarea").fill("then it goes on")
    found.locator(".rc-more summary").click()
    expect(found.get_by_label(EN["control.pair"], exact=True)).to_have_value("embedded")
    found.get_by_label(EN["control.temperature"]).fill("0.7")
    found.get_by_label(EN["control.top_k"]).fill("12")
    found.get_by_label(EN["control.top_k"]).press("Tab")
    found.get_by_label(EN["control.seed"]).fill("41")
    found.get_by_label(EN["control.seed"]).press("Tab")
    found.get_by_label(EN["control.length"]).fill("24")
    found.get_by_label(EN["control.top_p"]).fill("0.9")
    found.get_by_label(EN["control.chat"]).uncheck()
    found.get_by_label(EN["control.adaptive"]).check()
    expect(found.get_by_label(EN["control.m"])).to_be_disabled()
    found.locator('[data-control="drafter"] input[value="model"]').check()
    found.locator(".rc-go button").first.click()
    expect(found.locator(".sd-say")).to_contain_text(EN["say.sampled"], timeout=30_000)
    choose(found, "recorded")
    with page.expect_download() as saved:
        found.get_by_role("button", name=EN["control.save"]).click()
    settings = Trace.read(Path(saved.value.path())).header["settings"]
    wanted = {
        "prompt": "then it goes on", "chat": False, "m": "adaptive", "temperature": 0.7,
        "top_k": 12, "top_p": 0.9, "seed": 41, "length": 24, "drafter": "model",
    }  # fmt: skip
    assert {name: settings[name] for name in wanted} == wanted
    page.wait_for_url(re.compile("race.seed=41"))
    for part in (
        "race.temperature=0.7",
        "race.adaptive=true",
        "race.drafter=model",
        "race.chat=false",
    ):
        assert part in page.url


def test_cancel_and_the_words_of_errors(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    found = figure(page)
    error, status = found.locator(".rc-error"), found.locator(".rc-status")
    go_live(found, "slow words go on")
    expect(status).to_have_text(EN["status.running"])
    found.get_by_role("button", name=EN["control.cancel"]).click()
    expect(found.locator(".sd-say")).to_contain_text(EN["say.unfinished"])
    expect(found.get_by_role("button", name=EN["control.cancel"])).to_be_hidden()
    assert found.locator(".rc-token").count() > 0, "what had come stays"
    start = found.locator(".rc-go button").first
    for prompt, said_ in (
        ("refuse", "The prompt is too long: 99 tokens, where 9 tokens fit. Shorten it."),
        ("break", EN["error.engine_failed"].format(reason="RuntimeError")),
        ("crash", EN["error.engine_failed"].format(reason="exit 3")),
        (" ", EN["error.empty_prompt"]),
    ):
        found.locator("textarea").fill(prompt)
        start.click()
        expect(error).to_have_text(said_)
        expect(start).to_be_enabled()
    found.locator("textarea").fill("again it goes")
    start.click()
    expect(found.locator(".sd-say")).to_contain_text(EN["say.identical"], timeout=30_000)
    expect(error).to_be_hidden()


def test_scrubbing_a_live_race_and_coming_back_to_it(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    found = figure(page)
    go_live(found, "slow words go on")
    expect(found.locator(".rc-status")).to_have_text(EN["status.running"])
    page.wait_for_timeout(600)
    back = found.get_by_role("button", name=EN["control.follow"])
    expect(back).to_be_hidden()
    found.get_by_role("button", name=EN["ui.restart"]).click()
    expect(back).to_be_visible()
    few = len(written(found, "plain"))
    page.wait_for_timeout(400)
    assert len(written(found, "plain")) == few, "the reader's place, not the race's"
    back.click()
    page.wait_for_function(
        "([s, n]) => [...document.querySelectorAll(s)].map(x => x.textContent).join('').length > n",
        arg=[f'{FIGURE} .rc-lane[data-lane="plain"] [data-state="on"]', few],
    )
    expect(back).to_be_hidden()
    found.get_by_role("button", name=EN["control.cancel"]).click()


def test_a_change_of_language_and_theme_in_mid_race_loses_nothing(open_page: OpenPage) -> None:
    page = open_page("/app", query={"race.length": "400"})
    found = figure(page)
    found.locator(".sd-bet-options button").nth(1).click()
    go_live(found, "slow words go on with what was right")
    expect(found.locator(".rc-status")).to_have_text(EN["status.running"])
    page.wait_for_timeout(300)
    before = written(found, "plain")
    page.locator('[data-switch="zh"]').click()
    zh = Race.words("zh")
    expect(found.locator(".rc-lanename").first).to_have_text(zh["lane.plain"])
    expect(found.locator(".rc-status")).to_have_text(zh["status.running"])
    expect(found.locator(".sd-badge")).to_contain_text(zh["ui.badge_live"])
    assert written(found, "plain").startswith(before)
    page.locator("#theme").select_option("dark")
    length = len(written(found, "plain"))
    page.wait_for_function(
        "([s, n]) => [...document.querySelectorAll(s)].map(x => x.textContent).join('').length > n",
        arg=[f'{FIGURE} .rc-lane[data-lane="plain"] [data-state="on"]', length],
    )
    assert found.locator("textarea").input_value() == "slow words go on with what was right"
    expect(found.locator(".sd-bet-options button").nth(1)).to_have_attribute("aria-pressed", "true")
    found.get_by_role("button", name=zh["control.cancel"]).click()
    expect(found.locator(".sd-say")).to_contain_text(zh["say.unfinished"])
    # Playing survives it too.
    choose(found, "recorded")
    found.get_by_label(zh["recording.label"], exact=True).select_option("story")
    found.get_by_label(zh["ui.speed"]).select_option("0.1")
    found.locator(".sd-play").click()
    page.locator('[data-switch="en"]').click()
    expect(found.locator(".sd-play")).to_contain_text(EN["ui.pause"])
    place = at(found)
    page.wait_for_function(
        "n => Number(document.querySelector('#sd-race .sd-transport input').value) > n", arg=place
    )


WRAP = """
window.sockets = [];
window.WebSocket = class extends WebSocket { constructor(...x) { super(...x); window.sockets.push(this); } };
"""


def test_a_lost_connection_comes_back_without_losing_a_token(
    open_page: OpenPage, server: Server
) -> None:
    page = open_page("about:blank", lang=None)
    page.context.add_init_script(WRAP)
    page.goto(f"{server.url}{ALONE}?lang=en&race.length=200")
    found = figure(page)
    go_live(found, "then it goes on with what was right")
    expect(found.locator(".rc-status")).to_have_text(EN["status.running"])
    page.wait_for_timeout(200)
    page.evaluate("window.sockets.at(-1).close()")
    expect(found.locator(".sd-say")).to_contain_text(EN["say.identical"], timeout=30_000)
    assert page.evaluate("window.sockets.length") == 2
    choose(found, "recorded")
    with page.expect_download() as saved:
        found.get_by_role("button", name=EN["control.save"]).click()
    trace = Trace.read(Path(saved.value.path()))
    assert trace.events[-1]["stats"]["plain"]["tokens"] == 200
    assert trace.text("plain") == trace.text("speculative")


def test_a_queue_is_shown(open_page: OpenPage) -> None:
    pages = [open_page(ALONE) for _ in range(3)]
    founds = [figure(page) for page in pages]
    for found, last in zip(founds, ("on", "again", "then"), strict=True):
        go_live(found, f"slow words go {last}")
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.place"].format(n=2))
    pages[0].context.close()  # leaving cancels
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.place"].format(n=1))
    founds[1].get_by_role("button", name=EN["control.cancel"]).click()
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.running"])
    founds[2].get_by_role("button", name=EN["control.cancel"]).click()
    expect(founds[2].locator(".sd-say")).to_contain_text(EN["say.unfinished"])


def test_who_asks_for_the_very_same_run_is_told_that_it_is_shared(open_page: OpenPage) -> None:
    first, second = (figure(open_page(ALONE, query={"race.length": "400"})) for _ in range(2))
    go_live(first, "slow words go on")
    expect(first.locator(".rc-status")).to_have_text(EN["status.running"], timeout=30_000)
    go_live(second, "slow words go on")
    expect(second.locator(".rc-status")).to_contain_text(EN["status.joined"])
    expect(first.locator(".rc-status")).to_have_text(EN["status.running"])
    second.get_by_role("button", name=EN["control.cancel"]).click()
    expect(second.locator(".rc-error")).to_have_text(EN["error.cancelled"])
    expect(first.locator(".rc-status")).to_have_text(EN["status.running"])
    first.get_by_role("button", name=EN["control.cancel"]).click()
    expect(first.locator(".sd-say")).to_contain_text(EN["say.unfinished"])


def test_without_a_server_it_is_a_player(open_page: OpenPage) -> None:
    page = open_page("/app")
    figure(page)
    page.evaluate("""async () => {
        const { modelOf, mount } = await import('#sd/mount.js');
        const boot = JSON.parse(document.getElementById('boot').textContent);
        const spec = { ...boot.figures.race, strings: { ...boot.strings, ...boot.figures.race.strings } };
        const el = document.createElement('div');
        el.id = 'alone';
        document.body.prepend(el);
        await mount(spec, modelOf(spec, { state: { mode: 'live' } }), el);
    }""")
    alone = page.locator("#alone")
    alone.locator(".rc-token").first.wait_for(state="attached")
    expect(alone.get_by_text(EN["note.noserver"])).to_be_visible()
    expect(alone.locator("textarea")).to_be_hidden()
    to_end(alone.locator(".sd-figure"))
    expect(alone.locator(".sd-say")).to_have_text(Race().describe("en"))


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("real") / "log.txt")
    yield running
    running.stop()


@pytest.mark.real_model
@pytest.mark.usefixtures("embedded_folder")
def test_the_default_pair_writes_the_same_text_in_both_lanes(
    open_page: OpenPage, real_server: Server
) -> None:
    page = open_page(real_server.url + ALONE, lang="en", query={"race.length": "24"})
    found = figure(page)
    go_live(found, "Name three colours.")
    expect(found.locator(".sd-badge")).to_contain_text("live", timeout=60_000)
    expect(found.locator(".sd-say")).to_contain_text(EN["say.identical"], timeout=60_000)
    text = written(found, "plain")
    assert text == written(found, "speculative")
    assert len(text.split()) > 5
    expect(found.locator(".rc-meta")).to_contain_text("smollm2")
