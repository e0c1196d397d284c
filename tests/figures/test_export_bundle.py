"""The linker: what it joins, what it refuses."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import figures
from figures.export.bundle import ROOT, BundleError, bundle, view

# The package exports a function of the module's name.
linker = import_module("figures.export.bundle")
EVERY = [view(figure_id) for figure_id in figures.IDS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of its own in the place of the repository."""
    monkeypatch.setattr(linker, "ROOT", tmp_path)
    (tmp_path / "figures" / "web").mkdir(parents=True)
    return tmp_path


def write(folder: Path, **modules: str) -> Path:
    for name, code in modules.items():
        (folder / f"{name}.js").write_text(code, encoding="utf-8")
    return folder / f"{next(iter(modules))}.js"


def keys(script: str) -> list[str]:
    return re.findall(r'^modules\["([^"]+)"\]\?\?=', script, re.MULTILINE)


def test_nothing_is_left_to_load_and_each_module_comes_once() -> None:
    script = bundle(EVERY)
    assert not re.search(r"^\s*(?:import|export)\s*[{*\w]", script, re.MULTILINE)
    names = [key.partition("@")[0] for key in keys(script)]
    assert len(names) == len(set(names))
    needed = {
        p.relative_to(ROOT).as_posix()
        for i in figures.IDS
        for p in (ROOT / "figures" / i).glob("*.js")
    }
    assert needed <= set(names)
    for place, name in enumerate(names):
        body = script.split(f'modules["{keys(script)[place]}"]??=', 1)[1].split("\nmodules[", 1)[0]
        used = re.findall(r'\}=modules\["([^"@]+)@', body)
        assert set(used) <= set(names[:place]), f"{name} runs before what it imports"


def test_the_same_tree_gives_the_same_script() -> None:
    first = bundle(EVERY)
    linker._linked.cache_clear()
    assert bundle(EVERY) == first


def test_what_another_script_brings_is_left_out() -> None:
    common = ROOT / "figures" / "web" / "mount.js"
    whole, rest = bundle([common, view("mask")]), bundle([view("mask")], without=[common])
    assert set(keys(rest)) == set(keys(whole)) - set(keys(bundle([common])))
    assert "views.mask=" in rest


def test_the_checksum_covers_what_a_module_imports(folder: Path) -> None:
    entry = write(
        folder, a='import { x } from "./b.js";\nexport const y = x;\n', b="export const x = 1;\n"
    )
    before = keys(bundle([entry]))
    write(folder, b="export const x = 2;\n")
    after = keys(bundle([entry]))
    assert [k.partition("@")[0] for k in before] == ["b.js", "a.js"]
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_a_circle_is_refused(folder: Path) -> None:
    entry = write(
        folder,
        a='import { x } from "./b.js";\nexport const y = 1;\n',
        b='import { y } from "./a.js";\nexport const x = 1;\n',
    )
    with pytest.raises(BundleError, match=r"circle: a\.js → b\.js → a\.js"):
        bundle([entry])


@pytest.mark.parametrize(
    "line",
    [
        'import * as b from "./b.js";',
        'import b from "./b.js";',
        'import {\n  x\n} from "./b.js";',
        "export default 1;",
        "export { x };",
        "export let x = 1;",
    ],
)
def test_another_style_is_refused_with_its_place(folder: Path, line: str) -> None:
    entry = write(folder, a=f"// A comment.\n{line}\n", b="export const x = 1;\n")
    with pytest.raises(BundleError, match=r"a\.js:2: "):
        bundle([entry])


def test_other_sources_are_refused(folder: Path) -> None:
    entry = write(folder, a='import { x } from "b";\n')
    with pytest.raises(BundleError, match=r"only \./ and #sd/"):
        bundle([entry])


def test_a_module_may_be_imported_for_what_it_does(folder: Path) -> None:
    entry = write(folder, a='import "./b.js";\nglobalThis.a = 1;\n', b="globalThis.b = 1;\n")
    before = keys(bundle([entry]))
    assert [k.partition("@")[0] for k in before] == ["b.js", "a.js"]
    write(folder, b="globalThis.b = 2;\n")
    assert all(old != new for old, new in zip(before, keys(bundle([entry])), strict=True))


def test_what_others_import_cannot_wait(folder: Path) -> None:
    entry = write(folder, a="export const x = 1;\nawait 0;\n")
    with pytest.raises(BundleError, match="cannot wait"):
        bundle([entry])
    assert "??=(async()=>{" in bundle([write(folder, a="await 0;\n")])


def test_what_ends_a_script_is_refused(folder: Path) -> None:
    entry = write(folder, a='export const x = "</SCRIPT>";\n')
    with pytest.raises(BundleError, match="cannot stand in a script"):
        bundle([entry])
