"""`ArrayOperators`: NumPy's operators, methods and protocols of device arrays.

The algorithms are in a package above this one, `ops`, which is imported by name with the first
operation: programs that only run kernels do not load it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.typed_array import TypedArray

Axes = int | tuple[int, ...] | None
"""The axes of a reduction; None stands for all."""


@functools.cache
def load_functions() -> Any:
    """The module that computes (`ops/array_functions.py`)."""
    return importlib.import_module("gpu_executor.ops.array_functions")


def _make_binary(function: np.ufunc, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method of an operator with two operands, for arrays on the left or on the right."""

    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, TypedArray):
            return NotImplemented  # its own operator decides
        operands = (other, self) if reflected else (self, other)
        return load_functions().call_ufunc(function, operands)

    return operate


def _make_in_place(function: np.ufunc) -> Callable[[Any, Any], Any]:
    """The method of an operator that writes its result into its left operand."""

    def operate(self: Any, other: Any) -> Any:
        return load_functions().call_ufunc(function, (self, other), out=self)

    return operate


def _make_unary(function: np.ufunc) -> Callable[[Any], Any]:
    """The method of an operator with one operand."""

    def operate(self: Any) -> Any:
        return load_functions().call_ufunc(function, (self,))

    return operate


class ArrayOperators:
    """What device arrays have of NumPy's arithmetic. The types and shapes of results are those of
    NumPy; results are device arrays, and nothing is waited for."""

    __slots__ = ()

    __add__ = _make_binary(np.add)
    __radd__ = _make_binary(np.add, reflected=True)
    __iadd__ = _make_in_place(np.add)
    __sub__ = _make_binary(np.subtract)
    __rsub__ = _make_binary(np.subtract, reflected=True)
    __isub__ = _make_in_place(np.subtract)
    __mul__ = _make_binary(np.multiply)
    __rmul__ = _make_binary(np.multiply, reflected=True)
    __imul__ = _make_in_place(np.multiply)
    __truediv__ = _make_binary(np.divide)
    __rtruediv__ = _make_binary(np.divide, reflected=True)
    __itruediv__ = _make_in_place(np.divide)
    __floordiv__ = _make_binary(np.floor_divide)
    __rfloordiv__ = _make_binary(np.floor_divide, reflected=True)
    __ifloordiv__ = _make_in_place(np.floor_divide)
    __mod__ = _make_binary(np.remainder)
    __rmod__ = _make_binary(np.remainder, reflected=True)
    __imod__ = _make_in_place(np.remainder)
    __and__ = _make_binary(np.bitwise_and)
    __rand__ = _make_binary(np.bitwise_and, reflected=True)
    __iand__ = _make_in_place(np.bitwise_and)
    __or__ = _make_binary(np.bitwise_or)
    __ror__ = _make_binary(np.bitwise_or, reflected=True)
    __ior__ = _make_in_place(np.bitwise_or)
    __xor__ = _make_binary(np.bitwise_xor)
    __rxor__ = _make_binary(np.bitwise_xor, reflected=True)
    __ixor__ = _make_in_place(np.bitwise_xor)
    __lshift__ = _make_binary(np.left_shift)
    __rlshift__ = _make_binary(np.left_shift, reflected=True)
    __ilshift__ = _make_in_place(np.left_shift)
    __rshift__ = _make_binary(np.right_shift)
    __rrshift__ = _make_binary(np.right_shift, reflected=True)
    __irshift__ = _make_in_place(np.right_shift)
    # Not computed on devices: the message says what fetches.
    __pow__ = _make_binary(np.power)
    __rpow__ = _make_binary(np.power, reflected=True)
    __matmul__ = _make_binary(np.matmul)
    __rmatmul__ = _make_binary(np.matmul, reflected=True)
    __divmod__ = _make_binary(np.divmod)
    __rdivmod__ = _make_binary(np.divmod, reflected=True)

    __lt__ = _make_binary(np.less)
    __le__ = _make_binary(np.less_equal)
    __gt__ = _make_binary(np.greater)
    __ge__ = _make_binary(np.greater_equal)
    __eq__ = _make_binary(np.equal)
    __ne__ = _make_binary(np.not_equal)
    __hash__ = None  # type: ignore[assignment]

    __neg__ = _make_unary(np.negative)
    __pos__ = _make_unary(np.positive)
    __abs__ = _make_unary(np.absolute)
    __invert__ = _make_unary(np.invert)

    def sum(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool = False
    ) -> Any:
        """The sums of the elements along axes. Integers are exact modulo 2^bits of the result.

        Args:
            axis (int | tuple | None): The axes; None: all.
            dtype (dtype | None): The type of the result; None: NumPy's, which is 64 bits for
                integers.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_sum(self, axis, dtype, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """The smallest elements along axes; NaN where there is one.

        Args:
            axis (int | tuple | None): The axes; None: all.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_min(self, axis, keepdims=keepdims)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """The largest elements along axes; NaN where there is one.

        Args:
            axis (int | tuple | None): The axes; None: all.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_max(self, axis, keepdims=keepdims)

    def mean(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool = False
    ) -> Any:
        """The means of the elements along axes.

        Args:
            axis (int | tuple | None): The axes; None: all.
            dtype (dtype | None): The type of the sum and the result; None: NumPy's, which is
                float64 for integers.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_mean(self, axis, dtype, keepdims=keepdims)

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Whether any element along axes is not 0.

        Args:
            axis (int | tuple | None): The axes; None: all.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_any(self, axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Whether no element along axes is 0.

        Args:
            axis (int | tuple | None): The axes; None: all.
            keepdims (bool): Whether the axes remain, with length 1.
        """
        return load_functions().compute_all(self, axis, keepdims=keepdims)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> Any:
        """The elements converted to another type, as C does it.

        Args:
            dtype (dtype): The type.
            copy (bool): Whether an array that has the type already is copied.
        """
        return load_functions().astype(self, dtype, copy=copy)

    def fill(self, value: Any) -> None:
        """Set all elements to a value.

        Args:
            value (bool | int | float): The value, which is converted to the array's type.
        """
        load_functions().fill(self, value)

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if any(isinstance(each, TypedArray) for each in inputs):
            return NotImplemented
        return load_functions().call_protocol(function, method, inputs, out, options)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any],
        options: Mapping[str, Any],
    ) -> Any:
        if any(issubclass(each, TypedArray) for each in types):
            return NotImplemented
        return load_functions().call_function(function, arguments, options)

    if not TYPE_CHECKING:  # to a type checker every name would be an attribute

        def __getattr__(self, name: str) -> NoReturn:
            known = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(np.ndarray, name):
                known += f"; numpy() fetches the elements: array.numpy().{name}"
            raise AttributeError(known, name=name, obj=self)
