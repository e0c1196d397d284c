"""The proofs can fail: every way of getting the algorithm wrong that others went makes one red.

Each mutant replaces one small function and names the proofs of which at least one has to notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels import acceptance, drafters, sampling, speculative
from kernels.acceptance import Verdict
from kernels.drafters import ModelDrafter
from kernels.randomness import Randomness
from kernels.speculative import SpeculativeDecoding
from kernels.transcript import Transcript
from tests.kernels import proofs
from tests.kernels.fakes import FakeCache

Patch = pytest.MonkeyPatch


def softmax_residual(patch: Patch) -> None:
    """transformers #28508"""

    def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        e = np.exp(np.maximum(p - q, 0))
        return e / e.sum()

    patch.setattr(acceptance, "residual", residual)


def no_residual(patch: Patch) -> None:
    patch.setattr(acceptance, "residual", lambda p, q: p)


def residual_not_normalised(patch: Patch) -> None:
    patch.setattr(acceptance, "residual", lambda p, q: np.maximum(p - q, 0))


def residual_of_absolute_difference(patch: Patch) -> None:
    def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.abs(p - q) / np.abs(p - q).sum()

    patch.setattr(acceptance, "residual", residual)


def accepts_at_equality(patch: Patch) -> None:
    patch.setattr(acceptance, "accepts", lambda p, q, u: u * q <= p)


def accepts_by_q_over_p(patch: Patch) -> None:
    patch.setattr(acceptance, "accepts", lambda p, q, u: u * p < q)


def accepts_equal_tokens_only(patch: Patch) -> None:
    """Always argmax, whatever the temperature (sglang #31214)."""
    patch.setattr(
        speculative,
        "judge_sampled",
        lambda guesses, p, **_: acceptance.judge_greedy(guesses, lambda i: int(np.argmax(p(i)))),
    )


def q_of_the_next_token(patch: Patch) -> None:
    real = ModelDrafter._pick

    def pick(self: Any, *arguments: Any) -> Any:
        guess = real(self, *arguments)
        if guess.q is not None:
            guess.q = np.roll(guess.q, 1)
        return guess

    patch.setattr(ModelDrafter, "_pick", pick)


def q_at_another_temperature(patch: Patch) -> None:
    """The recorded q is not what was sampled from (transformers #47932, #40976)."""
    real = ModelDrafter._pick

    def pick(self: Any, *arguments: Any) -> Any:
        guess = real(self, *arguments)
        if guess.q is not None:
            guess.q = np.sqrt(guess.q) / np.sqrt(guess.q).sum()
        return guess

    patch.setattr(ModelDrafter, "_pick", pick)


def look_up_with_a_soft_q(patch: Patch) -> None:
    patch.setattr(drafters, "one_hot", lambda token, size: np.full(size, 1 / size))


def bonus_from_the_row_before(patch: Patch) -> None:
    real = SpeculativeDecoding.judge

    def judge(self: Any, guesses: Any, logits: np.ndarray) -> Verdict:
        rows = [*range(len(logits) - 1), max(0, len(logits) - 2)]
        return real(self, guesses, logits[rows])

    patch.setattr(SpeculativeDecoding, "judge", judge)


def rows_shifted_by_one(patch: Patch) -> None:
    real = SpeculativeDecoding.judge
    patch.setattr(
        SpeculativeDecoding,
        "judge",
        lambda self, guesses, logits: real(self, guesses, np.roll(logits, 1, axis=0)),
    )


def first_guess_never_verified(patch: Patch) -> None:
    """lattice #243"""
    real = acceptance.judge_greedy

    def judge(guesses: Any, best: Callable[[int], int]) -> Verdict:
        return real(guesses, lambda i: guesses[0].token if i == 0 and guesses else best(i))

    patch.setattr(speculative, "judge_greedy", judge)


def rejected_kept(patch: Patch) -> None:
    """speculative-decoding (lucidrains) #3"""

    def keep(real: Callable[..., Verdict]) -> Callable[..., Verdict]:
        def judge(*arguments: Any, **named: Any) -> Verdict:
            verdict = real(*arguments, **named)
            for place in verdict.places:
                if place.origin == "rejected":
                    place.origin = "accepted"
            return verdict

        return judge

    patch.setattr(speculative, "judge_greedy", keep(acceptance.judge_greedy))
    patch.setattr(speculative, "judge_sampled", keep(acceptance.judge_sampled))


def same_number_at_every_place(patch: Patch) -> None:
    """Two teaching repositories"""
    real = Randomness.uniform
    patch.setattr(
        Randomness, "uniform", lambda self, purpose, position, round_=0: real(self, purpose, 0, 0)
    )


def same_number_for_every_purpose(patch: Patch) -> None:
    real = Randomness.uniform
    patch.setattr(
        Randomness, "uniform", lambda self, purpose, place, round_=0: real(self, 1, place, round_)
    )


def same_numbers_in_every_round(patch: Patch) -> None:
    real = Randomness.uniform
    patch.setattr(
        Randomness, "uniform", lambda self, purpose, place, round_=0: real(self, purpose, place, 0)
    )


def lanes_share_numbers(patch: Patch) -> None:
    real = Randomness.__init__
    patch.setattr(Randomness, "__init__", lambda self, seed, lane: real(self, seed, "one"))


