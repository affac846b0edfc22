"""The device arrays of a call: which they are, and how errors describe them."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import list_outputs
from gpu_executor.errors import DeviceLostError
from gpu_executor.executor.jobs import CallArguments

LabelledArray = tuple[str, DeviceArray]
"""A device array, and how messages refer to it: "argument 0"."""
DEVICE_LOST = -4
"""VK_ERROR_DEVICE_LOST."""


def touches_device(call: CallArguments) -> bool:
    """Whether a call reads or writes device arrays, or leaves its results on the device."""
    if call.keep:
        return True
    for each in call.arrays:  # runs for every call: any() would take twice as long
        if isinstance(each, DeviceArray):
            return True
    return call.out is not None and writes_to_device(call)


def writes_to_device(call: CallArguments) -> bool:
    """Whether the `out` of a call has device arrays."""
    return any(isinstance(each, DeviceArray) for each in list_outputs(call.out))


def label_arrays(call: CallArguments) -> Iterator[LabelledArray]:
    """The device arrays of a call."""
    for kind, arrays in (("argument", call.arrays), ("out", list_outputs(call.out))):
        for index, array in enumerate(arrays):
            if isinstance(array, DeviceArray):
                yield f"{kind} {index}", array


def make_lost_error(caller: str, label: str, array: DeviceArray, device: str) -> DeviceLostError:
    """The error of a call on an array whose device was lost; `caller` is the kernel or method."""
    error = DeviceLostError(caller, DEVICE_LOST, "the device of an array was lost")
    error.args = (
        f"{caller}: {describe_array(label, array)} was on {device}, which was lost, and its "
        "elements are gone with it; copy them to the device again with gpu.to_device(...)",
    )
    return error


def describe_array(label: str, array: DeviceArray) -> str:
    return f"{label}, a device array of shape {array.shape} and dtype {array.dtype},"
