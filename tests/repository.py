"""The repository's files as git sees them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def files(*under: str) -> list[Path]:
    """What git tracks below some folders (everywhere if none is named), new files included."""
    run = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *under],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in run.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]
