"""FieldArray: elements of a field, on the host or on a card; it knows its form and its shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.applying import apply
from gpu_executor.fields.neighbours import by_neighbours
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.ops.multiplying import by_doubles

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field

Form = Literal["canonical", "montgomery"]
Words = npt.NDArray[Any]


class FieldArray:
    """Made by a `Field`. Operators work on it: + - * ** == and slicing; `numpy()` gives the words.

    In Montgomery form an element x is kept as x * R mod p, R = 2^(32k) for elements of k words.
    Whoever needs another form converts: the array knows which one it has.
    """

    __slots__ = ("data", "field", "form", "shape")
    __array_ufunc__ = None  # so that NumPy leaves operators to this class

    def __init__(self, field: Field, data: Words | DeviceArray, form: Form) -> None:
        self.field = field
        self.data = data
        self.form = form
        self.shape: Shape = data.shape[: len(data.shape) - len(field.prime.element_shape)]
        """Of elements; an element's columns are not an axis."""

    @property
    def on_device(self) -> bool:
        return isinstance(self.data, DeviceArray)

    @property
    def device(self) -> ArrayDevice:
        """Where it lives, if that is a card."""
        if not isinstance(self.data, DeviceArray):
            raise ArgumentTypeError("the array is on the host; gpu.to_device(array) takes it over")
        device: ArrayDevice = self.data.storage.device
        return device

    @property
    def by_doubles(self) -> bool:
        """Whether its products are made of doubles."""
        return self.on_device and by_doubles(self.device, self.field.prime)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def numpy(self) -> Words:
        """The words: (..., columns) in the form that the array has."""
        return self.data.numpy() if isinstance(self.data, DeviceArray) else self.data

    def to_host(self) -> FieldArray:
        """The same elements in the host's memory."""
        return FieldArray(self.field, self.numpy(), self.form)

    def copy_to_device(self, device: ArrayDevice) -> FieldArray:
        """The same elements on a card, in the form that the field computes in."""
        if self.on_device:
            raise ArgumentTypeError("the array is on a card already")
        there = FieldArray(self.field, device.put(self.numpy()), self.form)
        return there.in_form(self.field.form)

    def in_form(self, form: Form) -> FieldArray:
        """The same elements in another form; the array itself where it has that."""
        if form not in ("canonical", "montgomery"):
            raise ArgumentTypeError(f"a form is 'canonical' or 'montgomery', not {form!r}")
        if self.form == form:
            return self
        if self.field.form == "canonical":
            raise ArgumentTypeError(f"{self.field.name} has no Montgomery form")
        name = "to_montgomery" if form == "montgomery" else "from_montgomery"
        kernel = element_kernel(
            self.field.prime,
            name,
            grid_stride=True,
            f64_limbs=self.by_doubles,
            packed=by_neighbours([self.data]),
        )
        return FieldArray(self.field, apply(kernel, [self.data]), form)

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as Python integers."""
        return self.field.decode(self)

    def reshape(self, *shape: int | Shape) -> FieldArray:
        """The same elements in another shape; extents, or a tuple of them."""
        extents = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        whole: Any = (*extents, *self.field.prime.element_shape)
        if isinstance(self.data, DeviceArray):
            return self._with(self.data.reshape(*whole))
        try:
            return self._with(self.data.reshape(whole))
        except ValueError:
            raise ArgumentShapeError(f"{self.shape} cannot be reshaped to {extents}") from None

    def __getitem__(self, item: Any) -> FieldArray:
        """Elements; on a card along the first axis, in runs."""
        whole = item if isinstance(item, tuple) else (item,)
        if sum(each is not None and each is not Ellipsis for each in whole) > self.ndim:
            raise IndexError(f"{len(whole)} indices for an array of shape {self.shape}")
        if not isinstance(self.data, DeviceArray):
            columns = self.field.prime.element_shape if Ellipsis in whole else ()
            return self._with(self.data[(*whole, *[slice(None)] * len(columns))])
        found = self.data
        for index, each in enumerate(whole):
            if not isinstance(each, int | np.integer | slice) or (
                isinstance(each, slice) and index + 1 < len(whole)
            ):
                raise ArgumentShapeError("arrays on the card are indexed by numbers, then a slice")
            found = found[each if isinstance(each, slice) else int(each)]
        return self._with(found)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def _with(self, data: Words | DeviceArray) -> FieldArray:
        return FieldArray(self.field, data, self.form)

    def __add__(self, other: Any) -> FieldArray:
        return self.field.add(self, other)

    def __radd__(self, other: Any) -> FieldArray:
        return self.field.add(self, other)

    def __sub__(self, other: Any) -> FieldArray:
        return self.field.sub(self, other)

    def __rsub__(self, other: Any) -> FieldArray:
        return self.field.add(self.field.neg(self), other)

    def __mul__(self, other: Any) -> FieldArray:
        return self.field.mul(self, other)

    def __rmul__(self, other: Any) -> FieldArray:
        return self.field.mul(self, other)

    def __neg__(self) -> FieldArray:
        return self.field.neg(self)

    def __pow__(self, exponent: int) -> FieldArray:
        return self.field.power(self, exponent)

    def __eq__(self, other: object) -> Any:
        """Element by element, as an array of booleans."""
        return self.field.equal(self, other)

    def __ne__(self, other: object) -> Any:
        """Where they differ, element by element."""
        return ~self.field.equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        where = "card" if self.on_device else "host"
        return f"<FieldArray {self.shape} of {self.field.name} on the {where}, {self.form} form>"
