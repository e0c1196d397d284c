"""Write the built copy: every page in every language, and what search engines and feeds read."""

from __future__ import annotations

import datetime
import json
import os
import re
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import content
import figures
from app import page
from app.static_site import feeds
from app.static_site.place import Assets, Copy

#: Names the files of a copy: what a later build may replace, and nothing else.
MANIFEST = "build.json"
DISTRIBUTION = "speculative-decoding-live"


class BuildError(Exception):
    """The copy cannot be written as asked; the message says what to do."""


@dataclass(frozen=True)
class Report:
    """What was written. files: path → size in bytes; left_out: what needs a public address."""

    folder: Path
    files: dict[str, int]
    left_out: tuple[str, ...]


def build(folder: Path, *, base_url: str | None = None, date: str | None = None) -> Report:
    """Write the whole article into `folder`, which may hold an earlier copy.

    Args:
        folder: made if it is not there. Files of an earlier copy are replaced or removed; others
            stop the build.
        base_url: where the copy will stand ("https://example.org/speculative"); canonical
            addresses, the sitemap, the feeds and the images beside links need it.
        date: day of the build as "YYYY-MM-DD", for the sitemap and the feeds; by default today, or
            SOURCE_DATE_EPOCH (a time in seconds) so that a build can be repeated exactly.

    Raises:
        BuildError: the folder holds something else, or the address is none.
    """
    base = _checked(base_url)
    earlier = _earlier(folder)
    files = pages(base, date or _today())
    _remove(folder, earlier)
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    sizes = {name: len(body) for name, body in sorted(files.items())}
    manifest = {
        "what": DISTRIBUTION,
        "version": distribution(DISTRIBUTION).version,
        "base_url": base,
        "files": sizes,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return Report(folder, sizes, () if base else feeds.NEED_ADDRESS)


def pages(base_url: str | None, date: str) -> dict[str, bytes]:
    """Return every file of the copy: path → content."""
    assets = Assets()
    root = Copy(".", assets, base_url)
    article = Copy("..", assets, base_url)
    alone = Copy("../..", assets, base_url)

    made: dict[str, str] = {"index.html": page.choice_page(root)}
    for lang in content.LANGUAGES:
        made[f"{lang}/index.html"] = page.article_page(lang, "auto", article)
        made[f"{lang}/numbers.html"] = page.numbers_page(lang, article)
        for figure_id in figures.IDS:
            made[f"{lang}/figure/{figure_id}.html"] = page.figure_page(
                figure_id, lang, "auto", alone
            )
    # A host sends it for any address, so relative ones would lead anywhere: only a copy that knows
    # where it stands can do better than that.
    made["404.html"] = page.missing_page(Copy(base_url or ".", assets, base_url))
    made["robots.txt"] = feeds.robots(base_url)
    if base_url:
        made["sitemap.xml"] = feeds.sitemap(root, date)
        made |= {f"{lang}/feed.xml": feeds.atom(lang, root, date) for lang in content.LANGUAGES}
    made["LICENSE.txt"] = _licence()
    return {name: text.encode() for name, text in made.items()} | assets.files


def _checked(base_url: str | None) -> str | None:
    """Return the address without its trailing slash.

    Raises:
        BuildError: not an http(s) address of a folder.
    """
    if base_url is None:
        return None
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BuildError(
            f"--base-url {base_url}: this must be the address of a folder, "
            "https://example.org/speculative"
        )
    return base_url.rstrip("/")


def _today() -> str:
    """Return the day of the build, which SOURCE_DATE_EPOCH may set."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH")
    now = (
        datetime.datetime.fromtimestamp(int(stamp), datetime.UTC)
        if stamp
        else datetime.datetime.now(datetime.UTC)
    )
    return now.date().isoformat()


def _earlier(folder: Path) -> list[str]:
    """Return the files that an earlier build wrote into the folder.

    Raises:
        BuildError: the folder holds files that no build of ours wrote.
    """
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise BuildError(f"{folder} is a file; name a folder")
    known = _manifest(folder / MANIFEST)
    if known is None and any(folder.iterdir()):
        raise BuildError(
            f"{folder} holds something else; name a new or an empty folder (-o FOLDER)"
        )
    return known or []


def _remove(folder: Path, names: list[str]) -> None:
    """Remove these files of the folder, and folders that are empty then."""
    for name in names:
        path = folder / name
        if path.resolve().is_relative_to(folder.resolve()):
            path.unlink(missing_ok=True)
            for above in path.parents:
                if above == folder or not above.is_dir() or any(above.iterdir()):
                    break
                above.rmdir()


def _manifest(path: Path) -> list[str] | None:
    """Return the files that an earlier build wrote, or None if this is no copy of ours."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(value, dict) or value.get("what") != DISTRIBUTION:
        return None
    return [*value.get("files", {}), MANIFEST]


def _licence() -> str:
    """Return the licence, which every installation carries beside the packages."""
    text = distribution(DISTRIBUTION).read_text("licenses/LICENSE")
    if text is None:
        raise BuildError("The licence is missing from this installation; install the package anew.")
    return re.sub(r"\r\n?", "\n", text)
