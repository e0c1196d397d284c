"""The two commands: what they run, and what they say when they cannot."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.__main__ import browser_to_open, port_in_use
from tests import prepare

ROOT = Path(__file__).resolve().parent.parent
POSIX = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")


def make(*arguments: str) -> str:
    run = subprocess.run(
        ["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): pinned for name, pinned in pairs}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [Requirement(line) for line in lines]


# Versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_each_dependency_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    pinned = pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pinned), f"{requirement} but pinned to {pinned}"


def test_these_tests_run_on_the_pinned_versions() -> None:
    wanted = {
        canonicalize_name(requirement.name)
        for requirement in requirements()
        if requirement.marker is None or requirement.marker.evaluate()
    }
    differ = {
        name: f"pinned {pinned}, installed {version(name)}"
        for name, pinned in pins().items()
        if canonicalize_name(name) in wanted and version(name).split("+")[0] != pinned
    }
    assert differ == {}


# The Makefile -----------------------------------------------------------------------------------


@POSIX
def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    shown = re.findall(r"^  make ([a-z-]+) +\S", make("help"), re.MULTILINE)
    assert sorted(shown) == sorted(phony[1].split())


@POSIX
def test_arguments_are_passed_on() -> None:
    assert "-m app serve --port 6001 --reuse-sessions" in make(
        "-n", "serve", "ARGS=--port 6001 --reuse-sessions"
    )
    assert re.search(r"-m pytest .*-k cache", make("-n", "test", "ARGS=-k cache"))


@POSIX
def test_the_environment_follows_what_decides_it(tmp_path: Path) -> None:
    for file in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, tmp_path)

    def stamp() -> str:
        run = subprocess.run(
            ["make", "-n", "serve"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        found = re.search(r"\.installed-run-\d+", run.stdout)
        return found[0] if found else ""

    first = stamp()
    assert first  # no environment yet: it would install
    assert stamp() == first
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / first).touch()
    assert stamp() == ""  # installed: nothing to do
    with (tmp_path / "constraints.txt").open("a") as constraints:
        constraints.write("something==1.0\n")
    assert stamp() not in ("", first)


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    commands = [line for line in script.splitlines()[1:] if line and not line.startswith("#")]
    assert commands[-1].split("make ")[1].split()[0] == "test"
    assert sum("make " in line for line in commands) == 1


# No Python --------------------------------------------------------------------------------------


def install(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """scripts/install.sh in an empty folder, with a PATH that holds only what is put there."""
    return subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "install.sh"), ".venv/.installed-run-1"],
        cwd=folder,
        env={"PATH": str(folder / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


@POSIX
def test_no_python_says_what_to_install(tmp_path: Path) -> None:
    fake(tmp_path, "python3", "exit 1")  # too old, or a shim of a version that is not there
    run = install(tmp_path)
    assert run.returncode == 1
    assert "No Python 3.11 or newer found" in run.stderr
    assert "make serve PYTHON=" in run.stderr
    assert not (tmp_path / ".venv").exists()


@POSIX
def test_a_named_python_that_does_not_start_is_named(tmp_path: Path) -> None:
    run = install(tmp_path, PYTHON="/nowhere/python3")
    assert run.returncode == 1
    assert "/nowhere/python3 does not start" in run.stderr


@POSIX
def test_python_without_venv_names_the_package(tmp_path: Path) -> None:
    fake(tmp_path, "python3", '[ "$1" = -m ] && exit 1; echo Python 3.12.0')
    run = install(tmp_path)
    assert run.returncode == 1
    assert "apt-get install python3-venv" in run.stderr


@POSIX
def test_a_failed_install_leaves_no_stamp(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    fake(tmp_path, "uname", "echo Other")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *"pip install"*) exit 1 ;; esac\n')
    python.chmod(0o755)
    assert install(tmp_path).returncode == 1
    assert not (tmp_path / ".venv" / ".installed-run-1").exists()
    python.write_text("#!/bin/sh\n")
    fake(tmp_path, "rm", "exit 0")
    assert install(tmp_path).returncode == 0
    assert (tmp_path / ".venv" / ".installed-run-1").exists()


# Serving ----------------------------------------------------------------------------------------


def test_a_busy_port_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port_in_use(port, None)
        run = subprocess.run(
            [sys.executable, "-m", "app", "serve", "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert run.returncode == 1
    assert f"Port {port} is in use" in run.stderr
    assert f'make serve ARGS="--port {port + 1}"' in run.stderr
    assert "Traceback" not in run.stderr
    assert not port_in_use(port, None)


SCREEN = {"DISPLAY": ":0"}


@pytest.mark.parametrize(
    ("environment", "terminal", "platform", "opens"),
    [
        (SCREEN, True, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, "linux", True),
        ({}, True, "darwin", True),
        ({}, True, "win32", True),
        ({}, True, "linux", False),  # no screen
        (SCREEN, False, "linux", False),  # nobody at a terminal
        (SCREEN | {"CI": "true"}, True, "linux", False),
        ({"SSH_CONNECTION": "x"}, True, "darwin", False),
        (SCREEN | {"SHOW": "0"}, True, "linux", False),
        ({"SHOW": "1"}, False, "linux", True),
    ],
)
def test_a_browser_opens_only_where_somebody_sees_it(
    environment: dict[str, str], terminal: bool, platform: str, opens: bool
) -> None:
    assert browser_to_open(environment, terminal, platform) is opens


# The browser for the tests ----------------------------------------------------------------------


def test_a_named_browser_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    with pytest.raises(FileNotFoundError, match="CHROMIUM=/nowhere/chromium"):
        prepare.find_chromium()
    monkeypatch.setenv("CHROMIUM", sys.executable)
    assert prepare.find_chromium() == Path(sys.executable)


def test_most_tests_drive_a_browser_without_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {prepare.HEADLESS: "/bin/shell", "chromium": "/bin/chromium"}
    monkeypatch.setattr(shutil, "which", commands.get)
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert prepare.find_headless() == Path("/bin/shell")
    commands.pop(prepare.HEADLESS)
    assert prepare.find_headless() == Path("/bin/chromium")
    commands |= {prepare.HEADLESS: "/bin/shell", sys.executable: sys.executable}
    monkeypatch.setenv("CHROMIUM", sys.executable)
    assert prepare.find_headless() == Path(sys.executable), "what is named is what is driven"


def test_missing_browser_is_said_clearly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "find_chromium", lambda: None)
    monkeypatch.setattr(prepare, "install", lambda packages: None)
    assert prepare.main() == 1
    assert "CHROMIUM=/path/to/it make test" in capsys.readouterr().err


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which `apt-get` and `sudo` only write down how they were called."""
    record = tmp_path / "called"
    fake(tmp_path, "apt-get", f'echo "apt-get $*" >> {record}')
    fake(tmp_path, "sudo", f'echo "sudo $*" >> {record}; [ "$ASKS" != yes ] || exit 1')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}")
    return record


@POSIX
def test_root_installs_what_is_missing(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    prepare.install([])
    assert not apt.exists()
    prepare.install(["chromium"])
    update, install_ = apt.read_text().splitlines()
    assert update.startswith("apt-get update")
    assert install_.startswith("apt-get install --yes")
    assert install_.endswith(" chromium")


@POSIX
def test_a_password_is_never_asked_for(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("ASKS", "yes")
    prepare.install(["chromium", "gcc"])
    assert apt.read_text() == "sudo -n true\n"
    assert "sudo apt-get install chromium gcc" in capsys.readouterr().out
    monkeypatch.setenv("ASKS", "no")
    prepare.install(["gcc"])
    assert "apt-get install --yes -qq --no-install-recommends gcc" in apt.read_text()
