"""The memory limit of WebGPU buffers.

Cached buffers are freed first, calls are chunked, threads wait for each other's buffers, and a call
that can never fit is refused.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.webgpu.buffer_pool import BufferPool
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32
from tests.support.threads import PATIENCE, in_background
from tests.support.webgpu import COPY, LARGEST, FakeBuffer, FakeDevice, acquire_one

MATMUL = gx.kernels.load("matmul_f32")


def count_live_bytes(device: FakeDevice) -> int:
    return sum(buffer.size for buffer in device.made if not buffer.destroyed)


def make_pool(limit: int) -> tuple[FakeDevice, BufferPool]:
    device = FakeDevice()
    return device, BufferPool(device, largest=LARGEST, limit=limit)


def test_idle_buffers_are_destroyed_for_room_the_oldest_first() -> None:
    device, pool = make_pool(4096)
    buffers = pool.acquire([(1024, COPY)] * 4)
    for buffer in buffers:
        pool.release(buffer)
    large = acquire_one(pool, 2048, COPY)
    assert [buffer.destroyed for buffer in buffers] == [1, 1, 0, 0]
    assert acquire_one(pool, 1024, COPY) is buffers[3]
    assert (count_live_bytes(device), pool.stats().bytes_in_use, pool.stats().bytes_idle) == (
        4096,
        3072,
        1024,
    )
    pool.destroy(large)
    assert pool.stats().bytes_in_use == 1024


def test_a_request_over_the_limit_is_refused_and_changes_nothing() -> None:
    device, pool = make_pool(4096)
    lent = acquire_one(pool, 1024, COPY)
    with pytest.raises(gx.OutOfMemoryError, match=r"4,096 bytes .* 1,024 of 4,096 bytes are"):
        pool.acquire([(2048, COPY), (2048, COPY)], wait=False)
    assert (count_live_bytes(device), pool.stats().bytes_in_use) == (1024, 1024)
    pool.release(lent)
    assert len(pool.acquire([(2048, COPY), (2048, COPY)], wait=False)) == 2
    assert lent.destroyed == 1
    with pytest.raises(gx.OutOfMemoryError, match="exceed GPU_MEMORY_LIMIT"):
        BufferPool(device, largest=LARGEST, limit=4096).acquire([(4097, COPY)])


def test_cached_buffers_are_reclaimed_for_room() -> None:
    device, pool = make_pool(4096)
    cached = pool.acquire([(1024, COPY)] * 4)

    def reclaim() -> bool:
        if cached:
            pool.release(cached.pop())
            return True
        return False

    pool.reclaim = reclaim
    acquire_one(pool, 2048, COPY)
    assert (len(cached), count_live_bytes(device)) == (2, 4096)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError("no more"), gx.OutOfMemoryError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_an_error_or_interrupt_during_acquire_leaves_nothing_reserved(
    error: BaseException, raised: type[BaseException]
) -> None:
    device, pool = make_pool(8192)
    make = device.create_buffer

    def second_fails(*, size: int, usage: int) -> FakeBuffer:
        if len(device.made) == 1:
            raise error
        return make(size=size, usage=usage)

    device.create_buffer = second_fails  # type: ignore[method-assign]
    with pytest.raises(raised):
        pool.acquire([(1024, COPY), (2048, COPY), (1024, COPY)])
    assert (pool.stats().bytes_in_use, pool.stats().bytes_idle) == (0, 1024)


@pytest.mark.parametrize("way", ["released", "destroyed", "put back"])
def test_a_waiting_thread_gets_room_that_another_gives_back(way: str) -> None:
    _, pool = make_pool(4096)
    first = acquire_one(pool, 4096, COPY)
    cached: list[Any] = []

    def reclaim() -> bool:
        if cached:
            pool.release(cached.pop())
            return True
        return False

    def put_back(buffer: Any) -> None:
        cached.append(buffer)
        pool.offer()

    pool.reclaim = reclaim
    waiting, results = in_background(lambda: acquire_one(pool, 4096, COPY))
    waiting.join(0.1)
    assert waiting.is_alive()
    ways: dict[str, Callable[[Any], None]] = {
        "released": pool.release,
        "destroyed": pool.destroy,
        "put back": put_back,
    }
    ways[way](first)
    waiting.join(PATIENCE)
    assert [buffer.size for buffer in results] == [4096]


def test_room_given_back_just_before_the_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, pool = make_pool(4096)
    first = [acquire_one(pool, 4096, COPY)]
    try_reserve = pool._try_reserve

    def given_back_behind(*arguments: Any) -> bool:
        reserved = try_reserve(*arguments)
        if not reserved and first:
            pool.release(first.pop())
        return reserved

    monkeypatch.setattr(pool, "_try_reserve", given_back_behind)
    waiting, results = in_background(lambda: acquire_one(pool, 4096, COPY))
    waiting.join(PATIENCE)
    assert [buffer.size for buffer in results] == [4096]


def test_waiting_threads_are_served_in_order_of_arrival() -> None:
    """Small requests do not overtake a large one that waits, whether they wait or not."""
    _, pool = make_pool(4096)
    first = [acquire_one(pool, 2048, COPY) for _ in range(2)]
    large, large_results = in_background(lambda: acquire_one(pool, 4096, COPY))
    large.join(0.1)
    pool.release(first[0])
    small, small_results = in_background(lambda: acquire_one(pool, 1024, COPY))
    small.join(0.1)
    assert large.is_alive()
    assert small.is_alive()
    with pytest.raises(gx.OutOfMemoryError):
        pool.acquire([(1024, COPY)], wait=False)
    pool.release(first[1])
    large.join(PATIENCE)
    pool.release(large_results[0])
    small.join(PATIENCE)
    assert [buffer.size for buffer in small_results] == [1024]


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    _, pool = make_pool(4096)
    acquire_one(pool, 1024, COPY)
    with pytest.raises(gx.OutOfMemoryError, match=r"8,192 bytes .* 1,024 of 4,096 bytes are"):
        acquire_one(pool, 8192, COPY)


def check_batch_sums(gpu: gx.WgpuExecutor, counts: list[int]) -> None:
    jobs = [(np.arange(n, dtype=np.uint32), np.full(n, n, np.uint32)) for n in counts]
    for (a, b), result in zip(jobs, gpu.run_batch(ADD_U32, jobs), strict=True):
        np.testing.assert_array_equal(result, a + b)
    for a, b in jobs:
        np.testing.assert_array_equal(gpu.run(ADD_U32, a, b), a + b)


def record_held_bytes(gpu: gx.WgpuExecutor, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the bytes of all buffers are appended whenever one is made."""
    seen, device = [0], gpu._device.device
    make, sizes = device.create_buffer, dict[Any, int]()

    def noted(**how: Any) -> Any:
        buffer = make(**how)
        destroy, sizes[buffer] = buffer.destroy, buffer.size

        def forget() -> None:
            sizes.pop(buffer, None)
            destroy()

        buffer.destroy = forget
        seen.append(sum(sizes.values()))
        return buffer

    monkeypatch.setattr(device, "create_buffer", noted)
    return seen


