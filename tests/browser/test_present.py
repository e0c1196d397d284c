"""A class in real browsers: a teacher's projector, students' phones, one server without weights."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Frame, Locator, Page, expect

import content
import figures
from tests.browser.axe import report, violations
from tests.browser.conftest import OpenPage, leave
from tests.browser.harness import Server, Watch, server_without_weights

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("present")]
KEY = "for this test alone"
LINES = """
    window.lines = [];
    const Plain = window.WebSocket;
    window.WebSocket = class extends Plain { constructor(...a) { super(...a); window.lines.push(this); } };
"""


class_server = server_without_weights(SD_TEACHER_KEY=KEY, FAKE_PASS_MS="8")


@pytest.fixture
def server(class_server: Server) -> Server:
    """`open_page` opens this one."""
    return class_server


@pytest.fixture(autouse=True, scope="module")
def patience() -> Iterator[None]:
    """Three browsers and a server share the cores of a busy machine."""
    expect.set_options(timeout=45_000)
    yield
    expect.set_options(timeout=15_000)


class Sit(Protocol):
    """Opens a page in a context of its own and waits until it is ready."""

    def __call__(
        self, address: str, *, width: int = 390, height: int = 780, **more: Any
    ) -> Page: ...


@pytest.fixture
def sit(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Sit]:
    watches: list[Watch] = []

    def open_(address: str, *, width: int = 390, height: int = 780, **more: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **more)
        context.set_default_timeout(60_000)
        context.add_init_script(LINES)
        page = context.new_page()
        watches.append(Watch(page))
        page.goto(server.url + address)
        if "mode=present" in address:
            page.frame_locator("#sd-magnified").locator("html[data-ready]").wait_for(
                state="attached"
            )
        else:
            page.locator("html[data-ready]").wait_for(state="attached")
        return page

    yield open_
    leave(watches, request)


Teach = Callable[..., tuple[Page, Frame]]


@pytest.fixture
def teach(sit: Sit) -> Teach:
    """Opens the teacher's page on a projector: the page, and the frame with the slides."""

    def open_(lang: str = "en", key: str = KEY, **more: Any) -> tuple[Page, Frame]:
        page = sit(f"/app?mode=present&lang={lang}#teacher={key}", width=1920, height=1080, **more)
        frame = page.frames[1]
        frame.locator(".pr-bar").wait_for()
        if key == KEY:
            # Every test begins with a class of its own.
            expect(frame.locator(".pr-people")).not_to_be_empty()
            page.on("dialog", lambda dialog: dialog.accept())
            frame.locator(".pr-bar button").last.click()
            frame.locator(".pr-more .pr-row button").nth(2).click()
            page.keyboard.press("Escape")
            go(frame, 0)
        return page, frame

    return open_


def go(frame: Frame, index: int) -> None:
    frame.locator(".pr-menu").select_option(index=index)


def show(frame: Frame, stop: str) -> None:
    """Go to a figure's slide."""
    number = figures.IDS.index(stop) + 1
    titles = frame.locator(".pr-menu option").all_inner_texts()
    go(
        frame,
        next(i for i, title in enumerate(titles) if re.search(rf"(Figure|图) {number} · ", title)),
    )


def until(condition: Callable[[], bool], what: str, seconds: float = 45) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def at_top(page: Page, stop: str) -> None:
    """The page comes to show this place."""
    until(
        lambda: -40 < page.locator(f"#{stop}").evaluate("e => e.getBoundingClientRect().top") < 200,
        f"the page did not go to {stop}",
    )


def words(lang: str = "en") -> dict[str, str]:
    return {k.removeprefix("class."): v for k, v in content.strings(lang).items()}


def bar(page: Page) -> Locator:
    return page.locator(".class-bar")


