"""Buckets: sizes that near sizes share, so that what is made for one serves them all.

A bucket is a number of elements. Its buffer sets have room for as many, so a task of any size in
the bucket can use any of them, with the bind group that was made with the set; the pipeline that
suits the bucket is compiled once (`programs.py`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_executor.kernel import Kernel
from gpu_executor.lru import LruCache
from gpu_executor.webgpu.sets import BufferSet

BUCKETS_KEPT = 32
KEPT_BYTES = 512 << 20
"""Of idle buffer sets."""


@dataclass(frozen=True, slots=True)
class BucketStats:
    """What one bucket of one kernel has done and holds."""

    kernel: str
    bucket: int
    hits: int
    """Tasks that found a buffer set."""
    misses: int
    """Tasks for which one was made."""
    evictions: int
    """How often it was given up."""
    bytes_held: int
    pipelines: int = 0
    """Compiled for it: one, or none where another serves meanwhile."""
    compile_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Bucket:
    """Idle buffer sets for tasks of one kernel with up to `size` elements."""

    kernel: Kernel
    size: int
    idle: list[BufferSet] = field(default_factory=list)
    busy: int = 0
    """Sets that tasks have."""
    hits: int = 0
    misses: int = 0

    def stats(self, evictions: int) -> BucketStats:
        held = sum(each.nbytes for each in self.idle)
        return BucketStats(self.kernel.name, self.size, self.hits, self.misses, evictions, held)


class BucketCache:
    """Buckets by kernel and size, made when they are first used. Safe from several threads.

    The least recently used are given up first, and none that a task is in flight in. Idle sets of
    more than `most_bytes` are given up too, all but the last one.
    """

    def __init__(
        self,
        make_set: Callable[..., BufferSet],
        *,
        most: int = BUCKETS_KEPT,
        most_bytes: int = KEPT_BYTES,
    ) -> None:
        """`make_set` is called with a kernel, a size and whether to `wait` for memory."""
        self._make_set, self._most, self._most_bytes = make_set, most, most_bytes
        self._bytes_idle = 0
        self._buckets: LruCache[tuple[Kernel, int], Bucket] = LruCache()
        self._lock = threading.RLock()
        self._evictions: Counter[tuple[str, int]] = Counter()

    def get_or_create(self, bucket: int, kernel: Kernel) -> Bucket:
        """The bucket of that size for a kernel."""
        key = kernel, bucket
        with self._lock:
            found = self._buckets.use(key)
            if found is None:
                found = self._buckets[key] = Bucket(kernel, bucket)
                self._evict(keep=found)
        return found

    def take_set(self, bucket: Bucket, *, wait: bool = True) -> BufferSet:
        """A buffer set of a bucket for one task; give it back with `put_back`."""
        with self._lock:
            bucket.busy += 1
            if bucket.idle:
                bucket.hits += 1
                taken = bucket.idle.pop()
                self._bytes_idle -= taken.nbytes
                return taken
            bucket.misses += 1
        try:
            return self._make_set(bucket.kernel, bucket.size, wait=wait)
        except BaseException:
            with self._lock:
                bucket.busy -= 1
            raise

    def put_back(self, bucket: Bucket, buffers: BufferSet) -> None:
        """When the device is done with what used them."""
        with self._lock:
            bucket.busy -= 1
            if self._buckets.get((bucket.kernel, bucket.size)) is bucket:
                while self._bytes_idle + buffers.nbytes > self._most_bytes:
                    if not self.give_up_set():
                        break
                bucket.idle.append(buffers)
                self._bytes_idle += buffers.nbytes
            else:
                buffers.release()
            self._evict()

    def lose_set(self, bucket: Bucket) -> None:
        """A set that was taken does not come back."""
        with self._lock:
            bucket.busy -= 1
            self._evict()

    def give_up_set(self) -> bool:
        """One idle set of the least recently used bucket that has any; whether there was one."""
        with self._lock:
            for bucket in self._buckets.values():
                if bucket.idle:
                    oldest = bucket.idle.pop(0)
                    self._bytes_idle -= oldest.nbytes
                    oldest.release()
                    return True
        return False

    def used(self) -> dict[str, list[int]]:
        """Sizes by the name of a kernel."""
        with self._lock:
            names: dict[str, set[int]] = {}
            for bucket in self._buckets.values():
                names.setdefault(bucket.kernel.name, set()).add(bucket.size)
        return {name: sorted(sizes) for name, sizes in names.items()}

    def sizes(self) -> list[int]:
        """The sizes that are cached, each once."""
        with self._lock:
            return sorted({bucket.size for bucket in self._buckets.values()})

    @property
    def evictions(self) -> int:
        """How often a bucket was given up for another."""
        return self._evictions.total()

    def stats(self) -> list[tuple[Kernel, BucketStats]]:
        """Of every bucket that is there."""
        with self._lock:
            return [
                (bucket.kernel, bucket.stats(self._evictions[bucket.kernel.name, bucket.size]))
                for bucket in self._buckets.values()
            ]

    def clear(self) -> None:
        """Give up all that no task is in flight in."""
        with self._lock:
            for unused in self._buckets.evict(0, in_use=lambda each: each.busy > 0):
                self._give_up(unused)

    def _evict(self, keep: Bucket | None = None) -> None:
        for unused in self._buckets.evict(
            self._most, in_use=lambda each: each.busy > 0 or each is keep
        ):
            self._give_up(unused)
            self._evictions[unused.kernel.name, unused.size] += 1

    def _give_up(self, bucket: Bucket) -> None:
        for buffers in bucket.idle:
            self._bytes_idle -= buffers.nbytes
            buffers.release()
        bucket.idle.clear()  # somebody may have it in hand already, about to take a set
