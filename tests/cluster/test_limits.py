"""No more calls and bytes under way than several machines are allowed."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.errors import QueueFullError
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.ray_cluster import (
    LARGE,
    PATIENCE,
    Array,
    RayExecutor,
    gated,
    pair,
    until,
)


@pytest.fixture(scope="module")
def narrow(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """The same with three calls in flight for each actor."""
    with gx.cluster.RayExecutor("cpu", in_flight=3) as executor:
        yield executor


def test_calls_in_flight_are_bounded(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, futures = gated(tmp_path), list[Future[Any]]()

    def submit() -> None:
        for number in range(20):
            futures.append(narrow.submit(kernel, *pair(number)))

    submitting = threading.Thread(target=submit)
    submitting.start()
    until(lambda: len(futures) == 6)
    time.sleep(0.2)  # it would go on now, if it did
    assert len(futures) == narrow.stats().unanswered == 6
    assert max(post.in_flight for post in narrow.stats().posts) <= 3
    (tmp_path / "open").touch()
    submitting.join(PATIENCE)
    check_sums([each.result(PATIENCE) for each in futures], [pair(number) for number in range(20)])


def test_bytes_in_flight_are_bounded(two_nodes: Cluster, tmp_path: Path) -> None:
    one = 3 * 4 * LARGE  # two inputs and a result
    kernel, jobs = gated(tmp_path), word_jobs(*[LARGE] * 4)
    with gx.cluster.RayExecutor("cpu", in_flight_bytes=2 * one, when_full="raise") as executor:
        futures = [executor.submit(kernel, *job) for job in jobs]
        with pytest.raises(QueueFullError, match="4 calls of 9,600,000 bytes"):
            executor.submit(kernel, *jobs[0])
        until(lambda: [post.in_flight for post in executor.stats().posts] == [2, 2])
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        larger, many = word_jobs(10 * LARGE), word_jobs(*[LARGE] * 20)
        check_sums(executor.run_batch(ADD_U32, larger), larger)  # one may always go
        check_sums(executor.run_batch(ADD_U32, many), many)  # a batch waits for room by itself


@pytest.mark.parametrize("buffersize", [1, 5, None])
def test_a_map_reads_no_further_ahead(narrow: RayExecutor, buffersize: int | None) -> None:
    read = 0

    def endless() -> Iterator[Array]:
        nonlocal read
        while True:
            yield np.full(3, read, np.uint32)
            read += 1  # when the next one is asked for

    results = narrow.map(ADD_U32, endless(), itertools.repeat(pair(0, 3)[1]), buffersize=buffersize)
    for number, result in enumerate(itertools.islice(results, 30)):
        assert read <= number + (buffersize or 6)
        check_sums([result], [pair(number, 3)])


def test_a_callback_may_submit_when_all_is_full(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, later = gated(tmp_path), list[Future[Any]]()
    futures = [narrow.submit(kernel, *pair(number)) for number in range(6)]
    for future in futures:
        future.add_done_callback(
            lambda _done: later.extend(narrow.submit(kernel, *pair(7)) for _ in range(5))
        )
    (tmp_path / "open").touch()
    wait(futures, PATIENCE)
    until(lambda: len(later) == 30)
    check_sums([future.result(PATIENCE) for future in later], [pair(7)] * 30)


def test_an_iterables_error_comes_behind_the_results_before_it(narrow: RayExecutor) -> None:
    def breaks() -> Iterator[Array]:
        yield from (pair(number)[0] for number in range(10))
        raise OSError("the file ends here")

    results = narrow.map(ADD_U32, breaks(), itertools.repeat(pair(0)[1]))
    check_sums(list(itertools.islice(results, 10)), [pair(number) for number in range(10)])
    with pytest.raises(OSError, match="ends here"):
        next(results)
    assert list(results) == []


def test_an_event_loop_goes_on_while_all_is_full(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, jobs = gated(tmp_path), [pair(number) for number in range(12)]

    async def open_the_gate() -> None:
        until(lambda: narrow.stats().unanswered == 6)
        (tmp_path / "open").touch()

    async def all_of_them() -> list[Any]:
        calls = [narrow.run_async(kernel, *job) for job in jobs]
        return (await asyncio.gather(*calls, open_the_gate()))[:-1]

    check_sums(asyncio.run(all_of_them()), jobs)


def test_a_map_has_a_time_limit(narrow: RayExecutor, tmp_path: Path) -> None:
    jobs = [pair(1), pair(2)]
    results = narrow.map(gated(tmp_path), *zip(*jobs, strict=True), timeout=0.1)
    with pytest.raises(TimeoutError):
        next(results)
    assert list(results) == []
    (tmp_path / "open").touch()
