"""Does one pass over m + 1 tokens predict what m + 1 passes predict? Figure `mask` shows it.

The last m tokens of a sentence play the draft. *Together*: the context but its last token is read
into the cache, then one pass takes that token and the m drafted ones and gives m + 1 rows of
logits. *Alone*: for each of these rows a cache of its own, with the tokens before it, and one pass
over one token. Rows are compared over the whole vocabulary. A second engine, transformers in FP32,
repeats both as a witness that shares no code with ours.

    python -m kernels mask --out figures/mask/recorded/default.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernels import machine, weights
from kernels.errors import SdError
from kernels.model import load_decoder
from kernels.tokenizer import Tokenizer

if TYPE_CHECKING:
    from kernels.cache import Cache
    from kernels.model import Decoder

SCHEMA = "speculative-decoding-live/mask/1"
SENTENCE = "The capital of France is Paris, and the capital of Italy is"
M_MAX = 8

Rows = NDArray[np.float32]


def _host(logits: Any) -> Rows:
    """Logits as a NumPy array, wherever the decoder left them."""
    return np.asarray(logits.float().cpu() if hasattr(logits, "cpu") else logits, np.float32)


def _ignore(share: float) -> None:
    """Nobody watches."""


def rows_together(
    decoder: Decoder, tokens: Sequence[int], m: int, cache: Cache | None = None
) -> Rows:
    """Logits (m + 1, V) of one pass over the last m + 1 of `tokens`.

    cache: holds the context but its last token, or a beginning of it, as it does again afterwards;
    None for a new one.
    """
    start = len(tokens) - m - 1
    cache = cache or decoder.new_cache(len(tokens))
    if start > cache.length:
        decoder.forward(tokens[cache.length : start], cache, last_only=True)
    rows = _host(decoder.forward(tokens[start:], cache))
    cache.rollback(start)
    return rows


def rows_alone(
    decoder: Decoder, tokens: Sequence[int], m: int, watch: Callable[[float], None] = _ignore
) -> Rows:
    """The same logits (m + 1, V) from m + 1 passes over one token, each with a cache of its own.

    watch: hears before each what share is done; what it raises comes through.
    """
    rows: list[Rows] = []
    for at in range(len(tokens) - m - 1, len(tokens)):
        watch(len(rows) / (m + 1))
        cache = decoder.new_cache(len(tokens))
        if at > 0:
            decoder.forward(tokens[:at], cache, last_only=True)
        rows.append(_host(decoder.forward(tokens[at : at + 1], cache))[0])
    return np.stack(rows)


def compare(
    decoder: Decoder,
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    ms: range,
    watch: Callable[[float], None] = _ignore,
) -> Any:
    """What one engine says: both ways of computing, for every m in `ms`.

    Returns {"alone": a row a position, "together": [{"m", "rows"}]}; a row holds its first choice
    {"id", "text", "logit"}; rows together add "difference", the largest of any logit between the
    two ways, rows alone "position" and, but for the last, "next": probability and rank of the token
    that the sentence goes on with. watch: see rows_alone.
    """
    alone = rows_alone(decoder, tokens, ms[-1], watch)
    first = len(tokens) - ms[-1] - 1
    rows = []
    for i, logits in enumerate(alone):
        at = first + i
        row = {"position": at, **_first_choice(tokenizer, logits)}
        if at + 1 < len(tokens):
            row["next"] = _standing(logits, tokens[at + 1])
        rows.append(row)
    together: list[dict[str, Any]] = []
    cache = decoder.new_cache(len(tokens))
    for m in reversed(ms):
        watch(1.0)
        found = rows_together(decoder, tokens, m, cache)
        gaps = np.abs(found - alone[-m - 1 :]).max(axis=1)
        together.append(
            {
                "m": m,
                "rows": [
                    {**_first_choice(tokenizer, logits), "difference": float(gap)}
                    for logits, gap in zip(found, gaps, strict=True)
                ],
            }
        )
    return {"alone": rows, "together": together[::-1]}


def _first_choice(tokenizer: Tokenizer, logits: Rows) -> dict[str, Any]:
    token = int(logits.argmax())
    return {
        "id": token,
        "text": tokenizer.token_text(token),
        "logit": round(float(logits[token]), 4),
    }


def _standing(logits: Rows, token: int) -> dict[str, Any]:
    """Probability of `token` at temperature 1, and its rank from 1."""
    exact = logits.astype(np.float64)
    p = float(np.exp(exact[token] - np.logaddexp.reduce(exact)))
    return {"p": float(f"{p:.6g}"), "rank": 1 + int((logits > logits[token]).sum())}


def record(
    target: Decoder,
    witness: Decoder | None,
    tokenizer: Tokenizer,
    *,
    source: str,
    sentence: str = SENTENCE,
    command: str = "",
    most: int | None = None,
    watch: Callable[[float], None] = _ignore,
) -> dict[str, Any]:
    """Make the record that the figure shows.

    witness: None leaves it out, and "engines_apart" with it. source: where the weights came from.
    most: longest sentence, in tokens; None for the target's context. watch: hears between passes
    what share is done, 0 to 1; what it raises comes through.

    Raises:
        SdError: `sentence_too_short`, where no token would be left for the context;
            `sentence_too_long`, with "tokens" and "limit".
    """
    tokens = tokenizer.encode(sentence)
    most = min(most or target.context_length, target.context_length)
    if len(tokens) < 2:
        raise SdError(
            "sentence_too_short",
            "A context and a drafted token need two tokens at least: give a longer sentence.",
            tokens=len(tokens),
        )
    if len(tokens) > most:
        raise SdError(
            "sentence_too_long",
            f"The sentence has {len(tokens)} tokens, {most} are allowed: give a shorter one.",
            tokens=len(tokens),
            limit=most,
        )
    ms = range(1, min(M_MAX, len(tokens) - 1) + 1)
    engines = []
    for role, decoder in (("target", target), ("witness", witness)):
        if decoder is None:
            continue
        how = decoder.describe()
        engines.append(
            {
                "role": role,
                "backend": how.backend,
                "precision": how.precision,
                **compare(decoder, tokenizer, tokens, ms, watch),
            }
        )
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command,
        "device": dict(machine.describe()),
        "versions": dict(machine.versions("torch", "transformers", "tokenizers", "numpy")),
        "model": source,
        "vocabulary": target.vocab_size,
        "sentence": sentence,
        "tokens": [{"id": t, "text": tokenizer.token_text(t)} for t in tokens],
        "engines": engines,
    }
    if witness is not None:
        gap = np.abs(rows_alone(target, tokens, ms[-1]) - rows_alone(witness, tokens, ms[-1]))
        # Largest difference of a logit between the two engines, a position each.
        made["engines_apart"] = [float(f"{x:.3g}") for x in gap.max(axis=1)]
    return made


def main(argv: list[str]) -> int:
    """Compute the record and print or write it; 1 if the two ways choose different tokens."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels mask",
        description="Compare one pass over m + 1 tokens with m + 1 passes over one.",
    )
    parser.add_argument("--sentence", default=SENTENCE, help="its last tokens play the draft")
    parser.add_argument("--model", help="path or Hugging Face id (default: the embedded target)")
    parser.add_argument("--out", type=Path, help="file to write; standard output without it")
    options = parser.parse_args(argv)
    folder = weights.resolve(options.model)
    result = record(
        load_decoder(folder),
        load_decoder(folder, backend="hf", precision="fp32"),
        Tokenizer.from_folder(folder),
        source=weights.describe(folder),
        sentence=options.sentence,
        command=" ".join(["python -m kernels mask", *argv]),
    )
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n", "utf-8")
    else:
        print(text)
    agree = True
    for engine in result["engines"]:
        last = engine["together"][-1]["rows"]
        same = [row["id"] for row in last] == [row["id"] for row in engine["alone"]]
        agree &= same
        print(
            f"{engine['backend']} {engine['precision']}: largest difference of a logit "
            f"{max(row['difference'] for row in last):.3g}, first choices "
            f"{'agree' if same else 'DIFFER'}",
            file=sys.stderr,
        )
    return 0 if agree else 1
