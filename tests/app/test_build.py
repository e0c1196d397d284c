"""The built copy without a browser: every link leads somewhere, both languages are whole."""

from __future__ import annotations

import gzip
import json
import re
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest

import content
import figures
from app import page
from app.places import Served
from app.static_site import feeds
from app.static_site.build import MANIFEST, BuildError, build, pages

BASE = "https://example.org/some/where"
DATE = "2026-11-30"
FIRST_VIEW = 700_000  # bytes, compressed
CARD = 60_000


class Page(HTMLParser):
    """The links, anchors and words of one HTML file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, dict[str, str]]] = []
        self.ids: set[str] = set()
        self.words: list[str] = []
        self.metas: dict[str, str] = {}
        self._skip = ""
        self.boot = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            assert given["id"] not in self.ids, f"id {given['id']} twice"
            self.ids.add(given["id"])
        for name in ("href", "src"):
            if name in given:
                self.links.append((tag, given[name], given))
        if tag == "meta":
            self.metas[given.get("name") or given.get("property") or "?"] = given.get("content", "")
        if tag in ("script", "style"):
            self._skip = given.get("id", tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._skip = ""

    def handle_data(self, data: str) -> None:
        if self._skip == "boot":
            self.boot += data
        elif not self._skip and data.strip():
            self.words.append(" ".join(data.split()))

    def alternates(self) -> dict[str, str]:
        return {
            given["hreflang"]: link
            for tag, link, given in self.links
            if tag == "link" and given.get("rel") == "alternate" and "hreflang" in given
        }


def parsed(files: dict[str, bytes]) -> dict[str, Page]:
    return {n: Page(b.decode()) for n, b in files.items() if n.endswith(".html")}


def target(name: str, link: str) -> tuple[str, str]:
    """The file and anchor that a link means, seen from the page `name`."""
    parts = urlsplit(link)
    path = unquote(parts.path)
    steps: list[str] = []
    for step in [*PurePosixPath(name).parts[:-1], *PurePosixPath(path).parts] if path else [name]:
        if step == "..":
            steps.pop()  # IndexError: out of the copy
        elif step != ".":
            steps.append(step)
    return "/".join(steps), parts.fragment


def addresses(value: object) -> list[str]:
    """Every address of a file in the data that a script gets."""
    if isinstance(value, dict):
        return [a for each in value.values() for a in addresses(each)]
    if isinstance(value, list):
        return [a for each in value for a in addresses(each)]
    return [value] if isinstance(value, str) and re.match(r"\.{1,2}/[\w./-]+$", value) else []


@pytest.fixture(scope="module")
def plain() -> dict[str, bytes]:
    """A copy for a disk: no public address."""
    return pages(None, DATE)


@pytest.fixture(scope="module")
def public() -> dict[str, bytes]:
    """A copy that knows where it stands."""
    return pages(BASE, DATE)


@pytest.mark.parametrize("which", ["plain", "public"])
def test_every_link_and_anchor_leads_somewhere(which: str, request: pytest.FixtureRequest) -> None:
    files: dict[str, bytes] = request.getfixturevalue(which)
    site = parsed(files)
    seen = 0
    for name, each in site.items():
        for tag, link, _ in each.links:
            if link.startswith(BASE) and which == "public":
                path = link.removeprefix(BASE).lstrip("/")
                path = path + "index.html" if path == "" or path.endswith("/") else path
                assert path in files, (name, link)
                continue
            if re.match(r"https?:", link):
                assert tag == "a", f"{name} loads {link}"
                continue
            assert not link.startswith("/"), f"{name}: {link} holds on one host only"
            path, anchor = target(name, link)
            assert path in files, f"{name}: dead link {link}"
            if anchor:
                assert anchor in site[path].ids, f"{name}: no place {link}"
            seen += 1
        for link in addresses(json.loads(each.boot) if each.boot else {}):
            assert target(name, link)[0] in files, f"{name}: its scripts look for {link}"
            seen += 1
    assert seen > 500


def test_every_file_is_asked_for_by_somebody(public: dict[str, bytes]) -> None:
    site = parsed(public)
    text = "".join(
        body.decode("utf-8", "replace") for n, body in public.items() if "bokeh" not in n
    )
    for name in public:
        if name.startswith("assets/"):
            assert PurePosixPath(name).name in text, f"nobody needs {name}"
    assert {n.split("/")[0] for n in site} == {*content.LANGUAGES, "index.html", "404.html"}


def test_names_of_assets_tell_their_content_apart(plain: dict[str, bytes]) -> None:
    for name in plain:
        if name.startswith("assets/"):
            assert re.fullmatch(r"assets/[\w.-]+\.[0-9a-f]{10}\.\w+", name)


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_holds_what_the_served_page_holds(plain: dict[str, bytes], lang: str) -> None:
    """One template: the words of both are the same, but for what needs a server, or a copy."""
    built = Page(plain[f"{lang}/index.html"].decode())
    served = Page(page.article_page(lang, "auto", Served("/app")))
    extra = [w for w in built.words if w not in served.words]
    words = content.strings(lang)
    assert {w for w in served.words if w not in built.words} <= {words["class.sheet.link"]}
    assert set(extra) <= {words["page.copy"], "·", "MIT"}
    assert words["page.copy"] in built.words
    for section in content.article(lang).sections:
        assert section.id in built.ids
    ours, theirs = json.loads(built.boot), json.loads(served.boot)
    assert ours["base"] is None
    for figure_id in figures.IDS:
        assert {k: ours["figures"][figure_id][k] for k in ("schema", "strings", "data")} == {
            k: theirs["figures"][figure_id][k] for k in ("schema", "strings", "data")
        }


@pytest.mark.parametrize("lang", content.LANGUAGES)
@pytest.mark.parametrize("figure_id", figures.IDS)
def test_a_figure_has_a_page_of_its_own(
    public: dict[str, bytes], lang: str, figure_id: str
) -> None:
    name = f"{lang}/figure/{figure_id}.html"
    alone = Page(public[name].decode())
    assert figures.get(figure_id)().describe(lang) in alone.words
    assert alone.metas["og:title"].startswith(figures.get(figure_id).words(lang)["title"])
    assert alone.metas["description"] == figures.get(figure_id)().describe(lang)
    boot = json.loads(alone.boot)
    assert target(name, boot["figure"]["pageUrl"])[0] == f"{lang}/index.html"
    records = figures.get(figure_id).records()
    assert set(boot["figure"]["records"]) == set(records)
    for stem, path in records.items():
        script = public[target(name, boot["figure"]["records"][stem])[0]].decode()
        file, _, data = script.partition("]=")
        assert json.loads(data.rstrip().rstrip(";")) == json.loads(path.read_text("utf-8"))
        assert file.endswith(json.dumps(boot["figure"]["records"][stem].rsplit("/", 1)[1]))


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_numbers_stand_on_a_page_of_their_own(plain: dict[str, bytes], lang: str) -> None:
    numbers = Page(plain[f"{lang}/numbers.html"].decode())
    for number in content.numbers().values():
        assert number.anchor in numbers.ids
    inward = [link for tag, link, _ in numbers.links if tag == "a" and "index.html#" in link]
    assert len(inward) > 20


def test_no_place_is_left_unfilled(plain: dict[str, bytes]) -> None:
    for name, each in parsed(plain).items():
        for words in each.words:
            assert not re.search(r"\{\w+\}|\{\{|ui\.\w+|page\.\w+", words), (name, words)


def test_languages_name_each_other(public: dict[str, bytes], plain: dict[str, bytes]) -> None:
    site = parsed(public)
    for name, each in site.items():
        if name in ("404.html",) or name.endswith("numbers.html"):
            continue
        found = each.alternates()
        assert set(found) >= set(content.LANGUAGES), name
        for lang in content.LANGUAGES:
            path = found[lang].removeprefix(f"{BASE}/")
            other = site[path + "index.html" if path.endswith("/") else path]
            assert {x: other.alternates()[x] for x in content.LANGUAGES} == {
                x: found[x] for x in content.LANGUAGES
            }, f"{name} and {path} do not name each other"
    for each in parsed(plain).values():
        assert "og:url" not in each.metas and "og:image" not in each.metas


def test_cards_are_pictures_of_the_size_that_readers_of_links_take(
    public: dict[str, bytes],
) -> None:
    for lang in content.LANGUAGES:
        metas = Page(public[f"{lang}/index.html"].decode()).metas
        picture = public[metas["og:image"].removeprefix(f"{BASE}/")]
        assert len(picture) <= CARD
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        size = struct.unpack(">II", picture[16:24])
        assert [str(x) for x in size] == [metas["og:image:width"], metas["og:image:height"]]
        assert size == (1200, 630)
        assert metas["twitter:card"] == "summary_large_image"


def test_sitemap_feeds_and_robots(public: dict[str, bytes], plain: dict[str, bytes]) -> None:
    sitemap = ET.fromstring(public["sitemap.xml"])
    listed = [e.text or "" for e in sitemap.iter(f"{{{feeds.SITEMAP}}}loc")]
    names = [a.removeprefix(f"{BASE}/") for a in listed]
    expected = {
        name for name in parsed(public) if name.count("/") and not name.endswith("numbers.html")
    }
    assert {n + "index.html" if n.endswith("/") else n for n in names} == expected
    assert len(names) == len(expected)
    assert {e.text for e in sitemap.iter(f"{{{feeds.SITEMAP}}}lastmod")} == {DATE}
    for lang in content.LANGUAGES:
        feed = ET.fromstring(public[f"{lang}/feed.xml"])
        name = f"{{{feeds.ATOM}}}"
        entries = feed.findall(f"{name}entry")
        assert len(entries) == 1 + len(figures.IDS)
        ids = [e.findtext(f"{name}id") for e in entries]
        assert len(set(ids)) == len(ids) and set(ids) <= set(listed)
        for each in (feed, *entries):  # what RFC 4287 requires of both
            assert all(each.findtext(f"{name}{x}") for x in ("id", "title", "updated"))
        assert feed.find(f"{name}author/{name}name") is not None
    assert f"Sitemap: {BASE}/sitemap.xml" in public["robots.txt"].decode()
    assert "Sitemap" not in plain["robots.txt"].decode()
    assert not [n for n in plain if n.endswith(".xml")]


@pytest.mark.parametrize("lang", content.LANGUAGES)
def test_the_first_view_is_small(plain: dict[str, bytes], lang: str) -> None:
    """What the HTML names; tests/browser/test_site.py counts what a browser asks for."""
    name = f"{lang}/index.html"
    first = {name} | {
        target(name, link)[0]
        for tag, link, given in Page(plain[name].decode()).links
        if tag == "script" or (tag == "link" and given.get("rel") in ("stylesheet", "icon"))
    }
    total = sum(len(gzip.compress(plain[each], 9)) for each in first)
    assert total <= FIRST_VIEW
    assert not any("bokeh" in each for each in first)


def test_the_same_tree_gives_the_same_copy(plain: dict[str, bytes]) -> None:
    assert pages(None, DATE) == plain


def test_an_earlier_copy_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    report = build(folder, base_url=f"{BASE}/")
    assert report.left_out == ()
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    on_disk = {p.relative_to(folder).as_posix(): p.stat().st_size for p in folder.rglob("*.*")}
    assert manifest["files"] == {k: v for k, v in on_disk.items() if k != MANIFEST}
    assert manifest["base_url"] == BASE

    # A file of an older version goes, a file that somebody added stays.
    stale, own = folder / "old" / "gone.js", folder / "CNAME"
    stale.parent.mkdir()
    stale.write_text("1")
    own.write_text("example.org")
    manifest["files"]["old/gone.js"] = 1
    manifest["files"]["../outside.txt"] = 1
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (tmp_path / "outside.txt").write_text("keep")
    report = build(folder)
    assert report.left_out == feeds.NEED_ADDRESS
    assert not stale.parent.exists() and own.exists() and (tmp_path / "outside.txt").exists()
    assert not (folder / "sitemap.xml").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BuildError, match="holds something else"):
        build(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(BuildError, match="is a file"):
        build(tmp_path / "thesis.txt")


@pytest.mark.parametrize("bad", ["example.org", "ftp://example.org", "https://", "https://a/?b=c"])
def test_a_public_address_must_be_one(tmp_path: Path, bad: str) -> None:
    with pytest.raises(BuildError, match="--base-url"):
        build(tmp_path / "site", base_url=bad)
    assert not (tmp_path / "site").exists()


def test_the_command_says_what_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    words = [sys.executable, "-m", "app", "build", "-o", str(folder)]

    def command() -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    run = command()
    assert run.returncode == 0, run.stderr
    assert str(folder / "index.html") in run.stdout
    assert "--base-url" in run.stdout and "sitemap.xml" in run.stdout
    (folder / MANIFEST).unlink()
    run = command()
    assert run.returncode == 1 and "holds something else" in run.stderr
