"""What the server measures at a reader's request, in figures `roofline` and `mask`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from figures.mask.figure import Mask
from figures.roofline.figure import Roofline
from figures.roofline.model import summary
from figures.text import duration
from kernels import mask
from kernels.hardware import Hardware, forward, shapes
from tests.app.fake_source import BANDWIDTH, FLOPS, fake_pair, fake_roofline
from tests.browser.conftest import OpenPage
from tests.browser.harness import Server, rows, server_without_weights, start

pytestmark = pytest.mark.browser
EN, ZH = Roofline.words("en"), Roofline.words("zh")
SENTENCE = "the small model guesses and one large model checks"
WAIT = 60_000


fake_server = server_without_weights(FAKE_MEASURE_STEPS="50")


@pytest.fixture
def server(fake_server: Server) -> Server:
    """`open_page` opens this one: its engine needs no weights and measures known limits."""
    return fake_server


def roofline(page: Page) -> Locator:
    return start(page, "roofline", ".roofline-chart canvas")


def points(page: Page) -> dict[str, list[float]]:
    """What the chart's dots stand on."""
    found: dict[str, list[float]] = page.evaluate(
        """() => { const d = Bokeh.documents.find(d => d.get_model_by_name('points'));
        const { k, median } = d.get_model_by_name('points').data;
        return { k: [...k], median: [...median] }; }"""
    )
    return found


def test_the_roofline_of_this_server(open_page: OpenPage) -> None:
    page = open_page("/app/figure/roofline")
    figure = roofline(page)
    chosen = figure.locator('[data-control="hardware"] select')
    option = chosen.locator('option[value="live"]')
    expect(option).to_have_text(EN["control.live_none"])
    assert option.is_disabled()
    expect(figure.locator(".sd-measure")).to_contain_text(EN["note.measure"])
    assert points(page)["k"] == [], "a data sheet has no dots"

    button = figure.get_by_role("button", name=EN["control.measure"])
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-disabled", "true")
    badge = figure.locator(".sd-badge").first
    expect(badge).to_have_text("live · Fake processor", timeout=WAIT)
    expect(chosen).to_have_value("live")
    expect(figure.locator('[data-control="model"] select')).to_have_value("smollm2-135m")
    expect(figure.locator("progress")).to_be_hidden()
    # The limits are the source's; the pass is the model's, on a device with just these limits.
    model = shapes()["smollm2-135m"]
    here = forward(Hardware("x", FLOPS, BANDWIDTH, 0.0), model, 1)
    expect(figure.locator(".sd-say")).to_contain_text(duration(here.time))
    assert "20 GB/s" in figure.locator(".sd-measure").inner_text()
    scale = 2 * model.parameters / 2e8
    drawn = points(page)
    assert drawn["k"] == [1, 2, 4, 8, 16, 32, 64, 256]
    assert drawn["median"] == pytest.approx(
        [scale * max(2e8 / BANDWIDTH, k * 2e8 / FLOPS) for k in drawn["k"]], rel=1e-9
    )
    expect(figure.get_by_role("button", name=EN["control.measure_again"])).to_be_visible()

    # Somebody else finds it measured, and a link to it works; so does the other language.
    other = open_page(lang="zh", query={"roofline.hardware": "live"}, width=390, touch=True)
    figure = roofline(other)
    badge = figure.locator(".sd-badge").first
    expect(badge).to_have_text("现场 · Fake processor")
    assert "20 GB/s" in figure.locator(".sd-measure").inner_text()
    assert other.evaluate("document.documentElement.scrollWidth") <= 390
    other.locator('[data-switch="en"]').tap()
    expect(badge).to_have_text("live · Fake processor")


def opened(page: Page, look: dict[str, Any], *states: dict[str, Any] | int) -> Locator:
    """The figure, with an answer of the server to who looks, and those to who asks.

    The last one stays. A number is a status, 0 stands for no answer.
    """
    left = [*states]

    def answer(route: Route) -> None:
        state: dict[str, Any] | int = look
        if route.request.method == "POST":
            state = left.pop(0) if len(left) > 1 else left[0]
        if state == 0:
            route.abort()
        elif isinstance(state, int):
            route.fulfill(status=state)
        else:
            route.fulfill(content_type="application/json", body=json.dumps(state))

    page.route("**/app/measure", answer)
    page.reload()
    return roofline(page)


NEVER = {"state": "none", "able": None}


