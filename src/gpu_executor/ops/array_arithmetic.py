"""NumPy's arithmetic on device arrays, element by element: operations, selections and casts.

By steps each of them is one dispatch; chains of operations are not fused. Kernels read operands of
any strides where they lie, repeat them by NumPy's rules for shapes, and take scalars with their
push constants. The callers in `array_functions.py` have chosen the types by NumPy's promotion.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch
from gpu_executor.errors import ArgumentTypeError, DeviceLacksError, NumberRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.arrays import (
    OPERAND_AXES,
    Numbers,
    OperationCode,
    cast_kernel,
    elementwise_kernel,
    find_code,
    select_kernel,
)
from gpu_executor.ops.elementwise import PART_MULTIPLE
from gpu_executor.ops.operation import operation

DType = np.dtype[Any]
Axis = tuple[int, tuple[int, ...]]
"""A length, and the strides of the operands in elements."""
BOOL, WORD = np.dtype(np.bool_), np.dtype(np.uint32)
WORD_BYTES = 4
OPERATIONS: dict[np.ufunc, tuple[OperationCode, bool]] = {
    **{getattr(np, each.name.lower()): (each, False) for each in OperationCode},
    np.greater: (OperationCode.LESS, True),
    np.greater_equal: (OperationCode.LESS_EQUAL, True),
}
"""The operation of each of NumPy's functions, and whether its operands change places."""
WALKED_AXES = (1, 2, OPERAND_AXES)
"""The numbers of axes for which there are kernels; axes of length 1 fill the places."""
COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


class ArrayOperand(NamedTuple):
    """An array, or a scalar as the words of its bits."""

    array: DeviceArray | None
    scalar: tuple[int, int] = (0, 0)


# --- types ---


def choose_numbers(dtype: DType) -> Numbers:
    """The numbers that a kernel computes with."""
    if dtype.kind == "f":
        return "f64" if dtype.itemsize == 8 else "f32"
    return "long" if dtype.itemsize == 8 else "word"


def can_load(numbers: Numbers, dtype: DType) -> bool:
    """Whether kernels that compute with these numbers read elements of a type as they are."""
    own = choose_numbers(dtype)
    return own == numbers or (own, numbers) == ("word", "long")


def check_dtype(device: ArrayDevice, dtype: DType, what: str) -> None:
    """Refuse a type of elements that kernels on the device do not have. `what` is what has the
    type."""
    if find_code(dtype) is None:
        raise ArgumentTypeError(
            f"{what} {dtype}, which arithmetic on device arrays does not take; array.numpy() "
            "fetches the elements, and NumPy computes with them"
        )
    if dtype == np.float64 and not device.computes_float64:
        raise DeviceLacksError(
            f"{what} float64, which {device.info.name} lacks with {device.backend}; convert the "
            "operands with .astype(np.float32), give dtype=np.float32 to a sum or mean, or fetch "
            "them with array.numpy()"
        )


# --- operations ---


@operation
def compute(
    function: np.ufunc,
    operands: Sequence[Any],
    dtypes: Sequence[DType],
    out: Any = None,
) -> Any:
    """One of NumPy's functions in `OPERATIONS` on arrays and NumPy scalars; the scalars have the
    type in which it is computed. `dtypes` are those that NumPy converts the operands and the
    result to.

    By steps, the result is written to `out`, of the same shape and type, if that is given.
    """
    with np.errstate(all="ignore"):
        return np.asarray(function(*operands, signature=tuple(dtypes), casting="unsafe"))


@compute.by_steps
def _compute_by_steps(
    function: np.ufunc,
    operands: Sequence[DeviceArray | np.generic],
    dtypes: Sequence[DType],
    out: DeviceArray | None = None,
) -> DeviceArray:
    device = get_device(operands)
    code, is_swapped = OPERATIONS[function]
    *loops, target = dtypes
    loop = loops[0]
    if function in COMPARISONS and all(each.dtype.kind in "biu" for each in operands):
        # Kernels compare integers of different types exactly, without a common type.
        loops = [each.dtype for each in operands]
        loop = max(loops, key=lambda each: each.itemsize)
    elif loop == BOOL and code == OperationCode.INVERT:
        code = OperationCode.LOGICAL_NOT
    for each in (*(array.dtype for array in operands), *loops, target):
        check_dtype(device, each, f"np.{function.__name__}: an operand, or the result in NumPy, is")
    numbers = choose_numbers(loop)
    converted = [
        cast(each, own) if not can_load(numbers, each.dtype) else each
        for each, own in zip(operands, loops, strict=True)
    ]
    if is_swapped:
        converted.reverse()
    given = [make_operand(each) for each in converted]
    types = [each.dtype for each in converted]
    if len(given) == 1:
        given, types = [*given, ArrayOperand(None)], [*types, *types]

    def make_kernel(axes: int) -> Kernel:
        return elementwise_kernel(
            code,
            numbers,
            (types[0], types[1], target),
            (given[0].array is None, given[1].array is None),
            axes,
            loop=loop,
        )

    if out is not None:
        write_elements(make_kernel, given, out)
        return out
    shape = np.broadcast_shapes(*(each.shape for each in operands))
    return _make_elements(make_kernel, given, device, shape, target)


