"""The claims that `test_lossless.py` proves, as functions: each raises AssertionError if broken.

They are apart from the tests so that `test_mutants.py` can run them against broken engines and see
them fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from kernels import acceptance, randomness
from kernels.race import encode_prompt, speculative_lane
from kernels.sampling import distribution, draw
from kernels.settings import Settings
from tests.kernels.branches import exact_distribution
from tests.kernels.fakes import (
    FakePair,
    LetterTokenizer,
    TabularDecoder,
    exact_sequences,
    greedy_sequence,
    random_table,
    run_lane,
)

PROMPT, IDS = "ab", [0, 1]


def pair(size: int, *, seed: int = 0, zeros: float = 0.0, order: int = 1, **draft: Any) -> FakePair:
    """Two Markov models over `size` tokens that disagree a good deal."""
    return FakePair(
        TabularDecoder(random_table(seed, size, order, zeros=zeros)),
        TabularDecoder(random_table(seed + 50, size, order, zeros=zeros), **draft),
    )


def target_row(models: FakePair, settings: Settings, text: Sequence[int]) -> np.ndarray:
    """p after `text`; `test_sampling.py` checks `distribution` against transformers."""
    return distribution(models.target.row(text), settings, text)


def assert_same(
    got: dict[Any, float], expected: dict[Any, float], tolerance: float = 1e-12
) -> None:
    assert math.isclose(sum(got.values()), 1, abs_tol=tolerance)
    for key in got.keys() | expected.keys():
        assert abs(got.get(key, 0.0) - expected.get(key, 0.0)) <= tolerance, key


def whole_texts(models: FakePair, settings: Settings) -> None:
    """Every text comes out with exactly the target's probability, over all rounds."""

    def program() -> tuple[int, ...]:
        lane, _ = run_lane(models, settings)
        return tuple(lane.transcript.new_tokens)

    expected = exact_sequences(
        lambda text: target_row(models, settings, text), IDS, settings.length
    )
    assert_same(exact_distribution(program), expected)


def one_round(models: FakePair, settings: Settings) -> None:
    """One round, continued by the target itself, has exactly the target's distribution.

    By induction so has any number of rounds; this reaches sizes where enumerating whole texts
    would take hours.
    """
    assert isinstance(settings.m, int)
    length = 2 + settings.m  # first token, m guesses, bonus

    def program() -> tuple[int, ...]:
        lane = speculative_lane(models, encode_prompt(models, settings), settings)
        for item in lane.passes:
            if item.kind in ("verify", "decode"):
                if settings.drafter == "model":
                    assert item.rows == settings.m + 1
                break
        return tuple(lane.transcript.new_tokens)

    completed: dict[tuple[int, ...], float] = {}
    for start, weight in exact_distribution(program).items():
        rest = exact_sequences(
            lambda text: target_row(models, settings, text), [*IDS, *start], length - len(start)
        )
        for tokens, probability in rest.items():
            text = start + tokens
            completed[text] = completed.get(text, 0.0) + weight * probability
    expected = exact_sequences(lambda text: target_row(models, settings, text), IDS, length)
    assert_same(completed, expected)


def exact_small_case() -> None:
    """One case small enough to run for every mutant."""
    whole_texts(pair(2), Settings(PROMPT, m=2, length=4, temperature=1.0, drafter="model"))


def exact_lookup_case() -> None:
    """The same for look-up, whose q is one-hot. The prompt repeats, so it has guesses."""
    models = pair(2)
    settings = Settings("abababab", m=3, length=5, temperature=1.0, drafter="lookup")

    def program() -> tuple[int, ...]:
        lane, passes = run_lane(models, settings)
        used.append(any(item.kind == "draft" for item in passes))
        return tuple(lane.transcript.new_tokens)

    used: list[bool] = []
    expected = exact_sequences(
        lambda text: target_row(models, settings, text), [0, 1] * 4, settings.length
    )
    assert_same(exact_distribution(program), expected)
    assert any(used)


def exact_adaptive_case() -> None:
    """The adaptive length must not look at the guesses it lets through."""
    whole_texts(pair(2), Settings(PROMPT, m="adaptive", length=5, temperature=1.0, drafter="model"))


def sampled_pairs(runs: int = 800, length: int = 5, m: int = 2) -> None:
    """χ² over neighbouring tokens, across round boundaries, with the real random numbers.

    The exact probability of each pair of tokens at places (i, i + 1) is known; the statistic of
    all runs is below its 99.99 % quantile. The seeds are fixed, so this does not flicker.
    """
    models = pair(3, seed=2)
    counts = np.zeros((length - 1, 3, 3))
    for seed in range(runs):
        s = Settings(PROMPT, m=m, length=length, temperature=1.0, drafter="model", seed=seed)
        tokens = run_lane(models, s)[0].transcript.new_tokens
        for i, both in enumerate(itertools.pairwise(tokens)):
            counts[i][both] += 1
    s = Settings(PROMPT, temperature=1.0)
    transition = np.stack([target_row(models, s, [t]) for t in range(3)])
    place = transition[IDS[-1]]
    for i in range(length - 1):
        expected = runs * place[:, None] * transition
        statistic = float(((counts[i] - expected) ** 2 / expected).sum())
        assert statistic < stats.chi2.ppf(0.9999, 8), f"places {i} and {i + 1}: {statistic:.1f}"
        place = place @ transition


