"""The caches of the WebGPU executor without a device: buckets, buffer pool, exact sizes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any, cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.idle_memory import IdleMemory
from gpu_executor.calls.call import Signature, check
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_pool import SMALLEST_UNITS, UNIT, BufferPool
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.buffer_set_caches import (
    MAX_BUCKETS,
    SIGNATURES_OBSERVED,
    BucketCache,
    ExactSizeCache,
)
from tests.support.jobs import ADD_U32, FQ_ADD
from tests.support.threads import in_threads
from tests.support.webgpu import COPY, LARGEST, MAP, FakeDevice, acquire_one

SMALLEST = SMALLEST_UNITS * UNIT


class FakeSet:
    """A buffer set without a device."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


class SetFactory:
    """Makes fake sets and records them."""

    def __init__(self) -> None:
        self.sets: list[FakeSet] = []
        self.asked: list[tuple[str, int]] = []
        self.fails = False

    def __call__(self, kernel: Kernel, size: int, *, wait: bool) -> BufferSet:
        if self.fails:
            raise gx.OutOfMemoryError("no more")
        self.asked.append((kernel.name, size))
        made = FakeSet(4 * size)
        self.sets.append(made)
        return cast(BufferSet, made)

    @property
    def released(self) -> list[int]:
        """Sizes of the released sets in bytes, in the order in which they were made."""
        return [each.nbytes for each in self.sets if each.releases]


def run_task(cache: BucketCache, size: int, kernel: Kernel = ADD_U32) -> None:
    """Take a set of a bucket and put it back, as a task does."""
    bucket = cache.get_or_create(size, kernel)
    cache.put_back(bucket, cache.take_set(bucket))


def test_nothing_is_made_before_the_first_task() -> None:
    made = SetFactory()
    cache = BucketCache(made)
    assert (cache.sizes(), cache.stats(), cache.sizes_by_kernel()) == ([], [], {})
    bucket = cache.get_or_create(16_384, ADD_U32)
    assert made.sets == []
    cache.take_set(bucket)
    assert made.asked == [("vector_add_u32", 16_384)]


def test_each_kernel_and_size_has_one_bucket() -> None:
    cache = BucketCache(SetFactory())
    bucket = cache.get_or_create(16_384, ADD_U32)
    assert cache.get_or_create(16_384, ADD_U32) is bucket
    assert cache.get_or_create(32_768, ADD_U32) is not bucket
    assert cache.get_or_create(16_384, FQ_ADD) is not bucket
    assert cache.sizes() == [16_384, 32_768]
    assert cache.sizes_by_kernel() == {
        "vector_add_u32": [16_384, 32_768],
        "bls12_381_fq_add": [16_384],
    }


def test_sets_are_reused_and_counted() -> None:
    made = SetFactory()
    cache = BucketCache(made)
    bucket = cache.get_or_create(16_384, ADD_U32)
    first, second = cache.take_set(bucket), cache.take_set(bucket)
    assert first is not second
    assert (bucket.busy, bucket.hits, bucket.misses) == (2, 0, 2)
    assert cache.stats()[0][1].bytes_held == 0
    cache.put_back(bucket, first)
    assert cache.take_set(bucket) is first
    cache.put_back(bucket, first)
    cache.put_back(bucket, second)
    assert bucket.busy == 0
    ((kernel, stats),) = cache.stats()
    assert kernel is ADD_U32
    assert (stats.kernel, stats.bucket) == ("vector_add_u32", 16_384)
    assert (stats.hits, stats.misses, stats.bytes_held) == (1, 2, 2 * 4 * 16_384)
    assert len(made.sets) == 2


def test_a_set_that_cannot_be_made_leaves_nothing_busy() -> None:
    made = SetFactory()
    cache = BucketCache(made)
    bucket = cache.get_or_create(16_384, ADD_U32)
    made.fails = True
    with pytest.raises(gx.OutOfMemoryError):
        cache.take_set(bucket)
    assert bucket.busy == 0
    made.fails = False
    run_task(cache, 16_384)
    assert bucket.busy == 0


def test_the_least_recently_used_bucket_is_evicted_first() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=3)
    for size in (1, 2, 3):
        run_task(cache, size)
    run_task(cache, 1)
    run_task(cache, 4)
    assert cache.sizes() == [1, 3, 4]
    run_task(cache, 5)
    assert cache.sizes() == [1, 4, 5]
    assert cache.evictions == 2
    assert made.released == [8, 12]
    run_task(cache, 2)
    evictions = {stats.bucket: stats.evictions for _, stats in cache.stats()}
    assert evictions == {4: 0, 5: 0, 2: 1}


