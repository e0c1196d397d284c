"""vLLM and llama.cpp beside our engine: the same machine, weights, prompts and lengths, one run.

Each is started as the server that its users run, from an environment of its own
(scripts/engines.sh), once plain and once with its n-gram look-up, and asked for one text at a time:
batch 1, which is the page's case and not theirs. Their rate is that of the tokens as they arrive on
the loopback, after the first one; ours is the decode phase's. Our lanes are timed between theirs,
prompt by prompt, so that a machine that changes its pace changes it for all; a server is stopped
meanwhile, because one that waits may turn in a loop (vLLM's does: it took half of our speed away).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.bench import finish
from kernels.endpoint import Endpoint
from kernels.errors import SdError
from kernels.machine import Contention, usable_cores
from kernels.peer_weights import gguf_of
from kernels.prompts import Prompt
from kernels.race import encode_prompt, plain_lane, speculative_lane
from kernels.settings import Settings
from kernels.wire import Arrival, Ending

if TYPE_CHECKING:
    from kernels.pairs import Pair

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ("vllm", "llama.cpp")
#: Seconds that a server gets until it answers: a busy machine loads slowly.
PATIENCE = 900.0
#: Tokens that its look-up has to find again, at least and at most, and how many it then drafts.
NGRAM = (2, 4)
SHORTEST = 16  # tokens of a text that has a rate worth the name
Make = Callable[[str, int, bool, Path, int], tuple[list[str], dict[str, str]]]


@dataclass
class Timed:
    """One text: its tokens' arrivals, and what the server said of it."""

    text: str
    tokens: int
    seconds_a_token: float
    prompt_tokens: int | None
    drafted: int | None = None
    accepted: int | None = None


@dataclass
class Tally:
    """Seconds a token, by who wrote: ours plain, ours speculative, ours by look-up, theirs."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    same_text: int = 0
    same_prompt: int = 0
    drafted: int = 0
    accepted: int = 0

    def rate(self, name: str) -> float | None:
        """Tokens a second: from the mean of the seconds a token."""
        times = self.seconds.get(name)
        return 1 / statistics.mean(times) if times else None


def compare(
    pair: Pair,
    options: argparse.Namespace,
    chosen: Sequence[Prompt],
    say: Callable[[str], None],
    contention: Contention,
    make: Make | None = None,
) -> dict[str, Any]:
    """Time the servers that `options.peers` names; their entry of the JSON line, by name.

    The servers' processor time takes part in what `contention` measures.

    options: of the bench (peers, engines, pair, target, m, length). A ratio above 1 means that
    ours is faster.
    """
    from kernels.peers import folders

    target, _ = folders(options)
    found: dict[str, Any] = {}
    for name in options.peers:
        with contextlib.ExitStack() as stack:
            model, note = target, {"precision": pair.target.precision, "same_weights": True}
            if name == "llama.cpp":
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                model, note = gguf_of(options, target, folder)
            found[name] = note | _one(
                pair, options, name, model, chosen, say, contention, make or command
            )
    return {"servers": found}


def _one(
    pair: Pair,
    options: argparse.Namespace,
    name: str,
    model: Path,
    chosen: Sequence[Prompt],
    say: Callable[[str], None],
    contention: Contention,
    make: Make,
) -> dict[str, Any]:
    tallies = {}
    version = ""
    for speculative in (False, True):
        lane = "speculative" if speculative else "plain"
        tally = tallies[lane] = Tally()
        with started(name, options.engines, speculative, model, int(options.m), make) as server:
            endpoint = Endpoint(lane, server.url, probabilities=False)
            version = asyncio.run(_version(endpoint))
            for prompt in chosen:
                settings = Settings(prompt.text, length=options.length, m=options.m)
                with server.stopped():
                    text = _ours(pair, settings, lane, tally)
                # Who has stood still gets a few tokens to come to speed again.
                asyncio.run(timed(endpoint, replace(settings, length=SHORTEST)))
                theirs = asyncio.run(timed(endpoint, settings))
                if theirs.tokens >= SHORTEST:
                    tally.seconds.setdefault("theirs", []).append(theirs.seconds_a_token)
                tally.same_text += theirs.text.strip() == text.strip()
                tally.same_prompt += theirs.prompt_tokens == len(encode_prompt(pair, settings))
                tally.drafted += theirs.drafted or 0
                tally.accepted += theirs.accepted or 0
                say(f"{prompt.id:12}{name} {lane} {1 / theirs.seconds_a_token:.1f}/s")
        contention.take_part(server.unseen)
    plain, speculative_ = tallies["plain"], tallies["speculative"]
    ours = {lane: tally.rate("ours") for lane, tally in tallies.items()}
    theirs_ = {lane: tally.rate("theirs") for lane, tally in tallies.items()}
    return {
        "version": version,
        "batch": 1,
        "threads": usable_cores(),
        "speculation": f"look-up of {NGRAM[0]} to {NGRAM[1]} tokens, m = {options.m}"
        if name == "vllm"
        else f"look-up of {NGRAM[0]} tokens, m = {options.m}",
        "prompts": len(chosen),
        "same_prompt": plain.same_prompt,
        "same_text": plain.same_text,
        "same_text_speculative": speculative_.same_text,
        "drafted": speculative_.drafted,
        "accepted": speculative_.accepted,
        "plain_tokens_per_s": theirs_["plain"],
        "speculative_tokens_per_s": theirs_["speculative"],
        "ours_plain_tokens_per_s": ours["plain"],
        "ours_speculative_tokens_per_s": ours["speculative"],
        "ours_lookup_tokens_per_s": speculative_.rate("ours look-up"),
        "plain_vs": _ratio(ours["plain"], theirs_["plain"]),
        "speculative_vs": _ratio(ours["speculative"], theirs_["speculative"]),
        "lookup_vs": _ratio(speculative_.rate("ours look-up"), theirs_["speculative"]),
    }


def _ours(pair: Pair, settings: Settings, lane: str, tally: Tally) -> str:
    """Time our lane, and by look-up alone beside it; returns the text."""
    makers: dict[str, tuple[Any, Settings]] = {"ours": (plain_lane, settings)}
    if lane == "speculative":
        makers = {
            "ours": (speculative_lane, settings),
            "ours look-up": (speculative_lane, replace(settings, drafter="lookup")),
        }
    text = ""
    for name, (maker, chosen) in makers.items():
        made = maker(pair, encode_prompt(pair, chosen), chosen)
        run = finish(made)
        text = made.transcript.text
        if run.log.decoded >= SHORTEST:
            tally.seconds.setdefault(name, []).append(run.seconds_a_token)
    return text


async def _version(endpoint: Endpoint) -> str:
    async with endpoint.connected() as client:
        return (await endpoint.identify(client)).title


async def timed(endpoint: Endpoint, settings: Settings) -> Timed:
    """One text of a server's, and how fast its tokens came after the first. Raises SdError."""
    async with endpoint.connected() as client:
        about = await endpoint.identify(client)
        ending = Ending()
        before = await endpoint.counters(client)
        arrivals: list[Arrival] = [
            arrival async for arrival in endpoint.stream(client, settings, about, ending)
        ]
        counts = await endpoint.counts(client, before, ending)
    words = [word for arrival in arrivals for word in arrival.words]
    # Tokens of the first arrival cost no time that could be seen.
    later = len(words) - (len(arrivals[0].words) if arrivals else 0)
    span = arrivals[-1].at - arrivals[0].at if arrivals else 0.0
    return Timed(
        "".join(word.text for word in words),
        len(words),
        max(span, 1e-9) / max(1, later),
        ending.usage.get("prompt_tokens"),
        None if counts is None else counts.drafted,
        None if counts is None else counts.accepted,
    )


