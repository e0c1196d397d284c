"""The closing questions, as one more section of the article: HTML that works without scripts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import content
import figures
from app.rendering import template


@dataclass(frozen=True)
class Question:
    """One question. answer: index of the right option, from 0; figure: where to try it."""

    number: int
    text: str
    options: tuple[str, ...]
    answer: int
    why: str
    figure: str


@cache
def questions(lang: str) -> tuple[Question, ...]:
    """Return the questions of one language (`content/<lang>/quiz.toml`), in order."""
    words = content.strings(lang)
    found = []
    number = 1
    while f"quiz.{number}.question" in words:
        key = f"quiz.{number}"
        options: list[str] = []
        while f"{key}.option.{len(options) + 1}" in words:
            options.append(words[f"{key}.option.{len(options) + 1}"])
        found.append(
            Question(
                number=number,
                text=words[f"{key}.question"],
                options=tuple(options),
                answer=int(words[f"{key}.answer"]) - 1,
                why=words[f"{key}.why"],
                figure=words[f"{key}.figure"],
            )
        )
        number += 1
    return tuple(found)


@cache
def section(lang: str) -> content.Section:
    """Return the section with all questions."""
    words = content.strings(lang)
    names = {
        figure: words["ui.figure"].format(number=number)
        for number, figure in enumerate(figures.IDS, start=1)
    }
    html = template("quiz.html").render(words=words, questions=questions(lang), names=names)
    return content.Section(id="quiz", part=0, title=words["quiz.title"], html=html)