def test_as_many_buckets_as_max_buckets_are_cached() -> None:
    made = SetFactory()
    cache = BucketCache(made)
    for size in range(1, MAX_BUCKETS + 1):
        run_task(cache, size)
    assert (len(cache.sizes()), cache.evictions) == (MAX_BUCKETS, 0)
    run_task(cache, MAX_BUCKETS + 1)
    assert (len(cache.sizes()), cache.evictions) == (MAX_BUCKETS, 1)
    assert made.released == [4]


def test_a_bucket_with_a_task_in_flight_is_not_evicted() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=2)
    taken = []
    for size in (1, 2):
        bucket = cache.get_or_create(size, ADD_U32)
        taken.append((bucket, cache.take_set(bucket)))
    for size in (3, 4, 5):
        run_task(cache, size)
    assert {1, 2} <= set(cache.sizes())
    assert not {4, 8} & set(made.released)
    for bucket, buffers in taken:
        cache.put_back(bucket, buffers)
        assert bucket.busy == 0
    assert len(cache.sizes()) <= 2
    for size in (6, 7):
        run_task(cache, size)
    assert cache.sizes() == [6, 7]
    assert made.released == [4, 8, 12, 16, 20]
    assert all(each.releases <= 1 for each in made.sets)


def test_surplus_buckets_are_evicted_when_their_tasks_are_done() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=2)
    taken = []
    for size in (1, 2, 3, 4):
        bucket = cache.get_or_create(size, ADD_U32)
        taken.append((bucket, cache.take_set(bucket)))
    assert made.released == []
    for bucket, buffers in taken:
        cache.put_back(bucket, buffers)
    assert len(cache.sizes()) <= 2
    assert len(made.released) == 4 - len(cache.sizes())


def test_a_new_bucket_stays_while_all_others_are_busy() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=1)
    first = cache.get_or_create(1, ADD_U32)
    cache.take_set(first)
    second = cache.get_or_create(2, ADD_U32)
    cache.take_set(second)
    assert cache.get_or_create(2, ADD_U32) is second
    assert cache.evictions == 0


def test_clear_removes_all_idle_buckets() -> None:
    made = SetFactory()
    cache = BucketCache(made)
    for size in (1, 2):
        run_task(cache, size)
    bucket = cache.get_or_create(3, ADD_U32)
    buffers = cache.take_set(bucket)
    cache.clear()
    assert cache.sizes() == [3]
    assert made.released == [4, 8]
    cache.put_back(bucket, buffers)
    cache.clear()
    assert cache.sizes() == []
    assert made.released == [4, 8, 12]


def test_an_evicted_bucket_that_is_still_referenced_holds_no_released_set() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=1)
    in_hand = cache.get_or_create(1, ADD_U32)
    cache.put_back(in_hand, cache.take_set(in_hand))
    cache.get_or_create(2, ADD_U32)
    assert [each.releases for each in made.sets] == [1]
    taken = cast(FakeSet, cache.take_set(in_hand))
    assert taken.releases == 0


def test_no_set_is_taken_by_two_threads() -> None:
    made = SetFactory()
    cache = BucketCache(made, max_buckets=3)
    having: Counter[int] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(300):
            bucket = cache.get_or_create(draw.randrange(1, 9), ADD_U32)
            buffers = cache.take_set(bucket)
            fake = cast(FakeSet, buffers)
            with lock:
                having[id(fake)] += 1
                assert having[id(fake)] == 1
                assert (fake.releases, fake.nbytes) == (0, 4 * bucket.size)
            with lock:
                having[id(fake)] -= 1
            cache.put_back(bucket, buffers)

    in_threads(work)
    assert len(cache.sizes()) <= 3
    assert all(each.releases <= 1 for each in made.sets)
    cache.clear()
    assert cache.sizes() == []


def test_an_idle_buffer_is_found_by_its_size_class() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    buffer = acquire_one(pool, 5000, COPY)
    assert buffer.size == 5120
    pool.release(buffer)
    assert pool.stats().bytes_idle == 5120
    assert acquire_one(pool, 4097, COPY) is buffer
    pool.release(buffer)
    assert acquire_one(pool, 5121, COPY) is not buffer
    assert acquire_one(pool, 4096, COPY) is not buffer
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.bytes_idle) == (1, 3, 5120)
    assert stats.hit_rate == 0.25


