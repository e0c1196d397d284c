"""Article + figures → page: everything the template needs, cached per language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup, escape

import content
import figures
from app import quiz, styleguide
from app.places import Place
from app.rendering import template
from figures.export.standalone import THEMES, in_script

#: The language of who asks for none of ours.
DEFAULT = "en"


@dataclass(frozen=True)
class Request:
    """What a reader asked for. The figures' state stands in the address too; scripts read it there.

    Attributes:
        lang: one of `content.LANGUAGES`.
        theme: "auto", "light" or "dark".
        base: address of the app on its server, without a trailing slash ("/app").
    """

    lang: str
    theme: str
    base: str

    @classmethod
    def of(
        cls, *, arguments: Mapping[str, list[bytes]], headers: Mapping[str, str], path: str | None
    ) -> Request:
        """Read a request; anything unknown falls back to a default, nothing is an error."""
        values = {k: v[-1].decode("utf-8", "replace") for k, v in arguments.items() if v}
        lang = values.get("lang", "")
        if lang not in content.LANGUAGES:
            accepted = next((v for k, v in headers.items() if k.lower() == "accept-language"), "")
            lang = preferred(accepted)
        theme = values.get("theme", "auto")
        return cls(
            lang=lang,
            theme=theme if theme in THEMES else "auto",
            base=(path or "").rstrip("/"),
        )


def preferred(accept_language: str) -> str:
    """Choose a language from an `Accept-Language` header; English where none of ours is named."""
    ranked: list[tuple[float, int, str]] = []
    for place, part in enumerate(accept_language.split(",")):
        tag, _, weight = part.strip().partition(";q=")
        try:
            quality = float(weight) if weight else 1.0
        except ValueError:
            quality = 0.0
        primary = tag.split("-")[0].lower()
        if primary in content.LANGUAGES and quality > 0:
            ranked.append((-quality, place, primary))
    return min(ranked)[2] if ranked else DEFAULT


@cache
def interface(lang: str) -> dict[str, str]:
    """Return the words of the interface that scripts need."""
    return {k: v for k, v in content.strings(lang).items() if k.startswith("ui.")}


@cache
def specs(lang: str, place: Place) -> list[dict[str, Any]]:
    """Return the description of every figure, in the order of the article, numbered from 1."""
    return [
        figure.spec(lang, base="")
        | place.view(figure)
        | {
            "records": place.records(figure),
            "number": number,
            "embedUrl": place.page(lang, figure.id),
            "embedScript": place.frames(),
        }
        | ({"chart": place.chart(figure, lang)} if (figure.folder() / "chart.py").exists() else {})
        for number, figure in enumerate(figures.every(), start=1)
    ]


@cache
def bundle(lang: str, place: Place) -> dict[str, Any]:
    """Return what a change of language needs: words, figures and the article's HTML by section."""
    article = content.article(lang)
    return {
        "lang": lang,
        "tag": content.tag(lang),
        "title": article.title,
        "description": article.description,
        "strings": content.strings(lang),
        "figures": {spec["id"]: spec for spec in specs(lang, place)},
        "lede": article.lede,
        "sections": [
            {"id": section.id, "title": section.title, "html": section.html}
            for section in (
                *article.sections,
                quiz.section(lang),
                article.references,
                article.numbers,
            )
        ],
    }


def script_json(value: Any) -> Markup:
    """Return `in_script`, which a template need not escape."""
    return Markup(in_script(value))  # noqa: S704


@cache
def _shared(lang: str, place: Place) -> dict[str, Any]:
    """Return the template variables that do not depend on the reader."""
    article = content.article(lang)
    return {
        "lang": lang,
        "html_lang": content.tag(lang),
        "place": place,
        "article": article,
        "title": article.title,
        "description": article.description,
        "locales": {other: content.strings(other)["page.locale"] for other in content.LANGUAGES},
        "lede": with_fallbacks(article.lede, lang),
        "sections": [
            (s.id, s.title, with_fallbacks(s.html, lang))
            for s in (*article.sections, quiz.section(lang))
        ],
        "parts": {
            next(s.id for s in article.sections if s.part == part): part
            for part in sorted({s.part for s in article.sections})
        },
        "appendix": [(s.id, s.title, s.html) for s in (article.references, article.numbers)],
        "languages": content.LANGUAGES,
        "strings": content.strings(lang),
        "modules": Markup(place.modules) if place.modules else None,  # noqa: S704
        "boot": script_json(
            {
                "base": place.server,
                "lang": lang,
                "words": {each: place.words(each) for each in content.LANGUAGES},
                "strings": interface(lang),
                "figures": {spec["id"]: spec for spec in specs(lang, place)},
            }
        ),
    }


SLOT = re.compile(r'(<div class="sd-slot"[^>]* data-figure="(\w+)"[^>]*>)</div>')


