"""Expressions and places: how they are written in GLSL, and what they are in NumPy.

An expression is a list whose first entry names the node:

    ["load", buffer, place, part, component]   an element, its member or column, or one component
    ["param", number, component]               a parameter of the call
    ["entry", number, at, component]           an entry of a parameter that is an array; at None:
                                               the one of the invocation's index
    ["sign", number]                           the sign bit of a parameter that is a float
    ["constant", value]                        a literal
    ["spec", id]                               a specialization constant
    ["index", modulus]                         the invocation's index (modulus 0: all of it)
    ["coordinate", axis, modulus]              one coordinate of the invocation
    ["length", buffer]                         the number of elements of a buffer
    ["built-in", name, modulus]                what `work_groups.BUILT_INS` lists
    ["tile"]                                   the result of the computation in shared memory
    ["dot", a, b]                              row y of matrix a times column x of matrix b
    ["+", a, b] and so on                      an operation

A place is a list, too: ["same"], ["reverse"], ["rotate", k], ["wrap"], ["half"], ["indirect",
buffer], ["axis", axis] for loads; ["same"], ["reverse"], ["rotate", k], ["transpose"], ["spread",
factor, offset], ["group"] for stores; ["bin", expression] for atomic operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.random_kernels.description import Buffer, Description, Expression, Place
from tests.support.random_kernels.kinds import KINDS, Kind
from tests.support.random_kernels.sizes import count_groups
from tests.support.random_kernels.work_groups import BUILT_INS

Array = npt.NDArray[Any]
AXES = "xyzw"


# --- GLSL ---


def render(kernel: Description, node: Expression, compute: Kind, width: int) -> str:
    """An expression in GLSL, as a value of a kind and a width."""
    name, spelled = node[0], compute.spell(width)
    if name in _LEAVES:
        return f"{spelled}({_LEAVES[name](kernel, *node[1:])})"
    parts = [render(kernel, each, compute, width) for each in node[1:]]
    if name in ("min", "max"):
        return f"{name}({parts[0]}, {parts[1]})"
    if name == "select":
        return f"({parts[0]} < {parts[1]} ? {parts[2]} : {parts[3]})"
    return f"{spelled}({parts[0]} {name} {parts[1]})"


def render_load(
    kernel: Description, buffer: int, place: Place, part: int, component: int | None
) -> str:
    """A load, converted to 32 bits if the kind is narrower."""
    _, kind, width = kernel.buffers[buffer].parts()[part]
    index = render_place(kernel, buffer, place, part)
    if kernel.helpers:
        return f"load{buffer}_{part}({index})" + (
            f".{AXES[component]}" if component is not None else ""
        )
    found = render_element(kernel, buffer, part, index)
    if component is not None:
        found, width = f"{found}.{AXES[component]}", 1
    return f"{KINDS[kind.wide].spell(width)}({found})" if kind.wide else found


def render_element(kernel: Description, buffer: int, part: int, index: str) -> str:
    """A part of an element of a buffer, as it is loaded and stored."""
    described = kernel.buffers[buffer]
    accessor = described.parts()[part][0]
    if not described.block:
        return f"{render_array(kernel, buffer)}[{index}]{accessor}"
    is_array = described.members[part].length is not None
    return f"s{buffer}{accessor}" + (f"[{index}]" if is_array else "")


def render_array(kernel: Description, buffer: int) -> str:
    """The name of a buffer's array."""
    return f"s{buffer}.b{buffer}" if kernel.buffers[buffer].instance else f"b{buffer}"


def render_length(kernel: Description, buffer: int, part: int = 0) -> str:
    """The number of elements of a buffer, or of entries of a block's member."""
    described = kernel.buffers[buffer]
    spelled = described.members[part].length if described.block else described.spelled
    if spelled is not None:
        return f"uint({spelled.text})"
    return "1u" if described.block else f"uint({render_array(kernel, buffer)}.length())"


