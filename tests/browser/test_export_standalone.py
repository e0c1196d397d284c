"""Each export, opened from the disk: asks for nothing, works in full, and its address is obeyed or answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

import content
import figures
from figures.export import standalone
from figures.export.standalone import library_files, library_name
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

CHARTS = {f.id for f in figures.every() if (f.folder() / "chart.py").exists()}
LIMIT = {"chart": 2_000_000, "mechanism": 150_000}

Drive = Callable[[Page], None]


def choose(name: str, value: str) -> Drive:
    return lambda page: page.locator(f'[data-control="{name}"] select').select_option(value)


def pick(name: str, value: str) -> Drive:
    return lambda page: page.locator(f'[data-control="{name}"] input[value="{value}"]').check(
        force=True
    )


def up(name: str) -> Drive:
    return lambda page: page.locator(f'[data-control="{name}"] input').press("ArrowRight")


#: The control that a reader moves, and the state that it leads to.
MAIN: dict[str, tuple[Drive, dict[str, Any]]] = {
    "roofline": (choose("hardware", "l4"), {"hardware": "l4"}),
    "tiles": (pick("run", "prefill"), {"run": "prefill"}),
    "branch": (up("condition"), {"condition": 7}),
    "mask": (up("m"), {"m": 5}),
    "accept": (choose("context", "bees"), {"context": "bees"}),
    "lossless": (pick("rule", "always"), {"rule": "always"}),
    "speedup": (up("m"), {"m": 5}),
}


@pytest.fixture
def open_file(open_page: OpenPage, tmp_path: Path) -> Callable[..., Page]:
    """Opens HTML as a file, with no network; the page may ask for that file and nothing else."""

    def open_(html: str, address: str = "", **options: Any) -> Page:
        file = tmp_path / "figure.html"
        file.write_text(html, encoding="utf-8")
        page = open_page(file.as_uri() + address, lang=None, offline=True, **options)
        page.locator("html[data-ready]").wait_for(state="attached")
        return page

    return open_


def asked(open_page: OpenPage, page: Page) -> list[str]:
    """What the page asked for besides itself; what stands inside it is no request."""
    seen = open_page.watch(page).requests
    return [url for url in seen if not url.startswith(("data:", "blob:"))][1:]


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_an_export_is_whole(
    open_page: OpenPage, open_file: Callable[..., Page], figure_id: str
) -> None:
    lang = content.LANGUAGES[figures.IDS.index(figure_id) % len(content.LANGUAGES)]
    html = standalone(figure_id, lang=lang)
    size = len(html.encode())
    print(f"{figure_id}: {size / 1000:.1f} kB")
    # The race brings every recording; with one of them it keeps the limit of its kind (below).
    if figure_id != "race":
        assert size <= LIMIT["chart" if figure_id in CHARTS else "mechanism"]
    page = open_file(html)
    figure = figures.get(figure_id)
    if figure_id == "race":
        expect(page.locator('.sd-badge[data-kind="recorded"]')).to_be_visible()
        before = page.locator(".rc-prompt q").inner_text()
        page.locator("select[id^=recording]").select_option("story")
        expect(page.locator(".rc-prompt q")).not_to_have_text(before)
    else:
        expect(page.locator(".sd-say")).to_have_text(figure().describe(lang))
        drive, state = MAIN[figure_id]
        drive(page)
        expect(page.locator(".sd-say")).to_have_text(figure(**state).describe(lang))
    if figure_id in CHARTS:
        page.locator("[class^='bk-']").first.wait_for()
    assert asked(open_page, page) == []


def test_a_race_with_one_recording_is_small(open_file: Callable[..., Page]) -> None:
    html = standalone("race", records=("list",))
    assert len(html.encode()) <= LIMIT["mechanism"]
    page = open_file(html)
    assert page.locator("select[id^=recording] option").count() == 1
    expect(page.locator(".rc-prompt q")).not_to_be_empty()


def test_without_a_server_the_race_says_so(open_file: Callable[..., Page]) -> None:
    page = open_file(standalone("race"), "?race.mode=live")
    words = figures.get("race").words("en")
    expect(page.get_by_text(words["note.noserver"])).to_be_visible()


@pytest.mark.parametrize("place", ["?", "#"])
@pytest.mark.parametrize("prefix", ["mask.", ""])
def test_state_comes_from_the_address(
    open_file: Callable[..., Page], place: str, prefix: str
) -> None:
    state = {"m": 6, "reject": 2, "sentence": "雨 rain <b>& 茶"}
    query = urlencode({f"{prefix}{name}": value for name, value in state.items()}, quote_via=quote)
    page = open_file(standalone("mask"), f"{place}{query}&theme=dark&controls=few&utm_source=feed")
    figure = figures.get("mask")(**state)
    expect(page.locator(".sd-say")).to_have_text(figure.describe("en"))
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.locator(".sd-warn").count() == 0
    assert not page.locator(".sd-foot").is_visible()
    assert page.locator(".sd-controls").is_visible()


def test_options_are_where_reset_goes_back_to(open_file: Callable[..., Page]) -> None:
    page = open_file(standalone("mask", lang="zh", theme="dark", state={"m": "3"}))
    figure = figures.get("mask")
    say = page.locator(".sd-say")
    expect(say).to_have_text(figure(m=3).describe("zh"))
    page.locator('[data-control="m"] input').press("ArrowRight")
    expect(say).to_have_text(figure(m=4).describe("zh"))
    page.get_by_role("button", name=content.strings("zh")["ui.reset"]).click()
    expect(say).to_have_text(figure(m=3).describe("zh"))


def hostile(figure_id: str) -> list[tuple[str, str]]:
    """For every parameter something it cannot be; and names that are none."""
    markup = "<script>window.broken=1</script><img src=x onerror=window.broken=1>"
    schema = figures.get(figure_id).schema()
    pairs = [(f"{figure_id}.{n}", markup) for n, e in schema.items() if not e.get("private")]
    pairs += [(n, json.dumps({"x": markup})) for n, e in schema.items() if e.get("private")]
    return [*pairs, (markup, "1"), ("theme", markup), ("controls", "9"), ("__proto__", "1")]


@pytest.mark.parametrize("figure_id", figures.IDS)
def test_what_cannot_be_is_set_right_with_a_note(
    open_page: OpenPage, figure_id: str, server: Any
) -> None:
    page = open_page(f"/app/figure/{figure_id}", lang=None, query=dict(hostile(figure_id)))
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = figures.get(figure_id)
    assert page.evaluate("window.broken") is None
    assert page.locator(".sd-figure script, .sd-figure img").count() == 0
    expect(page.locator(".sd-say")).not_to_be_empty()
    notes = page.locator(".sd-warn").all_inner_texts()
    refused = [
        n for n, e in figure.schema().items() if not e.get("private") and e["type"] != "text"
    ]
    for name in refused:
        assert any(f"{figure_id}.{name}" in note for note in notes), name
    assert any(note.startswith("<script>") for note in notes)
    assert any("theme" in note for note in notes)
    assert any("controls" in note for note in notes)
    # What the view alone keeps is not the address's to set.
    for name, entry in figure.schema().items():
        if entry.get("private"):
            assert not any(f" {name} " in f" {note} " for note in notes)


def test_private_state_is_never_read(open_file: Callable[..., Page]) -> None:
    page = open_file(standalone("roofline"), "?solved=true&roofline.solved=1&bet=2&roofline.bet=2")
    assert page.locator(".sd-solved").text_content() == ""
    assert page.locator('.sd-bet-options [aria-pressed="true"]').count() == 0


def test_a_number_out_of_bounds_is_the_nearest(open_file: Callable[..., Page]) -> None:
    page = open_file(standalone("mask"), "?mask.m=99")
    figure = figures.get("mask")
    expect(page.locator(".sd-say")).to_have_text(figure(m=8).describe("en"))
    expect(page.locator(".sd-warn")).to_have_text(
        content.strings("en")["ui.clamped"].format(name="mask.m", value=8)
    )


def test_library_files_may_stand_beside(open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for name, body in library_files().items():
        (tmp_path / "lib" / name).write_bytes(body)
    html = standalone("speedup", assets="lib")
    assert len(html.encode()) < LIMIT["mechanism"]
    (tmp_path / "speedup.html").write_text(html, encoding="utf-8")
    page = open_page((tmp_path / "speedup.html").as_uri(), lang=None, offline=True)
    page.locator("[class^='bk-']").first.wait_for()
    assert [url.rpartition("/")[2] for url in asked(open_page, page)] == [library_name()]
