"""Peers that are servers: started, timed, compared and ended; with a server without a model."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from kernels import bench, peer_servers, peer_weights
from kernels.endpoint import Endpoint
from kernels.errors import SdError
from kernels.machine import Contention
from kernels.prompts import Prompt
from kernels.race import encode_prompt, plain_lane
from kernels.settings import Settings
from tests.fake_openai import FakeOpenAI
from tests.kernels.fakes import FakePair, TabularDecoder, random_table

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = [Prompt("a", "easy", "x", "abcabc"), Prompt("b", "hard", "x", "hello")]

#: A server that says what it is told, as a process; it has a child of its own, as vLLM has.
SERVER = """
import json, subprocess, sys, time
from http.server import ThreadingHTTPServer
sys.path.insert(0, sys.argv[1])
from tests.fake_openai import FakeOpenAI
told = json.loads(sys.argv[3])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[4], "a") as note:
    note.write(f"{child.pid}\\n")
fake = FakeOpenAI(kind=told["kind"], pieces=told["pieces"], pause=0.002, reason="length")
port = int(sys.argv[2])
real = ThreadingHTTPServer.__init__
ThreadingHTTPServer.__init__ = lambda self, at, handler: real(self, (at[0], port), handler)
with fake:
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


@pytest.fixture
def engines(tmp_path: Path) -> Path:
    """A folder of environments whose `python` is ours."""
    for name in ("vllm", "llama"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(sys.executable)
    return tmp_path


@pytest.fixture
def pair() -> FakePair:
    table = random_table(0, 26, 2)
    return FakePair(
        TabularDecoder(table, context_length=256),
        TabularDecoder(table + random_table(5, 26, 2) * 0.5, context_length=256),
    )


def pieces_of(pair: FakePair, prompt: Prompt, length: int, width: int) -> list[list[str]]:
    """The text that our own plain lane writes, as a server's pieces of so many tokens."""
    settings = Settings(prompt.text, length=length)
    any_pair: Any = pair
    lane = plain_lane(any_pair, encode_prompt(any_pair, settings), settings)
    run = bench.finish(lane)
    texts = [pair.tokenizer.token_text(token) for token in run.tokens]
    return [texts[i : i + width] for i in range(0, len(texts), width)]


def test_a_peer_is_timed_beside_ours_and_leaves_nothing_behind(
    engines: Path, pair: FakePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = engines / "children"
    length = 24

    def make(
        name: str, port: int, speculative: bool, model: Path, m: int
    ) -> tuple[list[str], dict[str, str]]:
        told = {
            "kind": "vllm",
            "pieces": pieces_of(pair, PROMPTS[0], length, 3 if speculative else 1),
        }
        line = ["python", "-c", SERVER, str(ROOT), str(port), json.dumps(told), str(notes)]
        return line, {}

    monkeypatch.setattr("kernels.peers.folders", lambda options: (engines, "none"))
    options = argparse.Namespace(
        peers=("vllm",), engines=engines, pair="x", target=None, m=4, length=length, gguf=None
    )
    said: list[str] = []
    any_pair: Any = pair
    found = peer_servers.compare(any_pair, options, PROMPTS, said.append, Contention(), make)[
        "servers"
    ]["vllm"]
    json.dumps(bench.rounded(found), allow_nan=False)
    assert found["version"] == "vLLM 0.32.0"
    assert found["prompts"] == 2
    assert found["same_text"] == 1, "it says the first prompt's text to the second one as well"
    assert found["batch"] == 1
    # Three tokens every 2 ms against one: whatever the machine does meanwhile.
    assert found["speculative_tokens_per_s"] > found["plain_tokens_per_s"]
    assert found["plain_vs"] == pytest.approx(
        found["ours_plain_tokens_per_s"] / found["plain_tokens_per_s"]
    )
    assert found["drafted"] > found["accepted"] > 0
    assert len(said) == 4
    children = [int(line) for line in notes.read_text().split()]
    assert len(children) == 2
    deadline = time.monotonic() + 60
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))


def test_a_rate_counts_the_time_after_the_first_token() -> None:
    with FakeOpenAI(pieces=[["a"], ["b", "c"], ["d", "e"]], pause=0.2) as fake:
        endpoint = Endpoint("plain", fake.url, probabilities=False)
        timed = asyncio.run(peer_servers.timed(endpoint, Settings("x", length=9)))
        assert "logprobs" not in fake.requests[0], "asking for them would slow it down"
    assert (timed.text, timed.tokens, timed.prompt_tokens) == ("abcde", 5, 31)
    # Two pauses for four tokens, and a busy machine only adds to it.
    assert timed.seconds_a_token >= 0.4 / 4 * 0.9
    assert (timed.drafted, timed.accepted) == (6, 2)


