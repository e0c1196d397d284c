"""House rules that a reader of the code can rely on, held over every file of the repository."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kernels.__main__ import COMMANDS
from tests import repository
from tests.repository import ROOT

LANGUAGES = ("zh", "en")
LONGEST = 400
CODE = {".py", ".js", ".css", ".html", ".c", ".h", ".sh"}
WORDS = {".md", ".toml"}


def files(*suffixes: str, under: str = "") -> list[Path]:
    """The repository's text files with one of the suffixes, as git sees them, new ones included."""
    return [path for path in repository.files(under or ".") if path.suffix in suffixes]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def hits(pattern: str, paths: list[Path], flags: int = 0) -> Iterator[str]:
    """``file:line: match`` for each match of the pattern."""
    for path in paths:
        text = read(path)
        for match in re.finditer(pattern, text, flags):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name(path)}:{line}: {match[0]}"


# Nothing is fetched from elsewhere --------------------------------------------------------------

CDN = (
    r"(?i)\b(?:cdn\.[\w-]+\.\w+|unpkg\.com|jsdelivr\.net|esm\.sh|skypack\.dev|cdnjs"
    r"|jspm\.(?:io|dev)|fonts\.g(?:oogleapis|static)\.com|polyfill\.io)"
)


def test_no_cdn_anywhere() -> None:
    served = [path for path in files(*CODE, ".toml") if path != Path(__file__)]
    assert list(hits(CDN, served)) == []


def test_scripts_and_styles_name_no_other_site() -> None:
    # Namespaces are names, not addresses. A link for the reader belongs into content/.
    elsewhere = r"(?:https?:)?//(?!www\.w3\.org/)(?!localhost)(?!127\.0\.0\.1)[\w-]+(?:\.[\w-]+)+/?"
    served = [path for path in files(".js", ".css") if name(path).startswith(("app/", "figures/"))]
    # `// 3.5 …` is a comment: only addresses inside quotes or url() count.
    assert list(hits(r"""["'`(]\s*""" + elsewhere, served)) == []


def test_templates_load_nothing_from_elsewhere() -> None:
    tags = r"<(?:script|link|img|iframe|source|video|audio)\b"
    loads = tags + r"[^>]*(?:src|href)\s*=\s*[\"'](?:https?:)?//"
    assert list(hits(loads, files(".html"))) == []


# Readable ---------------------------------------------------------------------------------------


def test_no_file_is_long_without_a_reason() -> None:
    too_long = []
    for path in files(*CODE, *WORDS):
        lines = read(path).splitlines()
        # A longer file says near its top why it is one: `long file: <reason>`.
        if len(lines) > LONGEST and "long file:" not in "\n".join(lines[:30]).lower():
            too_long.append(f"{name(path)}: {len(lines)} lines")
    assert too_long == []


def test_nothing_is_left_for_later() -> None:
    later = r"\b(?:TODO|FIXME|XXX|HACK)\b|(?i:lorem ipsum)"
    sources = [path for path in files(*CODE, *WORDS) if path != Path(__file__)]
    assert list(hits(later, sources)) == []


def test_text_files_are_clean() -> None:
    faults = []
    for path in files(*CODE, *WORDS, ".json", ".yaml"):
        text = path.read_bytes()
        if b"\r" in text:
            faults.append(f"{name(path)}: carriage return")
        if text and not text.endswith(b"\n"):
            faults.append(f"{name(path)}: no newline at the end")
        if re.search(rb"^(?:<<<<<<<|>>>>>>>) ", text, re.MULTILINE):
            faults.append(f"{name(path)}: merge conflict")
    assert faults == []


