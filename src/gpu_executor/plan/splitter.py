"""The splitter: work on arrays that one dispatch cannot cover, in ranges of elements that it can.

A call becomes ranges of elements, each with its work-groups: chunks of host arrays for slots, parts
of device arrays that a binding can cover. A part of an element-wise dispatch is a dispatch on a
range of elements. It begins at an offset that the device binds at, and where every array that is
shorter than `count` begins to repeat. A part of a copy of views is a copy of views that extend over
fewer bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.call import Signature
from gpu_executor.calls.dispatch import ArrayCopy, Dispatch
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Grid
from gpu_executor.kernels.families import PACK_BYTES
from gpu_executor.plan.bounds import check_grid
from gpu_executor.plan.plan import CallPlan, ElementRange, split_range

RangeGrid = tuple[ElementRange, Grid]
"""Elements of a call and their work-groups."""


def split_call(
    plan: CallPlan, signature: Signature, device: DeviceInfo, grid: Grid | None = None
) -> tuple[RangeGrid, ...]:
    """Split a call into ranges of elements, each with its work-groups; `grid` replaces those of the
    signature, where the parameters determine them."""
    if grid is not None:
        check_grid(signature.kernel, grid, device)
    count = max(signature.count, 1)
    if signature.kernel.split == "whole":
        given = grid or signature.grid or (plan.groups(signature.invocations), 1, 1)
        return ((ElementRange(0, count), given),)
    return tuple((each, (plan.groups(each.count), 1, 1)) for each in split_range(count, plan.chunk))


class DispatchParts:
    """The parts of one dispatch, which is element-wise (`Dispatch.elementwise`)."""

    def __init__(self, dispatch: Dispatch, max_bytes: int, alignment: int) -> None:
        """`max_bytes` are the most that the device binds, at offsets of that alignment."""
        self._dispatch = dispatch
        self._element_bytes: list[int] = []
        """The bytes of each array that belong to one element; 0 for an array that all parts bind
        whole, because it has fewer elements than `count`."""
        self.alignment = step = math.lcm(alignment, PACK_BYTES)
        """Every part begins at a multiple of so many bytes of its arrays."""
        multiple, most, count = dispatch.elementwise, dispatch.count, dispatch.count
        for array, each in zip(dispatch.arrays, dispatch.kernel.types, strict=True):
            if array.nbytes < count * each.nbytes:
                multiple = math.lcm(multiple, max(array.nbytes // each.nbytes, 1))
                self._element_bytes.append(0)
                continue
            nbytes, rest = divmod(array.nbytes, count)
            multiple = math.lcm(multiple, step // math.gcd(step, nbytes))
            most = 0 if rest else min(most, max_bytes // nbytes)
            self._element_bytes.append(nbytes)
        self.length = most // multiple * multiple
        """The elements of each part but the last; 0 if there are no such parts."""

    def get_limit(self, number: int) -> int | None:
        """The bytes of an array that a part binds at most; None: every part binds it whole."""
        return self.length * self._element_bytes[number] or None

    def make(self, arrays: Sequence[DeviceArray]) -> Iterator[Dispatch]:
        """The parts in order, on the arrays that stand for those of the dispatch: contiguous, and
        at offsets that the device binds at."""
        whole = self._dispatch
        for part in split_range(whole.count, self.length):
            start, count = part.start, part.count
            yield Dispatch(
                whole.kernel,
                tuple(
                    _cut(array, start * nbytes, count * nbytes) if nbytes else array
                    for array, nbytes in zip(arrays, self._element_bytes, strict=True)
                ),
                count,
                whole.push_words,
                whole.groups,
                whole.grid_stride,
                whole.work_group,
                whole.guarded,
                _shift_error(whole.make_error, start),
                whole.overwrites,
            )


def _cut(array: DeviceArray, offset: int, nbytes: int) -> DeviceArray:
    """A range of bytes of a contiguous array."""
    shape = (nbytes // array.dtype.itemsize,)
    return DeviceArray(shape, array.dtype, array.storage, array.offset + offset)


def _shift_error(
    make_error: Callable[[int], Exception] | None, start: int
) -> Callable[[int], Exception] | None:
    """The error of a part from its status word, which is the index of one of its elements."""
    if make_error is None or not start:
        return make_error
    return lambda index: make_error(start + index)


def split_copy(step: ArrayCopy, most: int) -> Iterator[ArrayCopy]:
    """Parts of a copy of views, each of which extends over at most so many bytes: halves along the
    longest axis."""
    views = step.source, step.target
    shape = step.source.shape
    extents = [
        [(n - 1) * abs(stride) for n, stride in zip(shape, each.strides, strict=True)]
        for each in views
    ]
    if max(map(sum, extents)) + step.source.dtype.itemsize <= most:
        yield step
        return
    axis = max(range(len(shape)), key=lambda each: max(extent[each] for extent in extents))
    half = shape[axis] // 2
    for part in (slice(0, half), slice(half, shape[axis])):
        index = (*[slice(None)] * axis, part)
        yield from split_copy(ArrayCopy(step.source[index], step.target[index]), most)
