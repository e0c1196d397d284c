"""Draw the images that stand beside a link to the article: ``python scripts/social_cards.py``.

One a language, 1200 × 630 (what Open Graph readers show), written to ``app/static/cards/``. The
picture is a recorded race of figure 5, stopped while the plain lane is still on its way; its words
come from ``content/``. Needs the browser of the tests and a Chinese font (``make test`` brings
both); the article itself only reads the images.
"""

from __future__ import annotations

import io
import sys
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import content
from figures.race.figure import Race
from kernels import trace
from tests.browser.harness import CHROMIUM_FLAGS
from tests.prepare import NO_BROWSER, find_chromium

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "app" / "static" / "cards"
TOKENS = ROOT / "figures" / "web" / "tokens.css"
WIDTH, HEIGHT = 1200, 630
LARGEST = 60_000  # bytes: some readers of links give up on larger ones
RECORDING = "list"
STOPPED = 0.6  # of the speculative lane's time

STYLE = """
* { box-sizing: border-box; margin: 0; }
body { width: 1200px; height: 630px; padding: 52px 64px 0; background: var(--sd-paper);
  color: var(--sd-ink); font-family: var(--sd-font-ui); overflow: hidden;
  border-top: 14px solid var(--sd-target); }
h1 { font-size: 66px; line-height: 1.15; letter-spacing: -0.01em; }
h2 { font-size: 31px; line-height: 1.4; font-weight: 400; color: var(--sd-ink-2);
  margin: 10px 0 30px; }
.lane { margin-top: 22px; }
.lane b { font-size: 24px; color: var(--sd-ink-2); }
.text { margin-top: 8px; font: 24px/38px var(--sd-font-mono); white-space: pre-wrap; height: 76px;
  overflow: hidden; }
.text span { padding: 4px 1px; border-radius: 5px; }
.target { background: var(--sd-target-soft); box-shadow: inset 0 -3px var(--sd-target); }
.accepted { background: var(--sd-accepted-soft); box-shadow: inset 0 -3px var(--sd-accepted); }
.supplied { background: var(--sd-supplied-soft); box-shadow: inset 0 -3px var(--sd-supplied); }
.bonus { background: var(--sd-draft-soft); box-shadow: inset 0 0 0 2px var(--sd-bonus); }
footer { position: absolute; left: 64px; bottom: 26px; font-size: 21px; color: var(--sd-ink-3); }
"""


def lanes(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """What each lane has written when the race is stopped: (text, origin) of its tokens."""
    passes = [event for event in events if event["type"] == "pass"]
    stop = STOPPED * max(p["end"] for p in passes if p["lane"] == "speculative")
    written: dict[str, list[tuple[str, str]]] = {lane: [] for lane in trace.LANES}
    for each in passes:
        if each["end"] <= stop:
            written[each["lane"]] += [
                (token["text"], token["origin"])
                for token in each["tokens"]
                if token["origin"] in trace.EMITTED
            ]
    return written


def shown(text: str) -> str:
    """One token's text on one line."""
    return text.replace("\n", "↵")


def html(lang: str) -> str:
    """The card of one language as a page."""
    article = content.article(lang)
    words = content.strings(lang)
    record = trace.loads(Race.records()[RECORDING].read_text(encoding="utf-8"))
    written = lanes(record.events)
    rows = "".join(
        f'<div class="lane"><b>{escape(words[f"figure.race.lane.{lane}"])}</b><div class="text">'
        + "".join(f'<span class="{origin}">{escape(shown(text))}</span>' for text, origin in tokens)
        + "</div></div>"
        for lane, tokens in written.items()
    )
    header = record.header
    machine = header["device"]["name"]
    source = f"{words['ui.badge_recorded']} · {machine}, {header['created'][:10]}"
    return (
        f'<!DOCTYPE html><html lang="{lang}"><meta charset="utf-8"><style>'
        f"{TOKENS.read_text(encoding='utf-8')}{STYLE}</style><h1>{escape(article.title)}</h1>"
        f"<h2>{escape(article.subtitle)}</h2>{rows}<footer>{escape(source)}</footer></html>"
    )


def draw(page: Page, lang: str) -> bytes:
    """Draw one card; 128 colours are enough for it and make it a third of the size."""
    page.set_content(html(lang))
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    packed = io.BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def main() -> int:
    """Draw and write all cards; returns 1 if there is no browser or a card is too large."""
    chromium = find_chromium()
    if chromium is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for lang in content.LANGUAGES:
            card = draw(page, lang)
            if len(card) > LARGEST:
                print(f"{lang}: {len(card)} bytes, more than {LARGEST}", file=sys.stderr)
                return 1
            (FOLDER / f"{lang}.png").write_bytes(card)
            print(f"{lang}.png: {len(card)} bytes")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
