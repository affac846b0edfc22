"""The members of push constants and uniform buffers: their layout, and values encoded into them."""

from __future__ import annotations

import math
import numbers
import operator
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import KernelError
from gpu_executor.spirv.types import TypeLayout

_MOST_MEMBERS = 4096  # of one block; a 64 KiB uniform buffer of vec4s has 4096
# What packs a scalar, by the dtype's char; the layout of SPIR-V is little-endian.
_FORMATS = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_PACKERS = {
    char: struct.Struct("<" + _FORMATS.get(np.dtype(char).str[1:], char)).pack_into
    for char in "bBhHiIlLqQefd"
}
_TEXTS = (str, bytes, bytearray)
_FLOAT_PACKERS = {char: _PACKERS[char] for char in "efd"}


@dataclass(frozen=True, slots=True)
class BlockMember:
    """A member of the push constants or of a uniform buffer.

    A vector has the shape (components,), a matrix (columns, rows) and an array of them one axis
    more in front. A `row_major` matrix has the shape (rows, columns), as it lies in memory.
    """

    name: str  # "" if the compiler removed it; "light.power" for a member of a struct
    offset: int  # bytes from the block's beginning
    dtype: np.dtype[Any]  # of one number
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes from one entry to the next along each axis of `shape`

    @property
    def nbytes(self) -> int:
        """The bytes from the first number to the end of the last."""
        steps = zip(self.shape, self.strides, strict=True)
        return int(self.dtype.itemsize) + sum((extent - 1) * stride for extent, stride in steps)

    def __str__(self) -> str:
        name = repr(self.name) if self.name else f"at byte {self.offset}"
        return f"parameter {name} ({self.dtype.name}{list(self.shape) if self.shape else ''})"

    def encode_into(self, buffer: bytearray, value: object) -> None:
        """Write `value` at the member's offset; raise KernelError if it does not fit exactly.

        An integer member takes integers in its range. A float member takes real numbers, rounded;
        a finite number that would become infinite is refused. Bools are neither. Vectors, matrices
        and arrays take sequences or NumPy arrays of exactly `shape`.
        """
        if self.shape:
            self._encode_axis(buffer, value, self.offset, 0)
        else:
            self._encode_scalar(buffer, value, self.offset)

    def _encode_axis(self, buffer: bytearray, value: Any, offset: int, axis: int) -> None:
        """Write `value` as the numbers along `axis` and the axes after it."""
        if axis == len(self.shape):
            self._encode_scalar(buffer, value, offset)
            return
        if isinstance(value, np.ndarray):
            self._encode_array(buffer, value, offset, axis)
            return
        # The abstract class last: checking it is slow.
        if not isinstance(value, (list, tuple, Sequence)) or isinstance(value, _TEXTS):
            raise self._make_refusal(value)
        if len(value) != self.shape[axis]:
            raise self._make_refusal(value, f"{len(value)} entries along axis {axis}")
        for at, entry in enumerate(value):
            self._encode_axis(buffer, entry, offset + at * self.strides[axis], axis + 1)

    def _encode_array(
        self, buffer: bytearray, value: np.ndarray[Any, Any], offset: int, axis: int
    ) -> None:
        shape = self.shape[axis:]
        if value.shape != shape or value.dtype.kind not in ("iuf" if self._is_float else "iu"):
            raise self._make_refusal(value, f"an array of {value.dtype} of shape {value.shape}")
        with np.errstate(over="ignore"):
            converted = value.astype(self.dtype)
        if self._is_float:
            wrong = np.isinf(converted) & ~np.isinf(value)
        else:
            limits = np.iinfo(self.dtype)
            wrong = (value < limits.min) | (value > limits.max)
        if wrong.any():
            raise self._make_refusal(value[wrong][0].item())
        target = np.ndarray(
            shape, self.dtype.newbyteorder("<"), buffer, offset, self.strides[axis:]
        )
        target[...] = converted

    def _encode_scalar(self, buffer: bytearray, value: Any, offset: int) -> None:
        given = type(value)
        if given is int or given is float:  # what most calls pass, without the checks below
            packers = _PACKERS if given is int else _FLOAT_PACKERS
            try:
                packers[self.dtype.char](buffer, offset, value)
            except (KeyError, struct.error, OverflowError):
                raise self._make_refusal(value) from None
            return
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        expected = numbers.Real if self._is_float else numbers.Integral  # NumPy's scalars too
        if isinstance(value, bool | np.bool_) or not issubclass(type(value), expected):
            raise self._make_refusal(value)
        try:
            number: float = float(value) if self._is_float else operator.index(value)
            _PACKERS[self.dtype.char](buffer, offset, number)
        except (struct.error, OverflowError):
            raise self._make_refusal(value) from None
        if math.isinf(number) and not np.isinf(value):  # of a type wider than a Python float
            raise self._make_refusal(value)

    @property
    def _is_float(self) -> bool:
        return self.dtype.kind == "f"

    def _make_refusal(self, value: object, found: str = "") -> KernelError:
        if self._is_float:
            fits = f"a number in the range of a {8 * self.dtype.itemsize}-bit float"
        else:
            limits = np.iinfo(self.dtype)
            fits = f"an int in {limits.min} .. {limits.max}"
        if isinstance(value, bool | np.bool_):
            fits += f" ({int(value)} for {value})"
        if self.shape:
            fits = f"a sequence or array of shape {self.shape}, each entry {fits}"
        if not found:
            found = type(value).__name__
            if isinstance(value, int) and value.bit_length() > 128:  # str() refuses very long ints
                found += f" of {value.bit_length()} bits"
            elif isinstance(value, numbers.Real | np.bool_):
                found += f" {value}"
        return KernelError(f"{self}: found {found}; give {fits}")


def flatten_members(layout: TypeLayout) -> tuple[tuple[BlockMember, ...], tuple[str, ...]]:
    """Return the members of a block in the order of their offsets, and those that take no values.

    The members of nested structs become members with dotted names. Arrays of structs, references
    to buffers and what exceeds 4,096 members take no values; they are returned as declarations.
    """
    usable: list[BlockMember] = []
    unusable: list[str] = []
    for member in _iterate_leaves(layout, "", 0, True):
        if isinstance(member, str):
            unusable.append(member)
        else:
            usable.append(member)
        if len(usable) + len(unusable) > _MOST_MEMBERS:
            return (), (f"{layout.text} (more than {_MOST_MEMBERS} members)",)
    return tuple(sorted(usable, key=lambda member: member.offset)), tuple(unusable)


def _iterate_leaves(
    layout: TypeLayout, prefix: str, start: int, named: bool
) -> Iterator[BlockMember | str]:
    """Yield the members that are numbers, and the declarations of those that are not."""
    for member in layout.members:
        inner, offset = member.layout, start + member.offset
        is_named = named and bool(member.name)
        name = f"{prefix}{member.name}"
        if inner.dtype is not None:
            yield BlockMember(
                name if is_named else "", offset, inner.dtype, inner.shape, inner.strides
            )
        elif inner.members:
            yield from _iterate_leaves(inner, f"{name}.", offset, is_named)
        else:
            yield inner.declare(name if is_named else "", offset)
