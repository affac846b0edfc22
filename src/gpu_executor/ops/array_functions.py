"""NumPy's functions of device arrays: the rules for operands, types and axes.

`arrays/array_operators.py` has the operators and methods, which call the functions here. NumPy
itself says which types an operation has (`ufunc.resolve_dtypes`); scalars of Python take the type
of the array, as in NumPy 2. What is not computed on a device is refused with the name of what
fetches.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.array_operators import Axes
from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.arrays.overlaps import may_overlap, overlaps_itself
from gpu_executor.calls.arguments import describe, is_integer, parse_dtype
from gpu_executor.calls.dispatch import ArrayDevice, is_same_array
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    NumberRangeError,
)
from gpu_executor.kernel import to_native
from gpu_executor.ops.array_arithmetic import (
    BOOL,
    COMPARISONS,
    OPERATIONS,
    DType,
    as_host,
    cast,
    compute,
    select,
)
from gpu_executor.ops.array_reductions import reduce_axes

_METHODS = ("sum", "min", "max", "mean", "any", "all", "astype", "copy", "reshape", "ravel",
            "transpose", "broadcast_to")  # fmt: skip
"""The functions of NumPy that are methods of device arrays; old versions have no astype."""
FETCHES = "array.numpy() fetches a device array, and NumPy computes with it"


# --- element by element ---


def call_protocol(
    function: np.ufunc, method: str, inputs: Sequence[Any], out: Any, options: Mapping[str, Any]
) -> Any:
    """What `np.add(a, b)` and its like do with device arrays: NumPy's `__array_ufunc__`."""
    name = f"np.{function.__name__}"
    if method != "__call__":
        raise ArgumentTypeError(
            f"{name}.{method} is not computed on devices; arrays have sum, min, max, any and all, "
            f"or {FETCHES}"
        )
    if options:
        raise ArgumentTypeError(
            f"{name} of device arrays takes no {' and no '.join(options)}; it takes out=, or "
            f"{FETCHES}"
        )
    return call_ufunc(function, inputs, out=out[0] if isinstance(out, tuple) else out)


def call_ufunc(function: np.ufunc, inputs: Sequence[Any], out: Any = None) -> Any:
    """One of NumPy's functions on device arrays and scalars; the result is written to `out`, if
    that is given, by NumPy's rule for casts."""
    name = f"np.{function.__name__}"
    if function is np.divmod:
        if out is not None:
            raise ArgumentTypeError(f"{name} of device arrays takes no out=; {FETCHES}")
        return call_ufunc(np.floor_divide, inputs), call_ufunc(np.remainder, inputs)
    if function is np.positive:
        found = _check_operands(name, inputs, out)[0]
        _resolve(function, inputs)
        return found.copy() if out is None else _write(name, out, found)
    if function not in OPERATIONS:
        raise ArgumentTypeError(f"{name} is not computed on devices; {FETCHES}")
    arrays = _check_operands(name, inputs, out)
    device: ArrayDevice = arrays[0].storage.device
    dtypes = _resolve(function, inputs)
    shape = _find_shape(name, [each.shape for each in arrays])
    if out is not None:
        _check_out(name, out, shape, dtypes[-1])
    operands: list[DeviceArray | np.generic] = []
    for each, dtype in zip(inputs, dtypes, strict=False):
        if isinstance(each, DeviceArray):
            operands.append(each)
            continue
        try:
            operands.append(_make_scalar(function, each, dtype))
        except NumberRangeError:
            if function not in COMPARISONS or dtype.kind not in "biu":
                raise
            # The number is beyond the type: the result does not depend on the elements.
            zeros = [
                np.zeros((), np.int64 if a.dtype == BOOL else a.dtype)
                if isinstance(a, DeviceArray)
                else a
                for a in inputs
            ]
            constant = device.put(np.asarray(function(*zeros)))
            return _finish(name, out, constant.broadcast_to(shape).copy())
    is_direct = out is not None and out.dtype == dtypes[-1] and _is_apart(out, arrays)
    target = {"out": out} if is_direct else {}
    found = device.run_operation(compute, (function, operands, dtypes), target)
    return out if found is out else _finish(name, out, found)


