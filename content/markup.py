"""Markdown of ours → HTML, checked while it is rendered.

Beyond CommonMark and tables:

===================================  =============================================================
write                                get
===================================  =============================================================
``$…$``, ``$$…$$ (name)``            MathML, inline or as a displayed equation ``#eq-name``
``{{figure: roofline}}``             a slot that the page fills (a paragraph of its own)
``:::aside Title`` … ``:::``         a margin note
``## Heading {#id}``                 a heading; the id is required, so that both languages share it
``[3.35 TB/s](num:h100.bandwidth)``  a number that knows its source
``[prefill](term:prefill)``          a word with its definition from the glossary
``[amber](mark:draft)``              a word in the colour that means the same in the figures
``[figure 1](fig:roofline)``         a link to a figure; the digit is checked
``[@leviathan2023; @chen2023]``      citations
===================================  =============================================================

Raw HTML is off. Write one sentence a line; in Chinese the line break between two sentences leaves
no space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

from content.errors import ContentError
from content.facts import Number, Reference

MARKS = frozenset(
    {"target", "draft", "accepted", "rejected", "supplied", "bonus", "memory", "compute"}
)
"""Colour tokens with a meaning, the same names as in the style sheet."""

CLOSING = "，。；：、！？）」』”’》,.;:!?)"
"""What never begins a line, in either language."""

_HEADING_ID = re.compile(r"\s*\{#([a-z0-9-]+)\}\s*$")
_FIGURE = re.compile(r"\{\{\s*figure:\s*([a-z0-9-]+)\s*\}\}")
_CITATION = re.compile(r"\[(@[a-z0-9]+(?:\s*;\s*@[a-z0-9]+)*)\]")
_SCHEME = re.compile(r"^(num|term|mark|fig|https?|#)(?::(.*))?")


@dataclass
class Book:
    """What an article knows and gathers while its sections are rendered in order."""

    lang: str
    strings: dict[str, str]
    numbers: dict[str, Number]
    references: dict[str, Reference]
    figures: list[str] = field(default_factory=list)
    """Figure ids in order of appearance: the first one is figure 1."""
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of the sections: id → plain text."""
    cited: list[str] = field(default_factory=list)
    """Reference keys in order of first citation: the first one is [1]."""
    stated: list[str] = field(default_factory=list)
    """Keys of the numbers that the prose states."""
    equations: dict[str, str] = field(default_factory=dict)
    """Named equations: name → LaTeX."""
    headings: list[tuple[str, str, str]] = field(default_factory=list)
    """Headings below the section titles: (section id, heading id, plain text)."""
    mentioned: list[tuple[Path, int, str, str]] = field(default_factory=list)
    """Links to figures, checked at the end: (file, line, figure id, link text)."""


def render(path: Path, section: str, book: Book) -> tuple[str, str]:
    """Render one file; return its title (plain text, from ``# Title``, or "") and its HTML.

    Raises:
        ContentError: with file and line, for anything unknown, unnamed or doubled.
    """
    env = {"path": path, "section": section, "book": book, "title": ""}
    html = _MARKDOWN.render(path.read_text(encoding="utf-8"), env)
    return str(env["title"]), html


def origin(number: Number, words: dict[str, str]) -> str:
    """Where a number comes from, in words: its source, its formula, or what the strings say."""
    if number.formula:
        return f"= {number.formula}"
    return number.source or words[f"ui.origin_{number.origin}"]


def math(latex: str, *, display: bool) -> str:
    """LaTeX → MathML.

    Raises:
        ValueError: the converter does not know a command or gave something that is not XML.
    """
    try:
        markup: str = convert(latex, display="block" if display else "inline")
        root = ElementTree.fromstring(markup)
    except Exception as error:  # the converter's errors share no base class
        reason = str(error) or type(error).__name__
        raise ValueError(f"{latex!r} does not convert to MathML: {reason}") from None
    unknown = [node.text for node in root.iter() if node.text and "\\" in node.text]
    if unknown:
        raise ValueError(f"{latex!r}: unknown command {unknown[0]}")
    # A function's name is an identifier applied to what follows, not an operator with wide spaces.
    markup = re.sub(r"<mo>(min|max|Pr|norm)</mo>", r"<mi>\1</mi><mo>&#x2061;</mo>", markup)
    # Inside HTML the element needs no namespace, and the address looks like a remote resource.
    return markup.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")


# --- parsing: core and inline rules -------------------------------------------------------------


def _fail(env: Any, token: Token | None, message: str) -> ContentError:
    return ContentError(env["path"], message, token.map[0] + 1 if token and token.map else None)


