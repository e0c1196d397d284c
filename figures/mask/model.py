"""The structure of one verification pass: who sees whom, and what is kept after a rejection.

A sentence of T tokens; the last m are drafted, the T − m before them are the context. One pass
takes the last token of the context and the m drafted ones, m + 1 tokens, the earlier context being
in the KV cache. Positions count from 0. Output j, for j = 1 … m + 1, stands at position T − m − 2 +
j and predicts the token after it: output j checks drafted token j, output m + 1 is the bonus. By
the causal mask (Vaswani et al., 2017, section 3.2.3) position i sees positions 0 … i, so output j
sees the context and the first j − 1 drafted tokens.

If drafted token i is the first one rejected, outputs 1 … i − 1 have confirmed their tokens, output
i gives the token that takes its place, and outputs i + 1 … m + 1 are void: each of them saw token
i. The text grows by i tokens; by m + 1 if none is rejected (Leviathan et al., 2023, algorithm 1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

M_MAX = 8
#: Value of `reject` that says: none is rejected.
NONE_REJECTED = M_MAX + 1

# White space, and characters that stand for a word or syllable by themselves, named so that
# JavaScript sees the same ones.
_SPACE = "[ \\t\\n\\r\\u00a0\\u3000]+"
_HAN = "\\u3040-\\u30ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff\\uac00-\\ud7af"
_WORD = "A-Za-z0-9\\u00c0-\\u024f\\u0370-\\u052f'’"
_TOKEN = re.compile(f" ?(?:[{_HAN}]|[{_WORD}]+|[^ ])")


@dataclass(frozen=True)
class Output:
    """One row of the pass.

    `index` from 1; `position` of the token it stands on; `sees` inputs, which are the positions
    0 … sees − 1; `checks` the number of the drafted token that it judges, 0 for the bonus; `fate`:
    "open" before judgement, then "accepted", "supplied", "bonus" or "void".
    """

    index: int
    position: int
    sees: int
    checks: int
    fate: str


@dataclass(frozen=True)
class Pass:
    """A verification pass.

    `drafts`: fate of each drafted token, "open", "accepted", "rejected" or "void".
    `selected`: index of the output pointed at, 0 for none. `gained`: tokens by which the text
    grows, 0 before judgement.
    """

    tokens: list[str]
    context: int
    m: int
    outputs: list[Output]
    drafts: list[str]
    selected: int
    rejected: int
    gained: int


def tokenize(sentence: str) -> list[str]:
    """Split a sentence into words, characters of Chinese, Japanese and Korean, and signs.

    A stand-in for a real tokenizer, good enough to show the structure. A token keeps the space
    before it, as the tokens of language models do.
    """
    text = re.sub(_SPACE, " ", sentence).strip(" ")
    return _TOKEN.findall(text)


def verification(tokens: list[str], *, m: int, output: int, reject: int) -> Pass:
    """Return the pass over `tokens`, the last `m` of them drafted.

    Args:
        tokens: two at least. m: lowered so that one token is left for the context.
        output: which output is pointed at, 0 for none; lowered to the last.
        reject: 0 before judgement; i: drafted token i is the first rejected; above m: none is.

    Raises:
        ValueError: fewer than two tokens.
    """
    if len(tokens) < 2:
        raise ValueError("a context and a drafted token need two tokens at least")
    m = min(m, len(tokens) - 1)
    context = len(tokens) - m
    judged, rejected = reject > 0, reject if 0 < reject <= m else 0
    outputs = []
    for j in range(1, m + 2):
        if not judged:
            fate = "open"
        elif rejected and j >= rejected:
            fate = "supplied" if j == rejected else "void"
        else:
            fate = "bonus" if j == m + 1 else "accepted"
        position = context - 2 + j
        outputs.append(Output(j, position, position + 1, j if j <= m else 0, fate))
    drafts = [{"supplied": "rejected"}.get(fate, fate) for fate in (o.fate for o in outputs[:m])]
    return Pass(
        tokens=tokens,
        context=context,
        m=m,
        outputs=outputs,
        drafts=drafts,
        selected=min(output, m + 1),
        rejected=rejected,
        gained=0 if not judged else rejected or m + 1,
    )
