"""What a random kernel is: data from which its GLSL, its NumPy model and its calls are made.

All of it is plain data, so that a kernel can be stored as JSON. Expressions are nested lists, whose
first entry names the node; `expressions.py` describes them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.random_kernels.kinds import KINDS, Kind

Expression = list[Any]
Place = list[Any]


@dataclass(frozen=True)
class Member:
    """A member of a struct."""

    name: str
    kind: str
    width: int = 1


@dataclass(frozen=True)
class Buffer:
    """A storage buffer with one array: of scalars, vectors, matrices or structs."""

    binding: int
    role: str
    """What callers see: "in", "out" or "inout"."""
    kind: str = "uint"
    width: int = 1
    """Components of a vector, or rows of a matrix."""
    columns: int = 0
    """Columns of a matrix; 0: not a matrix."""
    members: tuple[Member, ...] = ()
    """The members of a struct; empty: not a struct."""
    length: str = "n"
    """How many elements a call has: "n" (as many as the domain), "own" (any number), "fixed",
    "double" (2n), "groups" (one per work-group), "rows" and "columns" (the factors of a product).
    """
    fixed: int = 0
    """The number of elements where `length` is "fixed"."""
    sized: bool = False
    """Whether the code declares the fixed length."""
    packing: str = "std430"
    """The layout of its memory: std430, std140 (strides of 16 bytes) or scalar (no padding)."""
    qualifiers: str = ""
    instance: bool = False
    """Whether the block has an instance name."""
    loads: bool = False
    stores: bool = False
    """Whether the code loads from it, and stores to it (atomic operations included)."""

    @property
    def access_in_code(self) -> str:
        """What the code alone says."""
        if not self.stores:
            return "in"
        return "inout" if self.loads else "out"

    @property
    def scalar(self) -> Kind:
        return KINDS[self.kind]

    def parts(self) -> list[tuple[str, Kind, int]]:
        """What one element consists of, as (accessor, kind, width): members, columns or itself."""
        if self.members:
            return [(f".{one.name}", KINDS[one.kind], one.width) for one in self.members]
        if self.columns:
            return [(f"[{column}]", self.scalar, self.width) for column in range(self.columns)]
        return [("", self.scalar, self.width)]

    @property
    def trailing(self) -> tuple[int, ...]:
        """The axes of one element in NumPy. Three components take the room of four."""
        if self.members:
            return ()
        padded, size = self.width, self.scalar.dtype.itemsize
        if self.packing != "scalar" and padded == 3:
            padded = 4
        if self.packing == "std140":
            padded = -(-padded * size // 16) * 16 // size
        if self.columns:
            return (self.columns, padded)
        return (padded,) if padded > 1 else ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the array's items: a scalar, or a struct in the layout std430."""
        return _lay_out(self.members) if self.members else self.scalar.dtype

    @property
    def has_padding(self) -> bool:
        """Whether an element has bytes that no kernel writes."""
        used = sum(kind.dtype.itemsize * width for _, kind, width in self.parts())
        return used < self.dtype.itemsize * math.prod(self.trailing)


