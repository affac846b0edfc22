"""Whether a device multiplies large primes' elements faster as doubles: tried, not looked up.

Some GPUs have as many units for doubles as for integers, most have few, and Vulkan does not say
which. Nor does it promise that fma() rounds once, which those products rely on. The first product
of a large prime took an NVIDIA H200 0.26 s with all that is made and tried for it, the next 0.5 ms.

Arrays on the card: made, filled, fetched.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
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
from gpu_executor.kernel import Shape, to_native
from gpu_executor.kernels.catalogue import COPY_UNIT_BYTES, copy_kernel
from gpu_executor.kernels.passes import scan_kernel
from gpu_executor.lru import LruCache
from gpu_executor.primes import BLS12_381_FR, words
from gpu_executor.result_memory import SMALLEST
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.command_stream import CommandStream, PlacedStep, RecordedCommands
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.mapped_arrays import BufferRange, MappedArrays, RecycledResults
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.transfers import Readback, Upload

NEEDED = frozenset({"shaderInt64", "shaderFloat64", "shaderRoundingModeRTZFloat64"})
POINTS, COEFFICIENTS = 1 << 17, 256
"""Of a polynomial with so many coefficients, evaluated at so many points: 34 million products, each
but the first of a point behind another."""
DIFFERENT = 1 << 11
TURNS = 5


def f64_limbs_pay(device_memory: DeviceMemory) -> bool:
    """Whether values of a polynomial come out the same by doubles as by integers, and sooner."""
    if not device_memory.info.features >= NEEDED:
        return False
    prime = BLS12_381_FR
    kernels = [scan_kernel(prime, "evaluate", f64_limbs=f64_limbs) for f64_limbs in (False, True)]
    draw = np.random.default_rng(1)
    drawn = [int.from_bytes(draw.bytes(31), "little") for _ in range(DIFFERENT)]
    drawn[:3] = 0, 1, prime.modulus - 1
    some = words.from_ints(prime, drawn)
    with device_memory.not_recorded():
        coefficients = device_memory.put(some[-COEFFICIENTS:])
        points = device_memory.put(np.tile(some, (POINTS // DIFFERENT, 1)))
        results = [device_memory.empty(points.shape, points.dtype) for _ in kernels]
        best = [float("inf")] * len(kernels)
        for _ in range(TURNS):
            for index, (kernel, result) in enumerate(zip(kernels, results, strict=True)):
                arrays = coefficients, points, result
                work = Dispatch(kernel, arrays, POINTS, (COEFFICIENTS,), grid_stride=True)
                best[index] = min(best[index], _seconds(device_memory, work))
        by_integers, by_doubles = (result.numpy() for result in results)
    return np.array_equal(by_integers, by_doubles) and best[1] < best[0]


def _seconds(device_memory: DeviceMemory, work: Dispatch) -> float:
    """From an idle device until it is idle again."""
    device_memory.stream.wait()
    begun = perf_counter()
    device_memory.submit([work])
    device_memory.stream.wait()
    return perf_counter() - begun


MAX_CACHED = 256
"""Values that `DeviceMemory.cache` holds, such as tables of twiddles."""
MUCH_TO_COPY = 1 << 20
"""Bytes that a kernel copies from one card array to another: an NVIDIA H200's driver moves 0.83
TB/s, reading and writing, where a kernel moves 4.17."""
LEAST_BOUND = 4
"""Bytes of a binding, also of an array without elements: Vulkan takes none of no bytes."""
T = TypeVar("T")


class _Capturing(threading.local):
    """What the thread's submissions are added to, while it records a graph."""

    steps: list[Step] | None = None


class VulkanStorage:
    """The memory of one array on the card, which goes back to the pool with this."""

    __slots__ = ("__weakref__", "allocation", "device", "handle", "offset")

    def __init__(self, device: DeviceMemory, allocation: Allocation) -> None:
        self.device = device
        """Those that it is one of."""
        self.allocation = allocation
        self.handle = int(vk.ffi.cast("uintptr_t", allocation.block.buffer))
        """The buffer's, as a number, and where in it the storage begins."""
        self.offset = allocation.offset

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        return self.device.fetch(self, shape, dtype, offset)

    def __del__(self) -> None:
        # Every result has one of these: a finalizer of weakref's takes four times as long.
        self.device.release(self.allocation)


