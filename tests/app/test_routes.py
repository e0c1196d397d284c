"""The routes over HTTP: what a page weighs, what a browser may do with it, what cannot be had."""

from __future__ import annotations

import base64
import gzip
import hashlib
import posixpath
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

import content
import figures
from app import live, routes
from tests.app.conftest import Open

Get = Callable[..., Awaitable[HTTPResponse]]


@pytest.fixture
async def get(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Get]:
    """Asks our routes as they stand in the server; nothing is decompressed on the way."""
    monkeypatch.setattr(live, "_hub", None)
    patterns = [
        (f"/app{path}", handler, {"application_context": None}) for path, handler in routes.ROUTES
    ]
    socket, port = bind_unused_port()
    server = HTTPServer(Application(patterns))
    server.add_socket(socket)
    client = AsyncHTTPClient(force_instance=True)

    async def ask(path: str, method: str = "GET", **headers: str) -> HTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = HTTPRequest(
            f"http://localhost:{port}{path}", method, named, decompress_response=False
        )
        return await client.fetch(request, raise_error=False)

    yield ask
    client.close()
    server.stop()


async def test_the_article_is_made_once_and_sent_small(get: Get) -> None:
    routes._article.cache_clear()
    plain = await get("/app?lang=en")
    small = await get("/app?lang=en&roofline.k=5&utm=1", Accept_Encoding="br, gzip")
    assert plain.code == small.code == 200
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < len(plain.body) / 3
    assert b"<h1" in plain.body
    assert routes._article.cache_info().misses == 1, "the state in the address makes no new page"
    zh = await get("/app/", Accept_Language="zh-TW,zh;q=0.9,en;q=0.8")
    assert b'lang="zh-CN"' in zh.body
    for name in ("Accept-Encoding", "Accept-Language"):
        assert name in zh.headers["Vary"]


async def test_the_page_names_all_its_modules_at_once(get: Get) -> None:
    html = (await get("/app?lang=en")).body.decode()
    named = re.findall(r'<link rel="modulepreload" href="([^"]+)">', html)
    assert len(named) == len(set(named)) > 40
    for module in named:
        answer = await get(module)
        assert answer.code == 200
        for target in re.findall(r'(?m)^import .*?"(.+?)";$', answer.body.decode()):
            address = target.replace("#sd/", "/app/figures/web/")
            assert posixpath.normpath(posixpath.join(posixpath.dirname(module), address)) in named


async def test_whoever_has_a_page_already_gets_no_second_one(get: Get) -> None:
    for path in ("/app?lang=en", "/app/static/article.css", "/app/figures/web/dom.js"):
        for encoding in ("identity", "gzip"):
            first = await get(path, Accept_Encoding=encoding)
            again = await get(path, Accept_Encoding=encoding, If_None_Match=first.headers["Etag"])
            assert (again.code, again.body) == (304, b""), path
            other = await get(path, Accept_Encoding=encoding, If_None_Match='"something else"')
            assert other.code == 200
    head = await get("/app?lang=en", "HEAD")
    assert (head.code, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 10_000


@pytest.mark.parametrize(
    "path", ["/app?lang=en", "/app?lang=zh&theme=dark", "/app/figure/roofline"]
)
async def test_a_page_may_run_nothing_but_our_files_and_its_import_map(get: Get, path: str) -> None:
    answer = await get(path)
    html = answer.body.decode()
    rules = dict(
        rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";")
    )
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    allowed = set(re.findall(r"'sha256-([^']+)'", rules["script-src"]))
    inline = re.findall(r"<script(?![^>]*src=)([^>]*)>(.*?)</script>", html, re.S)
    assert inline
    for attributes, text in inline:
        if "application/json" not in attributes:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert digest in allowed
            allowed.remove(digest)
    assert not allowed
    assert not re.search(r"\son\w+=", re.sub(r"<script.*?</script>", "", html, flags=re.S))
    assert "http:" not in rules["connect-src"]
    assert rules["frame-ancestors"] == ("*" if "/figure/" in path else "'self'")


async def test_every_answer_is_strict_even_an_error(get: Get) -> None:
    for path in ("/app", "/app/nothing", "/app/static/nothing.js", "/app/health", "/app/metrics"):
        headers = (await get(path)).headers
        if path != "/app/nothing":  # no route of ours
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["Referrer-Policy"] == "no-referrer"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "Server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/app/static/../main.py", "/app/static/%2e%2e/main.py", "/app/static/..%2fmain.py",
        "/app/figures/../pyproject.toml", "/app/figures/race/model.py", "/app/figures//etc/passwd",
        "/app/figures/race/../../app/limits.py", "/app/static/", "/app/figures/race",
        "/app/figure/nope", "/app/figure/../health", "/app/content/fr.json",
        "/app/content/../x.json",
        "/app/chart/nope.en.json", "/app/chart/roofline.fr.json",
        "/app/figures/../docs/trace.schema.json", "/app/static/../../docs/trace.schema.json",
        "/app/ws", "/app/autoload.js", "/app/metadata",
    ],
)  # fmt: skip
async def test_what_cannot_be_had(get: Get, path: str) -> None:
    answer = await get(path)
    assert answer.code == 404, path
    assert b"import" not in answer.body


async def test_text_of_a_reader_does_not_come_back(get: Get) -> None:
    for query in ("lang=%3Cscript%3E", "theme=%22onload%3D", "race.prompt=%3Cimg%20src%3Dx%3E"):
        body = (await get(f"/app?{query}")).body
        assert body in {(await get(f"/app?lang={lang}")).body for lang in content.LANGUAGES}


async def test_charts_and_words_are_served_small(get: Get) -> None:
    for lang in content.LANGUAGES:
        assert (await get(f"/app/content/{lang}.json", Accept_Encoding="gzip")).code == 200
    charts = [f.id for f in figures.every() if (f.folder() / "chart.py").exists()]
    assert charts
    for figure in charts:
        answer = await get(f"/app/chart/{figure}.en.json", Accept_Encoding="gzip")
        assert answer.headers["Content-Encoding"] == "gzip"


async def test_numbers_for_prometheus_name_no_reader(get: Get, visit: Open) -> None:
    page = await visit()
    page.run(prompt="a secret prompt")
    await page.until("end")
    page.run(prompt="refuse this")
    await page.until("error")
    answer = await get("/app/metrics")
    text = answer.body.decode()
    assert answer.headers["Content-Type"].startswith("text/plain")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["sd_readers",] == 1
    assert found["sd_engine_up",] == 1
    assert found["sd_races_total", "end"] >= 1
    assert found["sd_races_total", "prompt_too_long"] >= 1
    assert found["sd_queue_wait_seconds_count",] >= 2
    assert found["sd_frames_total",] > 5
    assert "secret" not in text
    assert page.race not in text


async def test_health_says_when_the_server_is_on_its_way_out(get: Get, visit: Open) -> None:
    assert (await get("/app/health")).code == 200
    page = await visit()
    await page.until("hello")
    assert (await get("/app/health")).code == 200
    live.hub().wind_up()
    await page.until("stopping")
    assert (await get("/app/health")).code == 503
    page.run()
    assert (await page.until("refused"))["code"] == "server_stopping"
