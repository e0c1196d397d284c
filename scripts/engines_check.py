"""``make engines-check``: races against real vLLM and llama.cpp servers on this machine.

    python scripts/engines_check.py build/engines [vllm] [llama.cpp]

Starts each plain and with look-up (scripts/engines.sh installs them), records a race through the
seam, and checks what the server told against what arrived; then ends the speculative server in
mid-race, and checks that the race says so and keeps what had come. One JSON line a server; 1 if
something is wrong. Speeds in it are what the machine gave, not a benchmark.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from app.openai_source import OpenAISource
from app.record import closed, record
from kernels.endpoint import ServerError
from kernels.pairs import preset
from kernels.peer_servers import SERVERS, started
from kernels.peer_weights import gguf_of
from kernels.settings import Settings
from kernels.trace import Trace
from kernels.weights import resolve

PROMPT = "Write an HTML page with a table of three rows and three columns."
LENGTH, M = 64, 4


def check(name: str, engines: Path, model: Path) -> dict[str, Any]:
    """Race one kind of server and break it; returns what was found."""
    settings = Settings(PROMPT, length=LENGTH)
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(started(name, engines, False, model, M)).url
        speculative = stack.enter_context(contextlib.ExitStack())
        url = speculative.enter_context(started(name, engines, True, model, M)).url
        source = OpenAISource({"SD_PLAIN_URL": plain, "SD_SPECULATIVE_URL": url})
        trace, fault = record(source, settings)
        assert fault is None, fault
        stats = trace.events[-1]["stats"]
        told = stats["server"]
        for lane in ("plain", "speculative"):
            seen, said = stats[lane]["tokens"], told[lane]["completion_tokens"]
            # llama.cpp counts an end token that it does not send.
            assert said - 1 <= seen <= said, f"{lane}: {seen} tokens came, the server says {said}"
        assert told["counts"] is not None, "the server tells no counts"
        assert told["counts"]["accepted"] <= told["counts"]["drafted"]
        assert 0 < trace.header["prompt_tokens"] == told["plain"]["prompt_tokens"]

        events: list[dict[str, Any]] = []
        code = ""
        try:
            for event in source.run("servers", settings, lambda: False):
                events.append(event)
                passes = [e for e in events if e["type"] == "pass" and e["lane"] == "speculative"]
                if len(passes) == 5 and event is passes[-1]:
                    speculative.close()  # the server is gone, in mid-race
        except ServerError as error:
            code = error.code
        assert code == "server_broke", code
        partial = Trace.from_events(closed(events))
        assert trace.text("plain") == partial.text("plain")
        assert trace.text("speculative").startswith(partial.text("speculative"))
    return {
        "server": trace.header["source"]["server"],
        "texts": trace.events[-1]["agreement"]["kind"],
        "plain_tokens_per_s": stats["plain"]["tokens_per_s"],
        "speculative_tokens_per_s": stats["speculative"]["tokens_per_s"],
        "speedup": stats["speedup"]["measured"],
        "counts": told["counts"],
        "broken_off_after": len(partial.events),
    }


def main(arguments: list[str]) -> int:
    """Check the named servers, or both."""
    engines, names = Path(arguments[0]), arguments[1:] or list(SERVERS)
    target = resolve(preset("embedded").target)
    status = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            model = target
            if name == "llama.cpp":
                options = Namespace(gguf=None, target=None, pair="embedded")
                model, _ = gguf_of(options, target, Path(folder))
            try:
                print(json.dumps(check(name, engines, model)), flush=True)
            except AssertionError as error:
                print(json.dumps({"server": name, "wrong": str(error)}), flush=True)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
