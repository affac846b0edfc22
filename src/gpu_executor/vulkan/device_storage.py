"""`VulkanStorage`: the memory of a device array, and what is known about its contents."""

from __future__ import annotations

from typing import Any

from gpu_executor.errors import GpuError
from gpu_executor.vulkan.descriptors import MIN_BINDING_BYTES
from gpu_executor.vulkan.memory import Allocation
from gpu_executor.vulkan.status_check import StatusCheck


class VulkanStorage:
    """The memory of one device array, which returns to the pool with this object."""

    __slots__ = (
        "__weakref__", "allocation", "checks", "device", "handle", "is_pending", "last_use",
        "nbytes", "offset", "whole_range",
    )  # fmt: skip

    def __init__(self, device: Any, allocation: Allocation, nbytes: int, last_use: int = 0) -> None:
        """`last_use` is not 0 if an array that is gone had this memory."""
        self.device = device
        """The `DeviceMemory` that made it."""
        self.allocation = allocation
        self.nbytes = nbytes
        """The bytes of the array that the storage was made for."""
        self.handle = allocation.block.handle
        """The handle of the buffer, as an integer."""
        self.offset = allocation.offset
        """Where the storage begins in the buffer, in bytes."""
        self.whole_range = self.handle, self.offset, max(nbytes, MIN_BINDING_BYTES)
        """The buffer, the offset and the bytes that a kernel binds for the whole array."""
        self.last_use = last_use
        """The timeline value of the last submission of the command stream that uses the memory."""
        self.checks: tuple[StatusCheck, ...] = ()
        """The checks of the calls that the contents depend on; those that passed may be missing."""

        self.is_pending = False
        """Whether a graph computes the contents and has not run yet."""

    def check_computed(self) -> None:
        """Raise `GpuError` if the contents are not computed yet."""
        if self.is_pending:
            raise GpuError(
                "the array is a result of a recorded graph that has not run yet; call the graph "
                "first"
            )

    def __del__(self) -> None:
        # Every result has a storage, and weakref.finalize takes four times as long.
        self.device.release(self.allocation, self.last_use)
