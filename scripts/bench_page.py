"""What Lighthouse gives the built article on a phone: `make bench-page`, one JSON line.

The copy is built anew and served as a good static host would: compressed, and with a long life for
files whose names carry their checksum. Lighthouse measures each language three times with its own
mobile profile (a mid-range phone on a slow network, simulated); a category counts with its median,
and with the worse of the two languages. Scores are 0 to 100. `failed` names the audits that cost
points.

The simulation starts from what the page costs on this machine: on a busy one, performance is lower.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import brotli

import content
from app.static_site.build import build
from tests.browser.harness import CHROMIUM_FLAGS, ROOT
from tests.hosts import QuietFiles, files
from tests.prepare import NO_BROWSER, find_chromium

#: The newest that Node 18 runs; later ones want Node 22.
LIGHTHOUSE = "lighthouse@12.8.2"
FOLDER = ROOT / "build" / "lighthouse"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
NO_NODE = """Lighthouse needs Node.js 18.16 or newer, and npm.
Debian: apt-get install nodejs npm; macOS: brew install node; or nodejs.org"""


class Host(QuietFiles):
    """Files of a folder, compressed where the reader's browser can."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send a file."""
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            path /= "index.html"
        if not path.is_file():
            self.send_error(404)
            return
        body, packed = packed_bytes(path, self.headers.get("Accept-Encoding", ""))
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(body)))
        lasting = path.parent.name == "assets"  # docs/site.md, "Hosting"
        self.send_header("Cache-Control", "max-age=31536000, immutable" if lasting else "no-cache")
        if packed:
            self.send_header("Content-Encoding", packed)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a browser that has seen enough
            self.wfile.write(body)

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Name the charset too."""
        kind = super().guess_type(path)
        return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


@functools.lru_cache(maxsize=256)
def packed_bytes(path: Path, accepted: str) -> tuple[bytes, str]:
    """Return a file as it travels, and the name of its compression ("" where there is none)."""
    body = path.read_bytes()
    if path.suffix in (".png", ".woff2"):
        return body, ""
    if "br" in accepted:
        return brotli.compress(body), "br"
    if "gzip" in accepted:
        return gzip.compress(body, 9), "gzip"
    return body, ""


def lighthouse() -> Path | None:
    """Return Lighthouse's program, installed into `build/` the first time; None without Node."""
    program = FOLDER / "node_modules" / "lighthouse" / "cli" / "index.js"
    if not shutil.which("node") or not shutil.which("npm"):
        return None
    if not program.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", LIGHTHOUSE]
        subprocess.run(npm, check=True, stdout=sys.stderr)
    return program


def report(program: Path, chromium: Path, address: str) -> dict[str, Any]:
    """Return Lighthouse's report of one visit."""
    command = [
        "node",
        str(program),
        address,
        "--quiet",
        "--output=json",
        f"--only-categories={','.join(CATEGORIES)}",
        "--max-wait-for-load=120000",
        f"--chrome-flags=--headless=new {' '.join(f for f in CHROMIUM_FLAGS if ' ' not in f)}",
    ]
    environment = os.environ | {"CHROME_PATH": str(chromium)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"Lighthouse ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def failed(found: dict[str, Any]) -> list[str]:
    """Return the audits of a report that have a weight and not a full score."""
    return [
        f"{entry['id']} {audit.get('displayValue', '')}".strip()
        for name in CATEGORIES
        for entry in found["categories"][name]["auditRefs"]
        if entry["weight"] and (audit := found["audits"][entry["id"]])["score"] not in (None, 1)
    ]


def measure(folder: Path, program: Path, chromium: Path, runs: int, keep: Path | None) -> None:
    """Build, serve, measure, print."""
    scores: dict[str, dict[str, float]] = {}
    problems: dict[str, list[str]] = {}
    with files(folder, Host) as port:
        address = f"http://localhost:{port}"
        build(folder, base_url=address)
        for path in folder.rglob("*.*"):
            packed_bytes(path, "br")  # a host compresses once, before anybody asks
        for lang in content.LANGUAGES:
            reports = [report(program, chromium, f"{address}/{lang}/") for _ in range(runs)]
            scores[lang] = {
                name: statistics.median(100 * each["categories"][name]["score"] for each in reports)
                for name in CATEGORIES
            }
            problems[lang] = failed(reports[0])
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                for number, each in enumerate(reports):
                    (keep / f"{lang}-{number}.json").write_text(json.dumps(each), encoding="utf-8")
    worse = {
        name.replace("-", "_"): round(min(each[name] for each in scores.values()))
        for name in CATEGORIES
    }
    print(json.dumps(worse | {"runs": runs, "failed": problems}, ensure_ascii=False))


def main() -> int:
    """Read the arguments; returns 1, having said what is missing, if something is."""
    parser = argparse.ArgumentParser(description="Lighthouse on the built article, mobile profile")
    parser.add_argument("--runs", type=int, default=3, help="visits of each language (default 3)")
    parser.add_argument("--keep", type=Path, help="a folder for Lighthouse's own reports")
    given = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    program = lighthouse()
    if program is None:
        print(NO_NODE, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name) / "site", program, chromium, given.runs, given.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
