"""Where the arrays of a call lie: plain, mapped, imported and device memory, and `out=`.

Layouts of passed arrays:

    plain, strided, swapped (byte order), read-only, reversed, list (of Python numbers)
    mapped, part (of a mapped array), imported     memory that the device uses in place
    device, device part                            a device array, or all but its first element
    as <k>                                         the very array that is passed as number k

What `out=` has for a result:

    given, strided, mapped, part, imported, device, device part   an array with old contents
    same                                           the in-out argument itself
    input <k>                                      the very array that is passed as number k
    view <k>                                       another view of the same elements
    overlap <k>                                    elements that overlap those, which is refused
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from tests.support.random_kernels.description import Call, Description
from tests.support.random_kernels.sizes import Shape, get_shape

Array = npt.NDArray[Any]
HOST_LAYOUTS = ("plain", "strided", "swapped", "read-only", "reversed", "list", "mapped", "part",
                "imported")  # fmt: skip
DEVICE_LAYOUTS = ("device", "device part")
HOST_OUTS = ("given", "mapped", "part", "imported")
WRITABLE = ("plain", "strided", "reversed", "mapped", "part", "imported", *DEVICE_LAYOUTS)
"""Layouts of arrays that can be `out=`."""


class Memory:
    """Makes the arrays of calls in the memory that a backend has."""

    def __init__(self, backend: Any, *, on_device: bool = True) -> None:
        """`on_device=False` makes host arrays instead of device arrays."""
        has_own = isinstance(backend, gx.PersistentVulkanBackend | gx.CpuBackend | gx.GpuExecutor)
        self._backend = backend if has_own else None
        self._on_device = on_device and has_own
        self._wholes: dict[int, tuple[Any, Any]] = {}
        """The parts that were made, with all of their memory."""

    def lay_out(self, array: Array, layout: str) -> Any:
        """The same values in another layout. Structs are never on the device, nor lists."""
        is_struct = array.dtype.names is not None
        if layout in DEVICE_LAYOUTS:
            return array if is_struct else self._upload(array, part=layout == "device part")
        if layout == "list" and not is_struct and array.size:
            return array.tolist()
        if layout in ("mapped", "part", "imported"):
            found = self._make_in_place(layout, array.shape, array.dtype)
            found[...] = array
            return found
        return _arrange(array, layout)

    def make_output(self, kind: str, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """An array with old contents."""
        if kind in DEVICE_LAYOUTS:
            return self._upload(fill(np.empty(shape, dtype), 0xAB), part=kind == "device part")
        if kind == "strided":
            return fill(np.empty((2 * shape[0], *shape[1:]), dtype), 0xAB)[::2]
        if kind == "given":
            return fill(np.empty(shape, dtype), 0xAB)
        return fill(self._make_in_place(kind, shape, dtype), 0xAB)

    def shift(self, part: Any) -> Any:
        """The elements that begin one earlier than those of a part."""
        return self._wholes[id(part)][1][:-1]

    def _take_part(self, whole: Any) -> Any:
        part = whole[1:]
        self._wholes[id(part)] = part, whole
        return part

    def _upload(self, array: Array, *, part: bool) -> Any:
        part = part and array.size > 0
        whole = np.concatenate([array[:1], array]) if part else array
        if self._on_device:
            assert self._backend is not None
            whole = self._backend.to_device(whole)
        return self._take_part(whole) if part else whole

    def _make_in_place(self, kind: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Memory that the device can use. Structs are views of bytes, because mapped and imported
        arrays have numeric dtypes."""
        whole = (shape[0] + (kind == "part"), *shape[1:])
        found: Array
        if dtype.names is None:
            found = self._allocate(kind, whole, dtype)
        else:
            bytes_of_all = self._allocate(kind, (*whole, dtype.itemsize), np.dtype("u1"))
            found = bytes_of_all.view(dtype)[..., 0]
        return self._take_part(found) if kind == "part" else found

    def _allocate(self, kind: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        if self._backend is None:
            return np.empty(shape, dtype)
        if kind != "imported":
            mapped: Array = self._backend.empty(shape, dtype)
            return mapped
        plain = np.empty(shape, dtype)
        if plain.size:
            with contextlib.suppress(DeviceLacksError):  # then it is an array like any other
                self._backend.import_array(plain)
        return plain


def _arrange(array: Array, layout: str) -> Array:
    """The same values in another layout of plain memory."""
    if layout == "strided":
        room = np.zeros((2 * len(array), *array.shape[1:]), array.dtype)
        room[::2] = array
        return room[::2]
    if layout == "reversed":
        return array[::-1].copy()[::-1]
    if layout == "swapped" and array.dtype.names is None:
        return array.astype(array.dtype.newbyteorder())
    if layout == "read-only":
        array.flags.writeable = False
    return array


def fill(array: Array, byte: int) -> Array:
    """Set every byte of an array."""
    array.reshape(-1).view(np.uint8)[:] = byte
    return array


# --- the arrays of a call ---


def get_layout(call: Call, number: int) -> str:
    """The layout of a passed array."""
    return call.layouts[number] if number < len(call.layouts) else "plain"


def find_original(call: Call, number: int) -> int:
    """The number of the passed array that a passed array is."""
    layout = get_layout(call, number)
    return int(layout[3:]) if layout.startswith("as ") else number


def list_outputs(kernel: Description) -> list[int]:
    """The buffers of the results."""
    return [number for number, each in enumerate(kernel.buffers) if each.role != "in"]


def list_passed(kernel: Description) -> list[int]:
    """The buffers of the passed arrays."""
    return [number for number, each in enumerate(kernel.buffers) if each.role != "out"]


def find_aliased(kernel: Description, call: Call) -> dict[int, int]:
    """The passed arrays that are results, too: the number of each by that of the result."""
    found = {}
    for result, (kind, buffer) in enumerate(zip(call.outs, list_outputs(kernel), strict=False)):
        if kind == "same":
            found[result] = list_passed(kernel).index(buffer)
        elif kind.startswith(("input ", "view ")):
            found[result] = int(kind.rpartition(" ")[2])
    return found


def make_outputs(kernel: Description, call: Call, arrays: Sequence[Any], memory: Memory) -> Any:
    """What a call passes as `out=`; None: nothing."""
    if not call.outs:
        return None
    aliased = find_aliased(kernel, call)
    outputs = []
    for result, (kind, number) in enumerate(zip(call.outs, list_outputs(kernel), strict=True)):
        if result in aliased:
            array = arrays[aliased[result]]
            outputs.append(array[...] if kind.startswith("view ") else array)
        elif kind.startswith("overlap "):
            outputs.append(memory.shift(arrays[int(kind.rpartition(" ")[2])]))
        else:
            shape, dtype = get_shape(kernel, number, call), kernel.buffers[number].dtype
            outputs.append(memory.make_output(kind, shape, dtype))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def download(result: Any) -> Any:
    """The results of a call on the host."""
    if isinstance(result, tuple):
        return tuple(map(download, result))
    return result if isinstance(result, np.ndarray) else result.numpy()
