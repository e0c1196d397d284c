"""The work sheet's tasks: complete, and its answers those of the figures."""

from __future__ import annotations

import pytest

import content
import figures
from app.classroom import worksheet
from figures.race import model


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_every_figure_has_a_task_with_answers(lang: str) -> None:
    tasks = worksheet.tasks(lang, "")
    assert [task.id for task in tasks] == list(figures.IDS)
    for task in tasks:
        assert 2 <= len(task.options) <= 4 and len(set(task.options)) == len(task.options)
        assert 0 <= task.right < len(task.options)
        assert task.question and task.puzzle and task.solution and task.why
        assert "{" not in task.why + task.solution
        known = figures.get(task.id).bet_answer
        assert known is None or known == task.right


def test_the_races_answer_is_that_of_the_recording_on_show() -> None:
    for path in sorted(model.RECORDED.glob("*.json")):
        stats = model.recording(path).end["stats"]
        task = worksheet.tasks("en", path.stem)[4]
        speedup = stats["speedup"]["measured"]
        low, high = [(0, 1), (1, 1.3), (1.3, 2), (2, 99)][task.right]
        assert low <= speedup < high, path.stem
        assert f"{speedup:.2f}×" in task.why


def test_an_unknown_recording_is_the_first_one() -> None:
    assert worksheet.tasks("en", "../../etc/passwd") == worksheet.tasks("en", "")
