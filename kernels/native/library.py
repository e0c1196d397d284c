"""Builds decoder.c once for this machine's processor and binds it with ctypes.

The result lies in the cache folder under a key of source, compiler and processor features, so a
change of any of them builds anew. A build is tested in a process of its own before it gets its
final name: a library that computes nonsense, or uses an instruction this processor lacks, never
loads.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from kernels.machine import usable_cores
from kernels.storage import cache_root

SOURCE = Path(__file__).with_name("decoder.c")
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-pthread",
    "-shared",
    "-fPIC",
]
_BUILD_SECONDS = 120


class NativeUnavailable(Exception):
    """No working build on this machine; the text says why and what would help."""


class Layer(ctypes.Structure):
    """Pointers to one layer's weights; mirrors `Layer` in decoder.c."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "qkv", "o", "gate_up", "down", "attention_norm", "ffn_norm",
            "qkv_bias", "q_norm", "k_norm",
        )
    )  # fmt: skip


class Model(ctypes.Structure):
    """Sizes and pointers of one model; mirrors `Model` in decoder.c."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "layers", "width", "heads", "kv_heads", "head_dim", "ffn",
                "vocabulary", "head_rows", "weight_type",
            )
        ),
        ("epsilon", ctypes.c_float),
        *(
            (name, ctypes.c_void_p)
            for name in ("embedding", "head", "final_norm", "cosine", "sine", "layer")
        ),
    )  # fmt: skip


# `weight_type` and sd_pack's types.
TYPES = {"bf16": 0, "fp32": 1}
# sd_forward's answer.
OK, NO_MEMORY, NOT_FINITE = 0, 1, 2


@functools.cache
def library() -> ctypes.CDLL:
    """The bound library, built if need be. Raises NativeUnavailable."""
    if sys.platform == "win32":
        raise NativeUnavailable("the C decoder needs POSIX threads, which Windows does not have")
    return bind(build(cache_root() / "native"))


def build(folder: Path) -> Path:
    """Compile into `folder` unless it is there already; the path of the shared library."""
    compilers = find_compilers()
    if not compilers:
        raise NativeUnavailable(
            "no C compiler was found ($CC, cc, gcc, clang, ziglang); "
            "install one, for example with: pip install ziglang"
        )
    failures = []
    for compiler in compilers:
        target = folder / f"decoder-{_key(compiler)}.so"
        if target.is_file():
            return target
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f"{target.name}.lock"):
                if not target.is_file():
                    _compile(compiler, target)
        except (OSError, subprocess.SubprocessError, NativeUnavailable) as error:
            failures.append(f"{shlex.join(compiler)}: {error}")
        else:
            return target
    raise NativeUnavailable("; ".join(failures))


def find_compilers() -> list[list[str]]:
    """Commands to try, best first: $CC, then what the system has, then the ziglang package."""
    named = shlex.split(os.environ.get("CC", ""))
    commands = [named] if named and shutil.which(named[0]) else []
    commands += [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]
    if find_spec("ziglang"):
        commands.append([sys.executable, "-m", "ziglang", "cc"])
    return commands


def _key(compiler: list[str]) -> str:
    program = shutil.which(compiler[0]) or compiler[0]
    stat = Path(program).resolve().stat()
    about = [shlex.join(compiler), program, stat.st_size, stat.st_mtime_ns, FLAGS, _processor()]
    return hashlib.sha256(SOURCE.read_bytes() + repr(about).encode()).hexdigest()[:16]


def _processor() -> str:
    """What -march=native depends on."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return f"{platform.machine()} {platform.processor()}"


def _compile(compiler: list[str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        for tune in (["-march=native"], ["-mcpu=native"], []):
            command = [*compiler, *FLAGS, *tune, "-o", str(made), str(SOURCE), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)
            if done.returncode == 0:
                break
        else:
            raise NativeUnavailable(done.stderr.strip()[-500:])
        check = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).sd_self_test())"
        tested = subprocess.run(
            [sys.executable, "-I", "-c", check, str(made)], timeout=_BUILD_SECONDS
        )
        if tested.returncode:
            raise NativeUnavailable(f"the build failed its self-test (status {tested.returncode})")
        made.replace(target)


def bind(path: Path) -> ctypes.CDLL:
    """Load the library and give its functions their types."""
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeUnavailable(f"{path} does not load: {error}") from error
    i32, i64, pointer = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "sd_panel_width": (i32, []),
        "sd_instructions": (ctypes.c_char_p, []),
        "sd_pack": (None, [pointer, i32, pointer, i32, i64, i64, i64, i64]),
        "sd_product": (None, [i32, pointer, i32, pointer, i32, i32, pointer]),
        "sd_pool_new": (pointer, [i32]),
        "sd_pool_threads": (i32, [pointer]),
        "sd_forward": (i32, [pointer, pointer, i32, pointer, pointer, i64]),
        "sd_read": (ctypes.c_uint, [pointer, pointer, i64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


# Past this many threads the passes of small models wait for each other more than for memory.
_MOST_THREADS = 16
_pools: dict[int, int] = {}


def default_threads() -> int:
    """The usable cores, at most 16."""
    return min(usable_cores(), _MOST_THREADS)


def pool(threads: int) -> int:
    """A handle of the process's pool of that many threads.

    Pools are shared by all decoders and live as long as the process: their threads sleep when idle.
    """
    if threads not in _pools:
        handle = library().sd_pool_new(threads)
        if not handle:
            raise MemoryError("no memory for the decoder's threads")
        _pools[threads] = handle
    return _pools[threads]


# A forked child has the pool's memory but not its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)
