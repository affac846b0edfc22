"""Element-wise operations: one kernel over all elements, with broadcasting.

By steps an operation is one dispatch. On NumPy arrays it is the kernel's reference, which is exact.
Unless a function says otherwise, elements are in the form in which the prime computes
(`Prime.form`), and all operands of a call are in one place.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.catalogue import find_zero_kernel
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.kernels.families import PACK_BYTES, family
from gpu_executor.kernels.passes import encoding_kernel
from gpu_executor.ops.operation import Operation, operation
from gpu_executor.primes import ElementLayout, Form, Prime, words

Words = npt.NDArray[Any]
"""Elements in host memory: shape (..., columns), or (...) if an element is one column."""
ElementData = Words | DeviceArray
"""Elements in either place."""
Data = TypeVar("Data", Words, DeviceArray, ElementData)
"""Elements in one place."""

MAX_UNSTRIDED_ELEMENTS = 65_535 * 64
"""Elements that every device covers with one work-group per 64. More elements need a kernel whose
invocations stride over them, which costs lavapipe a third of its products."""
PART_MULTIPLE = 64
"""Parts of an array begin at a multiple of so many elements where they can: 256 bytes of the
smallest elements, the largest alignment that Vulkan lets a device ask for."""


def get_shape(layout: ElementLayout, data: ElementData) -> Shape:
    """The shape in elements: without the axis of an element's columns."""
    return data.shape[: len(data.shape) - len(layout.element_shape)]


def get_device(data: ElementData) -> ArrayDevice | None:
    """The device of a device array; None for NumPy arrays."""
    return data.storage.device if isinstance(data, DeviceArray) else None


def count_elements(layout: ElementLayout, data: ElementData) -> int:
    """The number of elements."""
    return data.nbytes // layout.element_bytes


def with_f64_limbs(device: ArrayDevice, prime: Prime) -> bool:
    """Whether the device multiplies elements of this prime with f64 limbs.

    Only wide primes ask the device: `ArrayDevice.f64_limbs` runs a benchmark at its first use.
    """
    return family(prime) == "wide" and device.f64_limbs


def can_pack(arrays: Sequence[ElementData]) -> bool:
    """Whether invocations may load several small elements at once: the arrays are aligned for it.

    The arrays are in one place. Kernels of large elements ignore the answer.
    """
    first = arrays[0]
    if not isinstance(first, DeviceArray):
        return False
    # Every storage begins at a multiple of PACK_BYTES, and an operand at an offset that the device
    # cannot bind is copied to a new storage. So operands are unaligned only on a device that binds
    # at offsets that are not multiples of PACK_BYTES.
    if first.storage.device.info.limits.buffer_offset_alignment % PACK_BYTES == 0:
        return True
    return not any(each.offset % PACK_BYTES for each in arrays if isinstance(each, DeviceArray))


def make_element(prime: Prime, value: int, device: ArrayDevice | None) -> ElementData:
    """One element without axes, 0 <= value < p, on the device (cached there) or on the host."""
    if device is None:
        return _make_host_element(prime, value)
    key = ("element", prime, value)
    return device.cache(key, lambda: device.put(_make_host_element(prime, value)))


def _make_host_element(prime: Prime, value: int) -> Words:
    return words.from_ints(prime, [prime.in_form(value)]).reshape(prime.element_shape)


def make_full(prime: Prime, shape: Shape, value: int, like: ElementData) -> ElementData:
    """An array of equal elements, 0 <= value < p, in the place of `like`."""
    return broadcast_to(prime, make_element(prime, value, get_device(like)), shape).copy()


@operation
def forbid_zeros(
    layout: ElementLayout,
    x: ElementData,
    result: ElementData,
    make_error: Callable[[int], Exception],
) -> ElementData:
    """Return `result`, which is meaningless if an element of x is 0; `make_error` gets the index of
    the first one.

    The error is raised here for arrays on the host. On a device, fetching `result` raises it, or an
    array computed from it.
    """
    flat = np.asarray(x).reshape(-1, layout.columns)
    zeros = np.flatnonzero(~flat.any(axis=1))
    if zeros.size:
        raise make_error(int(zeros[0]))
    return result


