"""What axe finds on a page: ``violations(page)``, and ``report({"state": violations(page)})``."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OPTIONS = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}


def violations(page: Page, context: str | None = None) -> list[str]:
    """One line for each element that breaks a rule; `context` is a CSS selector, the page if None."""
    response = Axe().run(page, context, OPTIONS).response
    return [
        f"{rule['id']}: {' '.join(map(str, node['target']))} {node['failureSummary']} {node['html'][:200]}"
        for rule in response["violations"]
        for node in rule["nodes"]
    ]


def report(found: dict[str, list[str]]) -> None:
    """Fail with every line of every state."""
    lines = [f"{name}: {line}" for name, each in found.items() for line in each]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
