"""Elements as bytes, converted on a device: the order of the bytes, the form, and the check that
numbers are below the modulus.

Only primes of the family `wide` have these kernels, and only numbers of as many bytes as an element
has: 32 for 255 bits. All others are converted on the host.
"""

from __future__ import annotations

import math

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernels.families import family
from gpu_executor.kernels.passes import encoding_kernel
from gpu_executor.ops.elementwise import count_elements, get_shape
from gpu_executor.primes import Form, Prime

BYTE = np.dtype(np.uint8)


def can_convert(device: ArrayDevice | None, prime: Prime, width: int) -> bool:
    """Whether the device has kernels for numbers of `width` bytes, and runs them now: it does not
    while it records a graph."""
    if device is None or not device.runs_kernels or device.is_recording:
        return False
    return family(prime) == "wide" and width == prime.element_bytes


def read_bytes(prime: Prime, encoded: DeviceArray, *, big_endian: bool) -> DeviceArray:
    """The elements of numbers (..., width), in Montgomery form. `device.check(elements)` waits, and
    raises `ElementRangeError` for the first number that is not below the modulus; so does a fetch
    of the elements, or of what is computed from them. Such a number becomes some element."""
    device: ArrayDevice = encoded.storage.device
    shape = encoded.shape[:-1]
    elements = device.empty((*shape, *prime.element_shape), prime.column_dtype)
    if not elements.size:
        return elements

    def make_error(index: int) -> ElementRangeError:
        return ElementRangeError(f"{prime.name} from bytes", 0, index)

    device.submit(
        [
            Dispatch(
                encoding_kernel(prime, "from_bytes"),
                (encoded, elements),
                math.prod(shape),
                (int(big_endian),),
                grid_stride=True,
                guarded=(elements,),
                make_error=make_error,
                elementwise=1,
            )
        ]
    )
    return elements


def write_bytes(
    prime: Prime,
    elements: DeviceArray,
    form: Form,
    *,
    big_endian: bool,
    target: DeviceArray | None = None,
    first: int = 0,
) -> DeviceArray:
    """The bytes (..., width) of elements in that form. With a target (rows, columns, width), the
    rows of elements are written to its rows, from column `first` on."""
    device: ArrayDevice = elements.storage.device
    shape = get_shape(prime, elements)
    count = count_elements(prime, elements)
    columns = stride = max(count, 1)
    elementwise = int(target is None)  # elements of a given target have a stride
    if target is None:
        target = device.empty((*shape, prime.element_bytes), BYTE)
    else:
        columns, stride = shape[-1], target.shape[1]
    push = int(big_endian), int(form == "montgomery"), columns, stride, first
    if count:
        kernel = encoding_kernel(prime, "to_bytes")
        arrays = elements, target
        dispatch = Dispatch(kernel, arrays, count, push, grid_stride=True, elementwise=elementwise)
        device.submit([dispatch])
    return target
