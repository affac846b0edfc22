"""Indexing and assignment of elements, by NumPy's rules, on the host and on a device.

An index consists of integers, slices, an ellipsis, None, boolean masks and index arrays. The axes
are axes of elements: the columns of an element are not indexed.

On a device basic indexing (without masks and index arrays) gives views, and assignment to a view is
a copy. Masks and index arrays are on the host. There they become the positions of the selected
elements, checked against the shape, and a kernel gathers from these positions or scatters to them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementIndexError,
)
from gpu_executor.kernels.indexing import SKIPPED, gather_kernel, scatter_kernel
from gpu_executor.ops.elementwise import ElementData, get_shape, reshape
from gpu_executor.ops.operation import operation
from gpu_executor.primes import ElementLayout
from gpu_executor.primes.prime import WORD_BYTES

Index = tuple[Any, ...]
"""Integers, slices, None, arrays of integers or booleans, and exactly one ellipsis. It matters even
if it stands for no axis: NumPy takes the index arrays before and behind it for separated."""
MAX_UNIT_WORDS = 4
"""32-bit words that one invocation of the kernels moves at once, if the elements are multiples."""


def parse_index(shape: Shape, item: Any) -> Index:
    """The index that was written in brackets, checked against the number of axes."""
    entries = tuple(_parse_entry(each) for each in (item if isinstance(item, tuple) else (item,)))
    axes = sum(_count_axes(entry) for entry in entries)
    if axes > len(shape):
        raise ElementIndexError(f"{axes} indices for an array of shape {shape}")
    ellipses = sum(entry is Ellipsis for entry in entries)
    if ellipses > 1:
        raise ElementIndexError("an index can have only a single ellipsis ('...')")
    return entries if ellipses else (*entries, Ellipsis)


def _parse_entry(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return _check_slice(entry) if isinstance(entry, slice) else entry
    if isinstance(entry, bool | np.bool_):
        return np.array(entry)  # a mask without axes, as in NumPy
    if isinstance(entry, int | np.integer):
        return int(entry)
    if isinstance(entry, np.ndarray | list | tuple):
        found = np.asarray(entry)
        if found.dtype.kind in "biu":
            return found
        if found.size == 0 and not isinstance(entry, np.ndarray):
            return found.astype(np.intp)  # NumPy makes floats of an empty list
    elif hasattr(entry, "__index__") and not hasattr(entry, "shape"):
        return operator.index(entry)
    described = getattr(entry, "dtype", type(entry).__name__)
    raise ElementIndexError(
        "an array of elements is indexed by integers, slices, an ellipsis, None, and arrays or "
        f"lists of integers or booleans on the host, not by {described}"
    )


def _check_slice(entry: slice) -> slice:
    for each in (entry.start, entry.stop, entry.step):
        if each is not None and not hasattr(each, "__index__"):
            raise ArgumentTypeError(f"the bounds of a slice are integers or None, not {each!r}")
    if entry.step is not None and operator.index(entry.step) == 0:
        raise ArgumentValueError("the step of a slice must not be 0")
    return entry


def _count_axes(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, np.ndarray) and entry.dtype == np.bool_ else 1


def is_basic(index: Index) -> bool:
    """Whether the index selects a view: it has no masks and no index arrays."""
    return not any(isinstance(entry, np.ndarray) for entry in index)


def get_items(layout: ElementLayout, data: ElementData, item: Any) -> ElementData:
    """The selected elements: a view for a basic index, else new memory.

    A single element, selected by integers alone, is a copy, as NumPy's scalars are.
    """
    shape = get_shape(layout, data)
    index = parse_index(shape, item)
    try:
        if not is_basic(index):
            return _gather(layout, data, index)
        found = data[_with_columns(layout, index)]
    except IndexError as error:
        raise _make_index_error(shape, error) from None
    is_element = len(index) == len(shape) + 1 and all(isinstance(each, int) for each in index[:-1])
    if is_element and not _has_ellipsis(item):
        return found.copy()
    return found


def _make_index_error(shape: Shape, error: IndexError) -> ElementIndexError:
    """NumPy's error about an index, for elements of that shape."""
    return ElementIndexError(f"{error}; the shape is {shape}")


def _with_columns(layout: ElementLayout, index: Index) -> Index:
    """The index of words. Because of its ellipsis NumPy returns an array and never a scalar."""
    return (*index, *[slice(None)] * len(layout.element_shape))


def _has_ellipsis(item: Any) -> bool:
    return any(each is Ellipsis for each in (item if isinstance(item, tuple) else (item,)))


def set_items(layout: ElementLayout, data: ElementData, item: Any, values: ElementData) -> None:
    """Write the values, which are in the same place and form, to the selected elements.

    Values are broadcast to the shape of the selection. Where an index array selects an element
    several times, the last value is written.
    """
    shape = get_shape(layout, data)
    index = parse_index(shape, item)
    try:
        _write_items(layout, data, index, values)
    except IndexError as error:
        raise _make_index_error(shape, error) from None


