"""One state for all figures: what is set in one the others follow, with a mark, unless set apart."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

import figures
from figures.race.figure import Race
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

WITH_M = [i for i in figures.IDS if "m" in figures.get(i).schema()]


def ready(page: Page) -> Page:
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def state(page: Page) -> dict[str, str]:
    """The address's parameters, once it no longer changes: it follows a moment after the figures.

    Counted on the page's own timers: on a busy machine they come late, and ours after theirs.
    """
    later = "() => new Promise(done => setTimeout(() => done(location.href), 700))"
    address, now = "", page.url
    while address != now:
        address, now = now, page.evaluate(later)
    return {k: v[-1] for k, v in parse_qs(urlsplit(now).query).items()}


def test_one_figure_sets_m_and_the_others_follow(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    speedup = page.locator("#sd-speedup")
    speedup.get_by_label("m, drafted tokens a round").press("ArrowRight")
    found = state(page)
    assert {found[f"{i}.m"] for i in WITH_M} == {"5"}
    mark = page.locator("#sd-branch .sd-shared")
    number = figures.IDS.index("speedup") + 1
    expect(mark).to_contain_text(f"m as in Figure {number}.")
    expect(speedup.locator(".sd-shared")).to_be_hidden()
    # Past a figure's bound it goes as far as it can, and says so.
    speedup.get_by_label("m, drafted tokens a round").press("End")
    assert state(page)["branch.m"] == "8" and state(page)["speedup.m"] == "32"
    expect(mark).to_contain_text("as far as it goes here")
    # A reload keeps who followed whom.
    page.reload()
    ready(page)
    expect(mark).to_contain_text(f"m as in Figure {number}, as far as it goes here.")
    expect(page.locator("#sd-mask .sd-shared")).to_contain_text(f"m as in Figure {number}")
    expect(speedup.locator(".sd-shared")).to_be_hidden()
    # Words change with the language, the state does not.
    page.get_by_role("link", name="中文").click()
    expect(mark).to_contain_text(f"跟随图 {number}")
    assert state(page)["branch.m"] == "8"


def test_set_apart_and_join_again(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en", query={"roofline.m": "8"}))
    # A link that sets m in one figure sets it in all.
    branch, speedup = page.locator("#sd-branch"), page.locator("#sd-speedup")
    expect(branch.locator(".sd-shared")).to_contain_text("m as in Figure 1.")
    branch.get_by_role("button", name="Set this figure apart").click()
    expect(branch.locator(".sd-shared")).to_contain_text("set apart")
    speedup.get_by_label("m, drafted tokens a round").press("ArrowLeft")
    found = state(page)
    assert found["apart"] == "branch" and found["branch.m"] == "8" and found["roofline.m"] == "7"
    page.reload()
    ready(page)
    expect(branch.locator(".sd-shared")).to_contain_text("set apart")
    assert state(page)["branch.m"] == "8"
    branch.get_by_role("button", name="Follow the others again").click()
    found = state(page)
    assert "apart" not in found and found["branch.m"] == "7"


def test_device_and_batch_go_both_ways_and_reset_stays_at_home(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    page.locator("#sd-roofline").get_by_label("Device").select_option("m3-max")
    page.locator("#sd-speedup").get_by_label("Batch, sequences").press("ArrowRight")
    found = state(page)
    assert found["speedup.hardware"] == "m3-max" and found["roofline.batch"] == "2"
    expect(page.locator("#sd-speedup .sd-shared")).to_contain_text("device as in Figure 1.")
    page.locator("#sd-speedup").get_by_role("button", name="Reset this figure").click()
    found = state(page)
    assert "speedup.hardware" not in found and found["roofline.hardware"] == "m3-max"
    expect(page.locator("#sd-speedup .sd-shared")).to_be_hidden()


def test_unknown_figures_in_the_link_are_ignored(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en", query={"apart": "nothing,,<b>"}))
    page.locator("#sd-speedup").get_by_label("m, drafted tokens a round").press("ArrowRight")
    assert "apart" not in state(page)


def test_a_measurement_reaches_the_figures_that_ask_for_it(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    got = page.evaluate(
        """async () => { const { createShared } = await import('#sd/shared.js'), { createModel } = await import('#sd/model.js');
        const number = { type: 'number', min: 0, max: 1, default: 0.5 }, choice = { type: 'choice', choices: ['a', 'b'], default: 'a' };
        const make = (schema) => createModel({ schema, extras: { number: 1 } });
        const one = make({ c: number, hardware: choice }), two = make({ c: { ...number, max: 0.8 }, hardware: { ...choice, choices: ['a', 'c'] }, measured: { type: 'any', default: null, private: true } });
        const shared = createShared();
        shared.join('one', one); shared.join('two', two); shared.settle();
        one.set('measured', { alpha: 0.7 });
        one.set('c', 0.9); one.set('hardware', 'b'); shared.spread('one');
        const first = [two.get('c'), two.get('hardware'), two.get('measured').alpha, two.get('followed')];
        two.set('c', 0.1); shared.spread('two');
        return [...first, one.get('c'), two.get('followed'), one.get('followed')]; }"""
    )
    # 0.9 is beyond the other's bound; the device 'b' it does not know at all.
    assert got[:3] == [0.8, "a", 0.7]
    assert got[3] == [{"id": "one", "limited": True, "names": ["c"], "number": 1}]
    assert got[4] == 0.1 and got[5] == []
    assert got[6] == [{"id": "two", "limited": False, "names": ["c"], "number": 1}]


def test_the_last_races_alpha_c_and_v_are_one_tap_away(open_page: OpenPage) -> None:
    page = ready(open_page(lang="en"))
    race, speedup = page.locator("#sd-race"), page.locator("#sd-speedup")
    run = Race().run()
    race.scroll_into_view_if_needed()
    race.locator(".rc-token").first.wait_for()
    entry = speedup.locator(".su-runs li").first
    assert "just watched" not in (entry.text_content() or "")
    # To the end of the recording: only then is there a result to take.
    race.get_by_label("Position in time").press("End")
    expect(entry).to_contain_text("The race you just watched")
    entry.get_by_role("button", name="Take α, c and v").click()
    stats = run.end["stats"]
    found = state(page)
    assert float(found["speedup.alpha"]) == pytest.approx(stats["acceptance"]["alpha"], abs=1e-4)
    assert float(found["speedup.c"]) == pytest.approx(stats["c"], abs=1e-4)
    growth = (stats["v"] - 1) / stats["m"]
    assert float(found["speedup.growth"]) == pytest.approx(growth, abs=1e-4)
    speed = stats["speedup"]["formula"]
    if stats["m"] == round(stats["m"]):
        expect(speedup.locator(".sd-say")).to_contain_text(f"{speed:.2f}×")
