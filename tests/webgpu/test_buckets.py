"""The caches of the WebGPU executor by themselves: buckets, buffers and exact sizes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any, cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.call import Signature, check
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_pool import SMALLEST_UNITS, UNIT, BufferPool
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.buffer_set_caches import (
    FORMS_OBSERVED,
    MAX_BUCKETS,
    BucketCache,
    ExactSizeCache,
)
from tests.support.jobs import ADD_U32, FQ_ADD
from tests.vulkan.test_threads import in_threads

SMALLEST = SMALLEST_UNITS * UNIT
LARGEST = 1 << 30
COPY, MAP = 4, 1


class FakeSet:
    """A buffer set without a device."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


class Made:
    """Makes sets and remembers them."""

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
        """Bytes of the sets that were released, in the order they were made."""
        return [each.nbytes for each in self.sets if each.releases]


def touch(cache: BucketCache, size: int, kernel: Kernel = ADD_U32) -> None:
    """One task."""
    bucket = cache.get_or_create(size, kernel)
    cache.put_back(bucket, cache.take_set(bucket))


def test_nothing_is_made_before_a_task_comes() -> None:
    made = Made()
    cache = BucketCache(made)
    assert (cache.sizes(), cache.stats(), cache.sizes_by_kernel()) == ([], [], {})
    bucket = cache.get_or_create(16_384, ADD_U32)
    assert made.sets == []
    cache.take_set(bucket)
    assert made.asked == [("vector_add_u32", 16_384)]


def test_a_bucket_is_shared_and_kernels_have_their_own() -> None:
    cache = BucketCache(Made())
    bucket = cache.get_or_create(16_384, ADD_U32)
    assert cache.get_or_create(16_384, ADD_U32) is bucket
    assert cache.get_or_create(32_768, ADD_U32) is not bucket
    assert cache.get_or_create(16_384, FQ_ADD) is not bucket
    assert cache.sizes() == [16_384, 32_768]
    assert cache.sizes_by_kernel() == {
        "vector_add_u32": [16_384, 32_768],
        "bls12_381_fq_add": [16_384],
    }


def test_sets_are_used_again_and_counted() -> None:
    made = Made()
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
    made = Made()
    cache = BucketCache(made)
    bucket = cache.get_or_create(16_384, ADD_U32)
    made.fails = True
    with pytest.raises(gx.OutOfMemoryError):
        cache.take_set(bucket)
    assert bucket.busy == 0
    made.fails = False
    touch(cache, 16_384)
    assert bucket.busy == 0


def test_the_least_recently_used_bucket_is_given_up_first() -> None:
    made = Made()
    cache = BucketCache(made, max_buckets=3)
    for size in (1, 2, 3):
        touch(cache, size)
    touch(cache, 1)
    touch(cache, 4)
    assert cache.sizes() == [1, 3, 4]
    touch(cache, 5)
    assert cache.sizes() == [1, 4, 5]
    assert cache.evictions == 2
    assert made.released == [8, 12]
    touch(cache, 2)
    evictions = {stats.bucket: stats.evictions for _, stats in cache.stats()}
    assert evictions == {4: 0, 5: 0, 2: 1}


def test_as_many_buckets_are_kept_as_is_said() -> None:
    made = Made()
    cache = BucketCache(made)
    for size in range(1, MAX_BUCKETS + 1):
        touch(cache, size)
    assert (len(cache.sizes()), cache.evictions) == (MAX_BUCKETS, 0)
    touch(cache, MAX_BUCKETS + 1)
    assert (len(cache.sizes()), cache.evictions) == (MAX_BUCKETS, 1)
    assert made.released == [4]


def test_no_bucket_is_given_up_while_a_task_is_in_flight_in_it() -> None:
    made = Made()
    cache = BucketCache(made, max_buckets=2)
    taken = []
    for size in (1, 2):
        bucket = cache.get_or_create(size, ADD_U32)
        taken.append((bucket, cache.take_set(bucket)))
    for size in (3, 4, 5):
        touch(cache, size)
    assert {1, 2} <= set(cache.sizes())
    assert not {4, 8} & set(made.released)
    for bucket, buffers in taken:
        cache.put_back(bucket, buffers)
        assert bucket.busy == 0
    assert len(cache.sizes()) <= 2
    for size in (6, 7):
        touch(cache, size)
    assert cache.sizes() == [6, 7]
    assert made.released == [4, 8, 12, 16, 20]
    assert all(each.releases <= 1 for each in made.sets)


def test_what_is_over_the_bound_goes_when_its_tasks_are_done() -> None:
    made = Made()
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


def test_a_bucket_that_is_asked_for_while_all_others_are_busy_is_kept() -> None:
    made = Made()
    cache = BucketCache(made, max_buckets=1)
    first = cache.get_or_create(1, ADD_U32)
    cache.take_set(first)
    second = cache.get_or_create(2, ADD_U32)
    cache.take_set(second)
    assert cache.get_or_create(2, ADD_U32) is second
    assert cache.evictions == 0


