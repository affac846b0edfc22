"""The layout of types in memory: sizes, offsets, strides, and the NumPy dtypes with that layout.

The layout is what the code states with its Offset, ArrayStride and MatrixStride decorations. GLSL's
std430, std140 and scalar layouts and those of other languages are read alike.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import (
    Kind,
    Values,
    evaluate_integer,
    list_spec_ids,
    read_scalar_type,
)
from gpu_executor.spirv.module import ARRAY_STRIDE, MATRIX_STRIDE, OFFSET, ROW_MAJOR, Module

_PHYSICAL_STORAGE_BUFFER = 5349  # Spec, "Storage Class"
_DEEPEST_TYPE = 64  # far more than compilers emit, and well within Python's recursion limit
_COMPONENTS = (2, 3, 4)  # of vectors; others need OpenCL's capability Vector16
_LONGEST_TEXT = 400  # characters of a struct's layout in messages
_MOST_FIELDS = 4096  # of a structured dtype: its hash and its text visit every field
_LARGEST_ITEM = 1 << 31  # bytes: NumPy's limit
_LARGEST_MASK = 1 << 16  # bytes of an element whose padding is looked for

# The name of a scalar in GLSL, and the prefix of its vectors.
_GLSL_NAMES: dict[tuple[Kind, int], tuple[str, str]] = {
    ("float", 16): ("float16_t", "f16"), ("float", 32): ("float", ""),
    ("float", 64): ("double", "d"),
    ("int", 8): ("int8_t", "i8"), ("int", 16): ("int16_t", "i16"), ("int", 32): ("int", "i"),
    ("int", 64): ("int64_t", "i64"), ("uint", 8): ("uint8_t", "u8"),
    ("uint", 16): ("uint16_t", "u16"), ("uint", 32): ("uint", "u"),
    ("uint", 64): ("uint64_t", "u64"),
}  # fmt: skip

_DTYPES = {(kind, bits): np.dtype(f"{kind[0]}{bits // 8}") for kind, bits in _GLSL_NAMES}


@dataclass(slots=True, eq=False)
class Member:
    """A member of a struct."""

    name: str
    offset: int
    layout: TypeLayout


@dataclass(slots=True, eq=False)
class TypeLayout:
    """A type in memory.

    A scalar, vector or matrix, or an array of them, is `shape` numbers of `dtype`, `strides` bytes
    apart along each axis. A struct has `members`. An array has an `element`.
    """

    text: str  # as in GLSL; of an array that of its innermost element
    nbytes: int  # up to the end of the last member or element; 0 for a runtime array
    alignment: int  # by the rules of std430
    problem: str = ""  # why the layout is not known; "" if it is
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    fields: int = 1  # scalars and subarrays in a structured dtype of this layout
    element: TypeLayout | None = None
    length: int | None = None  # None for a runtime array
    stride: int = 0

    @property
    def padded_nbytes(self) -> int:
        """The size of a struct with the padding at its end; otherwise `nbytes`."""
        return -(-self.nbytes // self.alignment) * self.alignment if self.members else self.nbytes

    def declare(self, name: str, offset: int | None) -> str:
        """Return the declaration of a member of this type, with its offset and strides."""
        extents, strides, innermost = "", [], self
        while innermost.element is not None:
            extents += "[]" if innermost.length is None else f"[{innermost.length}]"
            strides.append(innermost.stride)
            innermost = innermost.element
        if innermost.text.startswith(("mat", "dmat", "f16mat", "row_major")) and innermost.strides:
            strides.append(innermost.strides[0])
        where = "" if offset is None else f" @{offset}"
        where += f" stride {', '.join(map(str, strides))}" if strides else ""
        return f"{innermost.text}{' ' if name else ''}{name}{extents}{where};"


class TypeReader:
    """Reads the layouts of a module's types, each once.

    The lengths of arrays may be specialization constants, or expressions of them: `values` are
    those that are set, and the others have their defaults.
    """

    def __init__(self, module: Module, values: Values) -> None:
        self._module, self._values = module, values
        self.length_ids: set[int] = set()
        """The SpecIds that lengths of the arrays read so far depend on."""
        self._read: dict[tuple[int, int, bool], TypeLayout] = {}

    def read(
        self, type_id: int, matrix_stride: int = 0, row_major: bool = False, depth: int = 0
    ) -> TypeLayout:
        """Return the layout of a type. The last two are decorations of the member that has it."""
        if depth > _DEEPEST_TYPE:
            raise SpirvError(f"type %{type_id} is nested too deep, or contains itself")
        key = (type_id, matrix_stride, row_major)
        if key not in self._read:
            self._read[key] = self._read_type(type_id, matrix_stride, row_major, depth + 1)
        return self._read[key]

    def _read_type(
        self, type_id: int, matrix_stride: int, row_major: bool, depth: int
    ) -> TypeLayout:
        name, operands = self._module.definition(type_id)
        scalar = read_scalar_type(self._module, type_id)
        if scalar is not None:
            dtype = _DTYPES[scalar]
            return TypeLayout(_GLSL_NAMES[scalar][0], dtype.itemsize, dtype.itemsize, dtype=dtype)
        if name == "OpTypeVector":
            return self._read_vector(operands)
        if name == "OpTypeMatrix":
            return self._read_matrix(operands, matrix_stride, row_major)
        if name in ("OpTypeArray", "OpTypeRuntimeArray"):
            element = self.read(operands[1], matrix_stride, row_major, depth)
            return self._read_array(type_id, element, operands[2:])
        if name == "OpTypeStruct":
            return self._read_struct(type_id, operands[1:], depth)
        problem, size, text = f"hold {name} (%{type_id})", 0, name
        if name == "OpTypePointer" and operands[1] == _PHYSICAL_STORAGE_BUFFER:
            problem, size = "", 8
            text = f"{self._module.name(operands[2]) or 'buffer'} reference"
        return TypeLayout(text, size, size or 1, problem)

    def _read_vector(self, operands: tuple[int, ...]) -> TypeLayout:
        scalar = read_scalar_type(self._module, operands[1])
        if scalar is None or operands[2] not in _COMPONENTS:
            problem = f"hold a vector (%{operands[0]}) that is not of 2 to 4 numbers"
            return TypeLayout("vector", 0, 1, problem)
        size, count = scalar[1] // 8, operands[2]
        dtype = _DTYPES[scalar]
        return TypeLayout(
            f"{_GLSL_NAMES[scalar][1]}vec{count}", count * size, (2 if count == 2 else 4) * size,
            dtype=dtype, shape=(count,), strides=(size,),
        )  # fmt: skip

    def _read_matrix(
        self, operands: tuple[int, ...], matrix_stride: int, row_major: bool
    ) -> TypeLayout:
        name, vector = self._module.definition(operands[1])
        column = self._read_vector(vector) if name == "OpTypeVector" else None
        columns = operands[2]
        has_columns = columns in _COMPONENTS and matrix_stride > 0
        if column is None or column.dtype is None or not has_columns:
            problem = f"hold a matrix (%{operands[0]}) without columns or without a MatrixStride"
            return TypeLayout("matrix", 0, 1, problem=problem)
        rows, size = column.shape[0], column.dtype.itemsize
        prefix = column.text.removesuffix(f"vec{rows}")
        text = f"{prefix}mat{columns}" if rows == columns else f"{prefix}mat{columns}x{rows}"
        outer, inner = (rows, columns) if row_major else (columns, rows)
        overlaps = inner * size > matrix_stride
        return TypeLayout(
            f"row_major {text}" if row_major else text, outer * matrix_stride, column.alignment,
            f"hold a matrix (%{operands[0]}) whose MatrixStride is too small" if overlaps else "",
            dtype=column.dtype, shape=(outer, inner), strides=(matrix_stride, size),
        )  # fmt: skip

    def _read_array(
        self, type_id: int, element: TypeLayout, length_id: tuple[int, ...]
    ) -> TypeLayout:
        stride = self._module.decoration(type_id, ARRAY_STRIDE) or 0
        length, problem = None, element.problem
        if length_id:
            length = evaluate_integer(self._module, length_id[0], self._values)
            self.length_ids |= list_spec_ids(self._module, length_id[0])
            if length is None or length < 1:
                problem = f"hold an array (%{type_id}) without a constant length of at least 1"
                length = None
        if not stride:
            problem = problem or f"hold an array (%{type_id}) without an ArrayStride"
        elif stride < element.nbytes:  # compilers compute it with the defaults of constants
            problem = problem or (
                f"hold an array (%{type_id}) whose elements of {element.nbytes} bytes are {stride} "
                "bytes apart"
            )
        is_number = element.dtype is not None and length is not None
        return TypeLayout(
            element.text, (length or 0) * stride, element.alignment, problem,
            dtype=element.dtype if is_number else None,
            shape=(length or 0, *element.shape) if is_number else (),
            strides=(stride, *element.strides) if is_number else (),
            fields=element.fields, element=element, length=length, stride=stride,
        )  # fmt: skip

    def _read_struct(self, type_id: int, types: tuple[int, ...], depth: int) -> TypeLayout:
        module, members, problem = self._module, [], ""
        text = f"struct {module.name(type_id)}".rstrip() + " {"
        for at, member_type in enumerate(types):
            layout = self.read(
                member_type,
                module.decoration(type_id, MATRIX_STRIDE, at) or 0,
                module.decoration(type_id, ROW_MAJOR, at) is not None,
                depth,
            )
            offset = module.decoration(type_id, OFFSET, at)
            if offset is None:
                problem = problem or f"have a member {at} of struct %{type_id} that has no Offset"
            problem = problem or layout.problem
            if len(text) < _LONGEST_TEXT:
                text += " " + layout.declare(module.name(type_id, at), offset)
            members.append(Member(module.name(type_id, at), offset or 0, layout))
        problem = problem or _describe_overlap(members)
        text = text if len(text) < _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ..."
        return TypeLayout(
            f"{text} }}",
            max((each.offset + each.layout.nbytes for each in members), default=0),
            max((each.layout.alignment for each in members), default=1),
            problem or ("" if members else f"hold a struct (%{type_id}) without members"),
            members=tuple(members),
            fields=min(sum(each.layout.fields for each in members), _MOST_FIELDS + 1),
        )


def _describe_overlap(members: list[Member]) -> str:
    """Return which members share bytes; "" if none do. Compilers compute offsets with the defaults
    of specialization constants, so a longer array may reach into the member behind it.
    """
    ordered = sorted(members, key=lambda member: member.offset)
    for one, other in itertools.pairwise(ordered):
        if one.offset + one.layout.nbytes > other.offset:
            return (
                f"have {one.name or 'a member'} at byte {one.offset}, whose "
                f"{one.layout.nbytes} bytes overlap {other.name or 'the member'} at byte "
                f"{other.offset} (put an array with a specialized length last)"
            )
    return ""


def make_dtype(layout: TypeLayout, nbytes: int) -> np.dtype[Any] | None:
    """Return the dtype of `nbytes` bytes with that layout; None if NumPy has none.

    Padding between numbers is made of numbers: a vec3 in 16 bytes is four floats. Padding between
    the members of a struct belongs to none of its fields.
    """
    if layout.problem or not layout.nbytes <= nbytes < _LARGEST_ITEM:
        return None
    if layout.dtype is not None:
        return _make_subarray(layout, nbytes)
    if layout.members:
        return _make_structured(layout, nbytes)
    if layout.element is None or layout.length is None:
        return None
    element = make_dtype(layout.element, layout.stride)
    if element is None or layout.length * layout.stride != nbytes:
        return None
    return np.dtype((element, (layout.length,)))


def find_used_bytes(layout: TypeLayout, nbytes: int) -> bytes:
    """Return for each byte of an element whether the code's numbers lie there (1) or padding (0).

    Empty if there is no padding, and for elements beyond 64 KiB, whose padding is not looked for.
    """
    if make_dtype(layout, nbytes) is None or nbytes > _LARGEST_MASK:
        return b""
    mask = np.zeros(nbytes, np.uint8)
    _mark_used(layout, 0, mask)
    return b"" if mask.all() else mask.tobytes()


def _mark_used(layout: TypeLayout, offset: int, mask: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    if layout.dtype is not None:
        at = np.arange(offset, offset + layout.dtype.itemsize)
        for extent, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
            at = (np.arange(extent)[:, None] * stride + at).ravel()
        mask[at] = 1
    for member in layout.members:
        _mark_used(member.layout, offset + member.offset, mask)
    if layout.dtype is None and layout.element is not None:
        for number in range(layout.length or 0):
            _mark_used(layout.element, offset + number * layout.stride, mask)


def _make_subarray(layout: TypeLayout, nbytes: int) -> np.dtype[Any] | None:
    assert layout.dtype is not None
    extents, outer = [], nbytes
    for extent, stride in zip(layout.shape, layout.strides, strict=True):
        if outer % stride or outer // stride < extent:
            return None
        extents.append(outer // stride)
        outer = stride
    if outer % layout.dtype.itemsize:
        return None
    if outer > layout.dtype.itemsize:
        extents.append(outer // layout.dtype.itemsize)
    return np.dtype((layout.dtype, tuple(extents))) if extents else layout.dtype


def _make_structured(layout: TypeLayout, nbytes: int) -> np.dtype[Any] | None:
    if layout.fields > _MOST_FIELDS:
        return None
    ends = [*sorted(each.offset for each in layout.members)[1:], nbytes]
    order = sorted(range(len(layout.members)), key=lambda at: layout.members[at].offset)
    formats: list[np.dtype[Any]] = [np.dtype("u1")] * len(order)
    for at, end in zip(order, ends, strict=True):
        member = layout.members[at]
        room, needed = end - member.offset, member.layout.padded_nbytes
        dtype = make_dtype(member.layout, needed if needed <= room else member.layout.nbytes)
        if dtype is None or dtype.itemsize > room:
            return None
        formats[at] = dtype
    names = [each.name for each in layout.members]
    if "" in names or len(set(names)) < len(names):  # glslc -O strips the names
        names = [f"f{at}" for at in range(len(names))]
    offsets = [each.offset for each in layout.members]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": nbytes})
