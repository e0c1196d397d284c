"""The Triton kernels: right in the interpreter, compiled for sm_90, and a schedule's record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import tiles

pytest.importorskip("triton", reason="Triton is for Linux only")

from tests.kernels.gpu_interpreted import CASES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, str]:
    """Case → what went wrong, from one run of all cases."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.gpu_interpreted"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.timeout(300)  # seconds on a quiet machine, but all of it in the first case
@pytest.mark.parametrize("case", CASES)
def test_in_the_interpreter(interpreted: dict[str, str], case: str) -> None:
    assert not interpreted[case], interpreted[case]


def compiled(kernel: Any, signature: dict[str, str], constants: dict[str, Any]) -> str:
    """PTX for an H100 or H200; no GPU is needed for that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = signature | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=types, constexprs=constants)
    result = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 4}
    )
    assert result.asm["cubin"]
    return str(result.asm["ptx"])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_acceptance_compiles_for_sm_90() -> None:
    from kernels.gpu.acceptance_kernel import _judge

    signature = dict.fromkeys(("target", "draft", "inputs", "result"), "*fp32")
    signature |= {"inverse": "fp32"} | dict.fromkeys(
        ("size", "m", "target_stride", "draft_stride"), "i32"
    )
    assert ".target sm_90" in compiled(_judge, signature, {"BLOCK": 2048})


@pytest.mark.parametrize("traced", [True, False])
def test_tiles_compile_for_sm_90(traced: bool) -> None:
    from kernels.gpu.tile_kernel import _STEP, TILE_ROWS, _tiles

    signature = dict.fromkeys(("weights", "x"), "*bf16")
    signature |= {"y": "*fp32", "queue": "*i32", "trace": "*i64"}
    signature |= dict.fromkeys(("rows", "columns", "tokens"), "i32")
    constants = {"TILE": TILE_ROWS, "STEP": _STEP, "TRACED": traced, "UPCAST": False}
    for tokens in (16, 128):
        ptx = compiled(_tiles, signature, constants | {"TOKENS": tokens})
        assert ".target sm_90" in ptx
        assert "mma" in ptx  # the matrix units do the work
        # An untraced run is that of a kernel without clocks.
        assert ptx.count("%globaltimer") == (2 if traced else 0)
        assert ("%smid" in ptx) == traced


def schedule() -> np.ndarray[Any, Any]:
    """(tiles, 4) as the kernel leaves it: two programs on cores 7 and 9, a clock of 32 ns."""
    start = 1_700_000_000_000_000_000 // 32 * 32
    return np.array(
        [
            [0, 7, start + 64, start + 256],
            [1, 9, start + 32, start + 320],
            [0, 7, start + 256, start + 480],
            [1, 9, start + 320, start + 576],
        ]
    )


def test_a_schedule_becomes_a_record_that_holds() -> None:
    from kernels.gpu.tile_kernel import columns_of

    columns, seconds, tick = columns_of(schedule())
    assert columns == {
        "tile": [1, 0, 2, 3],
        "unit": [1, 0, 0, 1],
        "core": [9, 7, 7, 9],
        "issue": [0, 32, 224, 288],
        "done": [288, 224, 448, 544],
    }
    assert (seconds, tick) == (544e-9, 32)
    record = {
        "matrix": {"rows": 4 * 64, "columns": 8192},
        "tile": {"rows": 64, "columns": 8192, "bytes": 64 * 8192 * 2},
        "runs": [{"k": 1, "traced_s": seconds, "columns": columns}],
    }
    tiles.check(record)
    json.dumps(record)
    late = schedule()
    late[2, 2] -= 64  # before the same program was done with tile 0
    record["runs"][0]["columns"] = columns_of(late)[0]
    with pytest.raises(ValueError, match="two things at once"):
        tiles.check(record)


def test_the_command_records_on_a_gpu_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernels.gpu import tile_kernel

    columns, seconds, _ = tile_kernel.columns_of(schedule())
    asked = {}

    def pretended(device: str, **options: Any) -> dict[str, Any]:
        asked.update(options, device=device)
        return {
            "matrix": {"rows": 256, "columns": 16},
            "tile": {"rows": 64, "columns": 16, "bytes": 64 * 16 * 2},
            "runs": [{"k": 1, "traced_s": seconds, "untraced_s": seconds, "columns": columns}],
        }

    monkeypatch.setattr(tile_kernel, "record", pretended)
    arguments = ["--device", "cuda:1", "--rows", "256", "--columns", "16", "--tokens", "1"]
    assert tiles.main([*arguments, "--out", str(tmp_path / "gpu.json")]) == 0
    assert (asked["device"], asked["rows"], asked["tile_rows"]) == ("cuda:1", 256, 64)
    assert json.loads((tmp_path / "gpu.json").read_text())["matrix"]["rows"] == 256


def test_tiles_that_do_not_divide_are_refused() -> None:
    from kernels.gpu.tile_kernel import record

    for rows, tile_rows in [(96, 64), (96, 48)]:
        with pytest.raises(ValueError, match="power of two"):
            record("cuda", rows=rows, tile_rows=tile_rows, command="a test")


@pytest.mark.gpu
def test_a_record_from_a_gpu() -> None:
    from kernels.gpu.tile_kernel import record

    found = record("cuda", rows=4096, columns=1024, tokens=(1, 5), repeats=3, command="a test")
    tiles.check(found)
    assert all(run["relative_error"] < 1e-3 for run in found["runs"])
    assert len(set(found["runs"][0]["columns"]["core"])) > 1


@pytest.mark.gpu
def test_the_rule_on_a_gpu() -> None:
    import torch

    from kernels.gpu.check import acceptance

    assert acceptance("cuda", vocabulary=5003, blocks=20)["differing"] == 0
    assert torch.cuda.is_available()
