"""The equality probe must see a decoder whose rows interact, however little."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.cache import Cache
from kernels.model import load_decoder
from kernels.native import library
from kernels.native.decoder import NativeDecoder
from kernels.probe import ROWS, probe
from tests.kernels import tiny

pytestmark = pytest.mark.skipif(not library.find_compilers(), reason="no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("llama"))


class Interacting(NativeDecoder):
    """One logit of the last row moves by one unit in the last place when five rows run together."""

    def forward(self, tokens: Sequence[int], cache: Cache, *, last_only: bool = False) -> Any:
        logits = super().forward(tokens, cache, last_only=last_only)
        if len(tokens) == 5:
            logits[-1, 17] = np.nextafter(logits[-1, 17], np.float32(np.inf))
        return logits


def test_the_c_decoder_is_bitwise(folder: Path) -> None:
    found = probe(NativeDecoder(folder))
    assert (found.kind, found.difference, found.rows) == ("bitwise", 0.0, ROWS)


def test_one_unit_in_the_last_place_is_seen(folder: Path) -> None:
    found = probe(Interacting(folder))
    assert found.kind == "close"
    assert 0 < found.difference < 1e-5


def test_torch_backends_get_a_verdict(folder: Path) -> None:
    for backend in ("packed", "hf"):
        found = probe(load_decoder(folder, device="cpu", backend=backend), rows=(2, 5))
        assert found.difference < 1e-3
        assert (found.kind == "bitwise") == (found.difference == 0.0)


def test_a_short_context_leaves_out_what_does_not_fit(tmp_path: Path) -> None:
    tiny.save(tmp_path, max_position_embeddings=13)
    assert probe(NativeDecoder(tmp_path)).rows == (2, 3, 4, 5)
    tiny.save(tmp_path, max_position_embeddings=9)
    with pytest.raises(ValueError, match="too few"):
        probe(NativeDecoder(tmp_path))
