"""A notebook that is executed and turned into HTML keeps its figures, without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Page

import figures
from tests.recipes.conftest import PATIENCE, ROOT, stands_right

pytestmark = pytest.mark.browser

CELLS = (
    "from figures import mask, roofline\nfigure = roofline(k=5, lang='en')\nfigure",
    "figure.k = 8\nshown = mask(m=3, lang='zh')\nshown",
    # What a page would send when somebody drags.
    "figure._link.set_state({'sd_k': 9})\nprint(figure.k, figure._link.sd_k)",
    "try:\n    figure.k = 0\nexcept ValueError as reason:\n    print(reason)",
)


@pytest.fixture(scope="module")
def executed() -> Any:
    """The notebook after all its cells ran in a kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    client = NotebookClient(
        notebook,
        timeout=PATIENCE,
        startup_timeout=PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
    )
    return client.execute()


@pytest.fixture
def exported(executed: Any, tmp_path: Path) -> Path:
    """The notebook as HTML."""
    # nbconvert's own template asks a CDN for MathJax and RequireJS, whatever the notebook holds.
    exporter = HTMLExporter(template_name="basic")
    path = tmp_path / "notebook.html"
    body, _ = exporter.from_notebook_node(executed)
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><title>n</title>{body}", "utf-8")
    return path


def test_a_cell_s_output_is_the_figure_alone(executed: Any) -> None:
    outputs = [cell.outputs for cell in executed.cells]
    for (output,) in outputs[:2]:
        assert sorted(output.data) == ["text/html", "text/plain"]
    assert outputs[0][0].data["text/plain"] == "roofline(k=5, lang='en')"
    assert outputs[2][0].text == "9 9\n"
    assert "Roofline.k' must be at least 1, not 0" in outputs[3][0].text


def test_the_html_works_alone(exported: Path, visit: Callable[..., Page]) -> None:
    page = visit(exported.as_uri())
    chart, diagram = (
        f'iframe[title="{figures.get(i).words(lang)["title"]}"]'
        for i, lang in (("roofline", "en"), ("mask", "zh"))
    )
    stands_right(page, chart)
    inside = page.frame_locator(chart)
    inside.locator("canvas").first.wait_for()
    assert inside.locator(".sd-say").inner_text() == figures.get("roofline")(k=5).describe("en")
    # No link to a page that has no address.
    assert inside.get_by_role("button", name="Copy link").count() == 0
    stands_right(page, diagram)
    inside = page.frame_locator(diagram)
    assert inside.locator(".sd-say").inner_text() == figures.get("mask")(m=3).describe("zh")
    slider = inside.locator("input[type=range]").first
    slider.focus()
    slider.press("ArrowRight")
    expected = figures.get("mask")(m=4).describe("zh")
    inside.locator(".sd-say", has_text=expected).wait_for()
