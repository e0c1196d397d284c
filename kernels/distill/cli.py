"""`python -m kernels distill …`: arguments in, files out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

CACHE = Path.home() / ".cache" / "speculative-decoding-live" / "distill"
SHIPPED = Path(__file__).resolve().parents[1] / "drafts" / "smollm2-135m-draft"


def _parser() -> argparse.ArgumentParser:
    from kernels import distill

    parser = argparse.ArgumentParser(
        prog="python -m kernels distill",
        description=distill.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, about: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=about, description=about)
        sub.add_argument("--target", type=Path, required=True, help="the target's weights folder")
        sub.add_argument("--threads", type=int, default=2, help="processor threads")
        return sub

    generate = add("generate", "Let the target write text to the prompt bank.")
    generate.add_argument("--out", type=Path, default=CACHE / "text.npz", help="corpus file")
    generate.add_argument("--shards", type=Path, default=CACHE / "shards", help="to resume from")
    generate.add_argument("--answers", type=int, default=4500)
    generate.add_argument("--batch", type=int, default=32, help="answers at a time")
    generate.add_argument("--length", type=int, default=224, help="most tokens an answer")
    generate.add_argument("--seed", type=int, default=0)

    train = add("train", "Fit a draft to text that the target wrote.")
    train.add_argument("--data", type=Path, nargs="+", default=[CACHE / "text.npz"], help="corpora")
    train.add_argument("--run", type=Path, default=CACHE / "run", help="checkpoints and log")
    train.add_argument("--start", type=Path, help="begin from this checkpoint's weights")
    train.add_argument("--stop-after", type=int, help="end the call after this step of the run")
    train.add_argument("--evaluate-on", type=int, default=128, help="held-out answers to score")
    train.add_argument("--layers", help="target layers to start from, as 0,1")
    train.add_argument("--head", type=int, help="rows of the head")
    train.add_argument("--epochs", type=float)
    train.add_argument("--batch", type=int, help="answers a step")
    train.add_argument("--rate", type=float)
    train.add_argument("--head-rate", type=float)
    train.add_argument("--muon-rate", type=float, help="use Muon for the layers, at this rate")
    train.add_argument("--weight-decay", type=float)
    train.add_argument("--kl", type=float, help="weight of the forward KL")
    train.add_argument("--tv", type=float, help="weight of the total variation")
    train.add_argument("--warm-up", type=int, help="steps")
    train.add_argument("--decay", type=float, help="share of the run over which the rates fall")
    train.add_argument("--final-rate", type=float, help="share of the peak rate at the end")
    train.add_argument("--evaluate-every", type=int)
    train.add_argument("--seed", type=int)

    evaluate = add("evaluate", "Measure acceptance on topics that training never saw.")
    evaluate.add_argument("--data", type=Path, nargs="+", default=[CACHE / "text.npz"])
    evaluate.add_argument("--draft", type=Path, nargs="+", default=[SHIPPED], help="draft folders")
    evaluate.add_argument("--answers", type=int, default=128)
    evaluate.add_argument("--out", type=Path, help="write the numbers here too, as JSON")

    export = add("export", "Write the draft folder that the engine loads.")
    export.add_argument("--run", type=Path, default=CACHE / "run")
    export.add_argument("--checkpoint", default="best.pt", help="best.pt or last.pt")
    export.add_argument("--card", type=Path, help="model card to ship; default: keep the old one")
    export.add_argument("--out", type=Path, default=SHIPPED)

    full = add("export-transformers", "Write the draft as a whole model for `assistant_model`.")
    full.add_argument("out", type=Path)
    full.add_argument("--draft", type=Path, default=SHIPPED)
    return parser


def _ends(target: Any) -> list[int]:
    ends = target.config.eos_token_id
    return list(ends) if isinstance(ends, list | tuple) else [ends]


def _generate(args: argparse.Namespace) -> None:
    from rich.progress import MofNCompleteColumn, Progress

    from kernels.distill.draft import load_target, load_tokenizer
    from kernels.distill.generate import generate

    target = load_target(args.target)
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn()) as bar:
        task = bar.add_task("writing", total=None)
        corpus = generate(
            target,
            load_tokenizer(args.target),
            args.shards,
            answers=args.answers,
            batch=args.batch,
            length=args.length,
            end_tokens=_ends(target),
            seed=args.seed,
            progress=lambda done, total, tokens: bar.update(
                task, completed=done, total=total, description=f"{tokens} tokens"
            ),
        )
    corpus.save(args.out)
    print(f"{len(corpus)} answers, {len(corpus.tokens)} tokens: {args.out}")


def _train(args: argparse.Namespace) -> None:
    import numpy as np
    import torch

    from kernels.distill import corpus as corpora
    from kernels.distill.draft import load_target, load_tokenizer, start_from_target
    from kernels.distill.prompts import split
    from kernels.distill.train import TrainSettings, train

    names = {field.name for field in fields(TrainSettings)} - {"layers"}
    given = {n: getattr(args, n) for n in names if getattr(args, n, None) is not None}
    if args.layers:
        given["layers"] = tuple(int(n) for n in args.layers.split(","))
    settings = TrainSettings(**given)
    corpus = corpora.join([corpora.load(path) for path in args.data])
    training, held_out = split(corpus, load_tokenizer(args.target))
    if args.evaluate_on < len(held_out):
        chosen = np.random.default_rng(0).permutation(len(held_out))[: args.evaluate_on]
        held_out = held_out.select(sorted(chosen.tolist()))
    target = load_target(args.target)
    weights: dict[str, Any] = {}
    if args.start:
        weights = torch.load(args.start, weights_only=True)["weights"]
        head_ids = weights["head_ids"].numpy()
    else:
        head_ids = corpora.frequent_tokens(training, settings.head, always=_ends(target))
    draft = start_from_target(target, settings.layers, head_ids)
    draft.load_state_dict(weights, strict=False)
    del target
    print(
        f"{len(training)} answers ({len(training.tokens)} tokens) to train on; scored on "
        f"{len(held_out)} ({len(held_out.tokens)} tokens) of topics that are held out",
        flush=True,
    )

    def report(line: dict[str, Any]) -> None:
        by = " ".join(f"{t}:{v:.3f}" for t, v in line["greedy_by_temperature"].items())
        print(
            f"step {line['step']}/{line['steps']}  {line['seconds']:.0f} s of processor time  "
            f"loss {line['loss']}  held out: KL {line['kl']:.4f}  "
            f"α(T=1) ≥ {line['alpha_bound']:.4f}  greedy {line['greedy_match']:.4f} ({by})",
            flush=True,
        )

    train(draft, training, held_out, settings, args.run, report=report, stop_after=args.stop_after)


def _evaluate(args: argparse.Namespace) -> None:
    from rich.progress import track

    from kernels.distill import corpus as corpora
    from kernels.distill.draft import load_target, load_tokenizer
    from kernels.distill.evaluate import Judge, choose
    from kernels.distill.export import load_draft
    from kernels.distill.prompts import find_prompts, split

    tokenizer = load_tokenizer(args.target)
    _, held_out = split(corpora.join([corpora.load(path) for path in args.data]), tokenizer)
    chosen = held_out.select(choose(held_out.temperature, args.answers))
    target = load_target(args.target)
    judge = Judge(target, {str(path): load_draft(path, target) for path in args.draft})
    prompts = find_prompts(tokenizer, chosen.prompts())
    for i in track(range(len(chosen)), "judging", console=_stderr()):
        judge.add(chosen, i, prompts[i].domain)
    report = {"answers": len(chosen), "tokens": len(chosen.tokens)}
    results = {name: report | result.as_json() for name, result in judge.results.items()}
    text = json.dumps(results, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


def _stderr() -> Any:
    from rich.console import Console

    return Console(file=sys.stderr)


def _export(args: argparse.Namespace) -> None:
    import torch

    from kernels.distill.draft import Draft, draft_config, load_target
    from kernels.distill.export import save_draft

    file = args.run / args.checkpoint
    if not file.is_file():
        raise FileNotFoundError(f"No checkpoint {file}: first run `distill train`.")
    weights = torch.load(file, weights_only=True)["weights"]
    head_ids = weights["head_ids"].numpy()
    layers = 1 + max(int(k.split(".")[2]) for k in weights if k.startswith("model.layers."))
    draft = Draft(draft_config(load_target(args.target).config, layers), head_ids)
    draft.load_state_dict(weights, strict=False)
    card = args.card or args.out / "README.md"
    log = args.run / "log.jsonl"
    save_draft(
        draft,
        args.out,
        card=card.read_text(encoding="utf-8") if card.is_file() else "",
        curves=log.read_text(encoding="utf-8") if log.is_file() else "",
    )
    print(f"{args.out}: {(args.out / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


def _export_transformers(args: argparse.Namespace) -> None:
    from kernels.distill.draft import load_target, load_tokenizer
    from kernels.distill.export import load_draft, save_transformers
    from kernels.distill.prompts import bank, chat_tokens

    target = load_target(args.target)
    draft = load_draft(args.draft, target)
    tokenizer = load_tokenizer(args.target)
    texts = [chat_tokens(tokenizer, prompt.text) for prompt in bank()[::37]]
    report = save_transformers(draft, tokenizer, args.out, texts)
    print(json.dumps(report))


def run(argv: Sequence[str]) -> int:
    """Run one command. What a user can mend (a path, a file) is one line on stderr and status 2."""
    args = _parser().parse_args(argv)
    import torch

    torch.set_num_threads(args.threads)
    commands = {
        "generate": _generate,
        "train": _train,
        "evaluate": _evaluate,
        "export": _export,
        "export-transformers": _export_transformers,
    }
    try:
        commands[args.command](args)
    except (FileNotFoundError, ValueError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0
