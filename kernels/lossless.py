"""Does speculation leave the distribution alone? Real models, thousands of runs, counted.

For each context (a question in the chat template and the first words of an answer), p and q are the
target's and the draft's next-token distributions. Then the engine writes the next two tokens over
and over, plainly and speculatively, each run with a seed of its own, and the outcomes are counted
beside their exact probabilities p(x)·p(y | x).

A pass over the same tokens gives the same logits every time, so each distinct prefix is computed by
the models once and remembered; drafting, verifying, accepting, supplying and the caches' rollbacks
run in full, in every run.

    python -m kernels lossless --out figures/lossless/recorded/pair.json \\
        --contexts figures/accept/recorded/contexts.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernels import machine
from kernels.clock import LaneClock
from kernels.drafters import ModelDrafter
from kernels.errors import SdError
from kernels.length import draft_length
from kernels.model import load_decoder
from kernels.pairs import load_pair
from kernels.passes import Pass
from kernels.plain import PlainDecoding
from kernels.randomness import Randomness
from kernels.sampling import Distribution, distribution, fit, host
from kernels.settings import Settings
from kernels.speculative import SpeculativeDecoding
from kernels.transcript import Transcript

if TYPE_CHECKING:
    from kernels.model import Decoder, Description
    from kernels.pairs import Pair

SCHEMA = "speculative-decoding-live/lossless/1"
RUNS = 10_000
#: Sampling from the three most probable tokens keeps the outcomes few enough to count.
SAMPLING: dict[str, Any] = {"temperature": 1.0, "top_k": 3}
#: id, question, first words of the answer. `KEPT` are shown, from the draft's best to its worst.
CONTEXTS = (
    ("tea", "How do I make a good cup of tea?", "To make a good cup of tea, start by"),
    ("rain", "Why does it rain?", "Rain is a natural phenomenon that"),
    ("bread", "What do I need to bake bread?", "To bake bread, you will need"),
    ("sleep", "How can I sleep better?", "There are several ways to improve your"),
    ("bees", "Why are bees important?", "Bees are important because they"),
    ("paris", "What is the capital of France?", "The capital of France is"),
    ("plan", "How do I plan a trip?", "Planning a trip can be a"),
    ("read", "Why should I read books?", "Reading books can help you"),
    ("walk", "Is walking good for me?", "Walking is a great way to"),
    ("sky", "Why is the sky blue?", "The sky is blue because"),
    ("plants", "How do I care for plants?", "Make sure to water"),
    ("save", "How can I save money?", "Here are some tips to help you"),
    ("music", "What is music for?", "Music is one of the"),
    ("moon", "What is the moon?", "The moon is a natural satellite of"),
    ("list", "Give me three tips for cooking.", "Here are three tips for cooking:\n\n1."),
    ("water", "Why do we need water?", "Water is essential for"),
)
KEPT = 6


class _Prefix:
    """The cache of a `Remembered` decoder: the tokens themselves."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def rollback(self, length: int) -> None:
        if not 0 <= length <= len(self.tokens):
            raise ValueError(f"cannot roll back from {len(self.tokens)} to {length} tokens")
        del self.tokens[length:]


