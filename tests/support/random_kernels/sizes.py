"""The sizes of a call: its domain, the shapes of its arrays, its work-groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.support.random_kernels.description import Buffer, Call, Description

Shape = tuple[int, ...]
SIZES = (1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 99, 100, 101, 127, 128, 129, 200, 255, 256, 257, 300)
LARGE_SIZE = 20_000
"""Plans choose larger work-groups from 2^14 elements on."""
EXTENTS = {2: (1, 2, 3, 5, 7, 8, 9, 16, 17, 20), 3: (1, 2, 3, 4, 5, 7)}
LARGEST: dict[int, Shape] = {1: (300,), 2: (20, 20), 3: (7, 7, 7)}
"""The largest extents of kernels with one grid for all calls, by the number of dimensions."""


# --- arrays ---


def count_elements(kernel: Description, number: int, call: Call) -> int:
    """How many elements a buffer has in a call."""
    return math.prod(get_leading(kernel, number, call))


def count_first(kernel: Description, call: Call) -> int:
    """The number of elements of the first argument: of the first output where there is no other."""
    passed = [number for number, each in enumerate(kernel.buffers) if each.role != "out"]
    return count_elements(kernel, passed[0] if passed else 0, call)


def get_leading(kernel: Description, number: int, call: Call) -> Shape:
    """The leading axes of a buffer in a call."""
    buffer, size = kernel.buffers[number], math.prod(call.extent)
    if buffer.length == "n":
        return _shape_domain(kernel, buffer, call.axes)
    if buffer.length == "own":
        return (call.own[number],)
    if buffer.length == "rows":
        return (call.extent[1], call.own[0])
    if buffer.length == "columns":
        return (call.own[0], call.extent[0])
    return (_count_derived(kernel, buffer, size),)


def get_shape(kernel: Description, number: int, call: Call) -> Shape:
    """The shape of a buffer's array in a call."""
    return get_leading(kernel, number, call) + kernel.buffers[number].trailing


def _shape_domain(kernel: Description, buffer: Buffer, axes: Shape) -> Shape:
    """The leading axes of an array with one element per invocation."""
    if buffer.role != "out" or kernel.out_shape in ("", "leading", "call", "outer", "product"):
        return axes
    return axes[::-1] if kernel.out_shape == "reversed" else (math.prod(axes),)


def _count_derived(kernel: Description, buffer: Buffer, size: int) -> int:
    if buffer.length == "groups":
        return -(-size // kernel.local[0])
    return buffer.fixed if buffer.length == "fixed" else 2 * size


def compute_out_shapes(kernel: Description, axes: Shape) -> list[Shape]:
    """The shapes of the pure outputs."""
    size = math.prod(axes)
    return [
        (
            _shape_domain(kernel, buffer, axes)
            if buffer.length == "n"
            else (_count_derived(kernel, buffer, size),)
        )
        + buffer.trailing
        for buffer in kernel.buffers
        if buffer.role == "out"
    ]


# --- the domain ---


def compute_axes(kernel: Description, shapes: Sequence[Shape]) -> Shape:
    """The axes of the domain, from the shapes of the passed arrays."""
    passed = [each for each in kernel.buffers if each.role != "out"]
    leading = [
        tuple(shape[: len(shape) - len(buffer.trailing)])
        for buffer, shape in zip(passed, shapes, strict=True)
    ]
    if kernel.out_shape == "outer":
        return tuple(math.prod(shape) for shape in leading[:2])
    if kernel.out_shape == "product":
        return (leading[0][0], leading[1][1])
    for buffer, shape in zip(passed, leading, strict=True):
        if buffer.length == "n":
            return shape
    raise AssertionError("no array has the size of the domain")


def compute_extent(kernel: Description, axes: Shape) -> Shape:
    return axes[::-1] if kernel.rank > 1 else (math.prod(axes),)


def has_domain_in_shapes(kernel: Description) -> bool:
    """Whether the shapes of the passed arrays determine the domain."""
    return kernel.out_shape in ("outer", "product") or any(
        each.role != "out" and each.length == "n" for each in kernel.buffers
    )


# --- work-groups ---


def divide(kernel: Description, extent: Shape) -> tuple[int, int, int]:
    """The work-groups that cover a domain."""
    x, y, z = (
        -(-size // local) for size, local in zip((*extent, 1, 1), kernel.local, strict=False)
    )
    return x, y, z


def compute_fixed_grid(kernel: Description) -> tuple[int, int, int]:
    """Work-groups that cover the domain of every call; few, if the code loops."""
    return (3, 1, 1) if kernel.loop else divide(kernel, LARGEST[kernel.rank])


def count_groups(kernel: Description, extent: Shape, elements: Sequence[int]) -> int:
    """The work-groups in x of a call whose buffers have so many elements: as many as the grid says,
    or so many that there is one invocation for each element of the largest argument."""
    if kernel.grid == "tuple":
        return compute_fixed_grid(kernel)[0]
    return divide(kernel, extent if kernel.grid else (max(elements),))[0]
