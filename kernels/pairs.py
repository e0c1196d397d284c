"""Which two models race, and the checks that make a pair a pair.

The presets are in `presets.toml`; any two models can be given by path or Hugging Face id instead.
A draft must speak the target's tokens: the vocabularies may be padded to different sizes, but every
id that both know must mean the same.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import memory, storage, weights
from kernels.errors import SdError
from kernels.ngrams import NgramTable
from kernels.tokenizer import Tokenizer

if TYPE_CHECKING:
    from kernels.model import Decoder

NO_DRAFT = "none"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """A pair that can be chosen by name. Sizes in bytes, counts in parameters."""

    name: str
    title: str
    target: str
    draft: str
    target_parameters: int
    download: int
    memory: int
    languages: tuple[str, ...]
    licence: str
    draft_parameters: int = 0
    gated: bool = False
    ngrams: str = ""  # a table for look-up, a file beside this one

    @property
    def ships_draft(self) -> bool:
        """Whether the draft comes with this package instead of from the hub."""
        return self.draft.startswith("drafts/")

    @property
    def has_draft(self) -> bool:
        """Whether there is a draft model; the one that ships may be missing from this copy."""
        return not self.ships_draft or bool(storage.weight_files(_HERE / self.draft))


@dataclass
class Pair:
    """Two loaded models that speak the same tokens.

    draft is None where there is no draft model; look-up drafting works without one. guarantee:
    "bitwise" if verification gives the same logits as plain decoding to the last bit on this
    machine, else "close" (see `probe.py`). target_id, draft_id: where the weights came from, for
    traces. ngrams: what usually follows in the target's text, for look-up, where that is known.
    """

    name: str
    target: Decoder
    draft: Decoder | None
    tokenizer: Tokenizer
    target_id: str
    draft_id: str | None
    guarantee: str
    ngrams: NgramTable | None = None


@cache
def presets() -> dict[str, Preset]:
    """All pairs of presets.toml, by name; the first one is the default."""
    table = tomllib.loads((_HERE / "presets.toml").read_text("utf-8"))
    return {
        name: Preset(name=name, **{**entry, "languages": tuple(entry["languages"])})
        for name, entry in table.items()
    }


def preset(name: str) -> Preset:
    """The preset of that name. Raises SdError `unknown_pair` with the names that exist."""
    known = presets()
    if name not in known:
        raise SdError(
            "unknown_pair",
            f"There is no pair named {name!r}. There are: {', '.join(known)}. For other models "
            "give a target and a draft by path or Hugging Face id.",
            name=name,
            known=list(known),
        )
    return known[name]


def load_pair(
    name: str = "embedded",
    *,
    target: str | None = None,
    draft: str | None = None,
    progress: storage.Progress | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Pair:
    """Fetch if need be, check and load a pair.

    With `target` (path or Hugging Face id) the pair is that target and `draft`; without, `name`
    chooses a preset, and `draft` replaces its draft ("none": no draft model). Raises SdError:
    `unknown_pair`, `tokenizer_mismatch`, `not_enough_memory` and all of `weights.resolve`.
    """
    report = progress or storage.silent
    ngrams = None
    if target is None:
        chosen = preset(name)
        target, draft = chosen.target, draft or chosen.draft
        if chosen.ngrams:
            ngrams = NgramTable.load(Path(__file__).parent / chosen.ngrams)
    else:
        name, draft = "custom", draft or NO_DRAFT
    wanted = _Wanted(device, precision)

    target_decoder, target_folder = _load(target, wanted, report)
    tokenizer = Tokenizer.from_folder(target_folder)
    draft_decoder, draft_id = None, None
    if draft.startswith("drafts/"):
        folder = _HERE / draft
        if storage.weight_files(folder):  # a checkout without it still runs, on look-up alone
            draft_decoder = _load_shipped(folder, target_decoder, wanted)
            draft_id = folder.name
    elif draft != NO_DRAFT:
        draft_folder = _resolve(draft, wanted, report)
        require_same_tokens(
            tokenizer,
            Tokenizer.from_folder(draft_folder),
            target_vocab=target_decoder.vocab_size,
            draft_vocab=_config(draft_folder)["vocab_size"],
        )
        draft_decoder, draft_folder = _load(draft, wanted, report)
        draft_id = weights.describe(draft_folder)
    return Pair(
        name=name,
        target=target_decoder,
        draft=draft_decoder,
        tokenizer=tokenizer,
        target_id=weights.describe(target_folder),
        draft_id=draft_id,
        guarantee=_guarantee(target_decoder, report),
        ngrams=ngrams,
    )


def require_same_tokens(
    target: Tokenizer, draft: Tokenizer, *, target_vocab: int, draft_vocab: int
) -> None:
    """Raise SdError `tokenizer_mismatch` unless the draft can read and write the target's tokens.

    target_vocab, draft_vocab: rows of each model's embedding, padding included. Ids that only one
    tokenizer knows are allowed as long as both models have a row for them: a target token without a
    meaning for the draft is read as padding, which costs acceptance, not correctness.
    """
    ours, theirs = target.vocabulary, draft.vocabulary
    differing = [i for i, token in ours.items() if i in theirs and theirs[i] != token]
    if differing:
        i = differing[0]
        reason = (
            f"{len(differing)} token ids mean different things; id {i} is {ours[i]!r} to the "
            f"target and {theirs[i]!r} to the draft"
        )
    elif max(ours) >= draft_vocab:
        reason = f"the target uses token ids up to {max(ours)}, the draft knows {draft_vocab}"
    elif len(ours.keys() & theirs.keys()) < 0.9 * max(len(ours), len(theirs)):
        reason = f"the vocabularies hold {len(ours)} and {len(theirs)} tokens"
    else:
        return
    raise SdError(
        "tokenizer_mismatch",
        f"These two models do not speak the same tokens: {reason}. Choose a draft of the target's "
        "own family.",
        reason=reason,
        target_vocab=target_vocab,
        draft_vocab=draft_vocab,
    )


@dataclass(frozen=True)
class _Wanted:
    device: str
    precision: str

    @property
    def bytes_per_parameter(self) -> int:
        return 4 if self.precision in {"fp32", "float32"} else 2

    @property
    def memory_device(self) -> str:
        if self.device != "auto":
            return self.device
        from kernels.model import has_cuda

        return "cuda" if has_cuda() else "cpu"


def _needed(parameters: int, wanted: _Wanted) -> int:
    # A tenth and 100 MB more: caches, work space, the file being read.
    return int(1.1 * parameters * wanted.bytes_per_parameter) + 100_000_000


def _resolve(ref: str, wanted: _Wanted, progress: storage.Progress) -> Path:
    def before_download(size: int) -> None:
        # Files on the hub hold 2 bytes a parameter; refuse before the gigabytes come, not after.
        memory.require(_needed(size // 2, wanted), ref, wanted.memory_device)

    return weights.resolve(ref, progress=progress, before_download=before_download)


def _load(ref: str, wanted: _Wanted, progress: storage.Progress) -> tuple[Decoder, Path]:
    from kernels.model import load_decoder

    folder = _resolve(ref, wanted, progress)
    memory.require(_needed(storage.parameter_count(folder), wanted), ref, wanted.memory_device)
    progress("load", 0, 1)
    try:
        decoder = load_decoder(folder, device=wanted.device, precision=wanted.precision)
    except Exception as error:
        if isinstance(error, SdError) and error.code != "corrupt_weights":
            raise  # an architecture that is not supported, say
        # Sizes agreed, yet it does not load: now the whole content is worth comparing.
        if not weights.repair(folder, progress=progress):
            raise
        folder = _resolve(ref, wanted, progress)
        decoder = load_decoder(folder, device=wanted.device, precision=wanted.precision)
    progress("load", 1, 1)
    return decoder, folder


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    return config


def _load_shipped(folder: Path, target: Decoder, wanted: _Wanted) -> Decoder:
    """The draft that ships with this package: it has no embedding of its own."""
    from kernels.model import load_decoder

    return load_decoder(
        folder, device=wanted.device, precision=wanted.precision, embedding_from=target
    )


def _guarantee(target: Decoder, progress: storage.Progress) -> str:
    from kernels.probe import probe

    progress("probe", 0, 1)
    guarantee = probe(target)
    progress("probe", 1, 1)
    return guarantee.kind
