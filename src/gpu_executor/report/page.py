"""The page of a report: all sections in one HTML text, with its style and script inside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.contents import Figure, HeadFigure, LegendEntry, ReportSection, ValueTable
from gpu_executor.report.format import format_bytes, round_digits
from gpu_executor.report.sections import list_head_figures, list_sections
from gpu_executor.report.timeline import list_spans, list_stage_entries, name_tracks
from gpu_executor.report.verdict import VerdictSentence, list_verdict

WIDE, NARROW = 760, 328
"""Widths of a chart in CSS pixels, for desktops and paper and for phones."""


def make_page(run: BenchmarkRun) -> str:
    """The HTML of a report."""
    assets = files("gpu_executor.report") / "assets"
    sections = list_sections(run)
    device, environment = run.device, run.environment
    title = f"gpu-executor on {device.get('name', 'a device')}"
    return _fill(
        (assets / "page.html").read_text(encoding="utf-8"),
        {
            "title": escape(title),
            "summary": escape(_summarize(run)),
            "style": "".join(
                (assets / name).read_text(encoding="utf-8") for name in ("chart.css", "style.css")
            ),
            "script": (assets / "script.js").read_text(encoding="utf-8"),
            "links": "".join(
                f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in sections
            ),
            "verdict": "".join(map(_write_verdict_sentence, list_verdict(run))),
            "head": "".join(map(_write_head_figure, list_head_figures(run))),
            "sections": "".join(map(_write_section, sections)),
            "targets": _write_targets(run),
            "environment": _write_environment(environment, run),
        },
    )


def _write_verdict_sentence(sentence: VerdictSentence) -> str:
    packages = "".join(f"<li>{escape(each)}</li>" for each in sentence.packages)
    below = f"<ul>{packages}</ul>" if packages else ""
    return f"<li>{escape(sentence.text)}{below}</li>"


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replace `{{ name }}` by the values, each once; the values are not searched."""
    parts = []
    for index, part in enumerate(template.split("{{ ")):
        if index == 0:
            parts.append(part)
            continue
        name, _, rest = part.partition(" }}")
        parts += [values[name], rest]
    return "".join(parts)


def _summarize(run: BenchmarkRun) -> str:
    environment, machine = run.environment, run.environment["machine"]
    driver = " ".join(
        str(run.device[name]) for name in ("driver", "driver_version") if run.device.get(name)
    )
    words = [
        f"{driver}." if driver else "",
        f"Host: {machine['processor']}, {machine['cores']} cores"
        + (f", {format_bytes(machine['memory_bytes'])}." if machine["memory_bytes"] else "."),
        f"Measured on {environment['date'].replace('T', ' at ')}.",
        f"Version {environment['version']}"
        + (f", commit {environment['commit']}." if environment["commit"] else "."),
        "A quick run: few sizes and short times." if run.quick else "",
    ]
    return " ".join(word for word in words if word)


def _write_head_figure(figure: HeadFigure) -> str:
    return (
        f'<li><span class="value">{escape(figure.value)}</span>'
        f'<span class="what">{escape(figure.what)}</span>'
        f'<span class="compared">{escape(figure.compared)}</span></li>'
    )


def _write_section(section: ReportSection) -> str:
    parts = [
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">'
        f'<h2 id="{section.name}-title">{escape(section.title)}</h2>'
    ]
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.missing:
        parts.append(f'<p class="missing">{escape(section.missing)}</p>')
    if section.timelines:
        parts.append(_write_timelines(section.timelines))
    for half, figures in groupby(section.figures, lambda figure: figure.half):
        written = "".join(map(_write_figure, figures))
        parts.append(f'<div class="halves">{written}</div>' if half else written)
    return "".join([*parts, "</section>"])


def _write_figure(figure: Figure) -> str:
    label = f"{figure.title}. The values are in the table below."
    charts = f'<div class="chart narrow">{figure.draw(NARROW, label)}</div>'
    if not figure.half:
        charts = f'<div class="chart wide">{figure.draw(WIDE, label)}</div>{charts}'
    return (
        f'<figure id="{figure.name}" aria-labelledby="{figure.name}-title">'
        f'<h3 id="{figure.name}-title">{escape(figure.title)}</h3>'
        f"{_write_legend(figure.legend)}"
        f"{charts}<figcaption>{escape(figure.caption)}</figcaption>"
        f"{_write_details(figure.title, figure.table)}</figure>"
    )


def _write_legend(entries: Sequence[LegendEntry]) -> str:
    if not entries:
        return ""
    return f'<ul class="legend">{"".join(map(_write_entry, entries))}</ul>'