@pytest.mark.parametrize("private", [True, False])
def test_calls_and_batches_of_many_sizes_stay_within_the_limit(
    private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1_000_000
    settings = gx.Settings(memory_limit=limit)
    with gx.WgpuExecutor(settings=settings, private=private) as gpu:
        held = record_held_bytes(gpu, monkeypatch)
        check_batch_sums(gpu, [5, 70_000, 300, 20_000, 16_385, 40_000, 200_000, 5] + [9_000] * 40)
        assert limit / 2 < max(held) <= limit
        pool = gpu.stats().pool
        assert pool.bytes_in_use + pool.bytes_idle <= limit


def test_threads_share_the_memory_without_deadlock() -> None:
    with gx.WgpuExecutor(settings=gx.Settings(memory_limit=400_000)) as gpu:

        def work(number: int) -> None:
            for turn in range(6):
                check_batch_sums(gpu, [9_000 + number, 20_000 + turn, 300, 30_000])

        threads = [in_background(functools.partial(work, number)) for number in range(6)]
        for thread, results in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "deadlock"
            assert results == [None]


def test_a_large_call_is_not_starved_by_small_ones() -> None:
    small, large = (np.arange(count, dtype=np.uint32) for count in (3_000, 70_000))
    stop = threading.Event()
    with gx.WgpuExecutor(settings=gx.Settings(memory_limit=1_000_000)) as gpu:

        def work() -> None:
            while not stop.is_set():
                assert (gpu.run(ADD_U32, small, small) == 2 * small).all()

        threads = [in_background(work) for _ in range(3)]
        call, results = in_background(lambda: gpu.run(ADD_U32, large, large))
        call.join(PATIENCE)
        stop.set()
        for thread, ended in threads:
            thread.join(PATIENCE)
            assert ended == [None]
        np.testing.assert_array_equal(results, [2 * large])


def test_the_error_of_a_kernel_that_cannot_be_chunked_says_what_it_needs() -> None:
    a = np.ones((100, 100), np.float32)
    with gx.WgpuExecutor(settings=gx.Settings(memory_limit=100_000)) as gpu:
        assert (gpu.run(MATMUL, a[:50, :50], a[:50, :50]) == 50).all()
        with pytest.raises(
            gx.OutOfMemoryError,
            match=r"need [12]\d\d,\d+ bytes .* allows 100,000.*cannot be chunked",
        ):
            gpu.run(MATMUL, a, a)
        assert (gpu.run(MATMUL, a[:50, :50], a[:50, :50]) == 50).all()


def test_a_limit_below_one_element_is_an_error() -> None:
    x = np.arange(3, dtype=np.uint32)
    with (
        gx.WgpuExecutor(settings=gx.Settings(memory_limit=100)) as gpu,
        pytest.raises(gx.OutOfMemoryError, match=r"allows 100, .*even one element does not fit"),
    ):
        gpu.run(ADD_U32, x, x)


def test_gpu_executor_passes_its_memory_limit_to_webgpu() -> None:
    x = np.arange(300_000, dtype=np.uint32)
    with gx.GpuExecutor("webgpu", memory_limit=1_000_000) as executor:
        results = list(executor.map(ADD_U32, [x] * 20, [x] * 20))
        assert all((result == 2 * x).all() for result in results)
        backend = executor._devices[0].backend
        assert isinstance(backend, gx.WgpuExecutor)
        assert backend._pool.stats().bytes_in_use <= 1_000_000


def test_prepare_stays_within_the_limit(tmp_path: Path) -> None:
    x = np.arange(200_000, dtype=np.uint32)
    with gx.WgpuExecutor(settings=gx.Settings(cache_dir=tmp_path)) as gpu:
        gpu.run(ADD_U32, x, x)
    limited = gx.Settings(cache_dir=tmp_path, memory_limit=1_000_000)
    with gx.WgpuExecutor(settings=limited) as gpu:
        gpu.prepare()  # the history of a process that had no limit
        gpu.prepare(ADD_U32, [100, 200_000, 500_000])
        np.testing.assert_array_equal(gpu.run(ADD_U32, x, x), 2 * x)
        assert gpu.stats().pool.bytes_in_use <= 1_000_000
    with gx.WgpuExecutor(settings=gx.Settings(memory_limit=100)) as gpu:
        gpu.prepare(ADD_U32, [5])
        assert gpu.stats().buffer_sets == 0


def test_a_waiting_call_gets_the_set_that_prepare_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.arange(60_000, dtype=np.uint32)
    with gx.WgpuExecutor(settings=gx.Settings(memory_limit=1_000_000)) as gpu:
        put_back = gpu._scheduler.buckets.put_back
        calls = [in_background(lambda: None)]

        def late(*arguments: Any) -> None:
            monkeypatch.setattr(gpu._scheduler.buckets, "put_back", put_back)
            calls[0] = in_background(lambda: gpu.run(ADD_U32, x, x))
            calls[0][0].join(0.2)
            put_back(*arguments)

        monkeypatch.setattr(gpu._scheduler.buckets, "put_back", late)
        gpu.prepare(ADD_U32, [x.size])
        thread, results = calls[0]
        thread.join(PATIENCE)
        np.testing.assert_array_equal(results, [2 * x])


def test_an_array_is_fetched_where_the_limit_leaves_little_room(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu(settings=gx.Settings(memory_limit=1 << 20))
    arrays: list[gx.DeviceArray] = []
    with pytest.raises(OutOfMemoryError, match="exceed GPU_MEMORY_LIMIT"):
        while True:
            arrays.append(gpu.to_device(np.arange(9999, dtype=np.uint32) + len(arrays)))
    for number, array in enumerate(arrays):
        assert array.tolist() == list(range(number, number + 9999))
