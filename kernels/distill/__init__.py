"""How the shipped draft was made, repeatable by anyone: `python -m kernels distill --help`.

    generate   let the target write text to prompts of the bank, and record its probabilities
    train      fit a small draft to them (checkpoints, resume)
    evaluate   measure the acceptance rate on topics that training never saw
    export     write the draft folder that the engine loads
    export-transformers   write it as a full model, usable as transformers' `assistant_model`

corpus.py (the text), prompts.py (the bank and the held-out topics), draft.py (the network),
loss.py (what is minimised), train.py, evaluate.py, export.py, generate.py: one noun a file.
Importing this package loads nothing heavy.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run one `distill` command; returns the exit status."""
    from kernels.distill.cli import run

    return run(argv)