def _write_items(
    layout: ElementLayout, data: ElementData, index: Index, values: ElementData
) -> None:
    if isinstance(data, DeviceArray):
        assert isinstance(values, DeviceArray)
        if is_basic(index):
            copy_items(layout, values, data[_with_columns(layout, index)])
        else:
            updated = _scatter(layout, data, index, values)
            if updated is not data:
                copy_items(layout, updated, data)
        return
    assert not isinstance(values, DeviceArray)
    try:
        data[_with_columns(layout, index)] = values
    except ValueError as error:
        shape = get_shape(layout, data[_with_columns(layout, index)])
        _check_assignable(layout, get_shape(layout, values), shape)
        raise ArgumentValueError(
            f"{layout.name}: {error}; copy() makes an array to write to"
        ) from None


def copy_items(layout: ElementLayout, values: ElementData, target: ElementData) -> None:
    """Write the values to all elements of the target, broadcast to its shape, in their order."""
    shape = get_shape(layout, target)
    _check_assignable(layout, get_shape(layout, values), shape)
    if isinstance(target, DeviceArray):
        assert isinstance(values, DeviceArray)
        device: ArrayDevice = target.storage.device
        if values.storage is target.storage:
            values = values.copy()  # the two may overlap
        source = _drop_leading_axes(layout, values, len(shape)).broadcast_to(target.shape)
        if source.size:
            device.submit([ArrayCopy(source, target)])
    else:
        target[...] = values


def _drop_leading_axes(layout: ElementLayout, values: DeviceArray, axes: int) -> DeviceArray:
    """Values without axes of length 1 in front of `axes` axes: assignment ignores them."""
    extra = max(len(get_shape(layout, values)) - axes, 0)
    return values.reshape(values.shape[extra:]) if extra else values


