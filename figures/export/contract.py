"""What others may build on: figure ids, their parameters, and what an address may say.

`docs/embedding.md` holds the table; a test compares the two. A name that goes away, or bounds that
get narrower, break pages of other people: then `VERSION` rises and the file says what changed. New
figures, new parameters and wider bounds leave it as it is.
"""

from __future__ import annotations

from typing import Any

import figures
from figures.figure import Figure

VERSION = 1
#: Longer lists of choices grow often (devices, models); `python -m figures list` has them.
LIST = 6


def parameters(figure: type[Figure]) -> dict[str, dict[str, Any]]:
    """Return the parameters that an address may set: name → schema entry."""
    return {name: entry for name, entry in figure.schema().items() if not entry.get("private")}


def bounds(entry: dict[str, Any]) -> str:
    """Return in words what a schema entry allows."""
    match entry["type"]:
        case "choice":
            return f"one of {', '.join(map(str, entry['choices']))}"
        case "boolean":
            return "true or false"
        case "text":
            return f"at most {entry['maxLength']} characters"
        case kind:
            return f"{kind} from {entry.get('min', '−∞')} to {entry.get('max', '∞')}"


def table() -> str:
    """Return all figures with their parameters as Markdown tables."""
    parts = []
    for figure in figures.every():
        rows = ["| parameter | allowed | default |", "|---|---|---|"]
        for name, entry in parameters(figure).items():
            default = str(entry["default"]).replace("|", "\\|") or "(empty)"
            many = len(entry.get("choices", ())) > LIST
            allowed = "a name that `python -m figures list` shows" if many else bounds(entry)
            rows.append(f"| `{figure.id}.{name}` | {allowed} | {default} |")
        parts.append(f"### `{figure.id}`: {figure.words('en')['title']}\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"
