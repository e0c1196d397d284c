"""The cache folder on disk: nothing in it ever looks whole unless it is.

Files are written under another name, flushed to the disk, then renamed. A folder of weights carries
a manifest (sizes and SHA-256), written last. One process at a time prepares a folder; a second one
waits for the first and says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernels.errors import SdError

# progress(stage, done, total): stages are "wait", "download", "check", "convert", "load", "probe";
# done and total count bytes, except in "convert" (tensors), "wait", "load" and "probe" (0 or 1 of
# 1). "download" is reported from another thread.
Progress = Callable[[str, int, int], None]

MANIFEST = "manifest.json"
MANIFEST_SCHEMA = "speculative-decoding-live/weights/1"
_CHUNK = 4 << 20
_FULL_DISK = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


def silent(stage: str, done: int, total: int) -> None:
    """A progress callback that says nothing."""


def cache_root() -> Path:
    """Where prepared weights are kept: $SD_CACHE, else the user's cache folder of this system."""
    chosen = os.environ.get("SD_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("speculative-decoding-live", appauthor=False)


def megabytes(count: int) -> str:
    """Bytes in words, in the decimal units that disks and downloads are sold in."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def disk_full(folder: Path, needed: int | None = None) -> SdError:
    """The error for a full disk, with what is free and what is needed (bytes)."""
    free = shutil.disk_usage(_existing(folder)).free
    want = f"{megabytes(needed)} are needed" if needed else "more is needed"
    return SdError(
        "disk_full",
        f"The disk that holds {folder} has {megabytes(free)} free; {want}. "
        "Free some space, or set SD_CACHE to a folder on another disk.",
        folder=str(folder),
        free=free,
        needed=needed,
    )


def require_space(folder: Path, needed: int) -> None:
    """Raise `disk_full` unless `needed` bytes (and a little more) are free where `folder` lies."""
    if shutil.disk_usage(_existing(folder)).free < needed + (16 << 20):
        raise disk_full(folder, needed)


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


@contextmanager
def disk_errors(folder: Path, needed: int | None = None) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL_DISK:
            raise disk_full(folder, needed) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise SdError(
                "cache_not_writable",
                f"Cannot write to {folder} ({error.strerror}). "
                "Set SD_CACHE to a folder that this user may write to.",
                folder=str(folder),
                reason=str(error.strerror),
            ) from error
        raise


@contextmanager
def exclusive(path: Path, progress: Progress = silent) -> Iterator[None]:
    """Hold the lock file `path`; while another process holds it, report stage "wait"."""
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("wait", 0, 1)
            lock.acquire()
            progress("wait", 1, 1)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def watching(folder: Path, total: int, progress: Progress) -> Iterator[None]:
    """Report stage "download" from what arrives below `folder`, until the block ends.

    Clients and their versions report progress in many ways; the disk is the same for all of them.
    """
    before = _bytes_below(folder)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            progress("download", max(0, min(_bytes_below(folder) - before, total)), total)

    progress("download", 0, total)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress("download", total, total)


def _bytes_below(folder: Path) -> int:
    size = 0
    for inside, _, names in os.walk(folder):  # passes over a folder that is gone meanwhile
        for name in names:
            with suppress(OSError):  # moved meanwhile
                size += Path(inside, name).lstat().st_size
    return size


def write_file(path: Path, chunks: Iterable[bytes]) -> tuple[int, str]:
    """Write `chunks` to `path` so that it is there whole or not at all; return (bytes, SHA-256)."""
    part = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    size = 0
    try:
        with disk_errors(path.parent), part.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return size, digest.hexdigest()


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a few megabytes at a time."""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def sha256(path: Path, progress: Progress = silent) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    done, total = 0, path.stat().st_size
    for chunk in read_chunks(path):
        digest.update(chunk)
        done += len(chunk)
        progress("check", done, total)
    return digest.hexdigest()


def publish(part: Path, folder: Path, source: Mapping[str, Any]) -> None:
    """Turn the finished folder `part` into `folder`: manifest last, then one rename."""
    files = {
        file.name: {"size": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(part.iterdir())
        if file.name != MANIFEST
    }
    record = {"schema": MANIFEST_SCHEMA, "source": dict(source), "files": files}
    write_file(part / MANIFEST, [json.dumps(record, indent=1).encode()])
    with disk_errors(folder.parent):
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)


def manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, None if it has none (then it isn't one of ours, or isn't finished)."""
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if record.get("schema") == MANIFEST_SCHEMA else None


def corrupt(path: Path, reason: str) -> SdError:
    """The error for a weight file that is there but broken."""
    return SdError(
        "corrupt_weights",
        f"{path} is damaged: {reason}. Delete it and start again to fetch it anew.",
        file=str(path),
        why=reason,
    )


def check_folder(folder: Path, *, full: bool = False, progress: Progress = silent) -> None:
    """Raise `corrupt_weights` if a file of the folder is missing, truncated or (`full`) altered.

    Without `full` only sizes and safetensors headers are read, a few milliseconds. The Hugging
    Face cache has no manifest, but names each large file by its SHA-256, which `full` compares.
    """
    record = manifest(folder)
    for name, expected in (record or {"files": {}})["files"].items():
        path = folder / name
        size = path.stat().st_size if path.exists() else -1
        if size != expected["size"]:
            found = "it is missing" if size < 0 else f"it has {size} bytes"
            raise corrupt(path, f"{found} instead of {expected['size']}")
        if full and sha256(path, progress) != expected["sha256"]:
            raise corrupt(path, "its SHA-256 differs from the recorded one")
    for path in weight_files(folder):
        shapes(path)
        if full and record is None:
            name = path.resolve().name
            if len(name) == 64 and sha256(path, progress) != name:
                raise corrupt(path, "its SHA-256 differs from the one it was published with")


def shapes(path: Path) -> dict[str, list[int]]:
    """Name → shape of the tensors in a safetensors file, from its header.

    Raises `corrupt_weights` if the file is missing, truncated, or its header unreadable.
    """
    from safetensors import SafetensorError, safe_open

    try:
        # The library refuses a file whose length isn't what the header says.
        with safe_open(path, framework="np") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise corrupt(path, "it is missing") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise corrupt(path, f"it is not a whole safetensors file ({error})") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the model in `folder`; missing shards are listed too."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError) as error:
            raise corrupt(index, "it is not a readable index") from error
        return [folder / name for name in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if single.exists() else []


def parameter_count(folder: Path) -> int:
    """Number of parameters, from the headers alone."""
    return sum(prod(shape) for path in weight_files(folder) for shape in shapes(path).values())
