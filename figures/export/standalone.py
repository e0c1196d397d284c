"""One figure as one HTML file that asks nothing of anybody: for a blog, a disk, an archive."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import bokeh

import content
import figures
from figures.export.bundle import ROOT, bundle, view
from figures.export.contract import bounds, parameters
from figures.figure import Figure, clamp

THEMES = ("auto", "light", "dark")
#: What stands around the stage: all of it, without guess, puzzle and links, or nothing.
CONTROLS = ("all", "few", "none")
START = Path(__file__).parent / "start.js"
STILL = Path(__file__).parent / "still.js"
JOINED = Path(__file__).parent / "joined.js"
WEB = ROOT / "figures" / "web"
FRAMES = ROOT / "app" / "static" / "frames.js"
BOKEH = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"


class ExportError(ValueError):
    """A figure cannot be exported as asked; the message says what can be."""


def standalone(
    figure_id: str,
    *,
    lang: str = "en",
    theme: str = "auto",
    state: Mapping[str, Any] | None = None,
    controls: str = "all",
    assets: str | None = None,
    records: tuple[str, ...] | None = None,
    still: Mapping[str, Any] | None = None,
    joined: bool = False,
) -> str:
    """Return the page of one figure as text.

    Args:
        figure_id: which figure.
        lang: language of its words.
        theme: "light", "dark", or "auto": as the reader's system, or as the page around a frame.
        state: values of the figure's parameters; what "reset" goes back to.
        controls: "all"; "few", without guess, puzzle and links; "none", the stage alone.
        assets: address of the folder with shared library files (`library_files`), as seen from the
            page; None puts them into the page.
        records: the recorded data that goes along, by name; None takes all.
        still: for `figures.export.still`: the page draws itself as a picture, in this format and
            scale, its charts as SVG.
        joined: for `figures.notebook`: the page is the text of a frame (`srcdoc`) and joins the
            program behind the page around it. BokehJS is compressed: notebooks limit their output.

    Raises:
        ExportError: an option or a parameter is unknown, or a value is out of its bounds.
    """
    figure = _figure(figure_id)
    _one_of("language", lang, content.LANGUAGES)
    _one_of("theme", theme, THEMES)
    _one_of("controls", controls, CONTROLS)
    # A still's clock runs ahead of what other threads do, and unpacking is their work.
    pack = _packed if still is None else _as_is
    spec = _spec(figure, lang, state or {}, records, pack)
    scripts = []
    sources: list[str] = []  # of scripts, besides those in the page
    if spec.get("chart"):
        if still is not None:
            _as_svg(spec["chart"]["item"])
        if joined:
            spec["chart"]["library"] = _packed(BOKEH.read_text(encoding="utf-8"))
            sources = ["blob:"]
        elif assets is None:
            scripts.append(BOKEH.read_text(encoding="utf-8"))
        else:
            spec["chart"]["library"] = f"{assets.rstrip('/')}/{library_name()}"
            sources = ["'self'", "file:"]
        spec["chart"]["item"] = pack(spec["chart"]["item"])
    start = JOINED if joined else START if still is None else STILL
    if joined:
        spec["embedUrl"] = None
    script = bundle([view(figure_id), start])
    scripts.append(script)
    words = figure.words(lang)
    boot = {
        "lang": lang,
        "strings": _said(words, script),
        "figure": spec,
        **({} if still is None else {"still": dict(still)}),
    }
    return _page(
        figure,
        lang=lang,
        theme=theme,
        controls=controls,
        boot=boot,
        scripts=scripts,
        style=style(),
        inline_styles=bool(spec.get("chart")),
        sources=sources,
    )


def _said(words: Mapping[str, str], script: str) -> dict[str, str]:
    """Return the words of the interface that a script asks for: by a whole key, or by the beginning
    of one that it completes (`ui.badge_${kind}`)."""
    beginnings = tuple(re.findall(r"`(ui\.\w+_)\$\{", script))
    return {
        key: text
        for key, text in words.items()
        if key.startswith("ui.") and (key in script or key.startswith(beginnings))
    }


def library_name() -> str:
    """Return the name of the file that holds BokehJS in an assets folder."""
    return f"bokeh-{bokeh.__version__}.min.js"


def library_files() -> dict[str, bytes]:
    """Return what pages made with `assets`, and those around them, share: name → content."""
    return {library_name(): BOKEH.read_bytes(), FRAMES.name: FRAMES.read_bytes()}


def style() -> str:
    """Return the style sheets of a figure, without comments and indentation."""
    css = "".join((WEB / name).read_text(encoding="utf-8") for name in ("tokens.css", "figure.css"))
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)).strip()


def set_state(figure: type[Figure], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figure's schema with other defaults.

    Raises:
        ExportError: the figure has no such parameter, or the value is out of its bounds.
    """
    schema = figure.schema()
    public = parameters(figure)
    for name, value in state.items():
        if name not in public:
            raise ExportError(
                f"{figure.id} has no parameter {name!r}; it has {', '.join(sorted(public))}"
            )
        kept, changed = clamp(schema[name], value)
        if changed:
            raise ExportError(f"{name}={value} is out of bounds: {bounds(schema[name])}")
        schema[name] = schema[name] | {"default": kept}
    return schema


