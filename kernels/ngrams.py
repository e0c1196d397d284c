"""What usually follows a few tokens: a small fixed table that stands behind look-up in the text.

`python -m kernels ngrams CORPUS.npz --out FILE` counts, over text that the target wrote, which
token the target thought most probable after each pair of tokens and after each single one, and
keeps the commonest. The result guesses a third of a greedy text right at no cost at all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from kernels.errors import SdError

if TYPE_CHECKING:
    from kernels.distill.corpus import Corpus

ORDERS = (2, 1)  # tokens looked at, the longer first
SIZES = {2: 30_000, 1: 8_000}  # entries kept of each


class NgramTable:
    """From the last tokens of a text to the next one and the chance that it is right."""

    def __init__(self, entries: dict[tuple[int, ...], tuple[int, float]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, text: Sequence[int]) -> tuple[int, float] | None:
        """The likeliest next token after `text` and its probability, if the table knows any."""
        for order in ORDERS:
            found = self._entries.get(tuple(text[-order:])) if len(text) >= order else None
            if found is not None:
                return found
        return None

    @classmethod
    def count(
        cls,
        texts: Iterable[tuple[Iterable[int], Iterable[int], Iterable[int]]],
        sizes: dict[int, int] | None = None,
    ) -> NgramTable:
        """Count over triples (prompt, answer, choices): choices[i] is what the target thought most
        probable after prompt + answer[:i].

        sizes: how many entries to keep of each order, the commonest first. The probability of an
        entry is what a further text would show: one count more in the denominator.
        """
        counts: dict[tuple[int, ...], dict[int, int]] = {}
        for prompt, answer, choices in texts:
            ids = [int(token) for token in prompt]
            begin = len(ids)
            ids += [int(token) for token in answer]
            for end, token in enumerate(map(int, choices), start=begin):
                for order in ORDERS:
                    if end >= order:
                        seen = counts.setdefault(tuple(ids[end - order : end]), {})
                        seen[token] = seen.get(token, 0) + 1
        entries = {}
        for order, size in (sizes or SIZES).items():
            ranked = sorted(
                ((max(seen.values()), key) for key, seen in counts.items() if len(key) == order),
                key=lambda item: (-item[0], item[1]),
            )
            for best, key in ranked[:size]:
                seen = counts[key]
                token = min(token for token, n in seen.items() if n == best)
                entries[key] = (token, best / (sum(seen.values()) + 1))
        return cls(entries)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all: tokens_n (N, n + 1), probability_n (N,) in 1/255."""
        arrays: dict[str, NDArray[np.generic]] = {}
        for order in ORDERS:
            some = [(key, *value) for key, value in self._entries.items() if len(key) == order]
            rows = np.array([[*key, token] for key, token, _ in some]).reshape(-1, order + 1)
            small = rows.max(initial=0) < 2**16
            arrays[f"tokens_{order}"] = rows.astype(np.uint16 if small else np.uint32)
            arrays[f"probability_{order}"] = np.array(
                [round(255 * p) for *_, p in some], dtype=np.uint8
            )
        part = path.with_name(path.name + ".part")
        with part.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> NgramTable:
        """Read a file that `save` wrote. Raises SdError "corrupt_weights" if it is not one."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
                entries: dict[tuple[int, ...], tuple[int, float]] = {}
                for order in ORDERS:
                    rows, chances = data[f"tokens_{order}"], data[f"probability_{order}"] / 255
                    keys = map(tuple, rows[:, :-1].tolist())
                    values = zip(rows[:, -1].tolist(), chances.tolist(), strict=True)
                    entries.update(zip(keys, values, strict=True))
        except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
            raise SdError(
                "corrupt_weights",
                f"The n-gram table {path} cannot be read ({error}): check it out again.",
                path=str(path),
            ) from error
        return cls(entries)


def main(argv: list[str]) -> int:
    """Count a table over a corpus of `python -m kernels distill generate`."""
    parser = argparse.ArgumentParser(prog="python -m kernels ngrams", description=__doc__)
    parser.add_argument("corpus", type=Path, help="text that the target wrote (.npz)")
    parser.add_argument("--out", type=Path, required=True, help="file to write (.npz)")
    parser.add_argument("--target", type=Path, help="its folder: leave held-out topics out")
    options = parser.parse_args(argv)
    from kernels.distill.corpus import load

    corpus = load(options.corpus)
    answers = range(len(corpus)) if options.target is None else _trained_on(corpus, options.target)
    table = NgramTable.count(
        (corpus.prompt(i), corpus.answer(i), corpus.top_ids[corpus.answer_rows(i), 0])
        for i in answers
    )
    table.save(options.out)
    print(f"{len(table)} n-grams of {len(answers)} answers in {options.out}")
    return 0


def _trained_on(corpus: Corpus, target: Path) -> Sequence[int]:
    """The answers on topics that are not held out for judging (see distill/prompts.py)."""
    from kernels.distill.draft import load_tokenizer
    from kernels.distill.prompts import find_prompts, is_held_out

    found = find_prompts(load_tokenizer(target), corpus.prompts())
    return [i for i, prompt in enumerate(found) if not is_held_out(prompt.topic)]