def test_a_server_stands_still_while_we_run_and_its_time_is_known(
    engines: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "children"
    busy = SERVER.replace("import time; time.sleep(600)", "while True: pass")

    def make(name: str, port: int, *_: Any) -> tuple[list[str], dict[str, str]]:
        told = json.dumps({"kind": "vllm", "pieces": [["a"]]})
        return ["python", "-c", busy, str(ROOT), str(port), told, str(notes)], {}

    with peer_servers.started("vllm", engines, False, engines, 4, make) as server:
        child = psutil.Process(int(notes.read_text()))

        def took() -> float:
            """The least of several tries: the child's time is counted in ticks."""
            spans = []
            for _ in range(5):
                before = child.cpu_times().user
                time.sleep(0.1)
                spans.append(child.cpu_times().user - before)
            return min(spans)

        with server.stopped():
            assert took() == 0
        until = time.monotonic() + 60
        while child.cpu_times().user < 0.3 and time.monotonic() < until:
            time.sleep(0.05)
        used = child.cpu_times().user
        assert used >= 0.3
    # Nobody waited for the grandchild, so that our own times do not hold what it took.
    assert server.unseen >= used - 0.05


def test_an_engine_that_is_not_there(engines: Path) -> None:
    with (
        pytest.raises(SdError, match=r"scripts/engines.sh") as missing,
        peer_servers.started("vllm", engines / "nowhere", False, engines, 4),
    ):
        pass
    assert missing.value.code == "engine_missing"


def test_an_engine_that_ends_at_once_shows_its_last_words(
    engines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(*_: Any) -> tuple[list[str], dict[str, str]]:
        return ["python", "-c", "raise SystemExit('no such model')"], {}

    with (
        pytest.raises(SdError, match="did not come up"),
        peer_servers.started("vllm", engines, False, engines, 4, make),
    ):
        pass
    assert "no such model" in capsys.readouterr().err


def test_the_commands_differ_by_speculation_alone() -> None:
    for name in peer_servers.SERVERS:
        plain, given = peer_servers.command(name, 1, False, Path("m"), 5)
        speculative, same = peer_servers.command(name, 1, True, Path("m"), 5)
        assert given == same
        assert speculative[: len(plain)] == plain
        assert "5" in " ".join(speculative[len(plain) :])
    vllm, _ = peer_servers.command("vllm", 1, True, Path("m"), 4)
    config = json.loads(vllm[vllm.index("--speculative-config") + 1])
    assert config["method"] == "ngram"
    assert config["num_speculative_tokens"] == 4


def test_names_of_peers(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench._parser().parse_args(["--peers", "vllm, llama.cpp"]).peers == ("vllm", "llama.cpp")
    with pytest.raises(SystemExit):
        bench._parser().parse_args(["--peers", "sglang"])
    assert "known are vllm, llama.cpp" in capsys.readouterr().err


# --- the same weights -----------------------------------------------------------------------------


def write_gguf(path: Path, kind: str) -> None:
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_string("general.name", "tiny")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    for name, shape in (
        ("token_embd.weight", (8, 64)),
        ("blk.0.ffn_down.weight", (64, 64)),
    ):
        values = rng.normal(0, 1, shape).astype(np.float32)
        to = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values, to), raw_dtype=to)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_quantised_weights_become_bf16_and_nothing_else_changes(tmp_path: Path) -> None:
    import gguf
    import torch
    from safetensors.torch import save_file

    write_gguf(tmp_path / "in.gguf", "Q8_0")
    peer_weights.as_bf16(tmp_path / "in.gguf", tmp_path / "out.gguf")
    before, after = (gguf.GGUFReader(tmp_path / f"{n}.gguf") for n in ("in", "out"))
    assert after.fields["general.name"].contents() == "tiny"
    assert after.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert {t.name: t.tensor_type.name for t in after.tensors} == {
        "token_embd.weight": "BF16",
        "blk.0.ffn_down.weight": "BF16",
        "output_norm.weight": "F32",
    }
    values = {}
    for old, new in zip(before.tensors, after.tensors, strict=True):
        exact = torch.from_numpy(gguf.quants.dequantize(old.data, old.tensor_type).copy())
        kept = torch.from_numpy(gguf.quants.dequantize(new.data, new.tensor_type).copy())
        # torch rounds to BF16 independently of gguf.
        assert torch.equal(kept, exact.to(torch.bfloat16).float())
        values[old.name] = exact.to(torch.bfloat16)
    folder = tmp_path / "model"
    folder.mkdir()
    names = {
        "model.embed_tokens.weight": values["token_embd.weight"],
        "model.norm.weight": values["output_norm.weight"],
        "model.layers.0.mlp.down_proj.weight": values["blk.0.ffn_down.weight"],
    }
    save_file(names, folder / "model.safetensors")
    assert peer_weights.same_weights(tmp_path / "out.gguf", folder)
    names["model.layers.0.mlp.down_proj.weight"][3, 3] += 1
    save_file(names, folder / "model.safetensors")
    assert not peer_weights.same_weights(tmp_path / "out.gguf", folder)