@forbid_zeros.by_steps
def _forbid_zeros_by_steps(
    layout: ElementLayout,
    x: DeviceArray,
    result: DeviceArray,
    make_error: Callable[[int], Exception],
) -> DeviceArray:
    device: ArrayDevice = x.storage.device
    device.submit(
        [
            Dispatch(
                find_zero_kernel(),
                (x,),
                count_elements(layout, x),
                (layout.element_bytes // 4,),
                grid_stride=True,
                guarded=(result,),
                make_error=make_error,
                elementwise=1,
            )
        ]
    )
    return result


@operation
def copy_checked(
    prime: Prime, data: ElementData, make_error: Callable[[int], Exception]
) -> ElementData:
    """A copy of words as elements of a prime. `make_error` gets the index of the first element that
    is not below the modulus.

    The error is raised here for arrays on the host. On a device, fetching the copy raises it, or an
    array computed from it.
    """
    own = np.array(data)
    bad = words.first_not_below(prime, own)
    if bad is not None:
        raise make_error(bad)
    return own


@copy_checked.by_steps
def _copy_checked_by_steps(
    prime: Prime, data: DeviceArray, make_error: Callable[[int], Exception]
) -> DeviceArray:
    device: ArrayDevice = data.storage.device
    words.check_layout(prime, data)
    made = device.empty(data.shape, prime.column_dtype)
    count = count_elements(prime, data)
    if count:
        dispatch = Dispatch(
            encoding_kernel(prime, "checked_copy"),
            (data, made),
            count,
            grid_stride=True,
            guarded=(made,),
            make_error=make_error,
            elementwise=1,
        )
        device.submit([dispatch])
    return made


# --- views ---


def reshape(layout: ElementLayout, data: ElementData, shape: Shape) -> ElementData:
    """The same elements in another shape: a view where possible."""
    return data.reshape((*shape, *layout.element_shape))


def transpose(layout: ElementLayout, data: ElementData, axes: Sequence[int]) -> ElementData:
    """A view with the axes of elements in another order."""
    columns = range(len(axes), len(axes) + len(layout.element_shape))
    return data.transpose((*axes, *columns))


def broadcast_to(layout: ElementLayout, data: Data, shape: Shape) -> Data:
    """A view of that shape, which repeats elements by NumPy's rules; it must not be written."""
    own = get_shape(layout, data)
    if own == shape:
        return data
    full = (*shape, *layout.element_shape)
    if isinstance(data, DeviceArray):
        return data.broadcast_to(full)
    return np.broadcast_to(data, full)


def split_axes(shape: Shape, most: int) -> Iterator[tuple[slice, ...]]:
    """Indices of parts of an array of that shape, of at most `most` elements each, in order. The
    first axes are cut first, so that parts of a contiguous array are contiguous."""
    if math.prod(shape) <= most:
        yield ()
        return
    step = most // math.prod(shape[1:])
    if step:
        step -= step % PART_MULTIPLE if step > PART_MULTIPLE else 0
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))
        return
    for row in range(shape[0]):
        yield from ((slice(row, row + 1), *rest) for rest in split_axes(shape[1:], most))


