"""Arrays on the card: made, filled, fetched."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from gpu_executor.call import Array
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import Copying, Dispatch, Step
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    DeviceLacksError,
    DeviceLostError,
    GpuError,
)
from gpu_executor.forking import LEFT_TO_PARENT, tell_in_child
from gpu_executor.kernel import Shape, native
from gpu_executor.kernels.copies import UNIT_BYTES, copy_kernel
from gpu_executor.lru import LruCache
from gpu_executor.recycling import SMALLEST
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.chain import Chain, Placed, Recorded
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.doubles import doubles_pay
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.places import Place
from gpu_executor.vulkan.recycled import RecycledResults
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.to_card import ToCard
from gpu_executor.vulkan.waited_copies import WaitedCopies

KEPT = 256
"""Tables and the like that operations of several dispatches keep on the card."""
MUCH_TO_COPY = 1 << 20
"""Bytes that a kernel copies from one card array to another: an NVIDIA H200's driver moves 0.83
TB/s, reading and writing, where a kernel moves 4.17."""
LEAST_BOUND = 4
"""Bytes of a binding, also of an array without elements: Vulkan takes none of no bytes."""
T = TypeVar("T")


class _Capturing(threading.local):
    """What the thread's submissions are added to, while it records a graph."""

    steps: list[Step] | None = None


class CardStorage:
    """The memory of one array on the card, which goes back to the pool with this."""

    __slots__ = ("__weakref__", "allocation", "card", "handle", "offset")

    def __init__(self, card: CardArrays, allocation: Allocation) -> None:
        self.card = card
        """Those that it is one of."""
        self.allocation = allocation
        self.handle = int(vk.ffi.cast("uintptr_t", allocation.block.buffer))
        """The buffer's, as a number, and where in it the storage begins."""
        self.offset = allocation.offset

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        return self.card.fetch(self, shape, dtype, offset)

    def __del__(self) -> None:
        # Every result has one of these: a finalizer of weakref's takes four times as long.
        self.card.release(self.allocation)