@operation
def select(condition: Any, a: Any, b: Any, dtype: DType) -> Any:
    """a where the condition, an array of bools, is true, else b. Both are arrays or NumPy scalars
    of the type."""
    return np.where(condition, a, b).astype(dtype, copy=False)


@select.by_steps
def _select_by_steps(
    condition: DeviceArray,
    a: DeviceArray | np.generic,
    b: DeviceArray | np.generic,
    dtype: DType,
) -> DeviceArray:
    device: ArrayDevice = condition.storage.device
    check_dtype(device, dtype, "np.where: the result in NumPy is")
    given = [ArrayOperand(condition), make_operand(a), make_operand(b)]

    def make_kernel(axes: int) -> Kernel:
        return select_kernel(dtype, (given[1].array is None, given[2].array is None), axes)

    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    return _make_elements(make_kernel, given, device, shape, dtype)


@operation
def cast(array: Any, dtype: DType) -> Any:
    """The elements converted to another type, as by `astype`."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


@cast.by_steps
def _cast_by_steps(array: DeviceArray, dtype: DType) -> DeviceArray:
    device: ArrayDevice = array.storage.device
    for each in (array.dtype, dtype):
        check_dtype(device, each, "astype: the array, or the result, is")
    make_kernel = functools.partial(cast_kernel, array.dtype, dtype)
    return _make_elements(make_kernel, [ArrayOperand(array)], device, array.shape, dtype)


# --- operands ---


def get_device(operands: Sequence[Any]) -> ArrayDevice:
    """The device of the first device array among the operands."""
    device: ArrayDevice = next(
        each.storage.device for each in operands if isinstance(each, DeviceArray)
    )
    return device


def make_operand(given: DeviceArray | np.generic) -> ArrayOperand:
    """An array, or a scalar with the words of its bits."""
    if isinstance(given, DeviceArray):
        return ArrayOperand(given)
    bits = int.from_bytes(given.tobytes(), sys.byteorder)
    return ArrayOperand(None, (bits & 0xFFFFFFFF, bits >> 32))


# --- dispatches ---


def _make_elements(
    make_kernel: Callable[[int], Kernel],
    operands: Sequence[ArrayOperand],
    device: ArrayDevice,
    shape: Shape,
    dtype: DType,
) -> DeviceArray:
    result = device.empty(shape, dtype)
    write_elements(make_kernel, operands, result, is_new=True)
    return result


def write_elements(
    make_kernel: Callable[[int], Kernel],
    operands: Sequence[ArrayOperand],
    result: DeviceArray,
    *,
    is_new: bool = False,
) -> None:
    """Submit the kernel that `make_kernel` makes for a number of axes, in parts where a binding
    cannot cover an array. `is_new`: the result fills its storage, so whole words may be written.
    """
    if not result.size:
        return
    device: ArrayDevice = result.storage.device
    if not (is_new or _is_writable(result)):
        made = device.empty(result.shape, result.dtype)
        write_elements(make_kernel, operands, made, is_new=True)
        device.submit([ArrayCopy(made, result)])
        return
    given = [
        each if each.array is None else ArrayOperand(each.array.broadcast_to(result.shape))
        for each in operands
    ]
    arrays = [each.array for each in given if each.array is not None]
    parts = split_wide((*arrays, result))
    if parts is not None:
        for part in parts:
            cut = [each if each.array is None else ArrayOperand(each.array[part]) for each in given]
            write_elements(make_kernel, cut, result[part])
        return
    axes = merge_axes(result.shape, [_count_strides(each) for each in arrays])
    if len(axes) > OPERAND_AXES or not all(map(_is_regular, arrays)):
        given = [
            each
            if each.array is None or each.array.is_contiguous
            else ArrayOperand(each.array.copy())
            for each in given
        ]
        arrays = [each.array for each in given if each.array is not None]
        axes = merge_axes(result.shape, [_count_strides(each) for each in arrays])
    lengths, strides = pad_axes(axes, len(arrays))
    push_words = [result.size, *lengths]
    bound: list[DeviceArray] = []
    steps = iter(strides)
    for each in given:
        if each.array is None:
            push_words += [0] * (1 + OPERAND_AXES)
        else:
            words, start = bind_words(each.array)
            bound.append(words)
            push_words += [start, *next(steps)]
        push_words += each.scalar
    # The place of a scalar, which is never read, has the first array.
    array = iter(tuple(bound))
    bindings = [bound[0] if each.array is None else next(array) for each in given]
    target, _ = bind_words(result)
    count = result.size if result.dtype.itemsize == 8 else target.size
    kernel = make_kernel(next(n for n in WALKED_AXES if n >= len(axes)))
    dispatch = Dispatch(kernel, (*bindings, target), count, tuple(push_words), grid_stride=True)
    device.submit([dispatch])


def _is_writable(array: DeviceArray) -> bool:
    """Whether a kernel can write the array where it lies, in whole words."""
    alignment: int = array.storage.device.info.limits.buffer_offset_alignment
    return (
        array.is_contiguous
        and array.offset % max(alignment, 8) == 0
        and array.nbytes % WORD_BYTES == 0
    )


def _is_regular(array: DeviceArray) -> bool:
    """Whether elements begin at multiples of their size."""
    size = array.dtype.itemsize
    return not any(each % size for each in (array.offset, *array.strides))


def split_wide(arrays: Sequence[DeviceArray]) -> Iterator[tuple[slice, ...]] | None:
    """The indices of two parts of arrays of one shape, one of which has more bytes than a binding
    from its first element in memory to the last; None if none has."""
    device: ArrayDevice = arrays[0].storage.device
    limits = device.info.limits
    most = limits.max_storage_buffer_range - max(limits.buffer_offset_alignment, 8) - WORD_BYTES
    shape = arrays[0].shape
    extents = [
        [(n - 1) * abs(stride) for n, stride in zip(shape, each.strides, strict=True)]
        for each in arrays
    ]
    widest = max(extents, key=sum)
    if sum(widest) + 8 <= most:
        return None
    axis = widest.index(max(widest))
    half = shape[axis] // 2
    half -= half % PART_MULTIPLE if half > PART_MULTIPLE else 0
    outer = (slice(None),) * axis
    return iter([(*outer, slice(0, half)), (*outer, slice(half, shape[axis]))])


def merge_axes(shape: Shape, strides: Sequence[Sequence[int]]) -> list[Axis]:
    """The axes that are left where neighbours are as one for all operands, without those of length
    1. `strides` has those of each operand."""
    axes: list[Axis] = []
    for length, *steps in zip(shape, *strides, strict=True):
        if length == 1:
            continue
        if axes and all(
            one == other * length for one, other in zip(axes[-1][1], steps, strict=True)
        ):
            axes[-1] = axes[-1][0] * length, tuple(steps)
        else:
            axes.append((length, tuple(steps)))
    return axes


def pad_axes(axes: Sequence[Axis], operands: int) -> tuple[list[int], list[list[int]]]:
    """The lengths of `OPERAND_AXES` axes, and the strides of each operand, as push words."""
    missing = OPERAND_AXES - len(axes)
    lengths = [1] * missing + [length for length, _ in axes]
    strides = [
        [0] * missing + [steps[number] % (1 << 32) for _, steps in axes]
        for number in range(operands)
    ]
    return lengths, strides


def _count_strides(array: DeviceArray) -> list[int]:
    return [each // array.dtype.itemsize for each in array.strides]


def bind_words(array: DeviceArray) -> tuple[DeviceArray, int]:
    """The words of memory that an array extends over, from an offset that a kernel can bind, and
    the element of its type in them where the array begins."""
    device: ArrayDevice = array.storage.device
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = array.offset + sum(step for step in steps if step < 0)
    high = array.offset + sum(step for step in steps if step > 0) + array.dtype.itemsize
    begin = low - low % max(device.info.limits.buffer_offset_alignment, 8)
    words = DeviceArray((-(-(high - begin) // WORD_BYTES),), WORD, array.storage, begin)
    return words, (array.offset - begin) // array.dtype.itemsize


def as_host(scalar: Any, dtype: DType) -> np.generic:
    """A scalar as one of NumPy's; a Python integer that the type does not hold raises
    `NumberRangeError`, where NumPy raises `OverflowError`."""
    if isinstance(scalar, int) and dtype.kind in "iu":
        ends = np.iinfo(dtype)
        if not ends.min <= scalar <= ends.max:  # NumPy 1 would wrap around
            raise NumberRangeError(
                f"the integer {scalar} is beyond {dtype}; convert the array to a type that holds "
                "it with .astype"
            )
    try:
        with np.errstate(all="ignore"):
            found: Any = np.asarray(scalar, dtype if isinstance(scalar, int) else None)
            converted: np.generic = found.astype(dtype)[()]
    except OverflowError as error:
        raise NumberRangeError(f"a number is beyond {dtype}: {error}") from None
    return converted
