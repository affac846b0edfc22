"""`ElementArray`: elements of a finite field in memory, apart from arithmetic on them.

It knows the place of the elements (host or device), their form, their shape, and the ways to
select, copy and show them. `FiniteFieldArray` adds the operators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.ops import elementwise, indexing
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.primes import ElementLayout, Form, Prime
from gpu_executor.typed_array import TypedArray

MAX_SHOWN = 6
"""Elements along an axis that `repr` shows; of more it shows the first three and the last three."""


class ElementArray(TypedArray):
    """Elements of a finite field, on the host or on a device; axes are axes of elements.

    In Montgomery form an integer x of an element is stored as x * R mod p, R = 2^(32k) for integers
    of k words.
    """

    __slots__ = ("data", "form", "shape")
    __array_ufunc__ = None  # NumPy leaves its operators to this class

    data: ElementData
    form: Form
    shape: Shape

    @property
    def layout(self) -> ElementLayout:
        """The layout of an element in memory."""
        raise NotImplementedError

    @property
    def prime(self) -> Prime:
        """The prime of the elements, or of their coefficients."""
        raise NotImplementedError

    def _with(self, data: ElementData, form: Form | None = None) -> Self:
        """An array of the same type with other elements, by default in this array's form."""
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

    def to_host(self) -> Self:
        """The same elements in host memory; an array on the host shares its memory."""
        if isinstance(self.data, DeviceArray):
            return self._with(self.data.numpy())
        return self._with(self.data)

    def copy_to_device(self, device: ArrayDevice) -> Self:
        """A copy on the device, in the form in which the field computes."""
        if self.on_device:
            raise ArgumentTypeError(
                "the array is on a device already; to_host() copies it to the host"
            )
        return self._with(device.put(self.numpy())).in_form(self.prime.form)

    # Names of earlier versions, kept for users.
    on_card, card, to_card = on_device, device, copy_to_device

    # --- words ---

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def numpy(self) -> Words:
        """The words, shape (..., columns), in the array's form; read-only for an array on the host,
        whose words they are.
        """
        if isinstance(self.data, DeviceArray):
            return self.data.numpy()
        found = self.data.view()
        found.flags.writeable = False  # the elements must stay below the modulus
        return found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Words:
        """The words in canonical form, on the host; `ints()` returns Python integers."""
        wanted = self.prime.column_dtype if dtype is None else np.dtype(dtype)
        if wanted.kind != "u" or not np.can_cast(self.prime.column_dtype, wanted):
            raise ArgumentTypeError(
                f"{self.layout.name}: an array of elements becomes an array of words of "
                f"{self.prime.column_dtype}, not of {wanted}; ints() returns Python integers"
            )
        found = self.in_form("canonical").numpy()
        is_shared = self.form == "canonical" and not self.on_device and wanted == found.dtype
        if copy is False and not is_shared:
            raise ValueError(
                "the canonical words of this array are not in host memory, so copy=False is not "
                "possible"
            )
        return found.astype(wanted, copy=bool(copy))

    def describe_type(self) -> str:
        """The field and the form of the elements, in words."""
        return f"elements of {self.layout.name} in {self.form} form"

    def in_form(self, form: Form) -> Self:
        """The same elements in another form; the array itself if it has that form."""
        if self.form == form:
            return self
        check_form(form)
        if self.prime.form == "canonical":
            raise ArgumentTypeError(explain_single_form(self.layout))
        return self._with(elementwise.convert(self.prime, self.data, form), form)

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as Python values, in a NumPy array of objects."""
        raise NotImplementedError

    def tolist(self) -> Any:
        """The elements as Python values, in nested lists; a value if there are no axes."""
        return self.ints().tolist()

    def item(self) -> Any:
        """The only element of the array as a Python value."""
        if self.size != 1:
            raise ArgumentShapeError(
                f"an array of shape {self.shape} is not a single element; index it first"
            )
        return self.ints().reshape(()).item()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentShapeError(
                f"the truth value of an array of shape {self.shape} is ambiguous; compare it and "
                "use .any() or .all()"
            )
        return bool(self.numpy().any())

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
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def reshape(self, *shape: int | Shape) -> Self:
        """The same elements in another shape, given as lengths or as one tuple; one may be -1.

        A view where NumPy's rules allow it, else a copy.
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
        """A view with the axes in another order, by default reversed."""
        given: Any = axes[0] if len(axes) == 1 else axes
        order = parse_axes(given, self.shape) if given not in (None, ()) else self._reverse_axes()
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
            raise TypeError("an array without axes cannot be iterated over")
        return (self[index] for index in range(self.shape[0]))

    # --- repr ---

    def __repr__(self) -> str:
        place = "device" if self.on_device else "host"
        described = f"<{type(self).__name__} {self.shape} of {self.layout.name} on the {place}"
        try:
            return f"{described}: {self._format_values(self.data)}>"
        except GpuError:  # recorded in a graph and not computed yet, or on a closed device
            return f"{described}, {self.form} form>"

    def _format_values(self, data: ElementData) -> str:
        """The integers as nested lists; from a device only those that are shown are fetched."""
        shape = elementwise.get_shape(self.layout, data)
        if not shape:
            return str(self._with(data).to_host().item())
        half = MAX_SHOWN // 2
        parts = [data] if shape[0] <= MAX_SHOWN else [data[:half], data[-half:]]
        texts = []
        for part in parts:
            if len(shape) == 1:
                values = self._with(part).to_host().tolist()
            else:
                values = [self._format_values(part[row]) for row in range(part.shape[0])]
            texts.append(", ".join(map(str, values)))
        return f"[{', ..., '.join(texts)}]"


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


def check_form(form: str) -> None:
    """Raise `ArgumentTypeError` unless there is a form of that name."""
    if form not in ("canonical", "montgomery"):
        raise ArgumentTypeError(f"form must be 'canonical' or 'montgomery', not {form!r}")


def explain_single_form(layout: ElementLayout) -> str:
    """The message that elements have no Montgomery form."""
    return f"{layout.name} has no Montgomery form; its elements are stored in canonical form"
