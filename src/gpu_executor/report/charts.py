"""Charts as SVG: lines, bars, stacked bars, heat maps.

A chart is drawn for a given width in CSS pixels and is not scaled, so its text keeps its size.
Colors are CSS classes of the page (`s0` to `s6`), which has light and dark values for them. Series
differ in their markers and dashes too, not only in color.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

MARKERS = ("circle", "square", "triangle", "diamond", "circle", "square", "triangle")
CHARACTER, BOLD_CHARACTER = 6.6, 7.3
"""The width of an average character of the labels, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 10, 44
PLOT_HEIGHT = 260
BAR, GAP = 18, 14
LABEL_HEIGHT = 18
AXIS_HEIGHT = 12

Format = Callable[[float], str]
Dash = Literal["solid", "dashed", "dotted"]


@dataclass(frozen=True, slots=True)
class DataPoint:
    """A point of a line; `low` and `high` are the quartiles, if the figure has samples."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A named series of points. Without `joined` only the markers are drawn."""

    name: str
    points: Sequence[DataPoint]
    style: int
    dash: Dash = "solid"
    joined: bool = True
    markers: bool = True


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """A logarithmic axis of lines: what it shows, and how its values are written."""

    label: str
    format: Format
    ticks: Sequence[float] | None = None
    """Where the ticks are; None: at round values."""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A bar of a group."""

    name: str
    value: float
    style: int


@dataclass(frozen=True, slots=True)
class BarGroup:
    """Bars that belong together, below their label."""

    label: str
    bars: Sequence[ChartBar]
    note: str = ""
    """Text behind the label."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Values by row and column; None where nothing was measured."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    title: str = ""