def find_common_shape(layout: ElementLayout, shapes: Sequence[Shape]) -> Shape:
    """The shape that NumPy broadcasts all shapes to."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        described = " and ".join(map(str, shapes))
        raise ArgumentShapeError(
            f"{layout.name}: shapes {described} cannot be broadcast together"
        ) from None


# --- operations ---


@operation
def compute(
    prime: Prime,
    operation: str,
    operands: Sequence[ElementData],
    *,
    commutes: bool = False,
    steps: list[Step] | None = None,
) -> ElementData:
    """An operation of `kernels.elements` on elements; `equal` returns uint32 instead.

    Operands are broadcast over leading axes. `commutes` allows the two operands to be swapped. With
    `steps`, the dispatch on a device is appended to them instead of being submitted.
    """
    full = broadcast(prime, operands, commutes=commutes)
    return _apply_reference(element_kernel(prime, operation), full)


@compute.by_steps
def _compute_by_steps(
    prime: Prime,
    operation: str,
    operands: Sequence[DeviceArray],
    *,
    commutes: bool = False,
    steps: list[Step] | None = None,
) -> DeviceArray:
    return _dispatch(prime, operation, broadcast(prime, operands, commutes=commutes), steps=steps)


def combine(prime: Prime, operation: str, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """`compute` for arrays on one device, of one shape or with a single element b. Most operations
    are like this, so it takes the shortest way to the device."""
    found: DeviceArray = a.storage.device.run_operation(_PAIR, (prime, operation, a, b), {})
    return found


def _combine_on_host(prime: Prime, operation: str, a: Words, b: Words) -> ElementData:
    return compute(prime, operation, [a, b])


def _combine_by_steps(prime: Prime, operation: str, a: DeviceArray, b: DeviceArray) -> DeviceArray:
    device = a.storage.device
    count, repeats = a.nbytes // prime.element_bytes, a.shape != b.shape
    always_aligned = device.info.limits.buffer_offset_alignment % PACK_BYTES == 0
    kernel = _get_pair_kernel(
        prime,
        operation,
        repeats,
        repeats or count > MAX_UNSTRIDED_ELEMENTS,
        family(prime) == "wide" and device.f64_limbs,  # `with_f64_limbs`, without a call
        always_aligned or can_pack((a, b)),
    )
    result: DeviceArray = device.empty(a.shape, a.dtype)
    if count:
        periods = (1,) if repeats else ()
        arrays = a, b, result
        device.submit([Dispatch(kernel, arrays, count, periods, None, True, elementwise=1)])
    return result


_PAIR: Operation[..., DeviceArray] = Operation(_combine_on_host, _combine_by_steps)


@functools.cache
def _get_pair_kernel(
    prime: Prime,
    operation: str,
    broadcast: bool,
    grid_stride: bool,
    f64_limbs: bool,
    packed: bool,
) -> Kernel:
    return element_kernel(
        prime,
        operation,
        broadcast=broadcast,
        grid_stride=grid_stride,
        f64_limbs=f64_limbs,
        packed=packed,
    )


@operation
def select(
    prime: Prime, condition: npt.NDArray[np.bool_], a: ElementData, b: ElementData
) -> ElementData:
    """a where the condition, an array on the host, is true, else b; all are broadcast."""
    flags, operands = _broadcast_selection(prime, condition, a, b)
    return _apply_reference(element_kernel(prime, "select"), [flags, *operands])


@select.by_steps
def _select_by_steps(
    prime: Prime, condition: npt.NDArray[np.bool_], a: DeviceArray, b: DeviceArray
) -> DeviceArray:
    flags, operands = _broadcast_selection(prime, condition, a, b)
    return _dispatch(prime, "select", operands, a.storage.device.put(flags))


def _broadcast_selection(
    prime: Prime, condition: npt.NDArray[np.bool_], a: Data, b: Data
) -> tuple[npt.NDArray[np.uint32], Sequence[Data]]:
    """The condition as a kernel takes it, and the operands."""
    shapes = [condition.shape, get_shape(prime, a), get_shape(prime, b)]
    shape = find_common_shape(prime, shapes)
    flags = np.broadcast_to(condition, shape).astype(np.uint32, order="C")
    return flags, _repeat_operands(prime, [a, b], shape)


@operation
def convert(prime: Prime, data: ElementData, form: Form) -> ElementData:
    """Elements of a prime in Montgomery form, converted to `form` from the other form."""
    return _apply_reference(element_kernel(prime, _CONVERSIONS[form]), [data])


@convert.by_steps
def _convert_by_steps(prime: Prime, data: DeviceArray, form: Form) -> DeviceArray:
    kernel = element_kernel(
        prime,
        _CONVERSIONS[form],
        grid_stride=True,
        f64_limbs=with_f64_limbs(data.storage.device, prime),
        packed=can_pack([data]),
    )
    return apply_kernel(kernel, [data])


_CONVERSIONS: dict[Form, str] = {"montgomery": "to_montgomery", "canonical": "from_montgomery"}


def exponent_words(exponent: int) -> npt.NDArray[np.uint32]:
    """An exponent as the kernel `power` takes it: 32-bit words, the least significant first."""
    count = max(-(-exponent.bit_length() // 32), 1)
    return np.frombuffer(exponent.to_bytes(4 * count, "little"), np.uint32)


def put_exponent(device: ArrayDevice, exponent: int) -> DeviceArray:
    """The words of an exponent on the device, which caches them."""
    found = exponent_words(exponent)
    return device.cache(("words", found.tobytes()), lambda: device.put(found))


# --- broadcasting and dispatch ---


def broadcast(
    layout: ElementLayout, operands: Sequence[Data], *, commutes: bool = False
) -> Sequence[Data]:
    """The operands, of which the first has the common shape; the kernel repeats the others."""
    shapes = [get_shape(layout, each) for each in operands]
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return operands
    longest = max(shapes, key=len)
    if isinstance(operands[0], DeviceArray) and all(
        _repeats_leading_axes(shape, longest) for shape in shapes
    ):
        # The usual case, such as a single element: the kernel repeats it.
        if first == longest:
            return operands
        if commutes and shapes[1] == longest:
            return operands[::-1]
    shape = find_common_shape(layout, shapes)
    if commutes and first != shape and shapes[1] == shape:
        operands = operands[::-1]
    return _repeat_operands(layout, operands, shape)


def _repeat_operands(
    layout: ElementLayout, operands: Sequence[Data], shape: Shape
) -> Sequence[Data]:
    """The operands as a kernel takes them: the first has the shape, and so have the others if they
    are not just repeated over leading axes.

    Views repeat the elements. A device copies a view that a kernel cannot read as it is.
    """
    repeated = [broadcast_to(layout, operands[0], shape)]
    for each in operands[1:]:
        kept = isinstance(each, DeviceArray) and _repeats_leading_axes(
            get_shape(layout, each), shape
        )
        repeated.append(each if kept else broadcast_to(layout, each, shape))
    return repeated


def _repeats_leading_axes(own: Shape, shape: Shape) -> bool:
    """Whether elements are repeated over leading axes only, so that their order stays the same:
    without leading axes of length 1, the shape is the end of the common one."""
    if not own or own == shape:
        return True
    first = next((axis for axis, length in enumerate(own) if length != 1), len(own))
    core = own[first:]
    return not core or core == shape[len(shape) - len(core) :]


def _apply_reference(kernel: Kernel, arrays: Sequence[ElementData]) -> Words:
    """The reference of an element-wise kernel on NumPy arrays. It needs no push words: it sees the
    shapes of the arrays."""
    assert kernel.reference is not None
    computed: Words = kernel.reference(*arrays)
    return computed.reshape(_find_result_shape(kernel, arrays[0]))


def _find_result_shape(kernel: Kernel, first: ElementData) -> Shape:
    """The shape of the result of an element-wise kernel, whose first argument is given."""
    types = kernel.types
    assert types is not None
    own, out = types[0].shape, types[-1].shape
    return first.shape[: len(first.shape) - len(own)] + out


def _dispatch(
    prime: Prime,
    operation: str,
    operands: Sequence[DeviceArray],
    condition: DeviceArray | None = None,
    steps: list[Step] | None = None,
) -> DeviceArray:
    """The kernel of an operation; its first operand is the longest, after a condition if any."""
    first = operands[0]
    count = count_elements(prime, first)
    counts = [count_elements(prime, each) for each in operands]
    if condition is None:
        counts = counts[1:]
    else:
        operands = [condition, *operands]
    repeats = any(each != count for each in counts)
    kernel = element_kernel(
        prime,
        operation,
        broadcast=repeats,
        grid_stride=repeats or count > MAX_UNSTRIDED_ELEMENTS,
        f64_limbs=with_f64_limbs(first.storage.device, prime),
        packed=can_pack(operands),
    )
    periods = tuple(0 if each == count else each for each in counts) if repeats else ()
    return apply_kernel(kernel, operands, periods, steps)


def apply_kernel(
    kernel: Kernel,
    arrays: Sequence[DeviceArray],
    push_words: tuple[int, ...] = (),
    steps: list[Step] | None = None,
) -> DeviceArray:
    """An element-wise kernel on arrays of one device; `push_words` are appended to its push
    constants. The dispatch is appended to `steps`, or else submitted."""
    first, types = arrays[0], kernel.types
    assert types is not None
    device: ArrayDevice = first.storage.device
    result = device.empty(_find_result_shape(kernel, first), types[-1].dtype)
    count = first.nbytes // types[0].nbytes
    if count:
        dispatch = Dispatch(
            kernel, (*arrays, result), count, push_words, grid_stride=True, elementwise=1
        )
        if steps is None:
            device.submit([dispatch])
        else:
            steps.append(dispatch)
    return result
