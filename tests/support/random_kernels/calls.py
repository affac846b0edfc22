"""Calls of random kernels: the kernel as the package sees it, arrays, parameters and results."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from tests.support.random_kernels.description import Call, Description
from tests.support.random_kernels.kinds import KINDS, Kind
from tests.support.random_kernels.memory import fill, find_original, list_passed
from tests.support.random_kernels.model import execute
from tests.support.random_kernels.parameters import (
    find_filled,
    has_domain_in_params,
    has_same_names,
    list_values,
    make_params,
    read_extent,
    read_keywords,
)
from tests.support.random_kernels.sizes import (
    Shape,
    compute_axes,
    compute_extent,
    compute_fixed_grid,
    compute_out_shapes,
    divide,
    get_leading,
    has_domain_in_shapes,
)

Array = npt.NDArray[Any]
SMALL = 4
"""The largest small value."""


# --- the declaration ---


def make_kernel(kernel: Description, code: bytes, **options: Any) -> gx.Kernel:
    """The kernel with what the description declares, and its model as the reference."""
    declared: dict[str, Any] = {"split": kernel.split, "name": kernel.name, **options}
    roles = [buffer.role for buffer in kernel.buffers]
    if kernel.declare == "list":
        declared["buffers"] = roles
    elif kernel.declare == "text":
        declared["buffers"] = ", ".join(roles)
    if kernel.count != "unsaid":
        declared["count"] = kernel.count
    if kernel.in_place:
        declared["tuning"] = gx.Tuning(in_place=True)
    if kernel.init != "default":
        declared["init"] = kernel.init
    if kernel.out_shape not in ("", "call"):
        declared["out_shape"] = functools.partial(_compute_out_shape, kernel)
    if kernel.grid:
        declared["grid"] = _make_grid(kernel)
    constants = {each[0]: each[3] for each in kernel.constants if each[3] is not None}
    sizes = list(zip(kernel.local_ids, kernel.local, strict=True))
    if kernel.size_by != "constants":
        sizes = sizes[1:]
    constants |= {spec_id: size for spec_id, size in sizes if spec_id is not None}
    if kernel.size_by == "work_group":
        declared["work_group"] = kernel.local[0]
    if constants:
        declared["constants"] = constants
    defaults = {each.name: each.default for each in kernel.params if each.default is not None}
    if defaults:
        declared["params"] = defaults
    if has_reference(kernel):
        declared["reference"] = functools.partial(compute_reference, kernel)
    return gx.Kernel.from_spirv(code, **declared)


def has_reference(kernel: Description) -> bool:
    """Whether the model can be the kernel's `reference`: its keywords and the shapes determine the
    results. The number of elements does not tell how many axes an output has."""
    by_params = has_domain_in_params(kernel) and kernel.rank > 1
    return (has_domain_in_shapes(kernel) or by_params) and not has_same_names(kernel)


def _compute_out_shape(kernel: Description, *shapes: Shape) -> Any:
    axes = compute_axes(kernel, shapes) if has_domain_in_shapes(kernel) else ()
    found = compute_out_shapes(kernel, axes)
    return found[0] if len(found) == 1 else found


def _compute_grid_of_shapes(kernel: Description, *shapes: Shape) -> Any:
    groups = divide(kernel, compute_extent(kernel, compute_axes(kernel, shapes)))
    return groups[: kernel.rank] if kernel.rank < 3 else groups


def _make_grid(kernel: Description) -> Any:
    if kernel.grid == "shapes":
        return functools.partial(_compute_grid_of_shapes, kernel)
    return _GridOfParams(kernel) if kernel.grid == "params" else compute_fixed_grid(kernel)


class _GridOfParams:
    """A grid that depends on the parameters of the call."""

    def __init__(self, kernel: Description) -> None:
        self._kernel = kernel

    def __call__(self, *_shapes: Shape, params: Mapping[str, Any]) -> tuple[int, int, int]:
        return divide(self._kernel, read_extent(self._kernel, read_keywords(self._kernel, params)))


# --- arrays and parameters ---


def draw_bits(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Random 64-bit words (splitmix64), the same with every version of NumPy."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def draw_numbers(kernel: Description, kind: Kind, shape: Shape, seed: int) -> Array:
    """Random values: small integers, or all bit patterns of an integer type."""
    bits = draw_bits(seed, math.prod(shape)).reshape(shape)
    if kernel.small:
        low = -SMALL if kernel.signed else 0
        span = np.uint64(SMALL - low + 1)
        return ((bits % span).astype(np.int64) + low).astype(kind.dtype)
    return bits.astype(f"u{kind.dtype.itemsize}").view(kind.dtype)


def draw_elements(kernel: Description, number: int, call: Call) -> Array:
    """The array of an input or in-out argument. Its padding is random, too."""
    buffer, leading = kernel.buffers[number], get_leading(kernel, number, call)
    seed = 1_000_003 * call.seed + 10_007 * number
    if not buffer.members:
        return draw_numbers(kernel, buffer.scalar, leading + buffer.trailing, seed)
    found = np.zeros(leading, buffer.dtype)
    raw = draw_bits(seed, found.nbytes // 8 + 1).tobytes()[: found.nbytes]
    found = np.frombuffer(bytearray(raw), buffer.dtype).reshape(leading)
    for at, member in enumerate(buffer.members):
        shape = found[member.name].shape
        found[member.name] = draw_numbers(kernel, KINDS[member.kind], shape, seed + at + 1)
    return found


def make_arrays(kernel: Description, call: Call) -> list[Array]:
    """What a call passes, inputs and in-out arguments in binding order, as plain arrays."""
    found = [draw_elements(kernel, number, call) for number in list_passed(kernel)]
    return [found[find_original(call, number)] for number in range(len(found))]


def make_options(kernel: Description, call: Call) -> dict[str, Any]:
    """The keyword arguments of a call, apart from `out=`."""
    options: dict[str, Any] = {}
    params = make_params(kernel, call)
    if params is not None:
        options["params"] = params
    if kernel.out_shape == "call":
        shapes = compute_out_shapes(kernel, call.axes)
        options["out_shape"] = shapes[0] if len(shapes) == 1 else shapes
    return options


# --- results ---


def list_inits(kernel: Description) -> list[Any]:
    """The initial value of each pure output; None: unknown."""
    outputs = [buffer for buffer in kernel.buffers if buffer.role == "out"]
    if kernel.init == "default":
        return [0] * len(outputs)
    if isinstance(kernel.init, list):
        return kernel.init
    return [kernel.init] * len(outputs)


def compute_results(
    kernel: Description,
    arrays: Sequence[Array],
    values: list[Any],
    axes: Shape,
    unknown: int = 0,
) -> list[Array]:
    """The results of a call: outputs and in-out arguments, in binding order. `unknown` is the byte
    that fills outputs without an initial value."""
    extent = compute_extent(kernel, axes)
    passed, inits = iter(arrays), iter(list_inits(kernel))
    shapes = iter(compute_out_shapes(kernel, axes))
    found, flat = [], []
    for buffer in kernel.buffers:
        if buffer.role == "out":
            init, shape = next(inits), next(shapes)
            array = fill(np.empty(shape, buffer.dtype), unknown if init is None else 0)
            if init is not None:
                array[...] = init
        else:
            array = _copy_native(next(passed))
        found.append(array)
        flat.append(array.reshape(-1, *buffer.trailing))
    execute(kernel, flat, values, extent)
    return [
        array for array, buffer in zip(found, kernel.buffers, strict=True) if buffer.role != "in"
    ]


def _copy_native(array: Array) -> Array:
    if array.dtype.names is None:
        return np.array(array, array.dtype.newbyteorder("="), order="C")
    return np.array(array, order="C")


def compute_reference(kernel: Description, *arrays: Array, **params: Any) -> tuple[Array, ...]:
    """The model as a kernel's `reference`."""
    values = read_keywords(kernel, params)
    if has_domain_in_shapes(kernel):
        axes = compute_axes(kernel, [array.shape for array in arrays])
    else:
        axes = read_extent(kernel, values)[::-1]
    filled = find_filled(kernel)
    if filled is not None and values[filled] is None:
        passed = kernel.buffers[list_passed(kernel)[0]] if arrays else None
        shape = arrays[0].shape if passed else compute_out_shapes(kernel, axes)[0]
        trailing = (passed or kernel.buffers[0]).trailing
        values[filled] = math.prod(shape[: len(shape) - len(trailing)])
    return tuple(compute_results(kernel, arrays, values, axes))