def _headings(state: StateCore) -> None:
    """Take the title out, give the other headings their ids, one level down (h1 is the page's)."""
    env, tokens, keep = state.env, state.tokens, []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token.type == "heading_open" and token.tag == "h1":
            if env["title"]:
                raise _fail(env, token, "a second title; use ## below the first")
            env["title"] = tokens[i + 1].content
            i += 3
            continue
        if token.type == "heading_open":
            inline = tokens[i + 1]
            found = _HEADING_ID.search(inline.content)
            if not found:
                raise _fail(env, token, "the heading needs an id: ## Heading {#id}")
            title = inline.content[: found.start()]
            inline.content = f"[{title}](#{found[1]})"  # its own address, to copy or to pass on
            token.attrSet("id", found[1])
            env["book"].headings.append((env["section"], found[1], title))
            token.tag = tokens[i + 2].tag = f"h{int(token.tag[1]) + 1}"
        keep.append(token)
        i += 1
    state.tokens = keep


def _figures(state: StateCore) -> None:
    """Turn a paragraph ``{{figure: id}}`` into a slot."""
    env, tokens, keep = state.env, state.tokens, []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        text = tokens[i + 1].content.strip() if token.type == "paragraph_open" else ""
        if found := _FIGURE.fullmatch(text):
            name, book = found[1], env["book"]
            if f"figure.{name}.title" not in book.strings:
                raise _fail(
                    env,
                    token,
                    f"unknown figure {name!r}: no title in content/{book.lang}/figures/{name}.toml",
                )
            if name in book.figures:
                raise _fail(env, token, f"figure {name!r} is already placed")
            book.figures.append(name)
            keep.append(Token("figure_slot", "div", 0, info=name, map=token.map))
            i += 3
            continue
        if "{{" in text:
            raise _fail(env, token, "a figure is a paragraph of its own: {{figure: id}}")
        keep.append(token)
        i += 1
    state.tokens = keep


def _citation(state: StateInline, silent: bool) -> bool:
    """``[@key; @key]``: numbered links into the list of references."""
    found = _CITATION.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        token = state.push("citation", "", 0)
        token.meta = {"keys": [key.strip().lstrip("@") for key in found[1].split(";")]}
    state.pos = found.end()
    return True


