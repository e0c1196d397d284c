"""Figure `lossless` in a browser: draws equal to Python, in a worker or not, and the proof."""

from __future__ import annotations

import itertools
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from figures.lossless import model
from figures.lossless.figure import Lossless, record
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser
PATH = "/app/figure/lossless"
PAIRS = [
    ([0.5, 0.3, 0.2], [0.7, 0.2, 0.1]),
    ([0.6, 0.4], [0.8, 0.2]),
    ([0.6, 0.4, 0, 0], [0, 0, 0.3, 0.7]),
    ([0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),
    ([0.4, 0.3, 0.2, 0.1], [0.6, 0.4, 0, 0]),
]


def start(page: Page) -> Locator:
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-lossless")
    expect(figure.locator(".sd-say")).not_to_contain_text("No draws")
    return figure


def test_arithmetic_is_that_of_python(open_page: OpenPage) -> None:
    page = open_page(PATH)
    start(page)
    counts = [[480, 350, 170], [3, 1, 0], [0, 0, 0], [96, 2, 2], [9, 0, 1], [100000, 61000, 39000]]
    got = page.evaluate(
        """async ([pairs, counts]) => { const m = await import('/app/figures/lossless/model.js');
        return {
          limits: pairs.map(([p, q]) => m.RULES.map(r => [m.limit(r, p, q), m.bias(r, p, q)])), puzzle: pairs.map(([p, q]) => m.puzzle(p, q)),
          fits: counts.map(c => { const f = m.fit(c, [.5, .3, .2]); return [f.distance, f.chi2, f.degrees, f.pvalue]; }),
          survival: [1,2,3,4,5,6,7,8].map(k => [.01, .5, 2, 9, 12.4, 12.6, 30, 90].map(x => m.survival(x, k))),
          band: [1, 10, 1000, 1e6].map(n => [2, 3, 6].map(k => m.band(n, k))), checkpoints: m.CHECKPOINTS }; }""",
        [PAIRS, counts],
    )
    for (p, q), rows, solved in zip(PAIRS, got["limits"], got["puzzle"], strict=True):
        for rule, (limit, bias) in zip(model.RULES, rows, strict=True):
            assert limit == pytest.approx(model.limit(rule, p, q), abs=1e-12)
            assert bias == pytest.approx(model.bias(rule, p, q), abs=1e-12)
        assert solved == model.puzzle(p, q)
    for c, row in zip(counts, got["fits"], strict=True):
        f = model.fit(c, [0.5, 0.3, 0.2])
        assert row[:3] == pytest.approx([f.distance, f.chi2, f.degrees], rel=1e-9)
        assert row[3] == (None if f.pvalue is None else pytest.approx(f.pvalue, rel=1e-9))
    for k, row in enumerate(got["survival"], start=1):
        for x, value in zip((0.01, 0.5, 2, 9, 12.4, 12.6, 30, 90), row, strict=True):
            assert value == pytest.approx(model.survival(x, k), rel=1e-9)
    for n, row in zip((1, 10, 1000, 10**6), got["band"], strict=True):
        assert row == pytest.approx([model.band(n, k) for k in (2, 3, 6)], rel=1e-9)
    assert got["checkpoints"] == list(model.CHECKPOINTS)


def test_draws_are_pythons_in_a_worker_and_without_one(open_page: OpenPage) -> None:
    page = open_page(PATH)
    start(page)
    script = """async ([[p, q], seed, steps, kind]) => {
        const { storeOf } = await import('/app/figures/lossless/store.js');
        const real = window.Worker;
        if (kind === 'forbidden') window.Worker = class { constructor() { throw new DOMException('no', 'SecurityError'); } };
        if (kind === 'later') window.Worker = class { postMessage() { setTimeout(() => this.onerror?.({ preventDefault() {} }), 0); } terminate() {} };
        const store = storeOf({});
        for (const n of steps) { store.aim(p, q, seed, n); while (store.n !== n) await new Promise(done => setTimeout(done, 5)); }
        window.Worker = real;
        return [store.where, store.counts, store.path.length, store.path.at(-1)]; }"""
    for (pair, seed), kind in itertools.product(
        [(PAIRS[0], 1), (PAIRS[2], 77), (PAIRS[4], 9999)], ["worker", "forbidden", "later"]
    ):
        got = page.evaluate(script, [pair, seed, [100, 6000, 5500, 30_000], kind])
        sampler = model.Sampler(*pair, seed)
        expected = []
        for n in model.CHECKPOINTS:
            if n <= 30_000:
                sampler.run(n)
                expected.append([n, {rule: list(c) for rule, c in sampler.counts.items()}])
        sampler.run(30_000)
        assert got[0] == ("worker" if kind == "worker" else "page")
        assert got[1] == sampler.counts
        assert got[2:] == [len(expected), expected[-1]]


def test_a_million_draws_a_language_and_a_stop(open_page: OpenPage) -> None:
    page = open_page("/app", query={"lossless.rule": "again"})
    figure = page.locator("#sd-lossless")
    page.locator("html[data-ready]").wait_for(state="attached")
    figure.scroll_into_view_if_needed()
    say = figure.locator(".sd-say")
    expect(say).to_have_text(Lossless(rule="again").describe("en"))
    figure.get_by_role("button", name="+ 1,000", exact=True).click()
    expect(say).to_have_text(Lossless(rule="again", n=2000).describe("en"))
    figure.get_by_role("radio", name="accept all").click()
    expect(say).to_have_text(Lossless(rule="always", n=2000).describe("en"))
    figure.get_by_role("button", name="to 1,000,000").click()
    expect(say).to_contain_text("after 1,000,000 draws", timeout=60_000)
    expect(say).to_contain_text("0.2 remains")
    # The experiment outlives the view.
    page.get_by_role("link", name="中文").click()
    expect(say).to_contain_text("1,000,000")
    figure.get_by_role("radio", name="正确的规则").click()
    expect(say).to_contain_text("在带内")
    assert "lossless.n=1000000" in page.url
    # Stopped on the way, it stays where it is; going on from there gives the same draws.
    page.evaluate(
        """async () => { const root = document.querySelector('#sd-lossless'), field = root.querySelector('[data-control=seed] input');
        field.value = 5;
        field.dispatchEvent(new Event('change'));
        const stop = [...root.querySelectorAll('button')].find(b => b.textContent === '停下');
        const say = () => root.querySelector('.sd-say').textContent;
        while (stop.hidden || !/抽了 [1-9]/.test(say()) || say().includes('1,000,000')) await new Promise(requestAnimationFrame);
        stop.click(); }"""
    )
    page.wait_for_timeout(600)
    stopped = say.inner_text()
    page.wait_for_timeout(300)
    assert say.inner_text() == stopped and "1,000,000" not in stopped
    figure.get_by_role("button", name="+ 100", exact=True).click()
    expect(say).not_to_have_text(stopped)
    expect(figure.get_by_role("button", name="停下")).to_be_hidden()
    n = int(re.search(r"抽了 ([\d,]+) 次", say.inner_text())[1].replace(",", ""))
    expect(say).to_have_text(Lossless(seed=5, n=n).describe("zh"))
    figure.get_by_role("button", name="从头开始").click()
    expect(say).to_have_text(Lossless(n=0, seed=5).describe("zh"))


def test_proof_presets_own_numbers_and_runs(open_page: OpenPage) -> None:
    page = open_page(PATH, query={"lossless.n": "-3", "lossless.line": "99"}, width=390, touch=True)
    page.locator("html[data-ready]").wait_for(state="attached")
    figure = page.locator("#sd-lossless")
    expect(figure.locator(".sd-warn")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(figure.locator(".lo-proof li")).to_have_count(5)
    expect(figure.locator(".lo-proof li").last).to_contain_text("0.5 + 0 = 0.5")
    figure.get_by_role("button", name="a", exact=True).tap()
    expect(figure.locator(".lo-proof li").last).to_contain_text("0.2 + 0.1 = 0.3")
    figure.get_by_role("button", name="Back", exact=True).tap()
    expect(figure.locator(".lo-proof li")).to_have_count(4)
    figure.get_by_role("button", name="a bug report’s").tap()
    expect(figure.locator(".lo-proof li").first).to_contain_text("“y”")
    figure.get_by_role("button", name="+ 100", exact=True).tap()
    report = Lossless(tokens="x|y", p="60,40", q="80,20", n=100)
    expect(figure.locator(".sd-say")).to_have_text(report.describe("en"))
    figure.get_by_role("button", name="Puzzle").tap()
    figure.get_by_label("Tokens, with | between").fill("a|b|c")
    figure.get_by_label("Weights of p").fill("50,50,0")
    expect(figure.locator(".sd-solved")).to_be_empty()
    figure.get_by_label("Weights of q").fill("1,1,2")
    expect(figure.locator(".sd-solved")).not_to_be_empty()
    own = Lossless(tokens="a|b|c", p="50,50,0", q="1,1,2", n=100)
    expect(figure.locator(".sd-say")).to_have_text(own.describe("en"))
    rows = record()["experiments"][0]["pair"]
    figure.get_by_role("radio", name="next two tokens").tap()
    expect(figure.get_by_label("Bars of how often").locator("g")).to_have_count(len(rows))
