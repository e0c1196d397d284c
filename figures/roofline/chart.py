"""The log-log chart of the roofline, as a Bokeh `json_item` that the view moves."""

from __future__ import annotations

from typing import Any

from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, FixedTicker, Label, Range1d, Span
from bokeh.plotting import figure

from figures.roofline.model import K_MAX
from figures.text import duration, num

#: Borders of the plot in pixels: the view lays its draggable marker over the frame they leave.
BORDER = {"left": 88, "right": 18, "top": 12, "bottom": 56}
#: The x axis ends a little before one token and after the longest prompt.
X_RANGE = (0.8, K_MAX * 1.25)
HEIGHT = 360


def item(words: dict[str, str]) -> dict[str, Any]:
    """Build the chart. Sources and models carry names; colours are tags that the page resolves."""
    curves = ColumnDataSource({"k": [], "read": [], "compute": [], "time": []}, name="curves")
    marks = ColumnDataSource(
        {"k": [], "time": [], "text": [], "side": [], "shift": []}, name="marks"
    )
    plot = figure(
        name="plot",
        x_axis_type="log",
        y_axis_type="log",
        x_range=Range1d(*X_RANGE),
        y_range=Range1d(1e-4, 10, name="y_range"),
        height=HEIGHT,
        sizing_mode="stretch_width",
        tools="",
        toolbar_location=None,
        min_border_left=BORDER["left"],
        min_border_right=BORDER["right"],
        min_border_top=BORDER["top"],
        min_border_bottom=BORDER["bottom"],
        outline_line_color=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        x_axis_label=words["axis.k"],
        y_axis_label=words["axis.time"],
    )
    font = "system-ui, sans-serif"
    powers = [2**i for i in range(14)]
    seconds = [10.0**e for e in range(-10, 7)]
    plot.xaxis.ticker = FixedTicker(ticks=powers[::2], minor_ticks=powers, name="k_ticks")
    plot.xaxis.major_label_overrides = {k: num(k, 5) for k in powers}
    plot.yaxis.ticker = FixedTicker(ticks=seconds)
    plot.yaxis.major_label_overrides = {t: duration(t) for t in seconds}
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = axis.major_label_text_font = font
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.tags = [
            "axis_label_text_color=--sd-ink-2",
            "major_label_text_color=--sd-ink-2",
            "axis_line_color=--sd-line-strong",
            "major_tick_line_color=--sd-line-strong",
            "minor_tick_line_color=--sd-line",
        ]
    for grid in plot.grid:
        grid.tags = ["grid_line_color=--sd-line"]
        grid.grid_line_alpha = 0.6

    def line(y: str, colour: str, **style: Any) -> None:
        renderer = plot.line("k", y, source=curves, line_color="#888888", **style)
        renderer.glyph.tags = [f"line_color={colour}"]
        renderer.nonselection_glyph = None

    line("read", "--sd-memory", line_width=2, line_dash=[6, 4])
    line("compute", "--sd-compute", line_width=2, line_dash=[2, 3])
    line("time", "--sd-ink", line_width=3)
    span = Span(location=295, dimension="height", line_dash=[3, 4], line_width=1.5, name="knee")
    span.tags = ["line_color=--sd-ink-3"]
    plot.add_layout(span)
    for name, colour in (("read", "memory-ink"), ("compute", "compute-ink"), ("knee", "ink-2")):
        label = Label(
            x=1,
            y=1,
            text="",
            name=f"label_{name}",
            text_font_size="13px",
            text_font=font,
            x_offset=6,
            y_offset=4,
        )
        label.tags = [f"text_color=--sd-{colour}"]
        plot.add_layout(label)
    points = ColumnDataSource({"k": [], "median": [], "low": [], "high": []}, name="points")
    bars = plot.segment("k", "low", "k", "high", source=points, line_width=2, line_alpha=0.6)
    bars.glyph.tags = ["line_color=--sd-supplied"]
    measured = plot.scatter("k", "median", source=points, size=8, marker="circle", line_width=0)
    measured.glyph.tags = ["fill_color=--sd-supplied", "line_color=--sd-supplied"]
    dots = plot.scatter(
        "k", "time", source=marks, size=11, marker="diamond", line_width=1.5, fill_color="#888888"
    )
    dots.glyph.tags = ["fill_color=--sd-raised", "line_color=--sd-ink"]
    texts = plot.text(
        "k",
        "time",
        text="text",
        source=marks,
        y_offset=-10,
        x_offset="shift",
        text_align="side",
        text_font_size="12px",
        text_font={"value": font},
    )
    texts.glyph.tags = ["text_color=--sd-ink-2"]
    result: dict[str, Any] = json_item(plot)
    return result
