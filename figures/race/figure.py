"""The race figure: what a reader may set, and the words and numbers of a recording."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any, ClassVar

import param

from figures.figure import Figure
from figures.race import model
from figures.text import duration, fixed, num, times
from kernels.prompts import prompts as english_prompts

RECORDINGS = sorted(path.stem for path in model.RECORDED.glob("*.json"))
#: The one that stands there untouched: text that the draft guesses well.
FIRST = "list"


@cache
def prompts() -> list[dict[str, str]]:
    """Return the prompts to choose from, easy ones first: id, text, level, lang.

    English ones are those that the bench measures, so their level is a measurement.
    """
    chinese = tomllib.loads(model.RECORDED.with_name("chinese.toml").read_text("utf-8"))
    return [
        *({"id": p.id, "text": p.text, "level": p.level, "lang": "en"} for p in english_prompts()),
        *(
            {k: p[k] for k in ("id", "text")} | {"level": "", "lang": "zh"}
            for p in chinese["prompt"]
        ),
    ]


class Race(Figure):
    """Two lanes of real passes on one clock: a recording, or two models of this server."""

    id = "race"
    units: ClassVar[dict[str, str]] = {
        "m": "tokens",
        "length": "tokens",
        "top_k": "tokens",
        "speed": "seconds of the race a second",
    }
    #: t: seconds on the lanes' clocks, None for where a run opens. follow: keep up with a live
    #: race. focus: the pass that the reader has pinned, [lane, index].
    private: ClassVar[dict[str, Any]] = {"t": None, "follow": True, "focus": None}

    mode = param.Selector(
        default="recorded", objects=["recorded", "live"], doc="Choose a recording, or race here."
    )
    recording = param.Selector(
        default=FIRST if FIRST in RECORDINGS else (RECORDINGS or [""])[0],
        objects=RECORDINGS or [""],
        doc="Which recording to play.",
    )
    prompt = param.String("", doc="Prompt of a live race; empty: the first of the list.")
    chat = param.Boolean(True, doc="Wrap the prompt in the target's chat template.")
    m = param.Integer(4, bounds=(1, 16), doc="Drafted tokens a round.")
    adaptive = param.Boolean(False, doc="Let m follow how well guessing goes.")
    drafter = param.Selector(
        default="both", objects=["both", "model", "lookup"], doc="Who guesses."
    )
    temperature = param.Number(
        0.0, bounds=(0.0, 2.0), step=0.1, doc="0: always the most probable token."
    )
    top_k = param.Integer(0, bounds=(0, 1000), doc="Keep the k most probable tokens; 0: all.")
    top_p = param.Number(
        1.0, bounds=(0.05, 1.0), step=0.05, doc="Keep the most probable tokens up to this mass."
    )
    seed = param.Integer(0, bounds=(0, 999999), doc="Seed of the draws.")
    length = param.Integer(96, bounds=(8, 512), step=8, doc="New tokens at most.")
    pair = param.String("embedded", doc="Which of the server's pairs of models races.")
    speed = param.Number(1.0, bounds=(0.1, 4.0), doc="Pace of the playback.")
    close = param.Boolean(False, doc="Show the time strips close up, following the playback.")
    keep = param.Boolean(False, doc="Leave rejected tokens in the text.")

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return the prompts and the names of the recordings."""
        return {"prompts": prompts(), "recordings": RECORDINGS}

    def run(self) -> model.Run:
        """Return the chosen recording."""
        return model.recording(model.RECORDED / f"{self.recording}.json")

    def describe(self, lang: str) -> str:
        """Say how the chosen recording ends."""
        words, run = self.words(lang), self.run()
        return sentence(words, model.moment(run, run.duration), lang)

    def table(self, lang: str) -> list[list[str]]:
        """Return what was measured, lane beside lane, then the quantities of the formula."""
        return rows(self.words(lang), self.run().end["stats"])


def sentence(words: dict[str, str], parts: list[tuple[str, dict[str, str]]], lang: str) -> str:
    """Return the sentences of a moment as text."""
    texts = [words[key].format(**values) for key, values in parts]
    return ("" if lang == "zh" else " ").join(texts)


def rows(words: dict[str, str], stats: dict[str, Any]) -> list[list[str]]:
    """Return the statistics of a run as rows of text; `table.js` writes the same."""

    def value(lane: str, name: str, form: Any) -> str:
        found = model.number(stats, lane, name)
        return "–" if found is None else form(found)

    def pair(name: str, form: Any = num) -> list[str]:
        cells = [value("plain", name, form), value("speculative", name, form)]
        return [words[f"table.{name}"], *cells]

    def single(label: str, *names: str, form: Any = num) -> list[str]:
        found = model.number(stats, *names)
        return [words[label], "", "–" if found is None else form(found)]

    whole = lambda x: num(x, 6)  # noqa: E731
    low, high = model.number(stats, "acceptance", "low"), model.number(stats, "acceptance", "high")
    alpha = model.number(stats, "acceptance", "alpha")
    interval = (
        "–"
        if alpha is None or low is None or high is None
        else f"{fixed(alpha)} ({fixed(low)}–{fixed(high)})"
    )
    table = [
        [words["table.quantity"], words["lane.plain"], words["lane.speculative"]],
        pair("tokens", whole),
        pair("clock_s", duration),
        pair("first_token_s", duration),
        pair("tokens_per_s"),
        pair("target_passes", whole),
        pair("overhead_s", duration),
    ]
    for name in ("drafted", "accepted", "rejected", "supplied", "bonus"):
        table.append([words[f"table.{name}"], "", value("speculative", name, whole)])
    table += [
        [words["table.alpha"], "", interval],
        single("table.m", "m"),
        single("table.c", "c"),
        single("table.v", "v"),
        single("table.tokens_per_pass", "tokens_per_pass"),
    ]
    for name, speedup in model.ladder(stats) or []:
        if name != "tokens":
            table.append([words[f"table.{name}"], "", times(speedup)])
    return table


FIGURE = Race
