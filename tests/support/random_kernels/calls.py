"""Calls of random kernels: the kernel as the package sees it, arrays, parameters and results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from tests.support.random_kernels.description import Buffer, Call, Description, Parameter
from tests.support.random_kernels.kinds import KINDS, Kind
from tests.support.random_kernels.model import execute

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
SMALL = 4
"""The largest small value."""


# --- sizes ---


def count_elements(kernel: Description, number: int, call: Call) -> int:
    """How many elements a buffer has in a call."""
    return math.prod(get_leading(kernel, number, call))


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


def _shape_domain(kernel: Description, buffer: Buffer, axes: Shape) -> Shape:
    """The leading axes of an array with one element per invocation."""
    if buffer.role != "out" or kernel.out_shape in ("", "leading", "call", "outer", "product"):
        return axes
    return axes[::-1] if kernel.out_shape == "reversed" else (math.prod(axes),)


def _count_derived(kernel: Description, buffer: Buffer, size: int) -> int:
    if buffer.length == "groups":
        return -(-size // kernel.local[0])
    return buffer.fixed if buffer.length == "fixed" else 2 * size


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


def _compute_extent(kernel: Description, axes: Shape) -> Shape:
    return axes[::-1] if kernel.rank > 1 else (math.prod(axes),)


def has_domain_in_shapes(kernel: Description) -> bool:
    """Whether the shapes of the passed arrays determine the domain."""
    return kernel.out_shape in ("outer", "product") or any(
        each.role != "out" and each.length == "n" for each in kernel.buffers
    )


def has_domain_in_params(kernel: Description) -> bool:
    """Whether the parameters determine the domain."""
    meanings = {each.meaning for each in kernel.params}
    return (
        bool(meanings & {"n", "extent"})
        or {f"extent{axis}" for axis in range(kernel.rank)} <= meanings
    )


def _read_extent(kernel: Description, values: Sequence[Any]) -> Shape:
    """The domain's extent, from the values of the parameters."""
    axes = {}
    for parameter, value in zip(kernel.params, values, strict=True):
        if parameter.meaning == "n":
            return (int(value),)
        if parameter.meaning == "extent":
            return tuple(map(int, value))
        if parameter.meaning.startswith("extent"):
            axes[int(parameter.meaning[-1])] = int(value)
    return tuple(axes[axis] for axis in range(kernel.rank))


# --- the declaration ---


def make_kernel(kernel: Description, code: bytes, **options: Any) -> gx.Kernel:
    """The kernel with what the description declares, and its model as the reference."""
    declared: dict[str, Any] = {"split": kernel.split, "name": kernel.name, **options}
    roles = [buffer.role for buffer in kernel.buffers]
    if kernel.declare == "access":
        declared["access"] = roles
    elif kernel.declare == "counts":
        declared |= {"inputs": roles.count("in"), "outputs": roles.count("out")}
    if kernel.say_count:
        declared["count"] = kernel.count
    if kernel.init != "default":
        declared["init"] = kernel.init
    if kernel.out_shape not in ("", "call"):
        declared["out_shape"] = functools.partial(_compute_out_shape, kernel)
    if kernel.grid:
        declared["grid"] = _make_grid(kernel)
    constants = {each[0]: each[3] for each in kernel.constants if each[3] is not None}
    sizes = zip(kernel.local_ids, kernel.local, strict=True)
    constants |= {spec_id: size for spec_id, size in sizes if spec_id is not None and size}
    if constants:
        declared["constants"] = constants
    defaults = {each.name: each.default for each in kernel.params if each.default is not None}
    if defaults:
        declared["params"] = defaults
    if has_domain_in_shapes(kernel) or _has_reference_by_params(kernel):
        declared["reference"] = functools.partial(compute_reference, kernel)
    return gx.Kernel.from_spirv(code, **declared)


def _has_reference_by_params(kernel: Description) -> bool:
    """Whether the parameters tell a reference the shapes of the outputs. The number of elements
    does not tell how many axes they have."""
    return has_domain_in_params(kernel) and (
        kernel.rank > 1 or all(len(call.axes) == 1 for call in kernel.calls)
    )


def _compute_out_shape(kernel: Description, *shapes: Shape) -> Any:
    axes = compute_axes(kernel, shapes) if has_domain_in_shapes(kernel) else ()
    found = compute_out_shapes(kernel, axes)
    return found[0] if len(found) == 1 else found


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