def _write_entry(entry: LegendEntry) -> str:
    mark = entry.draw_mark()
    svg = f'<svg width="26" height="14" viewBox="0 0 26 14" aria-hidden="true">{mark}</svg>'
    return f"<li>{svg}{escape(entry.name)}</li>"


def _write_details(title: str, table: ValueTable) -> str:
    return (
        f"<details><summary>Values of: {escape(title)}</summary>"
        f"{write_table(table, title)}</details>"
    )


def write_table(table: ValueTable, caption: str) -> str:
    """A table that scrolls sideways where it does not fit."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        "<tr>"
        + f'<th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _write_timelines(timelines: Sequence[Mapping[str, Any]]) -> str:
    """The element that the script draws in, its data, and the same spans as a table."""
    data = [dict(each) | {"spans": name_tracks(each["spans"])} for each in timelines]
    text = json.dumps(data).replace("<", "\\u003c")
    buttons = "".join(
        f'<button type="button" data-action="{action}" aria-label="{label}">{text_}</button>'
        for action, label, text_ in (
            ("in", "Zoom in", "+"),
            ("out", "Zoom out", "−"),  # noqa: RUF001
            ("left", "Earlier", "←"),
            ("right", "Later", "→"),
            ("reset", "Show all", "All"),
        )
    )
    return (
        '<figure id="timeline" aria-labelledby="timeline-title">'
        '<h3 id="timeline-title">Stages of a batch, sequential and pipelined</h3>'
        f"{_write_legend(list_stage_entries())}"
        f'<div class="controls" role="group" aria-label="Timeline">{buttons}'
        '<span class="range" role="status"></span></div>'
        '<div class="timeline" tabindex="0" role="application" '
        'aria-label="Timeline. Arrow keys move it, plus and minus zoom, 0 shows all." '
        'aria-describedby="timeline-help"></div>'
        '<noscript><p class="missing">The timeline needs JavaScript; the table below has its '
        "values.</p></noscript>"
        '<p id="timeline-help" class="help">Drag to move, or use the arrow keys. Zoom with the '
        "buttons, with + and -, with Ctrl and the wheel, or with two fingers; 0 shows all. Point "
        "at a stage to see its job on all queues and threads.</p>"
        f"{_write_details('stages of the batches', list_spans(data))}"
        f'<script type="application/json" class="timeline-data">{text}</script></figure>'
    )


def _write_targets(run: BenchmarkRun) -> str:
    rows = list(_list_targets(run))
    if not rows:
        return '<p class="missing">The benchmarks have no targets for this device.</p>'
    return write_table(ValueTable(["what", "measured", "target", "met"], rows), "Targets")


def _list_targets(run: BenchmarkRun) -> Iterator[list[str]]:
    for name, result in run.benchmarks.items():
        for each in result.tables.get("aims") or ():
            bound = "at most" if each["at_most"] else "at least"
            yield [
                f"{name}: {each['what']}",
                f"{round_digits(each['measured'])} {each['unit']}",
                f"{bound} {each['aim']:g} {each['unit']}",
                "yes" if each["met"] else "no",
            ]


def _write_environment(environment: Mapping[str, Any], run: BenchmarkRun) -> str:
    machine = environment["machine"]
    device = run.device
    rows = [
        ["device", str(device.get("name"))],
        ["driver", f"{device.get('driver')} {device.get('driver_version')}"],
        ["API", f"Vulkan {device.get('api_version')}"],
        ["system", machine["system"]],
        ["processor", f"{machine['processor']}, {machine['cores']} cores"],
        ["memory", format_bytes(machine["memory_bytes"]) if machine["memory_bytes"] else "unknown"],
        ["Python", machine["python"]],
        ["packages", ", ".join(f"{name} {value}" for name, value in machine["packages"].items())],
        ["gpu-executor", f"{environment['version']}, commit {environment['commit'] or 'unknown'}"],
        ["date", environment["date"]],
        ["quick", "yes" if run.quick else "no"],
        *([f"setting {name}", str(value)] for name, value in environment["settings"].items()),
    ]
    states = [
        [
            name,
            result.state,
            "" if result.seconds is None else f"{result.seconds:.0f} s",
            f"{sum(len(series.samples) for series in result.series):,}",
            result.reason or "",
        ]
        for name, result in run.benchmarks.items()
    ]
    return write_table(ValueTable(["what", "value"], rows), "Environment") + write_table(
        ValueTable(["benchmark", "state", "took", "samples", "reason"], states), "Benchmarks"
    )