class DeviceMemory:
    """Makes arrays on the card, moves data to and from them and runs dispatches on them: a `Card`.
    Safe from several threads."""

    def __init__(
        self, resources: Resources, mapped: MappedArrays, recycled: RecycledResults
    ) -> None:
        self.info = resources.device.info
        self.stream = CommandStream(resources)
        self.release = resources.memory.release_when_possible
        self._recycled = recycled
        self._readback = Readback(resources, self.stream)
        self._upload = Upload(resources, mapped, self.stream, self._readback)
        self._cache: LruCache[Hashable, Any] = LruCache()
        self._keeping = threading.RLock()
        self._capturing = _Capturing()
        self._alignment = self.info.limits.buffer_offset_alignment
        self._largest = self.info.limits.max_storage_buffer_range
        register_fork_handler(self._disown_after_fork)

    @functools.cached_property
    def f64_limbs(self) -> bool:
        """Whether products of large primes are made of doubles here, because that is faster."""
        return f64_limbs_pay(self)

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Room on the card, its contents whatever was there before."""
        nbytes = math.prod(shape) * dtype.itemsize
        allocation = self.stream.allocate(Purpose.DEVICE, max(nbytes, 1))
        return DeviceArray(shape, dtype, VulkanStorage(self, allocation))

    def put(self, array: Array) -> DeviceArray:
        """A copy of an array on the card, made now also while a graph is recorded: it is no part of
        that, and what is kept for later operations is there for those outside of it too."""
        made = self.empty(array.shape, to_native(array.dtype))
        storage = self._storage(made)
        self._upload.copy(array, storage.allocation, storage)
        return made

    def fetch(
        self, storage: VulkanStorage, shape: Shape, dtype: np.dtype[Any], skipped: int = 0
    ) -> Array:
        """The contents of a storage, from a byte on, as a NumPy array."""
        if self._capturing.steps is not None:
            raise GpuError("a graph is being recorded: there is no result to fetch yet")
        source, nbytes = storage.allocation, math.prod(shape) * dtype.itemsize
        offset = source.offset + skipped
        if nbytes >= SMALLEST:
            found = self._recycled.make_one((nbytes,), np.dtype(np.uint8), nbytes)
            if found is not None:
                flat, place = found
                copy = Copy(source.buffer, offset, place.buffer, place.offset, nbytes)
                self._readback.run(copy, (flat, storage))
                return flat.view(dtype).reshape(shape)
        result = np.empty(shape, dtype)
        self._readback.fetch(source, offset, result.reshape(-1).view(np.uint8), storage)
        return result

    def place(self, array: DeviceArray) -> BufferRange:
        """Where kernels of calls find an array of these. They may go to other queues than the
        chain, which is waited for."""
        self.stream.wait()
        self._check_aligned(array)
        storage = self._storage(array)
        block = storage.allocation.block
        return BufferRange(block.buffer, storage.offset + array.offset, True, block.serial)

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, made if there is none; the cache is LRU."""
        with self._keeping:
            found: T | None = self._cache.use(key)
            if found is None:
                with self.not_recorded():
                    found = self._cache[key] = make()
                self._cache.evict(MAX_CACHED)
            return found

    def submit(self, steps: Sequence[Step]) -> None:
        """Run them in this order, after all that was submitted before; returns at once."""
        if self._capturing.steps is not None:
            self._capturing.steps += steps
            return
        self.stream.submit(self._placed(steps))

    def capture(self, steps: list[Step] | None) -> None:
        """From now on what this thread submits goes to a list instead, until None is given."""
        if steps is not None and self._capturing.steps is not None:
            raise GpuError("a graph is being recorded already")
        self._capturing.steps = steps

    @contextlib.contextmanager
    def not_recorded(self) -> Iterator[None]:
        """For what has to be done at once, also while this thread records a graph."""
        steps, self._capturing.steps = self._capturing.steps, None
        try:
            yield
        finally:
            self._capturing.steps = steps

    def record(self, steps: Sequence[Step]) -> RecordedCommands:
        """Commands for these steps, to be run any number of times."""
        return self.stream.record(self._placed(steps))

    def let_go_of_done(self) -> None:
        """Free the memory of arrays that nobody has, and that the device has done with."""
        with contextlib.suppress(DeviceLostError):
            self._readback.let_go_of_done()
            self.stream.let_go_of_done()

    def close(self) -> None:
        self._readback.close()
        self.stream.close()
        with self._keeping:
            self._cache.clear()

    def _disown_after_fork(self) -> None:
        self.stream = self._readback = self._upload = DISOWNED
        self._recycled = self._keeping = DISOWNED

    def _placed(self, steps: Sequence[Step]) -> list[PlacedStep]:
        placed: list[PlacedStep] = []
        for step in steps:
            if isinstance(step, Dispatch):
                self._place_dispatch(step, placed)
            else:
                self._place_copy(step, placed)
        return placed

    def _place_dispatch(self, dispatch: Dispatch, placed: list[PlacedStep]) -> None:
        storages: list[VulkanStorage] = []
        numbers: list[int] = []
        least, most = LEAST_BOUND, self._largest
        for array in dispatch.arrays:
            storage, nbytes = array.storage, array.nbytes
            # Nearly all are like this, and dispatches have up to five of them.
            if (
                isinstance(storage, VulkanStorage)
                and storage.device is self
                and not array.offset
                and least <= nbytes <= most
            ):
                storages.append(storage)
                numbers += (storage.handle, storage.offset, nbytes)
            else:
                is_input = len(storages) < dispatch.kernel.inputs
                bound = self._bindable(dispatch, array, placed, is_input=is_input)
                storage = self._storage(bound)
                storages.append(storage)
                numbers += (storage.handle, storage.offset + bound.offset, max(nbytes, least))
        placed.append(PlacedStep(dispatch, storages, dispatch.kernel.inputs, numbers))

    def _bindable(
        self, dispatch: Dispatch, array: DeviceArray, placed: list[PlacedStep], *, is_input: bool
    ) -> DeviceArray:
        """The array, or of an input that begins where none can be bound a copy, made before."""
        if array.nbytes > self._largest:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: an array of {array.nbytes:,} bytes; {self.info.name} "
                f"binds {self._largest:,} at most"
            )
        if is_input and array.offset % self._alignment:
            there = self.empty(array.shape, array.dtype)
            self._place_copy(ArrayCopy(array, there), placed)
            return there
        self._check_aligned(array)
        return array

    def _place_copy(self, copying: ArrayCopy, placed: list[PlacedStep]) -> None:
        source, target = copying.source, copying.target
        if source.nbytes != target.nbytes:
            raise ArgumentShapeError(
                f"{source.nbytes:,} bytes cannot be copied to {target.nbytes:,}"
            )
        storages = [self._storage(each) for each in (source, target)]
        start, end = (each.allocation for each in storages)
        if self._copies_by_kernel(copying, storages):
            units = source.nbytes // COPY_UNIT_BYTES
            kernel = Dispatch(copy_kernel(), (source, target), units, grid_stride=True)
            self._place_dispatch(kernel, placed)
        elif source.nbytes:
            copy = Copy(
                start.buffer,
                start.offset + source.offset,
                end.buffer,
                end.offset + target.offset,
                source.nbytes,
            )
            placed.append(PlacedStep(copy, storages, 1))

    def _copies_by_kernel(self, copying: ArrayCopy, storages: Sequence[VulkanStorage]) -> bool:
        """Whether whole units of both arrays can be bound, and there are enough of them."""
        nbytes = copying.source.nbytes
        begins = [
            storage.offset + array.offset
            for storage, array in zip(storages, (copying.source, copying.target), strict=True)
        ]
        return (
            self.info.kind != "cpu"
            and MUCH_TO_COPY <= nbytes <= self._largest
            and nbytes % COPY_UNIT_BYTES == 0
            and not any(begin % COPY_UNIT_BYTES or begin % self._alignment for begin in begins)
        )

    def _storage(self, array: DeviceArray) -> VulkanStorage:
        storage = array.storage
        if not isinstance(storage, VulkanStorage):
            raise ArgumentTypeError("an array on the card of another kind of backend")
        if storage.device is not self:
            raise ClosedError(
                "the array lies on the card of another backend; fetch it with numpy()"
            )
        return storage

    def _check_aligned(self, array: DeviceArray) -> None:
        """Allocations are aligned for any use, so it is the array's own offset that counts."""
        if array.offset % self._alignment:
            raise ArgumentShapeError(
                f"an array that begins {array.offset:,} bytes into another; kernels on "
                f"{self.info.name} take what begins at a multiple of {self._alignment}"
            )
