"""How much memory a model may still take on this machine."""

from __future__ import annotations

from pathlib import Path

from kernels.errors import SdError
from kernels.storage import megabytes


def available(device: str = "cpu") -> int:
    """Bytes that can be allocated now without swapping: on the device, or in the main memory.

    A container's own limit counts too.
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    free = int(psutil.virtual_memory().available)
    limit = _container_headroom(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return free if limit is None else min(free, limit)


def require(needed: int, name: str, device: str = "cpu") -> None:
    """Raise SdError `not_enough_memory` unless `needed` bytes are available for `name`."""
    free = available(device)
    if needed > free:
        where = "this machine" if device == "cpu" else device
        raise SdError(
            "not_enough_memory",
            f"{name} needs about {megabytes(needed)} of memory; {where} has {megabytes(free)} "
            "free. Choose a smaller pair, or close other programs.",
            name=name,
            needed=needed,
            available=free,
            device=device,
        )


def _container_headroom(root: Path, membership: Path) -> int | None:
    """Bytes left under the memory limit of this process's control group (v2), None without one."""
    try:
        lines = membership.read_text("utf-8").splitlines()
        path = next(line[3:] for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    left: int | None = None
    group = root / path.lstrip("/")
    while True:  # the limit of every group above holds too
        headroom = _group_headroom(group)
        if headroom is not None:
            left = headroom if left is None else min(left, headroom)
        if group == root or root not in group.parents:
            return left
        group = group.parent


def _group_headroom(group: Path) -> int | None:
    try:
        limit = (group / "memory.max").read_text("ascii").strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text("ascii"))
        stat = dict(
            line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
        )
    except (OSError, ValueError):
        return None
    # Cached file contents count as used, but are given back when memory is wanted.
    return max(0, int(limit) - used + int(stat.get("file", 0)))