def test_clear_gives_up_all_that_is_idle() -> None:
    made = Made()
    cache = BucketCache(made)
    for size in (1, 2):
        touch(cache, size)
    bucket = cache.get_or_create(3, ADD_U32)
    buffers = cache.take_set(bucket)
    cache.clear()
    assert cache.sizes() == [3]
    assert made.released == [4, 8]
    cache.put_back(bucket, buffers)
    cache.clear()
    assert cache.sizes() == []
    assert made.released == [4, 8, 12]


def test_a_bucket_that_is_given_up_while_somebody_has_it_in_hand_holds_no_released_set() -> None:
    made = Made()
    cache = BucketCache(made, max_buckets=1)
    in_hand = cache.get_or_create(1, ADD_U32)
    cache.put_back(in_hand, cache.take_set(in_hand))
    cache.get_or_create(2, ADD_U32)
    assert [each.releases for each in made.sets] == [1]
    taken = cast(FakeSet, cache.take_set(in_hand))
    assert taken.releases == 0


def test_threads_share_buckets_and_no_set_is_had_by_two() -> None:
    made = Made()
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


class FakeBuffer:
    def __init__(self, size: int, usage: int) -> None:
        self.size, self.usage = size, usage
        self.destroyed = 0

    def destroy(self) -> None:
        self.destroyed += 1


class FakeDevice:
    def __init__(self) -> None:
        self.made: list[FakeBuffer] = []
        self.fails = False

    def create_buffer(self, *, size: int, usage: int) -> FakeBuffer:
        if self.fails:
            raise RuntimeError("not enough memory left")
        self.made.append(FakeBuffer(size, usage))
        return self.made[-1]


def one(pool: BufferPool, nbytes: int, usage: int) -> Any:
    (buffer,) = pool.acquire([(nbytes, usage)])
    return buffer


def test_a_buffer_is_found_again_by_its_size_class() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    buffer = one(pool, 5000, COPY)
    assert buffer.size == 5120
    pool.release(buffer)
    assert pool.stats().bytes_idle == 5120
    assert one(pool, 4097, COPY) is buffer
    pool.release(buffer)
    assert one(pool, 5121, COPY) is not buffer
    assert one(pool, 4096, COPY) is not buffer
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.bytes_idle) == (1, 3, 5120)
    assert stats.hit_rate == 0.25


def test_a_buffer_of_another_usage_is_another_buffer() -> None:
    pool = BufferPool(FakeDevice(), largest=LARGEST)
    buffer = one(pool, 5000, COPY)
    pool.release(buffer)
    other = one(pool, 5000, COPY | MAP)
    assert other is not buffer
    assert other.usage == COPY | MAP
    assert one(pool, 5000, COPY) is buffer


@pytest.mark.parametrize("nbytes", [0, 1, 4, 255, 256])
def test_small_buffers_are_of_one_class(nbytes: int) -> None:
    assert one(BufferPool(FakeDevice(), largest=LARGEST), nbytes, COPY).size == SMALLEST


@pytest.mark.parametrize("nbytes", [257, 1000, 4096, 100_001, 786_432, 1 << 27])
def test_a_buffer_holds_what_was_asked_for_and_a_quarter_more_at_most(nbytes: int) -> None:
    size = one(BufferPool(FakeDevice(), largest=LARGEST), nbytes, COPY).size
    assert nbytes <= size <= nbytes * 1.25 + UNIT
    assert size % 4 == 0


def test_the_hit_rate_is_zero_before_anything_is_asked_for() -> None:
    assert BufferPool(FakeDevice(), largest=LARGEST).stats().hit_rate == 0.0


def test_the_pool_keeps_no_more_bytes_than_it_may_and_the_longest_unused_goes_first() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST, max_idle_bytes=3 * 1024)
    buffers = [one(pool, 1024, COPY) for _ in range(5)]
    for buffer in buffers:
        pool.release(buffer)
        assert pool.stats().bytes_idle <= 3 * 1024
    assert [buffer.destroyed for buffer in buffers] == [1, 1, 0, 0, 0]
    assert one(pool, 1024, COPY) is buffers[4]
    pool.release(buffers[4])
    pool.release(one(pool, 1024, MAP))
    assert [buffer.destroyed for buffer in buffers] == [1, 1, 1, 0, 0]


def test_a_buffer_larger_than_the_pool_is_not_kept() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST, max_idle_bytes=1000)
    pool.release(one(pool, 5000, COPY))
    assert (device.made[0].destroyed, pool.stats().bytes_idle) == (1, 0)


def test_clearing_the_pool_destroys_what_is_idle_and_no_more() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST)
    kept, idle = one(pool, 100, COPY), one(pool, 100, COPY)
    pool.release(idle)
    pool.clear()
    assert (kept.destroyed, idle.destroyed, pool.stats().bytes_idle) == (0, 1, 0)
    assert one(pool, 100, COPY) not in (kept, idle)


def test_a_device_without_memory_is_told_in_words() -> None:
    device = FakeDevice()
    device.fails = True
    pool = BufferPool(device, largest=LARGEST)
    with pytest.raises(
        gx.OutOfMemoryError, match="a buffer of 5,120 bytes: not enough memory left"
    ):
        one(pool, 5000, COPY)


