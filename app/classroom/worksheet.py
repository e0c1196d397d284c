"""The work sheet: two pages of tasks from the figures' own bets and puzzles, to print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

import content
import figures
from app import page
from app.places import Served
from app.rendering import template
from figures.figure import Figure
from figures.race import model as race
from figures.text import fixed, num, times

#: Figures on a page; part 1 of the article fills the first one.
ROWS = 4


@dataclass(frozen=True)
class Task:
    """One row of the sheet. right: index of the option that is true; why and solution: answers."""

    id: str
    number: int
    title: str
    question: str
    options: tuple[str, ...]
    right: int
    why: str
    puzzle: str
    solution: str


def tasks(lang: str, recording: str) -> list[Task]:
    """Return the tasks of all figures in their order.

    Args:
        lang: one of `content.LANGUAGES`.
        recording: which one the race shows decides how its bet ends; the first one if there is
            none of that name.
    """
    made = []
    for number, figure in enumerate(figures.every(), start=1):
        words = figure.words(lang)
        keys = [k for k in sorted(words) if k.startswith("bet.option.")]
        right, why = _outcome(figure, words, recording)
        made.append(
            Task(
                id=figure.id,
                number=number,
                title=words["title"],
                question=words["bet.question"],
                options=tuple(words[key] for key in keys),
                right=right,
                why=why,
                puzzle=words["puzzle.text"],
                solution=words["puzzle.answer"],
            )
        )
    return made


def _outcome(figure: type[Figure], words: dict[str, str], recording: str) -> tuple[int, str]:
    """Return the right option of a bet and why; the race's is measured in the recording on show."""
    if figure.bet_answer is not None:
        return figure.bet_answer, words["bet.why"]
    shown: Any = figure.parse({"race.recording": recording})[0]
    stats = shown.run().end["stats"]
    measured, tokens = stats["speedup"]["measured"], stats["tokens_per_pass"]
    alpha = race.number(stats, "acceptance", "alpha")  # None where a server does not count
    values = {
        "speedup": times(measured),
        "cost": num(tokens / measured),
        "tokens": num(tokens),
        "alpha": "–" if alpha is None else fixed(alpha),
    }
    return race.bet(measured), words["bet.why"].format(**values)


def sheet(lang: str, recording: str, *, answers: bool, base: str) -> str:
    """Return the page. `base`: address of the app on its server."""
    place = Served(base)
    every = tasks(lang, recording)
    words = content.strings(lang)
    return template(
        "worksheet.html"
    ).render(
        lang=lang,
        html_lang=content.tag(lang),
        place=place,
        modules=Markup(place.modules),  # noqa: S704
        languages=content.LANGUAGES,
        words=words,
        title=content.article(lang).title,
        answers=answers,
        letters="ABCDEFGH",
        pages=[every[i : i + ROWS] for i in range(0, len(every), ROWS)],
        boot=page.script_json(
            {
                "base": base,
                "strings": page.interface(lang),
                "figures": {spec["id"]: spec for spec in page.specs(lang, place)},
            }
        ),
    )
