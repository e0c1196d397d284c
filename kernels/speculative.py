"""Speculative decoding: draft, verify, accept, correct, commit.

Leviathan, Kalman, Matias 2023 (arXiv 2211.17192). Letters as everywhere here: p target, q draft,
m drafted tokens. `SpeculativeDecoding.run` is the algorithm; read it first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from kernels.acceptance import Guess, Verdict, judge_greedy, judge_sampled
from kernels.clock import LaneClock
from kernels.drafters import Drafter, Drafting
from kernels.length import DraftLength
from kernels.passes import Kind, Pass, Token
from kernels.plain import choose
from kernels.randomness import Purpose, Randomness
from kernels.sampling import Distribution, distribution, host, most_probable
from kernels.settings import Settings
from kernels.transcript import Transcript

if TYPE_CHECKING:
    from kernels.model import Decoder


class SpeculativeDecoding:
    """Writes `transcript` to its end, yielding each pass after it has happened.

    Between rounds the target's cache holds every token of the text but the last, which is the first
    one the next verification reads.
    """

    def __init__(
        self,
        target: Decoder,
        drafter: Drafter,
        transcript: Transcript,
        settings: Settings,
        randomness: Randomness,
        clock: LaneClock,
        draft_length: DraftLength,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.transcript = transcript
        self.settings = settings
        self.randomness = randomness
        self.clock = clock
        self.draft_length = draft_length
        self.cache = target.new_cache(len(transcript.tokens) + transcript.limit)
        self.round = 0

    def run(self) -> Iterator[Pass]:
        """The algorithm. One turn of the loop is a round; it adds 1 to m+1 tokens to the text."""
        text = self.transcript
        yield from self.prefill()
        while not text.finished:
            self.round += 1

            # Draft: the small model runs ahead. Never so far that the round could pass the limit:
            # the target itself adds one token to the guesses.
            m = min(self.draft_length.most(), text.remaining - 1)
            guesses = yield from self.draft(m)

            # Verify: one pass of the target over the last token and all guesses. Row i is its
            # prediction for the place of guess i; row m predicts what follows the last guess.
            start = self.clock.now()
            block = [text.tokens[-1], *(guess.token for guess in guesses)]
            logits = host(self.target.forward(block, self.cache))  # (m + 1, V)
            end = self.clock.now()

            # Accept and correct: keep guesses up to the first rejected one, which the target
            # replaces; if all are kept, its last row gives one more token.
            verdict = self.judge(guesses, logits)

            # Commit: the text grows, and both caches forget what it does not contain (the
            # draft's when it next drafts).
            tokens = self.commit(verdict)
            self.cache.rollback(len(text.tokens) - 1)
            self.draft_length.learn(guesses, verdict)

            kind: Kind = "verify" if guesses else "decode"
            yield Pass(kind, start, end, len(block), tokens, logits=logits)

    def prefill(self) -> Iterator[Pass]:
        """Both models read the prompt; the target's last row gives the first token."""
        if self.transcript.finished:
            return
        prompt = list(self.transcript.tokens)
        start = self.clock.now()
        logits = host(self.target.forward(prompt, self.cache, last_only=True))  # (1, V)
        end = self.clock.now()
        token = choose(logits[-1], self.transcript, self.settings, self.randomness)
        emitted = Token(token, self.transcript.append(token), "target")
        yield Pass("prefill", start, end, len(prompt), [emitted], logits=logits)
        if not self.transcript.finished:
            for step in self.drafter.read(prompt):
                yield self._report("prefill", step, [])

    def draft(self, m: int) -> Generator[Pass, None, list[Guess]]:
        """Up to m guesses for the next places."""
        guesses: list[Guess] = []
        preview = self.transcript.preview()
        if m > 0:
            for step in self.drafter.draft(self.transcript.tokens, m, self.round):
                guesses += step.guesses
                tokens = [
                    Token(guess.token, preview.push(guess.token), "drafted", q=guess.q_x)
                    for guess in step.guesses
                ]
                yield self._report("draft", step, tokens)
                if not self.draft_length.goes_on(guesses):
                    break
        return guesses

    def judge(self, guesses: Sequence[Guess], logits: NDArray[Any]) -> Verdict:
        """Apply the acceptance rule to a block; logits (m + 1, V)."""
        tokens = self.transcript.tokens

        def seen(i: int) -> list[int]:
            return tokens + [guess.token for guess in guesses[:i]]

        def best(i: int) -> int:
            return most_probable(logits[i], self.settings, seen(i))

        def p(i: int) -> Distribution:
            return distribution(logits[i], self.settings, seen(i))

        def uniform(purpose: Purpose, i: int) -> float:
            return self.randomness.uniform(purpose, len(tokens) + i, self.round)

        if self.settings.greedy:
            return judge_greedy(guesses, best)
        return judge_sampled(
            guesses,
            p,
            accept_draw=lambda i: uniform(Purpose.ACCEPT, i),
            residual_draw=lambda i: uniform(Purpose.RESIDUAL, i),
            bonus_draw=lambda i: uniform(Purpose.TARGET, i),
        )

    def commit(self, verdict: Verdict) -> list[Token]:
        """Add the verdict to the text, token by token; what comes after its end is discarded.

        Returns the places that count: those in the text, and a rejected one before a supplied one.
        """
        tokens: list[Token] = []
        for place in verdict.places:
            if self.transcript.finished:
                break
            if place.origin == "rejected":
                text = self.transcript.preview().push(place.token)
            else:
                text = self.transcript.append(place.token)
            tokens.append(
                Token(place.token, text, place.origin, place.p, place.q, place.u, place.by)
            )
        return tokens

    @staticmethod
    def _report(kind: Kind, step: Drafting, tokens: list[Token]) -> Pass:
        return Pass(kind, step.start, step.end, step.rows, tokens, step.by)
