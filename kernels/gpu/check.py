"""`python -m kernels gpu-check`: everything that only a GPU can answer, in one run of ten minutes.

    make gpu-check                                  # writes build/gpu-check.json
    python -m kernels gpu-check --json OUT --records FOLDER

Parts, in order of importance: read bandwidth; the fused acceptance rule against the host's; plain
decoding of the embedded pair's size as a share of bandwidth, and equality of rows; races of the
embedded pair, where its weights are; the same for random weights of 7B; the schedule of a tiled
product; the measured roofline. A part that fails is written down and the others go on. Without a
GPU nothing runs; the record says so and the exit status is 0.

The record (schema `speculative-decoding-live/gpu-check/1`, JSON): `ran`, `reason`, device,
versions, command, `seconds` by part, `parts` (name → result), `not_run` (name → why), `failed`
(name → what happened). `--records` writes the parts `tiles` and `roofline` as files of their own,
which the article's figures open.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels import machine
from kernels.errors import SdError

SCHEMA = "speculative-decoding-live/gpu-check/1"
_READ_BYTES = 4 << 30
_PROMPTS = (
    "List five fruits and say in one sentence what each tastes like.",
    "Explain to a child why the sky is blue.",
    "Write a short story about a lighthouse keeper and a storm.",
)


class NotRun(Exception):
    """This part cannot run here; the message says why."""


@dataclass
class Check:
    """The parts share a device and what earlier ones found."""

    device: str
    command: str
    roofline_seconds: float = 8.0
    found: dict[str, Any] = field(default_factory=dict)

    def bandwidth(self) -> dict[str, Any]:
        """How fast this device reads."""
        from kernels.roofline_subjects import read_bandwidth

        return read_bandwidth(self.device, _READ_BYTES)

    def acceptance(self) -> dict[str, Any]:
        """The fused rule: the same verdicts, and both times."""
        from kernels.gpu.measure import acceptance

        return acceptance(self.device)

    def decoding_135m(self) -> dict[str, Any]:
        """Plain decoding of the embedded target's shape."""
        return self._decoding("135M")

    def decoding_7b(self) -> dict[str, Any]:
        """Plain decoding of a shape that the overhead of a pass does not hide."""
        return self._decoding("7B")

    def race(self) -> dict[str, Any]:
        """The embedded pair, as the article runs it."""
        from kernels.gpu.measure import decoding, racing
        from kernels.pairs import load_pair

        try:
            pair = load_pair("embedded", device=self.device)
        except SdError as error:
            raise NotRun(str(error)) from error
        result = racing(pair, _PROMPTS)
        model = getattr(pair.target, "model", None)
        if model is not None:
            result["decoding"] = decoding(model, self._read())
        return result

    def tiles(self) -> dict[str, Any]:
        """Which multiprocessor took which tile when."""
        from kernels import tiles
        from kernels.gpu.tile_kernel import record

        found = record(self.device, command=self.command)
        tiles.check(found)
        return found

    def roofline(self) -> dict[str, Any]:
        """Time of a pass over k, and the two limits."""
        from kernels import roofline

        found = roofline.measure(
            device=self.device, seconds=self.roofline_seconds, command=self.command
        )
        roofline.check(found)
        return found

    def _decoding(self, shape: str) -> dict[str, Any]:
        from kernels.gpu.measure import SHAPES, RandomDecoder, decoding

        try:
            model = RandomDecoder(SHAPES[shape], self.device)
        except SdError as error:
            raise NotRun(str(error)) from error
        return {"weights": "random", "shape": shape} | decoding(model, self._read())

    def _read(self) -> float:
        if "bandwidth" not in self.found:
            raise NotRun("the bandwidth could not be measured")
        return float(self.found["bandwidth"]["bandwidth"])


PARTS: tuple[str, ...] = (
    "bandwidth",
    "acceptance",
    "decoding_135m",
    "race",
    "decoding_7b",
    "tiles",
    "roofline",
)


