"""`DeviceMemory`: the device arrays of a backend. It makes and fills them, runs steps on them and
fetches results; `ops` and graphs know it as an `ArrayDevice`.

It also decides whether large primes are multiplied with f64 limbs, by running both variants. Some
GPUs have as many units for f64 as for integers, most have few, and Vulkan does not report which.
Nor does Vulkan promise that fma() rounds once, which those products rely on. The first product of
a large prime took an NVIDIA H200 0.26 s with everything that is made and tried for it, the next
one 0.5 ms.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from gpu_executor.call import Array
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayCopy, Dispatch, Step
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    DeviceLacksError,
    DeviceLostError,
    GpuError,
)
from gpu_executor.fork import DISOWNED, register_fork_handler
from gpu_executor.idle_memory import IdleItem, IdleMemory
from gpu_executor.kernel import Shape, to_native
from gpu_executor.kernels.catalogue import COPY_UNIT_BYTES, copy_kernel
from gpu_executor.kernels.passes import scan_kernel
from gpu_executor.lru import LruCache
from gpu_executor.plan import round_up_to_class
from gpu_executor.primes import BLS12_381_FR, words
from gpu_executor.result_memory import MIN_RECYCLED_BYTES
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.command_stream import BoundStep, CommandStream, RecordedCommands
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.mapped_arrays import BufferRange, MappedArrays, RecycledResults
from gpu_executor.vulkan.memory import Allocation, Owner, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.transfers import MAX_STAGING_BYTES, Readback, Upload

MAX_CACHED = 256
"""Values that `DeviceMemory.cache` holds, such as tables of twiddles."""
KERNEL_COPY_BYTES = 1 << 20
"""From this size on a kernel copies one device array to another: the driver of an NVIDIA H200
moves 0.83 TB/s, reads and writes together, where a kernel moves 4.17 TB/s."""
MIN_BINDING_BYTES = 4
"""Bytes that are bound for an array without elements: Vulkan has no empty bindings."""

F64_LIMB_FEATURES = frozenset({"shaderInt64", "shaderFloat64", "shaderRoundingModeRTZFloat64"})
TRIAL_POINTS, TRIAL_COEFFICIENTS = 1 << 17, 256
"""The trial of f64 limbs evaluates a polynomial: 34 million products, in one chain per point."""
TRIAL_DISTINCT_POINTS = 1 << 11
TRIAL_REPEATS = 5

T = TypeVar("T")


class _Capture(threading.local):
    """Where the steps go that a thread submits while it records a graph, and the memory that it
    allocates while it makes a value for the cache."""

    steps: list[Step] | None = None
    tables: list[Allocation] | None = None


@dataclass(slots=True, eq=False)
class _CachedValue:
    """A value of `DeviceMemory.cache`, such as tables of twiddles."""

    value: Any
    allocations: list[Allocation]
    """The memory of its device arrays."""
    last_used: int
    """In nanoseconds of `time.monotonic_ns`."""


class VulkanStorage:
    """The memory of one device array, which returns to the pool with this object."""

    __slots__ = ("__weakref__", "allocation", "device", "handle", "offset")

    def __init__(self, device: DeviceMemory, allocation: Allocation) -> None:
        self.device = device
        self.allocation = allocation
        self.handle = int(vk.ffi.cast("uintptr_t", allocation.block.buffer))
        """The handle of the buffer, as an integer."""
        self.offset = allocation.offset
        """Where the storage begins in the buffer, in bytes."""

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        return self.device.fetch(self, shape, dtype, offset)

    def __del__(self) -> None:
        # Every result has a storage, and weakref.finalize takes four times as long.
        self.device.release(self.allocation)


class DeviceMemory:
    """The device arrays of a backend: an `ArrayDevice`. Safe from several threads."""

    def __init__(
        self,
        resources: Resources,
        mapped: MappedArrays,
        recycled: RecycledResults,
        idle_memory: IdleMemory,
    ) -> None:
        self.info = resources.device.info
        self.stream = CommandStream(resources)
        self.release = resources.memory.release_when_possible
        self._lend_memory = resources.memory.lend
        self._recycled, self._idle_memory = recycled, idle_memory
        self._readback = Readback(resources, self.stream)
        self._upload = Upload(resources, mapped, self.stream, self._readback)
        self._cache: LruCache[Hashable, _CachedValue] = LruCache()
        self._cache_lock = threading.RLock()
        self._capture = _Capture()
        self._alignment = self.info.limits.buffer_offset_alignment
        self._max_binding_bytes = self.info.limits.max_storage_buffer_range
        register_fork_handler(self._disown_after_fork)

    @functools.cached_property
    def f64_limbs(self) -> bool:
        """Whether products of large primes use f64 limbs, because they are faster here."""
        return try_f64_limbs(self)

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""
        nbytes, tables = math.prod(shape) * dtype.itemsize, self._capture.tables
        owner: Owner = "device array" if tables is None else "table"
        allocation = self.stream.allocate(Purpose.DEVICE, max(nbytes, 1), owner)
        if tables is not None:
            tables.append(allocation)
        return DeviceArray(shape, dtype, VulkanStorage(self, allocation))

    def put(self, array: Array) -> DeviceArray:
        """A copy of a NumPy array on the device.

        The copy runs at once even while a graph is recorded: it is not part of the graph, and an
        array that is cached for later operations has its contents before the graph ever runs.
        """
        nbytes = round_up_to_class(array.nbytes)
        self._note_call(nbytes + min(nbytes, MAX_STAGING_BYTES))
        made = self.empty(array.shape, to_native(array.dtype))
        storage = self._get_storage(made)
        self._upload.copy(array, storage.allocation, storage)
        return made

    def fetch(
        self, storage: VulkanStorage, shape: Shape, dtype: np.dtype[Any], skipped: int = 0
    ) -> Array:
        """The contents of a storage from byte `skipped` on, as a NumPy array."""
        if self._capture.steps is not None:
            raise GpuError(
                "a graph is being recorded, so there is no result to fetch yet; leave its `with` "
                "block and call the graph first"
            )
        source, nbytes = storage.allocation, math.prod(shape) * dtype.itemsize
        self._note_call(2 * round_up_to_class(nbytes))
        offset = source.offset + skipped
        if nbytes >= MIN_RECYCLED_BYTES:
            found = self._recycled.make_one((nbytes,), np.dtype(np.uint8), nbytes)
            if found is not None:
                flat, target = found
                copy = Copy(source.buffer, offset, target.buffer, target.offset, nbytes)
                self._readback.copy(copy, (flat, storage))
                return flat.view(dtype).reshape(shape)
        result = np.empty(shape, dtype)
        self._readback.fetch(source, offset, result.reshape(-1).view(np.uint8), storage)
        return result

    def _note_call(self, nbytes: int) -> None:
        if nbytes > self._idle_memory.largest_call:
            self._idle_memory.note_call(nbytes)

    def find_range(self, array: DeviceArray) -> BufferRange:
        """The buffer range of an array, for a call that may run on another queue.

        It waits for the command stream, so that the call sees everything submitted before.
        """
        self.stream.wait()
        self._check_aligned(array)
        storage = self._get_storage(array)
        block = storage.allocation.block
        return BufferRange(block.buffer, storage.offset + array.offset, True, block.serial)

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, made if there is none; the cache is LRU."""
        with self._cache_lock:
            found = self._cache.use(key)
            if found is None:
                with self.pause_capture(), self._collect_tables() as allocations:
                    found = self._cache[key] = _CachedValue(make(), allocations, 0)
                self._lend(self._cache.evict(MAX_CACHED))
            found.last_used = time.monotonic_ns()
            value: T = found.value
            return value

    def list_idle(self) -> list[IdleItem]:
        """List the cached values that hold memory; none while another thread makes one."""
        self.release_completed()
        if not self._cache_lock.acquire(blocking=False):
            return []
        try:
            return [
                IdleItem(found.last_used, functools.partial(self._evict, key, found))
                for key, found in self._cache.items()
                if found.allocations
            ]
        finally:
            self._cache_lock.release()

    def _evict(self, key: Hashable, cached: _CachedValue) -> None:
        """Remove a value from the cache, unless it is gone or another thread makes one."""
        if self._cache_lock.acquire(blocking=False):
            try:
                if self._cache.get(key) is cached:
                    del self._cache[key]
                    self._lend([cached])
            finally:
                self._cache_lock.release()

    def _lend(self, removed: Iterable[_CachedValue]) -> None:
        """Drop values that left the cache. Whoever still uses one, such as a graph, holds it."""
        for cached in removed:
            for allocation in cached.allocations:
                self._lend_memory(allocation, "device array")
            cached.value = None

    @contextlib.contextmanager
    def _collect_tables(self) -> Iterator[list[Allocation]]:
        """Collect what this thread allocates; inside another collection, for the inner one only."""
        collected: list[Allocation] = []
        before, self._capture.tables = self._capture.tables, collected
        try:
            yield collected
        finally:
            self._capture.tables = before

    def submit(self, steps: Sequence[Step]) -> None:
        """Run steps in order, after everything submitted before; returns at once.

        While this thread records a graph, the steps become part of the graph instead.
        """
        if self._capture.steps is not None:
            self._capture.steps += steps
            return
        self.stream.submit(self._bind(steps))

    def begin_capture(self, steps: list[Step]) -> None:
        """Append what this thread submits to `steps` instead of running it."""
        if self._capture.steps is not None:
            raise GpuError(
                "a graph is being recorded already in this thread; graphs cannot be nested"
            )
        self._capture.steps = steps

    def end_capture(self) -> None:
        """Run what this thread submits again."""
        self._capture.steps = None

    @contextlib.contextmanager
    def pause_capture(self) -> Iterator[None]:
        """Run what this thread submits inside the `with`, even if it records a graph."""
        steps, self._capture.steps = self._capture.steps, None
        try:
            yield
        finally:
            self._capture.steps = steps

    def record(self, steps: Sequence[Step]) -> RecordedCommands:
        """Record steps without running them; the command stream's `replay` runs them."""
        return self.stream.record(self._bind(steps))

    def release_completed(self) -> None:
        """Free arrays that only completed submissions still referred to."""
        with contextlib.suppress(DeviceLostError):
            self._readback.release_completed()
            self.stream.release_completed()

    def close(self) -> None:
        self._readback.close()
        self.stream.close()
        with self._cache_lock:
            self._cache.clear()

    def _disown_after_fork(self) -> None:
        self.stream = self._readback = self._upload = DISOWNED
        self._recycled = self._cache_lock = DISOWNED

    def _bind(self, steps: Sequence[Step]) -> list[BoundStep]:
        """Steps with the buffer ranges of their arrays."""
        bound: list[BoundStep] = []
        for step in steps:
            if isinstance(step, Dispatch):
                self._bind_dispatch(step, bound)
            else:
                self._bind_copy(step, bound)
        return bound

    def _bind_dispatch(self, dispatch: Dispatch, bound: list[BoundStep]) -> None:
        storages: list[VulkanStorage] = []
        bindings: list[int] = []
        least, most = MIN_BINDING_BYTES, self._max_binding_bytes
        total = 0
        for array in dispatch.arrays:
            storage, nbytes = array.storage, array.nbytes
            total += nbytes
            # The fast path: nearly all arrays are like this, and a dispatch has up to five.
            if (
                isinstance(storage, VulkanStorage)
                and storage.device is self
                and not array.offset
                and least <= nbytes <= most
            ):
                storages.append(storage)
                bindings += (storage.handle, storage.offset, nbytes)
            else:
                is_input = len(storages) < dispatch.kernel.inputs
                usable = self._make_bindable(dispatch, array, bound, is_input=is_input)
                storage = self._get_storage(usable)
                storages.append(storage)
                bindings += (storage.handle, storage.offset + usable.offset, max(nbytes, least))
        self._note_call(total)
        bound.append(BoundStep(dispatch, storages, dispatch.kernel.inputs, bindings))

    def _make_bindable(
        self, dispatch: Dispatch, array: DeviceArray, bound: list[BoundStep], *, is_input: bool
    ) -> DeviceArray:
        """The array; a copy of an input at an unaligned offset. The copy is appended to `bound`."""
        if array.nbytes > self._max_binding_bytes:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: an array has {array.nbytes:,} bytes; {self.info.name} "
                f"binds {self._max_binding_bytes:,} bytes at most"
            )
        if is_input and array.offset % self._alignment:
            copy = self.empty(array.shape, array.dtype)
            self._bind_copy(ArrayCopy(array, copy), bound)
            return copy
        self._check_aligned(array)
        return array

    def _bind_copy(self, step: ArrayCopy, bound: list[BoundStep]) -> None:
        source, target = step.source, step.target
        if source.nbytes != target.nbytes:
            raise ArgumentShapeError(
                f"an array of {source.nbytes:,} bytes cannot be copied to one of "
                f"{target.nbytes:,} bytes"
            )
        storages = [self._get_storage(each) for each in (source, target)]
        start, end = (each.allocation for each in storages)
        if self._copies_by_kernel(step, storages):
            units = source.nbytes // COPY_UNIT_BYTES
            dispatch = Dispatch(copy_kernel(), (source, target), units, grid_stride=True)
            self._bind_dispatch(dispatch, bound)
        elif source.nbytes:
            copy = Copy(
                start.buffer,
                start.offset + source.offset,
                end.buffer,
                end.offset + target.offset,
                source.nbytes,
            )
            bound.append(BoundStep(copy, storages, 1))

    def _copies_by_kernel(self, step: ArrayCopy, storages: Sequence[VulkanStorage]) -> bool:
        """Whether a copy is large, and both arrays can be bound and consist of whole units."""
        nbytes = step.source.nbytes
        offsets = [
            storage.offset + array.offset
            for storage, array in zip(storages, (step.source, step.target), strict=True)
        ]
        return (
            self.info.kind != "cpu"
            and KERNEL_COPY_BYTES <= nbytes <= self._max_binding_bytes
            and nbytes % COPY_UNIT_BYTES == 0
            and not any(offset % COPY_UNIT_BYTES or offset % self._alignment for offset in offsets)
        )

    def _get_storage(self, array: DeviceArray) -> VulkanStorage:
        storage = array.storage
        if not isinstance(storage, VulkanStorage):
            raise ArgumentTypeError(
                "the array is on a device of another kind of backend; fetch it with numpy()"
            )
        if storage.device is not self:
            raise ClosedError(
                "the array is on the device of another backend; fetch it with numpy()"
            )
        return storage

    def _check_aligned(self, array: DeviceArray) -> None:
        # Storages are aligned for any use, so only the offset of the array matters.
        if array.offset % self._alignment:
            raise ArgumentShapeError(
                f"the array begins {array.offset:,} bytes into another one; kernels on "
                f"{self.info.name} need a multiple of {self._alignment} bytes"
            )


