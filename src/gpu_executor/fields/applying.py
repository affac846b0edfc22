"""A kernel applied to words that lie in one place: dispatched on a card, computed on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernel import Kernel

if TYPE_CHECKING:
    from gpu_executor.fields.array import Words


def apply(
    kernel: Kernel, arrays: Sequence[Words | DeviceArray], push_words: tuple[int, ...] = ()
) -> Words | DeviceArray:
    """A kernel on arrays that are all on one card, or all on the host.

    What it is `told` are push constants behind its own; on the host the arrays say it all.
    """
    first = arrays[0]
    assert kernel.types is not None
    out = kernel.types[-1]
    columns = len(kernel.types[0].shape)
    shape = first.shape[: len(first.shape) - columns] + out.shape
    if isinstance(first, DeviceArray):
        device: ArrayDevice = first.storage.device
        result = device.empty(shape, out.dtype)
        count = first.nbytes // kernel.types[0].nbytes
        if count:
            there = tuple(each for each in arrays if isinstance(each, DeviceArray))
            device.submit([Dispatch(kernel, (*there, result), count, push_words, grid_stride=True)])
        return result
    assert kernel.reference is not None
    computed: Words = kernel.reference(*arrays)
    return computed.reshape(shape)
