"""A small world to fetch weights in: a tiny model, a package index and a hub on 127.0.0.1.

The servers can be told to misbehave, so that every way a download can go wrong is tried here.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import gguf
import numpy as np
import pytest
from huggingface_hub import constants

from kernels import storage, weights, wheel
from kernels.errors import SdError
from kernels.wheel import WheelSource
from tests.hosts import Quiet, listening

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN = 2, 128, 4, 2, 96


def byte_characters() -> list[str]:
    """The 256 characters of byte-level BPE, as the tokenizers library lists them."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of a tiny byte-level tokenizer."""
    merges = ["Ġ t", "h e", "Ġt he", "Ċ Ċ", "Ġ Ġ"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_characters()]
    return [*tokens, *(merge.replace(" ", "") for merge in merges)], merges


def write_gguf(
    path: Path, *, architecture: str = "llama", pre: str = "smollm", seed: int = 0
) -> None:
    """A random two-layer model in GGUF, quantised to Q8_0 as the shipped one partly is."""
    random = np.random.default_rng(seed)
    tokens, merges = vocabulary()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = random.normal(0, 0.2, (rows, columns)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(name, random.normal(1, 0.1, size).astype(np.float32))

    matrix("token_embd.weight", len(tokens), WIDTH)
    vector("output_norm.weight", WIDTH)
    head = WIDTH // HEADS
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        vector(f"{name}.attn_norm.weight", WIDTH)
        vector(f"{name}.ffn_norm.weight", WIDTH)
        matrix(f"{name}.attn_q.weight", WIDTH, WIDTH)
        matrix(f"{name}.attn_k.weight", KV_HEADS * head, WIDTH)
        matrix(f"{name}.attn_v.weight", KV_HEADS * head, WIDTH)
        matrix(f"{name}.attn_output.weight", WIDTH, WIDTH)
        matrix(f"{name}.ffn_gate.weight", HIDDEN, WIDTH)
        matrix(f"{name}.ffn_up.weight", HIDDEN, WIDTH)
        matrix(f"{name}.ffn_down.weight", WIDTH, HIDDEN)
        if architecture != "llama":
            for part, size in (("q", WIDTH), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
                vector(f"{name}.attn_{part}.bias", size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_wheel(folder: Path) -> tuple[Path, WheelSource]:
    """A wheel that holds the tiny model, and the source that pins it."""
    file = folder / "tiny.Q8_0.gguf"
    write_gguf(file)
    content = file.read_bytes()
    name, version, member = "sd-test-weights", "0.1.2", "sd_test_weights/tiny.Q8_0.gguf"
    info = "sd_test_weights-0.1.2.dist-info"
    path = folder / "sd_test_weights-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    source = WheelSource(
        package=name,
        version=version,
        member=member,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        wheel_size=path.stat().st_size,
        model_id="tiny/tiny-model",
        licence="MIT",
    )
    return path, source


@dataclass
class Server:
    """One server that is both: a package index under /simple, a hub for the rest.

    `fault` for the wheel and for the hub's weights: "none", "missing" (404), "truncated" (closes
    half-way), "changed" (other bytes), "slow" (half, then waits for `release`),
    "silent" (accepts, never answers).
    """

    wheel: Path | None = None
    hub_files: dict[str, bytes] = field(default_factory=dict)
    fault: str = "none"
    hub_fault: str = "missing"
    downloads: int = 0
    hub_downloads: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    sha: str = "a" * 40

    def __post_init__(self) -> None:
        outer = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self, body=True)

            def do_HEAD(self) -> None:
                outer.answer(self, body=False)

        self._running = listening(Handler)
        self.url = f"http://127.0.0.1:{self._running.__enter__()}"

    def close(self) -> None:
        self.release.set()
        self._running.__exit__(None, None, None)

    def answer(self, request: http.server.BaseHTTPRequestHandler, *, body: bool) -> None:
        path = urlsplit(request.path).path
        if path.startswith("/simple/sd-test-weights") and self.wheel and self.fault != "missing":
            page = f'<a href="/files/{self.wheel.name}">{self.wheel.name}</a>'.encode()
            self._send(request, page, {"Content-Type": "text/html"}, body=body)
        elif path.startswith("/files/") and self.wheel:
            if body:
                self.downloads += 1
            self._send(request, self.wheel.read_bytes(), {}, body=body, fault=self.fault)
        elif self.hub_fault == "silent":
            self.release.wait(60)
        elif path.startswith("/api/models/tiny/tiny-model/tree/") and self.hub_fault != "missing":
            tree = [
                {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for n, c in self.hub_files.items()
            ]
            page = json.dumps(tree).encode()
            self._send(request, page, {"Content-Type": "application/json"}, body=body)
        elif path.startswith("/api/models/tiny/tiny-model") and self.hub_fault != "missing":
            listing = [{"rfilename": n, "size": len(c)} for n, c in self.hub_files.items()]
            answer = {"id": "tiny/tiny-model", "modelId": "tiny/tiny-model", "sha": self.sha}
            page = json.dumps({**answer, "siblings": listing}).encode()
            self._send(request, page, {"Content-Type": "application/json"}, body=body)
        elif path.startswith("/tiny/tiny-model/resolve/") and self.hub_fault != "missing":
            name = path.rpartition("/")[2]
            if body:
                self.hub_downloads += 1
            content = self.hub_files[name]
            tag = hashlib.sha256(content).hexdigest()
            headers = {"ETag": f'"{tag}"', "X-Repo-Commit": self.sha}
            large = name.endswith(".safetensors")
            fault = self.hub_fault if large else "none"
            self._send(request, content, headers, body=body, fault=fault)
        else:
            request.send_response(404)
            request.send_header("Content-Length", "0")
            request.end_headers()

    def _send(
        self,
        request: http.server.BaseHTTPRequestHandler,
        content: bytes,
        headers: dict[str, str],
        *,
        body: bool,
        fault: str = "none",
    ) -> None:
        if fault == "changed":
            content = content[:200] + bytes(b ^ 255 for b in content[200:300]) + content[300:]
        request.send_response(200)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if not body:
            return
        half = len(content) // 2
        request.wfile.write(content[:half])
        request.wfile.flush()
        if fault == "truncated":
            request.close_connection = True
            return
        if fault == "slow":
            self.release.wait(60)
            time.sleep(0.1)
        request.wfile.write(content[half:])


def hub_files(folder: Path) -> dict[str, bytes]:
    """The files of a converted model, as a hub would serve them."""
    return {
        file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"
    }


class World(NamedTuple):
    """Servers, the package that the index serves, and an empty cache folder."""

    server: Server
    source: WheelSource
    cache: Path

    def resolve(self, ref: str | None = None, **options: Any) -> Path:
        return weights.resolve(ref, package=self.source, **options)

    def left_over(self) -> list[str]:
        """What lies in the cache beside finished folders and locks."""
        files = (self.cache / "weights").glob("*")
        return [f.name for f in files if f.suffix != ".lock" and storage.manifest(f) is None]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, WheelSource]:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    package: tuple[Path, WheelSource],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    server = Server(wheel=package[0])
    for name in [n for n in os.environ if n.startswith(("PIP_", "UV_", "HF_", "SD_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "SD_CACHE": str(tmp_path / "cache"),
        "HF_ENDPOINT": server.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{server.url}/simple",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "HF_HOME": str(tmp_path / "hf"),
    }.items():
        monkeypatch.setenv(name, value)
    # Read from the environment when huggingface_hub was imported, so set here too.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    if "real_client" not in request.fixturenames:
        monkeypatch.setattr(
            wheel,
            "_commands",
            lambda source, work: [
                (
                    "client",
                    [
                        sys.executable,
                        "-I",
                        "-c",
                        CLIENT,
                        f"{server.url}/files/{package[0].name}",
                        str(work),
                    ],
                )
            ],
        )
    yield World(server, package[1], tmp_path / "cache")
    server.close()


# Stands in for pip where the test isn't about pip, which takes a second to start.
CLIENT = """
import sys, urllib.request
url, folder = sys.argv[1:]
try:
    urllib.request.urlretrieve(url, folder + "/" + url.rpartition("/")[2])
except Exception as error:
    sys.exit(f"ERROR: {error}")
"""


@pytest.fixture
def real_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, and only pip, on every machine."""
    monkeypatch.setattr(wheel.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheel, "_bundled_pip", lambda: None)


def places(error: SdError) -> dict[str, str]:
    return {tried["place"]: tried["reason"] for tried in error.detail["tried"]}