def _make_scalar(function: np.ufunc, value: Any, dtype: DType) -> np.generic:
    """A scalar in the type in which NumPy computes. Integers of a NumPy type keep it in
    comparisons, which are exact without a common type."""
    if function in COMPARISONS and dtype.kind in "iu" and not isinstance(value, int):
        return as_host(value, to_native(np.asarray(value).dtype))
    return as_host(value, dtype)


def _is_apart(out: DeviceArray, arrays: Sequence[DeviceArray]) -> bool:
    """Whether a kernel may write `out` while it reads the arrays: each is in other memory, or the
    same view."""
    return not any(
        each.storage is out.storage
        and not is_same_array(each, out)
        and may_overlap(each.make_pattern(), out.make_pattern())
        for each in arrays
    )


def _check_operands(name: str, inputs: Sequence[Any], out: Any) -> list[DeviceArray]:
    """The device arrays among the operands; refuses what is no device array and no scalar."""
    arrays = [each for each in inputs if isinstance(each, DeviceArray)]
    for each in inputs:
        if not isinstance(each, DeviceArray):
            _check_scalar(name, each)
    if out is not None and not isinstance(out, DeviceArray):
        raise ArgumentTypeError(
            f"{name}: out is {describe(out)}, and an operand is a device array; leave out= away "
            "and fetch the result with numpy()"
        )
    if not arrays:
        raise ArgumentTypeError(
            f"{name}: out is a device array, and no operand is; copy an operand to the device with "
            "gpu.to_device(array)"
        )
    placed = [*arrays, out] if out is not None else arrays
    _check_one_device(name, placed)
    for each in placed:
        if each.dtype.kind == "c":
            raise ArgumentTypeError(
                f"{name}: an array has the dtype {each.dtype}, and devices do not compute with "
                f"complex numbers; {FETCHES}"
            )
    return arrays


def _check_one_device(name: str, arrays: Sequence[DeviceArray]) -> None:
    device: ArrayDevice = arrays[0].storage.device
    for each in arrays:
        if each.storage.device is not device:
            raise ArgumentTypeError(
                f"{name}: the arrays are on two devices, {device.info.name} and "
                f"{each.storage.device.info.name}, or on one that two backends opened; copy one "
                "with array.copy_to(gpu)"
            )


def _check_scalar(name: str, value: Any) -> None:
    is_array = isinstance(value, np.ndarray)
    is_number = isinstance(value, numbers.Real | np.bool_) or (is_array and value.ndim == 0)
    if is_number and np.asarray(value).dtype.kind in "biuf":
        return
    if isinstance(value, complex | np.complexfloating):
        raise ArgumentTypeError(
            f"{name}: an operand is complex, and devices do not compute with complex numbers; "
            f"{FETCHES}"
        )
    if is_number and isinstance(value, int):
        return  # larger than any type of NumPy: it is refused, or compared, as in NumPy
    raise ArgumentTypeError(
        f"{name}: an operand is {describe(value)} on the host, and another one a device array; "
        "gpu.to_device(array) copies it to the device, or array.numpy() fetches the other"
    )


def _resolve(function: np.ufunc, inputs: Sequence[Any]) -> tuple[DType, ...]:
    """The types of the operands and of the result that NumPy computes with."""
    given = [each.dtype if isinstance(each, DeviceArray) else _get_weak(each) for each in inputs]
    try:
        return function.resolve_dtypes((*given, None))
    except TypeError as error:
        raise ArgumentTypeError(f"np.{function.__name__}: {error}") from None


def _find_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        described = " and ".join(map(str, shapes))
        raise ArgumentShapeError(
            f"{name}: device arrays of shapes {described} cannot be broadcast together"
        ) from None


def _check_out(name: str, out: DeviceArray, shape: Shape, dtype: DType) -> None:
    if overlaps_itself(out.make_pattern()):
        raise ArgumentValueError(
            f"{name}: the array that is written to repeats elements, as broadcast_to makes them; "
            "copy() makes one that does not"
        )
    if out.shape != shape:
        raise ArgumentShapeError(
            f"{name}: the result has the shape {shape}, and the array that it is written to "
            f"{out.shape}"
        )
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise ArgumentTypeError(
            f"{name}: the result is {dtype}, which is not written to an array of {out.dtype}; "
            f"convert it with .astype(np.{out.dtype})"
        )