def test_buffers_of_different_usage_are_not_exchanged() -> None:
    pool = BufferPool(FakeDevice(), largest=LARGEST)
    buffer = acquire_one(pool, 5000, COPY)
    pool.release(buffer)
    other = acquire_one(pool, 5000, COPY | MAP)
    assert other is not buffer
    assert other.usage == COPY | MAP
    assert acquire_one(pool, 5000, COPY) is buffer


@pytest.mark.parametrize("nbytes", [0, 1, 4, 255, 256])
def test_small_buffers_share_one_size_class(nbytes: int) -> None:
    assert acquire_one(BufferPool(FakeDevice(), largest=LARGEST), nbytes, COPY).size == SMALLEST


@pytest.mark.parametrize("nbytes", [257, 1000, 4096, 100_001, 786_432, 1 << 27])
def test_a_buffer_is_at_most_a_quarter_larger_than_requested(nbytes: int) -> None:
    size = acquire_one(BufferPool(FakeDevice(), largest=LARGEST), nbytes, COPY).size
    assert nbytes <= size <= nbytes * 1.25 + UNIT
    assert size % 4 == 0


def test_the_hit_rate_is_zero_before_the_first_request() -> None:
    assert BufferPool(FakeDevice(), largest=LARGEST).stats().hit_rate == 0.0


def test_the_least_recently_used_idle_buffer_is_destroyed_first() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    buffers = [acquire_one(pool, 1024, COPY) for _ in range(5)]
    for buffer in buffers:
        pool.release(buffer)
    pool.destroy_idle(3 * 1024)
    assert [buffer.destroyed for buffer in buffers] == [1, 1, 0, 0, 0]
    assert pool.bytes_idle == pool.stats().bytes_idle == 3 * 1024
    assert acquire_one(pool, 1024, COPY) is buffers[4]
    pool.release(buffers[4])
    pool.release(acquire_one(pool, 1024, MAP))
    pool.destroy_idle(4 * 1024 - 1)
    assert [buffer.destroyed for buffer in buffers] == [1, 1, 1, 0, 0]


def test_clearing_the_pool_destroys_only_idle_buffers() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    lent, idle = acquire_one(pool, 100, COPY), acquire_one(pool, 100, COPY)
    pool.release(idle)
    pool.clear()
    assert (lent.destroyed, idle.destroyed, pool.stats().bytes_idle) == (0, 1, 0)
    assert acquire_one(pool, 100, COPY) not in (lent, idle)


def test_a_failed_allocation_says_how_many_bytes_were_requested() -> None:
    device = FakeDevice()
    device.fails = True
    pool = BufferPool(device, largest=LARGEST)
    with pytest.raises(
        gx.OutOfMemoryError, match="a buffer of 5,120 bytes: not enough memory left"
    ):
        acquire_one(pool, 5000, COPY)


def test_no_buffer_is_lent_to_two_threads() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    having: set[int] = set()
    lock = threading.Lock()

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(300):
            buffer = acquire_one(pool, draw.choice([256, 1024, 2048]), draw.choice([COPY, MAP]))
            with lock:
                assert id(buffer) not in having
                having.add(id(buffer))
            assert not buffer.destroyed
            with lock:
                having.remove(id(buffer))
            pool.release(buffer)
            pool.destroy_idle(8 * 1024)

    in_threads(work)
    stats = pool.stats()
    assert stats.hits + stats.misses == 8 * 300
    assert stats.misses == len(device.made)
    alive = [buffer.size for buffer in device.made if not buffer.destroyed]
    assert stats.bytes_idle == sum(alive) <= 8 * 1024


def make_signature(count: int, kernel: Kernel = ADD_U32) -> Signature:
    x = np.zeros(count, np.uint32)
    return check(kernel, (x, x))


def make_fake_set(nbytes: int = 1) -> Any:
    """Make a set for the exact-size cache, which uses only `nbytes` and `release`."""
    return FakeSet(nbytes)


