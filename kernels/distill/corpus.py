"""Text that the target wrote, with its probabilities: what a draft learns from.

On disk a corpus is one .npz with these arrays (N answers, T tokens in all, P prompt tokens in all):

    prompt_tokens (P,), prompt_offsets (N + 1,)   prompt i is prompt_tokens[po[i]:po[i + 1]]
    tokens (T,), offsets (N + 1,)                 answer i, its end token included where reached
    top_ids (T, K), top_p (T, K)                  the target's K most probable tokens before each
                                                  answer token, and their probabilities at
                                                  temperature 1
    temperature (N,)                              what answer i was sampled at
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np


class CorpusError(ValueError):
    """A corpus file that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Corpus:
    """See the module's docstring for shapes."""

    prompt_tokens: np.ndarray
    prompt_offsets: np.ndarray
    tokens: np.ndarray
    offsets: np.ndarray
    top_ids: np.ndarray
    top_p: np.ndarray
    temperature: np.ndarray

    def __len__(self) -> int:
        return len(self.temperature)

    def __post_init__(self) -> None:
        answers, tokens = len(self.temperature), len(self.tokens)
        good = (
            len(self.offsets) == len(self.prompt_offsets) == answers + 1
            and self.top_ids.shape == self.top_p.shape
            and self.top_ids.ndim == 2
            and len(self.top_ids) == tokens
            and (answers == 0 or int(self.offsets[-1]) == tokens)
            and (answers == 0 or int(self.prompt_offsets[-1]) == len(self.prompt_tokens))
        )
        if not good:
            raise CorpusError(
                "The arrays of this corpus do not fit together. Write it again with "
                "`python -m kernels distill generate`."
            )

    def prompt(self, i: int) -> np.ndarray:
        """Prompt tokens of answer i, chat template applied, (n,)."""
        return self.prompt_tokens[self.prompt_offsets[i] : self.prompt_offsets[i + 1]]

    def answer(self, i: int) -> np.ndarray:
        """Tokens of answer i, (n,)."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def answer_rows(self, i: int) -> slice:
        """The rows of `tokens`, `top_ids` and `top_p` that belong to answer i."""
        return slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def prompts(self) -> list[tuple[int, ...]]:
        """Every prompt as a tuple, to look it up by."""
        return [tuple(int(t) for t in self.prompt(i)) for i in range(len(self))]

    def select(self, indices: Sequence[int]) -> Corpus:
        """The answers at `indices`, in that order."""
        rows = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices]
        row = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        prompts = [self.prompt(i) for i in indices]
        return Corpus(
            prompt_tokens=np.concatenate(prompts) if prompts else self.prompt_tokens[:0],
            prompt_offsets=offsets_of([len(p) for p in prompts]),
            tokens=self.tokens[row],
            offsets=offsets_of([len(r) for r in rows]),
            top_ids=self.top_ids[row],
            top_p=self.top_p[row],
            temperature=self.temperature[list(indices)],
        )

    def save(self, path: Path) -> None:
        """Write the file in one step: a reader sees the old one or the new one, never half."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as stream:
            np.savez_compressed(stream, **{f.name: getattr(self, f.name) for f in fields(self)})
        part.replace(path)


