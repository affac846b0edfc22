"""Two caches of idle buffer sets: by bucket, and by exact size.

The size of a bucket is a number of elements. Its buffer sets hold that many, so a task of any size
in the bucket can use any of these sets with its existing bind group. Tasks of different sizes
therefore share sets, and a new size creates no new objects.

The exact-size cache is for single tasks whose size repeats: one look-up finds everything they need.

A set that a task uses is in neither cache, so it cannot be evicted while it is in flight. Idle sets
are part of the executor's idle memory: beyond its budget the least recently used set of both caches
is released first.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_executor.arrays.idle_memory import IdleItem
from gpu_executor.calls.call import Signature
from gpu_executor.common.lru import LruCache
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.wgpu_stats import BucketStats

MAX_BUCKETS = 32
MAX_EXACT_SETS = 16
SIGNATURES_OBSERVED = 64
"""Recent calls that the exact-size cache remembers, to find sizes that repeat."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Idle buffer sets for tasks of one kernel with up to `size` elements."""

    kernel: Kernel
    size: int
    idle: list[BufferSet] = field(default_factory=list)
    busy: int = 0
    """Buffer sets of this bucket that tasks are using."""
    hits: int = 0
    misses: int = 0

    def stats(self, evictions: int) -> BucketStats:
        """Return the bucket's counters. The cache passes `evictions`, which it counts itself."""
        held = sum(each.nbytes for each in self.idle)
        return BucketStats(self.kernel.name, self.size, self.hits, self.misses, evictions, held)


class BucketCache:
    """Buckets by kernel and size, created when they are first used. Thread-safe.

    The least recently used bucket without a task in flight is evicted first.
    """

    def __init__(
        self, make_set: Callable[..., BufferSet], *, max_buckets: int = MAX_BUCKETS
    ) -> None:
        """`make_set` is called with a kernel, a size and whether to `wait` for memory."""
        self._make_set, self._max_buckets = make_set, max_buckets
        self.bytes_idle = 0
        """The bytes of the idle sets."""
        self._buckets: LruCache[tuple[Kernel, int], Bucket] = LruCache()
        self._lock = threading.RLock()
        self._evictions: Counter[tuple[str, int]] = Counter()

    def get_or_create(self, size: int, kernel: Kernel) -> Bucket:
        """Return a kernel's bucket of that size; create it if there is none."""
        key = kernel, size
        with self._lock:
            bucket = self._buckets.use(key)
            if bucket is None:
                bucket = self._buckets[key] = Bucket(kernel, size)
                self._evict_buckets(keep=bucket)
        return bucket

    def take_set(self, bucket: Bucket, *, wait: bool = True) -> BufferSet:
        """Take or make a buffer set for one task; `put_back` or `forget_set` must follow."""
        with self._lock:
            bucket.busy += 1
            if bucket.idle:
                bucket.hits += 1
                taken = bucket.idle.pop()
                self.bytes_idle -= taken.nbytes
                return taken
            bucket.misses += 1
        try:
            return self._make_set(bucket.kernel, bucket.size, wait=wait)
        except BaseException:
            with self._lock:
                bucket.busy -= 1
            raise

    def put_back(self, bucket: Bucket, buffers: BufferSet) -> None:
        """Put back a set that was taken. No submission may still use it."""
        with self._lock:
            bucket.busy -= 1
            if self._buckets.get((bucket.kernel, bucket.size)) is bucket:
                buffers.last_used = time.monotonic_ns()
                bucket.idle.append(buffers)
                self.bytes_idle += buffers.nbytes
            else:
                buffers.release()
            self._evict_buckets()

    def forget_set(self, bucket: Bucket) -> None:
        """Stop counting a set as in use: it was taken and will not be put back."""
        with self._lock:
            bucket.busy -= 1
            self._evict_buckets()

    def evict_set(self) -> bool:
        """Release an idle set of the least recently used bucket that has one; return whether there
        was one."""
        with self._lock:
            for bucket in self._buckets.values():
                if bucket.idle:
                    self._release_set(bucket, bucket.idle[0])
                    return True
        return False

    def list_idle(self) -> list[IdleItem]:
        """List the idle sets."""
        with self._lock:
            return [
                IdleItem(each.last_used, functools.partial(self._release_set, bucket, each))
                for bucket in self._buckets.values()
                for each in bucket.idle
            ]

    def sizes_by_kernel(self) -> dict[str, list[int]]:
        """Return the sizes of the cached buckets by the name of their kernel."""
        with self._lock:
            names: dict[str, set[int]] = {}
            for bucket in self._buckets.values():
                names.setdefault(bucket.kernel.name, set()).add(bucket.size)
        return {name: sorted(sizes) for name, sizes in names.items()}

    def sizes(self) -> list[int]:
        """Return the sizes of the cached buckets, each once."""
        with self._lock:
            return sorted({bucket.size for bucket in self._buckets.values()})

    @property
    def evictions(self) -> int:
        """How often a bucket was evicted."""
        return self._evictions.total()

    def stats(self) -> list[tuple[Kernel, BucketStats]]:
        """Return the counters of every cached bucket, with its kernel."""
        with self._lock:
            return [
                (bucket.kernel, bucket.stats(self._evictions[bucket.kernel.name, bucket.size]))
                for bucket in self._buckets.values()
            ]

    def clear(self) -> None:
        """Remove all buckets without a task in flight, and release their sets."""
        with self._lock:
            for unused in self._buckets.evict(0, in_use=lambda each: each.busy > 0):
                self._release_sets(unused)

    def _evict_buckets(self, keep: Bucket | None = None) -> None:
        for unused in self._buckets.evict(
            self._max_buckets, in_use=lambda each: each.busy > 0 or each is keep
        ):
            self._release_sets(unused)
            self._evictions[unused.kernel.name, unused.size] += 1

    def _release_sets(self, bucket: Bucket) -> None:
        # Another thread may hold a reference to the bucket and be about to take a set from it.
        while bucket.idle:
            self._release_set(bucket, bucket.idle[0])

    def _release_set(self, bucket: Bucket, buffers: BufferSet) -> None:
        """Release an idle set, unless a task uses it or it was released."""
        with self._lock:
            if buffers in bucket.idle:
                bucket.idle.remove(buffers)
                self.bytes_idle -= buffers.nbytes
                buffers.release()


