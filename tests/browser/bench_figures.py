"""How smooth the figures are while a reader drags: `make bench-figures`.

Each figure's page is opened at 1440 pixels; in every animation frame a slider moves one step, and
the times between frames are kept. A figure without a slider (`lossless`) does its longest work
instead, from a press of its main button on: a million draws. One JSON line a figure with the median
and the 95th percentile in milliseconds, and a last one with the worst of both. A display of 60 Hz gives 16.7.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import sync_playwright

import figures
from tests.browser.harness import CHROMIUM_FLAGS, Server
from tests.prepare import NO_BROWSER, find_chromium

FRAMES = 240

DRAG = """([id, frames]) => new Promise((done) => {
  const root = document.querySelector(`#sd-${id}`);
  const slider = [...root.querySelectorAll('[data-control] input[type=range], .sd-transport input[type=range]')].find(e => e.checkVisibility());
  let move = () => {};
  if (slider) {
    const low = Number(slider.min), high = Number(slider.max), step = Number(slider.step) || (high - low) / 100;
    const steps = Math.max(1, Math.round((high - low) / step));
    move = (i) => {
      const at = i % (2 * steps);
      slider.value = low + step * (at <= steps ? at : 2 * steps - at);
      slider.dispatchEvent(new Event('input', { bubbles: true }));
    };
  } else [...root.querySelectorAll('button.sd-primary')].find(e => e.checkVisibility()).click();
  const gaps = [];
  let last = 0, i = 0;
  const frame = (now) => {
    if (last) gaps.push(now - last);
    last = now;
    if (gaps.length >= frames) return done(gaps);
    move(i++);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


def main() -> int:
    """Measure every figure and print JSON lines."""
    path = find_chromium()
    if path is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    worst = {"worst_median_ms": 0.0, "worst_p95_ms": 0.0}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder) / "log.txt")
        try:
            browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
            for figure_id in figures.IDS:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(f"{server.url}/app/figure/{figure_id}?lang=en")
                page.locator("html[data-ready]").wait_for(state="attached")
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(1000)
                gaps = sorted(page.evaluate(DRAG, [figure_id, FRAMES]))
                row = {
                    "figure": figure_id,
                    "frames": len(gaps),
                    "median_ms": round(median(gaps), 2),
                    "p95_ms": round(gaps[int(0.95 * len(gaps))], 2),
                }
                worst["worst_median_ms"] = max(worst["worst_median_ms"], row["median_ms"])
                worst["worst_p95_ms"] = max(worst["worst_p95_ms"], row["p95_ms"])
                print(json.dumps(row), flush=True)
                page.close()
            browser.close()
        finally:
            server.stop()
    print(json.dumps(worst))
    return 0


if __name__ == "__main__":
    sys.exit(main())
