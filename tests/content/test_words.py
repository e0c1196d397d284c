"""Strings, glossary and numbers: complete in each language, and right."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import content
from content import LANGUAGES, ContentError
from content.errors import ROOT
from content.facts import evaluate, shown
from content.words import read_toml

SCALES = {
    "TB/s": 1e12, "TFLOP/s": 1e12, "GFLOP": 1e9, "GB": 1e9, "MB": 1e6, "ms": 1e-3, "%": 1e-2,
    "billion": 1e9, "亿": 1e8,
}  # fmt: skip
SPELLED = {"Forty-two milliseconds": 0.042, "a seventh of a millisecond": 1e-3 / 7}


def places(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_every_key_exists_in_every_language_with_the_same_places() -> None:
    first, *others = (content.strings(lang) for lang in LANGUAGES)
    for other in others:
        assert set(first) == set(other)
        different = [key for key in first if places(first[key]) != places(other[key])]
        assert not different


def test_a_missing_string_is_named() -> None:
    with pytest.raises(ContentError, match=r"content/en: no string named 'ui\.sing'"):
        content.strings("en")["ui.sing"]


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown language 'fr'"):
        content.strings("fr")


def test_every_number_has_a_name_and_every_name_a_number() -> None:
    for lang in LANGUAGES:
        names = {key for key in content.strings(lang) if key.startswith("number.")}
        assert names == {f"number.{key}" for key in content.numbers()}


def test_looked_up_numbers_have_a_page_and_a_date() -> None:
    for number in content.numbers().values():
        assert bool(number.url) == bool(number.accessed), number.key
        assert not number.url or number.url.startswith("https://"), number.key


def test_derived_numbers_match_a_hand_calculation() -> None:
    value = {key: number.value for key, number in content.numbers().items()}
    assert value["model70b.weights"] == 140e9
    assert value["model70b.read_time"] == pytest.approx(41.791e-3, rel=1e-5)
    assert value["model70b.flops_per_token"] == 140e9
    assert value["model70b.compute_time"] == pytest.approx(0.141557e-3, rel=1e-5)
    assert value["h100.knee"] == pytest.approx(295.2239, rel=1e-6)
    assert value["toy.equal_samples"] == pytest.approx(0.43)
    assert value["toy.accepted"] == pytest.approx(0.8)
    assert value["report.greedy_out"] == pytest.approx(0.75)
    assert value["example.rows4"] == 160
    assert value["example.rows8"] == 288


def stated_numbers() -> list[tuple[str, str, str]]:
    found = []
    for lang in LANGUAGES:
        for path in sorted((ROOT / lang).glob("*.md")):
            for words, key in re.findall(r"\[([^]]+)\]\(num:([^)]+)\)", path.read_text("utf-8")):
                found.append((f"{lang}/{path.name}", words, key))
    return found


def read_number(words: str) -> tuple[float, float]:
    """The value that the words state, and half a unit of their last digit."""
    found = re.search(r"\d[\d,]*(?:\.(\d+))?", words)
    assert found, words
    digits = float(found[0].replace(",", ""))
    scale = next((s for unit, s in SCALES.items() if unit in words), 1.0)
    return digits * scale, 0.5000001 * scale * 10 ** -len(found[1] or "")


@pytest.mark.parametrize(("where", "words", "key"), stated_numbers())
def test_prose_states_the_number_it_links_to(where: str, words: str, key: str) -> None:
    actual = content.numbers()[key].value
    if words in SPELLED:
        assert SPELLED[words] == pytest.approx(actual, rel=0.02)
        return
    stated, slack = read_number(words)
    assert abs(stated - actual) <= slack, f"{where}: {words!r} but {key} = {actual}"


def test_best_m_of_the_example_is_the_best() -> None:
    alpha, c, v = (content.numbers()[f"example.{name}"].value for name in ("alpha", "c", "v"))
    speedup = {m: sum(alpha**i for i in range(m + 1)) / (m * c + v) for m in range(1, 65)}
    assert max(speedup, key=lambda m: speedup[m]) == content.numbers()["example.best_m"].value


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (140e9, "FLOP", "140 GFLOP"),
        (2, "B", "2 B"),
        (0.0417910, "s", "41.79 ms"),
        (141.557e-6, "s", "141.6 µs"),
        (295.2239, "", "295.2"),
        (70e9, "", "70 × 10⁹"),
        (10000, "", "10,000"),
        (22.16, "tokens/s", "22.16 tokens/s"),
        (0, "", "0"),
    ],
)
def test_values_are_shown_with_prefixes(value: float, unit: str, expected: str) -> None:
    assert shown(value, unit) == expected


def test_formulas_are_arithmetic_and_nothing_else() -> None:
    known = {"a.b": 3.0, "c": 2.0}
    assert evaluate("a.b * c ** 2 - min(c, 1) / 4", known.__getitem__) == 11.75
    for bad in ("a.b if c else 1", "__import__('os')", "c.real()", "max(c, key=1)", "abs(c)"):
        with pytest.raises(ValueError, match="not arithmetic"):
            evaluate(bad, known.__getitem__)
    with pytest.raises(KeyError):
        evaluate("unknown + 1", known.__getitem__)


def test_broken_number_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "numbers.toml"
    monkeypatch.setattr("content.facts.NUMBERS_FILE", file)
    for body, message in [
        ("[a]\nvalue = 1", "needs a source"),
        ('[a]\nvalue = 1\nsource = "x"\norigin = "example"', "needs a source"),
        ('[a]\nvalue = 1\nsource = "x"\nformula = "2"', "no value of its own"),
        ('[a]\nformula = "b + 1"', "no number named b"),
        ('[a]\nformula = "b"\n[b]\nformula = "a"', "depends on itself"),
        ('[a]\nformula = "1 / 0"', "division by zero"),
        ("a = 1", "stands outside"),
        ("[a", r"numbers\.toml"),
    ]:
        file.write_text(body, encoding="utf-8")
        with pytest.raises(ContentError, match=message):
            content.facts.numbers.__wrapped__()


def test_a_missing_or_wrong_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match=r"gone\.toml: the file is missing"):
        read_toml(tmp_path / "gone.toml")


def test_glossary_terms_are_all_used_in_each_language() -> None:
    for lang in LANGUAGES:
        prose = "".join(p.read_text("utf-8") for p in (ROOT / lang).glob("*.md"))
        used = set(re.findall(r"\(term:([a-z0-9-]+)\)", prose))
        defined = {k.split(".")[1] for k in content.strings(lang) if k.startswith("term.")}
        assert used == defined, lang
