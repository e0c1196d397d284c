"""The race figure in a browser: arithmetic, playback, foreign files, phones."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import content
from figures.race import model
from figures.race.figure import RECORDINGS, Race
from kernels.trace import Trace, TraceError, loads, validate
from tests.browser import race_page
from tests.browser.conftest import OpenPage
from tests.browser.race_page import (
    ALONE,
    EN,
    FIGURE,
    at,
    broken,
    figure,
    said,
    to_end,
    written,
)

# Fixtures of this module: its pages come from a server whose races need no weights.
fake_server, server, patience = race_page.fake_server, race_page.server, race_page.patience


# --- the same arithmetic on both sides --------------------------------------------------------------

COUNTS = [name for name in asdict(model.Counts()) if name != "clock"]


def test_the_browser_computes_what_python_computes(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    script = """async ([text, times, lang]) => {
        const m = await import('/app/figures/race/model.js');
        const { read } = await import('/app/figures/race/check.js');
        const run = m.runOf(read(text).trace);
        return {
            times: m.moments(run), duration: run.duration, opening: m.opening(run),
            ladder: m.ladder(run.end.stats), file: m.fileOf(run), chrome: m.chromeTrace(run),
            steps: times.map(t => [m.neighbour(run, t, 1), m.neighbour(run, t, -1)]),
            counts: times.map(t => m.LANES.map(lane => m.counts(run.lanes[lane], t))),
            said: times.map(t => m.moment(run, t, lang)),
            intervals: [[0, 0], [3, 9], [50, 50]].map(x => m.wilson(...x)),
            bets: [0.5, 1, 1.3, 1.9, 2].map(m.bet),
            expected: m.expectedTokens(0.7, 4),
        };
    }"""
    for name in RECORDINGS:
        path = model.RECORDED / f"{name}.json"
        run, trace = model.recording(path), Trace.read(path)
        stops = run.moments()
        times = [0.0, *stops[::3], *(t * 0.9993 for t in stops[1::7]), run.duration, 1e6]
        got = page.evaluate(script, [path.read_text("utf-8"), times, "zh"])
        assert got["times"] == pytest.approx(stops, abs=1e-9)
        assert got["duration"] == pytest.approx(run.duration, abs=1e-9)
        assert got["opening"] == pytest.approx(run.opening(), abs=1e-9)
        for (rung, value), (js_rung, js) in zip(
            model.ladder(run.end["stats"]) or [], got["ladder"] or [], strict=True
        ):
            assert rung == js_rung
            assert js == pytest.approx(value, abs=1e-9)
        for i, t in enumerate(times):
            after = next((s for s in stops if s > t + 1e-9), run.duration)
            before = next((s for s in reversed(stops) if s < t - 1e-9), 0)
            assert got["steps"][i] == pytest.approx([after, before], abs=1e-9)
            for lane, js in zip(("plain", "speculative"), got["counts"][i], strict=True):
                counted = run.counts(lane, t)
                assert {n: js[n] for n in COUNTS} == pytest.approx(
                    {n: asdict(counted)[n] for n in COUNTS}, abs=1e-9
                )
                assert js["clock"] == pytest.approx(counted.clock, abs=1e-9)
                assert js["rate"] == (counted.rate and pytest.approx(counted.rate, abs=1e-9))
            assert [tuple(x) for x in got["said"][i]] == model.moment(run, t)
        assert json.loads(got["file"]) == json.loads(trace.dumps())
        assert loads(got["file"]) == trace
        assert got["chrome"] == trace.to_chrome_trace()
    assert got["intervals"] == [
        pytest.approx(model.wilson(*x), abs=1e-9) for x in ((0, 0), (3, 9), (50, 50))
    ]
    assert got["bets"] == [model.bet(x) for x in (0.5, 1, 1.3, 1.9, 2)]
    assert got["expected"] == pytest.approx(model.expected_tokens(0.7, 4), abs=1e-9)


def test_foreign_files_are_judged_as_python_judges_them(open_page: OpenPage) -> None:
    cases = broken()
    page = open_page(ALONE)
    got = page.evaluate(
        """async (texts) => { const { read } = await import('/app/figures/race/check.js');
        return texts.map(t => read(t).error ?? null); }""",
        [json.dumps(value) for value in cases.values()] + ["", "nonsense", "[" * 9000, "null", "5"],
    )
    for (name, value), verdict in zip(cases.items(), got, strict=False):
        try:
            validate(copy.deepcopy(value))
            accepted = True
        except TraceError:
            accepted = False
        assert (verdict is None) == accepted, (name, verdict)
        assert accepted == (name in ("good", "markup is only text")), name
        assert verdict is None or f"error.file_{verdict['why']}" in EN, verdict
    assert all(verdict is not None for verdict in got[len(cases) :])


# --- recordings -------------------------------------------------------------------------------------


def test_it_teaches_untouched_and_replays_every_recording(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    found = figure(page)
    expect(found.locator(".sd-badge")).to_contain_text("recorded · ")
    first = Race.recording
    run = model.recording(model.RECORDED / f"{first}.json")
    expect(found.locator(".sd-say")).to_have_text(said(first, run.opening()))
    expect(found.locator(".sd-bet-why")).to_be_empty()
    for name in RECORDINGS:
        found.get_by_label(EN["recording.label"], exact=True).select_option(name)
        expect(found.locator(".rc-prompt q")).to_have_text(
            model.recording(model.RECORDED / f"{name}.json").header["settings"]["prompt"]
        )
        to_end(found)
        expect(found.locator(".sd-say")).to_have_text(Race(recording=name).describe("en"))
        trace = Trace.read(model.RECORDED / f"{name}.json")
        for lane in ("plain", "speculative"):
            assert written(found, lane) == trace.text(lane)
        rows = found.locator(".sd-panel .sd-table").evaluate(
            "e => [...e.querySelectorAll('tr')].map(r => [...r.children].map(c => c.textContent))"
        )
        assert rows == Race(recording=name).table("en")
        bars = found.locator('.rc-striprow[data-lane="speculative"] .rc-bar')
        passes = [e for e in trace.events if e.get("lane") == "speculative" and e["type"] == "pass"]
        expect(bars).to_have_count(len(passes))
        assert f"race.recording={name}" in page.url or name == first or "figure/race" in page.url


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_stepping_explains_each_pass(open_page: OpenPage, lang: str) -> None:
    page = open_page(ALONE, lang=lang, query={"race.recording": "hot"})
    found, words = figure(page), Race.words(lang)
    run = model.recording(model.RECORDED / "hot.json")
    found.get_by_role("button", name=words["ui.restart"]).click()
    expect(found.locator(".sd-say")).to_have_text(said("hot", 0, lang))
    for t in run.moments()[1:16]:
        found.get_by_role("button", name=words["ui.step"], exact=True).click()
        expect(found.locator(".sd-say")).to_have_text(said("hot", t, lang))
    found.get_by_role("button", name=words["ui.step_back"]).click()
    expect(found.locator(".sd-say")).to_have_text(said("hot", run.moments()[14], lang))
    found.locator(".sd-transport input").focus()
    page.keyboard.press("ArrowRight")
    expect(found.locator(".sd-say")).to_have_text(said("hot", run.moments()[15], lang))


def test_playing_moves_the_clock_and_the_speed_counts(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    found = figure(page)
    run = model.recording(model.RECORDED / f"{Race.recording}.json")
    play = found.locator(".sd-play")
    found.get_by_label(EN["ui.speed"]).select_option("0.1")
    found.get_by_role("button", name=EN["ui.restart"]).click()
    play.click()
    expect(play).to_contain_text(EN["ui.pause"])
    page.wait_for_function("() => Number(document.querySelector('.sd-transport input').value) > 0")
    play.click()
    place = at(found)
    assert 0 < place < 1000
    page.wait_for_timeout(150)
    assert at(found) == place, "paused"
    found.get_by_label(EN["ui.speed"]).select_option("4")
    play.click()
    expect(play).to_contain_text(EN["ui.play"], timeout=1000 * run.duration + 10_000)
    assert at(found) == 1000
    expect(found.locator(".sd-say")).to_have_text(Race().describe("en"))


def test_reset_brings_back_where_it_began(open_page: OpenPage) -> None:
    page = open_page(ALONE)
    found = figure(page)
    run = model.recording(model.RECORDED / f"{Race.recording}.json")
    found.locator('input[type="file"]').set_input_files(model.RECORDED / "story.json")
    expect(found.get_by_label(EN["recording.label"], exact=True)).to_have_value(" ")
    to_end(found)
    expect(found.locator(".sd-say")).to_have_text(Race(recording="story").describe("en"))
    found.get_by_role("button", name=EN["ui.reset"]).click()
    expect(found.locator(".sd-say")).to_have_text(said(Race.recording, run.opening()))
    expect(found.get_by_label(EN["recording.label"], exact=True)).to_have_value(Race.recording)


def test_less_motion_goes_straight_to_the_end(open_page: OpenPage) -> None:
    page = open_page(ALONE, reduced_motion=True)
    found = figure(page)
    found.locator(".sd-play").click()
    assert at(found) == 1000


def test_a_pass_is_chosen_by_mouse_keyboard_and_finger(open_page: OpenPage) -> None:
    page = open_page(ALONE, query={"race.recording": "hot"})
    found = figure(page)
    to_end(found)
    strip = found.get_by_role("slider", name=re.compile("Passes of the lane: Speculative"))
    detail = found.locator(".rc-detail")
    strip.focus()
    page.keyboard.press("Home")
    expect(detail).to_contain_text(EN["detail.head_prompt"])
    expect(strip).to_have_attribute("aria-valuenow", "0")
    run = model.recording(model.RECORDED / "hot.json")
    passes = run.passes["speculative"]
    lost = next(
        i
        for i, p in enumerate(passes)
        if p["kind"] == "verify" and p["tokens"][0]["origin"] == "rejected"
    )
    solved = found.locator(".sd-solved")
    expect(solved).to_be_empty()
    for _ in range(lost):
        page.keyboard.press("ArrowRight")
    expect(strip).to_have_attribute("aria-valuenow", str(lost))
    key, values = model.about(passes[lost])
    expect(detail).to_contain_text(EN[f"pass.{key}"].format(**values))
    head = detail.locator("th").all_inner_texts()
    assert head == [
        EN[f"detail.{c}"] for c in ("place", "token", "by", "p", "q", "ratio", "u", "verdict")
    ]
    refused = passes[lost]["tokens"][0]
    row = detail.locator("tbody tr").first.locator("td").all_inner_texts()
    assert row[-1] == EN["detail.rejected"]
    assert float(row[6].removeprefix("< ")) == pytest.approx(refused["u"], abs=0.001)
    expect(solved).to_contain_text(EN["puzzle.answer"])
    # Enter takes the playback to the end of the pass.
    page.keyboard.press("Enter")
    expect(found.locator(".sd-say")).to_have_text(said("hot", passes[lost]["end"]))
    detail.get_by_role("button", name=EN["detail.unpin"]).click()
    expect(detail).not_to_contain_text(EN[f"pass.{key}"].format(**values))
    # A click on a token chooses the pass it came from, a second one lets go.
    to_end(found)
    token = found.locator('.rc-lane[data-lane="plain"] .rc-token[data-pass="3"]')
    token.click()
    expect(detail).to_contain_text(EN["detail.head_plain"].format(i=3))
    expect(token).to_have_class(re.compile("rc-marked"))
    token.click()
    page.mouse.move(0, 0)
    expect(token).not_to_have_class(re.compile("rc-marked"))
    # The mouse over a bar shows that pass, without choosing it.
    box = found.locator('.rc-striprow[data-lane="plain"] .rc-bar').nth(5).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(detail).to_contain_text(EN["detail.head_plain"].format(i=5))
    expect(detail.get_by_role("button", name=EN["detail.unpin"])).to_be_hidden()


def test_rejected_tokens_go_or_stay_and_strips_come_closer(open_page: OpenPage) -> None:
    page = open_page(ALONE, query={"race.recording": "hot", "race.keep": "true"})
    found = figure(page)
    to_end(found)
    crossed = found.locator('.rc-text [data-origin="rejected"]')
    total = model.recording(model.RECORDED / "hot.json").end["stats"]["speculative"]["rejected"]
    assert crossed.evaluate_all("e => e.filter(x => x.checkVisibility()).length") == total
    assert "line-through" in crossed.first.evaluate("e => getComputedStyle(e).textDecorationLine")
    found.locator('[data-control="keep"] input').uncheck()
    page.wait_for_function(
        "s => [...document.querySelectorAll(s)].filter(x => x.checkVisibility()).length <= 1",
        arg=f'{FIGURE} .rc-text [data-origin="rejected"]',
    )
    bar = found.locator('.rc-striprow[data-lane="plain"] .rc-bar').nth(2)
    far = float(bar.get_attribute("width") or 0)
    found.locator('[data-control="close"] input').check()
    expect(bar).not_to_have_attribute("width", str(far))
    assert float(bar.get_attribute("width") or 0) > 2 * far


def test_files_are_opened_saved_and_refused(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(ALONE)
    found = figure(page)
    chooser = found.locator('input[type="file"]')
    error = found.locator(".rc-error")

    def give(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, "utf-8")
        chooser.set_input_files(tmp_path / name)

    cases = broken()
    give("words.json", "no JSON at all")
    expect(error).to_have_text(EN["error.file_json"])
    give("page.json", "<html><script>alert(1)</script></html>")
    expect(error).to_have_text(EN["error.file_json"])
    give("other.json", json.dumps(cases["other schema"]))
    expect(error).to_have_text(EN["error.file_schema"])
    give("cut.json", json.dumps(cases["cut off"]))
    expect(error).to_have_text(EN["error.file_unclosed"])
    give("huge.json", json.dumps(cases["good"]) + " " * 2_000_000)
    expect(error).to_contain_text("2 MB")
    expect(found.locator(".sd-badge")).to_contain_text("recorded")
    assert written(found, "plain"), "the run that was there is still there"

    page.on("dialog", lambda dialog: pytest.fail(f"a token ran as a script: {dialog.message}"))
    give("markup.json", json.dumps(cases["markup is only text"]))
    expect(error).to_be_hidden()
    to_end(found)
    expect(found.locator(".rc-text").first).to_contain_text("<img src=x onerror=alert(1)>")
    assert found.locator(".rc-text img").count() == 0
    expect(found.get_by_label(EN["recording.label"], exact=True)).to_have_value(" ")

    with page.expect_download() as saved:
        found.get_by_role("button", name=EN["control.save"]).click()
    text = Path(saved.value.path()).read_text("utf-8")
    assert loads(text) == validate(cases["markup is only text"])
    with page.expect_download() as exported:
        found.get_by_role("button", name=EN["control.chrome"]).click()
    chrome = json.loads(Path(exported.value.path()).read_text("utf-8"))
    assert chrome == loads(text).to_chrome_trace()

    # Dropped onto the figure, as a mouse would.
    page.evaluate(
        """([text, selector]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], 'dropped.json', { type: 'application/json' }));
            const root = document.querySelector(selector);
            for (const type of ['dragover', 'drop'])
                root.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        [(model.RECORDED / "code.json").read_text("utf-8"), FIGURE],
    )
    expect(found.locator(".rc-prompt q")).to_have_text(
        model.recording(model.RECORDED / "code.json").header["settings"]["prompt"]
    )


