"""``python -m app build``: the command line of the built copy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.static_site.build import BuildError, build


def main(arguments: list[str]) -> int:
    """Build as asked and say what was written; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m app build",
        description="Write the whole article, both languages and all figures, as files that any "
        "static host serves and a browser opens from a disk.",
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("site"), help="folder (site)")
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="where it will stand, https://example.org/speculative: for the sitemap, the feeds, "
        "canonical addresses and the images beside links",
    )
    asked = parser.parse_args(arguments)
    try:
        report = build(asked.output, base_url=asked.base_url)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{report.folder}: {len(report.files)} files, {sum(report.files.values()) / 1e6:.1f} MB. "
        f"Open {report.folder / 'index.html'}, or copy the folder to any static host."
    )
    if report.left_out:
        print("Left out without --base-url: " + ", ".join(report.left_out) + ".")
    return 0