def _write(name: str, out: DeviceArray, found: DeviceArray) -> DeviceArray:
    """Write a result to `out`, converted to its type."""
    _check_out(name, out, found.shape, found.dtype)
    device: ArrayDevice = out.storage.device
    device.assign(out, astype(found, out.dtype, copy=False))
    return out


def _finish(name: str, out: DeviceArray | None, found: DeviceArray) -> DeviceArray:
    return found if out is None else _write(name, out, found)


def where(condition: Any, x: Any = None, y: Any = None) -> DeviceArray:
    """x where the condition is true, else y; all are device arrays or scalars.

    Args:
        condition (DeviceArray): What is not 0 is true.
        x (DeviceArray | bool | int | float): The elements for true.
        y (DeviceArray | bool | int | float): The elements for false.
    """
    if x is None or y is None:
        raise ArgumentTypeError(
            f"np.where of a device array takes a condition, x and y; for the indices {FETCHES}"
        )
    arrays = _check_operands("np.where", (condition, x, y), None)
    if not isinstance(condition, DeviceArray):
        raise ArgumentTypeError(
            f"np.where: the condition is {describe(condition)}, and x or y is a device array; "
            "gpu.to_device(array) copies it to the device"
        )
    _find_shape("np.where", [each.shape for each in arrays])
    dtype = to_native(np.result_type(*(_get_example(each) for each in (x, y))))
    operands = [
        astype(each, dtype, copy=False) if isinstance(each, DeviceArray) else as_host(each, dtype)
        for each in (x, y)
    ]
    condition = astype(condition, BOOL, copy=False)
    device: ArrayDevice = condition.storage.device
    found: DeviceArray = device.run_operation(select, (condition, *operands, dtype), {})
    return found


def _get_weak(scalar: Any) -> Any:
    """What NumPy takes for the type of a scalar: one of Python takes the type of the array."""
    return type(scalar) if type(scalar) in (int, float) else np.asarray(scalar).dtype


def _get_example(operand: Any) -> Any:
    """What `np.result_type` takes for an operand: a number of Python, else a dtype."""
    if isinstance(operand, DeviceArray):
        return operand.dtype
    return operand if type(operand) in (int, float) else np.asarray(operand).dtype


def astype(array: DeviceArray, dtype: npt.DTypeLike, *, copy: bool = True) -> DeviceArray:
    """The elements converted to another type."""
    target = to_native(parse_dtype(dtype))
    if target == array.dtype:
        return array.copy() if copy else array
    for each in (array.dtype, target):
        if each.kind == "c":
            raise ArgumentTypeError(
                f"astype: devices do not compute with complex numbers, and {each} are; {FETCHES}"
            )
    device: ArrayDevice = array.storage.device
    found: DeviceArray = device.run_operation(cast, (array, target), {})
    return found


def fill(array: DeviceArray, value: Any) -> None:
    """Set all elements to a value, converted as NumPy's `fill` does it."""
    if not isinstance(value, DeviceArray):
        _check_scalar("fill", value)
        found = np.empty((), array.dtype)
        try:
            found.fill(as_host(value, array.dtype) if isinstance(value, int) else value)
        except ValueError as error:  # NaN in an array of integers
            raise ArgumentValueError(f"fill: {error}; the array is of {array.dtype}") from None
        except OverflowError as error:  # an infinity
            raise NumberRangeError(f"fill: {error}; the array is of {array.dtype}") from None
        value = found
    elif value.shape != ():
        raise ArgumentShapeError(
            f"fill: the value has the shape {value.shape}, and it is one element without axes"
        )
    else:
        value = astype(value, array.dtype, copy=False)
    device: ArrayDevice = array.storage.device
    device.assign(array, value)


# --- along axes ---


def compute_sum(
    array: DeviceArray, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool
) -> DeviceArray:
    """The sums of elements along axes."""
    target = _resolve_sum(array.dtype) if dtype is None else to_native(parse_dtype(dtype))
    return _reduce(np.add, array, axis, target, keepdims=keepdims)


def compute_min(array: DeviceArray, axis: Axes = None, *, keepdims: bool) -> DeviceArray:
    """The smallest elements along axes."""
    return _reduce(np.minimum, array, axis, array.dtype, keepdims=keepdims)


def compute_max(array: DeviceArray, axis: Axes = None, *, keepdims: bool) -> DeviceArray:
    """The largest elements along axes."""
    return _reduce(np.maximum, array, axis, array.dtype, keepdims=keepdims)


