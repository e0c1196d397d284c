"""The article's words: prose, strings, numbers and references, in every language.

Nothing here imports the rest of the project or anything heavy. Files are read once and cached;
a mistake in one raises :class:`ContentError` with its file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from content.appendix import numbers_html, references_html
from content.errors import ContentError
from content.facts import Number, Reference, numbers, references
from content.markup import Book, render
from content.words import LANGUAGES, Strings, folder, strings, tag

__all__ = [
    "LANGUAGES",
    "Article",
    "ContentError",
    "Heading",
    "Number",
    "Reference",
    "Section",
    "Strings",
    "article",
    "numbers",
    "references",
    "strings",
    "tag",
]


@dataclass(frozen=True)
class Heading:
    """A heading inside a section (an ``h3`` or deeper)."""

    id: str
    title: str


@dataclass(frozen=True)
class Section:
    """One section of the article."""

    id: str
    """The same in every language."""
    part: int
    """1 or 2: the first digit of the file name. 0 for what is generated."""
    title: str
    """Plain text; ``html`` does not repeat it, the page sets it as an ``h2``."""
    html: str
    """With a ``<div class="sd-slot" id="figure-<id>" data-figure="<id>">`` for each figure."""
    figures: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()


@dataclass(frozen=True)
class Article:
    """The article in one language, ready for the page."""

    lang: str
    title: str
    subtitle: str
    description: str
    lede: str
    """HTML before the first section."""
    sections: tuple[Section, ...]
    references: Section
    """Generated: the works cited (anchors ``#ref-<key>``)."""
    numbers: Section
    """Generated: every constant with its source (anchors ``#num-<key with dashes>``)."""
    figures: tuple[str, ...]
    """All figure ids in order; the first one is figure 1."""
    equations: dict[str, str]
    """Named equations, name → LaTeX; a test checks each by its name."""


@lru_cache
def article(lang: str) -> Article:
    """Read, check and render the article in one language.

    Raises:
        ValueError: unknown language.
        ContentError: anything unknown, unnamed or doubled in a content file.
    """
    text = strings(lang)
    book = Book(lang=lang, strings=text, numbers=numbers(), references=references())
    lede, sections = "", []
    for path in sorted(folder(lang).glob("[0-9][0-9]-*.md")):
        name = path.stem[3:]
        placed = len(book.figures)
        title, html = render(path, name, book)
        if name == "lede":
            lede = html
            continue
        if not title:
            raise ContentError(path, "the first line must be the title: # Title")
        book.titles[name] = title
        headings = tuple(Heading(i, plain) for where, i, plain in book.headings if where == name)
        sections.append(
            Section(name, int(path.stem[0]), title, html, tuple(book.figures[placed:]), headings)
        )
    _check_mentions(book)
    return Article(
        lang=lang,
        title=text["page.title"],
        subtitle=text["page.subtitle"],
        description=text["page.description"],
        lede=lede,
        sections=tuple(sections),
        references=Section("references", 0, text["ui.references"], references_html(book)),
        numbers=Section("numbers", 0, text["ui.numbers"], numbers_html(book)),
        figures=tuple(book.figures),
        equations=book.equations,
    )


def prose(lang: str, name: str) -> str:
    """Render ``<name>.md`` of one language by itself, outside the article; its title is left out.

    Raises:
        ValueError: unknown language.
        ContentError: anything unknown, unnamed or doubled in the file.
    """
    book = Book(lang=lang, strings=strings(lang), numbers=numbers(), references=references())
    return render(folder(lang) / f"{name}.md", name, book)[1]


def _check_mentions(book: Book) -> None:
    """A link to a figure must name one that is placed, by its number."""
    for path, line, name, text in book.mentioned:
        if name not in book.figures:
            raise ContentError(path, f"figure {name!r} is mentioned but not placed", line)
        stated = re.findall(r"\d+", text)
        actual = book.figures.index(name) + 1
        if stated and int(stated[0]) != actual:
            raise ContentError(path, f"{text!r} is figure {actual}", line)
