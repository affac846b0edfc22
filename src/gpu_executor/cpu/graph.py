"""`CpuGraph`: operations on device arrays of the CPU backend, recorded once and run many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.cpu.device_memory import CpuMemory, CpuStorage, Operation
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError


class CpuGraph:
    """Operations on device arrays inside its `with` are recorded, not run; a call runs them.

    A call takes one array for each input that the graph was made with, or none. It copies the
    arrays to the inputs and runs the recorded operations. The results are in the arrays that the
    operations returned while they were recorded.
    """

    def __init__(self, memory: CpuMemory, inputs: Sequence[Any]) -> None:
        self._memory = memory
        self._inputs = [_get_data(each) for each in inputs]
        self._operations: list[Operation] = []
        self._made: list[CpuStorage] = []
        self._is_recorded = False

    def __enter__(self) -> CpuGraph:
        if self._is_recorded:
            raise GpuError("the graph is recorded already; make another one to record again")
        self._memory.begin_capture(self._operations, self._made)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        self._memory.end_capture()
        self._is_recorded = kind is None

    def __call__(self, *arrays: Any) -> None:
        if not self._is_recorded:
            raise GpuError("the graph is not recorded yet: leave its `with` block first")
        if arrays and len(arrays) != len(self._inputs):
            raise ArgumentTypeError(
                f"the graph has {len(self._inputs)} inputs and got {len(arrays)} arrays"
            )
        pairs = list(zip(arrays, self._inputs, strict=False))
        # All are read before any is written: an argument may be another input of the graph.
        sources = [np.array(self._read(given, target)) for given, target in pairs]
        for source, (_, target) in zip(sources, pairs, strict=True):
            self._memory.view(target)[...] = source
        for operation in self._operations:
            operation()
        for storage in self._made:
            storage.is_pending = False

    def __len__(self) -> int:
        """The number of recorded operations."""
        return len(self._operations)

    def _read(self, given: Any, target: DeviceArray) -> Any:
        array = given if isinstance(given, np.ndarray) else self._memory.view(_get_data(given))
        if array.shape != target.shape or array.dtype != target.dtype:
            raise ArgumentShapeError(
                f"an input of the graph is {target.dtype} of shape {target.shape}; got "
                f"{array.dtype} of shape {array.shape}"
            )
        return array


def _get_data(array: Any) -> DeviceArray:
    """The device array of a device-resident array of any type."""
    found = array if isinstance(array, DeviceArray) else getattr(array, "data", None)
    if not isinstance(found, DeviceArray):
        raise ArgumentTypeError(
            f"the inputs of a graph are device arrays, not {type(array).__name__}; "
            "gpu.to_device(array) copies an array to the device"
        )
    return found
