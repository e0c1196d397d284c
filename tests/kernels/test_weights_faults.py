"""Whatever breaks on the way, what lies in the cache is whole or is not there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels import hub, storage, weights, wheel
from kernels.errors import SdError
from kernels.wheel import WheelSource
from tests.kernels.weights_world import World, hub_files, write_gguf

# --- damaged ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["truncated", "changed"])
def test_a_broken_download_leaves_nothing_that_looks_whole(
    real_client: None, world: World, fault: str
) -> None:
    world.server.fault = fault
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert caught.value.code in {"weights_not_found", "corrupt_weights"}
    assert world.left_over() == []
    assert not (world.cache / "weights" / world.source.folder_name).exists()
    world.server.fault = "none"
    assert world.resolve().exists()


def test_a_wheel_that_holds_another_file_is_refused(world: World, tmp_path: Path) -> None:
    source = WheelSource(**{**world.source.__dict__, "sha256": "0" * 64})
    with pytest.raises(SdError) as caught:
        weights.resolve(package=source)
    assert caught.value.code == "corrupt_weights"
    assert "SHA-256" in str(caught.value)
    assert world.left_over() == []


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_truncated_file_in_our_cache_is_fetched_again(world: World, size: int) -> None:
    file = world.resolve() / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert (world.resolve() / "model.safetensors").read_bytes() == whole
    assert world.server.downloads == 2


def test_a_truncated_tokenizer_in_our_cache_is_fetched_again(world: World) -> None:
    file = world.resolve() / "tokenizer.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert (world.resolve() / "tokenizer.json").read_bytes() == whole


def test_a_flipped_bit_is_found_when_loading_has_failed(world: World) -> None:
    file = world.resolve() / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    assert world.resolve() == file.parent  # sizes agree
    assert weights.repair(file.parent)
    assert not file.exists()
    assert (world.resolve() / "model.safetensors").read_bytes() == whole
    assert not weights.repair(file.parent)


def test_a_damaged_file_in_the_hub_cache_is_fetched_again(world: World, tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    write_gguf(source, seed=1)
    world.server.hub_files = hub_files(world.resolve(str(source)))
    world.server.hub_fault = "none"
    file = world.resolve() / "model.safetensors"
    whole = file.read_bytes()
    blob = file.resolve()
    blob.write_bytes(whole[:1000])
    assert (world.resolve() / "model.safetensors").read_bytes() == whole
    # Incomplete and damaged: huggingface_hub fetches what is missing, and believes in the rest.
    blob.write_bytes(whole[:1000])
    (file.parent / "config.json").unlink()
    assert (world.resolve() / "model.safetensors").read_bytes() == whole
    blob.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert weights.repair(file.parent)
    assert (world.resolve() / "model.safetensors").read_bytes() == whole


def test_a_truncated_hub_download_is_not_kept(world: World, tmp_path: Path) -> None:
    source = tmp_path / "tiny.gguf"
    write_gguf(source, seed=1)
    world.server.hub_files = hub_files(world.resolve(str(source)))
    world.server.hub_fault = "truncated"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
        folder = world.resolve()
    assert "sd-test-weights" in weights.describe(folder)  # the next place took over
    assert hub.cached("tiny/tiny-model") is None


def test_the_users_own_damaged_folder_is_reported_not_deleted(world: World, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    world.resolve().rename(mine)
    (mine / "manifest.json").unlink()
    file = mine / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SdError) as caught:
        world.resolve(str(mine))
    assert caught.value.code == "corrupt_weights"
    with pytest.raises(SdError, match="damaged"):
        weights.repair(mine)
    assert file.exists()


def test_a_damaged_gguf_is_reported(world: World, tmp_path: Path) -> None:
    source = tmp_path / "broken.gguf"
    write_gguf(source)
    source.write_bytes(source.read_bytes()[:2000])
    with pytest.raises(SdError) as caught:
        world.resolve(str(source))
    assert caught.value.code == "corrupt_weights"
    assert world.left_over() == []


def test_a_missing_shard_is_named(world: World, tmp_path: Path) -> None:
    folder = world.resolve()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "manifest.json").unlink()
    mine = folder.rename(tmp_path / "sharded")
    with pytest.raises(SdError, match=r"model-00001-of-00002\.safetensors is damaged") as caught:
        world.resolve(str(mine))
    assert caught.value.code == "corrupt_weights"


# --- a full disk --------------------------------------------------------------------------------


def test_too_little_space_is_said_before_downloading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = storage.shutil.disk_usage
    monkeypatch.setattr(
        storage.shutil, "disk_usage", lambda path: real(path)._replace(free=1_000_000)
    )
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert caught.value.code == "disk_full"
    assert caught.value.detail["free"] == 1_000_000
    assert caught.value.detail["needed"] > 0
    assert "SD_CACHE" in str(caught.value)
    assert world.server.downloads == 0


@pytest.mark.parametrize("allowed", [0, 20_000, 150_000])
def test_a_disk_that_fills_up_while_writing(
    world: World, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    written = 0
    real_open = Path.open

    def open_(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = real_open(self, mode, *args, **kwargs)
        if self.suffix != ".part":
            return file
        real_write = file.write

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *args: object) -> None:
                file.close()

            def write(self, data: bytes) -> int:
                nonlocal written
                written += len(data)
                if written > allowed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return int(real_write(data))

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_)
        with pytest.raises(SdError) as caught:
            world.resolve()
    assert caught.value.code == "disk_full"
    # A file that was verified before the disk filled up may stay: it is whole.
    assert set(world.left_over()) <= {f"{world.source.folder_name}.gguf"}
    assert world.resolve().exists()
    assert world.left_over() == []


def test_pip_reporting_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "import sys; sys.exit('ERROR: [Errno 28] No space left on device')"
    monkeypatch.setattr(wheel, "_commands", lambda *_: [("pip", [sys.executable, "-c", says])])
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert caught.value.code == "disk_full"


def test_a_finished_cache_may_be_read_only(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mine.gguf"
    write_gguf(source)
    folders = [world.resolve(), world.resolve(str(source))]

    def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("mkdir", "unlink", "replace", "touch"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr(weights.storage, "exclusive", refuse)
    assert [world.resolve(), world.resolve(str(source))] == folders


def test_a_cache_that_may_not_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert caught.value.code == "cache_not_writable"
    assert "SD_CACHE" in str(caught.value)


# --- several processes, and the end of one ------------------------------------------------------

SCRIPT = """
import sys
from kernels import gguf_files, weights
from kernels.wheel import WheelSource