def test_the_key_leaves_the_address_and_survives_a_reload(teach: Teach) -> None:
    page, frame = teach()
    assert "mode=present" in page.url
    assert KEY.split()[0] not in page.url + frame.url and "#" not in page.url + frame.url
    page.reload()
    page.frame_locator("#sd-magnified").locator(".pr-people").wait_for()
    again = page.frames[1]
    expect(again.locator(".pr-people")).to_have_text(words()["teacher.people_none"])
    # Leaving takes the key along.
    again.locator(".pr-bar button").last.click()
    again.locator(".pr-more .pr-row button").last.click()
    page.wait_for_url(lambda url: "mode" not in url)
    assert page.evaluate("sessionStorage.getItem('sd:teacher')") is None


def test_students_follow_leave_and_come_back(sit: Sit, teach: Teach) -> None:
    teacher, frame = teach()
    phone = sit("/app?class&lang=zh", has_touch=True, is_mobile=True)
    desk = sit("/app?class&lang=en", width=1440, height=900)
    for page, lang in ((phone, "zh"), (desk, "en")):
        expect(bar(page)).to_contain_text(words(lang)["student.following"])
    show(frame, "roofline")
    at_top(phone, "figure-roofline")
    at_top(desk, "figure-roofline")

    frame.locator('#sd-roofline [data-control="k"] input').first.focus()
    for _ in range(6):
        teacher.keyboard.press("ArrowRight")
    k = 7  # each press is one token more
    expect(frame.locator("#sd-roofline .sd-say")).to_have_text(
        figures.get("roofline")(k=k).describe("en")
    )
    for page, lang in ((phone, "zh"), (desk, "en")):
        expect(page.locator("#sd-roofline .sd-say")).to_have_text(
            figures.get("roofline")(k=k).describe(lang)
        )

    # One who comes late sees what all see.
    late = sit("/app?class&lang=zh", has_touch=True, is_mobile=True)
    at_top(late, "figure-roofline")
    expect(late.locator("#sd-roofline .sd-say")).to_have_text(
        figures.get("roofline")(k=k).describe("zh")
    )

    # One who goes on alone stays where they are, and catches up when they come back.
    bar(phone).locator("button").tap()
    expect(bar(phone)).to_contain_text(words("zh")["student.own"])
    expect(frame.locator(".pr-people")).to_have_text(
        words()["teacher.people"].format(following=2, pages=3)
    )
    show(frame, "mask")
    frame.locator('#sd-mask [data-control="m"] input').first.focus()
    teacher.keyboard.press("ArrowRight")
    five = figures.get("mask")(m=5).describe("en")
    expect(desk.locator("#sd-mask .sd-say")).to_have_text(five)
    at_top(desk, "figure-mask")
    assert (
        -40 < phone.locator("#figure-roofline").evaluate("e => e.getBoundingClientRect().top") < 200
    )
    assert phone.locator("#sd-mask .sd-say").inner_text() != figures.get("mask")(m=5).describe("zh")
    bar(phone).locator("button").tap()
    at_top(phone, "figure-mask")
    expect(phone.locator("#sd-mask .sd-say")).to_have_text(figures.get("mask")(m=5).describe("zh"))

    # A broken line: the page says so, and is where the others are once it is back.
    desk.evaluate("() => { for (const line of lines) line.onmessage = null, line.close(); }")
    show(frame, "branch")
    at_top(desk, "figure-branch")
    expect(bar(desk)).to_contain_text(words()["student.following"])