class Remembered:
    """A decoder that computes every prefix once. Logits are rows of its head, float32 (H,)."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._rows: dict[tuple[int, ...], NDArray[np.float32]] = {}
        self.name = decoder.name
        self.vocab_size = decoder.vocab_size
        self.context_length = decoder.context_length
        self.device = decoder.device
        self.precision = decoder.precision
        self.end_tokens = decoder.end_tokens

    @property
    def weight_bytes(self) -> int:
        """Bytes of the matrices that a pass with one row reads."""
        return self._decoder.weight_bytes

    @property
    def head_ids(self) -> NDArray[np.int32] | None:
        """None, or the token ids (H,) that a reduced head scores."""
        return self._decoder.head_ids

    @property
    def computed(self) -> int:
        """How many prefixes the model has computed."""
        return len(self._rows)

    def describe(self) -> Description:
        """The decoder's own description."""
        return self._decoder.describe()

    def new_cache(self, capacity: int) -> Any:
        """An empty cache."""
        return _Prefix(capacity)

    def forward_compact(
        self, tokens: Sequence[int], cache: Any, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """Append `tokens`; logits (T, H), or (1, H) if last_only."""
        start = cache.length
        cache.tokens += tokens
        first = cache.length - 1 if last_only else start
        ends = range(first + 1, cache.length + 1)
        return np.stack([self._row(tuple(cache.tokens[:end])) for end in ends])

    def forward(
        self, tokens: Sequence[int], cache: Any, *, last_only: bool = False
    ) -> NDArray[np.float32]:
        """As forward_compact, with -inf for the tokens that the head does not know: (T, V)."""
        rows = self.forward_compact(tokens, cache, last_only=last_only)
        if self.head_ids is None:
            return rows
        whole = np.full((len(rows), self.vocab_size), -np.inf, np.float32)
        whole[:, self.head_ids] = rows
        return whole

    def _row(self, prefix: tuple[int, ...]) -> NDArray[np.float32]:
        if prefix not in self._rows:
            cache = self._decoder.new_cache(len(prefix))
            rows = host(self._decoder.forward_compact(prefix, cache, last_only=True))
            self._rows[prefix] = np.array(rows[-1])
        return self._rows[prefix]


class _FromPrompt(SpeculativeDecoding):
    """Speculation whose first round guesses the very first new token.

    As a rule the target reads the prompt and so gives the first token itself. Here that token is
    what is counted, so the prompt's last token is left to the first verification.
    """

    def prefill(self) -> Iterator[Pass]:
        prompt = self.transcript.tokens
        self.target.forward(prompt[:-1], self.cache, last_only=True)
        for step in self.drafter.read(prompt):
            yield self._report("prefill", step, [])


def outcome(
    lane: str, target: Remembered, draft: Remembered, tokenizer: Any, prompt: list[int], seed: int
) -> tuple[int, ...]:
    """The two tokens that one run writes after `prompt`; one where it is an end token.

    The run is asked for three, so that both counted tokens can be guesses (m = 2).
    """
    settings = Settings(prompt="-", m=2, length=3, seed=seed, drafter="model", **SAMPLING)
    transcript = Transcript(
        prompt,
        settings,
        tokenizer,
        context_length=target.context_length,
        end_tokens={*target.end_tokens, *tokenizer.end_tokens},
    )
    clock, randomness = LaneClock(), Randomness(seed, lane)
    if lane == "plain":
        passes = PlainDecoding(target, transcript, settings, randomness, clock).run()
    else:
        drafter = ModelDrafter(
            draft,
            vocab_size=target.vocab_size,
            capacity=len(prompt) + settings.length,
            settings=settings,
            randomness=randomness,
            clock=clock,
        )
        length = draft_length(settings)
        passes = _FromPrompt(target, drafter, transcript, settings, randomness, clock, length).run()
    for _ in passes:
        if transcript.emitted >= 2:
            break
    return tuple(transcript.new_tokens[:2])


def next_token(decoder: Remembered, prefix: Sequence[int], vocab_size: int) -> Distribution:
    """The distribution (V,) that `decoder` samples its next token from."""
    row = decoder.forward(prefix, decoder.new_cache(len(prefix)), last_only=True)[-1]
    return distribution(fit(row, vocab_size), Settings(prompt="-", **SAMPLING))


def context_record(
    name: str, question: str, beginning: str, p: Distribution, q: Distribution, tokenizer: Any
) -> dict[str, Any]:
    """p and q over the tokens that either gives any probability, the likeliest of p first."""
    ids = sorted(np.flatnonzero((p > 0) | (q > 0)), key=lambda i: (-p[i], -q[i]))
    return {
        "id": name,
        "question": question,
        "beginning": beginning,
        "tokens": [tokenizer.token_text(int(i)) for i in ids],
        "p": [float(p[i]) for i in ids],
        "q": [float(q[i]) for i in ids],
    }


def overlap(context: dict[str, Any]) -> float:
    """α = Σ min(p, q) of a context."""
    return sum(min(p, q) for p, q in zip(context["p"], context["q"], strict=True))


def count(
    target: Remembered,
    draft: Remembered,
    tokenizer: Any,
    prompt: list[int],
    seeds: range,
) -> dict[str, Any]:
    """Exact probabilities and counts of both lanes, one run a seed: {"next": rows, "pair": rows}.

    A row is {"text", "p", "plain", "speculative"}; a run that ends with its first token counts as
    that token alone.
    """
    ends = {*target.end_tokens, *tokenizer.end_tokens}
    first = next_token(target, prompt, target.vocab_size)
    exact: dict[tuple[int, ...], float] = {}
    for x in np.flatnonzero(first):
        if int(x) in ends:
            exact[(int(x),)] = float(first[x])
            continue
        second = next_token(target, [*prompt, int(x)], target.vocab_size)
        for y in np.flatnonzero(second):
            exact[(int(x), int(y))] = float(first[x] * second[y])
    counted = {
        lane: Counter(outcome(lane, target, draft, tokenizer, prompt, seed) for seed in seeds)
        for lane in ("plain", "speculative")
    }

    def rows(length: int) -> list[dict[str, Any]]:
        keys = {key[:length] for key in exact} | {k[:length] for c in counted.values() for k in c}
        made = []
        for key in keys:
            row: dict[str, Any] = {
                "text": "".join(tokenizer.token_text(token) for token in key),
                "p": sum(share for pair, share in exact.items() if pair[:length] == key),
            }
            for lane, found in counted.items():
                row[lane] = sum(n for pair, n in found.items() if pair[:length] == key)
            made.append(row)
        return sorted(made, key=lambda row: (-row["p"], row["text"]))

    return {"next": rows(1), "pair": rows(2)}


def record(pair: Pair, *, runs: int, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record of the contexts and that of the counted runs.

    Raises:
        SdError: `no_draft`, where the pair has no draft model.
    """
    if pair.draft is None:
        raise SdError(
            "no_draft",
            f"The pair {pair.name} has no draft model yet: give one with --draft.",
            pair=pair.name,
        )
    target, draft = Remembered(pair.target), Remembered(pair.draft)
    tokenizer = pair.tokenizer
    head = {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command,
        "device": {**machine.describe(), "device": target.device, "precision": target.precision},
        "versions": dict(machine.versions("torch", "tokenizers", "numpy")),
        "pair": {"name": pair.name, "target": pair.target_id, "draft": pair.draft_id},
        "sampling": SAMPLING,
    }
    prompts: dict[str, list[int]] = {}
    contexts: list[dict[str, Any]] = []
    for name, question, beginning in CONTEXTS:
        prompt = [*tokenizer.chat(question), *tokenizer.encode(beginning)]
        p = next_token(target, prompt, target.vocab_size)
        q = next_token(draft, prompt, target.vocab_size)
        contexts.append(context_record(name, question, beginning, p, q, tokenizer))
        prompts[name] = prompt
    contexts.sort(key=lambda context: -overlap(context))
    kept = [contexts[round(i * (len(contexts) - 1) / (KEPT - 1))] for i in range(KEPT)]
    # What is counted should have both: guesses that stay and guesses that do not.
    contested = sorted(contexts, key=lambda context: abs(overlap(context) - 0.5))[:2]
    counted: list[dict[str, Any]] = [
        {
            **{key: context[key] for key in ("id", "question", "beginning")},
            "alpha": overlap(context),
            # No seed twice: the experiments are to be independent.
            **count(
                target,
                draft,
                tokenizer,
                prompts[context["id"]],
                range(i * runs, (i + 1) * runs),
            ),
        }
        for i, context in enumerate(contested)
        if runs
    ]
    computed = {"target": target.computed, "draft": draft.computed}
    return (
        {**head, "of": len(contexts), "contexts": kept},
        {**head, "runs": runs, "prefixes": computed, "experiments": counted},
    )


def main(argv: list[str]) -> int:
    """Make both records; write or print them, and the distances on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels lossless",
        description="Count what plain and speculative decoding write, beside exact probabilities.",
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs a lane (default {RUNS})")
    parser.add_argument("--draft", type=Path, help="a draft's folder instead of the pair's own")
    parser.add_argument("--out", type=Path, help="file for the counted runs; else printed")
    parser.add_argument("--contexts", type=Path, help="file for p and q of the contexts")
    options = parser.parse_args(argv)
    if options.runs < 0:
        parser.error("--runs must not be negative")
    pair = load_pair()
    if options.draft:
        pair.draft = load_decoder(options.draft, embedding_from=pair.target)
        pair.draft_id = options.draft.name
    contexts, counted = record(
        pair, runs=options.runs, command=" ".join(["python -m kernels lossless", *argv])
    )
    for value, path in ((contexts, options.contexts), (counted, options.out)):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        elif value is counted:
            print(text, end="")
    for experiment in counted["experiments"]:
        for length in ("next", "pair"):
            rows = experiment[length]
            away = {
                lane: sum(abs(row[lane] / options.runs - row["p"]) for row in rows) / 2
                for lane in ("plain", "speculative")
            }
            print(
                f"{experiment['id']}, {length}: {len(rows)} outcomes, total variation distance "
                + ", ".join(f"{lane} {value:.4f}" for lane, value in away.items()),
                file=sys.stderr,
            )
    return 0
