"""Draws random kernels.

`draw_kernel` takes a `random.Random`: a seeded one gives the same kernel every time, and the one of
`hypothesis.strategies.randoms` lets hypothesis find a smaller kernel that fails. A `Drawer` has the
parts that the families of kernels (`families.py`) are made of. `declarations.py` adds what does
not change the results.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.support.random_kernels.calls import SMALL
from tests.support.random_kernels.description import (
    Buffer,
    Expression,
    Length,
    Member,
    Parameter,
    Place,
    Statement,
    Tile,
)
from tests.support.random_kernels.kinds import KINDS, PLAIN_KINDS
from tests.support.random_kernels.parameters import COUNT_NAMES, OTHER_NAMES
from tests.support.random_kernels.work_groups import BUILT_INS, NAMED

WHOLE_KINDS = ("uint", "int", "uint", "int", "int64_t", "uint64_t", "int8_t", "uint8_t",
               "int16_t", "uint16_t")  # fmt: skip
SMALL_KINDS = ("float", "float", "float", "int", "uint", "double", "float16_t", "int16_t",
               "uint8_t", "int64_t")  # fmt: skip
MOST_PUSH_BYTES = 96
LENGTH_IDS = (12, 13)
"""Specialization constants that are lengths of arrays."""


class Drawer:
    """Draws one kernel, part by part."""

    def __init__(self, random: Random, name: str, family: str) -> None:
        self.random, self.name, self.family = random, name, family
        self.small = random.random() < 0.5
        self.plain = random.random() < 0.25
        """Whether the kernel has 32-bit numbers and vectors only, which WebGPU has too."""
        pool: tuple[str, ...] = SMALL_KINDS if self.small else WHOLE_KINDS
        if self.plain:
            pool = tuple(kind for kind in pool if kind in PLAIN_KINDS)
        self.kinds = sorted({random.choice(pool) for _ in range(random.randint(1, 3))})
        self.split, self.rank = "whole", 1
        self.out_shape = ""
        self.buffers: list[Buffer] = []
        self.statements: list[Statement] = []
        self.params: list[Parameter] = []
        self.constants: list[tuple[int, str, Any, Any]] = []
        self.tile: Tile | None = None
        self.tile_bound = 0
        self.subgroup = False
        self.loop = False
        self.product = False
        self.reads_groups = random.random() < 0.2 and not self.plain
        """Whether expressions may read the work-group size or places in work-groups."""
        self.names_size = random.random() < (0.6 if self.reads_groups else 0.15)
        """Whether the code names the constant of the work-group size."""

    # --- small choices ---

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    @property
    def signed(self) -> bool:
        """Whether small values may be negative: no type is unsigned."""
        return not any(KINDS[kind].is_unsigned for kind in self.kinds)

    @property
    def limit(self) -> int:
        """The largest value that every type in use represents exactly."""
        return min(KINDS[kind].exact for kind in self.kinds)

    # --- buffers ---

    def draw_element(self, width: int) -> dict[str, Any]:
        """The type of an element, with vectors of that width."""
        kind = self.pick(*self.kinds)
        shape = self.random.random() + self.plain
        if shape < 0.1 and KINDS[kind].name in ("float", "double"):
            return {"kind": kind, "width": self.pick(2, 3, 4), "columns": self.pick(2, 3, 4)}
        if shape < 0.2:
            members = tuple(
                Member(f"m{at}", self.pick(*self.kinds), self.pick(1, 1, 2, 3, 4))
                for at in range(self.random.randint(1, 4))
            )
            return {"kind": kind, "members": members}
        packing = "std430" if self.plain else self.pick("std430", "std430", "std140", "scalar")
        return {"kind": kind, "width": self.pick(1, width), "packing": packing}

    def add_buffers(self, inputs: int, outputs: int, inouts: int) -> None:
        """Add buffers in a random order, at random bindings."""
        roles = ["in"] * inputs + ["out"] * outputs + ["inout"] * inouts
        if self.chance(0.5):
            for at in range(len(roles) - 1, 0, -1):
                other = self.random.randint(0, at)
                roles[at], roles[other] = roles[other], roles[at]
        width, binding = self.pick(1, 1, 2, 3, 4), self.pick(0, 0, 0, 1)
        element: dict[str, Any] = {}
        for role in roles:
            if not element or self.chance(0.6):  # otherwise results fit into inputs
                element = self.draw_element(width)
            instance = self.chance(0.3)
            self.buffers.append(Buffer(binding, role, **element, instance=instance))
            binding += self.pick(1, 1, 1, 2, 4)

    def change(self, number: int, **changes: Any) -> None:
        self.buffers[number] = replace(self.buffers[number], **changes)

    def list_role(self, *roles: str) -> list[int]:
        return [number for number, each in enumerate(self.buffers) if each.role in roles]

    # --- specialization constants ---

    def draw_constants(self) -> None:
        for spec_id in (5, 9):
            if self.chance(0.15) and not self.plain:
                kind = self.pick("int", "uint")
                value = self.pick(None, self.random.randint(0, SMALL))
                self.constants.append((spec_id, kind, self.random.randint(0, SMALL), value))

    def draw_length(self) -> Length:
        """A length that specialization constants determine."""
        known = {each[0]: each for each in self.constants if each[0] in LENGTH_IDS}
        for spec_id in LENGTH_IDS:
            if spec_id not in known:
                value = self.pick(None, self.random.randint(1, 12), self.random.randint(1, 12))
                known[spec_id] = (spec_id, "uint", self.random.randint(1, 9), value)
                self.constants.append(known[spec_id])
        text = self.pick("S12", "S12", "S12 * 2", "S12 + S13", "S13 + 1", "3 * S13 - 2")
        values = {
            f"S{spec_id}": each[2] if each[3] is None else each[3]
            for spec_id, each in known.items()
        }
        return Length(text, eval(text, {}, values), known[12][2] if text == "S12" else 1)

    # --- parameters ---

    def start_params(self) -> None:
        """Perhaps the number of elements, which is usually the first of the push constants."""
        if self.chance(0.65):
            name = self.pick(*COUNT_NAMES, "count", "count", *OTHER_NAMES)
            self.params.append(Parameter(name, self.pick("uint", "uint", "int"), 1, "count"))

    def draw_params(self, most: int = 3) -> None:
        kinds = [kind for kind in self.kinds if KINDS[kind].bits >= 32] or ["int"]
        if not self.small or not self.signed:
            kinds.append("uint")
        blocks = self.pick(("push",), ("push",), ("uniform",), ("push", "uniform"))
        room = MOST_PUSH_BYTES
        for number in range(self.random.randint(0, most)):
            kind, width = self.pick(*kinds), 1 if self.plain else self.pick(1, 1, 1, 2, 3, 4)
            length = self.draw_length() if self.chance(0.1) and not self.plain else None
            nbytes = KINDS[kind].dtype.itemsize * (4 if width == 3 else width)
            room -= nbytes * (1 if length is None else max(length.value, length.default))
            if room < 0:
                break
            parameter = Parameter(f"p{number}", kind, width, block=self.pick(*blocks),
                                  length=length)  # fmt: skip
            if self.chance(0.2):
                parameter = replace(parameter, default=self.draw_value(parameter))
            self.params.append(parameter)
        if self.params and self.params[0].meaning == "count" and self.chance(0.1):
            self.params.append(self.params.pop(0))

    def draw_value(self, parameter: Parameter) -> Any:
        return draw_value(self.random, parameter, small=self.small, signed=self.signed)

    # --- expressions ---

    def draw_expression(
        self, width: int, depth: int = 2, own: tuple[int, int] | None = None
    ) -> Expression:
        """A value of that width, within the limit of small values. `own` is a buffer and a part
        that the expression loads, too."""
        node, bound = self._draw_bounded(width, depth)
        if own is None:
            return node
        place = ["wrap"] if self.buffers[own[0]].is_bounded else ["same"]
        load: Expression = ["load", own[0], place, own[1], None]
        if self.small:
            return ["+", node, load] if bound + 2 * SMALL <= self.limit else ["max", node, load]
        return [self.pick("+", "^", "-", "max"), node, load]

    def _draw_bounded(self, width: int, depth: int) -> tuple[Expression, int]:
        """An expression and the largest absolute value that it can have."""
        if depth == 0 or self.chance(0.15):
            return self._draw_leaf(width)
        operations = ["+", "*", "min", "max"]
        if not self.small:
            operations += ["-", "&", "|", "^", "<<", ">>"]
        elif self.signed:
            operations.append("-")
        if width == 1:
            operations.append("select")
        operation = self.pick(*operations)
        left, a = self._draw_bounded(width, depth - 1)
        if operation in ("<<", ">>"):
            return [operation, left, ["constant", self.random.randint(0, 7)]], 0
        right, b = self._draw_bounded(width, depth - 1)
        if operation == "select":
            third, c = self._draw_leaf(width)
            fourth, d = self._draw_leaf(width)
            return ["select", left, right, third, fourth], max(c, d)
        bound = {"+": a + b, "-": a + b, "*": a * b}.get(operation, max(a, b))
        if self.small and 2 * bound > self.limit:
            return ["max", left, right], max(a, b)
        return [operation, left, right], bound

    def _draw_leaf(self, width: int) -> tuple[Expression, int]:
        """A load, a parameter, a constant or a size, and its bound."""
        leaves: list[Any] = ["constant"]
        leaves += ["load"] * 4 if self.list_role("in") else []
        leaves += ["param"] * 2 if self.params else []
        leaves += ["spec"] if any(each[0] < LENGTH_IDS[0] for each in self.constants) else []
        leaves += ["tile"] * 3 if self.tile is not None else []
        if self.split == "whole":
            leaves += ["index", "coordinate" if self.rank > 1 else "index", "length"]
            leaves += ["built-in"] * 4 if self.reads_groups and self.rank == 1 else []
        leaf = self.pick(*leaves)
        if leaf == "load":
            return self.draw_load(width), SMALL
        if leaf == "param":
            return self._draw_param(width)
        if leaf == "tile":
            return ["tile"], self.tile_bound
        if leaf == "built-in":
            name = self.pick(*(each for each in BUILT_INS if self.names_size or each not in NAMED))
            return ["built-in", name, 3 if self.small else self.pick(0, 7)], SMALL
        if leaf == "spec":
            ids = [each[0] for each in self.constants if each[0] < LENGTH_IDS[0]]
            return ["spec", self.pick(*ids)], SMALL
        bound = 3 if self.small else 1 << 31
        found: dict[str, Expression] = {
            "index": ["index", self.random.randint(2, 4) if self.small else 0],
            "coordinate": ["coordinate", self.random.randint(0, self.rank - 1), 3],
            "length": ["length", self.random.randint(0, len(self.buffers) - 1)],
            "constant": ["constant", self.random.randint(0, bound)],
        }
        return found["constant" if leaf == "length" and self.small else leaf], SMALL

    def _draw_param(self, width: int) -> tuple[Expression, int]:
        number = self.random.randint(0, len(self.params) - 1)
        parameter = self.params[number]
        if parameter.meaning == "count" and not self.small and self.split == "whole":
            return ["param", number, None], SMALL
        if parameter.meaning != "value":
            return ["constant", 1], 1
        is_float = (parameter.kind, parameter.width, parameter.length) == ("float", 1, None)
        if is_float and not self.plain and self.chance(0.4):
            return ["sign", number], 1
        own = parameter.width
        component = None if own in (1, width) else self.random.randint(0, own - 1)
        if parameter.length is None:
            return ["param", number, component], SMALL
        by_index = self.split == "whole" and self.chance(0.7)
        # The compiler refuses an index beyond the length that it knows.
        last = min(parameter.length.value, parameter.length.default) - 1
        at = None if by_index else self.random.randint(0, last)
        return ["entry", number, at, component], SMALL

    def draw_load(self, width: int) -> Expression:
        """A load from an input, as a value of one component or of that width."""
        number = self.pick(*self.list_role("in"))
        parts = self.buffers[number].parts()
        part = self.random.randint(0, len(parts) - 1)
        own = parts[part][2]
        component = None if own in (1, width) else self.random.randint(0, own - 1)
        return ["load", number, self._draw_load_place(number), part, component]

    def _draw_load_place(self, number: int) -> Place:
        if self.split == "elements":
            return ["same"]
        if self.buffers[number].length != "n":
            axis = self.random.randint(0, self.rank - 1)
            return ["axis", axis] if self.rank > 1 and self.chance(0.5) else ["wrap"]
        choices: list[Place] = [["same"], ["same"], ["same"], ["reverse"], ["wrap"], ["half"]]
        choices.append(["rotate", self.random.randint(1, 9)])
        indices = [
            each
            for each in self.list_role("in")
            if self.buffers[each].kind == "uint"
            and self.buffers[each].length == "n"
            and not self.buffers[each].trailing
            and not self.buffers[each].members
        ]
        if indices:
            choices.append(["indirect", self.pick(*indices)])
        place: Place = self.pick(*choices)
        return place

    def draw_compute(self) -> str:
        """The kind in which a value is computed."""
        choices = [kind for kind in self.kinds if KINDS[kind].bits >= 32 or self.chance(0.5)]
        fallback = "float" if self.small else "int"
        chosen: str = self.pick(*(choices or [fallback]))
        return chosen

    # --- statements ---

    def store_everything(self, *, partly: bool = False) -> None:
        """Stores to every output and in-out argument, some of them conditional or repeated;
        `partly` leaves some elements out and permutes them."""
        for number in self.list_role("out", "inout"):
            buffer = self.buffers[number]
            parts = list(range(len(buffer.parts())))
            if partly and len(parts) > 1 and self.chance(0.3):
                parts = parts[: self.random.randint(1, len(parts))]
            own = buffer.role == "inout" and self.chance(0.8)
            own = own or (buffer.role == "out" and self.chance(0.1))
            place = ["same"] if own else self._draw_store_place(number, partly)
            skip = None
            if partly and self.chance(0.25):
                modulus = self.random.randint(2, 5)
                skip = (modulus, self.random.randint(0, modulus - 1))
            for part in parts:
                self._store(number, part, place, skip, own=own)
                if self.chance(0.15):
                    self._store(number, part, place, skip, own=own and self.chance(0.5))

    def _store(
        self, number: int, part: int, place: Place, skip: tuple[int, int] | None, *, own: bool
    ) -> None:
        width = self.buffers[number].parts()[part][2]
        value = self.draw_expression(width, own=(number, part) if own else None)
        when = None
        if self.chance(0.2):
            when = self.draw_expression(1, 1), self.draw_expression(1, 1)
        compute = avoid_wide_comparisons(self.draw_compute(), [value, when])
        self.statements.append(Statement(number, place, value, compute, part, skip=skip, when=when))

    def _draw_store_place(self, number: int, anywhere: bool) -> Place:
        if self.buffers[number].length == "double":
            return ["spread", 2, self.random.randint(0, 1)]
        if not anywhere or self.buffers[number].is_bounded:
            return ["same"]
        if self.rank == 2 and self.out_shape == "reversed":
            return ["transpose"]
        rotated = ["rotate", self.random.randint(1, 9)]
        place: Place = self.pick(["same"], ["same"], ["reverse"], rotated)
        return place


def avoid_wide_comparisons(compute: str, nodes: list[Any]) -> str:
    """The kind in which expressions are computed: one of 32 bits instead of 64-bit integers that
    are compared. Lavapipe (Mesa 22.3.6) computes `int64_t(0) < int64_t(x)` wrongly for an int x."""
    narrow = {"int64_t": "int", "uint64_t": "uint"}.get(compute)
    return narrow if narrow is not None and _has_comparison(nodes) else compute


def _has_comparison(nodes: Any) -> bool:
    if not isinstance(nodes, list | tuple):
        return False
    is_pair = isinstance(nodes, tuple)  # (a, b) of a conditional store
    return is_pair or nodes[:1] == ["select"] or any(map(_has_comparison, nodes))


def draw_value(random: Random, parameter: Parameter, *, small: bool, signed: bool) -> Any:
    """A value for a parameter: a number, or lists of numbers."""
    if parameter.length is not None:
        one = replace(parameter, length=None)
        return [
            draw_value(random, one, small=small, signed=signed)
            for _ in range(parameter.length.value)
        ]
    values = [
        _draw_number(random, parameter.kind, small=small, signed=signed)
        for _ in range(parameter.width)
    ]
    return values[0] if parameter.width == 1 else values


def _draw_number(random: Random, kind: str, *, small: bool, signed: bool) -> int | float:
    if small:
        if KINDS[kind].is_float and random.random() < 0.25:
            return random.choice((0.0, -0.0))
        return random.randint(-SMALL if signed else 0, SMALL)
    bits = KINDS[kind].bits
    low, high = (0, (1 << bits) - 1) if KINDS[kind].is_unsigned else (
        -(1 << bits - 1), (1 << bits - 1) - 1)  # fmt: skip
    return random.choice((0, 1, 3, high, low, random.randint(low, high)))
