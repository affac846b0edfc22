"""`ElementArray`: elements of a finite field in memory, apart from arithmetic on them.

It knows their form, and the ways to convert and show them. `FiniteFieldArray` adds the operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    GpuError,
    RemovedNameError,
)
from gpu_executor.fields.layout_array import LayoutArray
from gpu_executor.ops import elementwise
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.primes import ElementLayout, Form, Prime

MAX_SHOWN = 6
"""Elements along an axis that `repr` shows; of more it shows the first three and the last three."""


RENAMED = {"on_card": "on_device", "card": "device", "to_card": "copy_to_device(device)"}
"""Names of earlier versions, and the names that have taken their place."""


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
        """A copy on the device, in the form in which the field computes.

        Args:
            device (ArrayDevice): The memory of a device, `gpu.array_device`; `gpu.to_device(array)`
                does the same.
        """
        if self.on_device:
            raise ArgumentTypeError(
                "the array is on a device already; to_host() copies it to the host"
            )
        return self._with(device.put(self.words())).in_form(self.prime.form)

    if not TYPE_CHECKING:  # a type checker knows the names without it

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse names that the array does not have; for one of an earlier version the error
            says the new name."""
            if name in RENAMED:
                raise RemovedNameError(f"{type(self).__name__}.{name} is now {RENAMED[name]}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def numpy(self) -> Words:
        """The words in canonical form, on the host: shape (..., words of an element), or (...) in a
        field whose elements are one word. They may be those of the array, and are read-only then.
        """
        return self.in_form("canonical").words()

    def describe_type(self) -> str:
        """The field and the form of the elements, in words."""
        return f"elements of {self.layout.name} in {self.form} form"

    def in_form(self, form: Form) -> Self:
        """The same elements in another form; the array itself if it has that form.

        Args:
            form (str): "canonical" or "montgomery".
        """
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
        return bool(self.words().any())

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
    check_choice("form", form, ("canonical", "montgomery"))


def check_choice(name: str, value: object, choices: tuple[str, str]) -> None:
    """Raise `ArgumentTypeError` unless the argument of that name is one of two words."""
    if not isinstance(value, str) or value not in choices:
        one, other = choices
        raise ArgumentTypeError(f"{name} must be {one!r} or {other!r}, not {value!r}")


def explain_single_form(layout: ElementLayout) -> str:
    """The message that elements have no Montgomery form."""
    return f"{layout.name} has no Montgomery form; its elements are stored in canonical form"
