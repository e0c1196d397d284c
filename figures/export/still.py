"""A still of a figure in a given state: SVG for print, PNG for a feed."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from typing import Any

from figures.export.browser import BrowserError, dump
from figures.export.standalone import ExportError, standalone

#: Taller than any figure: charts wait until they are near the window.
WINDOW = 3200
MADE = re.compile(r'<template id="still" data-kind="(svg|png|error)">(.*?)</template>', re.DOTALL)


def still(
    figure_id: str,
    *,
    format: str = "svg",
    lang: str = "en",
    theme: str = "light",
    state: Mapping[str, Any] | None = None,
    width: int = 760,
    scale: float = 2.0,
) -> bytes:
    """Return a picture of a figure as it would be printed: no controls, its words and its drawing.

    The system's browser draws it (Chromium, Chrome or Edge; no display is needed). The SVG is
    shapes and text with their colours and places written out: no style sheet, no script, no HTML.

    Args:
        figure_id: which figure.
        format: "svg" or "png".
        lang: language of its words.
        theme: "light" or "dark"; "auto" is light, as on paper.
        state: values of the figure's parameters.
        width: of the figure in CSS pixels, 320 to 2000.
        scale: pixels of a PNG for one CSS pixel, up to 4.

    Raises:
        ExportError: an option or a parameter is unknown, or a value is out of its bounds.
        BrowserError: there is no browser, or it failed.
    """
    if format not in ("svg", "png"):
        raise ExportError(f"format {format!r} is none of svg, png")
    if not 320 <= width <= 2000:
        raise ExportError(f"width {width} is out of bounds: from 320 to 2000")
    if not 0.25 <= scale <= 4:
        raise ExportError(f"scale {scale} is out of bounds: from 0.25 to 4")
    page = standalone(
        figure_id,
        lang=lang,
        theme="light" if theme == "auto" else theme,
        state=state,
        controls="none",
        still={"format": format, "scale": scale, "width": width},
    )
    made = MADE.search(dump(page, width=width, height=WINDOW))
    if made is None:
        raise BrowserError(f"{figure_id} was not drawn in time; try again when the machine is free")
    kind, text = made[1], html.unescape(made[2])
    if kind == "error":
        raise BrowserError(f"{figure_id} could not be drawn: {text}")
    return base64.b64decode(text) if kind == "png" else text.encode()
