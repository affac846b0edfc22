"""RayExecutor: limits on the calls and bytes in flight, and on how far `map` reads ahead."""

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
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    make_gated_kernel,
    make_pair,
    wait_until,
)


@pytest.fixture(scope="module")
def limited_executor(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """A CPU executor whose two actors may have three calls in flight each."""
    with gx.cluster.RayExecutor("cpu", in_flight=3) as executor:
        yield executor


def test_calls_in_flight_are_bounded(limited_executor: RayExecutor, tmp_path: Path) -> None:
    kernel, futures = make_gated_kernel(tmp_path), list[Future[Any]]()

    def submit() -> None:
        for number in range(20):
            futures.append(limited_executor.submit(kernel, *make_pair(number)))

    submitting = threading.Thread(target=submit)
    submitting.start()
    wait_until(lambda: len(futures) == 6)
    time.sleep(0.2)  # time for a seventh call, if the limit failed
    assert len(futures) == limited_executor.stats().unanswered == 6
    assert max(actor.in_flight for actor in limited_executor.stats().actors) <= 3
    (tmp_path / "open").touch()
    submitting.join(TIMEOUT_SECONDS)
    check_sums(
        [each.result(TIMEOUT_SECONDS) for each in futures],
        [make_pair(number) for number in range(20)],
    )


def test_bytes_in_flight_are_bounded(one_node: None, tmp_path: Path) -> None:
    one = 3 * 4 * LARGE  # two inputs and a result
    kernel, jobs = make_gated_kernel(tmp_path), word_jobs(*[LARGE] * 2)
    with gx.cluster.RayExecutor("cpu", in_flight_bytes=2 * one, when_full="raise") as executor:
        futures = [executor.submit(kernel, *job) for job in jobs]
        with pytest.raises(QueueFullError, match="2 calls of 4,800,000 bytes"):
            executor.submit(kernel, *jobs[0])
        wait_until(lambda: [actor.in_flight for actor in executor.stats().actors] == [2])
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
        larger, many = word_jobs(3 * LARGE), word_jobs(*[LARGE] * 6)
        check_sums(executor.run_batch(ADD_U32, larger), larger)  # a single call is always admitted
        check_sums(
            executor.run_batch(ADD_U32, many), many
        )  # a batch blocks, also with when_full="raise"


@pytest.mark.parametrize("buffersize", [1, 5, None])
def test_map_reads_no_further_ahead_than_its_buffer(
    limited_executor: RayExecutor, buffersize: int | None
) -> None:
    read = 0

    def endless() -> Iterator[Array]:
        nonlocal read
        while True:
            yield np.full(3, read, np.uint32)
            read += 1  # counted when the next array is requested

    results = limited_executor.map(
        ADD_U32, endless(), itertools.repeat(make_pair(0, 3)[1]), buffersize=buffersize
    )
    for number, result in enumerate(itertools.islice(results, 30)):
        assert read <= number + (buffersize or 6)
        check_sums([result], [make_pair(number, 3)])


def test_a_callback_may_submit_while_the_executor_is_full(
    limited_executor: RayExecutor, tmp_path: Path
) -> None:
    kernel, later = make_gated_kernel(tmp_path), list[Future[Any]]()
    futures = [limited_executor.submit(kernel, *make_pair(number)) for number in range(6)]
    for future in futures:
        future.add_done_callback(
            lambda _done: later.extend(
                limited_executor.submit(kernel, *make_pair(7)) for _ in range(5)
            )
        )
    (tmp_path / "open").touch()
    wait(futures, TIMEOUT_SECONDS)
    wait_until(lambda: len(later) == 30)
    check_sums([future.result(TIMEOUT_SECONDS) for future in later], [make_pair(7)] * 30)


def test_map_raises_an_iterables_exception_after_the_results_before_it(
    limited_executor: RayExecutor,
) -> None:
    def breaks() -> Iterator[Array]:
        yield from (make_pair(number)[0] for number in range(10))
        raise OSError("the file ends here")

    results = limited_executor.map(ADD_U32, breaks(), itertools.repeat(make_pair(0)[1]))
    check_sums(list(itertools.islice(results, 10)), [make_pair(number) for number in range(10)])
    with pytest.raises(OSError, match="ends here"):
        next(results)
    assert list(results) == []


def test_run_async_does_not_block_the_event_loop_while_the_executor_is_full(
    limited_executor: RayExecutor, tmp_path: Path
) -> None:
    kernel, jobs = make_gated_kernel(tmp_path), [make_pair(number) for number in range(12)]

    async def open_the_gate() -> None:
        wait_until(lambda: limited_executor.stats().unanswered == 6)
        (tmp_path / "open").touch()

    async def all_of_them() -> list[Any]:
        calls = [limited_executor.run_async(kernel, *job) for job in jobs]
        return (await asyncio.gather(*calls, open_the_gate()))[:-1]

    check_sums(asyncio.run(all_of_them()), jobs)


def test_map_raises_timeout_error(limited_executor: RayExecutor, tmp_path: Path) -> None:
    jobs = [make_pair(1), make_pair(2)]
    results = limited_executor.map(
        make_gated_kernel(tmp_path), *zip(*jobs, strict=True), timeout=0.1
    )
    with pytest.raises(TimeoutError):
        next(results)
    assert list(results) == []
    (tmp_path / "open").touch()
