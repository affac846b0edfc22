"""Pictures: figures of a report as SVG files of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.charts import CHARACTER
from gpu_executor.report.contents import Figure, LegendEntry
from gpu_executor.report.sections import list_sections
from gpu_executor.report.timeline import make_timeline_figure

WIDTH, MARGIN = 760, 20
TITLE, LEGEND_LINE, CAPTION_LINE = 30, 22, 17
CAPTION_WIDTH = int(WIDTH / 6.2)
"""The characters of a line."""


def draw_picture(figure: Figure, measured_on: str) -> str:
    """A figure as an SVG with its title, legend and caption. The picture has a background of its
    own, and follows the reader's light or dark scheme. `measured_on` names the device."""
    chart = figure.draw(WIDTH, figure.title)
    height = float(chart.partition('height="')[2].partition('"')[0])
    legend, below_legend = _draw_legend(figure.legend, MARGIN + TITLE)
    below_chart = below_legend + height + 10
    texts = (figure.caption, f"Measured on {measured_on}.")
    lines = [line for text in texts for line in textwrap.wrap(text, CAPTION_WIDTH)]
    total = below_chart + len(lines) * CAPTION_LINE + MARGIN
    caption = "".join(
        f'<text x="{MARGIN}" y="{below_chart + 12 + index * CAPTION_LINE:g}" class="tick">'
        f"{escape(line)}</text>"
        for index, line in enumerate(lines)
    )
    style = (files("gpu_executor.report") / "assets" / "chart.css").read_text(encoding="utf-8")
    placed = chart.replace("<svg ", f'<svg x="{MARGIN}" y="{below_legend:g}" ', 1)
    whole = WIDTH + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{total:g}" '
        f'viewBox="0 0 {whole} {total:g}" role="img" aria-label="{escape(figure.title)}">\n'
        f"<style>\n{style}</style>\n"
        f'<rect x="0.5" y="0.5" width="{whole - 1}" height="{total - 1:g}" rx="8" '
        'class="frame"/>\n'
        f'<text x="{MARGIN}" y="{MARGIN + 12}" class="title">{escape(figure.title)}</text>\n'
        f"{legend}\n{placed}\n{caption}\n</svg>\n"
    )


def _draw_legend(entries: Sequence[LegendEntry], top: float) -> tuple[str, float]:
    """The marks and names of a legend in lines, and where the next part of the picture begins."""
    parts, x, y = [], float(MARGIN), top
    for entry in entries:
        needed = 32 + len(entry.name) * CHARACTER + 22
        if x > MARGIN and x + needed > MARGIN + WIDTH:
            x, y = float(MARGIN), y + LEGEND_LINE
        parts.append(
            f'<g transform="translate({x:g} {y - 9:g})">{entry.draw_mark()}'
            f'<text x="32" y="11">{escape(entry.name)}</text></g>'
        )
        x += needed
    return "".join(parts), y + (LEGEND_LINE if entries else 0)


def draw_pictures(run: BenchmarkRun) -> Iterator[tuple[str, str]]:
    """Yield the name and the picture of every figure of a report, the timeline among them."""
    measured_on = f"{run.device.get('name', 'a device')}, {run.environment['date'][:10]}"
    for section in list_sections(run):
        figures = list(section.figures)
        if section.timelines:
            title = "Stages of a batch, sequential and pipelined"
            figures.append(make_timeline_figure("timeline", title, section.text, section.timelines))
        for figure in figures:
            yield figure.name, draw_picture(figure, measured_on)
