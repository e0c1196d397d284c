"""Headers that tell a browser what a page of ours may do: as little as it needs.

No inline script runs but the import map, which is named by its hash; nothing is evaluated from
text; everything comes from this server. Styles may be inline where there are charts, whose BokehJS
puts its style sheets into the page; a figure without one needs no such leave.
"""

from __future__ import annotations

import re

from figures.export.standalone import policy_hash

#: Of every answer. `no-referrer`: an address may carry a reader's prompt.
HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
)
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>", re.S)
_DATA = 'type="application/json"'


def of_page(
    html: str, *, framed_by: str, inline_styles: bool = True
) -> tuple[tuple[str, str], ...]:
    """Return the headers of a page: its scripts are our files and those inline ones it has.

    Args:
        html: the page; JSON in a script element is data and needs no leave.
        framed_by: who may show it in a frame ("'self'", "*").
        inline_styles: whether style elements and attributes count.
    """
    inline = [
        match["text"]
        for match in _SCRIPT.finditer(html)
        if "src=" not in match["attributes"] and _DATA not in match["attributes"]
    ]
    hashes = "".join(f" {policy_hash(text)}" for text in inline)
    unsafe = " 'unsafe-inline'" if inline_styles else ""
    rules = (
        "default-src 'none'",
        f"script-src 'self'{hashes}",
        f"style-src 'self'{unsafe}",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        # The lossless figure draws its samples in a worker that it makes of our own module.
        "worker-src 'self' blob:",
        # The preview of a figure to embed, and teacher mode, which magnifies the article.
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        f"frame-ancestors {framed_by}",
    )
    return (("Content-Security-Policy", "; ".join(rules)),)