def draw_from_the_left(patch: Patch) -> None:
    def draw(p: np.ndarray, u: float) -> int:
        cumulative = np.cumsum(p)
        return int(np.searchsorted(cumulative, u * cumulative[-1], side="left"))

    for module in (sampling, acceptance, drafters, proofs):
        patch.setattr(module, "draw", draw)


def draw_past_the_end(patch: Patch) -> None:
    """A token id equal to the vocabulary's size (vllm #45060)"""

    def draw(p: np.ndarray, u: float) -> int:
        return int(np.searchsorted(np.cumsum(p), u, side="right"))

    patch.setattr(proofs, "draw", draw)


def end_token_ignored(patch: Patch) -> None:
    real = Transcript.__init__
    patch.setattr(
        Transcript,
        "__init__",
        lambda self, *a, end_tokens, **named: real(self, *a, end_tokens=(), **named),
    )


def end_token_seen_only_at_the_end_of_a_block(patch: Patch) -> None:
    """transformers #47912"""

    def commit(self: Any, verdict: Verdict) -> Any:
        finished = None
        tokens = []
        for place in verdict.places:
            if place.origin == "rejected":
                continue
            self.transcript.finished = None
            if self.transcript.remaining == 0:
                break
            self.transcript.append(place.token)
            finished = self.transcript.finished
            tokens.append(speculative.Token(place.token, "", place.origin))
        self.transcript.finished = finished
        return tokens

    patch.setattr(SpeculativeDecoding, "commit", commit)


def counted_past_the_end(patch: Patch) -> None:
    """vllm #56101, llama.cpp #28232"""
    real = SpeculativeDecoding.commit

    def commit(self: Any, verdict: Verdict) -> Any:
        real(self, verdict)
        return [speculative.Token(place.token, "", place.origin) for place in verdict.places]

    patch.setattr(SpeculativeDecoding, "commit", commit)


def target_cache_not_rolled_back(patch: Patch) -> None:
    real = FakeCache.rollback

    def rollback(self: FakeCache, length: int) -> None:
        real(self, max(length, self.length - 1))

    patch.setattr(FakeCache, "rollback", rollback)


def rewound_one_too_many(patch: Patch) -> None:
    """mlxcel #994"""
    real = FakeCache.rollback

    def rollback(self: FakeCache, length: int) -> None:
        real(self, max(0, length - 1))

    patch.setattr(FakeCache, "rollback", rollback)


def draft_cache_stale(patch: Patch) -> None:
    """The draft reads on after its own rejected guesses (vllm #9730)."""

    def catch_up(self: ModelDrafter, text: Any) -> list[int]:
        return list(text[min(len(self._read), len(text) - 1) :])

    patch.setattr(ModelDrafter, "_catch_up", catch_up)


def unlikely_guess_dropped(patch: Patch) -> None:
    """A guess withdrawn after its draw, because of what it is: looks harmless, bends p."""
    real = ModelDrafter.draft

    def draft(self: Any, *arguments: Any) -> Any:
        for step in real(self, *arguments):
            guess = step.guesses[0]
            if guess.q is not None and guess.q[guess.token] < 0.3:
                return
            yield step

    patch.setattr(ModelDrafter, "draft", draft)


def limit_overshot(patch: Patch) -> None:
    """The round drafts as if no limit were near."""
    patch.setattr(Transcript, "remaining", property(lambda self: 99))


MUTANTS: dict[Callable[[Patch], None], tuple[Callable[[], None], ...]] = {
    softmax_residual: (proofs.exact_small_case,),
    no_residual: (proofs.exact_small_case,),
    residual_not_normalised: (proofs.edges_of_the_draws,),
    residual_of_absolute_difference: (proofs.exact_small_case,),
    accepts_at_equality: (proofs.edges_of_the_draws,),
    accepts_by_q_over_p: (proofs.exact_small_case,),
    accepts_equal_tokens_only: (proofs.exact_small_case,),
    q_of_the_next_token: (proofs.exact_small_case,),
    q_at_another_temperature: (proofs.exact_small_case,),
    look_up_with_a_soft_q: (proofs.exact_lookup_case,),
    bonus_from_the_row_before: (proofs.exact_small_case,),
    rows_shifted_by_one: (proofs.exact_small_case,),
    first_guess_never_verified: (proofs.greedy_text,),
    rejected_kept: (proofs.greedy_text,),
    same_number_at_every_place: (proofs.sampled_pairs,),
    same_number_for_every_purpose: (proofs.sampled_pairs,),
    same_numbers_in_every_round: (proofs.numbers_are_fresh,),
    lanes_share_numbers: (proofs.numbers_are_fresh,),
    draw_from_the_left: (proofs.edges_of_the_draws,),
    draw_past_the_end: (proofs.edges_of_the_draws,),
    end_token_ignored: (proofs.ends_inside_blocks,),
    end_token_seen_only_at_the_end_of_a_block: (proofs.ends_inside_blocks,),
    counted_past_the_end: (proofs.counts_add_up,),
    target_cache_not_rolled_back: (proofs.caches_hold_the_text, proofs.greedy_text),
    rewound_one_too_many: (proofs.caches_hold_the_text,),
    draft_cache_stale: (proofs.caches_hold_the_text,),
    unlikely_guess_dropped: (proofs.exact_small_case,),
    limit_overshot: (proofs.greedy_text,),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_proof_notices(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    for proof in MUTANTS[mutant]:
        with pytest.raises((AssertionError, IndexError, ValueError)):
            proof()