def numbers_are_fresh() -> None:
    """No random number decides twice, in many rounds of both drafters."""
    asked: list[tuple[Any, ...]] = []
    values: list[float] = []
    real = randomness.Randomness.uniform

    def uniform(self: Any, *arguments: Any) -> float:
        asked.append((self._key.tolist(), *arguments))
        values.append(real(self, *arguments))
        return values[-1]

    settings = Settings(PROMPT, m=3, length=40, temperature=1.0, seed=9, drafter="model")
    with_patch = randomness.Randomness
    original = with_patch.uniform
    with_patch.uniform = uniform  # type: ignore[method-assign]
    try:
        for lane in ("plain", "speculative"):
            run_lane(pair(5), settings, lane)
    finally:
        with_patch.uniform = original  # type: ignore[method-assign]
    assert len(values) > 100
    assert len({str(key) for key in asked}) == len(asked), "a number was asked for twice"
    assert len(set(values)) == len(values), "two decisions share a number"


def greedy_text() -> None:
    """A draft that is sometimes right changes nothing at temperature 0."""
    models = pair(5, order=2)
    for m in (1, 3, 4):
        lane, _ = run_lane(models, Settings(PROMPT, m=m, length=40, drafter="both"))
        assert lane.transcript.new_tokens == greedy_sequence(models.target, IDS, 40)


def ends_inside_blocks() -> None:
    """An end token ends the text wherever in a block it stands, for every place."""
    target = TabularDecoder(random_table(0, 12, 2))
    greedy = greedy_sequence(target, IDS, 12)
    for end in greedy:
        target.end_tokens = (end,)
        models = FakePair(target, TabularDecoder(target.table), LetterTokenizer((end,)))
        lane, passes = run_lane(models, Settings(PROMPT, m=4, length=12, drafter="model"))
        expected = greedy[: greedy.index(end) + 1]
        assert lane.transcript.new_tokens == expected
        reported = [t for p in passes for t in p.tokens if t.origin not in ("drafted", "rejected")]
        assert [t.id for t in reported] == expected


def caches_hold_the_text() -> None:
    """After each round the target's cache is the text but its last token; the draft's, a prefix."""
    models = pair(5, order=2)
    settings = Settings(PROMPT, m=4, length=30, temperature=1.0, drafter="model")
    lane = speculative_lane(models, encode_prompt(models, settings), settings)
    (ours,), (theirs,) = models.target.caches, models.draft.caches
    drafted: list[int] = []
    for item in lane.passes:
        text = lane.transcript.tokens
        if item.kind == "draft":
            assert theirs.slots[: theirs.length] == text + drafted
            drafted += [token.id for token in item.tokens]
        elif item.kind in ("verify", "decode"):
            assert ours.slots[: ours.length] == text[:-1]
            drafted.clear()


def counts_add_up() -> None:
    """T14: accepted + supplied + bonus + target = tokens, also where the text ends in a block."""
    for seed in range(40):
        models = pair(4, seed=seed)
        models.target.end_tokens = (3,)
        models.tokenizer = LetterTokenizer((3,))
        settings = Settings(PROMPT, m=4, length=11, temperature=1.0, seed=seed)
        lane = speculative_lane(models, encode_prompt(models, settings), settings)
        for item in lane.passes:
            lane.log.add(item, item.end)
        origins = lane.log.origins
        emitted = sum(origins.get(o, 0) for o in ("accepted", "supplied", "bonus", "target"))
        assert emitted == lane.log.tokens == lane.transcript.emitted
        judged = origins.get("accepted", 0) + origins.get("rejected", 0)
        assert judged <= lane.log.drafted
        assert origins.get("rejected", 0) == origins.get("supplied", 0)
        assert origins.get("bonus", 0) + origins.get("supplied", 0) <= lane.log.rounds


def edges_of_the_draws() -> None:
    """u = 0 and u almost 1, impossible tokens, residuals that sum to 1."""
    assert not acceptance.accepts(0.0, 0.5, 0.0)
    assert acceptance.accepts(0.5, 0.5, 1 - 2.0**-53)
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.2, 0.3, 0.1, 0.4])
    r = acceptance.residual(p, q)
    np.testing.assert_allclose(r, [0.75, 0, 0.25, 0], atol=1e-15)
    np.testing.assert_array_equal(acceptance.residual(p, p), p)
    for u in (0.0, 0.5, 1 - 2.0**-24, 1 - 2.0**-53):
        for weights in ([0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 1e-300], [0.1] * 10 + [0.0]):
            token = draw(np.array(weights), u)
            assert weights[token] > 0


PROOFS = (
    exact_small_case,
    exact_lookup_case,
    exact_adaptive_case,
    sampled_pairs,
    numbers_are_fresh,
    greedy_text,
    ends_inside_blocks,
    caches_hold_the_text,
    counts_add_up,
    edges_of_the_draws,
)
