"""Figure 2 in a browser: play, step, scrub, runs, a dropped record."""

from __future__ import annotations

import copy
import json

import pytest
from playwright.sync_api import Page, expect

from figures.tiles import model
from figures.tiles.figure import Tiles
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser
RECORD = model.shipped()


def start(page: Page):
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-tiles")
    figure.scroll_into_view_if_needed()
    figure.locator(".sd-transport").wait_for()
    return figure


def test_counts_follow_the_record(open_page: OpenPage) -> None:
    page = open_page(lang="en")
    figure = start(page)
    say = figure.locator(".sd-say")
    ends = sorted(model.find(RECORD, "decode")["columns"]["done"])
    figure.get_by_role("button", name="Step forward").click()
    expect(say).to_have_text(Tiles().describe("en", t=ends[0] / 1e9))
    scrub = figure.get_by_label("Position in time")
    scrub.focus()
    page.keyboard.press("ArrowRight")
    expect(say).to_have_text(Tiles().describe("en", t=ends[1] / 1e9))
    scrub.evaluate("e => { e.value = 1000; e.dispatchEvent(new Event('input')); }")
    expect(say).to_have_text(Tiles().describe("en", t=1e6))
    got = page.evaluate(
        """async ([record, runs, moments]) => { const m = await import('/app/figures/tiles/model.js');
        m.check(record);
        return runs.map(r => moments.map(t => { const f = m.frame(record, r, t); return [f.done, f.bytes, f.macs, f.span]; })); }""",
        [RECORD, list(model.RUNS), [0, 0.001, 0.004, 0.02, 1.0]],
    )
    for run, rows in zip(model.RUNS, got, strict=True):
        for t, row in zip([0, 0.001, 0.004, 0.02, 1.0], rows, strict=True):
            f = model.frame(RECORD, run, t)
            assert row[:3] == [f.done, f.bytes, f.macs]
            assert row[3] == pytest.approx(f.span, rel=1e-9)


def test_it_plays_and_pauses_and_keeps_its_place_across_languages(open_page: OpenPage) -> None:
    page = open_page(lang="en")
    figure = start(page)
    figure.locator(".sd-play").click()
    page.wait_for_function(
        "() => /[1-9]\\d* of 128/.test(document.querySelector('#sd-tiles .sd-say').textContent)"
    )
    figure.locator(".sd-play").click()
    now = figure.locator(".sd-say").inner_text()
    page.wait_for_timeout(300)
    assert figure.locator(".sd-say").inner_text() == now
    page.locator('[data-switch="zh"]').click()
    done = now.split()[3]
    expect(page.locator("#sd-tiles .sd-say")).to_contain_text(f"用过了 {done} 块")


def test_no_motion_when_the_reader_wants_none(open_page: OpenPage) -> None:
    page = open_page(lang="en", reduced_motion=True)
    figure = start(page)
    figure.locator(".sd-play").click()
    expect(figure.locator(".sd-say")).to_have_text(Tiles().describe("en", t=1e6))


def test_the_puzzle_is_one_step_of_the_prompt(open_page: OpenPage) -> None:
    page = open_page(lang="en", width=390, touch=True)
    figure = start(page)
    figure.get_by_role("radio", name="a prompt, 128").tap()
    expect(figure.locator(".sd-solved")).to_be_empty()
    figure.get_by_role("button", name="Step forward").tap()
    expect(figure.locator(".sd-solved")).not_to_be_empty()


def test_a_record_can_be_loaded_and_a_bad_one_is_refused(open_page: OpenPage) -> None:
    page = open_page(lang="en")
    figure = start(page)
    chooser = figure.locator('input[type="file"]')
    for name, spoil in [
        ("schema", lambda r: r.update(schema="other/1")),
        ("done", lambda r: r["runs"][0]["columns"]["done"].__setitem__(0, -5)),
        ("markup", lambda r: r.update(schema="<img src=x onerror=alert(1)>")),
    ]:
        bad = copy.deepcopy(RECORD)
        spoil(bad)
        chooser.set_input_files(
            {
                "name": f"{name}.json",
                "mimeType": "application/json",
                "buffer": json.dumps(bad).encode(),
            }
        )
        expect(figure.get_by_text("This file is no tile record")).to_be_visible()
        assert figure.locator("img").count() == 0
    chooser.set_input_files({"name": "x.json", "mimeType": "application/json", "buffer": b"{"})
    expect(figure.get_by_text("This file is no tile record")).to_be_visible()
    good = copy.deepcopy(RECORD)
    good["device"]["name"] = "Another machine"
    chooser.set_input_files(
        {"name": "good.json", "mimeType": "application/json", "buffer": json.dumps(good).encode()}
    )
    expect(figure.locator(".sd-badge")).to_contain_text("Another machine")
