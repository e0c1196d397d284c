"""The loader refuses what a reader would meet as a dead end, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import content
from content import ContentError
from content.markup import Book, math, render


@pytest.fixture
def book() -> Book:
    return Book(
        lang="en",
        strings=content.strings("en"),
        numbers=content.numbers(),
        references=content.references(),
    )


def html(tmp_path: Path, book: Book, source: str) -> str:
    path = tmp_path / "99-test.md"
    path.write_text(source, encoding="utf-8")
    return render(path, "test", book)[1]


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("# T\n\nA [x](num:no.such) b.", 3, "unknown number 'no.such'"),
        ("# T\n\nText [@nobody1900].", 3, "unknown citation @nobody1900"),
        ("# T\n\n\n{{figure: mona-lisa}}", 4, "unknown figure 'mona-lisa'"),
        ("# T\n\n{{figure: race}}\n\n{{figure: race}}", 5, "already placed"),
        ("# T\n\nSee {{figure: race}} here.", 3, "a paragraph of its own"),
        ("# T\n\nA [word](term:nonsense).", 3, "unknown term 'nonsense'"),
        ("# T\n\nA [word](mark:purple).", 3, "unknown mark 'purple'"),
        ("# T\n\nA [word](ftp://x).", 3, "no link that we know"),
        ("# T\n\n## No id", 3, "needs an id"),
        ("# T\n\n# Again", 3, "second title"),
        ("# T\n\nOn $\\nosuch{x}$.", 3, "unknown command"),
        ("# T\n\n$$\n\\frac{1}{\n$$", 3, "frac"),
        ("# T\n\n$$\na\n$$ (x)\n\n$$\nb\n$$ (x)", 7, "second equation named 'x'"),
        ("# T\n\n![a](b.png)", 3, "images and HTML"),
        ("# T\n\n:::aside\nText\n:::", 3, "needs a title"),
    ],
)
def test_mistakes_are_placed(
    tmp_path: Path, book: Book, source: str, line: int, message: str
) -> None:
    with pytest.raises(ContentError) as caught:
        html(tmp_path, book, source)
    assert caught.value.line == line
    assert f"99-test.md:{line}: " in str(caught.value)
    assert message in str(caught.value)


def test_raw_html_is_text(tmp_path: Path, book: Book) -> None:
    assert "&lt;script&gt;" in html(tmp_path, book, "<script>alert(1)</script>")
    assert "&lt;b&gt;" in html(tmp_path, book, "a <b>b</b>")


def test_links_that_leave_the_page_say_so(tmp_path: Path, book: Book) -> None:
    out = html(tmp_path, book, "[x](https://example.org/a) [y](#race)")
    assert '<a href="https://example.org/a" rel="noopener">x</a>' in out
    assert '<a href="#race">y</a>' in out


def test_figure_becomes_a_slot(tmp_path: Path, book: Book) -> None:
    slot = html(tmp_path, book, "{{figure: roofline}}")
    assert slot == '<div class="sd-slot" id="figure-roofline" data-figure="roofline"></div>\n'
    assert book.figures == ["roofline"]


def test_number_carries_label_value_and_source(tmp_path: Path, book: Book) -> None:
    out = html(tmp_path, book, "[3.35 TB/s](num:h100.bandwidth)")
    assert 'class="sd-num" href="#num-h100-bandwidth"' in out
    assert 'data-value="3.35 TB/s"' in out
    assert "NVIDIA" in out.split('data-source="')[1]
    derived = html(tmp_path, book, "[140 GB](num:model70b.weights)")
    assert 'data-source="= model70b.parameters * bf16.bytes"' in derived


def test_term_shows_its_definition(tmp_path: Path, book: Book) -> None:
    out = html(tmp_path, book, "[prefill](term:prefill)")
    assert '<dfn class="sd-term" tabindex="0" aria-describedby="test-term-1">prefill<span' in out
    assert content.strings("en")["term.prefill.definition"] in out
    assert out.count("</dfn>") == 1


def test_citations_count_once_each(tmp_path: Path, book: Book) -> None:
    out = html(tmp_path, book, "A [@chen2023; @leviathan2023], again [@chen2023].")
    assert [out.count(f">[{n}]</a>") for n in (1, 2)] == [2, 1]
    assert book.cited == ["chen2023", "leviathan2023"]


def test_title_and_headings(tmp_path: Path, book: Book) -> None:
    path = tmp_path / "99-test.md"
    path.write_text("# The title\n\n## Below {#below}\n", encoding="utf-8")
    title, out = render(path, "test", book)
    assert (title, out) == ("The title", '<h3 id="below"><a href="#below">Below</a></h3>\n')
    assert book.headings == [("test", "below", "Below")]


def test_chinese_lines_join_without_a_space(tmp_path: Path, book: Book) -> None:
    book.lang = "zh"
    assert html(tmp_path, book, "一句。\n又一句。") == "<p>一句。又一句。</p>\n"
    book.lang = "en"
    assert html(tmp_path, book, "One.\nTwo.") == "<p>One.\nTwo.</p>\n"


def test_tables_scroll_in_a_box_of_their_own(tmp_path: Path, book: Book) -> None:
    out = html(tmp_path, book, "| a | b |\n|---|---|\n| 1 | 2 |")
    assert out.startswith('<div class="tablewrap" role="group"')
    assert out.rstrip().endswith("</table></div>")


def test_function_names_are_identifiers() -> None:
    assert "<mi>max</mi><mo>&#x2061;</mo>" in math(r"\max(a, b)", display=False)


def test_math_becomes_mathml() -> None:
    assert math("x^2", display=False).startswith('<math display="inline">')
    assert math("x", display=True).startswith('<math display="block">')


@pytest.mark.parametrize(
    ("mention", "message"),
    [("[figure 2](fig:race)", "is figure 1"), ("[figure](fig:tiles)", "not placed")],
)
def test_figure_mentions_are_checked(
    tmp_path: Path, book: Book, mention: str, message: str
) -> None:
    html(tmp_path, book, f"{mention}\n\n{{{{figure: race}}}}")
    with pytest.raises(ContentError, match=message):
        content._check_mentions(book)