def offsets_of(lengths: Sequence[int]) -> np.ndarray:
    """(N + 1,) int32: where each of N consecutive runs of these lengths begins and ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)


def load(path: Path) -> Corpus:
    """Read one corpus file.

    Raises CorpusError when the file is missing, lacks an array, or its arrays do not fit together.
    """
    if not path.is_file():
        raise CorpusError(f"No corpus at {path}. Write one: python -m kernels distill generate.")
    with np.load(path, allow_pickle=False) as data:
        missing = [f.name for f in fields(Corpus) if f.name not in data]
        if missing:
            raise CorpusError(f"{path} lacks {', '.join(missing)}: it is not a corpus of ours.")
        return Corpus(**{f.name: data[f.name] for f in fields(Corpus)})


def join(parts: Sequence[Corpus]) -> Corpus:
    """One corpus of several, in order. They must have recorded equally many top tokens."""
    if len({part.top_ids.shape[1] for part in parts}) != 1:
        raise CorpusError("These corpora recorded different numbers of top tokens a position.")
    return Corpus(
        prompt_tokens=np.concatenate([p.prompt_tokens for p in parts]),
        prompt_offsets=offsets_of([n for p in parts for n in np.diff(p.prompt_offsets)]),
        tokens=np.concatenate([p.tokens for p in parts]),
        offsets=offsets_of([n for p in parts for n in np.diff(p.offsets)]),
        top_ids=np.concatenate([p.top_ids for p in parts]),
        top_p=np.concatenate([p.top_p for p in parts]),
        temperature=np.concatenate([p.temperature for p in parts]),
    )


def frequent_tokens(corpus: Corpus, count: int, *, always: Sequence[int] = ()) -> np.ndarray:
    """The ids worth a row in the draft's head, ascending, int32 (count,).

    Ranked by the probability the target gave them over the whole corpus, which is smoother than
    counting what was sampled; `always` (end tokens) come first. Ids that the corpus never saw fill
    up from id 0: byte-pair vocabularies are ordered by merge, so low ids are the commoner ones.
    """
    size = int(max(corpus.top_ids.max(initial=0), corpus.tokens.max(initial=0), *always, count)) + 1
    weight = np.zeros(size)
    np.add.at(weight, corpus.top_ids.ravel(), corpus.top_p.ravel().astype(np.float64))
    np.add.at(weight, corpus.tokens, 1e-3)
    weight[list(always)] = np.inf
    order = np.argsort(-weight, kind="stable")[:count]
    return np.sort(order).astype(np.int32)


@dataclass(frozen=True)
class Batch:
    """Some answers, padded on the right to one length L (a causal mask hides the padding).

    input_ids (B, L) int64. The A answer positions of all rows, flattened, are `rows` (A,) int64
    into the B·L positions: the logits there predict the answer token. top_ids (A, K) int64,
    top_p (A, K) float32, token (A,) int64, temperature (A,) float32.
    """

    input_ids: np.ndarray
    rows: np.ndarray
    top_ids: np.ndarray
    top_p: np.ndarray
    token: np.ndarray
    temperature: np.ndarray


def make_batch(corpus: Corpus, indices: Sequence[int]) -> Batch:
    """The answers at `indices` as one batch, B = len(indices)."""
    sequences = [np.concatenate([corpus.prompt(i), corpus.answer(i)[:-1]]) for i in indices]
    length = max(len(s) for s in sequences)
    input_ids = np.zeros((len(sequences), length), dtype=np.int64)
    rows = []
    for b, (i, sequence) in enumerate(zip(indices, sequences, strict=True)):
        input_ids[b, : len(sequence)] = sequence
        first = b * length + len(corpus.prompt(i)) - 1
        rows.append(np.arange(first, first + len(corpus.answer(i))))
    answer = np.concatenate([np.arange(corpus.offsets[i], corpus.offsets[i + 1]) for i in indices])
    return Batch(
        input_ids=input_ids,
        rows=np.concatenate(rows),
        top_ids=corpus.top_ids[answer].astype(np.int64),
        top_p=corpus.top_p[answer].astype(np.float32),
        token=corpus.tokens[answer].astype(np.int64),
        temperature=np.repeat(
            corpus.temperature[list(indices)].astype(np.float32),
            [len(corpus.answer(i)) for i in indices],
        ),
    )


def epoch_batches(corpus: Corpus, size: int, seed: int, epoch: int) -> list[list[int]]:
    """The answers of one epoch in batches of `size`, shuffled by (seed, epoch) alone, so that a run
    that was killed finds its place again. Answers of like length share a batch: little padding."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(corpus))
    length = np.diff(corpus.offsets) + np.diff(corpus.prompt_offsets)
    window = size * 32
    chunks = [order[i : i + window] for i in range(0, len(order), window)]
    chunks = [chunk[np.argsort(length[chunk], kind="stable")] for chunk in chunks]
    batches = [c[i : i + size].tolist() for c in chunks for i in range(0, len(c), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def batches_in_order(corpus: Corpus, size: int) -> Iterator[Batch]:
    """Every answer once, longest first: for evaluation."""
    order = np.argsort(-(np.diff(corpus.offsets) + np.diff(corpus.prompt_offsets)), kind="stable")
    for i in range(0, len(order), size):
        yield make_batch(corpus, order[i : i + size].tolist())
