"""What a random kernel is: data from which its GLSL, its NumPy model and its calls are made.

All of it is plain data, so that a kernel can be stored as JSON. Expressions are nested lists, whose
first entry names the node; `expressions.py` describes them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tests.support.random_kernels.kinds import KINDS, Kind

Expression = list[Any]
Place = list[Any]


@dataclass(frozen=True)
class Length:
    """The length of an array that specialization constants determine."""

    text: str
    """In GLSL, of the constants' names: "S5 * 2"."""
    value: int
    """With the constants that the kernel is made with."""
    default: int
    """The length by which the compiler places what follows the array: that of the constant's
    default in the code, or 1 if the length is an expression."""


@dataclass(frozen=True)
class Member:
    """A member of a struct, or of a block that is one struct."""

    name: str
    kind: str
    width: int = 1
    length: Length | None = None
    """How many entries its array has; None: it is no array. Only in a block."""


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
    spelled: Length | None = None
    """The fixed length in the code, where specialization constants determine it."""
    block: bool = False
    """Whether the block is one struct of scalars, vectors and arrays of them: no array of its
    own, and one element for callers."""
    packing: str = "std430"
    """The layout of its memory: std430, std140 (strides of 16 bytes) or scalar (no padding)."""
    qualifiers: str = ""
    instance: bool = False
    """Whether the block has an instance name."""
    loads: bool = False
    stores: bool = False
    """Whether the code loads from it, and stores to it (atomic operations included)."""

    @property
    def is_bounded(self) -> bool:
        """Whether stores compare their index with the length, which the code knows."""
        return self.block or self.spelled is not None

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
        return self.block or used < self.dtype.itemsize * math.prod(self.trailing)


def place_members(
    members: Sequence[Member | Parameter], packing: str = "std430"
) -> list[tuple[int, int]]:
    """The offset and the size in bytes of each member of a block. The compiler places the members
    by the default lengths of arrays; an array's size is that of its length."""
    found, end = [], 0
    for member in members:
        size = KINDS[member.kind].dtype.itemsize
        align = size * (4 if member.width == 3 else member.width)
        nbytes = behind = size * member.width
        if member.length is not None:
            align = -(-align // 16) * 16 if packing == "std140" else align
            nbytes, behind = align * member.length.value, align * member.length.default
        offset = -(-end // align) * align
        found.append((offset, nbytes))
        end = offset + behind
    return found


def have_overlap(members: Sequence[Member | Parameter], packing: str = "std430") -> bool:
    """Whether an array reaches into the member behind it, because it is longer than the compiler
    knew."""
    placed = place_members(members, packing)
    return any(one[0] + one[1] > other[0] for one, other in pairwise(placed))


def _lay_out(members: tuple[Member, ...]) -> np.dtype[Any]:
    """A struct's dtype by the rules of std430: a member is aligned to its size, vectors of three
    components as those of four, and the struct to its largest alignment."""
    formats: list[Any] = []
    end, largest, placed = 0, 1, place_members(members)
    for member, (offset, nbytes) in zip(members, placed, strict=True):
        scalar = KINDS[member.kind].dtype
        padded = 4 if member.width == 3 else member.width
        shape: tuple[int, ...] = (member.width,) if member.width > 1 else ()
        if member.length is not None:
            shape = (member.length.value, padded) if padded > 1 else (member.length.value,)
        formats.append((scalar, shape) if shape else scalar)
        end, largest = max(end, offset + nbytes), max(largest, scalar.itemsize * padded)
    names, offsets = [each.name for each in members], [offset for offset, _ in placed]
    size = -(-end // largest) * largest
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


@dataclass(frozen=True)
class Parameter:
    """A member of the push constants or of the uniform buffer."""

    name: str
    kind: str
    width: int = 1
    meaning: str = "value"
    """ "value": any; "count": the number of elements of the first argument; "n": the size of the
    domain; "extent": its extent in x, y and z, as a vector or, with the axis behind it ("extent0"),
    as a number."""
    default: Any = None
    """The value that the kernel declares, if any."""
    block: str = "push"
    """Where it is: "push" or "uniform"."""
    length: Length | None = None
    """How many entries its array has; None: it is no array."""


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
    when: tuple[Expression, Expression] | None = None
    """(a, b): invocations store where a < b."""


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
    layouts: tuple[str, ...] = ()
    """How each passed array lies in memory; `memory.py` lists the layouts. Those of a list that is
    too short are plain."""
    outs: tuple[str, ...] = ()
    """What `out=` has for each result; `memory.py` lists it. Empty: the call has no `out=`."""
    keep: bool = False
    """Whether the results stay on the device."""
    by_position: bool = False
    """Whether parameters are given as a tuple."""
    typed: bool = False
    """Whether parameters are NumPy's numbers and arrays."""
    omitted: int | None = None
    """The parameter for which the call gives no value although it must."""
    number: int = 0
    """Its place among the calls of the kernel, for messages."""


@dataclass(frozen=True)
class Description:
    """A random kernel."""

    name: str
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    split: str = "whole"
    small: bool = False
    """Whether values are small integers, so that floating point is exact."""
    signed: bool = True
    """Whether small values may be negative."""
    rank: int = 1
    local: tuple[int, int, int] = (64, 1, 1)
    """The work-group size; 0: the plan chooses it, or the kernel is refused."""
    local_ids: tuple[int | None, int | None, int | None] = (None, None, None)
    """The specialization constants of the work-group size."""
    size_by: str = "code"
    """Who says the size in x: "code" (a number), "constants" or "work_group" (the declaration),
    "default" (that of the constant, which the code names), "nobody"."""
    size_default: int = 0
    """The default of the size's constant, where the code names it `S0`."""
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
    params: tuple[Parameter, ...] = ()
    """Members of the push constants, then those of the uniform buffer."""
    count: Any = "unsaid"
    """What the declaration says as `count=`: True, False or a name; "unsaid": nothing."""
    instances: bool = False
    """Whether the blocks of the parameters have instance names."""
    uniform_binding: int = 0
    in_place: bool = False
    """Whether `in_place=True` is declared."""
    declare: str = "code"
    """How access is declared: "code" (not at all), "list" or "text"."""
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
        given["params"] = tuple(
            Parameter(**_with_length(each, "length")) for each in given.get("params", ())
        )
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


def _with_length(data: dict[str, Any], name: str) -> dict[str, Any]:
    """The data with a `Length` where it has one."""
    return {**data, name: Length(**data[name])} if data.get(name) is not None else data


def _make_buffer(data: dict[str, Any]) -> Buffer:
    members = tuple(Member(**_with_length(each, "length")) for each in data.get("members", ()))
    return Buffer(**{**_with_length(data, "spelled"), "members": members})


def _make_statement(data: dict[str, Any]) -> Statement:
    pairs = {
        name: None if data.get(name) is None else tuple(data[name]) for name in ("skip", "when")
    }
    return Statement(**{**data, **pairs})