def render_place(kernel: Description, buffer: int, place: Place, part: int = 0) -> str:
    """The index in a buffer that an invocation loads from or stores to."""
    name, length = place[0], render_length(kernel, buffer, part)
    if name == "bin":
        return f"{render(kernel, place[1], KINDS['uint'], 1)} % {length}"
    if name == "indirect":
        return f"{render_load(kernel, place[1], ['same'], 0, None)} % {length}"
    return {
        "same": "i",
        "reverse": f"{length} - 1u - i",
        "rotate": f"(i + {place[-1]}u) % {length}",
        "wrap": f"i % {length}",
        "half": f"(i / 2u) % {length}",
        "axis": f"{AXES[place[-1] if name == 'axis' else 0]} % {length}",
        "transpose": "x * ey + y",
        "spread": f"{place[1] if name == 'spread' else 0}u * i + {place[-1]}u",
        "group": "gl_WorkGroupID.x",
    }[name]


def render_name(kernel: Description, number: int) -> str:
    """The name of a parameter in the code."""
    parameter = kernel.params[number]
    block = {"push": "pushed.", "uniform": "values."}[parameter.block] if kernel.instances else ""
    return f"{block}{parameter.name}"


def _render_param(kernel: Description, number: int, component: int | None) -> str:
    return render_name(kernel, number) + ("" if component is None else f".{AXES[component]}")


def _render_entry(kernel: Description, number: int, at: int | None, component: int | None) -> str:
    length = kernel.params[number].length
    assert length is not None
    index = f"i % uint({length.text})" if at is None else f"{at}"
    return f"{render_name(kernel, number)}[{index}]" + (
        "" if component is None else f".{AXES[component]}"
    )


def _render_built_in(_kernel: Description, name: str, modulus: int) -> str:
    return BUILT_INS[name][0] + (f" % {modulus}u" if modulus else "")


_LEAVES: dict[str, Callable[..., str]] = {
    "load": render_load,
    "param": _render_param,
    "entry": _render_entry,
    "sign": lambda kernel, number: f"floatBitsToUint({render_name(kernel, number)}) >> 31u",
    "built-in": _render_built_in,
    "constant": lambda _kernel, value: f"{value}{'u' if value >= 1 << 31 else ''}",
    "spec": lambda _kernel, spec_id: f"S{spec_id}",
    "index": lambda _kernel, modulus: f"i % {modulus}u" if modulus else "i",
    "coordinate": lambda _kernel, axis, modulus: f"{AXES[axis]} % {modulus}u",
    "length": render_length,
    "tile": lambda _kernel: "t",
    "dot": lambda _kernel, a, b: f"dot{a}_{b}(x, y)",
}


# --- NumPy ---


