"""`ElementArray`: elements of a finite field in memory, apart from arithmetic on them.

It knows their form, and the ways to convert and show them. `FiniteFieldArray` adds the operators.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.fields.layout_array import LayoutArray
from gpu_executor.ops import elementwise
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.primes import ElementLayout, Form, Prime

MAX_SHOWN = 6
"""Elements along an axis that `repr` shows; of more it shows the first three and the last three."""


class ElementArray(LayoutArray):
    """Elements of a finite field, on the host or on a device; axes are axes of elements.

    In Montgomery form an integer x of an element is stored as x * R mod p, R = 2^(32k) for integers
    of k words.
    """

    __slots__ = ("form",)

    form: Form

    @property
    def prime(self) -> Prime:
        """The prime of the elements, or of their coefficients."""
        raise NotImplementedError

    def _with(self, data: ElementData, form: Form | None = None) -> Self:
        """An array of the same type with other elements, by default in this array's form."""
        raise NotImplementedError

    # --- place and words ---

    def copy_to_device(self, device: ArrayDevice) -> Self:
        """A copy on the device, in the form in which the field computes."""
        if self.on_device:
            raise ArgumentTypeError(
                "the array is on a device already; to_host() copies it to the host"
            )
        return self._with(device.put(self.numpy())).in_form(self.prime.form)

    # Names of earlier versions, kept for users.
    on_card, card, to_card = LayoutArray.on_device, LayoutArray.device, copy_to_device

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


def check_form(form: str) -> None:
    """Raise `ArgumentTypeError` unless there is a form of that name."""
    if form not in ("canonical", "montgomery"):
        raise ArgumentTypeError(f"form must be 'canonical' or 'montgomery', not {form!r}")


def explain_single_form(layout: ElementLayout) -> str:
    """The message that elements have no Montgomery form."""
    return f"{layout.name} has no Montgomery form; its elements are stored in canonical form"