def run(
    parts: dict[str, Callable[[], dict[str, Any]]],
    found: dict[str, Any],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Run parts one after the other into `found`, none of them after `seconds`."""
    begin = clock()
    took: dict[str, float] = {}
    not_run: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, part in parts.items():
        start = clock()
        if start - begin > seconds:
            not_run[name] = f"{seconds:.0f} seconds were over"
            continue
        try:
            found[name] = part()
        except NotRun as reason:
            not_run[name] = str(reason)
        except Exception as error:  # whatever it is, the other parts are worth their minutes
            if isinstance(error, ImportError) and error.name == "triton":
                not_run[name] = "triton is not installed: pip install -c constraints.txt triton"
            else:
                failed[name] = traceback.format_exc()
        took[name] = round(clock() - start, 2)
    return {"seconds": took, "parts": found, "not_run": not_run, "failed": failed}


def no_gpu() -> str | None:
    """Why there is no CUDA device to check; None if there is one."""
    import torch

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no device"


def main(argv: list[str]) -> int:
    """Check, write the record, say in short what came out; 1 if a part failed."""
    options = _parser().parse_args(argv)
    command = " ".join(["python -m kernels gpu-check", *argv])
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "created": machine.timestamp(),
        "command": command,
        "versions": dict(machine.versions("torch", "triton", "transformers", "numpy")),
    }
    reason = no_gpu()
    if reason is None:
        from kernels.roofline_subjects import describe

        check = Check(options.device, command)
        record |= {"ran": True, "reason": None, "device": describe(options.device)}
        parts = {name: getattr(check, name) for name in PARTS}
        record |= run(parts, check.found, 60 * options.minutes)
    else:
        record |= {"ran": False, "reason": reason, "device": machine.describe()}
        record |= {"seconds": {}, "parts": {}, "not_run": dict.fromkeys(PARTS, reason)}
        record["failed"] = {}
    _write(record, options.json, options.records)
    for line in report(record):
        print(line, file=sys.stderr)
    return 1 if record["failed"] else 0


def _write(record: dict[str, Any], out: Path | None, folder: Path | None) -> None:
    text = json.dumps(record, indent=1)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", "utf-8")
    else:
        print(text)
    for name in ("tiles", "roofline"):
        if folder and name in record["parts"]:
            folder.mkdir(parents=True, exist_ok=True)
            part = json.dumps(record["parts"][name], separators=(",", ":"))
            (folder / f"{name}.json").write_text(part + "\n", "utf-8")


def report(record: dict[str, Any]) -> list[str]:
    """The record in a few lines."""
    if not record["ran"]:
        return [
            f"gpu-check: no GPU, since {record['reason']}. Nothing ran: {', '.join(PARTS)}.",
            "Run it on a machine with an NVIDIA GPU and a torch with CUDA (README.md).",
        ]
    parts = record["parts"]
    lines = [f"gpu-check on {record['device']['name']}"]
    if "bandwidth" in parts:
        lines.append(f"reads {parts['bandwidth']['bandwidth'] / 1e9:.0f} GB/s")
    if "acceptance" in parts:
        found = parts["acceptance"]
        lines.append(
            f"acceptance: {found['differing']} of {found['blocks']} verdicts differ; "
            f"{found['fused_s'] * 1e6:.0f} µs fused, {found['host_s'] * 1e6:.0f} µs on the host"
        )
    for name in ("decoding_135m", "decoding_7b"):
        if name in parts:
            found = parts[name]
            lines += [
                f"{found['shape']}, {kind}: {found[kind]['plain_tokens_per_s']:.0f} tokens/s, "
                f"{100 * found[kind]['share_of_bandwidth']:.0f} % of bandwidth"
                for kind in ("padded", "one_row")
            ]
            lines.append(
                f"{found['shape']}, rows: {found['guarantee']}, {found['rows_differing']} of "
                f"{found['rows_compared']} differ, {found['argmax_flipped']} choices"
            )
    if "race" in parts:
        identical = parts["race"]["greedy_identical"]
        lines.append(f"race: greedy lanes {'identical' if identical else 'differ'}")
    lines += [f"{name}: done" for name in ("tiles", "roofline") if name in parts]
    lines += [f"{name}: not run, {why}" for name, why in record["not_run"].items()]
    lines += [f"{name}: FAILED\n{why}" for name, why in record["failed"].items()]
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kernels gpu-check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="file; else standard output")
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="for tiles and roofline")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:1")
    parser.add_argument("--minutes", type=float, default=8.0, help="no part starts after these")
    return parser
