"""Fixtures that several files of this folder use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.weights_world import package, real_client, world, write_gguf

__all__ = ["as_on_a_gpu", "package", "real_client", "tiny", "world"]


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is packed for oneDNN; one thread, since these products are tiny."""
    import torch

    monkeypatch.setattr("kernels.packed.pack", lambda weight, bias: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights folder that comes of a tiny GGUF file; to read, not to change."""
    from kernels import gguf_files

    folder = tmp_path_factory.mktemp("converted")
    write_gguf(folder / "tiny.gguf")
    gguf_files.convert(folder / "tiny.gguf", folder / "tiny", source={"from": "tiny.gguf"})
    return folder / "tiny"
