"""Our ES modules as one classic script, for pages that cannot load modules.

A browser loads no ES module from `file://`, and a page that asks for twenty small files is slow. So
the modules that an entry needs are joined into one script without `import`, which may stand in the
page or beside it. Our modules are written in one narrow style (`import { a, b as c } from "…";`,
`import "…";` and `export function|const|class`, each at the start of a line), which is all that is
read here; the rest raises. Full bundlers need node, or come without wheels for the systems that we
run on.

In the script a module is a function that runs once a page, however many scripts bring it:

    globalThis.sdModules["figures/web/dom.js@1a2b3c4d"] ??= (() => { …; return { h, … }; })();

The number after the @ is a checksum of the module and of all that it imports, so that scripts of
different versions can meet in one page. A figure's view is also entered in `globalThis.sdViews`,
where `web/mount.js` looks before it imports anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import rjsmin

import figures

#: The folder that holds `figures/` and `app/`: the repository, or site-packages.
ROOT = Path(figures.__file__).resolve().parent.parent
SHARED = "#sd/"

IMPORT = re.compile(r'^import \{ ([\w ,$]+) \} from "([^"]+)";$', re.MULTILINE)
#: For what a module does, not for what it gives.
BARE_IMPORT = re.compile(r'^import "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b[ *]+(\w+))", re.MULTILINE)
#: What the two above must have taken away.
LEFT = re.compile(r"^(?:import\b(?!\()|export\b).*", re.MULTILINE)
#: Only an entry may wait for something (`article.js`): nobody can import from it.
WAITS = re.compile(r"^(?:const [^=]+ = )?await ", re.MULTILINE)
#: What would end the script, or hide the rest of it, where it stands in a page.
IN_HTML = re.compile(r"</script|<!--", re.IGNORECASE)


class BundleError(ValueError):
    """A module is not written in the style that can be joined; says which, and where."""


@dataclass(frozen=True)
class Module:
    """One linked module.

    Attributes:
        name: its path from the root, "figures/web/dom.js".
        key: the name and a checksum of the module with all that it imports.
        code: a JavaScript statement that runs it unless it has run.
        needs: the modules it imports, each after what that one needs.
    """

    name: str
    key: str
    code: str
    needs: tuple[Module, ...]


def view(figure_id: str) -> Path:
    """Return the path of a figure's view, an entry for `bundle`."""
    return figures.get(figure_id).folder() / "view.js"


def bundle(entries: Iterable[Path], *, without: Iterable[Path] = ()) -> str:
    """Return one classic script that runs the `entries` and all that they import.

    Args:
        entries: paths of modules, run in this order. A `view.js` also becomes a figure's view in
            `sdViews`.
        without: entries of a script that the page runs before this one; what that one brings is
            left out here.

    Raises:
        BundleError: a module is not in the style that this can join, imports go in a circle, or its
            text could not stand inside a page.
        FileNotFoundError: a module is not there.
    """
    known = {module.key for entry in without for module in _chain(entry)}
    lines: dict[str, None] = {}
    for entry in entries:
        chain = _chain(entry)
        lines |= {module.code: None for module in chain if module.key not in known}
        if entry.name == "view.js":
            lines[f"views.{entry.parent.name}=modules[{_quoted(chain[-1].key)}];"] = None
    script = "\n".join(
        [
            '(()=>{"use strict";',
            "const modules=globalThis.sdModules??={},views=globalThis.sdViews??={};",
            *lines,
            "})();\n",
        ]
    )
    if found := IN_HTML.search(script):
        raise BundleError(f"{found[0]} cannot stand in a script of a page; write it another way")
    return script


def names(entry: Path) -> tuple[str, ...]:
    """Return the names of all modules that an entry needs, itself last.

    Raises:
        BundleError, FileNotFoundError: as `bundle`.
    """
    return tuple(module.name for module in _chain(entry))


def _chain(entry: Path) -> tuple[Module, ...]:
    """Return all modules that an entry needs, itself last."""
    module = _link(entry.resolve(), ())
    return (*module.needs, module)


def _link(path: Path, above: tuple[Path, ...]) -> Module:
    """Link a module and, before it, those that it imports."""
    if path in above:
        circle = " → ".join(p.name for p in (*above[above.index(path) :], path))
        raise BundleError(f"these modules import each other in a circle: {circle}")
    source = path.read_text(encoding="utf-8")
    imported = {
        target: _link(_resolve(target, path), (*above, path))
        for target in [*(t for _, t in IMPORT.findall(source)), *BARE_IMPORT.findall(source)]
    }
    return _linked(path, source, tuple(imported.items()))


@cache
def _linked(path: Path, source: str, imported: tuple[tuple[str, Module], ...]) -> Module:
    """Write one module as a statement."""
    name = path.relative_to(ROOT).as_posix()
    by_target = dict(imported)
    exports = EXPORT.findall(source)
    if exports and WAITS.search(source):
        raise BundleError(f"{name}: a module that others import cannot wait (top-level await)")

    def taken(match: re.Match[str]) -> str:
        names = match[1].replace(" as ", ": ")
        return f"const {{ {names} }} = modules[{_quoted(by_target[match[2]].key)}];"

    def named(match: re.Match[str]) -> str:
        return f"modules[{_quoted(by_target[match[1]].key)}];"

    body = EXPORT.sub("", BARE_IMPORT.sub(named, IMPORT.sub(taken, source)))
    if left := LEFT.search(body):
        line = source[: source.index(left[0])].count("\n") + 1
        raise BundleError(f"{name}:{line}: write this on one line, by name: {left[0][:80]}")
    code = str(rjsmin.jsmin(f"{body}\nreturn {{ {', '.join(exports)} }};")).strip()
    key = f"{name}@{hashlib.sha256(code.encode()).hexdigest()[:8]}"
    needs: dict[str, Module] = {}
    for module in by_target.values():
        needs |= {m.key: m for m in (*module.needs, module)}
    # An entry, which nobody imports from, may wait: in a block too, which is hard to see here.
    start = "(()=>{" if exports else "(async()=>{"
    return Module(
        name, key, f"modules[{_quoted(key)}]??={start}{code}}})();", tuple(needs.values())
    )


def _resolve(target: str, importer: Path) -> Path:
    """Return the path that an import means."""
    if target.startswith(SHARED):
        return ROOT / "figures" / "web" / target.removeprefix(SHARED)
    if target.startswith("./"):
        return importer.parent / target.removeprefix("./")
    raise BundleError(f"{importer.name} imports {target!r}: only ./ and {SHARED} are known")


def _quoted(key: str) -> str:
    """Return a JavaScript string."""
    return f'"{key}"'