source = WheelSource(**{source!r})
if {hang!r}:
    import time
    def hang(*args):
        print("hanging", flush=True)
        time.sleep(60)
    gguf_files._write_weights = hang
last = None
def progress(stage, done, total):
    global last
    if stage != last:
        print(stage, flush=True)
    last = stage
print(weights.resolve(package=source, progress=progress), flush=True)
"""


def start(world: World, *, hang: bool = False) -> subprocess.Popen[str]:
    script = textwrap.dedent(SCRIPT).format(source=world.source.__dict__, hang=hang)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the process ended without saying {word!r}")


def test_a_second_start_waits_for_the_first_and_says_so(world: World) -> None:
    world.server.fault = "slow"
    first = start(world)
    wait_for(lambda: world.server.downloads == 1)
    second = start(world)
    until(second, "wait")
    world.server.release.set()
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in (first, second)]
    assert outputs[0][-1] == outputs[1][-1]
    assert Path(outputs[0][-1]).exists()
    assert world.server.downloads == 1
    assert "download" not in outputs[1]


def test_killed_in_mid_download_then_started_again(real_client: None, world: World) -> None:
    world.server.fault = "slow"
    first = start(world)
    wait_for(lambda: world.server.downloads == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (world.cache / "weights" / world.source.folder_name).exists()
    world.server.fault = "none"
    assert world.resolve().exists()
    assert world.left_over() == []


def test_a_folder_that_goes_while_it_is_measured_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip-unpack").mkdir()
    (tmp_path / "pip-unpack" / "part").write_bytes(b"12345")
    (tmp_path / "model.bin").write_bytes(b"123")
    assert storage._bytes_below(tmp_path) == 8
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("pip-unpack"):
            shutil.rmtree(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert storage._bytes_below(tmp_path) == 3


def test_killed_in_mid_conversion_then_started_again(world: World) -> None:
    first = start(world, hang=True)
    until(first, "hanging")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (world.cache / "weights" / world.source.folder_name).exists()
    assert world.left_over() != []  # half a folder lies there, under another name
    folder = world.resolve()
    storage.check_folder(folder, full=True)
    assert world.left_over() == []
    assert world.server.downloads == 1  # the verified file was still good