def _divide(kernel: Description, extent: Shape) -> tuple[int, int, int]:
    """The work-groups that cover the domain."""
    x, y, z = (
        -(-size // local) for size, local in zip((*extent, 1, 1), kernel.local, strict=False)
    )
    return x, y, z


def _compute_grid_of_shapes(kernel: Description, *shapes: Shape) -> Any:
    groups = _divide(kernel, _compute_extent(kernel, compute_axes(kernel, shapes)))
    return groups[: kernel.rank] if kernel.rank < 3 else groups


def _make_grid(kernel: Description) -> Any:
    if kernel.grid == "shapes":
        return functools.partial(_compute_grid_of_shapes, kernel)
    return _GridOfParams(kernel) if kernel.grid == "params" else compute_fixed_grid(kernel)


class _GridOfParams:
    """A grid that depends on the parameters of the call."""

    def __init__(self, kernel: Description) -> None:
        self._kernel = kernel

    def __call__(self, *_shapes: Shape, params: Any) -> tuple[int, int, int]:
        # In the order of the parameters, which may have no names.
        return _divide(self._kernel, _read_extent(self._kernel, list(params.values())))


def compute_fixed_grid(kernel: Description) -> tuple[int, int, int]:
    """Work-groups that cover the domain of every call; few, if the code loops."""
    if kernel.loop:
        return 3, 1, 1
    grids = [_divide(kernel, call.extent) for call in kernel.calls]
    x, y, z = (max(grid[axis] for grid in grids) for axis in range(3))
    return x, y, z


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
        shape = leading if member.width == 1 else (*leading, member.width)
        found[member.name] = draw_numbers(kernel, KINDS[member.kind], shape, seed + at + 1)
    return found


def lay_out(array: Array, layout: str, empty: Callable[..., Array]) -> Any:
    """The same values in another memory layout, or as a list; `empty` makes mapped arrays."""
    if layout == "list" and array.dtype.names is None and array.size:
        return array.tolist()
    if layout in ("mapped", "part"):
        mapped = make_mapped(empty, array.shape, array.dtype, part=layout == "part")
        mapped[...] = array
        return mapped
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


def make_arrays(kernel: Description, call: Call) -> list[Array]:
    """What a call passes, inputs and in-out arguments in binding order, as plain arrays."""
    return [
        draw_elements(kernel, number, call)
        for number, buffer in enumerate(kernel.buffers)
        if buffer.role != "out"
    ]


def list_values(kernel: Description, call: Call) -> list[Any]:
    """The values of all parameters."""
    found: list[Any] = []
    for parameter, value in zip(kernel.params, call.values, strict=True):
        if parameter.meaning == "n":
            found.append(math.prod(call.extent))
        elif parameter.meaning == "extent":
            found.append(call.extent[: parameter.width])
        elif parameter.meaning.startswith("extent"):
            found.append(call.extent[int(parameter.meaning[-1])])
        else:
            found.append(_convert(parameter, parameter.default if value is None else value))
    return found


def _convert(parameter: Parameter, value: Any) -> Any:
    """A value as the Python number, or the list of numbers, of the parameter's kind."""
    if isinstance(value, list):
        return [_convert(parameter, each) for each in value]
    return float(value) if KINDS[parameter.kind].is_float else value


def make_params(kernel: Description, call: Call) -> Any:
    """What a call passes as `params=`; None: nothing."""
    values = list_values(kernel, call)
    if not values:
        return None
    if call.typed:
        values = [
            np.array(value, KINDS[parameter.kind].dtype)[()]
            for value, parameter in zip(values, kernel.params, strict=True)
        ]
    if call.by_position or kernel.optimize:  # names are stripped
        return tuple(values)
    return {
        parameter.name: value
        for parameter, value, given in zip(kernel.params, values, call.values, strict=True)
        if parameter.meaning != "value" or given is not None
    } or None


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


def make_outputs(
    kernel: Description, call: Call, arrays: Sequence[Array], empty: Callable[..., Array]
) -> Any:
    """What a call passes as `out=`: arrays with old contents, or in-out arguments themselves.
    `empty` makes mapped arrays."""
    if not call.out:
        return None
    passed = iter(arrays)
    outputs = []
    for number, buffer in enumerate(kernel.buffers):
        given = None if buffer.role == "out" else next(passed)
        if buffer.role == "inout" and call.out == "same":
            outputs.append(given)
        elif buffer.role != "in":
            shape = get_leading(kernel, number, call) + buffer.trailing
            outputs.append(_make_output(call.out, shape, buffer.dtype, empty))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _make_output(
    out: str, shape: Shape, dtype: np.dtype[Any], empty: Callable[..., Array]
) -> Array:
    if out == "strided":
        room = _fill(np.empty((2 * shape[0], *shape[1:]), dtype), 0xAB)
        return room[::2]
    if out == "given":
        return _fill(np.empty(shape, dtype), 0xAB)
    return _fill(make_mapped(empty, shape, dtype, part=out == "part"), 0xAB)


def make_mapped(
    empty: Callable[..., Array], shape: Shape, dtype: np.dtype[Any], *, part: bool = False
) -> Array:
    """A mapped array, or all but the first elements of one. Structs are views of bytes, because
    mapped arrays have numeric dtypes."""
    whole = (shape[0] + part, *shape[1:])
    if dtype.names is None:
        return empty(whole, dtype)[int(part) :]
    return empty((*whole, dtype.itemsize), np.uint8).view(dtype)[int(part) :, ..., 0]


def _fill(array: Array, byte: int) -> Array:
    array.reshape(-1).view(np.uint8)[:] = byte
    return array


# --- results ---


def list_inits(kernel: Description) -> list[Any]:
    """The initial value of each pure output; None: unknown."""
    outputs = [buffer for buffer in kernel.buffers if buffer.role == "out"]
    if kernel.init == "default":
        by_element = kernel.split == "elements"
        return [None if by_element and not each.has_padding else 0 for each in outputs]
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
    extent = _compute_extent(kernel, axes)
    passed, inits = iter(arrays), iter(list_inits(kernel))
    shapes = iter(compute_out_shapes(kernel, axes))
    found, flat = [], []
    for buffer in kernel.buffers:
        if buffer.role == "out":
            init, shape = next(inits), next(shapes)
            array = _fill(np.empty(shape, buffer.dtype), unknown if init is None else 0)
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
    values = list(params.values())
    if has_domain_in_shapes(kernel):
        axes = compute_axes(kernel, [array.shape for array in arrays])
    else:
        axes = _read_extent(kernel, values)[::-1]
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