def _figure(figure_id: str) -> type[Figure]:
    if figure_id not in figures.IDS:
        raise ExportError(f"no figure {figure_id!r}; there are {', '.join(figures.IDS)}")
    return figures.get(figure_id)


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ExportError(f"{what} {value!r} is none of {', '.join(allowed)}")


def _spec(
    figure: type[Figure],
    lang: str,
    state: Mapping[str, Any],
    records: tuple[str, ...] | None,
    pack: Callable[[Any], Any],
) -> dict[str, Any]:
    """Return the figure's description with everything inside it that it would otherwise fetch."""
    spec = figure.spec(lang, base="")
    found = figure.records()
    for name in records or ():
        _one_of(f"record of {figure.id}", name, tuple(found))
    schema = set_state(figure, state)
    if records and "recording" in schema:
        # Only what goes along can be chosen; its first is shown where the usual one stays behind.
        usual = schema["recording"]["default"]
        schema["recording"] |= {
            "choices": [name for name in schema["recording"]["choices"] if name in records],
            "default": usual if usual in records else records[0],
        }
        spec["data"] = spec["data"] | {"recordings": schema["recording"]["choices"]}
    spec |= {
        "view": None,
        "schema": schema,
        "records": {
            name: pack(json.loads(path.read_bytes()))
            for name, path in found.items()
            if records is None or name in records
        },
        # A frame of this very file: whoever has it may show it.
        "embedUrl": "",
    }
    chart = figure.chart(lang)
    return spec | ({"chart": {"item": chart}} if chart else {})


def _as_svg(item: Any) -> None:
    """Make every plot of a `json_item` draw SVG instead of a canvas."""
    if isinstance(item, dict):
        if item.get("name") == "Figure" and isinstance(item.get("attributes"), dict):
            item["attributes"]["output_backend"] = "svg"
        for value in item.values():
            _as_svg(value)
    elif isinstance(item, list):
        for value in item:
            _as_svg(value)


def _packed(value: Any) -> dict[str, str]:
    """Compress JSON for `readData`; the same input gives the same text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"gzip": base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()}


def _as_is(value: Any) -> Any:
    return value


def policy_hash(text: str) -> str:
    """Return what names an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def in_script(value: Any) -> str:
    """Return JSON that is safe inside a `<script>` element: no `</script>`, no `<!--`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _page(
    figure: type[Figure],
    *,
    lang: str,
    theme: str,
    controls: str,
    boot: Mapping[str, Any],
    scripts: list[str],
    style: str,
    inline_styles: bool,
    sources: list[str],
) -> str:
    """Write the page. Its policy lets in what it holds and nothing else.

    BokehJS writes style elements of its own, so a chart's page cannot name its styles by hash.
    """
    words = figure.words(lang)
    public = {n: e["default"] for n, e in boot["figure"]["schema"].items() if not e.get("private")}
    described = figure(**public).describe(lang)
    allowed = " ".join([*sources, *map(policy_hash, scripts)])
    styles = "'unsafe-inline'" if inline_styles else policy_hash(style)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {styles}",
            "img-src data: blob:",
            "worker-src blob:",
            # The preview of itself behind "embed".
            "frame-src 'self' file:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    attributes = f'lang="{content.tag(lang)}" data-lang="{lang}"'
    attributes += f' data-theme="{theme}"' if theme != "auto" else ""
    attributes += f' data-controls="{controls}"' if controls != "all" else ""
    title = f"{words['title']} · {content.article(lang).title}"
    library = boot["figure"].get("chart", {}).get("library")
    run = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!DOCTYPE html>
<html {attributes}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="speculative-decoding-live: figures export {figure.id}">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body class="sd-alone">
<main id="figure"><p>{html.escape(described)}</p></main>
<script type="application/json" id="boot">{in_script(boot)}</script>
{f'<script src="{html.escape(library)}"></script>' if isinstance(library, str) else ""}
{run}
</body>
</html>
"""