# --- every screen -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lang", "theme", "width"), [("zh", "dark", 360), ("en", "light", 390), ("en", "dark", 768), ("zh", "light", 1440)]
)  # fmt: skip
def test_it_fits_and_nothing_jumps(
    open_page: OpenPage, shot: Any, lang: str, theme: str, width: int
) -> None:
    phone = width < 600
    page = open_page(ALONE, lang=lang, theme=theme, width=width, touch=phone)
    found = figure(page)
    if lang == "zh" and width == 1440:
        to_end(found)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = page.evaluate(
        "s => [...document.querySelectorAll(s + ' svg text')].map(e => parseFloat(getComputedStyle(e).fontSize))",
        FIGURE,
    )
    assert min(sizes) >= 11
    shot(page, f"race-{lang}-{theme}-{width}", full=True)
    # The place of what stands below the lanes, while the race plays.
    found.get_by_role("button", name=Race.words(lang)["ui.restart"]).click()
    tops = set()
    for place in (0, 150, 400, 700, 1000):
        found.locator(".sd-transport input").fill(str(place))
        page.wait_for_timeout(60)
        tops.add(round(found.locator(".sd-transport").evaluate(
            "e => e.getBoundingClientRect().top + scrollY - document.querySelector('.rc-lanes').getBoundingClientRect().top - scrollY"
        )))  # fmt: skip
    assert max(tops) - min(tops) <= 30, f"the controls moved: {tops}"
    if phone:
        box = found.locator('.rc-striprow[data-lane="speculative"] svg').bounding_box()
        assert box is not None
        page.touchscreen.tap(box["x"] + 30, box["y"] + box["height"] - 6)
        expect(found.get_by_role("button", name=Race.words(lang)["detail.unpin"])).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