class Invocations:
    """All invocations of a dispatch inside of the domain, with what they load."""

    def __init__(
        self,
        kernel: Description,
        arrays: list[Array],
        values: list[Any],
        extent: tuple[int, ...],
    ) -> None:
        """`arrays` have shape (elements, *element shape), in binding order."""
        self.kernel, self.arrays, self.values, self.extent = kernel, arrays, values, extent
        self.count = int(np.prod(extent))
        if kernel.guard == "count":
            counts = [n for n, each in enumerate(kernel.params) if each.meaning == "count"]
            self.count = min(self.count, int(values[counts[0]]))
        self.index = np.arange(self.count)
        self.tile: Array | None = None

    def coordinate(self, axis: int) -> Array:
        """The coordinates in x, y or z."""
        x, y = (*self.extent, 1, 1)[:2]
        found: Array = [self.index % x, self.index // x % y, self.index // (x * y)][axis]
        return found

    def evaluate(self, node: Expression, compute: Kind) -> Array:
        """The values of an expression: an array of shape (invocations, components)."""
        leaves: dict[str, Callable[..., Any]] = {
            "load": self._load,
            "param": self._get_param,
            "entry": self._get_entry,
            "sign": lambda number: np.signbit(np.array([[self.values[number]]], float)),
            "built-in": self._get_built_in,
            "constant": lambda value: np.array([[value]]),
            "spec": self._get_constant,
            "index": lambda modulus: (self.index % modulus if modulus else self.index)[:, None],
            "coordinate": lambda axis, modulus: (self.coordinate(axis) % modulus)[:, None],
            "length": lambda buffer: np.array([[self._count_entries(buffer, 0)]]),
            "tile": lambda: self.tile,
            "dot": self._multiply,
        }
        name = node[0]
        with np.errstate(all="ignore"):
            if name in leaves:
                leaf: Array = leaves[name](*node[1:]).astype(compute.dtype)
                return leaf
            parts = [self.evaluate(each, compute) for each in node[1:]]
            if name == "select":
                return np.where(parts[0] < parts[1], parts[2], parts[3])
            found: Array = OPERATIONS[name](parts[0], parts[1])
        assert found.dtype == compute.dtype
        return found

    def _get_param(self, number: int, component: int | None) -> Array:
        dtype = KINDS[self.kernel.params[number].kind].dtype
        value = np.atleast_1d(np.array(self.values[number], dtype))[None, :]
        return value if component is None else value[:, component : component + 1]

    def _get_entry(self, number: int, at: int | None, component: int | None) -> Array:
        value = np.array(self.values[number], KINDS[self.kernel.params[number].kind].dtype)
        entries: Array = value[self.index % len(value) if at is None else np.array([at])]
        found = entries.reshape(len(entries), self.kernel.params[number].width)
        return found if component is None else found[:, component : component + 1]

    def _get_built_in(self, name: str, modulus: int) -> Array:
        elements = [len(array) for array in self.arrays]
        groups = count_groups(self.kernel, self.extent, elements)
        found = BUILT_INS[name][1](self.index, self.kernel.local[0], groups)
        return (found % modulus if modulus else found)[:, None]

    def _get_constant(self, spec_id: int) -> Array:
        [constant] = [each for each in self.kernel.constants if each[0] == spec_id]
        _, kind, default, value = constant
        return np.array([[default if value is None else value]], KINDS[kind].dtype)

    def _load(self, buffer: int, place: Place, part: int, component: int | None) -> Array:
        described = self.kernel.buffers[buffer]
        index = self.place_index(buffer, place, part)
        found = get_part(described, self.arrays[buffer], part)[index]
        found = found if component is None else found[:, component : component + 1]
        kind = described.parts()[part][1]
        return found.astype(KINDS[kind.wide].dtype if kind.wide else kind.dtype)

    def _count_entries(self, buffer: int, part: int) -> int:
        return len(get_part(self.kernel.buffers[buffer], self.arrays[buffer], part))

    def place_index(self, buffer: int, place: Place, part: int = 0) -> Array:
        """The index in a buffer, or in a block's member, for every invocation."""
        name, length, i = place[0], self._count_entries(buffer, part), self.index
        if name == "bin":
            bins = self.evaluate(place[1], KINDS["uint"])[:, 0].astype(np.int64) % length
            return np.broadcast_to(bins, i.shape)
        if name == "indirect":
            return self._load(place[1], ["same"], 0, None)[:, 0].astype(np.int64) % length
        if name == "axis":
            return self.coordinate(place[1]) % length
        if name == "transpose":
            return self.coordinate(0) * self.extent[1] + self.coordinate(1)
        found: dict[str, Any] = {
            "same": lambda: i,
            "reverse": lambda: length - 1 - i,
            "rotate": lambda: (i + place[-1]) % length,
            "wrap": lambda: i % length,
            "half": lambda: i // 2 % length,
            "spread": lambda: place[1] * i + place[-1],
            "group": lambda: i // self.kernel.local[0],
        }
        index: Array = found[name]()
        return index

    def _multiply(self, a: int, b: int) -> Array:
        width, height = self.extent
        left = self.arrays[a].reshape(height, -1)
        right = self.arrays[b].reshape(-1, width)
        kind = KINDS[self.kernel.statements[0].compute]
        total = np.zeros((height, width), kind.dtype)
        for k in range(left.shape[1]):
            total += left[:, k : k + 1].astype(kind.dtype) * right[k : k + 1].astype(kind.dtype)
        return total.reshape(-1, 1)


def get_part(buffer: Buffer, array: Array, part: int) -> Array:
    """A view of a member, a column or the elements themselves, of shape (elements, components);
    of the entries of an array in a block."""
    _, _, width = buffer.parts()[part]
    if buffer.members:
        names = array.dtype.names
        assert names is not None
        found: Array = array[names[part]]
        if buffer.members[part].length is not None:
            entries: Array = found[0]
            return entries[:, None] if width == 1 else entries[:, :width]
        return found[:, None] if width == 1 else found
    if buffer.columns:
        return array[:, part, :width]
    return array[:, :width] if buffer.trailing else array[:, None]


OPERATIONS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "min": np.minimum,
    "max": np.maximum,
}
