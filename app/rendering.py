"""The templates of our pages, with everything that is not marked as HTML escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, Template

_FOLDER = Path(__file__).parent / "templates"


@cache
def template(name: str) -> Template:
    """Return a template of `app/templates/` by its file's name."""
    return Environment(loader=FileSystemLoader(_FOLDER), autoescape=True).get_template(name)
