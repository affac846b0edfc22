"""Timelines: the stages of a batch on the device's queues and the host's threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate, pairwise
from typing import Any

from gpu_executor.bench.batch import convert_spans
from gpu_executor.errors import GpuError
from gpu_executor.report.charts import CHARACTER, Drawing, list_linear_ticks
from gpu_executor.report.contents import Figure, LegendEntry, ValueTable
from gpu_executor.report.format import format_time
from gpu_executor.telemetry.profile import STAGES
from gpu_executor.telemetry.spans import Span

PANEL_TITLE, ROW, SPACE, AXIS = 24, 26, 14, 26
NAMES = 112
"""The width of the names of queues and threads, in pixels."""
CALLING_THREAD, EXECUTOR_THREAD = "calling thread", "executor thread"

TimelineData = Mapping[str, Any]
"""`mode` and `spans` of a timeline, as the file of results has them."""


def make_timeline(mode: str, spans: Sequence[Span]) -> TimelineData:
    """The timeline of a profile's `spans`; `mode` is its title."""
    stages = [span for span in spans if span.stage in STAGES]
    if not stages:
        raise GpuError(
            f"{mode}: the profile has no stages; profile calls of kernels on NumPy arrays"
        )
    return {"mode": mode, "spans": [asdict(each) for each in convert_spans(stages)]}


def make_timeline_figure(
    name: str, title: str, caption: str, timelines: Sequence[TimelineData]
) -> Figure:
    """A figure of timelines below each other, on one time scale."""
    data = [dict(each) | {"spans": name_tracks(each["spans"])} for each in timelines]

    def draw(width: int, label: str) -> str:
        return draw_timelines(data, width, label)

    return Figure(name, title, caption, draw, list_spans(data), list_stage_entries())


def list_stage_entries() -> list[LegendEntry]:
    return [LegendEntry(stage, style, bar=True) for style, stage in enumerate(STAGES)]


def list_spans(timelines: Iterable[TimelineData]) -> ValueTable:
    """The spans of timelines as a table."""
    rows = [
        [
            each["mode"],
            span["track"],
            str(span["chunk"] + 1),
            span["stage"],
            format_time(span["begin_us"] / 1e3),
            format_time((span["end_us"] - span["begin_us"]) / 1e3),
        ]
        for each in timelines
        for span in each["spans"]
    ]
    return ValueTable(["mode", "queue or thread", "job", "stage", "begins at", "takes"], rows)


