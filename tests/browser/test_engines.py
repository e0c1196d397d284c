"""The article in Firefox and WebKit, as Debian packages them: it opens, moves, races and fits a phone.

`make test` has each of them draw every figure and move two; the rest is for `make test-thorough`.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import content
import figures
from figures.race.figure import Race
from figures.tiles import model as tiles
from tests.browser import race_page
from tests.browser.engines import PATIENCE, Engine, console_of, engine
from tests.browser.harness import Server
from tests.prepare import how_to_get, lacking

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

fake_server = race_page.fake_server  # its races need no weights


def skip_without(name: str) -> None:
    if packages := lacking(name):
        pytest.skip(how_to_get(name, packages))


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def tab(request: pytest.FixtureRequest) -> Iterator[Engine]:
    skip_without(request.param)
    with engine(request.param) as running:
        yield running


@pytest.fixture
def opened(tab: Engine, server: Server) -> Callable[..., Engine]:
    """Opens the article, and waits until its figures may be moved."""

    def open_(
        lang: str, *, width: int = 1200, height: int = 900, more: str = "", url: str = server.url
    ) -> Engine:
        tab.resize(width, height)
        tab.open(f"{url}/app?lang={lang}&theme=light{more}")
        tab.wait("() => document.documentElement.dataset.ready === 'true'")
        return tab

    return open_


#: A chart is Bokeh's canvas, in a shadow tree of its own.
THERE = """(id, charted) => {
    document.querySelector(`#figure-${id}`).scrollIntoView({ behavior: 'instant' });
    const figure = document.querySelector(`#sd-${id}`);
    const deep = (root) => [...root.querySelectorAll('*')].some((e) => e.matches('canvas') || (e.shadowRoot && deep(e.shadowRoot)));
    return Boolean(figure?.querySelector('.sd-say').textContent) && (!charted || deep(figure));
}"""


def visit(tab: Engine, figure_id: str) -> None:
    """Go to a figure and wait for what comes with it.

    Figures above it may still grow, so a reader would scroll again.
    """
    tab.wait(THERE, figure_id, (figures.get(figure_id).folder() / "chart.py").exists())


def says(tab: Engine, figure_id: str, expected: Callable[[], str], before: str = "") -> None:
    """The sentence under a figure, no longer ``before``, becomes what Python says."""
    until = time.monotonic() + PATIENCE
    while (text := said(tab, figure_id)) == before or text != expected():
        assert time.monotonic() < until, f"{text!r} is not {expected()!r}"
        time.sleep(0.1)


def said(tab: Engine, figure_id: str) -> str:
    text: str = tab.run(
        "(id) => document.querySelector(`#sd-${id} .sd-say`).textContent", figure_id
    )
    return text


def state(tab: Engine, figure_id: str) -> dict[str, Any]:
    """The parameters of a figure that the page has put into its address."""
    kept = dict(parse_qsl(urlsplit(tab.run("() => location.href")).query))
    defaults = figures.get(figure_id)()
    return {
        name: type(getattr(defaults, name))(value)
        for key, value in kept.items()
        for owner, _, name in [key.partition(".")]
        if owner == figure_id
    }


def step(tab: Engine, lang: str, figure_id: str, control: str) -> None:
    """One press of a key on a slider: the figure says what Python says of the new state."""
    visit(tab, figure_id)
    before = said(tab, figure_id)
    tab.press("ArrowRight", f"#sd-{figure_id} [data-control={control}] input")
    says(
        tab,
        figure_id,
        lambda: figures.get(figure_id)(**state(tab, figure_id)).describe(lang),
        before,
    )


def test_every_figure_stands_and_two_move(opened: Callable[..., Engine]) -> None:
    tab = opened("zh")
    assert tab.run("() => document.title") == content.article("zh").title
    for figure_id in figures.IDS:
        visit(tab, figure_id)
    step(tab, "zh", "roofline", "k")  # a chart
    step(tab, "zh", "mask", "m")  # a diagram
    assert tab.run("() => document.querySelectorAll('.sd-error').length") == 0
    assert tab.problems() == []


def test_keys_move_the_figures(opened: Callable[..., Engine]) -> None:
    tab = opened("en")
    for figure_id, control in {"roofline": "k", "branch": "n", "mask": "m", "speedup": "m"}.items():
        step(tab, "en", figure_id, control)
    visit(tab, "tiles")
    tab.press("ArrowRight", "#sd-tiles .sd-transport input")
    first = min(tiles.find(tiles.shipped(), "decode")["columns"]["done"]) / 1e9
    says(tab, "tiles", lambda: figures.get("tiles")().describe("en", t=first))
    visit(tab, "accept")
    tab.press("ArrowRight", "#sd-accept .sd-transport input")
    says(tab, "accept", lambda: figures.get("accept")().describe("en", t=1))
    visit(tab, "lossless")
    assert tab.problems() == []


def test_language_and_theme_change_in_place(opened: Callable[..., Engine]) -> None:
    tab = opened("en", more="&roofline.k=700")
    visit(tab, "roofline")
    tab.run("() => { window.marker = 'same page'; }")
    tab.tap("[data-switch=zh]")
    tab.wait("(title) => document.title === title", content.article("zh").title)
    figure = figures.get("roofline")(k=700)
    says(tab, "roofline", lambda: figure.describe("zh"))
    colour = "() => getComputedStyle(document.body).backgroundColor"
    light = tab.run(colour)
    tab.run(
        "() => { const s = document.querySelector('#theme'); s.value = 'dark'; s.dispatchEvent(new Event('change', { bubbles: true })); }"
    )
    assert tab.run(colour) != light
    assert tab.run("() => window.marker") == "same page"
    assert tab.problems() == []


def test_a_live_race(opened: Callable[..., Engine], fake_server: Server) -> None:
    tab = opened("en", url=fake_server.url)
    visit(tab, "race")
    tab.tap("#sd-race [data-control=mode] label:has(input[value=live])")
    tab.run(
        """() => { const box = document.querySelector('#sd-race textarea');
        box.value = 'what was the small model'; box.dispatchEvent(new Event('input')); box.dispatchEvent(new Event('change')); }"""
    )
    tab.tap("#sd-race .rc-go button")
    words = Race.words("en")
    tab.wait(
        "(text) => document.querySelector('#sd-race .sd-say').textContent.includes(text)",
        words["say.identical"],
    )
    written = """(lane) => [...document.querySelector(`#sd-race .rc-lane[data-lane=${lane}] .rc-text`).children]
        .filter(x => x.dataset.state === 'on' && !['drafted', 'rejected'].includes(x.dataset.origin)).map(x => x.textContent).join('')"""
    assert tab.run(written, "plain") == tab.run(written, "speculative") != ""
    assert "live" in tab.run("() => document.querySelector('#sd-race .sd-badge').textContent")
    assert tab.problems() == []


def test_a_finger_on_a_phone(opened: Callable[..., Engine]) -> None:
    tab = opened("zh", width=390, height=800)
    # MiniBrowser's tool bar needs a little more.
    assert tab.run("() => innerWidth") <= (390 if tab.name == "firefox" else 480)
    tab.run(
        "() => { window.kinds = []; addEventListener('pointerdown', (e) => window.kinds.push(e.pointerType), true); }"
    )
    for figure_id in figures.IDS:
        visit(tab, figure_id)
        assert tab.run("() => document.documentElement.scrollWidth - innerWidth") <= 0, figure_id
    visit(tab, "mask")
    tab.tap("#sd-mask .sd-bet-options button", "touch")
    tab.wait(
        "() => document.querySelector('#sd-mask .sd-bet-options button').getAttribute('aria-pressed') === 'true'"
    )
    kinds = tab.run("() => window.kinds")
    # WebKitGTK's driver makes a mouse of every pointer where the screen knows no touch.
    assert kinds == ["touch" if tab.name == "firefox" else "mouse"]
    assert tab.problems() == []


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_webkits_console_is_silent(server: Server, lang: str) -> None:
    skip_without("webkit")

    def charts() -> float:
        with urllib.request.urlopen(f"{server.url}/app/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.search(r'^sd_http_requests_total{route="Chart",status="200"} (\S+)$', text, re.M)
        return float(found[1]) if found else 0

    # The last figure is asked for, and it asks for its chart: all others stand by then.
    before = charts()
    address = f"{server.url}/app?lang={lang}#figure-{figures.IDS[-1]}"
    assert console_of(address, lambda: charts() > before, then=5) == []


def test_webkits_console_is_heard() -> None:
    skip_without("webkit")
    asked = threading.Event()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(
                b"<script>console.error('heard'); fetch('/done'); undefined.x</script>"
            )
            if self.path == "/done":
                asked.set()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        said = console_of(f"http://127.0.0.1:{serving.server_address[1]}/", asked.is_set, then=2)
        serving.shutdown()
    assert any(line.endswith("CONSOLE ERROR heard") for line in said), said
    assert any("TypeError" in line for line in said)