@dataclass(slots=True)
class Drawing:
    """The elements of an SVG, drawn one over the other."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def add(self, name: str, text: str = "", title: str = "", **attributes: str | float) -> None:
        """Add an element. `_` in the name of an attribute stands for `-`, as in `text_anchor`."""
        given = " ".join(
            f'{key.rstrip("_").replace("_", "-")}="{_format_attribute(value)}"'
            for key, value in attributes.items()
        )
        inner = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
        self.parts.append(f"<{name} {given}>{inner}</{name}>" if inner else f"<{name} {given}/>")

    def write(self, label: str) -> str:
        """The SVG, with a label for readers that do not see it."""
        return (
            f'<svg role="img" aria-label="{escape(label)}" width="{self.width:g}" '
            f'height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}">'
            + "".join(self.parts)
            + "</svg>"
        )


def _format_attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


class _Scale:
    """Maps the values of an axis to pixels, with a little room at both ends."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        low, high = min(values), max(values)
        room = max((math.log10(high) - math.log10(low)) * 0.06, 0.08)
        self.low, self.high = low * 10**-room, high * 10**room
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        low, high = math.log10(self.low), math.log10(self.high)
        share = (math.log10(value) - low) / (high - low)
        return self._begin + share * (self._end - self._begin)

    def list_ticks(self, most: int) -> list[float]:
        """At most so many round values, spread evenly."""
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        decades = [10.0**exponent for exponent in range(first, last + 1)]
        if len(decades) >= 3 or len(decades) >= most:
            return decades[:: max(1, -(-len(decades) // most))]
        finer = [
            step * 10.0**exponent for exponent in range(first - 1, last + 1) for step in (1, 2, 5)
        ]
        inside = [value for value in finer if self.low <= value <= self.high]
        if len(inside) < 3:
            return list_linear_ticks(self.low, self.high, most)
        return inside[:: max(1, -(-len(inside) // most))]


def list_linear_ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round values from `low` to `high`."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step *= next(each for each in (1, 2, 5, 10, 20) if (high - low) / (each * step) <= most)
    first = math.ceil(low / step)
    return [index * step for index in range(first, math.floor(high / step) + 1)]


def draw_lines(
    lines: Sequence[ChartLine], x_axis: ChartAxis, y_axis: ChartAxis, width: int, label: str
) -> str:
    """Draw lines over two axes, with the quartiles of each point as a vertical stroke."""
    drawing = Drawing(width, TOP + PLOT_HEIGHT + BOTTOM)
    points = [point for line in lines for point in line.points]
    x = _Scale([point.x for point in points], LEFT, width - RIGHT)
    y = _Scale([point.y for point in points], TOP + PLOT_HEIGHT, TOP)
    _draw_axes(drawing, x_axis, y_axis, x, y)
    for line in lines:
        _draw_line(drawing, line, x_axis, y_axis, x, y)
    return drawing.write(label)


def _draw_axes(
    drawing: Drawing, x_axis: ChartAxis, y_axis: ChartAxis, x: _Scale, y: _Scale
) -> None:
    bottom, right = TOP + PLOT_HEIGHT, drawing.width - RIGHT
    for value in y.list_ticks(7):
        at = y(value)
        drawing.add("line", x1=LEFT, x2=right, y1=at, y2=at, class_="grid")
        drawing.add(
            "text", y_axis.format(value), x=LEFT - 6, y=at + 4, text_anchor="end", class_="tick"
        )
    last = -math.inf
    for value in x_axis.ticks or x.list_ticks(8):
        at, text = x(value), x_axis.format(value)
        drawing.add("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis")
        half = len(text) * CHARACTER / 2
        if at - half < last + 6:
            continue  # labels do not overlap
        middle = min(at, drawing.width - half)
        last = middle + half
        drawing.add("text", text, x=middle, y=bottom + 17, text_anchor="middle", class_="tick")
    drawing.add("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis")
    middle = (LEFT + right) / 2
    label = x_axis.label
    drawing.add("text", label, x=middle, y=bottom + 36, text_anchor="middle", class_="tick")


def _draw_line(
    drawing: Drawing,
    line: ChartLine,
    x_axis: ChartAxis,
    y_axis: ChartAxis,
    x: _Scale,
    y: _Scale,
) -> None:
    if line.joined and len(line.points) > 1:
        path = " ".join(f"{x(point.x):.1f},{y(point.y):.1f}" for point in line.points)
        drawing.add("polyline", points=path, class_=f"line {line.dash} s{line.style}")
    for point in line.points if line.markers else ():
        at = x(point.x), y(point.y)
        if point.low is not None and point.high is not None:
            low, high = (y(min(max(value, y.low), y.high)) for value in (point.low, point.high))
            drawing.add("line", x1=at[0], x2=at[0], y1=low, y2=high, class_=f"spread s{line.style}")
        title = f"{line.name}, {x_axis.format(point.x)}: {y_axis.format(point.y)}"
        _draw_marker(drawing, line, at, title)


def _draw_marker(drawing: Drawing, line: ChartLine, at: tuple[float, float], title: str) -> None:
    hollow = "" if line.dash == "solid" else " hollow"
    shape = draw_marker_path(MARKERS[line.style], *at)
    drawing.add("path", "", title, d=shape, class_=f"marker{hollow} s{line.style}")


def draw_marker_path(kind: str, x: float, y: float) -> str:
    """The outline of a marker."""
    r = 4.0
    if kind == "circle":
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    if kind == "square":
        return f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z"
    if kind == "triangle":
        return f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {2 * r}h{-2 * r - 2}z"
    return f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}z"


def draw_bars(
    groups: Sequence[BarGroup],
    format_value: Format,
    width: int,
    label: str,
    *,
    limit: tuple[str, float] | None = None,
    own_scales: bool = False,
) -> str:
    """Draw groups of horizontal bars, whose lengths are proportional to their values.

    All groups share one axis, which is drawn below them, unless `own_scales` gives each group its
    longest bar over the whole width: for groups of different work. `limit` is a vertical line with
    a name.
    """
    heads = [_head_height(group, width) for group in groups]
    rows = sum(heads) + sum(len(group.bars) * (BAR + 3) + GAP for group in groups)
    top = TOP + (LABEL_HEIGHT if limit else 0)
    drawing = Drawing(width, top + rows + (0 if own_scales else AXIS_HEIGHT))
    values = [bar.value for group in groups for bar in group.bars]
    values += [limit[1]] if limit else []
    room = max(len(format_value(value)) for value in values) * CHARACTER + 8
    whole, most = width - RIGHT - room, max(values) or 1.0
    if not own_scales:
        _draw_bar_axis(drawing, format_value, most, whole, top, top + rows - GAP)
    y: float = top
    for group, head in zip(groups, heads, strict=True):
        below = ' x="0" dy="18"' if head > LABEL_HEIGHT else ' dx="10"'
        note = f'<tspan{below} class="tick">{escape(group.note)}</tspan>' if group.note else ""
        label_ = f'<tspan class="label">{escape(group.label)}</tspan>'
        drawing.parts.append(f'<text x="0" y="{y + 13:g}">{label_}{note}</text>')
        y += head
        longest = (max(bar.value for bar in group.bars) or 1.0) if own_scales else most
        for bar in group.bars:
            length, text = bar.value / longest * whole, format_value(bar.value)
            title = f"{group.label}, {bar.name}: {text}"
            drawing.add(
                "rect", "", title, x=0, y=y, width=length, height=BAR, class_=f"bar s{bar.style}"
            )
            # Behind the bar, the text must not be under the line of the limit.
            at = limit[1] / most * whole if limit else -1.0
            if length < at < length + 8 + len(text) * CHARACTER < at + length:
                drawing.add(
                    "text", text, x=length - 5, y=y + BAR - 5, text_anchor="end", class_="on-bar"
                )
            else:
                drawing.add("text", text, x=length + 5, y=y + BAR - 5, class_="tick")
            y += BAR + 3
        y += GAP
    if limit:
        at = limit[1] / most * whole
        drawing.add("line", x1=at, x2=at, y1=top - 4, y2=y - GAP, class_="limit")
        text = f"{limit[0]}: {format_value(limit[1])}"
        anchor = "end" if at > width / 2 else "start"
        drawing.add("text", text, x=at, y=top - 8, text_anchor=anchor, class_="tick")
    return drawing.write(label)


def _head_height(group: BarGroup, width: int) -> int:
    """The height of a group's label, with its note below it if both do not fit into one line."""
    fits = (len(group.label) + len(group.note)) * BOLD_CHARACTER + 10 <= width
    return LABEL_HEIGHT if fits or not group.note else 2 * LABEL_HEIGHT


def _draw_bar_axis(
    drawing: Drawing, format_value: Format, most: float, whole: float, top: float, bottom: float
) -> None:
    """The axis of bars from 0 to the longest, with a grid line at round values."""
    drawing.add("line", x1=0, x2=whole, y1=bottom, y2=bottom, class_="axis")
    last = -math.inf
    for value in list_linear_ticks(0, most, 5):
        at, text = value / most * whole, format_value(value) if value else "0"
        drawing.add("line", x1=at, x2=at, y1=top, y2=bottom + 4, class_="grid")
        half = len(text) * CHARACTER / 2
        middle = min(max(at, half), drawing.width - half)
        if middle - half < last + 6:
            continue  # labels do not overlap
        last = middle + half
        drawing.add("text", text, x=middle, y=bottom + 17, text_anchor="middle", class_="tick")


def draw_stacks(
    rows: Sequence[tuple[str, dict[str, float], str]],
    styles: dict[str, int],
    width: int,
    label: str,
    format_value: Format,
) -> str:
    """Draw horizontal bars of full width, divided by the shares of the parts.

    A row has a label, the values of its parts, and the text of its total.
    """
    drawing = Drawing(width, TOP + len(rows) * (LABEL_HEIGHT + BAR + GAP))
    y = float(TOP)
    for name, parts, total in rows:
        drawing.add("text", name, x=0, y=y + 13, class_="label")
        drawing.add("text", total, x=width, y=y + 13, text_anchor="end", class_="tick")
        y += LABEL_HEIGHT
        whole, x = sum(parts.values()) or 1.0, 0.0
        for part, value in parts.items():
            length = value / whole * width
            if length <= 0:
                continue
            title = f"{name}, {part}: {format_value(value)} ({value / whole:.0%})"
            style = f"bar s{styles[part]}"
            drawing.add("rect", "", title, x=x, y=y, width=length, height=BAR, class_=style)
            text = f"{part} {value / whole:.0%}"
            if len(text) * CHARACTER + 8 < length:
                drawing.add("text", text, x=x + 4, y=y + BAR - 5, class_="on-bar")
            x += length
        y += BAR + GAP
    return drawing.write(label)


def draw_heat_maps(maps: Sequence[HeatMap], width: int, label: str) -> str:
    """Draw tables of ratios side by side, or one below the other if they do not fit.

    Cells above 1 have one color and cells below 1 another, stronger the further they are from 1.
    """
    cell_height, row_label, space = 30, 62, 28
    beside = width >= 600
    each = (width - space * (len(maps) - 1)) / len(maps) if beside else float(width)
    heights = [TOP + 2 * LABEL_HEIGHT + len(each.rows) * cell_height + GAP for each in maps]
    drawing = Drawing(width, max(heights) if beside else sum(heights))
    left = top = 0.0
    for heat_map, height in zip(maps, heights, strict=True):
        drawing.add("text", heat_map.title, x=left, y=top + 14, class_="label")
        cell = (each - row_label) / len(heat_map.columns)
        y = top + TOP + LABEL_HEIGHT
        for index, column in enumerate(heat_map.columns):
            at = left + row_label + (index + 0.5) * cell
            drawing.add("text", column, x=at, y=y + 12, text_anchor="middle", class_="tick")
        y += LABEL_HEIGHT
        for name, values in zip(heat_map.rows, heat_map.values, strict=True):
            drawing.add(
                "text", name, x=left + row_label - 6, y=y + 19, text_anchor="end", class_="tick"
            )
            for index, value in enumerate(values):
                _draw_cell(
                    drawing, value, left + row_label + index * cell, y, cell - 2, cell_height - 2
                )
            y += cell_height
        if beside:
            left += each + space
        else:
            top += height
    return drawing.write(label)


def _draw_cell(
    drawing: Drawing, value: float | None, x: float, y: float, width: float, height: float
) -> None:
    if value is None:
        drawing.add("rect", x=x, y=y, width=width, height=height, class_="cell empty")
        return
    strength = min(abs(math.log2(value)), 1.2) / 1.2
    kind = "above" if value >= 1 else "below"
    drawing.add(
        "rect",
        x=x,
        y=y,
        width=width,
        height=height,
        class_=f"cell {kind}",
        fill_opacity=0.06 + 0.42 * strength,
    )
    drawing.add(
        "text",
        f"{value:.2f}",
        x=x + width / 2,
        y=y + height / 2 + 4,
        text_anchor="middle",
        class_="cell-text",
    )
