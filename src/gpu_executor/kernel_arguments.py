"""Arguments: the storage buffers of a kernel that its callers see, with their access and types.

A kernel's code says for each buffer what it does with it and which elements it holds. A declaration
(`access=`, `inputs=` and `outputs=`, `dtypes=`) may replace what was read, except where the code
contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.spirv import Access, ShaderInterface, StorageBlock

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one array element: a scalar, a struct, or a block of them such as six limbs."""

    dtype: np.dtype[Any]
    shape: Shape = ()

    @property
    def nbytes(self) -> int:
        size: int = self.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size

    @property
    def copied_dtype(self) -> np.dtype[Any]:
        """The dtype that copies use: a struct is copied as bytes, padding included."""
        return self.dtype if self.dtype.names is None else np.dtype(f"V{self.dtype.itemsize}")

    def __str__(self) -> str:
        return f"{describe_dtype(self.dtype)}{list(self.shape) if self.shape else ''}"


@dataclass(frozen=True, slots=True)
class Argument:
    """One storage buffer that callers pass, get back, or both."""

    binding: int
    access: Access
    type: ElementType
    length: int | None = None
    """The number of elements, where the code fixes it."""
    name: str = ""
    """Its name in the code; "" where the compiler removed it."""
    used: bytes = b""
    """1 for each byte of an element that is no padding; b"": there is no padding."""

    @property
    def is_input(self) -> bool:
        """Whether callers pass it."""
        return self.access != "out"

    @property
    def is_output(self) -> bool:
        """Whether callers get it back."""
        return self.access != "in"

    def __str__(self) -> str:
        return f"{self.name or f'binding {self.binding}'} ({self.type}, {self.access})"


def to_native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a number's dtype in native byte order: NumPy's singleton, so `is` can compare it. A
    struct, and the bytes as which it is copied, are returned as they are."""
    return dtype if dtype.kind == "V" else np.dtype(dtype.type)


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a dtype as messages print it: a name, or the fields with their offsets."""
    if dtype.names is None:
        return str(dtype)
    assert dtype.fields is not None
    parts = (f"{name}: {field[0]} at {field[1]}" for name, field in dtype.fields.items())
    return f"struct of {dtype.itemsize} bytes ({', '.join(parts)})"


