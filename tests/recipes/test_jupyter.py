"""JupyterLab, Notebook and nbclassic themselves: shown, set from Python, set by the reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, TimeoutError, expect

import figures
from tests.browser.harness import free_port
from tests.recipes.conftest import stands_right, started

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = (
    "from figures import mask\nfigure = mask(m=2)\nfigure",
    "figure.m = 5",
    "print('m is', figure.m)",
)
#: How each shows a cell's text and an output of text.
PLACES = {
    "lab/tree": (".jp-CodeCell .cm-content", ".jp-OutputArea-output pre"),
    "notebooks": (".jp-CodeCell .cm-content", ".jp-OutputArea-output pre"),
    "nbclassic/notebooks": (".code_cell .CodeMirror", ".output_area pre"),
}
#: The program around the figure has complaints of its own.
COMPLAINTS = (
    "^console",
    "^status",
    "^failed: http://localhost",
    "reading 'schema'",
    "'filebrowser:open-path' not registered",
)


@pytest.fixture(scope="module")
def jupyter(
    tools: Path, kernel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """A Jupyter server on this machine: its address, and its folder."""
    folder = tmp_path_factory.mktemp("notebooks")
    port = free_port()
    words = [
        str(tools / "jupyter-lab"),
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={folder}",
    ]
    url, home = f"http://localhost:{port}", tmp_path_factory.mktemp("home")
    with started(words, home, f"{url}/api", JUPYTER_PATH=str(kernel), HOME=str(home)):
        yield url, folder


@pytest.mark.parametrize("place", PLACES)
def test_object_and_figure_follow_each_other(
    place: str, jupyter: tuple[str, Path], visit: Callable[..., Page]
) -> None:
    url, folder = jupyter
    name = f"{place.replace('/', '-')}.ipynb"
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in CELLS],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / name)
    page = visit(f"{url}/{place}/{name}", allow=COMPLAINTS)
    cell, text = PLACES[place]
    cells = page.locator(cell)
    kind = figures.get("mask")
    frame = "iframe[data-sd]"

    def perform(number: int) -> None:
        cells.nth(number).click()
        page.keyboard.press("Shift+Enter")

    cells.nth(2).wait_for(timeout=120_000)
    for _ in range(12):  # a cell that is run before the kernel is there is not run
        perform(0)
        try:
            page.locator(frame).wait_for(timeout=10_000)
            break
        except TimeoutError:
            continue
    inside = page.frame_locator(frame)
    inside.locator("html[data-joined]").wait_for(timeout=120_000)
    stands_right(page, frame)
    expect(inside.locator(".sd-say")).to_have_text(kind(m=2).describe("en"))
    perform(1)
    expect(inside.locator(".sd-say")).to_have_text(kind(m=5).describe("en"), timeout=60_000)

    knob = inside.locator("input[type=range]").first
    knob.scroll_into_view_if_needed()
    box = knob.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2, steps=12)
    page.mouse.up()
    expect(inside.locator(".sd-say")).to_have_text(kind(m=8).describe("en"))
    for _ in range(30):
        perform(2)
        page.wait_for_timeout(1000)
        if page.locator(text, has_text="m is 8").count():
            break
    expect(page.locator(text, has_text="m is 8")).to_be_visible()
    if os.environ.get("SD_SCREENSHOTS") == "1":
        page.screenshot(path=f"screenshots/{place.replace('/', '-')}.png")
