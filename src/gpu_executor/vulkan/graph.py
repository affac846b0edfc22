"""Graphs: operations on card arrays recorded once, in one command buffer, to be run many times."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayCopy, Step
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.vulkan.command_stream import RecordedCommands

if TYPE_CHECKING:
    from gpu_executor.vulkan.device_memory import DeviceMemory


class Graph:
    """What is done to card arrays inside its `with` is recorded, not done; calling it does it.

    A call takes arrays in the place of those that were named when it was made: their contents are
    copied to those first. Results are in the arrays that the operations gave while it was recorded.
    Like them, a call is submitted and not waited for.
    """

    def __init__(self, device_memory: DeviceMemory, inputs: Sequence[Any]) -> None:
        self._cards = device_memory
        self._inputs = [_data(each) for each in inputs]
        self._recorded: RecordedCommands | None = None
        self._steps: list[Step] = []

    def __enter__(self) -> Graph:
        if self._recorded is not None:
            raise GpuError("the graph is recorded already")
        self._cards.capture(self._steps)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._cards.capture(None)
        if kind is None:
            self._recorded = self._cards.record(self._steps)
            weakref.finalize(self, self._cards.stream.forget, self._recorded).atexit = False

    def __call__(self, *arrays: Any) -> None:
        if self._recorded is None:
            raise GpuError("the graph is not recorded yet: leave its `with` first")
        if arrays and len(arrays) != len(self._inputs):
            raise ArgumentTypeError(
                f"the graph has {len(self._inputs)} inputs and got {len(arrays)} arrays"
            )
        copies = [self._copy(each, own) for each, own in zip(arrays, self._inputs, strict=False)]
        if copies:
            self._cards.submit(copies)
        self._cards.stream.replay(self._recorded)

    def __len__(self) -> int:
        """Steps that were recorded."""
        return len(self._steps)

    def _copy(self, given: Any, own: DeviceArray) -> ArrayCopy:
        array = given if isinstance(given, np.ndarray) else _data(given)
        if array.shape != own.shape or array.dtype != own.dtype:
            raise ArgumentShapeError(
                f"an input of the graph is {own.dtype} of shape {own.shape}, and {array.dtype} of "
                f"shape {array.shape} was given"
            )
        there = self._cards.put(array) if isinstance(array, np.ndarray) else array
        return ArrayCopy(there, own)


def _data(array: Any) -> DeviceArray:
    """The array on the card behind whatever it is."""
    found = array if isinstance(array, DeviceArray) else getattr(array, "data", None)
    if not isinstance(found, DeviceArray):
        raise ArgumentTypeError(
            f"the inputs of a graph are arrays on the card, not a {type(array).__name__}"
        )
    return found
