"""Arrays on the card: made, filled, fetched."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections import OrderedDict
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
    GpuError,
)
from gpu_executor.kernel import ElementType, Shape, native
from gpu_executor.vulkan.arrays import mapped_view
from gpu_executor.vulkan.chain import Chain, Recorded
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.places import Place
from gpu_executor.vulkan.resources import Resources

STAGING_BYTES = 32 << 20
KEPT = 256
"""Tables and the like that operations of several dispatches keep on the card."""
T = TypeVar("T")
_BYTES = ElementType(np.dtype(np.uint8))


class _Capturing(threading.local):
    """What the thread's submissions are added to, while it records a graph."""

    steps: list[Step] | None = None


class CardStorage:
    """The memory of one array on the card."""

    __slots__ = ("__weakref__", "_cards", "allocation")

    def __init__(self, cards: CardArrays, allocation: Allocation) -> None:
        self._cards = cards
        self.allocation = allocation

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> Array:
        return self._cards.fetch(self.allocation, shape, dtype, offset)

    @property
    def card(self) -> CardArrays:
        """Those that it is one of."""
        return self._cards


class CardArrays:
    """Makes arrays on the card, moves data to and from them and runs dispatches on them: a `Card`.
    Safe from several threads."""

    def __init__(self, resources: Resources, mapped: MappedArrays) -> None:
        self._resources, self._mapped = resources, mapped
        self.chain = Chain(resources)
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._keeping = threading.RLock()
        self._capturing = _Capturing()
        self.info = resources.device.info
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._closed = False

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Room on the card, its contents whatever was there before."""
        nbytes = max(int(np.prod(shape)) * dtype.itemsize, 1)
        allocation = self._resources.memory.allocate(Purpose.DEVICE, nbytes)
        storage = CardStorage(self, allocation)
        weakref.finalize(
            storage, self._resources.memory.release_when_possible, allocation
        ).atexit = False
        return DeviceArray(shape, dtype, storage)

    def put(self, array: Array) -> DeviceArray:
        """A copy of an array on the card."""
        made = self.empty(array.shape, native(array.dtype))
        storage = made.storage
        assert isinstance(storage, CardStorage)
        place = self._mapped.find(array)
        target = storage.allocation
        if place is not None and array.nbytes:
            copy = Copy(place.buffer, place.offset, target.buffer, target.offset, array.nbytes)
            self._submit(copy)
            return made
        flat = np.ascontiguousarray(array, native(array.dtype)).reshape(-1).view(np.uint8)

        def fill(staging: Allocation, start: int, end: int) -> None:
            part = flat[start:end]
            view = mapped_view(staging, 0, len(part), _BYTES)
            self._resources.crew.copy([(view, part)])
            offset = target.offset + start
            self._submit(Copy(staging.buffer, staging.offset, target.buffer, offset, len(part)))

        self._in_parts(Purpose.UPLOAD, len(flat), fill)
        return made

    def place(self, array: DeviceArray) -> Place:
        """Where kernels find an array of these."""
        found = self._place(array)
        alignment = self.info.limits.buffer_offset_alignment
        if found.offset % alignment:
            raise ArgumentShapeError(
                f"an array that begins {array.offset:,} bytes into another; kernels on "
                f"{self.info.name} take what begins at a multiple of {alignment}"
            )
        return found

    def _place(self, array: DeviceArray) -> Place:
        storage = array.storage
        if not isinstance(storage, CardStorage):
            raise ArgumentTypeError("an array on the card of another kind of backend")
        if storage.card is not self:
            raise ClosedError(
                "the array lies on the card of another backend; fetch it with numpy()"
            )
        block = storage.allocation.block
        offset = storage.allocation.offset + array.offset
        return Place(block.buffer, offset, True, block.serial)

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under that key before, or is made now; the longest unused is forgotten."""
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                self._kept[key] = make()
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            found: T = self._kept[key]
            return found

    def submit(self, steps: Sequence[Step]) -> None:
        """Run them in this order, after all that was submitted before; returns at once."""
        if self._capturing.steps is not None:
            self._capturing.steps += steps
            return
        self.chain.submit(self._ready(steps))

    def capture(self, steps: list[Step] | None) -> None:
        """From now on what this thread submits goes to a list instead, until None is given."""
        if steps is not None and self._capturing.steps is not None:
            raise GpuError("a graph is being recorded already")
        self._capturing.steps = steps

    def record(self, steps: Sequence[Step]) -> Recorded:
        """Commands for these steps, to be run any number of times."""
        return self.chain.record(self._ready(steps))

    def _ready(self, steps: Sequence[Step]) -> list[tuple[Step, list[Place]]]:
        aligned = [each for step in steps for each in self._aligned(step)]
        return [(each, self._places(each)) for each in aligned]

    def _aligned(self, step: Step) -> Iterator[Step]:
        """The step, and before it copies of those inputs that begin where none can be bound."""
        if isinstance(step, Copying) or not any(array.offset for array in step.arrays):
            yield step
            return
        alignment, arrays = self.info.limits.buffer_offset_alignment, list(step.arrays)
        for index, array in enumerate(arrays[: step.kernel.inputs]):
            if self._place(array).offset % alignment:
                arrays[index] = self.empty(array.shape, array.dtype)
                yield Copying(array, arrays[index])
        yield dataclasses.replace(step, arrays=tuple(arrays))

    def _places(self, step: Step) -> list[Place]:
        if isinstance(step, Dispatch):
            return [self._bound(step, array) for array in step.arrays]
        if step.source.nbytes != step.target.nbytes:
            raise ArgumentShapeError(
                f"{step.source.nbytes:,} bytes cannot be copied to {step.target.nbytes:,}"
            )
        return [self._place(step.source), self._place(step.target)]

    def _bound(self, dispatch: Dispatch, array: DeviceArray) -> Place:
        place = self.place(array)
        if array.nbytes > self.info.limits.max_storage_buffer_range:
            raise DeviceLacksError(
                f"{dispatch.kernel.name}: an array of {array.nbytes:,} bytes; {self.info.name} "
                f"binds {self.info.limits.max_storage_buffer_range:,} at most"
            )
        return place

    def fetch(
        self, source: Allocation, shape: Shape, dtype: np.dtype[Any], skipped: int = 0
    ) -> Array:
        """The contents of an allocation, from a byte on, as a NumPy array."""
        if self._capturing.steps is not None:
            raise GpuError("a graph is being recorded: there is no result to fetch yet")
        result = np.empty(shape, dtype)
        flat = result.reshape(-1).view(np.uint8)

        def drain(staging: Allocation, start: int, end: int) -> None:
            part = flat[start:end]
            offset = source.offset + skipped + start
            self._submit(Copy(source.buffer, offset, staging.buffer, staging.offset, len(part)))
            self._resources.crew.copy([(part, mapped_view(staging, 0, len(part), _BYTES))])

        self._in_parts(Purpose.READBACK, len(flat), drain)
        return result

    def close(self) -> None:
        self.chain.close()
        with self._keeping:
            self._kept.clear()
        with self._lock:
            self._closed = True
            self._opened.close()

    def _in_parts(
        self, purpose: Purpose, nbytes: int, move: Callable[[Allocation, int, int], None]
    ) -> None:
        """Move data through staging memory, a part at a time."""
        if not nbytes:
            return
        memory = self._resources.memory
        staging = memory.allocate(purpose, min(nbytes, STAGING_BYTES))
        try:
            for start in range(0, nbytes, STAGING_BYTES):
                move(staging, start, min(start + STAGING_BYTES, nbytes))
        finally:
            memory.release(staging)

    def _submit(self, copy: Copy) -> None:
        """Do one copy and wait for it."""
        compute = self._resources.compute
        with self._lock:
            if self._closed:
                raise ClosedError("the backend that the array lies on is closed")
            if self._pool is None:
                self._pool = CommandPool(self._resources.device, compute.family)
                self._opened.callback(self._pool.close)
                self._commands = self._pool.allocate()
            with Recorder(self._commands) as recorder:
                recorder.copy([copy])
                recorder.all_before_all()
                recorder.all_before_host()
            submission = compute.prepare(self._commands)
            compute.submit(submission)
            compute.wait(submission)