def _lay_out(members: tuple[Member, ...]) -> np.dtype[Any]:
    """A struct's dtype by the rules of std430: a member is aligned to its size, vectors of three
    components as those of four, and the struct to its largest alignment."""
    names: list[str] = []
    formats: list[Any] = []
    offsets: list[int] = []
    end, largest = 0, 1
    for member in members:
        scalar = KINDS[member.kind].dtype
        align = scalar.itemsize * (4 if member.width == 3 else member.width)
        offset = -(-end // align) * align
        names.append(member.name)
        formats.append(scalar if member.width == 1 else (scalar, (member.width,)))
        offsets.append(offset)
        end, largest = offset + scalar.itemsize * member.width, max(largest, align)
    size = -(-end // largest) * largest
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


@dataclass(frozen=True)
class Parameter:
    """A member of the push constants behind the count, or of the uniform buffer."""

    name: str
    kind: str
    width: int = 1
    meaning: str = "value"
    """ "value": any; "n": the size of the domain; "extent": its extent in x, y and z, as a vector
    or, with the axis behind it ("extent0"), as a number."""
    default: Any = None
    """The value that the kernel declares, if any."""


@dataclass(frozen=True)
class Statement:
    """A store or an atomic operation of each invocation."""

    buffer: int
    place: Place
    """Where: see `expressions.place_index`."""
    value: Expression
    compute: str
    """The kind in which the value is computed."""
    part: int = 0
    """The member or column that is stored."""
    atomic: str = ""
    """The atomic operation (add, min, max, and, or, xor); "": a store."""
    skip: tuple[int, int] | None = None
    """(m, r): invocations whose index is r modulo m do not store."""


@dataclass(frozen=True)
class Tile:
    """A computation of a work-group in shared memory, whose result an expression can use."""

    operation: str
    """reverse, sum, scan or sort."""
    value: Expression
    compute: str


@dataclass(frozen=True)
class Call:
    """One call: sizes, values and how the arrays lie in memory. `calls.py` makes arrays from it."""

    extent: tuple[int, ...]
    """The domain in x, y and z."""
    axes: tuple[int, ...]
    """The leading axes of arrays with one element per invocation."""
    own: tuple[int, ...]
    """The length of each buffer whose length is "own"; for a product, the inner extent."""
    seed: int
    values: tuple[Any, ...]
    """One per parameter; those with a meaning are computed, those with None use the default."""
    layout: str = "plain"
    """plain, strided, swapped (byte order), read-only, reversed, mapped (memory that the device can
    access), part (of such memory) or list (of Python numbers)."""
    out: str = ""
    """ "": new arrays, "given": arrays of the caller, "mapped": those in memory that the device can
    access, "part": parts of such memory, "strided": every second element of other arrays, "same":
    the in-out arguments themselves."""
    by_position: bool = False
    """Whether parameters are given as a tuple."""
    typed: bool = False
    """Whether parameters are NumPy's numbers and arrays."""


@dataclass(frozen=True)
class Description:
    """A random kernel."""

    name: str
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    calls: tuple[Call, ...]
    split: str = "whole"
    small: bool = False
    """Whether values are small integers, so that floating point is exact."""
    signed: bool = True
    """Whether small values may be negative."""
    rank: int = 1
    local: tuple[int, int, int] = (64, 1, 1)
    local_ids: tuple[int | None, int | None, int | None] = (None, None, None)
    """The specialization constants of the work-group size."""
    grid: str = ""
    """ "": none given; "shapes", "params" or "tuple": what `grid=` depends on."""
    guard: str = "count"
    """What bounds the index: "count", "n" (a parameter), "length", "extent" or "none"."""
    guarded_by: int = 0
    """The buffer whose length bounds the index."""
    domain: int = 0
    """A buffer with one element per invocation."""
    loop: bool = False
    """Whether an invocation processes several elements, at the distance of the grid."""
    count: bool = True
    """Whether the push constants begin with the count."""
    params: tuple[Parameter, ...] = ()
    block: str = "push"
    """Where the parameters are: "push" or "uniform"."""
    uniform_binding: int = 0
    say_count: bool = False
    """Whether `count=` is declared."""
    declare: str = "code"
    """How access is declared: "code" (not at all), "access" or "counts"."""
    out_shape: str = ""
    """ "": not given; "leading", "flat", "reversed", "outer", "product", "each" or "call"."""
    init: Any = "default"
    """ "default", a number, None, or a list of one per output."""
    constants: tuple[tuple[int, str, Any, Any], ...] = ()
    """Specialization constants: id, kind, default in the code, value (None: the default)."""
    tile: Tile | None = None
    helpers: bool = False
    """Whether loads and stores are in functions of their own."""
    index_style: int = 0
    version: int = 450
    target: str = "vulkan1.2"
    optimize: bool = False
    wgsl: bool = False
    """Whether the kernel has a WGSL text, too."""
    subgroup: bool = False
    """Whether an atomic addition is made once per subgroup."""

    def to_json(self) -> dict[str, Any]:
        """The description without the values that are defaults."""
        found: dict[str, Any] = _strip(self)
        return found

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Description:
        given = dict(data)
        given["buffers"] = tuple(_make_buffer(each) for each in given["buffers"])
        given["statements"] = tuple(_make_statement(each) for each in given["statements"])
        given["calls"] = tuple(_make_call(each) for each in given["calls"])
        given["params"] = tuple(Parameter(**each) for each in given.get("params", ()))
        if given.get("tile") is not None:
            given["tile"] = Tile(**given["tile"])
        for name in ("local", "local_ids"):
            if name in given:
                given[name] = tuple(given[name])
        given["constants"] = tuple(tuple(each) for each in given.get("constants", ()))
        return cls(**given)


def _strip(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        found = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.default is dataclasses.MISSING or item != field.default:
                found[field.name] = _strip(item)
        return found
    if isinstance(value, tuple | list):
        return [_strip(each) for each in value]
    return value


def _make_buffer(data: dict[str, Any]) -> Buffer:
    members = tuple(Member(**each) for each in data.get("members", ()))
    return Buffer(**{**data, "members": members})


def _make_statement(data: dict[str, Any]) -> Statement:
    skip = data.get("skip")
    return Statement(**{**data, "skip": None if skip is None else tuple(skip)})


def _make_call(data: dict[str, Any]) -> Call:
    tuples = {name: tuple(data[name]) for name in ("extent", "axes", "own", "values")}
    return Call(**{**data, **tuples})
