"""`Graph`: operations on device arrays, recorded once in a command buffer and run many times."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayCopy
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.vulkan.command_stream import RecordedCommands
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.step_binder import VulkanStep


class Graph:
    """Operations on device arrays inside its `with` are recorded, not run; a call runs them.

    A call takes one array for each input that the graph was made with, or none. It copies the
    arrays to the inputs and runs the recorded operations. The results are in the arrays that the
    operations returned while they were recorded. A call is submitted and returns at once.
    """

    def __init__(self, device_memory: DeviceMemory, inputs: Sequence[Any]) -> None:
        self._memory = device_memory
        self._inputs = [_get_data(each) for each in inputs]
        self._recorded: RecordedCommands | None = None
        self._steps: list[VulkanStep] = []

    def __enter__(self) -> Graph:
        if self._recorded is not None:
            raise GpuError("the graph is recorded already; make another one to record again")
        self._memory.begin_capture(self._steps)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._memory.end_capture()
        if kind is None:
            self._recorded = self._memory.record(self._steps)
            release = self._memory.stream.release_when_possible
            weakref.finalize(self, release, self._recorded).atexit = False

    def __call__(self, *arrays: Any) -> None:
        if self._recorded is None:
            raise GpuError("the graph is not recorded yet: leave its `with` block first")
        if arrays and len(arrays) != len(self._inputs):
            raise ArgumentTypeError(
                f"the graph has {len(self._inputs)} inputs and got {len(arrays)} arrays"
            )
        pairs = zip(arrays, self._inputs, strict=False)
        copies = [self._make_copy(array, target) for array, target in pairs]
        if copies:
            self._memory.submit(copies)
        self._memory.stream.replay(self._recorded)

    def __len__(self) -> int:
        """The number of recorded steps."""
        return len(self._steps)

    def _make_copy(self, given: Any, target: DeviceArray) -> ArrayCopy:
        array = given if isinstance(given, np.ndarray) else _get_data(given)
        if array.shape != target.shape or array.dtype != target.dtype:
            raise ArgumentShapeError(
                f"an input of the graph is {target.dtype} of shape {target.shape}; got "
                f"{array.dtype} of shape {array.shape}"
            )
        source = self._memory.put(array) if isinstance(array, np.ndarray) else array
        return ArrayCopy(source, target)


def _get_data(array: Any) -> DeviceArray:
    """The device array of a device-resident array of any type."""
    found = array if isinstance(array, DeviceArray) else getattr(array, "data", None)
    if not isinstance(found, DeviceArray):
        raise ArgumentTypeError(
            f"the inputs of a graph are device arrays, not {type(array).__name__}; "
            "gpu.to_device(array) copies an array to the device"
        )
    return found
