"""CONTRIBUTING.md says how to add a language; this does it, with a copy of the English one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import content
from content import words


@pytest.fixture
def third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    shutil.copytree(words.folder("en"), tmp_path / "eo")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "LANGUAGES", (*words.LANGUAGES, "eo"))
    content.strings.cache_clear()
    content.article.cache_clear()
    yield tmp_path / "eo"
    content.strings.cache_clear()
    content.article.cache_clear()


def test_a_folder_and_its_code_are_a_language(third: Path) -> None:
    lede = third / "00-lede.md"
    lede.write_text("Granda modelo skribas po unu ĵetono.\n", encoding="utf-8")
    article = content.article("eo")
    assert article.lede == "<p>Granda modelo skribas po unu ĵetono.</p>\n"
    assert len(article.sections) == 8
    assert article.sections[0].html


def test_what_is_not_translated_yet_is_named(third: Path) -> None:
    (third / "glossary.toml").unlink()
    with pytest.raises(content.ContentError, match=r"glossary\.toml: the file is missing"):
        content.article("eo")
