"""The mask figure: its state, its words, its table, its record."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, ClassVar

import param

from figures.figure import Figure
from figures.mask import model
from figures.text import num, percent


@cache
def _record() -> dict[str, Any]:
    """Read what `python -m kernels mask` wrote."""
    found: dict[str, Any] = json.loads(Mask.records()["default"].read_text("utf-8"))
    return found


class Mask(Figure):
    """Inputs and outputs of one verification pass, and who sees whom."""

    id = "mask"
    bet_answer = 2
    units: ClassVar[dict[str, str]] = {"m": "tokens"}

    sentence = param.String(
        "The capital of France is Paris, and the capital of Italy is",
        doc="The last m tokens play the draft. The default sentence has recorded tensors.",
    )
    m = param.Integer(4, bounds=(1, model.M_MAX), doc="Drafted tokens that the pass checks.")
    output = param.Integer(
        3, bounds=(0, model.M_MAX + 1), doc="The output pointed at, from 1; 0 for none."
    )
    reject = param.Integer(
        0,
        bounds=(0, model.NONE_REJECTED),
        doc="0: not judged; i: drafted token i is the first rejected; above m: none is.",
    )

    @classmethod
    def data(cls) -> dict[str, Any]:
        """Return the record: it holds the tokens, so the figure cannot be drawn without it."""
        return {"record": _record()}

    def recorded(self) -> bool:
        """Return whether the sentence is the one that the record is about."""
        return self.sentence == _record()["sentence"] or len(model.tokenize(self.sentence)) < 2

    def verification(self) -> model.Pass:
        """Return the pass that the figure shows."""
        if self.recorded():
            tokens = [token["text"] for token in _record()["tokens"]]
        else:
            tokens = model.tokenize(self.sentence)
        return model.verification(tokens, m=self.m, output=self.output, reject=self.reject)

    def describe(self, lang: str) -> str:
        """Say what the output pointed at sees and checks, and what a verdict means."""
        words, p = self.words(lang), self.verification()
        sentences = []
        if p.selected == 0:
            sentences.append(words["say.none"].format(count=p.m + 1))
        else:
            output = p.outputs[p.selected - 1]
            key = "bonus" if not output.checks else "first" if output.index == 1 else "check"
            token = quoted(p.tokens[output.position + 1], lang) if output.checks else ""
            sentences.append(
                words[f"say.{key}"].format(
                    index=output.index,
                    here=quoted(p.tokens[output.position], lang),
                    sees=output.sees,
                    inputs=len(p.tokens),
                    before=output.index - 1,
                    m=p.m,
                    token=token,
                )
            )
            if self.recorded():
                row = _row(_record(), output.position)
                choice = quoted(row["text"], lang)
                if not output.checks:
                    sentences.append(words["say.free"].format(choice=choice))
                elif row["id"] == _record()["tokens"][output.position + 1]["id"]:
                    sentences.append(words["say.same"])
                else:
                    share = percent(row["next"]["p"], 1)
                    sentences.append(words["say.other"].format(choice=choice, token=token, p=share))
        if p.gained:
            key = "rejected" if p.rejected else "accepted"
            sentences.append(
                words[f"say.{key}"].format(rejected=p.rejected, gained=p.gained, m=p.m)
            )
            if self.recorded() and (greedy := self.greedy(p)) != p.rejected:
                key = "greedy" if greedy else "greedy_none"
                sentences.append(words[f"say.{key}"].format(index=greedy))
        return ("" if lang == "zh" else " ").join(sentences)

    @staticmethod
    def greedy(p: model.Pass) -> int:
        """Return the first drafted token that is not the recorded model's first choice, or 0."""
        tokens = _record()["tokens"]
        return next(
            (
                o.checks
                for o in p.outputs
                if o.checks and _row(_record(), o.position)["id"] != tokens[o.position + 1]["id"]
            ),
            0,
        )

    def table(self, lang: str) -> list[list[str]]:
        """Return a row an output."""
        words, p = self.words(lang), self.verification()
        recorded = self.recorded()
        columns = ["output", "on", "sees", "checks", "fate"]
        rows = [[words[f"table.{c}"] for c in [*columns, *["choice", "difference"] * recorded]]]
        together = _record()["engines"][0]["together"][p.m - 1]["rows"]
        for output in p.outputs:
            row = [
                str(output.index),
                p.tokens[output.position].strip(),
                str(output.sees),
                p.tokens[output.position + 1].strip() if output.checks else words["what.bonus"],
                words[f"fate.{output.fate}"],
            ]
            if recorded:
                found = together[output.index - 1]
                row += [found["text"].strip(), num(found["difference"], 2)]
            rows.append(row)
        return rows


def quoted(token: str, lang: str) -> str:
    """Return a token in the quotation marks of the language, without the space it carries."""
    return f"“{token.strip()}”" if lang == "zh" else f"‘{token.strip()}’"


def _row(record: dict[str, Any], position: int) -> dict[str, Any]:
    """Return what our engine said at `position`, computed alone."""
    alone: list[dict[str, Any]] = record["engines"][0]["alone"]
    return alone[position - alone[0]["position"]]


FIGURE = Mask
