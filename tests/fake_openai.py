"""A server that speaks OpenAI's protocol as vLLM, llama.cpp or neither does, without a model.

It says what it is told to, in the pieces and at the pace it is told, and can misbehave: `faults`
are done one a request, in order, and then all is well.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

from tests.hosts import Quiet, listening

#: The pieces of a text: each is what arrives together, a list of tokens.
PLAIN = [["One"], [" two"], [" three"], [" four"], [" five"], [" 中文"], ["."]]
SPECULATIVE = [["One"], [" two", " three", " four"], [" five"], [" 中文", "."]]


@dataclass
class FakeOpenAI:
    """See the module.

    kind: "vllm", "llamacpp" or "other". pause: seconds between two pieces. faults: of the next
    requests for a text: "busy" (503), "later" (429 with Retry-After), "refuse" (400), "close" (cut
    off after two pieces), "end" (ended without an ending), "stall" (silent after two pieces),
    "garbage", "error" (an error in mid-stream), "endless".
    """

    kind: str = "vllm"
    pieces: list[list[str]] = field(default_factory=lambda: PLAIN)
    pause: float = 0.01
    faults: list[str] = field(default_factory=list)
    reason: str = "stop"
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    drafts: tuple[int, int, int] = (0, 0, 0)  # rounds, drafted, accepted: of all texts so far
    served: int = 0
    strangers: int = 0  # other people's requests that end together with each of ours
    patience: threading.Event = field(default_factory=threading.Event)  # ends a stall
    gone: int = 0  # connections that the client closed in mid-stream

    def __enter__(self) -> FakeOpenAI:
        fake = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.answer(self)

            def do_POST(self) -> None:
                fake.write(self)

        self.running = listening(Handler)
        self.port = self.running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.patience.set()
        self.running.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    # --- what it is -----------------------------------------------------------------------------

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.paths.append(handler.path)
        self.keys.append(handler.headers.get("Authorization"))
        owner = {"vllm": "vllm", "llamacpp": "llamacpp"}.get(self.kind, "somebody")
        pages: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "tiny", "owned_by": owner, "max_model_len": 2048}]}
        }
        if self.kind == "vllm":
            pages["/version"] = {"version": "0.32.0"}
            pages["/metrics"] = self.metrics()
        if self.kind == "llamacpp":
            pages["/props"] = {
                "build_info": "b11549",
                "default_generation_settings": {"n_ctx": 2048},
            }
        page = pages.get(handler.path)
        if page is None:
            self._send(handler, 404, {"error": {"message": "not here"}})
        else:
            self._send(handler, 200, page)

    def metrics(self) -> str:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        lines = [
            f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="tiny"}} {float(value)}'
            for name, value in zip(names, self.drafts, strict=True)
        ]
        lines += [
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}"}} {float(count)}'
            for reason, count in (("stop", self.served), ("abort", 0))
        ]
        return "# HELP vllm:request_success_total Requests.\n" + "\n".join(lines) + "\n"

    def _send(self, handler: BaseHTTPRequestHandler, status: int, page: Any, **more: str) -> None:
        body = page.encode() if isinstance(page, str) else json.dumps(page).encode()
        handler.send_response(status)
        for name, value in more.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    # --- a text ---------------------------------------------------------------------------------

    def write(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["Content-Length"])
        request = json.loads(handler.rfile.read(length))
        self.paths.append(handler.path)
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "busy":
            return self._send(handler, 503, {"error": {"message": "starting"}})
        if fault == "later":
            return self._send(handler, 429, {"error": {"message": "later"}}, Retry_After="0")
        if fault == "refuse":
            return self._send(handler, 400, {"error": {"message": "max_tokens is too large"}})
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            self._stream(handler, request, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.gone += 1
        handler.close_connection = True
        return None

    def _stream(self, handler: BaseHTTPRequestHandler, request: dict[str, Any], fault: str) -> None:
        self._event(handler, self._chunk(request, {"role": "assistant", "content": ""}))
        pieces = self.pieces * 400 if fault == "endless" else self.pieces
        count = 0
        rounds = drafted = accepted = 0
        for number, piece in enumerate(pieces):
            if number == 2 and fault in self.MISBEHAVE:
                self.MISBEHAVE[fault](self, handler)
                return
            time.sleep(self.pause)
            last = number == len(pieces) - 1
            if number:
                rounds, drafted, accepted = rounds + 1, drafted + 3, accepted + len(piece) - 1
            # llama.cpp sends the tokens of one pass one by one.
            parts = [[token] for token in piece] if self.kind == "llamacpp" else [piece]
            for i, part in enumerate(parts):
                start, count = count, count + len(part)
                ending = self.reason if last and i == len(parts) - 1 else None
                ids = list(range(100 + start, 100 + count))
                self._event(handler, self._part(request, part, ids, count, ending))
        self.served += 1 + self.strangers
        self.drafts = tuple(  # type: ignore[assignment]
            a + b for a, b in zip(self.drafts, (rounds, drafted, accepted), strict=True)
        )
        usage = {"prompt_tokens": 31, "completion_tokens": count, "total_tokens": 31 + count}
        end: dict[str, Any] = {"choices": [], "model": "tiny", "usage": usage}
        if self.kind == "llamacpp":
            end["timings"] = self._timings(count) | {
                "draft_n": drafted,
                "draft_n_accepted": accepted,
            }
        self._event(handler, end)
        self._raw(handler, b"data: [DONE]\n\n")
        self._close(handler)

    def _cut(self, handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    def _garbage(self, handler: BaseHTTPRequestHandler) -> None:
        self._raw(handler, b"data: {not json\n\n")

    def _fail(self, handler: BaseHTTPRequestHandler) -> None:
        self._event(handler, {"error": {"message": "out of memory"}})

    def _stall(self, handler: BaseHTTPRequestHandler) -> None:
        self.patience.wait(20)

    def _part(
        self,
        request: dict[str, Any],
        part: list[str],
        ids: list[int],
        count: int,
        ending: str | None,
    ) -> dict[str, Any]:
        chunk = self._chunk(request, {"content": "".join(part)}, ending)
        if self.kind == "vllm":
            if request.get("return_token_ids"):
                chunk["choices"][0]["token_ids"] = ids
            if request["stream_options"].get("continuous_usage_stats"):
                chunk["usage"] = {"prompt_tokens": 31, "completion_tokens": count}
            if request.get("logprobs"):
                chunk["choices"][0]["logprobs"] = {
                    "content": [{"token": token, "logprob": -0.25} for token in part]
                }
        if self.kind == "llamacpp" and request.get("timings_per_token"):
            chunk["timings"] = self._timings(count)
        return chunk

    @staticmethod
    def _timings(count: int) -> dict[str, float]:
        return {"prompt_n": 31, "predicted_n": count, "predicted_ms": 10.0 * count}

    @staticmethod
    def _chunk(
        request: dict[str, Any], delta: dict[str, Any], ending: str | None = None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": ending}
        if "messages" in request:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return {"model": "tiny", "choices": [choice]}

    def _event(self, handler: BaseHTTPRequestHandler, value: dict[str, Any]) -> None:
        self._raw(handler, b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    @staticmethod
    def _raw(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.wfile.flush()

    @staticmethod
    def _close(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"0\r\n\r\n")
        handler.wfile.flush()

    MISBEHAVE: ClassVar[dict[str, Any]] = {
        "close": _cut,
        "end": lambda self, handler: self._close(handler),
        "stall": _stall,
        "garbage": _garbage,
        "error": _fail,
    }