def test_a_class_guesses_before_it_sees(sit: Sit, teach: Teach) -> None:
    _, frame = teach()
    ann = sit("/app?class&lang=en")
    bob = sit("/app?class&lang=zh", width=360)
    show(frame, "branch")
    box = "#sd-branch .sd-bet"
    options = f"{box}-options button"
    ann.locator(options).nth(0).click()
    ann.locator(options).nth(2).click()  # another thought
    bob.locator(options).nth(1).click()
    counts = frame.locator("#sd-branch .sd-bet-count")
    expect(counts).to_have_text(["· 0", "· 1", "· 1"])
    expect(frame.locator(".pr-bets")).to_contain_text(words()["teacher.guesses"].format(count=2))
    # Nobody sees the answer, nor what the others think.
    expect(ann.locator(f"{box}-why")).to_have_text(content.strings("en")["ui.bet_together"])
    assert ann.locator(f"{options}[data-verdict]").count() == 0
    assert ann.locator(".sd-bet-count:visible").count() == 0
    # A reload neither loses nor doubles a guess.
    ann.reload()
    ann.locator("html[data-ready]").wait_for(state="attached")
    expect(ann.locator(options).nth(2)).to_have_attribute("aria-pressed", "true")
    expect(counts).to_have_text(["· 0", "· 1", "· 1"])

    frame.locator(".pr-bets button").click()  # close the guesses
    for page in (ann, bob):
        expect(page.locator(options).first).to_be_disabled()
    expect(ann.locator("#sd-branch .sd-bet-count")).to_have_text(["· 0", "· 1", "· 1"])
    assert ann.locator(f"{options}[data-verdict]").count() == 0
    found = {"locked": violations(ann, box)}

    frame.locator(".pr-bets button").click()  # show the answer
    right = figures.get("branch").bet_answer
    for page, lang in ((ann, "en"), (bob, "zh"), (frame, "en")):
        expect(page.locator(f'{options}[data-verdict="right"]')).to_have_count(1)
        expect(page.locator(options).nth(right)).to_have_attribute("data-verdict", "right")
        expect(page.locator(f"{box}-why")).to_have_text(
            figures.get("branch").words(lang)["bet.why"]
        )
    expect(ann.locator(options).nth(2)).to_have_attribute("data-verdict", "wrong")
    found["revealed"] = violations(ann, box)

    frame.locator(".pr-bets button").click()  # once more
    expect(ann.locator(options).first).to_be_enabled()
    expect(ann.locator(options).nth(2)).to_have_attribute("aria-pressed", "false")
    expect(counts).to_have_text(["· 0", "· 0", "· 0"])
    report(found)


def test_a_shared_race_runs_on_every_page(sit: Sit, teach: Teach) -> None:
    _, frame = teach()
    student = sit("/app?class&lang=zh")
    show(frame, "race")
    race = frame.locator("#sd-race")
    race.locator('[data-control="mode"] input[value="live"]').check()
    prompt = "what was <img src=x onerror=alert(1)> the small model"
    race.locator("textarea").fill(prompt)
    race.locator(".rc-go button").first.click()
    text = '.rc-lane[data-lane="{}"] .rc-text .rc-token[data-state="on"]'
    expect(student.locator("#sd-race .rc-prompt q")).to_have_text(prompt)
    for page in (student, frame):
        expect(page.locator("#sd-race .sd-badge")).to_have_attribute("data-kind", "live")
        until(
            lambda page=page: page.locator(f"#sd-race {text.format('plain')}").count() >= 96,
            "the race did not come to its end",
        )
    said = race.locator('.rc-lane[data-lane="plain"] .rc-text').inner_text()
    expect(student.locator('#sd-race .rc-lane[data-lane="plain"] .rc-text')).to_have_text(
        re.compile(re.escape(said.strip()[:40]))
    )
    late = sit("/app?class&lang=en")
    expect(late.locator("#sd-race .rc-prompt q")).to_have_text(prompt)
    # The students needed no line to the engine for it.
    for page in (student, late):
        assert page.evaluate("lines.map(line => new URL(line.url).pathname)") == ["/app/room"]


