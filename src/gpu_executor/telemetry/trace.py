"""Spans of time, by track, and the file that trace viewers (Perfetto, chrome://tracing) open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


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


def save_trace(spans: list[Span], path: Path) -> None:
    """Write Chrome trace JSON: one track for each queue and host thread, times in microseconds."""
    first = min((span.begin_ns for span in spans), default=0)
    tracks = sorted({span.track for span in spans})
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": track}}
        for number, track in enumerate(tracks)
    ]
    events += [
        {
            "ph": "X",
            "pid": 1,
            "tid": tracks.index(span.track),
            "name": span.stage,
            "ts": (span.begin_ns - first) / 1e3,
            "dur": span.nanoseconds / 1e3,
            "args": {"piece": span.piece},
        }
        for span in spans
    ]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
