"""The article as the page gets it: the same skeleton in every language, well-formed, sourced."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

import pytest

import content
from content import LANGUAGES, Article

HAN = "\u4e00-\u9fff"


@pytest.fixture(params=LANGUAGES)
def article(request: pytest.FixtureRequest) -> Article:
    return content.article(request.param)


def pieces(article: Article) -> dict[str, str]:
    """Every stretch of HTML by a name that a failure can show."""
    generated = {"references": article.references.html, "numbers": article.numbers.html}
    return {"lede": article.lede} | {s.id: s.html for s in article.sections} | generated


def text(html: str) -> str:
    """What a reader sees, without formulas."""
    without = re.sub(r"<math.*?</math>", " ", html, flags=re.S)
    return unescape(re.sub(r"<[^>]+>", "", without))


def skeleton(article: Article) -> list[object]:
    return [
        (
            section.id,
            section.part,
            section.figures,
            [heading.id for heading in section.headings],
            re.findall(r'href="#(?:num|ref|figure)-[^"]+"', section.html),
            len(re.findall(r"<aside", section.html)),
        )
        for section in article.sections
    ]


def test_languages_share_the_skeleton() -> None:
    first, *others = (content.article(lang) for lang in LANGUAGES)
    for other in others:
        for ours, theirs in zip(skeleton(first), skeleton(other), strict=True):
            assert ours == theirs
        assert set(first.equations) == set(other.equations)


def test_part_one_places_its_five_figures_in_order(article: Article) -> None:
    first = [s for s in article.sections if s.part == 1]
    assert [s.id for s in first] == ["prefill-decode", "branch-prediction", "algorithm"]
    placed = [name for s in first for name in s.figures]
    assert placed == ["roofline", "tiles", "branch", "mask", "race"]


def test_ids_are_unique_and_every_local_link_arrives(article: Article) -> None:
    whole = "".join(pieces(article).values())
    ids = re.findall(r'\bid="([^"]+)"', whole) + [s.id for s in article.sections]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', whole)) <= set(ids)
    assert set(re.findall(r'aria-(?:describedby|labelledby)="([^"]+)"', whole)) <= set(ids)


def test_html_is_well_formed(article: Article) -> None:
    for name, html in pieces(article).items():
        try:
            ElementTree.fromstring(f"<div>{html}</div>")
        except ElementTree.ParseError as error:
            pytest.fail(f"{article.lang}/{name}: {error}")


def test_formulas_are_mathml_and_no_markup_is_left(article: Article) -> None:
    assert "<math" in article.sections[0].html
    for name, html in pieces(article).items():
        html = re.sub(r"<code>.*?</code>", "", html)
        for leftover in ("$", "**", "](", "{{", ":::", "{#", "\\", "|--"):
            assert leftover not in text(html), f"{article.lang}/{name}: {leftover!r}"
    assert all(f'id="eq-{name}"' in "".join(pieces(article).values()) for name in article.equations)


def test_nothing_is_loaded_from_elsewhere(article: Article) -> None:
    for name, html in pieces(article).items():
        assert not re.search(r"\bsrc=|<(img|script|link|iframe|object|style)\b", html), name
        links = re.findall(r'<a [^>]*href="https?://[^>]*>', html)
        assert all('rel="noopener"' in link for link in links), name
        bare = re.sub(r"<a [^>]*>", "", html)
        assert not re.search(r'="[^"]*https?://', bare), name


def test_every_reference_is_cited(article: Article) -> None:
    for key, work in content.references().items():
        assert f'id="ref-{key}"' in article.references.html, f"{key} is never cited"
        assert work.url.startswith("https://")
        assert not work.arxiv or work.arxiv in work.url
        assert not work.arxiv or work.doi == f"10.48550/arXiv.{work.arxiv}"


def test_citations_are_numbered_in_order(article: Article) -> None:
    prose = article.lede + "".join(s.html for s in article.sections)
    numbers = [int(n) for n in re.findall(r'class="sd-cite"[^>]*>\[(\d+)\]', prose)]
    first_seen = list(dict.fromkeys(numbers))
    assert first_seen == list(range(1, len(content.references()) + 1))


def test_each_number_says_where_it_is_used(article: Article) -> None:
    for section in article.sections:
        stated = set(re.findall(r'href="#(num-[^"]+)"', section.html))
        declared = {n.anchor for n in content.numbers().values() if section.id in n.used_in}
        assert stated == declared, f"{article.lang}/{section.id}"
    places = {s.id for s in article.sections} | {f"figure.{name}" for name in article.figures}
    for number in content.numbers().values():
        assert number.used_in, f"{number.key} is used nowhere"
        assert set(number.used_in) <= places, number.key


def test_chinese_punctuation_is_full_width() -> None:
    article = content.article("zh")
    everything = pieces(article) | content.strings("zh")
    del everything["references"]  # English titles
    for name, piece in everything.items():
        seen = text(piece)
        half_width = rf"[{HAN}][,;:!?()\"']|[,;:!?()\"'][{HAN}]|[{HAN}]\.(?!\w)"
        assert not re.search(half_width, seen), f"zh/{name}: {seen}"
        assert not re.search(rf"[{HAN}] [{HAN}]", seen), f"zh/{name}: {seen}"


def test_no_dashes_in_chains_and_no_exclamations(article: Article) -> None:
    words = content.strings(article.lang)
    for name, piece in (pieces(article) | words).items():
        for paragraph in text(piece).split("\n"):
            where = f"{article.lang}/{name}: {paragraph}"
            assert not re.search(r"[!！]|\.\.\.", paragraph), where
            assert len(re.findall("—+", paragraph)) < 2, where


def test_english_uses_no_straight_quotes_or_full_width_marks() -> None:
    article = content.article("en")
    prose = {k: v for k, v in pieces(article).items() if k not in {"references", "numbers"}}
    for name, piece in prose.items():
        assert not re.search(r"[\"'，。；：？（）]", text(piece)), f"en/{name}"


def test_part_one_has_the_length_of_a_good_read() -> None:
    first = [s for s in content.article("en").sections if s.part == 1]
    words = sum(len(text(s.html).split()) for s in first)
    # Definitions of glossary terms are in the HTML too, about 300 words of them.
    assert 1500 < words < 2300


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_every_number_links_to_where_it_is_used(lang: str) -> None:
    article = content.article(lang)
    anchors = {section.id for section in article.sections}
    anchors |= {f"figure-{figure}" for figure in article.figures}
    for number in content.numbers().values():
        row = article.numbers.html.split(f'id="{number.anchor}"')[1].split("</tr>")[0]
        links = re.findall(r'href="#([\w-]+)"', row.rsplit("<td>", 1)[1])
        wanted = [place.replace("figure.", "figure-") for place in number.used_in]
        assert links == wanted
        assert set(links) <= anchors