def test_hands_on_keys_and_a_clicker(teach: Teach) -> None:
    page, frame = teach()
    menu = frame.locator(".pr-menu")
    show(frame, "tiles")
    here = int(menu.input_value())
    slider = frame.locator('#sd-tiles input[type="range"]').first
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert int(menu.input_value()) == here, "the arrow is the slider's"
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    page.keyboard.press("PageDown")
    until(lambda: int(menu.input_value()) > here, "a clicker turns the page all the same")
    assert frame.locator(".sd-slot:visible").count() == 0, "only what belongs to the slide is there"
    page.keyboard.press("Home")
    expect(menu).to_have_value("0")
    page.keyboard.press("End")
    expect(menu).to_have_value(str(frame.locator(".pr-menu option").count() - 1))
    page.keyboard.press("b")
    expect(frame.locator(".pr-blank")).to_be_visible()
    page.keyboard.press("Escape")
    expect(frame.locator(".pr-blank")).to_be_hidden()
    page.keyboard.press("j")
    wall = frame.locator(".pr-join")
    expect(wall).to_be_visible()
    expect(wall.locator(".pr-address")).to_have_text(re.compile(r":\d+/app\?class$"))
    assert wall.locator("path").get_attribute("d").startswith("M4 4h1v1h-1z"), "after a quiet zone"
    page.keyboard.press("PageUp")
    expect(wall).to_be_hidden()


def test_a_long_text_is_read_to_its_end_before_the_next_slide(teach: Teach) -> None:
    page, frame = teach()
    frame.locator(".pr-menu").wait_for()
    texts = frame.evaluate(
        "() => [...document.querySelectorAll('.masthead, .lede > *')].map(e => e.textContent)"
    )
    seen: set[str] = set()
    for _ in range(12):
        seen |= set(
            frame.evaluate(
                """() => [...document.querySelectorAll('.masthead, .lede > *')].filter(e => {
                    const r = e.getBoundingClientRect();
                    return r.height > 0 && r.bottom <= innerHeight - 40 && r.bottom > 0;
                }).map(e => e.textContent)"""
            )
        )
        page.keyboard.press("PageDown")
        if frame.locator(".pr-menu").input_value() != "0":
            break
        page.wait_for_timeout(100)
    assert set(texts) <= seen


def test_the_language_changes_on_the_slide(teach: Teach) -> None:
    _, frame = teach(lang="en")
    show(frame, "mask")
    here = frame.locator(".pr-menu").input_value()
    frame.locator(".pr-bar button").last.click()
    frame.locator('[data-switch="zh"]').click()
    expect(frame.locator("#sd-mask .sd-say")).to_have_text(figures.get("mask")().describe("zh"))
    expect(frame.locator(".pr-menu")).to_have_value(here)
    expect(frame.locator(".pr-bets button")).to_have_text(words("zh")["teacher.lock"])
    expect(frame.locator(".pr-menu option:checked")).to_contain_text(
        figures.get("mask").words("zh")["title"]
    )
    assert frame.locator(".sd-slot:visible").count() == 1


def test_without_the_key_there_are_slides_and_no_class(sit: Sit) -> None:
    page = sit("/app?mode=present&lang=en", width=1280, height=720)
    frame = page.frames[1]
    assert frame.locator(".pr-bets button").count() == 0
    page.keyboard.press("End")
    expect(frame.locator(".pr-menu")).not_to_have_value("0")
    assert frame.evaluate("lines.length") == 0
    wrong = sit("/app?mode=present&lang=zh#teacher=wrong", width=1280, height=720)
    expect(wrong.frames[1].locator(".pr-warn")).to_have_text(words("zh")["teacher.wrong_key"])


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_a_small_phone_has_room_for_it(sit: Sit, lang: str) -> None:
    page = sit(f"/app?class&lang={lang}", width=360, has_touch=True, is_mobile=True)
    expect(bar(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert bar(page).bounding_box()["height"] < 80  # type: ignore[index]
    assert page.locator("h1").is_visible(), "the article reads as ever"


def test_pages_outside_a_class_know_nothing_of_it(open_page: OpenPage) -> None:
    page = open_page(lang="en")
    page.locator("html[data-ready]").wait_for(state="attached")
    assert page.locator(".class-bar, .pr-bar").count() == 0
    assert not [url for url in open_page.watch(page).requests if "/class/" in url or "room" in url]
