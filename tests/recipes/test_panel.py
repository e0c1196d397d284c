"""A figure in somebody's Panel app: shown, set from Python, set by its reader."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import figures
from tests.browser.harness import ROOT, free_port
from tests.recipes.conftest import Recipe, stands_right, started

pytestmark = pytest.mark.browser


@pytest.fixture
def app(tmp_path: Path) -> Iterator[str]:
    """The recipe's app on a server of its own; its address."""
    Recipe("Panel").cook(tmp_path)
    port = free_port()
    words = [sys.executable, "-m", "panel", "serve", "app.py", "--port", str(port)]
    url = f"http://localhost:{port}/app"
    with started(words, tmp_path, url, PYTHONPATH=str(ROOT)):
        yield url


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
