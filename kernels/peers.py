"""The same models in transformers, beside our engine: plain `generate`, and assisted by the draft.

A comparison is fair when the peer gets the same weights, the same precision, the same draft, its
best number of drafted tokens, and no confidence threshold (its default of 0.4 ends drafts early).
Where the processor has no BF16 arithmetic transformers is faster in FP32, so it may use that as
well, and its better result counts in `…_best`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.bench import finish
from kernels.errors import SdError
from kernels.prompts import Prompt
from kernels.race import encode_prompt, plain_lane, speculative_lane
from kernels.settings import Settings

if TYPE_CHECKING:
    from kernels.pairs import Pair

LENGTHS = (2, 4, 7)  # drafted tokens tried for its assisted generation
NEW_TOKENS = 48  # at most: a rate needs no longer text, and transformers takes its time
PRECISIONS = ("bf16", "fp32")


def compare(
    pair: Pair,
    options: argparse.Namespace,
    chosen: Sequence[Prompt],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Time ours and theirs in turns on each prompt, greedy; the peers' entries of the JSON line.

    options: of the bench (pair, target, draft, m, length). A ratio above 1 means ours is faster.
    """
    target_folder, draft = folders(options)
    ours: dict[str, list[float]] = {"plain": [], "speculative": []}
    theirs: dict[str, list[float]] = {}
    with _assistant_folder(draft, target_folder, pair) as assistant_folder:
        models = {name: _load(target_folder, name) for name in PRECISIONS}
        assistants = {
            name: _load(assistant_folder, name) for name in PRECISIONS if assistant_folder
        }
        for prompt in chosen:
            length = min(options.length, NEW_TOKENS)
            settings = Settings(prompt.text, length=length, m=options.m)
            ids = encode_prompt(pair, settings)
            for name, make in (("plain", plain_lane), ("speculative", speculative_lane)):
                ours[name].append(finish(make(pair, ids, settings)).seconds_a_token)
            for name, model in models.items():
                theirs.setdefault(name, []).append(seconds_a_token(model, ids, length))
                for m in LENGTHS if name in assistants else ():
                    key = f"{name} assisted m={m}"
                    seconds = seconds_a_token(model, ids, length, assistants[name], m)
                    theirs.setdefault(key, []).append(seconds)
            say(f"{prompt.id:12}transformers " + _line(theirs))
    plain, speculative = (statistics.mean(ours[name]) for name in ("plain", "speculative"))
    means = {name: statistics.mean(seconds) for name, seconds in theirs.items()}
    same = pair.target.precision
    assisted = {name: seconds for name, seconds in means.items() if "assisted" in name}
    return {
        "plain_vs_transformers": means[same] / plain if same in means else None,
        "plain_vs_transformers_best": min(means[name] for name in PRECISIONS) / plain,
        "speculative_vs_transformers_assisted": _best(assisted, same, speculative),
        "speculative_vs_transformers_assisted_best": _best(assisted, "", speculative),
        "transformers_tokens_per_s": {name: 1 / seconds for name, seconds in means.items()},
    }


def seconds_a_token(
    model: Any, ids: Sequence[int], length: int, assistant: Any = None, m: int = 0
) -> float:
    """Of the decode phase of one greedy `generate`: the time of one token alone is taken off."""
    import torch

    extra: dict[str, Any] = {}
    if assistant is not None:
        config = assistant.generation_config
        config.num_assistant_tokens = m
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        extra["assistant_model"] = assistant

    def run(new: int) -> tuple[float, int]:
        prompt = torch.tensor([list(ids)])
        start = time.perf_counter()
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            **extra,
        )
        return time.perf_counter() - start, out.shape[1] - len(ids)

    first, _ = run(1)
    whole, made = run(length)
    return max(whole - first, 1e-9) / max(1, made - 1)


def _best(assisted: dict[str, float], precision: str, ours: float) -> float | None:
    times = [seconds for name, seconds in assisted.items() if name.startswith(precision)]
    return min(times) / ours if times else None


def _line(theirs: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {1 / seconds[-1]:.1f}/s" for name, seconds in theirs.items())


def _load(folder: Path, precision: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, trust_remote_code=False).eval()


def folders(options: argparse.Namespace) -> tuple[Path, str]:
    """Return where the target's weights are, and what the draft is ("none" if there is none)."""
    from kernels import weights
    from kernels.pairs import NO_DRAFT, preset

    if options.target is not None:
        return weights.resolve(options.target), options.draft or NO_DRAFT
    chosen = preset(options.pair)
    return weights.resolve(chosen.target), options.draft or chosen.draft


@contextmanager
def _assistant_folder(draft: str, target: Path, pair: Pair) -> Iterator[Path | None]:
    """The draft as a folder that transformers can load; the shipped one is converted for it."""
    from kernels import weights
    from kernels.pairs import NO_DRAFT

    if pair.draft is None or draft == NO_DRAFT:
        yield None
    elif not draft.startswith("drafts/"):
        yield weights.resolve(draft)
    else:
        from kernels.distill import main as distill

        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "draft"
            with redirect_stdout(sys.stderr):  # stdout is for the JSON line
                status = distill(["export-transformers", str(out), "--target", str(target)])
            if status:
                raise SdError("bad_draft", "The shipped draft could not be converted: see above.")
            yield out
