"""The wheel holds every file of the four packages, and works where nothing else of ours is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests import repository
from tests.browser.harness import free_port
from tests.repository import ROOT

PACKAGES = ("app", "content", "figures", "kernels")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return next(folder.glob("*.whl"))


def source_files() -> set[str]:
    """The files of the four packages as git sees them, new ones included."""
    return {path.relative_to(ROOT).as_posix() for path in repository.files(*PACKAGES)}


def test_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if ".dist-info/" not in name and not name.endswith("/")
    }
    assert names == source_files()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that holds the wheel.

    What the wheel depends on is lent from this environment (a gigabyte of torch), by a path and not
    by its `.pth` files: the repository itself, an editable install, is not lent.
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=os.name == "posix")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    run = subprocess.run(
        [*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(own) / "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def call(python: Path, folder: Path, *arguments: str) -> str:
    """Run a command of the installed project in some folder; returns what it printed."""
    run = subprocess.run(
        [python, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_nothing_comes_from_the_repository(installed: Path, tmp_path: Path) -> None:
    code = (
        f"import {', '.join(PACKAGES)}, sys; "
        f"print(*(p.__file__ for p in ({', '.join(PACKAGES)})), sep='\\n')"
    )
    for path in call(installed, tmp_path, "-c", code).splitlines():
        assert Path(path).is_relative_to(installed.parent.parent), path


def test_writes_the_article_from_any_folder(installed: Path, tmp_path: Path) -> None:
    call(installed, tmp_path, "-m", "app", "build", "-o", "here", "--base-url", "https://a.example")
    names = {p.relative_to(tmp_path / "here").as_posix() for p in (tmp_path / "here").rglob("*.*")}
    assert {"zh/index.html", "en/index.html", "LICENSE.txt", "sitemap.xml"} <= names
    for stem in ("card-zh", "card-en", "race-list", "words-zh", "bokeh.min"):
        assert any(name.startswith(f"assets/{stem}.") for name in names), stem


def test_exports_a_figure_from_any_folder(installed: Path, tmp_path: Path) -> None:
    call(installed, tmp_path, "-m", "figures", "export", "mask", "--lang", "zh", "-o", "mask.html")
    assert '<html lang="zh' in (tmp_path / "mask.html").read_text("utf-8")


@pytest.mark.parametrize("command", ["race", "bench", "weights", "lossless"])
def test_the_engines_commands_are_there(installed: Path, tmp_path: Path, command: str) -> None:
    assert "usage: python -m kernels" in call(
        installed, tmp_path, "-m", "kernels", command, "--help"
    )


def test_holds_the_draft_and_the_table_behind_look_up(installed: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import kernels; "
        "root = Path(kernels.__file__).parent / 'drafts'; "
        "print(*(p.name for p in root.rglob('*') if p.stat().st_size > 1e5))"
    )
    found = call(installed, tmp_path, "-c", code).split()
    assert {"model.safetensors", "smollm2-135m-ngrams.npz"} <= set(found)


def test_serves_from_any_folder(installed: Path, tmp_path: Path) -> None:
    port = free_port()
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [installed, "-m", "app", "serve", "--port", str(port)],
            cwd=tmp_path,
            env=os.environ | {"SHOW": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        home = f"http://localhost:{port}/app"
        assert 'lang="zh-CN"' in answer(f"{home}?lang=zh", process)
        for name in (
            "figures/web/mount.js",
            "figures/race/recorded/list.json",
            "static/article.js",
            "content/en.json",
            "figure/roofline?lang=en",
        ):
            assert answer(f"{home}/{name}", process), name
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(tmp_path / 'log.txt').read_text()}") from None
    finally:
        process.terminate()
        process.wait(60)


def answer(url: str, process: subprocess.Popen[bytes]) -> str:
    """What the server says, once it is there."""
    until = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{url}: {error}") from None
        except OSError:
            assert process.poll() is None and time.monotonic() < until, f"{url}: no answer"
            time.sleep(0.2)
