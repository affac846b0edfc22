"""`LayoutArray`: an array of elements of several words each, on the host or on a device.

It knows the place and the shape of the elements, and the ways to select, reshape and copy them. Its
subclasses know what the elements are: elements of fields, points of curves.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.ops import elementwise, indexing
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.primes import ElementLayout


class LayoutArray(TypedArray):
    """Elements on the host or on a device; axes are axes of elements."""

    __slots__ = ("data", "shape")
    __array_ufunc__: Any = None  # NumPy leaves its operators to the subclasses

    data: ElementData
    shape: Shape

    @property
    def layout(self) -> ElementLayout:
        """The layout of an element in memory."""
        raise NotImplementedError

    def _with(self, data: ElementData) -> Self:
        """An array of the same type with other elements."""
        raise NotImplementedError

    def join(self, arrays: Sequence[Any], axis: int) -> Self:
        """Arrays of this kind, one behind the other along an axis.

        Args:
            arrays (sequence): The arrays, this one among them, in one place.
            axis (int): The axis along which they are joined.
        """
        raise NotImplementedError

    # --- place ---

    @property
    def on_device(self) -> bool:
        return isinstance(self.data, DeviceArray)

    @property
    def device(self) -> ArrayDevice:
        """The device that holds the array; an error for an array on the host."""
        if not isinstance(self.data, DeviceArray):
            raise ArgumentTypeError(
                "the array is on the host; gpu.to_device(array) copies it to a device"
            )
        device: ArrayDevice = self.data.storage.device
        return device

    @property
    def place(self) -> ArrayDevice | None:
        """The device that holds the array; None for the host."""
        return self.device if self.on_device else None

    def to_host(self) -> Self:
        """The same elements in host memory; an array on the host shares its memory."""
        if isinstance(self.data, DeviceArray):
            return self._with(self.data.numpy())
        return self._with(self.data)

    # --- words ---

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def words(self) -> Words:
        """The words as they are stored, in the array's form, on the host: shape (..., words of an
        element). Read-only for an array on the host, whose words they are."""
        if isinstance(self.data, DeviceArray):
            return self.data.numpy()
        found = self.data.view()
        found.flags.writeable = False  # the elements must stay below the modulus
        return found

    def numpy(self) -> Words:
        """The words in canonical form, on the host: shape (..., words of an element). They may be
        those of the array, and are read-only then."""
        raise NotImplementedError

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Words:
        """What `numpy()` returns.

        Args:
            dtype (dtype): The unsigned type of the words; None for that of the field.
            copy (bool): Whether the words are a copy; None for where that is necessary.
        """
        column = self.layout.column_dtype
        wanted = column if dtype is None else np.dtype(dtype)
        if wanted.kind != "u" or not np.can_cast(column, wanted):
            raise ArgumentTypeError(
                f"{self.layout.name}: an array of elements becomes an array of words of {column}, "
                f"not of {wanted}; tolist() returns Python integers"
            )
        found = self.numpy()
        is_shared = isinstance(self.data, np.ndarray) and np.may_share_memory(found, self.data)
        if copy is False and not (is_shared and wanted == found.dtype):
            raise ArgumentValueError(
                "the canonical words of this array are not in host memory, so copy=False is not "
                "possible"
            )
        return found.astype(wanted, copy=bool(copy))

    # --- shape ---

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's name
        """A view with the axes in reverse order."""
        return self.transpose()

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("an array without axes has no length")
        return self.shape[0]

    def reshape(self, *shape: int | Shape) -> Self:
        """The same elements in another shape, given as lengths or as one tuple; one may be -1.

        A view where NumPy's rules allow it, else a copy.

        Args:
            shape (int or tuple): The lengths of the axes.
        """
        given: Any = shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape
        try:
            lengths = self._infer_lengths(tuple(map(operator.index, given)))
        except TypeError:
            raise ArgumentTypeError(f"a shape consists of integers, not {given!r}") from None
        return self._with(elementwise.reshape(self.layout, self.data, lengths))

    def _infer_lengths(self, given: Shape) -> Shape:
        """The lengths of the axes, with the one that is -1 computed from the others."""
        known = math.prod(length for length in given if length != -1)
        if given.count(-1) == 1 and known > 0 and self.size % known == 0:
            given = tuple(self.size // known if length == -1 else length for length in given)
        if min(given, default=0) < 0 or math.prod(given) != self.size:
            raise ArgumentShapeError(
                f"an array of shape {self.shape} cannot be reshaped to {given}"
            )
        return given

    def flatten(self) -> Self:
        """A copy with one axis."""
        return self.copy().reshape(-1)

    def ravel(self) -> Self:
        """The elements along one axis: a view where possible."""
        return self.reshape(-1)

    def transpose(self, *axes: int | Shape | None) -> Self:
        """A view with the axes in another order, by default reversed.

        Args:
            axes (int or tuple): The axes in their new order.
        """
        given: Any = axes[0] if len(axes) == 1 else axes
        by_default = given is None or (isinstance(given, tuple) and not given)
        order = self._reverse_axes() if by_default else parse_axes(given, self.shape)
        if len(order) != self.ndim:
            raise ArgumentShapeError(f"axes {given} are not all axes of shape {self.shape}")
        return self._with(elementwise.transpose(self.layout, self.data, order))

    def _reverse_axes(self) -> tuple[int, ...]:
        return tuple(reversed(range(self.ndim)))

    def copy(self) -> Self:
        """A copy in the same place."""
        return self._with(self.data.copy())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, _memo: object) -> Self:
        return self.copy()

    # --- elements ---

    def __getitem__(self, item: Any) -> Self:
        """Elements, as NumPy indexes them.

        Integers, slices, an ellipsis and None give a view. Masks and index arrays, which are on the
        host, give a copy; so does an index of integers alone, for a single element.
        """
        return self._with(indexing.get_items(self.layout, self.data, item))

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise ArgumentTypeError("an array without axes cannot be iterated over")
        return (self[index] for index in range(self.shape[0]))


def parse_axes(axes: Any, shape: Shape) -> tuple[int, ...]:
    """Axes, given as one integer or several, as indices that are not negative."""
    try:
        given = tuple(map(operator.index, axes if np.iterable(axes) else (axes,)))
    except TypeError:
        raise ArgumentTypeError(f"axis must be an integer or a tuple, not {axes!r}") from None
    ndim = len(shape)
    found = tuple(axis + ndim if axis < 0 else axis for axis in given)
    if not all(0 <= axis < ndim for axis in found) or len(set(found)) < len(found):
        raise ArgumentShapeError(
            f"axis {axes} does not name axes of an array of shape {shape}, each one once"
        )
    return found


def check_one_place(arrays: Iterable[LayoutArray]) -> None:
    """Arrays are never moved between host and device implicitly."""
    if len({id(each.device) if each.on_device else None for each in arrays}) > 1:
        raise make_place_error()


def make_place_error() -> ArgumentTypeError:
    """The error of operands in different places."""
    return ArgumentTypeError(
        "the operands are in different places, on the host and on a device or on two devices; "
        "gpu.to_device(array) and array.to_host() copy one"
    )


def find_array_device(name: str, device: Any) -> ArrayDevice:
    """What holds the device arrays of an executor or a backend, which is the argument `device` of
    the field or curve of that name; raises if there are none."""
    # Loaded already by whoever has a device.
    from gpu_executor.backend import Backend, require_array_device

    if not isinstance(device, Backend):
        raise ArgumentTypeError(
            f"{name}: device is an executor or a backend with device arrays, or None for the host, "
            f"not {type(device).__name__}"
        )
    return require_array_device(device)
