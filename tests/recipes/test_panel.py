"""A figure in somebody's Panel app: shown, set from Python, set by its reader."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import figures
from tests.browser.harness import ROOT, free_port
from tests.recipes.conftest import PATIENCE, Recipe, stands_right

pytestmark = pytest.mark.browser


@pytest.fixture
def app(tmp_path: Path) -> Iterator[str]:
    """The recipe's app on a server of its own; its address."""
    Recipe("Panel").cook(tmp_path)
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "panel", "serve", "app.py", "--port", str(port)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    until = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://localhost:{port}/app", timeout=PATIENCE).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until, (
                    tmp_path / "log"
                ).read_text()
                time.sleep(0.2)
        yield f"http://localhost:{port}/app"
    finally:
        server.terminate()
        server.wait()


def test_object_and_figure_follow_each_other(app: str, visit: Callable[..., Page]) -> None:
    page = visit(app)
    frame = "iframe[data-sd]"
    stands_right(page, frame)
    inside = page.frame_locator(frame)
    kind = figures.get("mask")
    expect(inside.locator(".sd-say")).to_have_text(kind(m=3).describe("en"))
    page.get_by_role("button", name="Draft one more").click()
    expect(inside.locator(".sd-say")).to_have_text(kind(m=4).describe("en"), timeout=60_000)
    slider = inside.locator("input[type=range]").first
    slider.focus()
    slider.press("ArrowRight")
    expect(page.get_by_text("m is 5")).to_be_visible(timeout=60_000)
