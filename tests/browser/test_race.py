"""The race figure in a browser: arithmetic, playback, live races, foreign files, phones."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import content
from figures.race import model
from figures.race.figure import RECORDINGS, Race, sentence
from kernels.trace import Trace, TraceError, loads, validate
from tests.browser.conftest import OpenPage
from tests.browser.harness import Server

FIGURE = '.sd-figure[data-figure="race"]'
ALONE = "/app/figure/race"
EN = Race.words("en")


@pytest.fixture(scope="module")
def _fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(
        tmp_path_factory.mktemp("fake") / "log.txt",
        SD_SOURCE="tests.app.fake_source:FakeSource",
        FAKE_PASS_MS="8",
        SD_MAX_LENGTH="300",
    )
    yield running
    running.stop()


@pytest.fixture
def server(_fake: Server) -> Server:
    """A server whose races need no weights; `open_page` opens this one."""
    return _fake


def figure(page: Page) -> Locator:
    found = page.locator(FIGURE)
    found.locator(".rc-token").first.wait_for(state="attached")
    found.locator(".rc-lanes").scroll_into_view_if_needed()
    return found


def written(found: Locator, lane: str) -> str:
    """The text of a lane as it stands there now."""
    text: str = found.locator(f'.rc-lane[data-lane="{lane}"] .rc-text').evaluate(
        "e => [...e.children].filter(x => x.dataset.state === 'on' "
        "&& !['drafted', 'rejected'].includes(x.dataset.origin)).map(x => x.textContent).join('')"
    )
    return text


def at(found: Locator) -> float:
    """The playback's place on its track, 0 to 1000."""
    return float(found.locator(".sd-transport input").input_value())


def to_end(found: Locator) -> None:
    scrub = found.locator(".sd-transport input")
    scrub.fill("1000")
    expect(scrub).to_have_value("1000")


def said(name: str, t: float, lang: str = "en") -> str:
    run = model.recording(model.RECORDED / f"{name}.json")
    return sentence(Race.words(lang), model.moment(run, t), lang)


def choose(found: Locator, mode: str) -> None:
    found.locator(f'[data-control="mode"] input[value="{mode}"]').check()


def go_live(found: Locator, prompt: str = "what was the small model") -> None:
    choose(found, "live")
    found.locator("textarea").fill(prompt)
    found.locator(".rc-go button").first.click()


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
            model.ladder(run.end["stats"]) or [], got["ladder"], strict=True
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


def broken() -> dict[str, Any]:
    """Variants of a good recording, most of them bad."""
    good = json.loads((model.RECORDED / "hot.json").read_text("utf-8"))
    found: dict[str, Any] = {"good": good}

    def variant(name: str, *path: Any, value: Any = None, drop: bool = False) -> None:
        copied = copy.deepcopy(good)
        place = copied
        for key in path[:-1]:
            place = place[key]
        if drop:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        found[name] = copied

    plain = next(
        i for i, e in enumerate(good["events"]) if i > 8 and e[0] == 0 and e[1] == "decode"
    )
    verify = next(
        i for i, e in enumerate(good["events"]) if isinstance(e, list) and e[1] == "verify"
    )
    variant("other schema", "schema", value="something/2")
    variant("no header", "header", drop=True)
    variant("strange entry", "extra", value=1)
    variant("header of text", "header", value="hello")
    variant("no events", "events", value={})
    variant("empty", "events", value=[])
    variant("cut off", "events", -1, drop=True)
    variant("end in the middle", "events", 3, value=good["events"][-1])
    variant("unknown type", "events", 3, value={"type": "<img onerror=alert(1)>"})
    variant("event of text", "events", 3, value="boo")
    variant("short row", "events", 3, value=[0, "decode", 1])
    variant("lane 2", "events", 3, 0, value=2)
    variant("lane -1", "events", 3, 0, value=-1)
    variant("unknown kind", "events", 3, 1, value="steal")
    variant("prototype kind", "events", 3, 1, value="__proto__")
    variant("backwards", "events", plain, 2, value=0)
    variant("negative length", "events", plain, 3, value=0)
    variant("half microseconds", "events", plain, 3, value="soon")
    variant("rows of text", "events", plain, 4, value="many")
    variant("minus rows", "events", plain, 4, value=-1)
    variant("tokens of text", "events", plain, 6, value="x")
    variant("token of text", "events", plain, 6, 0, value="x")
    variant("token without text", "events", plain, 6, 0, value=[5])
    variant("many tokens", "events", plain, 6, value=[[1, "x"]] * 65)
    variant("long text", "events", plain, 6, 0, 1, value="x" * 401)
    variant("id of text", "events", plain, 6, 0, 0, value="7")
    variant("p above one", "events", verify, 6, 0, value=[1, "x", "accepted", 1.5])
    variant("order", "events", verify, 6, value=[[1, "x", "bonus"], [1, "x", "accepted"]])
    variant("origin", "events", verify, 6, value=[[1, "x", "drafted"]])
    variant("drafter", "events", verify, 5, value="oracle")
    variant("m = 0", "header", "settings", "m", value=0)
    variant("hot", "header", "settings", "temperature", value=99)
    variant("prompt of numbers", "header", "settings", "prompt", value=5)
    variant("deep", "header", "device", "a", value=[[[[[[1]]]]]])
    variant("agreement", "events", -1, "agreement", value={"kind": "maybe"})
    variant("stats of text", "events", -1, "stats", value="great")
    variant("markup is only text", "events", plain, 6, 0, 1, value="<img src=x onerror=alert(1)>")
    return found


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
        ("crash", EN["error.engine_failed"].format(reason="exit")),
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
    page = open_page("/app")
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
    for found in founds:
        go_live(found, "slow words go on")
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.place"].format(n=2))
    pages[0].context.close()  # leaving cancels
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.place"].format(n=1))
    founds[1].get_by_role("button", name=EN["control.cancel"]).click()
    expect(founds[2].locator(".rc-status")).to_have_text(EN["status.running"])
    founds[2].get_by_role("button", name=EN["control.cancel"]).click()
    expect(founds[2].locator(".sd-say")).to_contain_text(EN["say.unfinished"])


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