def test_a_taken_set_is_not_in_the_exact_size_cache() -> None:
    cache, buffers = ExactSizeCache(), make_fake_set()
    assert cache.take(make_signature(5)) is None
    cache.put_back(make_signature(5), buffers)
    assert len(cache) == 1
    assert cache.take(make_signature(6)) is None
    assert cache.take(make_signature(5)) is buffers
    assert (len(cache), cache.hits) == (0, 1)
    assert cache.take(make_signature(5)) is None
    assert cache.hits == 1


def test_a_repeated_call_is_recognised_the_second_time() -> None:
    cache = ExactSizeCache()
    assert [cache.observe(make_signature(5)) for _ in range(3)] == [False, True, True]
    assert not cache.observe(make_signature(6))


def test_calls_of_long_ago_are_forgotten() -> None:
    cache = ExactSizeCache()
    for count in range(1, SIGNATURES_OBSERVED + 2):
        assert not cache.observe(make_signature(count))
    assert cache.observe(make_signature(SIGNATURES_OBSERVED + 1))
    assert not cache.observe(make_signature(1))


def test_the_least_recently_used_exact_size_set_is_evicted() -> None:
    cache = ExactSizeCache(max_sets=2)
    sets: list[Any] = [make_fake_set(n) for n in range(3)]
    cache.put_back(make_signature(1), sets[0])
    cache.put_back(make_signature(2), sets[1])
    taken = cache.take(make_signature(1))
    assert taken is not None
    assert taken is sets[0]
    cache.put_back(make_signature(1), taken)
    cache.put_back(make_signature(3), sets[2])
    assert [each.releases for each in sets] == [0, 1, 0]
    assert len(cache) == 2
    assert cache.take(make_signature(2)) is None


def test_several_sets_of_one_size_are_cached_and_each_counts() -> None:
    cache = ExactSizeCache(max_sets=2)
    sets: list[Any] = [make_fake_set(n) for n in range(3)]
    for each in sets:
        cache.put_back(make_signature(1), each)
    assert [each.releases for each in sets] == [1, 0, 0]
    taken = [cache.take(make_signature(1)) for _ in range(3)]
    assert sorted(map(sets.index, filter(None, taken))) == [1, 2]
    assert (taken[2], len(cache)) == (None, 0)


def test_clearing_the_exact_size_cache_releases_its_sets() -> None:
    cache, sets = ExactSizeCache(), [make_fake_set(), make_fake_set()]
    cache.put_back(make_signature(1), sets[0])
    cache.put_back(make_signature(2), sets[1])
    assert cache.take(make_signature(1)) is sets[0]
    cache.clear()
    assert [each.releases for each in sets] == [0, 1]
    assert len(cache) == 0


def test_the_least_recently_used_set_of_both_caches_is_released_first() -> None:
    made = SetFactory()
    buckets, exact = BucketCache(made), ExactSizeCache()
    sets: list[Any] = [make_fake_set(400), make_fake_set(404)]
    exact.put_back(make_signature(1), sets[0])
    run_task(buckets, 100)
    run_task(buckets, 50)
    exact.put_back(make_signature(2), sets[1])
    run_task(buckets, 100)  # now the most recently used
    assert (buckets.bytes_idle, exact.bytes_idle) == (600, 804)
    budget = IdleMemory(1100)
    budget.fits = lambda: buckets.bytes_idle + exact.bytes_idle <= budget.limit
    budget.add_holder(buckets.list_idle)
    budget.add_holder(exact.list_idle)
    budget.settle()
    assert ([each.releases for each in sets], made.released) == ([1, 0], [])
    budget.evict(lambda: False)
    assert ([each.releases for each in sets], sorted(made.released)) == ([1, 1], [200, 400])
    assert (buckets.bytes_idle, exact.bytes_idle, len(exact)) == (0, 0, 0)


def test_a_set_that_is_in_use_again_is_not_released() -> None:
    made = SetFactory()
    buckets, exact = BucketCache(made), ExactSizeCache()
    run_task(buckets, 100)
    kept: Any = make_fake_set()
    exact.put_back(make_signature(1), kept)
    items = [*buckets.list_idle(), *exact.list_idle()]
    bucket = buckets.get_or_create(100, ADD_U32)
    taken = buckets.take_set(bucket)
    used: Any = exact.take(make_signature(1))
    assert used is kept
    for item in items:
        item.release()
    assert (kept.releases, made.released) == (0, [])
    buckets.put_back(bucket, taken)
    assert buckets.bytes_idle == 400
    for item in items * 2:
        item.release()
    assert (made.released, buckets.bytes_idle) == ([400], 0)
