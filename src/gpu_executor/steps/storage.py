"""`DeviceStorage`: the memory of a device array, as steps bind it."""

from __future__ import annotations

from typing import Any

from gpu_executor.errors import GpuError
from gpu_executor.steps.status import StatusCheck

MIN_BINDING_BYTES = 4
"""Bytes that are bound for an array without elements: there are no empty bindings."""


class DeviceStorage:
    """The memory of one device array: a range of a buffer."""

    __slots__ = (
        "__weakref__", "buffer", "checks", "device", "handle", "is_pending", "last_use", "nbytes",
        "offset", "whole_range",
    )  # fmt: skip

    def __init__(
        self, device: Any, buffer: Any, handle: Any, offset: int, nbytes: int, last_use: int = 0
    ) -> None:
        """`last_use` is not 0 if an array that is gone had this memory."""
        self.device = device
        """The `StepDevice` that made it."""
        self.buffer = buffer
        self.handle = handle
        """What a binding names the buffer by."""
        self.offset = offset
        """Where the storage begins in the buffer, in bytes."""
        self.nbytes = nbytes
        """The bytes of the array that the storage was made for."""
        self.whole_range = handle, offset, max(nbytes, MIN_BINDING_BYTES)
        """The buffer, the offset and the bytes that a kernel binds for the whole array."""
        self.last_use = last_use
        """The number of the last submission that uses the memory."""
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
