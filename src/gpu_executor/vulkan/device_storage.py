"""`VulkanStorage`, the memory of a device array, and `MappedStatusWord`."""

from __future__ import annotations

from typing import Any

from gpu_executor.steps.status import STATUS_BYTES, STATUS_CLEAR
from gpu_executor.steps.storage import DeviceStorage
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.memory import Allocation, MemoryPool, Purpose


class MappedStatusWord:
    """A status word in mapped memory, which returns to the pool with this object."""

    __slots__ = ("_allocation", "_memory", "_word")

    def __init__(self, memory: MemoryPool) -> None:
        self._memory = memory
        self._allocation = memory.allocate(Purpose.UPLOAD, STATUS_BYTES, "staging")
        self._word: Handle = vk.ffi.cast("uint32_t *", self._allocation.address)
        self.clear()

    @property
    def buffer(self) -> Handle:
        """The buffer that the word is in."""
        return self._allocation.buffer

    @property
    def handle(self) -> int:
        """The handle of the buffer, as an integer."""
        return self._allocation.block.handle

    @property
    def offset(self) -> int:
        """Where the word is in the buffer, in bytes."""
        return self._allocation.offset

    def clear(self) -> None:
        """Let the word say that there is no error; no submission in flight may use it."""
        self._word[0] = STATUS_CLEAR

    def read(self) -> int:
        """The word as the device has left it."""
        return int(self._word[0])

    def __del__(self) -> None:
        self._memory.release_when_possible(self._allocation)


class VulkanStorage(DeviceStorage):
    """The memory of one device array, which returns to the pool with this object."""

    __slots__ = ("allocation",)

    def __init__(self, device: Any, allocation: Allocation, nbytes: int, last_use: int = 0) -> None:
        """`last_use` is not 0 if an array that is gone had this memory: the timeline value of the
        last submission of the command stream that uses it."""
        self.allocation = allocation
        place = allocation.buffer, allocation.block.handle, allocation.offset
        super().__init__(device, *place, nbytes, last_use)

    def __del__(self) -> None:
        # Every result has a storage, and weakref.finalize takes four times as long.
        self.device.release(self.allocation, self.last_use)


class ExportedStorage(VulkanStorage):
    """The memory of a device array that other libraries can use."""

    __slots__ = ("is_shared",)

    def __init__(self, device: Any, allocation: Allocation, nbytes: int) -> None:
        super().__init__(device, allocation, nbytes)
        self.is_shared = False
        """Whether another library had the array: it may still use the memory when this object is
        gone."""

    def __del__(self) -> None:
        self.device.retire(self.allocation, self.last_use, is_shared=self.is_shared)