def _links(state: StateCore) -> None:
    """Give every link of our own schemes its meaning; refuse what is unknown."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_children(state.env, block, block.children))


def _children(env: Any, block: Token, children: Sequence[Token]) -> Iterator[Token]:
    closing: list[tuple[str, Token | None]] = []
    for i, token in enumerate(children):
        if token.type == "math_inline":
            token.meta = {
                "markup": _convert(env, block, token.content, display=False),
                "after": _closing_mark(children, i + 1),
            }
        elif token.type == "citation":
            token.content = _cite(env, block, token.meta["keys"])
        elif token.type == "link_open":
            text = "".join(t.content for t in children[i + 1 : _closing(children, i)])
            closing.append(_link(env, block, token, text))
        elif token.type == "link_close":
            token.tag, extra = closing.pop()
            if extra:
                yield extra
        elif token.type in {"image", "html_inline"}:
            raise _fail(env, block, "images and HTML do not belong in prose")
        yield token


def _closing(children: Sequence[Token], opening: int) -> int:
    return next(i for i in range(opening, len(children)) if children[i].type == "link_close")


def _cite(env: Any, block: Token, keys: Sequence[str]) -> str:
    book: Book = env["book"]
    links = []
    for key in keys:
        if key not in book.references:
            raise _fail(env, block, f"unknown citation @{key}; add it to references.toml")
        if key not in book.cited:
            book.cited.append(key)
        work = book.references[key]
        name = escape(f"{work.authors}, {work.title} ({work.year})")
        number = book.cited.index(key) + 1
        links.append(f'<a class="sd-cite" href="#ref-{key}" title="{name}">[{number}]</a>')
    return "".join(links)


def _link(env: Any, block: Token, token: Token, text: str) -> tuple[str, Token | None]:
    """Rewrite one opening link; return the tag that closes it and what stands before the close."""
    book: Book = env["book"]
    href = str(token.attrGet("href") or "")
    found = _SCHEME.match(href)
    scheme, name = (found[1], found[2] or "") if found else ("", "")
    match scheme:
        case "http" | "https":
            token.attrSet("rel", "noopener")
        case "#":
            pass
        case "num":
            if name not in book.numbers:
                raise _fail(env, block, f"unknown number {name!r}; add it to numbers.toml")
            if name not in book.stated:
                book.stated.append(name)
            number = book.numbers[name]
            token.attrs = {
                "class": "sd-num",
                "href": f"#{number.anchor}",
                "data-label": book.strings[f"number.{name}"],
                "data-value": number.shown,
                "data-source": origin(number, book.strings),
            }
        case "term":
            if f"term.{name}.definition" not in book.strings:
                raise _fail(env, block, f"unknown term {name!r}; add it to glossary.toml")
            token.tag = "dfn"
            count = env["terms"] = env.get("terms", 0) + 1
            where = f"{env['section']}-term-{count}"
            token.attrs = {"class": "sd-term", "tabindex": "0", "aria-describedby": where}
            meaning = escape(book.strings[f"term.{name}.definition"])
            return "dfn", Token(
                "html_inline",
                "",
                0,
                content=f'<span class="sd-definition" role="tooltip" id="{where}">{meaning}</span>',
            )
        case "mark":
            if name not in MARKS:
                raise _fail(env, block, f"unknown mark {name!r}; there are {sorted(MARKS)}")
            token.tag = "span"
            token.attrs = {"class": f"sd-mark sd-mark-{name}"}
            return "span", None
        case "fig":
            book.mentioned.append((env["path"], block.map[0] + 1 if block.map else 0, name, text))
            token.attrs = {"class": "sd-figref", "href": f"#figure-{name}"}
        case _:
            raise _fail(env, block, f"{href!r} is no link that we know; see content/markup.py")
    return "a", None


# --- rendering ----------------------------------------------------------------------------------


def _convert(env: Any, block: Token, latex: str, *, display: bool) -> str:
    try:
        return math(latex.strip(), display=display)
    except ValueError as error:
        raise _fail(env, block, str(error)) from None


def _closing_mark(children: Sequence[Token], i: int) -> str:
    """Take the punctuation off the front of token `i`, if that is text: it stays with the formula
    before it, after which a browser would break the line."""
    if i == len(children) or children[i].type != "text":
        return ""
    text = children[i].content
    children[i].content = text.lstrip(CLOSING)
    return text[: len(text) - len(children[i].content)]


def _render_math(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    after = escape(tokens[i].meta["after"])
    return f'<span class="sd-math">{tokens[i].meta["markup"]}{after}</span>'


def _render_equation(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    token = tokens[i]
    markup = _convert(env, token, token.content, display=True)
    anchor = ""
    if name := token.info:
        equations = env["book"].equations
        if name in equations:
            raise _fail(env, token, f"a second equation named {name!r}")
        equations[name] = token.content.strip()
        anchor = f' id="eq-{name}"'
    return f'<div class="sd-equation"{anchor} tabindex="0">{markup}</div>\n'


def _render_aside(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    if tokens[i].nesting < 0:
        return "</aside>\n"
    title = tokens[i].info.strip().removeprefix("aside").strip()
    if not title:
        raise _fail(env, tokens[i], "a margin note needs a title: :::aside Title")
    count = env["asides"] = env.get("asides", 0) + 1
    where = f"{env['section']}-aside-{count}"
    return (
        f'<aside class="sd-aside" aria-labelledby="{where}">'
        f'<p class="sd-aside-title" id="{where}">{escape(title)}</p>\n'
    )


def _render_slot(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    name = tokens[i].info
    return f'<div class="sd-slot" id="figure-{name}" data-figure="{name}"></div>\n'


def _render_citation(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    return tokens[i].content


def _render_softbreak(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    return "" if env["book"].lang == "zh" else "\n"


def _render_table(self: Any, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    # Tables may be wider than a phone: they scroll in a box that the keyboard can reach.
    name = escape(env["book"].strings["ui.table"])
    if tokens[i].nesting < 0:
        return "</table></div>\n"
    return f'<div class="tablewrap" role="group" aria-label="{name}" tabindex="0"><table>\n'


def _build() -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False}).enable("table")
    dollarmath_plugin(md, allow_space=False, allow_blank_lines=False)
    container_plugin(md, "aside", render=_render_aside)
    md.core.ruler.after("block", "sd_headings", _headings)
    md.core.ruler.after("sd_headings", "sd_figures", _figures)
    md.core.ruler.push("sd_links", _links)
    md.inline.ruler.before("link", "sd_citation", _citation)
    md.add_render_rule("math_inline", _render_math)
    md.add_render_rule("math_block", _render_equation)
    md.add_render_rule("math_block_label", _render_equation)
    md.add_render_rule("figure_slot", _render_slot)
    md.add_render_rule("citation", _render_citation)
    md.add_render_rule("softbreak", _render_softbreak)
    md.add_render_rule("table_open", _render_table)
    md.add_render_rule("table_close", _render_table)
    return md


_MARKDOWN = _build()
