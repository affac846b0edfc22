"""`VulkanStorage`, the memory of a device array, and `StatusCheck`, which contents may depend on.

A checked kernel writes its status word if an element is out of range. The word of a call in a slot
is read when the slot is drained. A call on device arrays is not waited for, so the arrays that it
writes refer to its check, and so do the arrays that are computed from them. Fetching one of these
arrays reads the word, and raises the error of that call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_executor.errors import ElementRangeError, GpuError
from gpu_executor.kernel import Kernel
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.descriptors import MIN_BINDING_BYTES
from gpu_executor.vulkan.memory import Allocation, MemoryPool, Purpose

STATUS_CLEAR = 0xFFFFFFFF
"""The value of a status word that no invocation has written."""
STATUS_BYTES = 4


def make_range_error(
    kernel: Kernel, code: int, start: int, job: int | None = None
) -> ElementRangeError:
    """Make the error of a dispatch that begins at the call's element `start`, from the status word
    that its kernel has lowered."""
    element, argument = divmod(code, max(kernel.inputs, 1))
    return ElementRangeError(kernel.name, argument, start + element, job)


class StatusWord:
    """A status word in mapped memory, which returns to the pool with this object."""

    __slots__ = ("_memory", "_word", "allocation")

    def __init__(self, memory: MemoryPool) -> None:
        self._memory = memory
        self.allocation = memory.allocate(Purpose.UPLOAD, STATUS_BYTES, "staging")
        self._word: Handle = vk.ffi.cast("uint32_t *", self.allocation.address)
        self.clear()

    def clear(self) -> None:
        """Let the word say that there is no error; no submission in flight may use it."""
        self._word[0] = STATUS_CLEAR

    def read(self) -> int:
        """The word as the device has left it."""
        return int(self._word[0])

    def __del__(self) -> None:
        self._memory.release_when_possible(self.allocation)


class StatusCheck:
    """What a checked call has found, by its status word."""

    __slots__ = ("_code", "_make_error", "_word", "passed", "was_raised")

    def __init__(self, word: StatusWord, make_error: Callable[[int], Exception]) -> None:
        """`make_error` makes the error from a status word that the kernel has lowered."""
        self._word, self._make_error = word, make_error
        self._code: int | None = None
        """The status word, once it is used for another check."""
        self.was_raised = False
        """Whether its error was raised, so that it is no news."""
        self.passed = False
        """Whether the device has completed the call and found no error."""

    @property
    def allocation(self) -> Allocation:
        """The memory of the status word."""
        return self._word.allocation

    def renew(self) -> StatusCheck:
        """The check of the next call with the same status word. This check keeps what it found; the
        device has completed its call."""
        self._code = self._word.read()
        self._word.clear()
        return StatusCheck(self._word, self._make_error)

    @classmethod
    def of_range(cls, memory: MemoryPool, kernel: Kernel, start: int) -> StatusCheck:
        """The check of a dispatch that begins at the call's element `start`."""
        return cls(StatusWord(memory), lambda code: make_range_error(kernel, code, start))

    def find_error(self) -> Exception | None:
        """The error that the call found; call it once the device has completed the call."""
        code = self._word.read() if self._code is None else self._code
        return None if code == STATUS_CLEAR else self._make_error(code)

    def raise_error(self) -> None:
        """Raise the error that the call found, if any; the device has completed the call."""
        error = self.find_error()
        if error is not None:
            self.was_raised = True
            raise error


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
