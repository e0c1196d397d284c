"""The closing questions: the same in both languages, and right where they can be computed."""

from __future__ import annotations

import pytest

import content
import figures
from app import quiz
from figures import distribution
from figures.mask import model as mask
from figures.roofline import model as roofline
from figures.speedup import model as speedup


def test_both_languages_ask_the_same() -> None:
    asked = {lang: quiz.questions(lang) for lang in content.LANGUAGES}
    first, *others = asked.values()
    assert len(first) == 8
    for found in others:
        for a, b in zip(first, found, strict=True):
            assert (a.answer, len(a.options), a.figure) == (b.answer, len(b.options), b.figure)
    for question in first:
        assert 0 <= question.answer < len(question.options) >= 3
        assert question.figure in figures.IDS


def right(number: int, lang: str = "en") -> str:
    question = quiz.questions(lang)[number - 1]
    return question.options[question.answer]


def test_the_answers_are_those_of_the_models() -> None:
    free = roofline.frame(roofline.Params(k=5))
    assert free.here.time == free.decode.time and "read once" in right(1)
    tokens = ["a", "b", "c", "d", "e", "f"]
    assert len(mask.verification(tokens, m=4, output=1, reject=0).outputs) == 5
    assert right(2) == "Five"
    assert min(1, 0.3 / 0.2) == 1 and "any case" in right(3)
    p, q = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1)
    assert distribution.residual(p, q) != list(p) and "had their share" in right(4)
    assert speedup.expected_tokens(0.5, 2) == float(right(6))
    edge = speedup.break_even(speedup.Params(c=0.1), 1)
    assert edge == pytest.approx(float(right(7).split()[-1]))
    p8 = speedup.Params(batch=256, m=4)
    v = speedup.verification(p8, 4)
    assert v == pytest.approx(1280 / 295.2, rel=0.01) and "1,280" in right(8)


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_section_reads_without_scripts(lang: str) -> None:
    section = quiz.section(lang)
    assert section.html.count("<fieldset") == section.html.count("<details") == 8
    for question in quiz.questions(lang):
        assert question.why.split("<")[0][:20] in section.html
    assert "{figure}" not in section.html and "<script" not in section.html
