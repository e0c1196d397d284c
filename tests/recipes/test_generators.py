"""Pages of site generators with a figure, as docs/embedding.md says, built and opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import figures
from tests.recipes.conftest import Recipe, run, stands_right

pytestmark = pytest.mark.browser

HOME = "<!DOCTYPE html><meta charset=utf-8><title>{{ .Title }}</title><body>{{ .Content }}"
#: Pages of Jupyter Book ask other sites for what they need, and complain themselves.
OTHERS = (r"https://[\w.-]+/", "require", "THEBE_JS_URL", r"^console .*/_static/")


def works(page: Page, frame: str) -> None:
    """The figure is there in its state, stands right, and can be operated."""
    stands_right(page, frame)
    inside = page.frame_locator(frame)
    kind = figures.get("mask")
    expect(inside.locator(".sd-say")).to_have_text(kind(m=3).describe("en"))
    slider = inside.locator("input[type=range]").first
    slider.focus()
    slider.press("ArrowRight")
    expect(inside.locator(".sd-say")).to_have_text(kind(m=4).describe("en"))
    stands_right(page, frame)


@pytest.mark.parametrize(("heading", "built"), [("MkDocs", "site"), ("Sphinx", "out")])
def test_generators_in_python(
    heading: str,
    built: str,
    tmp_path: Path,
    serve: Callable[[Path], str],
    visit: Callable[..., Page],
) -> None:
    Recipe(heading).cook(tmp_path)
    works(visit(f"{serve(tmp_path / built)}/index.html"), "iframe.sd-embed")


def test_hugo(
    tmp_path: Path, tools: Path, serve: Callable[[Path], str], visit: Callable[..., Page]
) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "home.html").write_text(HOME)
    Recipe("Hugo").cook(tmp_path, bin=tools)
    works(visit(f"{serve(tmp_path / 'out')}/index.html"), "iframe.sd-embed")


def test_jupyter_book(
    tmp_path: Path,
    tools: Path,
    kernel: Path,
    serve: Callable[[Path], str],
    visit: Callable[..., Page],
) -> None:
    recipe = Recipe("Jupyter Book")
    recipe.blocks["sh"] = []
    recipe.cook(tmp_path)
    run([str(tools / "jupyter-book"), "build", "."], tmp_path, JUPYTER_PATH=str(kernel))
    page = visit(f"{serve(tmp_path / '_build' / 'html')}/index.html", allow=OTHERS)
    works(page, "iframe[data-sd]")


def test_quarto_s_lines_as_html(
    tmp_path: Path, serve: Callable[[Path], str], visit: Callable[..., Page]
) -> None:
    recipe = Recipe("Quarto")
    body = recipe.files["index.qmd"].partition("```{=html}\n")[2].partition("```")[0]
    recipe.blocks["sh"] = [
        line for line in recipe.blocks["sh"][0].splitlines() if "figures" in line
    ]
    recipe.cook(tmp_path)
    (tmp_path / "index.html").write_text(f"<!DOCTYPE html><title>q</title>{body}")
    works(visit(f"{serve(tmp_path)}/index.html"), "iframe.sd-embed")


def test_every_recipe_is_tested() -> None:
    known = {"Notebooks", "Panel", "MkDocs", "Sphinx", "Jupyter Book", "Hugo", "Quarto"}
    for heading in known:
        recipe = Recipe(heading)
        assert recipe.files or recipe.blocks
