"""The two sections that nobody writes: the list of references and the table of numbers."""

from __future__ import annotations

from html import escape

from content.facts import Number
from content.markup import Book, origin


def references_html(book: Book) -> str:
    """An ordered list of the works cited, in the order in which the prose cites them."""
    items = []
    for key in book.cited:
        work = book.references[key]
        arxiv = f" arXiv:{work.arxiv}."
        doi = f' <a href="https://doi.org/{work.doi}" rel="noopener">doi:{work.doi}</a>'
        items.append(
            f'<li id="ref-{key}" lang="en">{escape(work.authors)}. '
            f'<a href="{escape(work.url)}" rel="noopener"><cite>{escape(work.title)}</cite></a>. '
            f"{escape(work.where)}, {work.year}."
            f"{arxiv if work.arxiv else ''}{doi if work.doi else ''}</li>"
        )
    return '<ol class="sd-references">\n' + "\n".join(items) + "\n</ol>\n"


def numbers_html(book: Book) -> str:
    """A table with every constant: what it is, its value, and its source or formula."""
    heads = (book.strings[f"ui.numbers_{name}"] for name in ("what", "value", "origin", "used"))
    rows = "".join(_row(book, number) for number in book.numbers.values())
    titles = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    name = escape(book.strings["ui.numbers"])
    return (
        f"<p>{escape(book.strings['ui.numbers_intro'])}</p>\n"
        f'<div class="tablewrap" role="group" tabindex="0" aria-label="{name}">'
        f'<table class="sd-numbers">\n<thead><tr>{titles}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )


def _row(book: Book, number: Number) -> str:
    label = escape(book.strings[f"number.{number.key}"])
    where = escape(origin(number, book.strings))
    if number.formula:
        where = f"<code>{where}</code>"
    elif number.url:
        read = escape(book.strings["ui.accessed"].format(date=number.accessed))
        where = f'<a href="{escape(number.url)}" rel="noopener" lang="en">{where}</a>, {read}'
    return (
        f'<tr id="{number.anchor}"><th scope="row">{label} <code>{number.key}</code></th>'
        f"<td>{escape(number.shown)}</td><td>{where}</td>\n<td>{_uses(book, number)}</td></tr>\n"
    )


def _uses(book: Book, number: Number) -> str:
    """Links to where the number is used: figures by their number, sections by their title."""
    links = []
    for place in number.used_in:
        figure = place.removeprefix("figure.")
        if figure == place:
            links.append(f'<a href="#{place}">{escape(book.titles[place])}</a>')
        elif figure in book.figures:
            shown = book.strings["ui.figure"].format(number=book.figures.index(figure) + 1)
            links.append(f'<a href="#figure-{figure}">{escape(shown)}</a>')
    return " · ".join(links)