def with_fallbacks(html: str, lang: str) -> str:
    """Put into each figure's place what it shows in words: for readers without scripts."""

    def fill(match: re.Match[str]) -> str:
        figure = figures.get(match[2])
        words = figure.words(lang)
        return (
            f'{match[1]}<div class="fallback"><p><b>{escape(words["title"])}</b></p>'
            f"<p>{escape(figure().describe(lang))}</p></div></div>"
        )

    return SLOT.sub(lambda m: fill(m) if m[2] in figures.IDS else m[0], html)


def article_page(lang: str, theme: str, place: Place) -> str:
    """Return the whole article as one HTML page."""
    return template("index.html").render(_shared(lang, place), theme=theme)


def _simple(name: str, lang: str, title: str, place: Place, **more: Any) -> str:
    """Return a page of words alone."""
    return template(name).render(
        lang=lang,
        tags={each: content.tag(each) for each in content.LANGUAGES},
        html_lang=content.tag(lang),
        title=title,
        place=place,
        languages=content.LANGUAGES,
        articles={each: content.article(each) for each in content.LANGUAGES},
        words={each: content.strings(each) for each in content.LANGUAGES},
        strings=content.strings(lang),
        **more,
    )


def choice_page(place: Place) -> str:
    """Return the way in: a choice of language, which a script makes for who has one."""
    titles = " · ".join(content.article(lang).title for lang in content.LANGUAGES)
    return _simple("choice.html", DEFAULT, titles, place)


def missing_page(place: Place) -> str:
    """Return what an address that leads nowhere shows."""
    titles = " · ".join(content.strings(lang)["page.missing"] for lang in content.LANGUAGES)
    return _simple("missing.html", DEFAULT, titles, place)


def numbers_page(lang: str, place: Place) -> str:
    """Return the table of all numbers by itself; its links to places of the article go there."""
    section = content.article(lang).numbers
    title = f"{section.title} · {content.article(lang).title}"
    table = _outward(section.html, place.page(lang))
    return _simple("numbers.html", lang, title, place, heading=section.title, table=table)


def _outward(html: str, home: str) -> str:
    """Lead links to places that this part of the article does not hold to the article at `home`."""

    def outside(match: re.Match[str]) -> str:
        return match[0] if f'id="{match[1]}"' in html else f'href="{escape(home)}#{match[1]}"'

    return re.sub(r'href="#([^"]+)"', outside, html)


def styleguide_page(lang: str, theme: str, place: Place) -> str:
    """Return the page that shows the design system at work; it needs a server."""
    strings = content.strings(lang)
    values = {colour.name: colour for colour in styleguide.colours()}
    ratios = {}
    for meaning, _ in styleguide.meanings():
        ink = values.get(f"{meaning}-ink")
        ground = values.get(f"{meaning}-soft", values["raised"])
        ratios[meaning] = ink and tuple(
            f"{styleguide.contrast(one, other):.1f}"
            for one, other in ((ink.light, ground.light), (ink.dark, ground.dark))
        )
    prefix = "guide.demo."
    boot = {
        "base": place.server,
        "lang": lang,
        "strings": interface(lang),
        "demo": {k.removeprefix(prefix): v for k, v in strings.items() if k.startswith(prefix)},
        "figure": next(s for s in specs(lang, place) if s["id"] == "roofline"),
        "marks": [m for m, _ in styleguide.meanings() if f"ui.mark_{m}" in strings],
    }
    return template("styleguide.html").render(
        _shared(lang, place)
        | {
            "theme": theme,
            "title": f"{strings['guide.title']} · {strings['page.title']}",
            "guide": f"{place.server}/styleguide",
            "meanings": styleguide.meanings(),
            "ratios": ratios,
            "tokens": styleguide.tokens(),
            "sizes": styleguide.named("size-"),
            "distances": styleguide.named("1", "2", "3", "4", "5", "6"),
            "corners": styleguide.named("radius"),
            "prose": _outward(content.prose(lang, "styleguide"), place.page(lang)),
            "boot": script_json(boot),
        }
    )


def figure_page(figure_id: str, lang: str, theme: str, place: Place) -> str:
    """Return the page that shows one figure alone, for an iframe.

    Raises:
        KeyError: no figure has this id.
    """
    spec = next((s for s in specs(lang, place) if s["id"] == figure_id), None)
    if spec is None:
        raise KeyError(figure_id)
    fallback = figures.get(figure_id)().describe(lang)
    return template("figure.html").render(
        _shared(lang, place)
        | {
            "theme": theme,
            "figure_id": figure_id,
            "title": f"{spec['strings']['title']} · {content.article(lang).title}",
            "description": fallback,
            "boot": script_json(
                {
                    "base": place.server,
                    "lang": lang,
                    "pages": {each: place.page(each, figure_id) for each in content.LANGUAGES},
                    "strings": interface(lang),
                    "figure": spec
                    | {"pageUrl": place.page(lang).partition("?")[0], "number": None},
                }
            ),
        }
    )
