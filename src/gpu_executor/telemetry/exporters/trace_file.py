"""Trace files in the Chrome trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gpu_executor.errors import SettingsError
from gpu_executor.telemetry.spans import Span

Event = dict[str, object]
"""An event of the format. Times are in microseconds."""


def save_trace(spans: Sequence[Span], path: Path) -> None:
    """Write the spans of one device, with one track for each queue and host thread."""
    first = min((span.begin_ns for span in spans), default=0)
    _write(_make_events(spans, 1, first), path)


def save_device_traces(devices: Sequence[tuple[str, Sequence[Span]]], path: Path) -> None:
    """Write the spans of several devices, each a name and its spans: one process for each device,
    all on one clock."""
    first = min((span.begin_ns for _, spans in devices for span in spans), default=0)
    events: list[Event] = []
    for pid, (name, spans) in enumerate(devices, 1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        events += _make_events(spans, pid, first)
    _write(events, path)


def _make_events(spans: Sequence[Span], pid: int, first: int) -> list[Event]:
    """The events that name the tracks, and one event for each span."""
    tracks = {track: number for number, track in enumerate(sorted({s.track for s in spans}))}
    track_names: list[Event] = [
        {"ph": "M", "pid": pid, "tid": number, "name": "thread_name", "args": {"name": track}}
        for track, number in tracks.items()
    ]
    return track_names + [
        {
            "ph": "X",
            "pid": pid,
            "tid": tracks[span.track],
            "name": span.stage,
            "ts": (span.begin_ns - first) / 1e3,
            "dur": span.nanoseconds / 1e3,
            "args": {"chunk": span.chunk},
        }
        for span in spans
    ]


def _write(events: list[Event], path: Path) -> None:
    """Write the file; one that cannot be written raises `SettingsError`, and no span is lost."""
    try:
        content = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"the trace was not written: {error}; the profile still has it: call save_trace with "
            "another path"
        ) from None
