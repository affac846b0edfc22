"""NumPy's functions for arrays of several words an element: those that move elements, and more.

NumPy calls `__array_function__` of the arrays for each of its functions. The functions here have
the meaning that they have in NumPy; results are views where NumPy's are, if not said otherwise.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_executor.calls.arguments import describe, is_integer, parse_shape
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.layout_array import LayoutArray, parse_axes
from gpu_executor.ops import elementwise

Functions = Mapping[Any, Callable[..., Any]]
"""NumPy's functions and what computes them."""
Axis = Any
"""An axis; where a function of NumPy takes several, a tuple of axes."""


def call_numpy_function(
    functions: Functions,
    array: LayoutArray,
    function: Any,
    arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    """What one of NumPy's functions returns for such an array; NotImplemented, for which NumPy
    raises TypeError, if it is none of these functions."""
    method = functions.get(function)
    if method is None:
        return NotImplemented
    signature = _read_signature(method)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        raise ArgumentTypeError(
            f"np.{function.__name__} of {describe(array)}: {error}; it takes "
            f"{', '.join(signature.parameters)}"
        ) from None
    return method(*arguments, **options)


_read_signature = functools.cache(inspect.signature)


def _as_array(value: Any, name: str) -> LayoutArray:
    """The argument that must be an array of elements. NumPy asks for the function as soon as any
    argument is one."""
    if not isinstance(value, LayoutArray):
        raise ArgumentTypeError(
            f"np.{name}: the array is {describe(value)}, and another argument is an array of a "
            "field or a curve; give such an array in its place"
        )
    return value


def _as_arrays(values: Any, name: str) -> list[LayoutArray]:
    return [_as_array(each, name) for each in values]


def _parse_axis(axis: Axis, ndim: int) -> int:
    """One axis as an index that is not negative."""
    if not is_integer(axis):
        raise ArgumentTypeError(f"axis must be an integer, not {axis!r}")
    return parse_axes(axis, (1,) * ndim)[0]


def _index_axis(array: LayoutArray, axis: int, index: Any) -> Any:
    """The elements at an index, or a slice, of one axis."""
    return array[(*[slice(None)] * axis, index)]


def _check_order(order: str) -> None:
    if order != "C":
        raise ArgumentTypeError(
            f"order is {order!r}; elements are read in the order 'C'. Transpose the array for 'F'"
        )


# --- the shape alone ---


def reshape(a: Any, shape: Any, order: str = "C") -> Any:
    _check_order(order)
    return _as_array(a, "reshape").reshape(shape)


def ravel(a: Any, order: str = "C") -> Any:
    _check_order(order)
    return _as_array(a, "ravel").ravel()


def squeeze(a: Any, axis: Axis = None) -> Any:
    array = _as_array(a, "squeeze")
    shape = array.shape
    chosen = [each for each, length in enumerate(shape) if length == 1]
    axes = chosen if axis is None else parse_axes(axis, shape)
    if not set(axes) <= set(chosen):
        raise ArgumentShapeError(f"squeeze: axis {axis} of the shape {shape} has not the length 1")
    return array.reshape(tuple(n for each, n in enumerate(shape) if each not in axes))


def expand_dims(a: Any, axis: Axis) -> Any:
    array = _as_array(a, "expand_dims")
    added = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = array.ndim + len(added)
    new = parse_axes(added, (1,) * ndim)
    lengths = iter(array.shape)
    return array.reshape(tuple(1 if each in new else next(lengths) for each in range(ndim)))


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    array = _as_array(a, "swapaxes")
    order = list(range(array.ndim))
    one, other = _parse_axis(axis1, array.ndim), _parse_axis(axis2, array.ndim)
    order[one], order[other] = other, one
    return array.transpose(tuple(order))


def moveaxis(a: Any, source: Axis, destination: Axis) -> Any:
    array = _as_array(a, "moveaxis")
    sources, targets = parse_axes(source, array.shape), parse_axes(destination, array.shape)
    if len(sources) != len(targets):
        raise ArgumentShapeError(
            f"moveaxis: source {source} and destination {destination} differ in length"
        )
    order = [each for each in range(array.ndim) if each not in sources]
    for target, moved in sorted(zip(targets, sources, strict=True)):
        order.insert(target, moved)
    return array.transpose(tuple(order))


def _add_leading_axes(a: Any, name: str, ndim: int) -> Any:
    array = _as_array(a, name)
    return array.reshape((1,) * max(ndim - array.ndim, 0) + array.shape)


def atleast_1d(*arrays: Any) -> Any:
    found = tuple(_add_leading_axes(each, "atleast_1d", 1) for each in arrays)
    return found[0] if len(found) == 1 else found


def atleast_2d(*arrays: Any) -> Any:
    found = tuple(_add_leading_axes(each, "atleast_2d", 2) for each in arrays)
    return found[0] if len(found) == 1 else found


# --- the order of elements ---


def flip(m: Any, axis: Axis = None) -> Any:
    array = _as_array(m, "flip")
    axes = range(array.ndim) if axis is None else parse_axes(axis, array.shape)
    return array[tuple(slice(None, None, -1 if each in axes else 1) for each in range(array.ndim))]


def roll(a: Any, shift: Any, axis: Axis = None) -> Any:
    """A copy, as in NumPy."""
    array = _as_array(a, "roll")
    if axis is None:
        return roll(array.ravel(), shift, 0).reshape(array.shape)
    shifts, axes = (each if isinstance(each, tuple | list) else (each,) for each in (shift, axis))
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ArgumentShapeError(f"roll: shift {shift} and axis {axis} differ in length")
    found = array.copy()
    for count, each in np.broadcast(shifts, axes):
        if not is_integer(count):
            raise ArgumentTypeError(f"roll: shift is {shift!r}; it must be an integer, or a tuple")
        where = _parse_axis(each, array.ndim)
        cut = -int(count) % (array.shape[where] or 1)
        if cut:
            parts = slice(cut, None), slice(cut)
            found = found.join([_index_axis(found, where, part) for part in parts], where)
    return found


# --- elements several times ---


def repeat(a: Any, repeats: Any, axis: Axis = None) -> Any:
    array = _as_array(a, "repeat")
    if axis is None:
        return repeat(array.ravel(), repeats, 0)
    where = _parse_axis(axis, array.ndim)
    counts = np.asarray(None if isinstance(repeats, LayoutArray) else repeats)
    try:
        indices = np.repeat(np.arange(array.shape[where]), counts)
    except (TypeError, ValueError):
        indices = None
    if indices is None or counts.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"repeat: repeats is {repeats!r}; it must be an integer from 0, or one for each of the "
            f"{array.shape[where]} elements along the axis"
        )
    return _index_axis(array, where, indices)


