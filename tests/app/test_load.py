"""`python -m app load`: what it counts and what it says, with a few readers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.load import command
from app.load.reader import IMPORT, Plan, Reader, Seen
from app.worker import ROOT
from tests.app.conftest import SOURCE, Open

WANTED = (
    "errors", "page_ready_p50_ms", "page_ready_p95_ms", "event_lag_p50_ms", "event_lag_p95_ms",
    "queue_wait_p50_s", "queue_wait_p95_s", "session_memory_mb", "cpu_seconds",
)  # fmt: skip


def test_one_line_of_json_with_every_number() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "app", "load", "--readers", "8", "--within", "2", "--private", "2",
         "--length", "12", "--shared-length", "24", "--json"],
        cwd=ROOT, env=os.environ | {"SD_SOURCE": SOURCE}, capture_output=True, text=True,
        check=False, timeout=110,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    for name in WANTED:
        assert isinstance(result[name], int | float), name
    assert result["errors"] == 0
    assert result["races_seen"] >= 8, "each of the eight saw a race to its end"
    assert result["requests"] == 8 * result["requests_a_page"]
    assert result["requests_a_page"] > 30
    assert 0 < result["page_html_p50_ms"] <= result["page_ready_p50_ms"]


def test_modules_are_found_as_a_browser_finds_them() -> None:
    text = """import { a } from "#sd/a.js";
import "./b.js";
import * as c from '../c.js';
export { d } from "./d.js";
import {
  e,
} from "./e.js";
const later = () => import("./not-now.js"); // "./nor-this.js"
"""
    assert IMPORT.findall(text) == ["#sd/a.js", "./b.js", "../c.js", "./d.js", "./e.js"]


async def test_gaps_refusals_and_lost_pages_are_errors(visit: Open) -> None:
    port = visit.port  # type: ignore[attr-defined]
    base = f"http://localhost:{port}/app"
    seen = Seen()
    reader = Reader(base, Plan((), (), f"ws://localhost:{port}/app/live"), seen)
    await reader.open()
    assert seen.errors == {"HTTP 404: /app": 1}, "that server has no page"
    await reader.run({"prompt": ""}, "embedded")
    await asyncio.wait_for(reader.over.wait(), 30)
    assert seen.errors["refused: empty_prompt"] == 1
    event = {
        "type": "events",
        "race": "r",
        "from": 0,
        "at": reader.clock() - 5,
        "events": [{"type": "pass"}],
    }
    reader.race, reader.have, reader.asked = "r", 0, None
    reader._take(event)
    assert seen.lag == [], "the first frame may hold what is old"
    reader._take(event | {"from": 1})
    assert seen.lag[0] == pytest.approx(5, abs=2)
    reader._take(event | {"from": 4})
    assert seen.errors["a gap in the events"] == 1
    await reader.close()


def test_half_and_nearly_all() -> None:
    values = [float(n) for n in range(1, 101)]
    assert command._both("x", values, 1e3, "ms") == {"x_p50_ms": 50500.0, "x_p95_ms": 96000.0}
    assert command._both("x", [], 1.0, "s") == {"x_p50_s": None, "x_p95_s": None}


@pytest.mark.parametrize("wrong", [["--readers", "0"], ["--private", "300"], ["--within", "0"]])
def test_wrong_numbers_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.arguments(wrong)
    assert "must" in capsys.readouterr().err


def test_a_server_that_does_not_start_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SD_MAX_QUEUE", "many")
    given: Any = ["--readers", "1", "--within", "1"]
    assert command.main(given) == 1
    assert "SD_MAX_QUEUE='many'" in capsys.readouterr().err
