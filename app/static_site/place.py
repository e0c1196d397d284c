"""The addresses of a built copy, and the files that they bring into it.

A file that a page needs gets its checksum into its name (`assets/article.1a2b3c4d.css`), so that a
host may let browsers keep it for ever. Scripts are joined and classic, and data are scripts too:
a page opened from a disk (`file://`) may load neither modules nor JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from app import page
from app.places import Place
from figures import IDS
from figures.export.bundle import ROOT, bundle, view
from figures.export.standalone import BOKEH
from figures.figure import Figure

STATIC = ROOT / "app" / "static"


class Assets:
    """The files that pages refer to, made when the first page does."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._made: dict[str, str] = {}

    def add(self, name: str, make: Callable[[], bytes]) -> str:
        """Return the path of a file in the copy; `name` ("article.css") stands for its content."""
        if name not in self._made:
            body = make()
            stem, _, suffix = name.rpartition(".")
            path = f"assets/{stem}.{digest(body)}.{suffix}"
            self.files[path] = body
            self._made[name] = path
        return self._made[name]

    def add_data(self, name: str, make: Callable[[], Any]) -> str:
        """Return the path of a script that brings JSON-able data; `web/data.js` reads it."""
        if name not in self._made:
            text = json.dumps(make(), ensure_ascii=False, separators=(",", ":"))
            file = f"{name}.{digest(text.encode())}.js"
            key = json.dumps(file)
            self.files[f"assets/{file}"] = f"(globalThis.sdData??={{}})[{key}]={text};\n".encode()
            self._made[name] = f"assets/{file}"
        return self._made[name]


def digest(body: bytes) -> str:
    """Return what tells two versions of a file apart, for its name."""
    return hashlib.sha256(body).hexdigest()[:10]


@cache
def _script(name: str) -> bytes:
    """Return the script that starts a page, joined with all it imports."""
    entries = [STATIC / f"{name}.js"]
    if name == "article":
        # The article shows every figure: one request instead of nine.
        entries = [*map(view, IDS), *entries]
    return bundle(entries).encode()


def _chart(figure: type[Figure], lang: str) -> Any:
    """Return the chart, its models renumbered: Bokeh counts on from what this process made before.

    Charts of one page keep apart: each figure has ten thousand numbers of its own.
    """
    first = 10_000 * (IDS.index(figure.id) + 1)
    numbers: dict[str, str] = {}
    text = json.dumps(figure.chart(lang))
    return json.loads(
        re.sub(r'"p\d+"', lambda m: numbers.setdefault(m[0], f'"p{first + len(numbers)}"'), text)
    )


@dataclass(frozen=True)
class Copy(Place):
    """The addresses that one page of a built copy uses.

    Attributes:
        up: the way from the page to the copy's root: ".", ".." or "../..".
        assets: where the files that it refers to are kept.
        base_url: the copy's public address without a trailing slash, or None.
    """

    up: str
    assets: Assets
    base_url: str | None = None

    @property
    def server(self) -> None:
        """There is none."""
        return

    @property
    def modules(self) -> None:
        """Scripts are joined."""
        return

    def _at(self, path: str) -> str:
        return f"{self.up}/{path}"

    def file(self, name: str) -> str:
        """A file of ours, unchanged."""
        path = ROOT / name
        return self._at(self.assets.add(path.name, path.read_bytes))

    def script(self, name: str) -> str:
        """One classic script."""
        return self._at(self.assets.add(f"{name}.js", lambda: _script(name)))

    def frames(self) -> str:
        """Under a name that stays: pages of others refer to it, whatever build it is of."""
        self.assets.files["frames.js"] = (STATIC / "frames.js").read_bytes()
        return self._at("frames.js")

    def view(self, figure: type[Figure]) -> dict[str, str]:
        """A script that adds the view to the page's; the article's own script has it already."""

        def make() -> bytes:
            return bundle([view(figure.id)], without=[STATIC / "embed.js"]).encode()

        return {"script": self._at(self.assets.add(f"figure-{figure.id}.js", make))}

    def records(self, figure: type[Figure]) -> dict[str, str]:
        """Scripts."""
        return {
            name: self._record(figure.id, name, path) for name, path in figure.records().items()
        }

    def _record(self, figure_id: str, name: str, path: Path) -> str:
        return self._at(
            self.assets.add_data(
                f"{figure_id}-{name}", lambda: json.loads(path.read_text(encoding="utf-8"))
            )
        )

    def chart(self, figure: type[Figure], lang: str) -> dict[str, str]:
        """The chart as a script, and BokehJS once for all."""
        item = self.assets.add_data(f"chart-{figure.id}-{lang}", lambda: _chart(figure, lang))
        library = self.assets.add("bokeh.min.js", BOKEH.read_bytes)
        return {"item": self._at(item), "library": self._at(library)}

    def words(self, lang: str) -> str:
        """A script with the article, its addresses as the article in another language has them."""
        return self._at(self.assets.add_data(f"words-{lang}", lambda: page.bundle(lang, self)))

    def page(self, lang: str, figure_id: str | None = None) -> str:
        """A file each; named in full, because a disk has no index pages."""
        return self._at(f"{lang}/figure/{figure_id}.html" if figure_id else f"{lang}/index.html")

    def absolute(
        self, kind: str, lang: str | None = None, figure_id: str | None = None
    ) -> str | None:
        """The public address, if the copy was built with one."""
        if self.base_url is None:
            return None
        paths = {
            "choice": "",
            "page": f"{lang}/figure/{figure_id}.html" if figure_id else f"{lang}/",
            "feed": f"{lang}/feed.xml",
        }
        if kind == "card":
            card = STATIC / "cards" / f"{lang}.png"
            return f"{self.base_url}/{self.assets.add(f'card-{lang}.png', card.read_bytes)}"
        return f"{self.base_url}/{paths[kind]}"
