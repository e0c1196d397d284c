"""How much memory is left, with and without a container's limit."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from kernels import memory
from kernels.errors import SdError


def group(path: Path, limit: str, current: int = 0, file: int = 0) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{current}\n")
    (path / "memory.stat").write_text(f"anon 1\nfile {file}\n")


def test_the_tightest_group_above_counts(tmp_path: Path) -> None:
    root, membership = tmp_path / "cgroup", tmp_path / "self"
    membership.write_text("9:name=systemd:/x\n0::/a/b\n")
    assert memory._container_headroom(root, membership) is None  # no such control group
    group(root / "a" / "b", "max")
    assert memory._container_headroom(root, membership) is None
    group(root / "a", "1000", current=700, file=200)
    assert memory._container_headroom(root, membership) == 500
    group(root / "a" / "b", "800", current=790, file=0)
    assert memory._container_headroom(root, membership) == 10
    group(root / "a" / "b", "800", current=900)
    assert memory._container_headroom(root, membership) == 0
    assert memory._container_headroom(root, tmp_path / "nowhere") is None


def test_what_is_available_is_what_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    assert 0 < memory.available() <= total
    monkeypatch.setattr(memory, "_container_headroom", lambda *paths: 12_345)
    assert memory.available() == 12_345


def test_too_little_is_said_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device="cpu": 3_000_000_000)
    memory.require(3_000_000_000, "model")
    with pytest.raises(SdError, match=r"model needs about 5\.0 GB.* has 3\.0 GB free") as caught:
        memory.require(5_000_000_000, "model")
    assert caught.value.code == "not_enough_memory"
    assert caught.value.detail["needed"] == 5_000_000_000
    assert caught.value.detail["available"] == 3_000_000_000