def tile(A: Any, reps: Any) -> Any:  # noqa: N803 - NumPy's name
    array = _as_array(A, "tile")
    counts = tuple(reps) if np.iterable(reps) else (reps,)
    if not all(is_integer(count) and count >= 0 for count in counts):
        raise ArgumentTypeError(
            f"tile: reps is {reps!r}; it must be an integer from 0, or a tuple of them"
        )
    ndim = max(array.ndim, len(counts))
    own = (1,) * (ndim - array.ndim) + array.shape
    times = (1,) * (ndim - len(counts)) + tuple(map(int, counts))
    # Each axis becomes two: how often it is repeated, and its length.
    spread = array.reshape(tuple(n for length in own for n in (1, length)))
    pairs = zip(times, own, strict=True)
    repeated = broadcast_to(spread, tuple(n for pair in pairs for n in pair))
    return repeated.reshape(tuple(n * length for n, length in zip(times, own, strict=True)))


def broadcast_to(array: Any, shape: Any) -> Any:
    """A copy, unlike in NumPy: elements that share memory cannot be assigned one by one."""
    given = _as_array(array, "broadcast_to")
    lengths = parse_shape(shape, given.layout.element_bytes)
    if elementwise.find_common_shape(given.layout, [given.shape, lengths]) != lengths:
        raise ArgumentShapeError(
            f"broadcast_to: an array of shape {given.shape} has no elements for {lengths}"
        )
    return given.wrap_like(elementwise.broadcast_to(given.layout, given.data, lengths)).copy()


# --- selecting and joining ---