def try_f64_limbs(device_memory: DeviceMemory) -> bool:
    """Whether a polynomial has the same values with f64 limbs as with integers, and sooner."""
    if not device_memory.info.features >= F64_LIMB_FEATURES:
        return False
    prime = BLS12_381_FR
    kernels = [scan_kernel(prime, "evaluate", f64_limbs=f64_limbs) for f64_limbs in (False, True)]
    draw = np.random.default_rng(1)
    drawn = [int.from_bytes(draw.bytes(31), "little") for _ in range(TRIAL_DISTINCT_POINTS)]
    drawn[:3] = 0, 1, prime.modulus - 1
    distinct = words.from_ints(prime, drawn)
    with device_memory.pause_capture():
        coefficients = device_memory.put(distinct[-TRIAL_COEFFICIENTS:])
        repeats = TRIAL_POINTS // TRIAL_DISTINCT_POINTS
        points = device_memory.put(np.tile(distinct, (repeats, 1)))
        results = [device_memory.empty(points.shape, points.dtype) for _ in kernels]
        best = [float("inf")] * len(kernels)
        for _ in range(TRIAL_REPEATS):
            for index, (kernel, result) in enumerate(zip(kernels, results, strict=True)):
                arrays = coefficients, points, result
                push_words = (TRIAL_COEFFICIENTS,)
                work = Dispatch(kernel, arrays, TRIAL_POINTS, push_words, grid_stride=True)
                best[index] = min(best[index], _time_dispatch(device_memory, work))
        with_integers, with_f64_limbs = (result.numpy() for result in results)
    return np.array_equal(with_integers, with_f64_limbs) and best[1] < best[0]


def _time_dispatch(device_memory: DeviceMemory, work: Dispatch) -> float:
    """The seconds of one dispatch, from an idle device to an idle device."""
    device_memory.stream.wait()
    begun = perf_counter()
    device_memory.submit([work])
    device_memory.stream.wait()
    return perf_counter() - begun
