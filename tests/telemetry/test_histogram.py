"""Histograms: every value is counted in its bucket, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from gpu_executor.telemetry.histogram import Histogram


def test_upper_bounds_are_inclusive() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.5, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0):
        histogram.observe(value)
    read = histogram.read()
    assert (read.bounds, read.counts) == ((1.0, 2.0, 4.0), (2, 2, 1, 2))
    assert (read.count, read.total) == (7, 113.5)


def test_a_snapshot_does_not_change() -> None:
    histogram = Histogram((1.0,))
    before = histogram.read()
    histogram.observe(3.0)
    assert (before.count, before.total) == (0, 0.0)
    assert (histogram.read().counts, histogram.read().total) == ((0, 1), 3.0)


def test_observations_of_several_threads_are_all_counted() -> None:
    histogram = Histogram((1.0, 3.0))

    def observe(value: float) -> None:
        for _ in range(20_000):
            histogram.observe(value)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(observe, [1.0, 2.0, 4.0] * 2))
    assert histogram.read().counts == (40_000, 40_000, 40_000)
    assert histogram.read().total == 2 * 20_000 * (1.0 + 2.0 + 4.0)