def take(a: Any, indices: Any, axis: Axis = None) -> Any:
    array = _as_array(a, "take")
    found = np.asarray(None if isinstance(indices, LayoutArray) else indices)
    found = found if found.size else found.astype(np.intp)
    if found.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"take: indices is {describe(indices)}; it must be integers on the host"
        )
    where = 0 if axis is None else _parse_axis(axis, array.ndim)
    index = found if found.ndim else int(found)
    return _index_axis(array.ravel() if axis is None else array, where, index)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    array = _as_array(ary, "array_split")
    where = _parse_axis(axis, array.ndim)
    parts = np.array_split(np.arange(array.shape[where]), indices_or_sections)
    # Parts beyond the end are empty; the first index of the others says where they begin.
    starts = [int(part[0]) if len(part) else 0 for part in parts]
    return [
        _index_axis(array, where, slice(start, start + len(part)))
        for start, part in zip(starts, parts, strict=True)
    ]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    array = _as_array(ary, "split")
    length = array.shape[_parse_axis(axis, array.ndim)]
    sections = indices_or_sections
    if is_integer(sections) and (sections < 1 or length % sections):
        raise ArgumentShapeError(f"split: an axis of length {length} has no {sections} equal parts")
    return array_split(array, sections, axis)


def concatenate(arrays: Any, axis: Axis = 0) -> Any:
    given = _as_arrays(arrays, "concatenate")
    if axis is None:
        given, axis = [each.ravel() for each in given], 0
    return given[0].join(given, axis)


def stack(arrays: Any, axis: int = 0) -> Any:
    given = _as_arrays(arrays, "stack")
    if any(each.shape != given[0].shape for each in given):
        shapes = ", ".join(str(each.shape) for each in given)
        raise ArgumentShapeError(f"stack: the arrays must have one shape; the shapes are {shapes}")
    return given[0].join([expand_dims(each, axis) for each in given], axis)


def vstack(tup: Any) -> Any:
    given = [_add_leading_axes(each, "vstack", 2) for each in tup]
    return given[0].join(given, 0)


def hstack(tup: Any) -> Any:
    given = [_add_leading_axes(each, "hstack", 1) for each in tup]
    return given[0].join(given, 0 if given[0].ndim == 1 else 1)


def array_equal(a1: Any, a2: Any) -> bool:
    return np.shape(a1) == np.shape(a2) and bool((a1 == a2).all())


# --- for arrays of fields alone ---


def outer(a: Any, b: Any) -> Any:
    one, other = (_as_array(each, "outer") for each in (a, b))
    product: Any = one.reshape(-1, 1)
    return product * other.reshape(1, -1)


def pad(array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Any:
    """In the mode "constant", with one element on all sides."""
    given: Any = _as_array(array, "pad")
    if mode != "constant":
        raise ArgumentTypeError(
            f"pad: mode is {mode!r}; elements are padded in the mode 'constant' alone"
        )
    widths = _parse_pad_width(pad_width, given.ndim)
    lengths = tuple(sum(pair) + n for pair, n in zip(widths, given.shape, strict=True))
    parse_shape(lengths, given.layout.element_bytes)
    element = given.field._load_scalar(constant_values, given)
    padded = given.field._wrap(elementwise.broadcast_to(given.layout, element, lengths).copy())
    inner = (slice(before, before + n) for (before, _), n in zip(widths, given.shape, strict=True))
    padded[tuple(inner)] = given
    return padded


def _parse_pad_width(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """How many elements are ahead of and behind each axis, given as one number, one pair, or a pair
    for each axis."""
    try:
        found = np.asarray(None if isinstance(pad_width, LayoutArray) else pad_width)
        pairs = np.broadcast_to(found, (ndim, 2)).tolist()
    except ValueError:
        found, pairs = np.asarray(None), []
    if found.dtype.kind not in "iu" or (found < 0).any():
        raise ArgumentTypeError(
            f"pad: pad_width is {pad_width!r}; it must be an integer from 0, a pair (before, "
            f"after), or such a pair for each of the {ndim} axes"
        )
    return [(before, after) for before, after in pairs]


SHAPE_FUNCTIONS: Functions = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[_parse_axis(axis, a.ndim)],
    np.copy: lambda a: a.copy(),
    np.reshape: reshape,
    np.ravel: ravel,
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.squeeze: squeeze,
    np.expand_dims: expand_dims,
    np.swapaxes: swapaxes,
    np.moveaxis: moveaxis,
    np.atleast_1d: atleast_1d,
    np.atleast_2d: atleast_2d,
    np.flip: flip,
    np.flipud: lambda m: flip(m, 0),
    np.fliplr: lambda m: flip(m, 1),
    np.roll: roll,
    np.repeat: repeat,
    np.tile: tile,
    np.broadcast_to: broadcast_to,
    np.take: take,
    np.split: split,
    np.array_split: array_split,
    np.concatenate: concatenate,
    np.stack: stack,
    np.vstack: vstack,
    np.hstack: hstack,
    np.array_equal: array_equal,
}
"""The functions that arrays of fields and arrays of points have in common."""
