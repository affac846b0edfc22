"""Spans of time, by track, and the file that trace viewers (Perfetto, chrome://tracing) open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Event = dict[str, object]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time: which stage of which piece, on which queue or host thread."""

    track: str
    stage: str
    begin_ns: int
    end_ns: int
    piece: int

    @property
    def nanoseconds(self) -> int:
        return self.end_ns - self.begin_ns


def save_trace(spans: Sequence[Span], path: Path) -> None:
    """Write Chrome trace JSON: one track for each queue and host thread, times in microseconds."""
    first = min((span.begin_ns for span in spans), default=0)
    _write(_events(spans, 1, first), path)


def save_traces(processes: Sequence[tuple[str, Sequence[Span]]], path: Path) -> None:
    """The same of several devices, by name: a process for each, all on one clock."""
    first = min((span.begin_ns for _, spans in processes for span in spans), default=0)
    events: list[Event] = []
    for pid, (name, spans) in enumerate(processes, 1):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        events += _events(spans, pid, first)
    _write(events, path)


def _events(spans: Sequence[Span], pid: int, first: int) -> list[Event]:
    tracks = {track: number for number, track in enumerate(sorted({s.track for s in spans}))}
    named: list[Event] = [
        {"ph": "M", "pid": pid, "tid": number, "name": "thread_name", "args": {"name": track}}
        for track, number in tracks.items()
    ]
    return named + [
        {
            "ph": "X",
            "pid": pid,
            "tid": tracks[span.track],
            "name": span.stage,
            "ts": (span.begin_ns - first) / 1e3,
            "dur": span.nanoseconds / 1e3,
            "args": {"piece": span.piece},
        }
        for span in spans
    ]


def _write(events: list[Event], path: Path) -> None:
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