def _check_assignable(layout: ElementLayout, given: Shape, shape: Shape) -> None:
    extra = max(len(given) - len(shape), 0)
    fits = all(n == 1 for n in given[:extra]) and all(
        n in (1, wanted) for n, wanted in zip(given[extra:][::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ArgumentShapeError(
            f"{layout.name}: values of shape {given} cannot be assigned to elements of shape "
            f"{shape}"
        )


# --- joining ---


def concatenate(layout: ElementLayout, arrays: Sequence[ElementData], axis: int) -> ElementData:
    """Arrays one behind the other along an axis; all are in one place."""
    shapes = [get_shape(layout, each) for each in arrays]
    ndim = len(shapes[0])
    at = axis + ndim if axis < 0 else axis
    rest = {shape[:at] + shape[at + 1 :] for shape in shapes}
    if not 0 <= at < ndim or len(rest) > 1 or any(len(shape) != ndim for shape in shapes):
        raise ArgumentShapeError(
            f"{layout.name}: arrays of shapes {', '.join(map(str, shapes))} cannot be joined along "
            f"axis {axis}; all other axes must be equal"
        )
    return _join(list(arrays), at)


@operation
def _join(arrays: Sequence[ElementData], axis: int) -> ElementData:
    return np.concatenate([np.asarray(each) for each in arrays], axis=axis)


@_join.by_steps
def _join_by_steps(arrays: Sequence[DeviceArray], axis: int) -> DeviceArray:
    first, lengths = arrays[0], [each.shape[axis] for each in arrays]
    device: ArrayDevice = first.storage.device
    shape = (*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :])
    result = device.empty(shape, first.dtype)
    copies: list[Step] = []
    start = 0
    for each, length in zip(arrays, lengths, strict=True):
        part = (*[slice(None)] * axis, slice(start, start + length))
        if each.size:
            copies.append(ArrayCopy(each, result[part]))
        start += length
    if copies:
        device.submit(copies)
    return result


def stack(layout: ElementLayout, arrays: Sequence[ElementData], axis: int) -> ElementData:
    """Arrays of one shape along a new axis; all are in one place."""
    shape = get_shape(layout, arrays[0])
    at = axis + len(shape) + 1 if axis < 0 else axis
    if not 0 <= at <= len(shape):
        raise ArgumentShapeError(
            f"{layout.name}: axis {axis} is not one of the {len(shape) + 1} axes of the result"
        )
    parts = []
    for each in arrays:
        own = get_shape(layout, each)
        parts.append(reshape(layout, each, (*own[:at], 1, *own[at:])))
    return concatenate(layout, parts, at)


# --- masks and index arrays ---


def _locate(shape: Shape, index: Index) -> tuple[npt.NDArray[np.intp], int]:
    """The positions of what an index selects, and the number of axes that the positions count.

    The axes that the index leaves as they are, behind all others, belong to blocks of elements.
    Position i stands for block i of the array.
    """
    axes = len(shape)
    while index[-1] is Ellipsis or (isinstance(index[-1], slice) and index[-1] == slice(None)):
        *rest, last = index
        axes = sum(map(_count_axes, rest)) if last is Ellipsis else axes - 1
        index = tuple(rest)
    outer = shape[:axes]
    positions = np.broadcast_to(np.intp(0), outer)[index]
    for axis, length in enumerate(outer):
        # NumPy applies the index to the coordinates of every axis, arrays that take no memory.
        along = np.arange(length).reshape([-1 if each == axis else 1 for each in range(axes)])
        selected = np.broadcast_to(along, outer)[index]
        positions = positions + selected * math.prod(outer[axis + 1 :])
    return positions, axes


@operation
def _gather(layout: ElementLayout, data: ElementData, index: Index) -> ElementData:
    """Copy the selected elements to new memory."""
    return data[_with_columns(layout, index)]


@_gather.by_steps
def _gather_by_steps(layout: ElementLayout, data: DeviceArray, index: Index) -> DeviceArray:
    device: ArrayDevice = data.storage.device
    shape = get_shape(layout, data)
    positions, axes = _locate(shape, index)
    own = shape[axes:]
    result = device.empty((*positions.shape, *own, *layout.element_shape), data.dtype)
    if result.size:
        source = data if data.is_contiguous else data.copy()
        where = device.put(positions.astype(np.uint32).reshape(-1))
        unit, units = _choose_units(layout, math.prod(own), [source])
        arrays = source, where, result
        count = positions.size * units
        device.submit([Dispatch(gather_kernel(), arrays, count, (unit, units), grid_stride=True)])
    return result


def gather_rows(data: DeviceArray, positions: DeviceArray) -> DeviceArray:
    """The entries of the first axis of an array of whole words at positions on its device, uint32
    below its length: new memory."""
    device: ArrayDevice = data.storage.device
    result = device.empty((len(positions), *data.shape[1:]), data.dtype)
    words = math.prod(data.shape[1:]) * data.dtype.itemsize // WORD_BYTES
    unit = math.gcd(words, MAX_UNIT_WORDS)
    push, count = (unit, words // unit), len(positions) * words // unit
    arrays = data, positions, result
    if count:
        device.submit([Dispatch(gather_kernel(), arrays, count, push, grid_stride=True)])
    return result


@operation
def _scatter(
    layout: ElementLayout, data: ElementData, index: Index, values: ElementData
) -> ElementData:
    """Write values to the selected elements of the array, or of a copy; return what was changed."""
    changed = np.array(data)
    set_items(layout, changed, index, values)
    return changed


@_scatter.by_steps
def _scatter_by_steps(
    layout: ElementLayout, data: DeviceArray, index: Index, values: DeviceArray
) -> DeviceArray:
    device: ArrayDevice = data.storage.device
    shape = get_shape(layout, data)
    positions, axes = _locate(shape, index)
    own = shape[axes:]
    given, selected = get_shape(layout, values), (*positions.shape, *own)
    _check_assignable(layout, given, selected)
    if not math.prod(selected):
        return data
    if math.prod(given) > 1:
        full = (*selected, *layout.element_shape)
        values = _drop_leading_axes(layout, values, len(selected)).broadcast_to(full)
    if values.storage is data.storage or not values.is_contiguous:
        values = values.copy()
    # Threads write in any order, so an element that is selected several times is written once.
    last = np.empty(math.prod(shape[:axes]), np.intp)
    flat, order = positions.reshape(-1), np.arange(positions.size)
    last[flat] = order
    where = device.put(np.where(last[flat] == order, flat, SKIPPED).astype(np.uint32))
    target = data if _is_bindable(data) else data.copy()
    unit, units = _choose_units(layout, math.prod(own), [values, target])
    push_words = unit, units, values.nbytes // (WORD_BYTES * unit)
    arrays, count = (values, where, target), positions.size * units
    device.submit([Dispatch(scatter_kernel(), arrays, count, push_words, grid_stride=True)])
    return target


def _is_bindable(array: DeviceArray) -> bool:
    """Whether a kernel can write to parts of the array itself."""
    alignment: int = array.storage.device.info.limits.buffer_offset_alignment
    return array.is_contiguous and array.offset % alignment == 0


def _choose_units(
    layout: ElementLayout, block: int, arrays: Sequence[DeviceArray]
) -> tuple[int, int]:
    """The words that an invocation moves, and how many times as many words a block has."""
    unit = math.gcd(layout.words, MAX_UNIT_WORDS)
    while any(array.offset % (WORD_BYTES * unit) for array in arrays):
        unit //= 2
    return unit, block * layout.words // unit
