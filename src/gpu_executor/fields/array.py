"""FieldArray: elements of a field, on the host or on a card; it knows its form and its shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import Card
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.kernels.elements import element_kernel

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field

Form = Literal["canonical", "montgomery"]
Words = npt.NDArray[Any]


class FieldArray:
    """Made by a `Field`. Operators work on it: + - * ** == and slicing; `numpy()` gives the words.

    In Montgomery form an element x is kept as x * R mod p, R = 2^(32k) for elements of k words.
    Whoever needs another form converts: the array knows which one it has.
    """

    __slots__ = ("data", "field", "form")
    __array_ufunc__ = None  # so that NumPy leaves operators to this class

    def __init__(self, field: Field, data: Words | DeviceArray, form: Form) -> None:
        self.field = field
        self.data = data
        self.form = form

    @property
    def on_card(self) -> bool:
        return isinstance(self.data, DeviceArray)

    @property
    def card(self) -> Card:
        """Where it lives, if that is a card."""
        if not isinstance(self.data, DeviceArray):
            raise ArgumentTypeError("the array is on the host; gpu.to_device(array) takes it over")
        card: Card = self.data.storage.card
        return card

    @property
    def shape(self) -> Shape:
        """Of elements; an element's columns are not an axis."""
        columns = len(self.field.prime.element_shape)
        return self.data.shape[: len(self.data.shape) - columns]

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

    def to_card(self, card: Card) -> FieldArray:
        """The same elements on a card, in the form that the field computes in."""
        if self.on_card:
            raise ArgumentTypeError("the array is on a card already")
        there = FieldArray(self.field, card.put(self.numpy()), self.form)
        return there.in_form(self.field.form)

    def in_form(self, form: Form) -> FieldArray:
        """The same elements in another form; the array itself where it has that."""
        if self.form == form or self.field.form == "canonical":
            return self
        name = "to_montgomery" if form == "montgomery" else "from_montgomery"
        kernel = element_kernel(self.field.prime, name, strides=True)
        return FieldArray(self.field, self.field.apply(kernel, [self.data]), form)

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as Python integers."""
        return self.field.decode(self)

    def reshape(self, *shape: int) -> FieldArray:
        """The same elements in another shape."""
        return self._with(self.data.reshape(*shape, *self.field.prime.element_shape))

    def __getitem__(self, item: Any) -> FieldArray:
        if isinstance(self.data, DeviceArray):
            return self._with(self.data[item])
        whole = item if isinstance(item, tuple) else (item,)
        if sum(each is not None and each is not Ellipsis for each in whole) > self.ndim:
            raise ArgumentShapeError(f"{len(whole)} indices for an array of shape {self.shape}")
        return self._with(self.data[item])

    def __len__(self) -> int:
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

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        where = "card" if self.on_card else "host"
        return f"<FieldArray {self.shape} of {self.field.name} on the {where}, {self.form} form>"
