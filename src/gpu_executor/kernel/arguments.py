"""Arguments: the storage buffers of a kernel that its callers see, with their access and types.

A kernel's code says for each buffer what it does with it and which elements it holds. A declaration
(`buffers=`) may replace what was read, except where the code contradicts it, and names the buffers
that are no arguments: the scratch buffer and the status word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import KernelError
from gpu_executor.spirv import Access, ShaderInterface, StorageBlock

Shape = tuple[int, ...]
Buffer = npt.DTypeLike | tuple[str, npt.DTypeLike | Callable[..., int]] | None
"""The declaration of one storage buffer: an access, a dtype, a pair of both, "status", a pair of
"scratch" and a function, or None."""
Buffers = str | Sequence[Buffer]
"""The declarations of all storage buffers in binding order; a text separates them with commas."""
ACCESSES = ("in", "out", "inout")
ROLES = (*ACCESSES, "scratch", "status")


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one array element: a scalar, a struct, or a block of them such as six limbs."""

    dtype: np.dtype[Any]
    shape: Shape = ()
    nbytes: int = field(init=False, repr=False, compare=False)
    """The bytes of one element."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", self.dtype.itemsize * math.prod(self.shape))

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
    parts = (f"{name}: {member[0]} at {member[1]}" for name, member in dtype.fields.items())
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


def parse_dtype(where: str, dtype: npt.DTypeLike) -> ElementType:
    """Return the element type that a dtype declares; a subarray dtype is one element."""
    try:
        whole = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: a text such as "f4, (2"
        raise KernelError(
            f"{where}: buffers has {dtype!r}; a buffer is 'in', 'out' or 'inout', a dtype, both as "
            "in ('in', 'u4'), 'status' or ('scratch', function)"
        ) from None
    base, shape = whole.subdtype or (whole, ())
    if not is_numeric(base) or 0 in shape or not base.itemsize:
        raise KernelError(
            f"{where}: buffers has the dtype {whole}; an element is a number, a struct of numbers, "
            "or a non-empty subarray of them"
        )
    return ElementType(to_native(base), tuple(shape))


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype consists of numbers alone, so that its bytes are its value."""
    if dtype.fields is not None:
        return all(is_numeric(member[0].base) for member in dtype.fields.values())
    return dtype.kind in "biufc"


@dataclass(frozen=True, slots=True)
class DeclaredBuffers:
    """The storage buffers of a kernel, as its author declares them."""

    access: tuple[Access | None, ...] | None = None
    """For each argument; None where the code decides. None: the code decides all of them."""
    types: tuple[ElementType | None, ...] = ()
    scratch: Callable[..., int] | None = None
    """Computes the number of 32-bit words of the scratch buffer from the shapes."""
    status: bool = False

    @property
    def hidden(self) -> int:
        """The number of buffers behind the arguments."""
        return (self.scratch is not None) + self.status


def parse_buffers(where: str, buffers: Any) -> DeclaredBuffers:
    """Return the declaration of the storage buffers in checked form."""
    if buffers is None:
        return DeclaredBuffers()
    if isinstance(buffers, str):
        buffers = buffers.split(",")
    if not isinstance(buffers, list | tuple):
        raise KernelError(
            f"{where}: buffers is {buffers!r}; it must be a text such as 'in, in, out', or a list "
            "of one entry for each storage buffer of the code"
        )
    entries = [_split_buffer(entry) for entry in buffers]
    roles = [role for role, _ in entries]
    scratch, status = None, False
    if roles and roles[-1] == "status":
        _, type_ = entries.pop()
        if type_ is not None:
            raise KernelError(
                f"{where}: the status word of buffers has the dtype {type_!r}; it has none"
            )
        status = True
    if entries and entries[-1][0] == "scratch":
        _, scratch = entries.pop()
        if not callable(scratch) or isinstance(scratch, type):
            raise KernelError(
                f"{where}: buffers has a scratch buffer with {scratch!r}; give ('scratch', "
                "function), where the function returns its 32-bit words for the arrays' shapes"
            )
    access: list[Any] = [role for role, _ in entries]
    if "scratch" in access or "status" in access:
        raise KernelError(
            f"{where}: buffers has {roles}; a scratch buffer and a status word are the last of "
            "them, in this order"
        )
    types = [None if type_ is None else parse_dtype(where, type_) for _, type_ in entries]
    return DeclaredBuffers(tuple(access), tuple(types), scratch, status)


def _split_buffer(entry: Any) -> tuple[str | None, Any]:
    """Return the role and the dtype of an entry of `buffers=`; None for what it does not say."""
    if isinstance(entry, str):
        role, _, type_ = entry.strip().partition(" ")
        return (role, type_.strip() or None) if role in ROLES else (None, entry.strip())
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        role, type_ = entry
        if role in ROLES:
            return role, type_
    return None, entry


def declare_buffers(
    inputs: int, dtypes: Sequence[npt.DTypeLike], *, status: bool = False
) -> list[Buffer]:
    """Return the declaration of buffers of which the first are inputs and the others outputs."""
    declared: list[Buffer] = [
        ("in" if index < inputs else "out", dtype) for index, dtype in enumerate(dtypes)
    ]
    return [*declared, "status"] if status else declared


def read_arguments(
    where: str, interface: ShaderInterface, declared: DeclaredBuffers
) -> tuple[Argument, ...]:
    """Return a kernel's arguments in binding order.

    The last storage buffers are no arguments if a scratch buffer and a status word are declared.
    """
    access, types = declared.access, declared.types
    if access is None:
        access = types = (None,) * len(interface.buffers)
    elif len(access) + declared.hidden != len(interface.buffers):
        raise KernelError(
            f"{where}: buffers lists {len(access) + declared.hidden} buffers, but the code has the "
            f"bindings {list(interface.bindings)}"
        )
    return tuple(
        Argument(
            buffer.binding,
            _check_access(where, interface, buffer, one),
            _choose_type(where, buffer, type_),
            _count_elements(buffer, type_),
            buffer.name,
            buffer.used if type_ is None else b"",
        )
        for buffer, one, type_ in zip(interface.buffers, access, types, strict=False)
    )


def make_arguments(where: str, declared: DeclaredBuffers) -> tuple[Argument, ...]:
    """Return the arguments of a kernel without SPIR-V: at the bindings 0, 1, ..."""
    if declared.access is None:
        raise KernelError(f"{where}: buffers is None; WGSL needs them, such as 'in u4, out u4'")
    made = []
    for binding, (access, type_) in enumerate(zip(declared.access, declared.types, strict=True)):
        if access is None or type_ is None:
            lacks = "no access" if access is None else "no dtype"
            raise KernelError(
                f"{where}: entry {binding} of buffers has {lacks}; a kernel of WGSL declares both, "
                "as in 'in u4' or ('in', 'u4')"
            )
        made.append(Argument(binding, access, type_))
    return tuple(made)


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
                "dtype has; declare its elements with buffers=, or give the buffer one array"
            )
        base, shape = buffer.element.subdtype or (buffer.element, ())
        return ElementType(base, tuple(shape))
    found = buffer.element
    if found is None:
        return declared
    scalar = found.base
    if declared.nbytes % _align_of(found):
        raise KernelError(
            f"{where}: buffers has {declared} for {_describe(buffer)}, whose elements are "
            f"{_describe_element(found)}; the sizes do not fit"
        )
    same = have_same_layout(to_native(declared.dtype), scalar)
    if scalar.kind == "f" and not same and not _is_complex_of(declared.dtype, scalar):
        raise KernelError(
            f"{where}: buffers has {declared} for {_describe(buffer)}, but the code computes with "
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
