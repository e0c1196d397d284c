"""Where a page finds what it needs: on the server, or (app/static_site) in a folder of files.

The page and its template ask a `Place` for every address, so that the served page and the built one
are the same code. An address is relative to the page that holds it, or absolute on its host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from figures.figure import Figure, import_map


class Place(ABC):
    """The addresses that one page uses. Hashable: what is made from them is cached by it."""

    @property
    @abstractmethod
    def server(self) -> str | None:
        """Address under which a server listens ("/app"); None where there is no server."""

    @property
    @abstractmethod
    def modules(self) -> str | None:
        """The import map of the shared modules as JSON; None where scripts are no modules."""

    @abstractmethod
    def file(self, name: str) -> str:
        """Return the address of a file of ours: "figures/web/tokens.css", "app/static/icon.svg"."""

    @abstractmethod
    def script(self, name: str) -> str:
        """Return the address of the script that starts a page: "article" or "embed"."""

    @abstractmethod
    def frames(self) -> str:
        """Return the address of the script for pages of others that hold figures in frames."""

    @abstractmethod
    def view(self, figure: type[Figure]) -> dict[str, str]:
        """Return where `mount.js` finds a figure's view: "view", a module, or "script"."""

    @abstractmethod
    def records(self, figure: type[Figure]) -> dict[str, str]:
        """Return the addresses of the figure's measured data, by name."""

    @abstractmethod
    def chart(self, figure: type[Figure], lang: str) -> dict[str, str]:
        """Return the addresses of the figure's chart ("item") and of BokehJS ("library")."""

    @abstractmethod
    def words(self, lang: str) -> str:
        """Return the address of the article and the words of one language, for a change to it."""

    @abstractmethod
    def page(self, lang: str, figure_id: str | None = None) -> str:
        """Return the address of the article in one language, or of one of its figures alone."""

    def absolute(
        self, kind: str, lang: str | None = None, figure_id: str | None = None
    ) -> str | None:
        """Return a public address, for those who see a link to the page and not the page.

        kind: "page", "card" (the image shown beside a link), "feed", or "choice" (of a language).
        None where the public address is not known.
        """
        return None


@dataclass(frozen=True)
class Served(Place):
    """The running server. base: address of the app on it, without a trailing slash ("/app")."""

    base: str

    @property
    def server(self) -> str:
        """The base again: the server is where the page came from."""
        return self.base

    @property
    def modules(self) -> str:
        """Views import `#sd/dom.js` and the others from the figures' folder."""
        return import_map(self.base)

    def file(self, name: str) -> str:
        """Bokeh serves `app/static` as `static`; our own route serves `figures`."""
        return f"{self.base}/{name.removeprefix('app/')}"

    def script(self, name: str) -> str:
        """A module that imports what it needs."""
        return self.file(f"app/static/{name}.js")

    def frames(self) -> str:
        """As it is."""
        return self.file("app/static/frames.js")

    def view(self, figure: type[Figure]) -> dict[str, str]:
        """The view's module."""
        return {"view": self.file(f"figures/{figure.id}/view.js")}

    def records(self, figure: type[Figure]) -> dict[str, str]:
        """The JSON files themselves."""
        return {
            name: self.file(f"figures/{figure.id}/recorded/{path.name}")
            for name, path in figure.records().items()
        }

    def chart(self, figure: type[Figure], lang: str) -> dict[str, str]:
        """Made by `routes.Chart` and `routes.Library`."""
        return {
            "item": f"{self.base}/chart/{figure.id}.{lang}.json",
            "library": f"{self.base}/lib/bokeh.min.js",
        }

    def words(self, lang: str) -> str:
        """Made by `routes.Bundle`."""
        return f"{self.base}/content/{lang}.json"

    def page(self, lang: str, figure_id: str | None = None) -> str:
        """The same page in every language, and a parameter."""
        path = f"{self.base}/figure/{figure_id}" if figure_id else self.base or "/"
        return f"{path}?lang={lang}"