def have_same_layout(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether two dtypes have the same fields at the same offsets; the fields' names may differ."""
    if one.names is None or other.names is None:
        return one == other
    if one.itemsize != other.itemsize or len(one.names) != len(other.names):
        return False
    assert one.fields is not None
    assert other.fields is not None
    pairs = [(one.fields[a], other.fields[b]) for a, b in zip(one.names, other.names, strict=True)]
    return all(
        a[1] == b[1] and a[0].shape == b[0].shape and have_same_layout(a[0].base, b[0].base)
        for a, b in pairs
    )


def parse_dtype(dtype: npt.DTypeLike) -> ElementType:
    """Return the element type that a dtype declares; a subarray dtype is one element."""
    whole = np.dtype(dtype)
    base, shape = whole.subdtype or (whole, ())
    if not is_numeric(base) or 0 in shape or not base.itemsize:
        raise KernelError(
            f"dtypes has {whole}; an element is a number, a struct of numbers, or a non-empty "
            "subarray of them"
        )
    return ElementType(to_native(base), tuple(shape))


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype consists of numbers alone, so that its bytes are its value."""
    if dtype.fields is not None:
        return all(is_numeric(field[0].base) for field in dtype.fields.values())
    return dtype.kind in "biufc"


def read_arguments(
    where: str,
    interface: ShaderInterface,
    hidden: int,
    access: Sequence[Access] | None,
    counts: tuple[int | None, int | None],
    dtypes: Sequence[npt.DTypeLike] | None,
) -> tuple[Argument, ...]:
    """Return a kernel's arguments in binding order.

    The last `hidden` storage buffers are no arguments: the scratch buffer and the status word.
    `counts` are the numbers of inputs and outputs, if the declaration gives them.
    """
    buffers = interface.buffers[: len(interface.buffers) - hidden]
    declared = _parse_access(where, access, counts, buffers)
    if dtypes is not None and len(dtypes) != len(buffers):
        raise KernelError(
            f"{where}: dtypes lists {len(dtypes)} types for {len(buffers)} arguments "
            f"(bindings {[buffer.binding for buffer in buffers]})"
        )
    types = [None] * len(buffers) if dtypes is None else [parse_dtype(dtype) for dtype in dtypes]
    return tuple(
        Argument(
            buffer.binding,
            _check_access(where, interface, buffer, one),
            _choose_type(where, buffer, type_),
            _count_elements(buffer, type_),
            buffer.name,
            buffer.used if type_ is None else b"",
        )
        for buffer, one, type_ in zip(buffers, declared, types, strict=True)
    )


def make_arguments(
    where: str, access: Sequence[Access], dtypes: Sequence[npt.DTypeLike]
) -> tuple[Argument, ...]:
    """Return the arguments of a kernel without SPIR-V: at the bindings 0, 1, ..."""
    if len(dtypes) != len(access):
        raise KernelError(f"{where}: dtypes lists {len(dtypes)} types for {len(access)} arguments")
    _check_access_names(where, access)
    return tuple(
        Argument(binding, one, parse_dtype(dtype))
        for binding, (one, dtype) in enumerate(zip(access, dtypes, strict=True))
    )


def count_access(inputs: int, outputs: int) -> tuple[Access, ...]:
    """Return the access of arguments of which the first are inputs and the others outputs."""
    return tuple("in" if index < inputs else "out" for index in range(inputs + outputs))


def _parse_access(
    where: str,
    access: Sequence[Access] | None,
    counts: tuple[int | None, int | None],
    buffers: Sequence[StorageBlock],
) -> Sequence[Access | None]:
    """The declared access of each buffer; None for one that the declaration leaves to the code."""
    inputs, outputs = counts
    if access is not None and counts != (None, None):
        raise KernelError(f"{where}: give access= or inputs= and outputs=, not both")
    if access is not None:
        _check_access_names(where, access)
        given: Sequence[Access] = access
    elif inputs is not None or outputs is not None:
        if inputs is None:
            inputs = len(buffers) - (outputs or 0)
        if outputs is None:
            outputs = len(buffers) - inputs
        if min(inputs, outputs) < 0:
            raise KernelError(f"{where} has {inputs} inputs and {outputs} outputs")
        given = count_access(inputs, outputs)
    else:
        return [None] * len(buffers)
    if len(given) != len(buffers):
        raise KernelError(
            f"{where}: the declaration has {len(given)} arguments, but the code has the bindings "
            f"{[buffer.binding for buffer in buffers]}"
        )
    return given


def _check_access_names(where: str, access: Sequence[Any]) -> None:
    for one in access:
        if one not in ("in", "out", "inout"):
            raise KernelError(f"{where}: access has {one!r}; it must be 'in', 'out' or 'inout'")


def _check_access(
    where: str, interface: ShaderInterface, buffer: StorageBlock, declared: Access | None
) -> Access:
    if declared is None:
        return buffer.access
    if declared == "in" and buffer.stores:
        raise KernelError(
            f"{where}: {_describe(buffer)} is declared as an input, but the code writes it; "
            "declare it 'inout' or 'out'"
        )
    if declared != "in" and buffer.binding in interface.read_only:
        raise KernelError(
            f"{where}: {_describe(buffer)} is declared as an output, but it is readonly in the code"
        )
    return declared


def _choose_type(where: str, buffer: StorageBlock, declared: ElementType | None) -> ElementType:
    if declared is None:
        if buffer.element is None:
            raise KernelError(
                f"{where}: {_describe(buffer)} has the layout {buffer.layout}, which no NumPy "
                "dtype has; declare its elements with dtypes=, or give the buffer one array"
            )
        base, shape = buffer.element.subdtype or (buffer.element, ())
        return ElementType(base, tuple(shape))
    found = buffer.element
    if found is None:
        return declared
    scalar = found.base
    if declared.nbytes % _align_of(found):
        raise KernelError(
            f"{where}: dtypes has {declared} for {_describe(buffer)}, whose elements are "
            f"{_describe_element(found)}; the sizes do not fit"
        )
    same = have_same_layout(to_native(declared.dtype), scalar)
    if scalar.kind == "f" and not same and not _is_complex_of(declared.dtype, scalar):
        raise KernelError(
            f"{where}: dtypes has {declared} for {_describe(buffer)}, but the code computes with "
            f"{_describe_element(found)}"
        )
    return declared


def _align_of(found: np.dtype[Any]) -> int:
    """The bytes of which a declared element must be a multiple: a scalar of the code, or a whole
    struct."""
    return found.itemsize if found.base.names is not None else found.base.itemsize


def _is_complex_of(declared: np.dtype[Any], scalar: np.dtype[Any]) -> bool:
    return declared.kind == "c" and declared.itemsize == 2 * scalar.itemsize


def _describe_element(found: np.dtype[Any]) -> str:
    base, shape = found.subdtype or (found, ())
    return str(ElementType(base, tuple(shape)))


def _count_elements(buffer: StorageBlock, declared: ElementType | None) -> int | None:
    """The fixed number of elements, in elements of the declared type."""
    if buffer.length is None or declared is None:
        return buffer.length
    return buffer.length * buffer.stride // declared.nbytes


def _describe(buffer: StorageBlock) -> str:
    name = f" ({buffer.name})" if buffer.name else ""
    return f"binding {buffer.binding}{name}"