def compute_any(array: DeviceArray, axis: Axes = None, *, keepdims: bool) -> DeviceArray:
    """Whether any element along axes is not 0."""
    return _reduce(np.logical_or, array, axis, BOOL, keepdims=keepdims)


def compute_all(array: DeviceArray, axis: Axes = None, *, keepdims: bool) -> DeviceArray:
    """Whether no element along axes is 0."""
    return _reduce(np.logical_and, array, axis, BOOL, keepdims=keepdims)


def compute_mean(
    array: DeviceArray, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool
) -> DeviceArray:
    """The means of elements along axes: the sum, divided by the number of elements."""
    if dtype is not None:
        target = to_native(parse_dtype(dtype))
    else:
        target = array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
    if target.kind != "f":
        raise ArgumentTypeError(f"mean: the dtype is {target}; devices compute means of floats")
    computed = np.dtype(np.float32) if target == np.float16 else target
    total = _reduce(np.add, array, axis, computed, keepdims=keepdims)
    count = computed.type(array.size // total.size if total.size else 1)
    return astype(call_ufunc(np.divide, (total, count)), target, copy=False)


def _resolve_sum(dtype: DType) -> DType:
    """The type of a sum in NumPy: integers are at least as wide as a machine word."""
    found: DType = np.add.reduce(np.zeros(0, dtype)).dtype
    return found


def _reduce(
    function: np.ufunc, array: DeviceArray, axis: Axes, dtype: DType, *, keepdims: bool
) -> DeviceArray:
    for each in (array.dtype, dtype):
        if each.kind == "c":
            raise ArgumentTypeError(
                f"np.{function.__name__}.reduce: devices do not compute with complex numbers; "
                f"{FETCHES}"
            )
    axes = _parse_axes(axis, array.ndim)
    is_empty = not np.prod([array.shape[each] for each in axes], dtype=object)
    if is_empty and function in (np.minimum, np.maximum):
        raise ArgumentValueError(
            f"np.{function.__name__}.reduce: an array of shape {array.shape} has no element along "
            f"axis {axis}, and a minimum or maximum of none has no value"
        )
    device: ArrayDevice = array.storage.device
    arguments = (function, array, axes, dtype)
    found: DeviceArray = device.run_operation(reduce_axes, arguments, {"keepdims": keepdims})
    return found


def _parse_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction, not negative and in order."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    if not all(map(is_integer, given)):
        raise ArgumentTypeError(f"axis is {axis!r}; it is an integer, a tuple of integers or None")
    for each in given:
        if not ndim:
            raise ArgumentShapeError(
                f"axis is {axis}, and the array has no axes: leave axis out, or pass ()"
            )
        if not -ndim <= each < ndim:
            raise ArgumentShapeError(
                f"axis {each} is not one of the {ndim} axes of the array; axes are -{ndim} to "
                f"{ndim - 1}"
            )
    found = sorted({each % ndim for each in given})
    if len(found) < len(given):
        raise ArgumentValueError(f"axis {axis} has a repeated axis")
    return tuple(found)


# --- NumPy's functions ---


def call_function(
    function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """What a function of NumPy does with device arrays: NumPy's `__array_function__`."""
    name = f"np.{function.__name__}"
    method = _FUNCTIONS.get(function)
    if method is None:
        raise ArgumentTypeError(f"{name} is not computed on devices; {FETCHES}")
    given = {key: value for key, value in options.items() if value is not np._NoValue}
    try:
        inspect.signature(method).bind(*arguments, **given)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} of device arrays: {error}; or {FETCHES}") from None
    return method(*arguments, **given)


def _make_method(name: str) -> Callable[..., Any]:
    """The function of NumPy that is a method of the array; its options are those of the method."""

    def call(a: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(a, DeviceArray):
            raise ArgumentTypeError(f"np.{name}: the array is {describe(a)}, not a device array")
        return getattr(a, name)(*arguments, **options)

    call.__signature__ = inspect.signature(getattr(DeviceArray, name))  # type: ignore[attr-defined]
    return call


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: where,
    **{getattr(np, name): _make_method(name) for name in _METHODS if hasattr(np, name)},
    np.amin: _make_method("min"),
    np.amax: _make_method("max"),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
}