class ExactSizeCache:
    """Idle buffer sets by the signature of a call: its kernel, shapes and dtypes. Thread-safe.

    While there are more than `max_sets` sets, the least recently used one is evicted. A signature
    can have several sets: a batch of calls that cannot share a bucket needs them.
    """

    def __init__(self, *, max_sets: int = MAX_EXACT_SETS) -> None:
        self._max_sets = max_sets
        self.bytes_idle = 0
        """The bytes of the sets."""
        self._idle: OrderedDict[Signature, list[BufferSet]] = OrderedDict()
        self._count = 0
        self._observed: deque[Signature] = deque(maxlen=SIGNATURES_OBSERVED)
        self._lock = threading.Lock()
        self.hits = 0

    def take(self, signature: Signature) -> BufferSet | None:
        """Take an idle set for calls of that signature, if there is one."""
        with self._lock:
            sets = self._idle.get(signature)
            if sets is None:
                return None
            self.hits += 1
            taken = sets[-1]
            self._remove(signature, taken)
            return taken

    def observe(self, signature: Signature) -> bool:
        """Remember a call's signature; return whether a recent call had the same signature."""
        with self._lock:
            if signature in self._observed:
                return True
            self._observed.append(signature)
            return False

    def put_back(self, signature: Signature, buffers: BufferSet) -> None:
        """Put a set into the cache. No submission may still use it."""
        buffers.last_used = time.monotonic_ns()
        with self._lock:
            self._idle.setdefault(signature, []).append(buffers)
            self._idle.move_to_end(signature)
            self._count += 1
            self.bytes_idle += buffers.nbytes
            surplus = []
            while self._count > self._max_sets and self._idle:
                surplus.append(self._pop_oldest())
        for each in surplus:
            each.release()

    def evict_set(self) -> bool:
        """Release the least recently used set; return whether there was one."""
        with self._lock:
            oldest = self._pop_oldest() if self._idle else None
        if oldest is not None:
            oldest.release()
        return oldest is not None

    def list_idle(self) -> list[IdleItem]:
        """List the sets."""
        with self._lock:
            return [
                IdleItem(each.last_used, functools.partial(self._release_set, signature, each))
                for signature, sets in self._idle.items()
                for each in sets
            ]

    def clear(self) -> None:
        """Release all sets."""
        with self._lock:
            idle = [buffers for sets in self._idle.values() for buffers in sets]
            self._idle.clear()
            self._count = self.bytes_idle = 0
        for buffers in idle:
            buffers.release()

    def __len__(self) -> int:
        return self._count

    def _release_set(self, signature: Signature, buffers: BufferSet) -> None:
        """Release a set, unless a task uses it or it was released."""
        with self._lock:
            sets = self._idle.get(signature, [])
            if buffers not in sets:
                return
            self._remove(signature, buffers)
        buffers.release()

    def _pop_oldest(self) -> BufferSet:
        signature, sets = next(iter(self._idle.items()))
        oldest = sets[0]
        self._remove(signature, oldest)
        return oldest

    def _remove(self, signature: Signature, taken: BufferSet) -> None:
        """Remove a set. An interrupt may come between any two of these lines: then the set is
        counted for ever, but no signature is left without sets."""
        sets = self._idle[signature]
        if len(sets) == 1:
            del self._idle[signature]
        else:
            sets.remove(taken)
        self._count -= 1
        self.bytes_idle -= taken.nbytes
