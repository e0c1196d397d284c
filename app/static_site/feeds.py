"""What machines read of a built copy: sitemap, feeds, robots.txt."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import content
import figures
from app.static_site.place import Copy

#: What a copy without a public address cannot have.
NEED_ADDRESS = (
    "canonical addresses and absolute hreflang links",
    "sitemap.xml",
    "feeds (feed.xml)",
    "images beside links (og:image)",
    "a 404.html whose links hold at any depth",
)
SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
XHTML = "http://www.w3.org/1999/xhtml"
ATOM = "http://www.w3.org/2005/Atom"


def robots(base_url: str | None) -> str:
    """Everything may be read."""
    sitemap = f"\nSitemap: {base_url}/sitemap.xml\n" if base_url else ""
    return f"User-agent: *\nAllow: /\n{sitemap}"


def sitemap(place: Copy, date: str) -> str:
    """Every page in every language, each naming its counterparts (sitemaps.org, xhtml:link)."""
    ET.register_namespace("", SITEMAP)
    ET.register_namespace("xhtml", XHTML)
    root = ET.Element(f"{{{SITEMAP}}}urlset")
    for figure_id in (None, *figures.IDS):
        for lang in content.LANGUAGES:
            url = ET.SubElement(root, f"{{{SITEMAP}}}url")
            ET.SubElement(url, f"{{{SITEMAP}}}loc").text = place.absolute("page", lang, figure_id)
            ET.SubElement(url, f"{{{SITEMAP}}}lastmod").text = date
            for other in content.LANGUAGES:
                address = place.absolute("page", other, figure_id) or ""
                ET.SubElement(
                    url,
                    f"{{{XHTML}}}link",
                    {"rel": "alternate", "hreflang": other, "href": address},
                )
    return _text(root)


def atom(lang: str, place: Copy, date: str) -> str:
    """The article and its figures as an Atom feed (RFC 4287)."""
    ET.register_namespace("", ATOM)
    article = content.article(lang)
    updated = f"{date}T00:00:00Z"
    root = ET.Element(f"{{{ATOM}}}feed", {"xml:lang": content.tag(lang)})

    def add(parent: ET.Element, name: str, text: str | None = None, **attributes: str) -> None:
        ET.SubElement(parent, f"{{{ATOM}}}{name}", attributes).text = text

    here = place.absolute("page", lang) or ""
    add(root, "id", here)
    add(root, "title", article.title)
    add(root, "subtitle", article.subtitle)
    add(root, "updated", updated)
    add(
        root,
        "link",
        rel="self",
        type="application/atom+xml",
        href=place.absolute("feed", lang) or "",
    )
    add(root, "link", rel="alternate", type="text/html", href=here)
    author = ET.SubElement(root, f"{{{ATOM}}}author")
    add(author, "name", article.title)
    entries = [(here, article.title, article.description)] + [
        (
            place.absolute("page", lang, figure.id) or "",
            figure.words(lang)["title"],
            figure().describe(lang),
        )
        for figure in figures.every()
    ]
    for address, title, summary in entries:
        entry = ET.SubElement(root, f"{{{ATOM}}}entry")
        add(entry, "id", address)
        add(entry, "title", title)
        add(entry, "updated", updated)
        add(entry, "link", rel="alternate", type="text/html", href=address)
        add(entry, "summary", summary)
    return _text(root)


def _text(root: ET.Element) -> str:
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
