"""The mask figure: structure against brute force, words, and the record that it ships."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import content
from figures.mask import model
from figures.mask.figure import FIGURE, Mask

RECORD = json.loads(FIGURE.records()["default"].read_text("utf-8"))


@given(st.integers(2, 20), st.integers(1, model.M_MAX), st.integers(0, 9), st.integers(0, 9))
def test_who_sees_whom_is_a_lower_triangle(n: int, m: int, output: int, reject: int) -> None:
    tokens = [f"t{i}" for i in range(n)]
    p = model.verification(tokens, m=m, output=output, reject=reject)
    m = p.m
    assert m == min(m, n - 1)
    # The mask of an attention layer over the whole sentence; the pass has its last m + 1 rows.
    triangle = np.tril(np.ones((n, n), bool))[-m - 1 :]
    ours = np.array([[i < o.sees for i in range(n)] for o in p.outputs])
    assert (triangle == ours).all()
    assert [o.position for o in p.outputs] == list(range(n - m - 1, n))
    assert [o.checks for o in p.outputs] == [*range(1, m + 1), 0]
    # An output is void exactly when it has seen the rejected token, whatever the numbering.
    if p.rejected:
        lost = p.context + p.rejected - 1
        assert [o.fate == "void" for o in p.outputs] == list(ours[:, lost])
    assert 0 <= p.selected <= m + 1


@pytest.mark.parametrize(
    ("reject", "fates", "drafts", "gained"),
    [
        (0, "open open open open", "open open open", 0),
        (1, "supplied void void void", "rejected void void", 1),
        (2, "accepted supplied void void", "accepted rejected void", 2),
        (3, "accepted accepted supplied void", "accepted accepted rejected", 3),
        (4, "accepted accepted accepted bonus", "accepted accepted accepted", 4),
        (9, "accepted accepted accepted bonus", "accepted accepted accepted", 4),
    ],
)
def test_verdicts_by_hand(reject: int, fates: str, drafts: str, gained: int) -> None:
    p = model.verification(list("abcdef"), m=3, output=1, reject=reject)
    assert " ".join(o.fate for o in p.outputs) == fates
    assert " ".join(p.drafts) == drafts
    assert p.gained == gained
    # What the text grows by is what was accepted and the one token after it.
    kept = sum(o.fate in ("accepted", "supplied", "bonus") for o in p.outputs)
    assert kept == (gained if reject else 0)


def test_one_token_is_always_left_for_the_context() -> None:
    p = model.verification(["a", "b"], m=8, output=9, reject=0)
    assert (p.m, p.context, p.selected) == (1, 1, 2)
    with pytest.raises(ValueError, match="two tokens"):
        model.verification(["a"], m=1, output=0, reject=0)


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("", []),
        ("  one  two ", ["one", " two"]),
        ("don't stop!", ["don't", " stop", "!"]),
        ("先猜，再验证", ["先", "猜", "，", "再", "验", "证"]),
        ("用 GPU 算", ["用", " GPU", " 算"]),
        ("a\u3000b\tc\nd", ["a", " b", " c", " d"]),
        ("😀 x<b>", ["😀", " x", "<", "b", ">"]),
    ],
)
def test_tokenize(sentence: str, tokens: list[str]) -> None:
    assert model.tokenize(sentence) == tokens
    assert "".join(tokens) == re.sub(r"[ \t\n\u3000]+", " ", sentence).strip()


def test_the_record_is_the_default_sentence_and_holds_its_claims() -> None:
    assert Mask().sentence == RECORD["sentence"] == "".join(t["text"] for t in RECORD["tokens"])
    assert RECORD["schema"] == "speculative-decoding-live/mask/1"
    assert {"device", "created", "versions", "command", "model"} <= RECORD.keys()
    n, roles = len(RECORD["tokens"]), [e["role"] for e in RECORD["engines"]]
    assert roles == ["target", "witness"]
    for engine in RECORD["engines"]:
        assert [row["position"] for row in engine["alone"]] == list(range(n - 9, n))
        assert [run["m"] for run in engine["together"]] == list(range(1, 9))
        for run in engine["together"]:
            single = engine["alone"][-run["m"] - 1 :]
            assert [row["id"] for row in run["rows"]] == [row["id"] for row in single]
            assert all(row["difference"] < 1e-3 for row in run["rows"])
    # Two engines without a line in common choose the same tokens.
    first, second = (e["alone"] for e in RECORD["engines"])
    assert [row["id"] for row in first] == [row["id"] for row in second]
    assert max(RECORD["engines_apart"]) < 0.05


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_words(lang: str) -> None:
    default = Mask().describe(lang)
    assert all(word in default for word in ("11", "13", "Italy", "France", "6.5%"))
    judged = Mask(reject=2).describe(lang)
    # The recorded model would have kept draft 2 and refused draft 3.
    assert "3" in judged.rsplit(" ", 4)[-4:] or "3" in judged[-12:]
    assert Mask(output=5).describe(lang).count("Rome") == 1
    assert len({Mask(output=o, reject=r).describe(lang) for o in range(6) for r in range(6)}) == 36
    short, other = Mask(sentence="hm"), Mask(sentence="one two three four five six", m=3)
    assert short.table(lang) == Mask().table(lang)
    assert len(other.table(lang)) == 5
    assert len(other.table(lang)[0]) == len(Mask().table(lang)[0]) - 2
    for figure in (short, other, Mask(output=0), Mask(output=1, m=8, reject=9)):
        assert "{" not in figure.describe(lang)


def test_every_word_is_used() -> None:
    sources = "".join(p.read_text("utf-8") for p in Path(FIGURE.folder()).iterdir() if p.is_file())
    families = {
        "say": ["say.${key}"],
        "fate": ["fate.${o.fate}"],
        "table": ["table.${c}"],
        "control": ["control.${key}"],
        "proof": ["proof.${c}"],
    }
    for key in FIGURE.words("en"):
        stem = key.split(".")[0]
        if key in ("title", "try", "caption") or stem in ("bet", "puzzle", "ui"):
            continue
        assert f'"{key}"' in sources or any(f in sources for f in families.get(stem, [])), key
    for key in re.findall(r'\bt\("([a-z_.]+)"', sources):
        assert key in FIGURE.words("en"), key
    assert FIGURE.words("en").keys() == FIGURE.words("zh").keys()
