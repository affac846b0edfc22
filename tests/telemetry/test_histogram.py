"""Histograms: every value in its range, from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from gpu_executor.telemetry.histogram import Histogram


def test_a_value_counts_up_to_the_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.5, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0):
        histogram.observe(value)
    read = histogram.read()
    assert (read.bounds, read.counts) == ((1.0, 2.0, 4.0), (2, 2, 1, 2))
    assert (read.count, read.total) == (7, 113.5)


def test_what_was_read_stays_as_it_was() -> None:
    histogram = Histogram((1.0,))
    before = histogram.read()
    histogram.observe(3.0)
    assert (before.count, before.total) == (0, 0.0)
    assert (histogram.read().counts, histogram.read().total) == ((0, 1), 3.0)


def test_nothing_is_lost_between_threads() -> None:
    histogram = Histogram((1.0, 3.0))

    def observe(value: float) -> None:
        for _ in range(20_000):
            histogram.observe(value)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(observe, [1.0, 2.0, 4.0] * 2))
    assert histogram.read().counts == (40_000, 40_000, 40_000)
    assert histogram.read().total == 2 * 20_000 * (1.0 + 2.0 + 4.0)
