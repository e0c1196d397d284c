"""What the tests of the race figure share: a server without weights, and hands to drive the figure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from figures.race import model
from figures.race.figure import Race, sentence
from tests.browser.harness import Server, server_without_weights

FIGURE = '.sd-figure[data-figure="race"]'
ALONE = "/app/figure/race"
EN = Race.words("en")


fake_server = server_without_weights(FAKE_PASS_MS="8", SD_MAX_LENGTH="300")


@pytest.fixture(autouse=True, scope="module")
def patience() -> Iterator[None]:
    """Two models, a server and a browser share the cores of a busy machine."""
    expect.set_options(timeout=20_000)
    yield
    expect.set_options(timeout=15_000)


@pytest.fixture
def server(fake_server: Server) -> Server:
    """A server whose races need no weights; `open_page` opens this one."""
    return fake_server


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
    finish = {"type": "finish", "lane": "plain", "reason": "length", "clock": 99999}
    events = good["events"]
    variant("pass after the finish", "events", value=[*events[:3], finish, *events[3:]])
    variant("two finishes", "events", value=[*events[:-1], finish, events[-1]])
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