def test_no_secrets() -> None:
    secret = (
        r"\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[0-9A-Z]{16}\b"
        r"|\bsk-[A-Za-z0-9_-]{24,}|\bpypi-[A-Za-z0-9_-]{40,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    )
    assert list(hits(secret, files(*CODE, *WORDS, ".json", ".yaml", ".txt"))) == []


def test_no_pickles() -> None:
    # Weights are safetensors or GGUF: a pickle runs whatever its author wrote.
    assert files(".pkl", ".pickle", ".pt", ".pth", ".bin") == []
    # torch.load(…, weights_only=True) reads tensors and plain containers only; ruff's S301 flags
    # pickle itself.
    unsafe = r"\btorch\.load\((?![^)]*weights_only=True)|trust_remote_code\s*=\s*True"
    sources = [path for path in files(".py") if path != Path(__file__)]
    assert list(hits(unsafe, sources)) == []


# Figures ----------------------------------------------------------------------------------------


def figure_folders() -> list[Path]:
    """One folder a figure; ``web`` holds what they share."""
    folders = {
        path.relative_to(ROOT / "figures").parts[0] for path in files(".py", under="figures")
    }
    return [
        ROOT / "figures" / folder
        for folder in sorted(folders)
        if (ROOT / "figures" / folder).is_dir() and folder not in ("web", "export")
    ]


@pytest.mark.parametrize("folder", figure_folders(), ids=lambda folder: folder.name)
def test_figures_are_built_alike(folder: Path) -> None:
    for part in ("model.py", "figure.py", "view.js"):
        assert (folder / part).is_file(), f"figures/{folder.name}/{part} is missing"
    for language in LANGUAGES:
        words = ROOT / "content" / language / "figures" / f"{folder.name}.toml"
        assert words.is_file(), f"{name(words)} is missing"


def keys(path: Path) -> set[str]:
    """The dotted keys of a TOML file."""

    def walk(table: dict[str, object], prefix: str) -> Iterator[str]:
        for key, value in table.items():
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"

    return set(walk(tomllib.loads(read(path)), ""))


def test_both_languages_have_the_same_files_and_keys() -> None:
    faults = []
    named = {
        language: {
            path.relative_to(ROOT / "content" / language): path
            for path in files(*WORDS, under=f"content/{language}")
        }
        for language in LANGUAGES
    }
    zh, en = named["zh"], named["en"]
    faults += [f"only in one language: {path}" for path in sorted(zh.keys() ^ en.keys())]
    for path in sorted(zh.keys() & en.keys()):
        if path.suffix == ".toml":
            differ = keys(zh[path]) ^ keys(en[path])
            faults += [f"{path}: {key} only in one language" for key in sorted(differ)]
    assert faults == []


# Commands and what the documents name ------------------------------------------------------------

#: Of other programs' projects, or the example of CONTRIBUTING.md: named, but not in the repository.
ELSEWHERE = re.compile(r"\bdice\b|test_dice\.py$|\b_?index\.md$")
TOP = ("app", "content", "figures", "kernels", "docs", "tests", "scripts")


def documents() -> list[Path]:
    """What is told to those who use or change this; CHANGELOG.md tells what has been."""
    found = [path for path in files(".md") if path.parent in (ROOT, ROOT / "docs")]
    return [path for path in found if path.name != "CHANGELOG.md"]


def test_what_the_documents_name_exists() -> None:
    makefile = read(ROOT / "Makefile")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"\bSD_[A-Z_]+", makefile + "".join(map(read, files(".py", ".sh")))))
    # Those of a lane are put together.
    lanes = ("PLAIN", "SPECULATIVE")
    variables |= {f"SD_{lane}_{what}" for lane in lanes for what in ("EXTRA", "KEY")}
    top = "|".join(TOP)
    faults = []
    for path in documents():
        text = read(path)
        faults += [
            f"{name(path)}: make {target}"
            for target in re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, re.MULTILINE)
            if target not in targets
        ]
        named = set(re.findall(r"\bSD_[A-Z_]+\w", text))
        faults += [f"{name(path)}: {variable}" for variable in sorted(named - variables)]
        for module in re.findall(rf"python -m ((?:{top})(?:\.\w+)*)", text):
            place = ROOT.joinpath(*module.split("."))
            if not (place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()):
                faults.append(f"{name(path)}: python -m {module}")
        spans = " ".join(re.findall(r"`([^`\n]+)`", text))
        for place in re.findall(rf"(?<![\w./-])(?:{top})/[\w./-]*\w", spans):
            if not ELSEWHERE.search(place) and not (ROOT / place).exists():
                faults.append(f"{name(path)}: {place}")
    assert faults == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_that_is_listed_exists(command: str) -> None:
    module, function = COMMANDS[command][1].split(":")
    assert callable(getattr(import_module(module), function))
