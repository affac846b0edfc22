"""Spans: what ran from when to when, and on which track of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SpanAttributes = Mapping[str, str | int | float | bool]
"""Attributes of an OpenTelemetry span."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stage of a piece or a whole job, with the times of `time.perf_counter_ns`."""

    track: str
    """The device's queue or the host thread."""
    stage: str
    begin_ns: int
    end_ns: int
    piece: int
    """The number of the piece, or of the job."""

    @property
    def nanoseconds(self) -> int:
        return self.end_ns - self.begin_ns