# --- starting them --------------------------------------------------------------------------------


def command(
    name: str, port: int, speculative: bool, model: Path, m: int
) -> tuple[list[str], dict[str, str]]:
    """The command that starts a server, less the folder of its environment, and its settings."""
    threads = str(usable_cores())
    if name == "llama.cpp":
        line = ["python", str(ROOT / "scripts" / "llama_server.py"), str(model)]
        line += ["--port", str(port), "--threads", threads]
        return line + (["--ngram", str(NGRAM[0]), "--m", str(m)] if speculative else []), {}
    line = ["vllm", "serve", str(model), "--served-model-name", "target", "--dtype", "bfloat16"]
    line += ["--max-model-len", "2048", "--max-num-seqs", "1", "--enforce-eager"]
    line += ["--no-enable-prefix-caching", "--host", "127.0.0.1", "--port", str(port)]
    if speculative:
        low, high = NGRAM
        line += [
            "--speculative-config",
            f'{{"method": "ngram", "num_speculative_tokens": {m}, '
            f'"prompt_lookup_min": {low}, "prompt_lookup_max": {high}}}',
        ]
    given = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    given |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": threads}
    return line, given | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@dataclass
class Server:
    """One that answers at `url`. `unseen`, once it has ended: seconds of processor time that it and
    all it started took and that our own times (`os.times`) do not hold."""

    url: str
    process: subprocess.Popen[bytes]
    unseen: float = 0.0

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It and all it started stand still."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End it and whatever it started: they share a session of their own."""
        took, reaped = self._seconds(), _children()
        _end(self.process)
        self.unseen = max(0.0, took - (_children() - reaped))

    def _seconds(self) -> float:
        import psutil

        total = 0.0
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(self.process.pid)
            for each in (server, *server.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = each.cpu_times()
                    total += sum((times.user, times.system))
        return total


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


@contextlib.contextmanager
def started(
    name: str, engines: Path, speculative: bool, model: Path, m: int, make: Make = command
) -> Iterator[Server]:
    """A server that answers; it and all it started are gone afterwards.

    Raises:
        SdError: "engine_missing", no such environment; "engine_failed", it did not come up.
    """
    environment = engines / {"llama.cpp": "llama"}.get(name, name)
    if name not in SERVERS or not environment.is_dir():
        raise SdError(
            "engine_missing",
            f"{name} is not installed in {environment}: sh scripts/engines.sh {engines} "
            f"{environment.name}",
            name=name,
        )
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    line, given = make(name, port, speculative, model, m)
    line[0] = str(environment / "bin" / line[0])
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            line, stdout=log, stderr=log, env=os.environ | given, start_new_session=True
        )
        server = Server(f"http://127.0.0.1:{port}/v1", process)
        try:
            _wait(process, server.url, name, log)
            yield server
        finally:
            server.end()


def _wait(process: subprocess.Popen[bytes], url: str, name: str, log: Any) -> None:
    import httpx2

    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/models", timeout=5).is_success:
                return
        time.sleep(0.5)
    log.seek(0)
    tail = log.read().decode(errors="replace").strip().splitlines()[-8:]
    print("\n".join(tail), file=sys.stderr)
    raise SdError(
        "engine_failed", f"{name} did not come up; its last words are above.", reason=name
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        if process.poll() is not None and sign == signal.SIGKILL:
            return


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None
