"""The recipes in docs/deploy: the unit as systemd reads it, the proxy as nginx runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.websocket import websocket_connect

from kernels.trace import Trace
from tests.app.conftest import SOURCE, Page
from tests.browser.harness import ROOT, Server, free_port

RECIPES = ROOT / "docs" / "deploy"
UNIT = RECIPES / "speculative-decoding-live.service"
#: Debian puts servers where a plain user's PATH does not look.
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
NAME = "article.example.org"


# --- systemd ------------------------------------------------------------------------------------


def test_systemd_accepts_the_unit_and_finds_it_tight(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd here")
    text = UNIT.read_text("utf-8")
    # What the unit names is not installed on this machine.
    text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text)
    text = re.sub(r"(?m)^WorkingDirectory=.*", f"WorkingDirectory={tmp_path}", text)
    unit = tmp_path / UNIT.name
    unit.write_text(text, "utf-8")
    verified = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr.strip()) == (0, "")
    tight = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tight.returncode == 0, tight.stdout[-300:]


def test_the_unit_gives_races_the_time_that_the_server_takes() -> None:
    text = UNIT.read_text("utf-8")
    drain = int(re.findall(r"SD_DRAIN_SECONDS=(\d+)", text)[0])
    assert int(re.findall(r"TimeoutStopSec=(\d+)", text)[0]) > drain + 10
    # Told to the whole group, the signal would end the engine under the races it lets go on.
    assert "KillMode=mixed" in text


# --- nginx --------------------------------------------------------------------------------------


class Proxied:
    """The recipe between us and a server of our own, on free ports and without TLS."""

    def __init__(self, server: Server, folder: Path) -> None:
        assert NGINX is not None
        self.server = server
        self.port = free_port()
        recipe = (RECIPES / "nginx.conf").read_text("utf-8")
        recipe = re.sub(r"(?m)^ *ssl_certificate.*\n", "", recipe)
        recipe = recipe.replace("listen 443 ssl http2;", f"listen 127.0.0.1:{self.port};")
        recipe = recipe.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
        recipe = recipe.replace("127.0.0.1:5006", f"127.0.0.1:{server.port}")
        recipe = recipe.replace("/var/cache/nginx", str(folder / "cache"))
        (folder / "cache").mkdir()
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        user = "user root;\n" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(
            f"{user}daemon off;\npid {folder}/pid;\nerror_log stderr;\nworker_processes 1;\n"
            "events { worker_connections 1024; }\n"
            f"http {{\naccess_log off;\n{temporary}{recipe}\n}}\n",
            "utf-8",
        )
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
        tried = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert tried.returncode == 0, tried.stderr
        self.log = (folder / "nginx.log").open("wb")
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log)
        self.client = AsyncHTTPClient(force_instance=True)

    async def get(self, path: str, **headers: str) -> HTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}{path}",
            headers={"Host": NAME, "Accept-Encoding": "br, gzip"} | named,
            decompress_response=False,
            follow_redirects=False,
            request_timeout=60,
        )
        return await self.client.fetch(request, raise_error=False)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[Proxied]:
    if NGINX is None:
        pytest.skip("no nginx here; make test installs it from Debian's packages")
    # The command of the unit, on a port of this test.
    line = re.findall(r"(?m)^ExecStart=(.*)", UNIT.read_text("utf-8"))[0]
    options = shlex.split(line)[4:]
    assert options[:4] == ["--address", "127.0.0.1", "--port", "5006"]
    fake = {"SD_SOURCE": SOURCE, "FAKE_PASS_MS": "1"}
    server = Server(tmp_path / "log.txt", "--address", "127.0.0.1", *options[4:], **fake)
    try:
        proxy = Proxied(server, tmp_path)
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    if (await proxy.get("/app/health")).code == 200:
                        break
                await asyncio.sleep(0.1)
            yield proxy
        finally:
            proxy.stop()
    finally:
        server.stop()


async def test_the_proxy_compresses_caches_and_lets_the_race_through(proxied: Proxied) -> None:
    assert (await proxied.get("/")).headers["Location"].lstrip(".") == "/app"
    first = await proxied.get("/app?lang=en")
    again = await proxied.get("/app?lang=en&roofline.k=4")
    assert (first.code, first.headers["X-Cache"]) == (200, "MISS")
    assert (again.code, again.headers["X-Cache"]) == (200, "HIT"), "the state makes no new page"
    assert first.headers["Content-Encoding"] == "gzip"
    assert len(first.body) < 100_000
    assert "'sha256-" in first.headers["Content-Security-Policy"]
    assert "Strict-Transport-Security" in first.headers
    seen = await proxied.get("/app?lang=en", If_None_Match=first.headers["Etag"])
    assert (seen.code, seen.body) == (304, b"")
    assert (await proxied.get("/app?lang=zh")).body != first.body
    plain = await proxied.get("/app?lang=en", Accept_Encoding="identity")
    assert plain.body.startswith(b"<!DOCTYPE html>"), "no gzip for who does not take it"
    script = await proxied.get("/app/figures/web/dom.js")
    assert script.headers["Content-Encoding"] == "gzip"
    assert (await proxied.get("/app/health")).headers.get("X-Cache") is None

    request = HTTPRequest(
        f"ws://127.0.0.1:{proxied.port}/app/live",
        headers={"Host": NAME, "Origin": f"https://{NAME}"},
    )
    page = Page(await websocket_connect(request))
    page.run(length=40)
    await page.until("end")
    Trace.from_events(page.events)
    foreign = HTTPRequest(request.url, headers={"Host": NAME, "Origin": "https://evil.example"})
    with pytest.raises(HTTPClientError) as refused:
        await websocket_connect(foreign)
    assert refused.value.code == 403
    page.drop()


async def test_the_article_is_there_while_the_server_is_not(proxied: Proxied) -> None:
    first = await proxied.get("/app?lang=en")
    proxied.server.process.send_signal(signal.SIGKILL)
    proxied.server.process.wait()
    time.sleep(11)  # what is kept is stale by now
    stale = await proxied.get("/app?lang=en")
    assert (stale.code, stale.body) == (200, first.body)
    assert stale.headers["X-Cache"] in ("STALE", "UPDATING")
    assert (await proxied.get("/app/health")).code == 502
