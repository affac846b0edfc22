"""What the benchmark of buckets found out: plain figures, and how they are taken from times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between its quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, middle, high)


@dataclass(frozen=True, slots=True)
class Made:
    """What the executor made; nothing in steady state."""

    pipelines: int
    buffer_sets: int
    buffers: int

    @property
    def total(self) -> int:
        return self.pipelines + self.buffer_sets + self.buffers

    def __add__(self, other: Made) -> Made:
        return Made(
            self.pipelines + other.pipelines,
            self.buffer_sets + other.buffer_sets,
            self.buffers + other.buffers,
        )


NOTHING = Made(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a batch of the middle way goes, in milliseconds; the kernel runs during the last."""

    making_ms: float
    """Buffers with the inputs in them, and bind groups."""
    submitting_ms: float
    reading_ms: float
    """Waiting for the device; for each task, a buffer to map, a copy, a submission."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What each step saves of a batch, in milliseconds: medians of each turn's own differences."""

    one_pipeline_ms: float
    reuse_ms: float
    """Of buffers and bind groups, both ways waiting alike."""
    private_ms: float
    """By waiting in the private way."""
    beside_kernel_ms: float
    """All that the middle way takes beside the kernel: what the last two could save."""

    @classmethod
    def of(cls, turns: Sequence[Sequence[float]]) -> Saved:
        pairs = ((0, 1), (1, 3), (3, 2), (1, 4))
        return cls(*(1e3 * statistics.median(t[i] - t[j] for t in turns) for i, j in pairs))


@dataclass(frozen=True, slots=True)
class Row:
    """One batch, run in each way. Ratios are of each turn's own times."""

    name: str
    sizes: tuple[int, ...]
    turns: int
    no_caches_ms: float
    pipelines_ms: float
    buckets_ms: float
    public_ms: float
    """Buckets that wait as the other ways do, by wgpu-py's promises."""
    kernel_ms: float
    """Its dispatches alone, on buffers that are there: no way takes less with that text."""
    over_no_caches: Spread
    over_pipelines: Spread
    most: float
    """What that would be if a batch took no longer than the kernel alone."""
    aim: float | None
    saved: Saved
    submissions: int
    """Of a batch of the executor's."""
    parts: Parts
    made: Made


@dataclass(frozen=True, slots=True)
class Single:
    """One small task again and again, by an executor and by a plain program."""

    private: bool
    median_us: float
    p95_us: float
    plain_us: float
    plain_p95_us: float
    ratio: float
    """Of the medians: the executor's over the plain program's."""
    aim: float
    made: Made

    @property
    def tail(self) -> float:
        return self.p95_us / self.median_us

    @property
    def plain_tail(self) -> float:
        return self.plain_p95_us / self.plain_us