class CardArrays:
    """Makes arrays on the card, moves data to and from them and runs dispatches on them: a `Card`.
    Safe from several threads."""

    def __init__(
        self, resources: Resources, mapped: MappedArrays, recycled: RecycledResults
    ) -> None:
        self.info = resources.device.info
        self.chain = Chain(resources)
        self.release = resources.memory.release_when_possible
        self._recycled = recycled
        self._waited = WaitedCopies(resources, self.chain)
        self._to_card = ToCard(resources, mapped, self.chain, self._waited)
        self._kept: LruCache[Hashable, Any] = LruCache()
        self._keeping = threading.RLock()
        self._capturing = _Capturing()
        self._alignment = self.info.limits.buffer_offset_alignment
        self._largest = self.info.limits.max_storage_buffer_range
        tell_in_child(self._leave_to_parent)

    @functools.cached_property
    def doubles(self) -> bool:
        """Whether products of large primes are made of doubles here, because that is faster."""
        return doubles_pay(self)

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Room on the card, its contents whatever was there before."""
        nbytes = math.prod(shape) * dtype.itemsize
        allocation = self.chain.allocate(Purpose.DEVICE, max(nbytes, 1))
        return DeviceArray(shape, dtype, CardStorage(self, allocation))

    def put(self, array: Array) -> DeviceArray:
        """A copy of an array on the card, made now also while a graph is recorded: it is no part of
        that, and what is kept for later operations is there for those outside of it too."""
        made = self.empty(array.shape, native(array.dtype))
        storage = self._storage(made)
        self._to_card.copy(array, storage.allocation, storage)
        return made

    def fetch(
        self, storage: CardStorage, shape: Shape, dtype: np.dtype[Any], skipped: int = 0
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
                self._waited.run(copy, (flat, storage))
                return flat.view(dtype).reshape(shape)
        result = np.empty(shape, dtype)
        self._waited.fetch(source, offset, result.reshape(-1).view(np.uint8), storage)
        return result

    def place(self, array: DeviceArray) -> Place:
        """Where kernels of calls find an array of these. They may go to other queues than the
        chain, which is waited for."""
        self.chain.wait()
        self._check_aligned(array)
        storage = self._storage(array)
        block = storage.allocation.block
        return Place(block.buffer, storage.offset + array.offset, True, block.serial)

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under that key before, or is made now; the longest unused is forgotten."""
        with self._keeping:
            found: T | None = self._kept.use(key)
            if found is None:
                with self.not_recorded():
                    found = self._kept[key] = make()
                self._kept.evict(KEPT)
            return found

    def submit(self, steps: Sequence[Step]) -> None:
        """Run them in this order, after all that was submitted before; returns at once."""
        if self._capturing.steps is not None:
            self._capturing.steps += steps
            return
        self.chain.submit(self._placed(steps))

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

    def record(self, steps: Sequence[Step]) -> Recorded:
        """Commands for these steps, to be run any number of times."""
        return self.chain.record(self._placed(steps))

    def let_go_of_done(self) -> None:
        """Free the memory of arrays that nobody has, and that the device has done with."""
        with contextlib.suppress(DeviceLostError):
            self._waited.let_go_of_done()
            self.chain.let_go_of_done()

    def close(self) -> None:
        self._waited.close()
        self.chain.close()
        with self._keeping:
            self._kept.clear()

    def _leave_to_parent(self) -> None:
        self.chain = self._waited = self._to_card = LEFT_TO_PARENT
        self._recycled = self._keeping = LEFT_TO_PARENT

    def _placed(self, steps: Sequence[Step]) -> list[Placed]:
        placed: list[Placed] = []
        for step in steps:
            if isinstance(step, Dispatch):
                self._place_dispatch(step, placed)
            else:
                self._place_copy(step, placed)
        return placed

    def _place_dispatch(self, dispatch: Dispatch, placed: list[Placed]) -> None:
        storages: list[CardStorage] = []
        numbers: list[int] = []
        least, most = LEAST_BOUND, self._largest
        for array in dispatch.arrays:
            storage, nbytes = array.storage, array.nbytes
            # Nearly all are like this, and dispatches have up to five of them.
            if (
                isinstance(storage, CardStorage)
                and storage.card is self
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
        placed.append(Placed(dispatch, storages, dispatch.kernel.inputs, numbers))

    def _bindable(
        self, dispatch: Dispatch, array: DeviceArray, placed: list[Placed], *, is_input: bool
    ) -> DeviceArray:
        """The array, or of an input that begins where none can be bound a copy, made before."""
        if array.nbytes > self._largest:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: an array of {array.nbytes:,} bytes; {self.info.name} "
                f"binds {self._largest:,} at most"
            )
        if is_input and array.offset % self._alignment:
            there = self.empty(array.shape, array.dtype)
            self._place_copy(Copying(array, there), placed)
            return there
        self._check_aligned(array)
        return array

    def _place_copy(self, copying: Copying, placed: list[Placed]) -> None:
        source, target = copying.source, copying.target
        if source.nbytes != target.nbytes:
            raise ArgumentShapeError(
                f"{source.nbytes:,} bytes cannot be copied to {target.nbytes:,}"
            )
        storages = [self._storage(each) for each in (source, target)]
        start, end = (each.allocation for each in storages)
        if self._copies_by_kernel(copying, storages):
            units = source.nbytes // UNIT_BYTES
            kernel = Dispatch(copy_kernel(), (source, target), units, strides=True)
            self._place_dispatch(kernel, placed)
        elif source.nbytes:
            copy = Copy(
                start.buffer,
                start.offset + source.offset,
                end.buffer,
                end.offset + target.offset,
                source.nbytes,
            )
            placed.append(Placed(copy, storages, 1))

    def _copies_by_kernel(self, copying: Copying, storages: Sequence[CardStorage]) -> bool:
        """Whether whole units of both arrays can be bound, and there are enough of them."""
        nbytes = copying.source.nbytes
        begins = [
            storage.offset + array.offset
            for storage, array in zip(storages, (copying.source, copying.target), strict=True)
        ]
        return (
            self.info.kind != "cpu"
            and MUCH_TO_COPY <= nbytes <= self._largest
            and nbytes % UNIT_BYTES == 0
            and not any(begin % UNIT_BYTES or begin % self._alignment for begin in begins)
        )

    def _storage(self, array: DeviceArray) -> CardStorage:
        storage = array.storage
        if not isinstance(storage, CardStorage):
            raise ArgumentTypeError("an array on the card of another kind of backend")
        if storage.card is not self:
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
