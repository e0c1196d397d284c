"""``python -m figures``: list the figures and their parameters; export one, or all of them.

python -m figures list
python -m figures export roofline --lang zh --theme auto -o roofline.html
python -m figures export mask --set m=3 --set reject=1 --format svg
python -m figures export --all --assets library -o folder
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import content
import figures
from figures.export import ExportError, standalone
from figures.export.browser import BrowserError
from figures.export.contract import bounds, parameters, table
from figures.export.standalone import CONTROLS, THEMES, library_files
from figures.export.still import still

FORMATS = ("html", "svg", "png")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit status: 0, or 2 for what cannot be done as asked."""
    options = _parser().parse_args(arguments)
    if options.command == "list":
        print(table() if options.markdown else _listing())
        return 0
    try:
        _export(options)
    except (ExportError, BrowserError, OSError) as reason:
        print(f"figures: {reason}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m figures", description="The figures of the article, outside the article."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="the figures, their parameters and bounds")
    listing.add_argument("--markdown", action="store_true", help="as in docs/embedding.md")
    export = commands.add_parser("export", help="write a figure as one self-contained file")
    export.add_argument("figure", nargs="?", choices=figures.IDS, metavar="FIGURE")
    export.add_argument("--all", action="store_true", help="every figure, into the folder of -o")
    export.add_argument("-o", "--output", type=Path, help="file, or folder with --all; - is stdout")
    export.add_argument("--format", choices=FORMATS, default="html")
    export.add_argument("--lang", choices=content.LANGUAGES, default="en")
    export.add_argument("--theme", choices=THEMES, default="auto")
    export.add_argument("--controls", choices=CONTROLS, default="all", help="(html)")
    export.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the figure; may be given again for others",
    )
    export.add_argument(
        "--records", metavar="NAMES", help="(html) only these recorded data, with commas between"
    )
    export.add_argument(
        "--assets", type=Path, help="(html) put shared library files into this folder instead"
    )
    export.add_argument("--width", type=int, default=760, help="(svg, png) CSS pixels")
    export.add_argument("--scale", type=float, default=2.0, help="(png) pixels for a CSS pixel")
    return parser


def _export(options: argparse.Namespace) -> None:
    if options.all == bool(options.figure):
        raise ExportError("name one figure, or --all")
    if options.all and options.set:
        raise ExportError("--set belongs to one figure; export that one by name")
    state = dict(_pair(text) for text in options.set)
    folder = (options.output or Path()) if options.all else None
    if folder and folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder} is a file; with --all, -o names a folder")
    for figure_id in figures.IDS if options.all else (options.figure,):
        name = f"{figure_id}.{options.format}"
        output = folder / name if folder is not None else options.output or Path(name)
        _write(output, _made(figure_id, output, state, options))
    if options.assets and options.format == "html":
        for name, body in library_files().items():
            _write(options.assets / name, body)


def _made(
    figure_id: str, output: Path, state: dict[str, str], options: argparse.Namespace
) -> bytes:
    """Make one file."""
    if options.format != "html":
        return still(
            figure_id,
            format=options.format,
            lang=options.lang,
            theme=options.theme,
            state=state,
            width=options.width,
            scale=options.scale,
        )
    assets = None
    if options.assets:
        assets = Path(os.path.relpath(options.assets, output.parent)).as_posix()
    return standalone(
        figure_id,
        lang=options.lang,
        theme=options.theme,
        state=state,
        controls=options.controls,
        records=tuple(options.records.split(",")) if options.records else None,
        assets=assets,
    ).encode()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ExportError(f"--set takes NAME=VALUE, not {text!r}")
    return name, value


def _write(path: Path, body: bytes) -> None:
    if str(path) == "-":
        sys.stdout.buffer.write(body)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    print(f"{path}  {len(body) / 1000:.1f} kB")


def _listing() -> str:
    lines = []
    for figure in figures.every():
        lines.append(f"{figure.id}  {figure.words('en')['title']}")
        for name, entry in parameters(figure).items():
            lines.append(f"  {name} = {entry['default']}  ({bounds(entry)})  {entry['doc']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
