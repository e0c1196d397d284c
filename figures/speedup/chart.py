"""The speed-up over m, and below it the map over m and α, as one Bokeh `json_item`."""

from __future__ import annotations

from typing import Any

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, FixedTicker, Range1d, Span
from bokeh.plotting import figure

from figures.speedup.model import M_MAX

#: Borders of both plots in pixels; `view.js` lays its markers over the frames they leave.
BORDER = {"left": 58, "right": 46, "top": 14}
BOTTOM = {"lines": 26, "map": 46}
HEIGHT = {"lines": 300, "map": 270}
#: α is cut into this many rows of cells.
ROWS = 40
FONT = "system-ui, sans-serif"


def _plot(kind: str, y_range: Range1d, words: dict[str, str]) -> Any:
    plot = figure(
        name=kind,
        x_range=Range1d(0.5, M_MAX + 0.5),
        y_range=y_range,
        height=HEIGHT[kind],
        sizing_mode="stretch_width",
        tools="",
        toolbar_location=None,
        min_border_left=BORDER["left"],
        min_border_right=BORDER["right"],
        min_border_top=BORDER["top"],
        min_border_bottom=BOTTOM[kind],
        outline_line_color=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        y_axis_label=words[f"axis.{'speedup' if kind == 'lines' else 'alpha'}"],
    )
    if kind == "map":
        plot.xaxis.axis_label = words["axis.m"]
    plot.xaxis.ticker = FixedTicker(ticks=[1, 4, 8, 12, 16, 20, 24, 28, 32])
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
        axis.tags = [
            "axis_label_text_color=--sd-ink-2",
            "major_label_text_color=--sd-ink-2",
            "axis_line_color=--sd-line-strong",
            "major_tick_line_color=--sd-line-strong",
        ]
    for grid in plot.grid:
        grid.tags = ["grid_line_color=--sd-line"]
        grid.grid_line_alpha = 0.6 if kind == "lines" else 0
    return plot


def _runs(plot: Any, name: str) -> None:
    source = ColumnDataSource({"x": [], "y": []}, name=name)
    dots = plot.scatter("x", "y", source=source, size=11, marker="diamond", line_width=1.8)
    dots.glyph.tags = ["fill_color=--sd-raised", "line_color=--sd-supplied"]


def item(words: dict[str, str]) -> dict[str, Any]:
    """Build both plots. Sources and models carry names; colours are tags that the page resolves."""
    lines = _plot("lines", Range1d(0, 5, name="speedups"), words)
    family = ColumnDataSource({"xs": [], "ys": []}, name="family")
    drawn = lines.multi_line("xs", "ys", source=family, line_width=1)
    drawn.glyph.tags = ["line_color=--sd-ink-3"]
    even = Span(location=1, dimension="width", line_dash=[5, 4], line_width=1.5)
    even.tags = ["line_color=--sd-rejected"]
    lines.add_layout(even)
    curve = ColumnDataSource({"m": [], "s": []}, name="curve")
    stroke = lines.line("m", "s", source=curve, line_width=2.5)
    stroke.glyph.tags = ["line_color=--sd-ink"]
    dots = lines.scatter("m", "s", source=curve, size=4)
    dots.glyph.tags = ["line_color=--sd-ink", "fill_color=--sd-ink"]
    _runs(lines, "runs_lines")

    area = _plot("map", Range1d(0, 1), words)
    cells = [(m, row) for row in range(ROWS) for m in range(1, M_MAX + 1)]
    source = ColumnDataSource(
        {
            "left": [m - 0.5 for m, _ in cells],
            "right": [m + 0.5 for m, _ in cells],
            "bottom": [row / ROWS for _, row in cells],
            "top": [(row + 1) / ROWS for _, row in cells],
            "fill": ["#888888"] * len(cells),
        },
        name="cells",
    )
    area.quad(
        "left",
        "right",
        "top",
        "bottom",
        source=source,
        fill_color="fill",
        line_color="fill",
        line_width=1,
    )
    contours = ColumnDataSource({"xs": [], "ys": [], "width": []}, name="contours")
    rings = area.multi_line("xs", "ys", source=contours, line_width="width")
    rings.glyph.tags = ["line_color=--sd-ink-2"]
    ridge = ColumnDataSource({"m": [], "alpha": []}, name="ridge")
    top = area.line("m", "alpha", source=ridge, line_width=1.5, line_dash=[2, 3])
    top.glyph.tags = ["line_color=--sd-ink"]
    _runs(area, "runs_map")

    result: dict[str, Any] = json_item(
        column(lines, area, sizing_mode="stretch_width", spacing=0, name="both")
    )
    return result