def test_a_disturbed_run_is_no_fact(open_page: OpenPage) -> None:
    page = open_page("/app/figure/roofline")
    disturbed = {"state": "done", "measured": summary(fake_roofline(True)), "age": 0}
    figure = opened(page, NEVER, {"state": "waiting"}, {"state": "loading"}, disturbed)
    area = figure.locator(".sd-measure")
    expect(area).to_contain_text(EN["note.measure"])
    area.get_by_role("button", name=EN["control.measure"]).click()
    expect(area).to_contain_text("disturbed 20 of 24 moments", timeout=WAIT)
    assert figure.locator('option[value="live"]').is_disabled()
    assert figure.locator(".sd-badge").all_inner_texts() == ["ideal"]
    assert points(page)["k"] == []
    expect(area.get_by_role("button")).to_have_text(EN["control.measure_again"])


@pytest.mark.parametrize(
    ("answer", "code", "offered"),
    [
        ({"state": "refused", "error": {"code": "server_busy", "detail": {}}}, "server_busy", True),
        ({"state": "refused", "error": {"code": "weights_not_found", "detail": {}}}, "other", True),
        ({"state": "none", "able": False}, "cannot_measure", False),
        (404, "cannot_measure", False),
        (0, "lost", True),
    ],
    ids=["busy", "weights", "unable", "old", "lost"],
)
def test_what_stands_in_the_way_is_said(
    open_page: OpenPage, answer: Any, code: str, offered: bool
) -> None:
    page = open_page("/app/figure/roofline", lang="zh", allow=["404", "ERR_FAILED"])
    unable = isinstance(answer, dict) and answer["state"] == "none"
    figure = opened(page, answer if unable else NEVER, answer)
    area = figure.locator(".sd-measure")
    if not unable:
        area.get_by_role("button").click()
    text = ZH[f"ui.measure_{code}"].replace("{code}", "weights_not_found")
    expect(area.locator('[role="status"]')).to_have_text(text, timeout=WAIT)
    assert area.get_by_role("button").is_visible() == offered
    expect(figure.locator(".sd-say")).to_have_text(Roofline().describe("zh"))


def test_a_page_without_a_server_says_so(open_page: OpenPage) -> None:
    page = open_page("/app/figure/roofline")
    state = page.evaluate(
        """async () => { const { measuring } = await import('#sd/measure.js');
        const store = measuring({ get: () => null });
        await store.look(); await store.ask({ what: 'roofline' });
        return store.of({ what: 'roofline' }); }"""
    )
    assert state["error"]["code"] == "no_server"


@pytest.fixture
def expected() -> Callable[..., dict[str, Any]]:
    """What the source's model says of a sentence."""

    def record(sentence: str) -> dict[str, Any]:
        pair = fake_pair(0.0)
        parts: Any = (pair.target, None, pair.tokenizer)
        return mask.record(*parts, source="a table", sentence=sentence, most=30)

    return record


def test_one_pass_against_many_for_the_readers_sentence(
    open_page: OpenPage, expected: Callable[..., dict[str, Any]]
) -> None:
    page = open_page("/app/figure/mask")
    figure = start(page, "mask", ".mk-row")
    badge, proof = figure.locator(".sd-badge"), figure.locator(".mk-proof")
    field = figure.locator('[data-control="sentence"] input')
    words = Mask.words("en")
    field.fill(SENTENCE)
    expect(badge).to_have_text("ideal")
    expect(proof).to_contain_text("Rome")
    figure.get_by_role("button", name=words["control.run"]).click()
    expect(badge).to_contain_text("live · ", timeout=WAIT)
    record = expected(SENTENCE)
    for m in (4, 8, 1):
        figure.locator('[data-control="m"] input').fill(str(m))
        expect(proof.locator("tbody tr")).to_have_count(m + 1)
        choices = [row["text"].strip() for row in record["engines"][0]["together"][m - 1]["rows"]]
        assert [row[5] for row in rows(figure)[1:]] == choices
        assert [row[1] for row in rows(figure)[1:]] == [
            token["text"].strip() for token in record["tokens"][-m - 1 :]
        ]
        cells = proof.locator("tbody td").evaluate_all("cells => cells.map(c => c.textContent)")
        assert cells[0::3] == [f"‘{choice}’" for choice in choices]
        assert set(cells[2::3]) == {words["proof.zero"]}
    assert "transformers" not in proof.inner_text(), "no witness was asked"

    # Another sentence is the reader's own again; the same one is known at once.
    field.fill(SENTENCE + " again")
    expect(badge).to_have_text("ideal")
    field.fill(SENTENCE)
    expect(badge).to_contain_text("live · ")
    # The engine has its own bounds, and says them in words.
    field.fill("word " * 40)
    figure.get_by_role("button", name=words["control.run"]).click()
    area = figure.locator(".sd-measure [role=status]")
    expect(area).to_have_text(words["ui.measure_sentence_too_long"], timeout=WAIT)
    figure.get_by_role("button", name=words["control.sentence_back"]).click()
    expect(badge).to_contain_text("recorded · ")
    expect(proof).to_contain_text("transformers")