def name_tracks(spans: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The spans with short names of their tracks: threads of executors and threads that copy are
    numbered."""
    given = [dict(span) for span in spans]
    threads = sorted({span["track"] for span in given if span["track"].startswith("host ")})
    executors = [track for track in threads if track.startswith("host gpu-executor")]
    others = [track for track in threads if track not in ("host MainThread", *executors)]
    names = {"host MainThread": CALLING_THREAD}
    names |= {track: f"{EXECUTOR_THREAD} {index}" for index, track in enumerate(executors, 1)}
    names |= {track: f"copy thread {index}" for index, track in enumerate(others, 1)}
    return [span | {"track": names.get(span["track"], span["track"])} for span in given]


def find_overlaps(spans: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """The intervals, in microseconds, in which two or more queues and threads are busy."""
    changes: Counter[float] = Counter()
    for track in {span["track"] for span in spans}:
        own = [(span["begin_us"], span["end_us"]) for span in spans if span["track"] == track]
        for begin, end in _join_intervals(own):
            changes[begin] += 1
            changes[end] -= 1
    times = sorted(changes)
    busy = accumulate(changes[time] for time in times)
    return _join_intervals(
        [pair for pair, count in zip(pairwise(times), busy, strict=False) if count >= 2]
    )


def _join_intervals(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals, as intervals that do not touch."""
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def draw_timelines(timelines: Sequence[TimelineData], width: int, label: str) -> str:
    """Draw timelines with named tracks below each other, on one time scale. The background is
    shaded while two or more tracks are busy."""
    panels = [(each, _order_tracks(each["spans"])) for each in timelines]
    height = sum(PANEL_TITLE + len(tracks) * ROW + SPACE for _, tracks in panels) + AXIS
    drawing = Drawing(width, height)
    end: float = max(span["end_us"] for each in timelines for span in each["spans"])
    room = width - NAMES - 1

    def locate(microseconds: float) -> float:
        return NAMES + microseconds / end * room

    top = 0.0
    for timeline, tracks in panels:
        _draw_panel(drawing, timeline, tracks, top, locate)
        top += PANEL_TITLE + len(tracks) * ROW + SPACE
    for value in list_linear_ticks(0, end / 1e3, 7):
        x, text = locate(value * 1e3), format_time(value)
        drawing.add("line", x1=x, x2=x, y1=top - 8, y2=top - 2, class_="axis")
        middle = min(x, width - len(text) * CHARACTER / 2)
        drawing.add("text", text, x=middle, y=top + 12, text_anchor="middle", class_="tick")
    return drawing.write(label)


def _draw_panel(
    drawing: Drawing,
    timeline: TimelineData,
    tracks: Sequence[str],
    top: float,
    locate: Callable[[float], float],
) -> None:
    spans, width = timeline["spans"], drawing.width
    length = max(span["end_us"] for span in spans)
    overlaps = find_overlaps(spans)
    share = sum(end - begin for begin, end in overlaps) / length
    title = f"{timeline['mode']}: {format_time(length / 1e3)}"
    note = f"two or more busy at once (shaded): {share:.0%} of the time"
    drawing.add("text", title, x=0, y=top + 13, class_="label")
    drawing.add("text", note, x=width, y=top + 13, text_anchor="end", class_="tick")
    rows = {track: top + PANEL_TITLE + index * ROW for index, track in enumerate(tracks)}
    for track, y in rows.items():
        drawing.add("text", track, x=NAMES - 8, y=y + 16, text_anchor="end", class_="tick")
        room = width - NAMES - 1
        drawing.add("rect", x=NAMES, y=y, width=room, height=ROW - 4, class_="track")
    y, height = top + PANEL_TITLE - 3, len(tracks) * ROW + 2
    for begin, end in overlaps:
        x = locate(begin)
        drawing.add("rect", x=x, y=y, width=locate(end) - x, height=height, class_="overlap")
    # Short stages last: they are drawn wider than they are, and longer ones would cover them.
    for span in sorted(spans, key=lambda span: span["begin_us"] - span["end_us"]):
        _draw_span(drawing, span, rows[span["track"]], locate)


def _draw_span(
    drawing: Drawing, span: Mapping[str, Any], y: float, locate: Callable[[float], float]
) -> None:
    x, job = locate(span["begin_us"]), span["chunk"] + 1
    length = max(locate(span["end_us"]) - x, 2.5)
    took = format_time((span["end_us"] - span["begin_us"]) / 1e3)
    title = f"job {job}, {span['stage']}: {took}"
    style = f"bar s{STAGES.index(span['stage'])}"
    drawing.add("rect", "", title, x=x, y=y + 1, width=length, height=ROW - 6, class_=style)
    for text in (f"{span['stage']} {job}", str(job)):
        if len(text) * CHARACTER + 6 < length:
            drawing.add("text", text, x=x + 4, y=y + 15, class_="on-bar")
            return


def _order_tracks(spans: Sequence[Mapping[str, Any]]) -> list[str]:
    """The host's threads first; queues by the first stage that they run."""

    def rank(track: str) -> tuple[int, int, str]:
        if track.startswith((CALLING_THREAD, EXECUTOR_THREAD)):
            return 0, 0, track
        if track.startswith("copy thread"):
            return 1, 0, track
        stages = (STAGES.index(span["stage"]) for span in spans if span["track"] == track)
        return 2, min(stages), track

    return sorted({span["track"] for span in spans}, key=rank)
