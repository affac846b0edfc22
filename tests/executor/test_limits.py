"""Limits for shared machines: bytes in the job queue, and memory on a device."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, QueueFullError, SettingsError
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from tests.support.executors import ADD, HeldKernel, held, total, words
from tests.support.jobs import check_sums
from tests.support.threads import PATIENCE, in_background

__all__ = ["held"]  # the fixture

JOB = 80
"""Bytes of two arrays of ten words."""


def test_submit_blocks_while_the_queue_is_full(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=3 * JOB) as executor:
        held.hold(executor)
        futures = [executor.submit(ADD, *words(10, n)) for n in range(3)]
        assert executor.stats().waiting_bytes == 3 * JOB
        thread, late = in_background(lambda: executor.submit(ADD, *words(10, 3)))
        thread.join(0.1)
        assert thread.is_alive()
        held.released.set()
        thread.join(PATIENCE)
        results = [future.result(PATIENCE) for future in [*futures, *late]]
        check_sums(results, [words(10, n) for n in range(4)])


def test_submit_raises_when_the_queue_is_full(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=3 * JOB, when_full="raise") as executor:
        held.hold(executor)
        futures = [executor.submit(ADD, *words(10)) for _ in range(3)]
        with pytest.raises(
            QueueFullError, match=r"240 bytes are queued, and 80 more .* queued_bytes=240"
        ):
            executor.submit(ADD, *words(10))
        with pytest.raises(QueueFullError):
            executor.run_batch(ADD, [words(1)])
        with pytest.raises(QueueFullError):
            asyncio.run(executor.run_async(ADD, *words(10)))
        futures[1].cancel()
        held.released.set()
        futures[2].result(PATIENCE)
        np.testing.assert_array_equal(executor.submit(ADD, *words(10)).result(), total(words(10)))


def test_a_job_larger_than_the_limit_is_queued_when_the_queue_is_empty(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=10, when_full="raise") as executor:
        held.hold(executor)
        executor.submit(ADD, *words(1000))
        with pytest.raises(QueueFullError):
            executor.submit(ADD, *words(1))
        held.released.set()


def test_a_shutdown_ends_a_blocked_submit(held: HeldKernel) -> None:
    executor = gx.GpuExecutor("cpu", queued_bytes=JOB)
    held.hold(executor)
    executor.submit(ADD, *words(10))
    thread, refused = in_background(lambda: executor.submit(ADD, *words(10)))
    thread.join(0.05)
    executor.shutdown(wait=False)
    thread.join(PATIENCE)
    assert isinstance(refused[0], ClosedError)


def test_a_submit_in_a_callback_is_not_limited(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        more: Future[Any] = Future()

        def ask(_done: Future[Any]) -> None:
            for n in range(3):
                last = executor.submit(ADD, *words(10, n))
            last.add_done_callback(lambda done: more.set_result(done.result()))

        held.hold(executor).add_done_callback(ask)
        executor.submit(ADD, *words(10))
        held.released.set()
        np.testing.assert_array_equal(more.result(PATIENCE), total(words(10, 2)))


def test_a_map_respects_the_limit(held: HeldKernel) -> None:
    with gx.GpuExecutor("cpu", queued_bytes=JOB) as executor:
        jobs = [words(10, n) for n in range(300)]
        check_sums(list(executor.map(ADD, *zip(*jobs, strict=True), chunksize=3)), jobs)


def test_the_limit_is_shared_by_all_threads() -> None:
    most, seen = 10 * JOB, []
    with gx.GpuExecutor("cpu", queued_bytes=most) as executor:

        def work() -> None:
            for future in [executor.submit(ADD, *words(10)) for _ in range(50)]:
                seen.append(executor.stats().waiting_bytes)
                future.result(PATIENCE)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(seen) == 400
    assert max(seen) <= most


def test_arguments_override_the_limits_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_QUEUED_BYTES", "1_000")
    monkeypatch.setenv("GPU_WHEN_FULL", "raise")
    monkeypatch.setenv("GPU_MEMORY_LIMIT", "100_000")
    with gx.GpuExecutor("vulkan") as executor:
        assert (executor._queue._pending.max_bytes, executor._queue.when_full) == (1000, "raise")
        backend = executor._devices[0].backend
        assert isinstance(backend, PersistentVulkanBackend)
        assert backend._session.settings.memory_limit == 100_000
    with gx.GpuExecutor("cpu", queued_bytes=7, when_full="block") as executor:
        assert (executor._queue._pending.max_bytes, executor._queue.when_full) == (7, "block")


@pytest.mark.parametrize(
    "wrong", [{"queued_bytes": 0}, {"memory_limit": -5}, {"when_full": "explode"}]
)
def test_invalid_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        gx.GpuExecutor("cpu", **wrong)


def test_a_device_holds_no_more_memory_than_its_limit() -> None:
    limit = 200_000
    with gx.GpuExecutor("vulkan", devices=[0, 0], memory_limit=limit) as executor:
        arrays = words(1 << 20)
        np.testing.assert_array_equal(executor.run(ADD, *arrays), total(arrays))
        jobs = [words(5000, n) for n in range(50)]
        check_sums(executor.run_batch(ADD, jobs), jobs)
        for device in executor.stats().devices:
            assert 0 < device.inside.bytes_held <= limit
