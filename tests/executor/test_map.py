"""map: results in order, with a limit of how far the iterables are read ahead."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError
from gpu_executor.executor.job_queue import MAX_BATCH_CALLS
from tests.support.executors import (
    ADD,
    FQ_ADD,
    HeldKernel,
    cpu,
    executor,
    held,
    make_addition,
    make_kernel,
    total,
    words,
)
from tests.support.jobs import TOO_LARGE, check_sums, field_jobs
from tests.support.threads import PATIENCE

__all__ = ["cpu", "executor", "held"]  # the fixtures


class Counted:
    """Infinite iterables of arrays that count how many arrays were read."""

    def __init__(self, first_error: int | None = None) -> None:
        self.read = 0
        self._first_error = first_error

    def firsts(self) -> Iterator[Any]:
        for number in itertools.count():
            if number == self._first_error:
                raise KeyError("what the iterable raises")
            self.read += 1
            yield words(2, number)[0]


def seconds() -> Iterator[Any]:
    return (words(2, number)[1] for number in itertools.count())


def test_results_come_in_order(executor: gx.GpuExecutor) -> None:
    jobs = [words(1 + n % 50, n) for n in range(400)]
    check_sums(list(executor.map(ADD, *zip(*jobs, strict=True))), jobs)
    check_sums(list(executor.map(ADD, *zip(*jobs, strict=True), chunksize=7)), jobs)
    check_sums(list(executor.map(ADD, *zip(*jobs, strict=True), buffersize=3)), jobs)


def test_the_shortest_iterable_ends_the_map(executor: gx.GpuExecutor) -> None:
    firsts = [words(2, n)[0] for n in range(5)]
    assert len(list(executor.map(ADD, firsts, seconds()))) == 5
    assert list(executor.map(ADD, [], seconds())) == []
    assert list(executor.map(ADD)) == []


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 3 * MAX_BATCH_CALLS),
        ({"chunksize": 5}, 15),
        ({"buffersize": 1}, 1),
        ({"buffersize": 2}, 2),
        ({"buffersize": 7}, 7),
        ({"buffersize": 100, "chunksize": 30}, 100),
        ({"buffersize": 10, "chunksize": 30}, 10),
    ],
)
def test_a_map_reads_no_further_ahead_than_its_limit(
    cpu: gx.GpuExecutor, options: dict[str, Any], most: int
) -> None:
    source = Counted()
    results = cpu.map(ADD, source.firsts(), seconds(), **options)
    for number in range(3 * MAX_BATCH_CALLS):
        assert 0 < source.read - number <= most
        np.testing.assert_array_equal(next(results), total(words(2, number)))


@pytest.mark.parametrize(("options", "size"), [({}, MAX_BATCH_CALLS), ({"chunksize": 5}, 5)])
def test_two_batches_of_chunksize_calls_are_in_flight(
    cpu: gx.GpuExecutor, held: HeldKernel, options: dict[str, Any], size: int
) -> None:
    held.hold(cpu)
    source = Counted()
    results = cpu.map(ADD, source.firsts(), seconds(), **options)
    stats = cpu.stats()
    assert (stats.waiting, stats.waiting_bytes, source.read) == (2, 2 * size * 16, 2 * size)
    held.released.set()
    next(results)
    assert source.read == 3 * size, "a third batch while the first is consumed"


def test_closing_a_map_cancels_its_queued_calls(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    results = cpu.map(held.kernel, Counted().firsts(), seconds(), buffersize=4, chunksize=1)
    assert held.begun.wait(PATIENCE)
    results.close()  # type: ignore[attr-defined]
    held.released.set()
    assert list(results) == []
    cpu.shutdown()
    assert len(held.seen) == 1


def test_the_timeout_counts_from_the_call_of_map(cpu: gx.GpuExecutor) -> None:
    slow = make_kernel(make_addition(lambda: time.sleep(0.2)))
    calls = ([words(2, n)[part] for n in range(9)] for part in (0, 1))
    results = cpu.map(slow, *calls, timeout=0.3, buffersize=1)
    np.testing.assert_array_equal(next(results), total(words(2)))
    with pytest.raises(TimeoutError):
        next(results)
    assert list(results) == [], "like a generator after an exception"


def test_an_error_is_raised_in_place_of_its_result(executor: gx.GpuExecutor) -> None:
    jobs = field_jobs(*[2] * 12)
    jobs[7][0][1] = TOO_LARGE
    results, found = executor.map(FQ_ADD, *zip(*jobs, strict=True)), []
    with pytest.raises(gx.ElementRangeError) as raised:
        for result in results:
            found.append(result)
    assert raised.value.index == 1
    assert raised.value.job == 7
    check_sums(found, jobs[:7])
    assert list(results) == []


def test_an_error_of_an_argument_names_the_call(executor: gx.GpuExecutor) -> None:
    arrays = [words(2, n)[0] for n in range(3)]
    with pytest.raises(gx.errors.ArgumentTypeError, match=r"^job 2: .* has dtype float64"):
        list(executor.map(ADD, arrays, [*arrays[:2], np.zeros(2)]))
    with pytest.raises(gx.errors.ArgumentTypeError, match=r"^job 1: .* a list with a value"):
        list(executor.map(ADD, arrays, [arrays[1], [1, -1]]))


def test_an_error_of_the_iterable_is_raised_after_the_results_before_it(
    executor: gx.GpuExecutor,
) -> None:
    results, found = executor.map(ADD, Counted(100).firsts(), seconds()), []
    with pytest.raises(KeyError, match="what the iterable raises"):
        for result in results:
            found.append(result)
    check_sums(found, [words(2, number) for number in range(100)])
    np.testing.assert_array_equal(executor.run(ADD, *words(3)), total(words(3)))


def test_a_shutdown_ends_a_map_after_the_calls_in_flight() -> None:
    with gx.GpuExecutor("cpu") as executor:
        results = executor.map(ADD, Counted().firsts(), seconds())
        next(results)
    found = []
    with pytest.raises(ClosedError):
        for result in results:
            found.append(result)
    check_sums(found, [words(2, number + 1) for number in range(len(found))])
    assert len(found) >= 2 * MAX_BATCH_CALLS


def test_cancelled_batches_are_an_error(cpu: gx.GpuExecutor, held: HeldKernel) -> None:
    held.hold(cpu)
    results = cpu.map(ADD, Counted().firsts(), seconds())
    cpu.shutdown(wait=False, cancel_futures=True)
    held.released.set()
    with pytest.raises(CancelledError):
        next(results)


def test_a_map_keeps_its_executor_alive() -> None:
    jobs = [words(3, n) for n in range(400)]
    check_sums(list(gx.GpuExecutor("cpu").map(ADD, *zip(*jobs, strict=True))), jobs)


@pytest.mark.parametrize("options", [{"chunksize": 0}, {"buffersize": 0}, {"buffersize": -1}])
def test_sizes_below_one_are_refused(cpu: gx.GpuExecutor, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a whole number, at least 1"):
        cpu.map(ADD, [], [], **options)