Expected = tuple[list[Array], list[Array]]
"""The results of a call, computed on two different old contents of outputs without an initial
value. Where they differ, the model does not determine the result."""


def compute_expected(kernel: Description, call: Call, arrays: Sequence[Array]) -> Expected:
    """What a call returns."""
    values = list_values(kernel, call)
    one = compute_results(kernel, arrays, values, call.axes, 0x00)
    if None not in list_inits(kernel):
        return one, one
    return one, compute_results(kernel, arrays, values, call.axes, 0xFF)


def describe_difference(kernel: Description, expected: Expected, found: Any) -> str:
    """How the results of a call differ from the expected ones; "" where they do not."""
    results = list(found) if isinstance(found, tuple) else [found]
    returned = [buffer for buffer in kernel.buffers if buffer.role != "in"]
    if len(results) != len(returned):
        return f"{len(results)} results for {len(returned)}"
    for number, (buffer, result, one, other) in enumerate(
        zip(returned, results, *expected, strict=True)
    ):
        if result.shape != one.shape or not _has_layout(result.dtype, one.dtype):
            return f"result {number} has shape {result.shape} and dtype {result.dtype}"
        got = result.view(one.dtype) if buffer.members else result  # names may be stripped
        for name in one.dtype.names or (None,):
            parts = (each if name is None else each[name] for each in (got, one, other))
            wrong = _describe_wrong(*parts)
            if wrong:
                return f"result {number}{'' if name is None else f', member {name}'}: {wrong}"
    return ""


def _describe_wrong(got: Array, one: Array, other: Array) -> str:
    wrong = got != one  # 0.0 and -0.0 are equal
    if one is not other:
        wrong &= _view_bits(one) == _view_bits(other)
    if not wrong.any():
        return ""
    at = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    count = f"{int(wrong.sum())} of {wrong.size} wrong"
    return f"{count}, first at {at}: {got[at]} instead of {one[at]}"


def _has_layout(found: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Whether two dtypes are equal but for the names of fields."""
    if expected.names is None or found.names is None:
        return found == expected
    fields = [(each.fields or {}).values() for each in (found, expected)]
    return found.itemsize == expected.itemsize and [*fields[0]] == [*fields[1]]


def _view_bits(array: Array) -> Array:
    """The bit patterns of numbers, so that all of them compare."""
    found: Array = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return found.reshape(array.shape)