def test_no_buffer_of_the_pool_is_had_by_two_threads() -> None:
    device = FakeDevice()
    pool = BufferPool(device, largest=LARGEST, max_idle_bytes=8 * 1024)
    having: set[int] = set()
    lock = threading.Lock()

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(300):
            buffer = one(pool, draw.choice([256, 1024, 2048]), draw.choice([COPY, MAP]))
            with lock:
                assert id(buffer) not in having
                having.add(id(buffer))
            assert not buffer.destroyed
            with lock:
                having.remove(id(buffer))
            pool.release(buffer)

    in_threads(work)
    stats = pool.stats()
    assert stats.hits + stats.misses == 8 * 300
    assert stats.misses == len(device.made)
    alive = [buffer.size for buffer in device.made if not buffer.destroyed]
    assert stats.bytes_idle == sum(alive) <= 8 * 1024


def signature(count: int, kernel: Kernel = ADD_U32) -> Signature:
    x = np.zeros(count, np.uint32)
    return check(kernel, (x, x))


def fake(nbytes: int = 1) -> Any:
    """For the exact cache, which asks of a set how large it is, and to be released."""
    return FakeSet(nbytes)


def test_a_set_that_is_taken_is_gone_until_it_is_put_back() -> None:
    cache, buffers = ExactSizeCache(), fake()
    assert cache.take(signature(5)) is None
    cache.put_back(signature(5), buffers)
    assert len(cache) == 1
    assert cache.take(signature(6)) is None
    assert cache.take(signature(5)) is buffers
    assert (len(cache), cache.hits) == (0, 1)
    assert cache.take(signature(5)) is None
    assert cache.hits == 1


def test_a_form_observe_the_second_time() -> None:
    cache = ExactSizeCache()
    assert [cache.observe(signature(5)) for _ in range(3)] == [False, True, True]
    assert not cache.observe(signature(6))


def test_sizes_that_came_long_ago_are_forgotten() -> None:
    cache = ExactSizeCache()
    for count in range(1, FORMS_OBSERVED + 2):
        assert not cache.observe(signature(count))
    assert cache.observe(signature(FORMS_OBSERVED + 1))
    assert not cache.observe(signature(1))


def test_the_least_recently_used_exact_set_is_released() -> None:
    cache = ExactSizeCache(max_sets=2)
    sets: list[Any] = [fake(n) for n in range(3)]
    cache.put_back(signature(1), sets[0])
    cache.put_back(signature(2), sets[1])
    taken = cache.take(signature(1))
    assert taken is not None
    assert taken is sets[0]
    cache.put_back(signature(1), taken)
    cache.put_back(signature(3), sets[2])
    assert [each.releases for each in sets] == [0, 1, 0]
    assert len(cache) == 2
    assert cache.take(signature(2)) is None


def test_sets_of_one_form_are_kept_side_by_side_and_each_counts() -> None:
    cache = ExactSizeCache(max_sets=2)
    sets: list[Any] = [fake(n) for n in range(3)]
    for each in sets:
        cache.put_back(signature(1), each)
    assert [each.releases for each in sets] == [1, 0, 0]
    taken = [cache.take(signature(1)) for _ in range(3)]
    assert sorted(map(sets.index, filter(None, taken))) == [1, 2]
    assert (taken[2], len(cache)) == (None, 0)


def test_clearing_the_exact_cache_releases_what_is_idle() -> None:
    cache, sets = ExactSizeCache(), [fake(), fake()]
    cache.put_back(signature(1), sets[0])
    cache.put_back(signature(2), sets[1])
    assert cache.take(signature(1)) is sets[0]
    cache.clear()
    assert [each.releases for each in sets] == [0, 1]
    assert len(cache) == 0


def test_idle_sets_of_too_many_bytes_are_given_up_the_oldest_first() -> None:
    made = Made()
    cache = BucketCache(made, max_bytes=1000)
    for size in (100, 50, 100):
        touch(cache, size)
    assert made.released == []
    touch(cache, 125)
    assert made.released == [200]  # of 50 elements, which were used before the 100
    assert sum(stats.bytes_held for _, stats in cache.stats()) == 900
    touch(cache, 500)  # has more than all may, and is kept alone
    assert made.released == [400, 200, 500]
    assert [stats.bytes_held for _, stats in cache.stats() if stats.bytes_held] == [2000]
    touch(cache, 500)
    assert len(made.sets) == 4


def test_exact_sets_of_too_many_bytes_are_given_up_the_oldest_first() -> None:
    cache, sets = ExactSizeCache(max_bytes=1000), [fake(400), fake(400), fake(400), fake(5000)]
    for number, each in enumerate(sets):
        cache.put_back(signature(number + 1), each)
        if number == 2:
            assert [each.releases for each in sets] == [1, 0, 0, 0]
    assert [each.releases for each in sets] == [1, 1, 1, 0]
    taken: Any = cache.take(signature(4))
    assert taken is sets[3]
    cache.put_back(signature(4), taken)
    assert (len(cache), cache.evict_set(), cache.evict_set(), len(cache)) == (1, True, False, 0)
    assert sets[3].releases == 1
