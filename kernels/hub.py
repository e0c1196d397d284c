"""Weights from the Hugging Face cache or hub, without hanging where there is no network.

Honours HF_ENDPOINT (mirrors), HF_TOKEN, HF_HOME / HF_HUB_CACHE and HF_HUB_OFFLINE. Only
safetensors, configuration and tokenizer files are fetched: never pickles, never code.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from kernels import storage
from kernels.errors import SdError

T = TypeVar("T")

# Seconds until a machine without network falls through to the next place.
CONNECT_SECONDS = 5.0
_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
# Everything a model needs at the top of its repository, as the hub's own patterns.
_WANTED = [
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
]


class Unavailable(Exception):
    """This place does not have the weights; the message says why, for the list of places tried."""


def is_id(ref: str) -> bool:
    """Whether `ref` has the form owner/name or owner/name@revision."""
    return _ID.fullmatch(ref) is not None


def _parts(ref: str) -> tuple[str, str | None]:
    name, _, revision = ref.partition("@")
    return name, revision or None


def endpoint() -> str:
    """The hub or mirror in use."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def cached(ref: str) -> Path | None:
    """The folder of `ref` in the Hugging Face cache if all its files are there, else None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    name, revision = _parts(ref)
    try:
        found = snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=_WANTED
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, FileNotFoundError, ValueError):
        return None
    folder = Path(found)
    files = storage.weight_files(folder)
    if not files or not (folder / "config.json").exists():
        return None
    return folder if all(file.exists() for file in files) else None


def fetch(
    ref: str,
    *,
    progress: storage.Progress = storage.silent,
    before_download: Callable[[int], None] | None = None,
) -> Path:
    """Download `ref` into the Hugging Face cache and return its folder.

    `before_download(bytes of weights)` may raise to refuse (too large for this machine's memory).
    Raises `Unavailable` with the reason, or SdError `disk_full`. Interrupted downloads are resumed
    by huggingface_hub, which checks sizes and renames when a file is whole.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        raise Unavailable("HF_HUB_OFFLINE is set")
    name, revision = _parts(ref)
    api = HfApi(endpoint=endpoint())
    try:
        info = _with_deadline(
            lambda: api.model_info(
                name, revision=revision, timeout=CONNECT_SECONDS, files_metadata=True
            ),
            CONNECT_SECONDS + 3,
        )
    except Exception as error:
        raise Unavailable(explain(error, name)) from error
    sizes = {
        file.rfilename: file.size or 0
        for file in info.siblings or []
        if any(fnmatch(file.rfilename, pattern) for pattern in _WANTED)
    }
    weights = sum(size for file, size in sizes.items() if file.endswith(".safetensors"))
    if not weights:
        raise Unavailable("it has no model.safetensors (other formats are not loaded)")
    if before_download is not None:
        before_download(weights)
    total = sum(sizes.values())
    cache = Path(constants.HF_HUB_CACHE)
    storage.require_space(cache, total)
    blobs = cache / f"models--{name.replace('/', '--')}" / "blobs"
    try:
        with storage.disk_errors(cache, total), storage.watching(blobs, total, progress):
            folder = snapshot_download(
                name,
                revision=revision,
                endpoint=endpoint(),
                etag_timeout=CONNECT_SECONDS,
                allow_patterns=_WANTED,
                max_workers=2,
                tqdm_class=_silent_bar(),
            )
    except SdError:
        raise
    except Exception as error:
        raise Unavailable(explain(error, name)) from error
    return Path(folder)


def explain(error: Exception, name: str) -> str:
    """One line on why the hub did not give the weights."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return (
            f"access must be granted first: accept the licence at {endpoint()}/{name}, "
            "then set HF_TOKEN"
        )
    if isinstance(error, RepositoryNotFoundError):
        return "no such model there (or it is private: set HF_TOKEN)"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"HTTP {status}"
    text = str(error).strip().splitlines() or [type(error).__name__]
    return f"no connection ({text[0]})"


def discard_corrupt(folder: Path) -> None:
    """Remove damaged files of a folder in the Hugging Face cache, to be fetched again."""
    for path in storage.weight_files(folder):
        blob = path.resolve()
        try:
            storage.shapes(path)
            whole = len(blob.name) != 64 or storage.sha256(blob) == blob.name
        except SdError:
            whole = False
        if not whole:
            path.unlink(missing_ok=True)
            blob.unlink(missing_ok=True)


def _with_deadline(call: Callable[[], T], seconds: float) -> T:
    """Run `call` in a thread for at most `seconds`: a name server that does not answer has a time
    limit of its own, far longer than ours."""
    result: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            result.append(call())
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not result:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return result[0]


def _silent_bar() -> type[Any]:
    """A bar that draws nothing: the caller draws, from what arrives on disk."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    class Silent(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return Silent
