"""Draws random kernels.

`draw_kernel` takes a `random.Random`: a seeded one gives the same kernel every time, and the one of
`hypothesis.strategies.randoms` lets hypothesis find a smaller kernel that fails.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

from tests.support.random_kernels.calls import SMALL
from tests.support.random_kernels.description import (
    Buffer,
    Call,
    Description,
    Expression,
    Member,
    Parameter,
    Place,
    Statement,
    Tile,
)
from tests.support.random_kernels.kinds import KINDS

WHOLE_KINDS = ("uint", "int", "uint", "int", "int64_t", "uint64_t", "int8_t", "uint8_t",
               "int16_t", "uint16_t")  # fmt: skip
SMALL_KINDS = ("float", "float", "float", "int", "uint", "double", "float16_t", "int16_t",
               "uint8_t", "int64_t")  # fmt: skip
PLAIN_KINDS = ("float", "int", "uint")
SIZES = (1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 99, 100, 101, 127, 128, 129, 200, 255, 256, 257, 300)
LAYOUTS = ("plain", "strided", "swapped", "read-only", "reversed", "mapped", "part", "list")
EXTENTS = {2: (1, 2, 3, 5, 7, 8, 9, 16, 17, 20), 3: (1, 2, 3, 4, 5, 7)}
CALLS = 6
MOST_PUSH_BYTES = 96


class Drawer:
    """Draws one kernel, part by part."""

    def __init__(self, random: Random, name: str) -> None:
        self.random, self.name = random, name
        self.family = random.choice(list(FAMILIES))
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
        for role in roles:
            instance = self.chance(0.3)
            self.buffers.append(
                Buffer(binding, role, **self.draw_element(width), instance=instance)
            )
            binding += self.pick(1, 1, 1, 2, 4)

    def change(self, number: int, **changes: Any) -> None:
        self.buffers[number] = replace(self.buffers[number], **changes)

    def list_role(self, *roles: str) -> list[int]:
        return [number for number, each in enumerate(self.buffers) if each.role in roles]

    # --- parameters ---

    def draw_params(self, most: int = 3) -> None:
        kinds = [kind for kind in self.kinds if KINDS[kind].bits >= 32] or ["int"]
        if not self.small or not self.signed:
            kinds.append("uint")
        room = MOST_PUSH_BYTES
        for number in range(self.random.randint(0, most)):
            kind, width = self.pick(*kinds), 1 if self.plain else self.pick(1, 1, 1, 2, 3, 4)
            room -= KINDS[kind].dtype.itemsize * (4 if width == 3 else width)
            if room < 0:
                break
            parameter = Parameter(f"p{number}", kind, width)
            if self.chance(0.2):
                parameter = replace(parameter, default=self.draw_value(parameter))
            self.params.append(parameter)

    def draw_value(self, parameter: Parameter) -> Any:
        values = [self.draw_number(parameter.kind) for _ in range(parameter.width)]
        return values[0] if parameter.width == 1 else values

    def draw_number(self, kind: str) -> int:
        if self.small:
            return self.random.randint(-SMALL if self.signed else 0, SMALL)
        bits = KINDS[kind].bits
        low, high = (0, (1 << bits) - 1) if KINDS[kind].is_unsigned else (
            -(1 << bits - 1), (1 << bits - 1) - 1)  # fmt: skip
        number: int = self.pick(0, 1, 3, high, low, self.random.randint(low, high))
        return number

    def draw_constants(self) -> None:
        for spec_id in (5, 9):
            if self.chance(0.15) and not self.plain:
                kind = self.pick("int", "uint")
                value = self.pick(None, self.random.randint(0, SMALL))
                self.constants.append((spec_id, kind, self.random.randint(0, SMALL), value))

    # --- expressions ---

    def draw_expression(
        self, width: int, depth: int = 2, own: tuple[int, int] | None = None
    ) -> Expression:
        """A value of that width, within the limit of small values. `own` is a buffer and a part
        that the expression loads, too."""
        node, bound = self._draw_bounded(width, depth)
        if own is None:
            return node
        load: Expression = ["load", own[0], ["same"], own[1], None]
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
        leaves += ["spec"] if self.constants else []
        leaves += ["tile"] * 3 if self.tile is not None else []
        if self.split == "whole":
            leaves += ["index", "coordinate" if self.rank > 1 else "index", "length"]
        leaf = self.pick(*leaves)
        if leaf == "load":
            return self._draw_load(width), SMALL
        if leaf == "param":
            return self._draw_param(width)
        if leaf == "tile":
            return ["tile"], self.tile_bound
        bound = 3 if self.small else 1 << 31
        found: dict[str, Expression] = {
            "spec": ["spec", self.pick(*self.constants)[0] if leaf == "spec" else 0],
            "index": ["index", self.random.randint(2, 4) if self.small else 0],
            "coordinate": ["coordinate", self.random.randint(0, self.rank - 1), 3],
            "length": ["length", self.random.randint(0, len(self.buffers) - 1)],
            "constant": ["constant", self.random.randint(0, bound)],
        }
        return found["constant" if leaf == "length" and self.small else leaf], SMALL

    def _draw_param(self, width: int) -> tuple[Expression, int]:
        number = self.random.randint(0, len(self.params) - 1)
        if self.params[number].meaning != "value":
            return ["constant", 1], 1
        own = self.params[number].width
        component = None if own in (1, width) else self.random.randint(0, own - 1)
        return ["param", number, component], SMALL

    def _draw_load(self, width: int) -> Expression:
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
        choices = [kind for kind in self.kinds if KINDS[kind].bits >= 32 or self.chance(0.5)]
        fallback = "float" if self.small else "int"
        chosen: str = self.pick(*(choices or [fallback]))
        return chosen

    # --- statements ---

    def store_everything(self, *, partly: bool = False) -> None:
        """A store to every output and in-out argument; `partly` leaves some elements out."""
        for number in self.list_role("out", "inout"):
            buffer = self.buffers[number]
            parts = list(range(len(buffer.parts())))
            if partly and len(parts) > 1 and self.chance(0.3):
                parts = parts[: self.random.randint(1, len(parts))]
            own = buffer.role == "inout" and self.chance(0.8)
            own = own or (partly and buffer.role == "out" and self.chance(0.1))
            place = ["same"] if own else self._draw_store_place(number, partly)
            skip = None
            if partly and self.chance(0.25):
                modulus = self.random.randint(2, 5)
                skip = (modulus, self.random.randint(0, modulus - 1))
            for part in parts:
                width = buffer.parts()[part][2]
                value = self.draw_expression(width, own=(number, part) if own else None)
                self.statements.append(
                    Statement(number, place, value, self.draw_compute(), part, skip=skip)
                )

    def _draw_store_place(self, number: int, anywhere: bool) -> Place:
        if self.buffers[number].length == "double":
            return ["spread", 2, self.random.randint(0, 1)]
        if not anywhere:
            return ["same"]
        if self.rank == 2 and self.out_shape == "reversed":
            return ["transpose"]
        rotated = ["rotate", self.random.randint(1, 9)]
        place: Place = self.pick(["same"], ["same"], ["reverse"], rotated)
        return place

    # --- families ---

    def draw_elements(self) -> None:
        """Element i of the outputs from elements i of the inputs."""
        self.split = "elements"
        total = self.random.randint(1, 5)
        inouts = self.random.randint(0, min(2, total)) if self.chance(0.4) or total == 1 else 0
        inouts = max(inouts, int(total == 1))
        outputs = (
            0
            if total == inouts
            else self.random.randint(0 if inouts else 1, min(2, total - inouts))
        )
        inputs = total - inouts - outputs
        if inputs + inouts == 0:
            inputs, outputs = 1, max(1, outputs - 1)
        self.add_buffers(inputs, outputs, inouts)
        self.draw_params()
        self.draw_constants()
        self.store_everything()

    def draw_whole(self) -> None:
        """Any element of the outputs from any element of the inputs, in one dimension."""
        self.add_buffers(self.random.randint(1, 3), self.random.randint(1, 2), self.pick(0, 0, 1))
        inputs = self.list_role("in")
        for number in inputs[1:]:
            if self.chance(0.3):
                self.change(number, length="own")
        if self.chance(0.2) and len(inputs) > 1:
            self.change(inputs[0], length="own")
            self.change(inputs[1], length="n")
        for number in self.list_role("out"):
            if self.chance(0.15) and not self.buffers[number].members:
                self.change(number, length="double")
        if self.chance(0.2):
            self.params.append(Parameter("n", "uint", meaning="n"))
        self.draw_params()
        self.draw_constants()
        self.loop = self.chance(0.2)
        self.store_everything(partly=True)

    def draw_grid(self) -> None:
        """A domain of two or three dimensions."""
        self.rank = self.pick(2, 2, 3)
        self.add_buffers(self.random.randint(1, 2), self.random.randint(1, 2), self.pick(0, 0, 1))
        if self.rank == 2 and not self.list_role("inout") and self.chance(0.4):
            self.out_shape = "reversed"
        self.draw_extent()
        self.draw_params(2)
        self.store_everything(partly=True)

    def draw_extent(self) -> None:
        """How the code knows the domain's extent."""
        kind = self.pick("uint", "int")
        style = self.random.randint(0, 2)
        if style == 0:
            self.params.append(Parameter("extent", "uint", self.rank, "extent"))
        elif style == 1:
            self.params += [
                Parameter(f"e{axis}", kind, meaning=f"extent{axis}") for axis in range(self.rank)
            ]
        else:
            for axis in range(self.rank):
                extent = self.pick(*EXTENTS[self.rank])
                self.constants.append((20 + axis, "uint", 1, extent))

    def draw_generator(self) -> None:
        """Outputs without inputs."""
        self.add_buffers(0, self.random.randint(1, 3), 0)
        self.rank = self.pick(1, 1, 2)
        self.out_shape = "call"
        if self.rank > 1:
            self.draw_extent()
        elif self.chance(0.5):
            self.params.append(Parameter("n", "uint", meaning="n"))
        self.draw_params()
        self.store_everything(partly=self.rank == 1)

    def draw_outer(self) -> None:
        """A table of two inputs."""
        self.rank = self.pick(1, 2)
        self.add_buffers(2, 1, 0)
        for number in self.list_role("in"):
            self.change(number, length="own")
        self.out_shape = "outer"
        if self.rank > 1:
            self.draw_extent()
        self.draw_params(1)
        self.store_everything()

    def draw_product(self) -> None:
        """A product of two matrices."""
        self.rank, self.product, self.out_shape = 2, True, "product"
        self.kinds = [self.pick("float", "int", "uint", "double")]
        self.small = KINDS[self.kinds[0]].is_float
        self.buffers = [
            Buffer(0, "in", self.kinds[0], length="rows"),
            Buffer(1, "in", self.kinds[0], length="columns"),
            Buffer(2, "out", self.kinds[0]),
        ]
        self.draw_extent()
        self.statements = [Statement(2, ["same"], ["dot", 0, 1], self.kinds[0])]

    def draw_atomic(self) -> None:
        """Atomic operations on a few elements."""
        float_add = self.small and self.chance(0.3)
        self.kinds = sorted({*self.kinds, "uint"}) if not self.small else ["float", "uint"]
        self.add_buffers(self.random.randint(1, 2), self.random.randint(1, 2), self.pick(0, 0, 1))
        for number in self.list_role("out", "inout"):
            kind = "float" if float_add else self.pick("uint", "int", "uint", "int")
            if not self.small and self.chance(0.1):
                kind = self.pick("uint64_t", "int64_t")
            bins = self.pick(1, 4, 7, 16, 33)
            self.change(
                number, kind=kind, width=1, columns=0, members=(), length="fixed", fixed=bins,
                sized=self.chance(0.3),
            )  # fmt: skip
            operation = "add" if float_add else self.pick("add", "min", "max", "or", "xor", "and")
            if kind == "float":
                place: Place = ["bin", ["index", 0]]
            else:
                place = ["bin", self.pick(["index", 0], self._draw_bin())]
            value = self.draw_expression(1, 1)
            compute = "uint" if kind == "float" else kind
            self.statements.append(Statement(number, place, value, compute, atomic=operation))
        self.draw_params(1)
        if not float_add and len(self.statements) == 1 and self.chance(0.3):
            # Every subgroup adds its sum to the first element.
            self.subgroup = True
            self.statements = [
                replace(self.statements[0], place=["bin", ["constant", 0]], atomic="add")
            ]
        else:
            self.loop = self.chance(0.2)

    def _draw_bin(self) -> Expression:
        """A load from which the bin follows: of an integer, so that it converts exactly."""
        loads = [self._draw_load(1) for _ in range(4)]
        for load in loads:
            kind = self.buffers[load[1]].parts()[load[3]][1]
            if not kind.is_float:
                return load
        return ["index", 0]

    def draw_shared(self) -> None:
        """Shared memory and barriers."""
        self.kinds = [kind for kind in self.kinds if KINDS[kind].bits >= 32] or ["int"]
        self.small = self.small and any(KINDS[kind].is_float for kind in self.kinds)
        self.add_buffers(self.random.randint(1, 2), 1, 0)
        operation = self.pick("reverse", "sum", "scan", "sort")
        number = self.list_role("in")[0]
        output = self.list_role("out")[0]
        self.change(output, members=(), columns=0, width=1)
        if self.chance(0.3):
            self.change(output, role="inout")
        load = self._draw_load(1)
        if load[2][0] == "indirect":
            load = ["load", load[1], ["same"], load[3], load[4]]
        compute = self.pick(*self.kinds)
        self.tile = Tile(operation, load, compute)
        self.tile_bound = SMALL * (128 if operation in ("sum", "scan") else 1)
        self.draw_params(1)
        if operation == "sum" and self.buffers[output].role == "out" and self.chance(0.6):
            self.change(output, length="groups")
            self.statements.append(Statement(output, ["group"], ["tile"], compute))
        elif self.buffers[output].role == "inout":
            value: Expression = ["+", ["tile"], ["load", output, ["same"], 0, None]]
            self.statements.append(Statement(output, ["same"], value, compute))
        else:
            value = ["+", ["tile"], ["constant", 1]] if self.chance(0.5) else ["tile"]
            self.statements.append(Statement(output, ["same"], value, compute))
        assert self.buffers[number].length == "n"

    # --- the rest ---

    def finish(self) -> Description:
        """Choose what does not change the results, and the calls."""
        self._mark_access()
        self._draw_out_shape()
        described = Description(
            name=self.name,
            buffers=tuple(self.buffers),
            statements=tuple(self.statements),
            calls=(),
            split=self.split,
            small=self.small,
            signed=self.signed,
            rank=self.rank,
            params=tuple(self.params),
            constants=tuple(self.constants),
            tile=self.tile,
            out_shape=self.out_shape,
            helpers=self.chance(0.25),
            version=self.pick(450, 450, 460),
            subgroup=self.subgroup,
            loop=self.loop,
            domain=next((n for n, b in enumerate(self.buffers) if b.length == "n"), 0),
            init=self._draw_init(),
        )
        described = self._draw_guard(described)
        described = self._draw_block(described)
        described = replace(described, declare=self._draw_declaration(described))
        described = self._draw_compiler(described)
        described = replace(described, calls=tuple(self._draw_calls(described)))
        return self._mark_wgsl(described)

    def _mark_access(self) -> None:
        text = [each.value for each in self.statements] + [each.place for each in self.statements]
        text += [self.tile.value] if self.tile is not None else []
        loaded = _find_loads(text)
        stored = {each.buffer for each in self.statements}
        for number in range(len(self.buffers)):
            loads, stores = number in loaded, number in stored
            qualifiers = ["", "", "coherent", "restrict"]
            if not stores:
                qualifiers += ["readonly", "readonly", "readonly restrict"]
            elif not loads and not any(s.atomic for s in self.statements if s.buffer == number):
                qualifiers += ["writeonly", "writeonly"]
            self.change(number, loads=loads, stores=stores, qualifiers=self.pick(*qualifiers))

    def _draw_out_shape(self) -> None:
        outputs = [self.buffers[number] for number in self.list_role("out")]
        if self.out_shape or not outputs or self.split == "elements":
            return
        passed = [each for each in self.buffers if each.role != "out"]
        by_default = all(each.length == "n" or each.sized for each in outputs)
        by_default = by_default and (passed[0].length == "n" or all(o.sized for o in outputs))
        choices = ["leading", "call"]
        choices += ["flat"] if self.rank == 1 else []
        choices += ["", "", ""] if by_default else []
        self.out_shape = self.pick(*choices)

    def _draw_init(self) -> Any:
        outputs = [self.buffers[number] for number in self.list_role("out")]
        if self.split == "elements":
            return "default" if self.chance(0.8) or not outputs else self.pick(None, 0)
        if not outputs or self.chance(0.5):
            return "default"
        if any(each.members for each in outputs):
            return 0
        value = self.random.randint(0, SMALL)
        loads = any(each.loads for each in outputs)
        if self.chance(0.5) and not loads and not any(each.atomic for each in self.statements):
            return self.pick(None, value)
        return [self.random.randint(0, SMALL) for _ in outputs] if self.chance(0.4) else value

    def _draw_guard(self, kernel: Description) -> Description:
        """Choose what bounds the index, the work-group size and the grid."""
        buffers = self.buffers
        first = self.list_role("in", "inout") or [0]
        spec = self.chance(0.4)
        if self.rank > 1:
            local = {
                2: ((8, 8, 1), (4, 2, 1), (16, 1, 1), (1, 1, 1), (3, 5, 1)),
                3: ((4, 4, 4), (2, 3, 4), (1, 1, 1), (8, 2, 1)),
            }[self.rank]
            ids = (0, 1, None) if spec else (None, None, None)
            grids = ["tuple"]
            grids += ["shapes"] * 2 if _has_domain(self) else []
            in_params = any(each.meaning.startswith("extent") for each in self.params)
            grids += ["params"] * 2 if in_params else []
            return replace(
                kernel, guard="extent", local=self.pick(*local), local_ids=ids,
                grid=self.pick(*grids), count=self.chance(0.4),
            )  # fmt: skip
        sizes = [number for number, each in enumerate(buffers) if each.length == "n"]
        guards = ["length", "length"] if sizes else []
        by_count = buffers[first[0]].length == "n"
        guards += ["count"] * 4 if by_count else []
        if any(each.meaning == "n" for each in self.params):
            guards = ["n"] * 6 + guards
        elif self.split == "whole" and not guards:
            self.params.append(Parameter("n", "uint", meaning="n"))
            kernel, guards = replace(kernel, params=tuple(self.params)), ["n"]
        plain = all(
            each.place == ["same"] and not each.atomic and buffers[each.buffer].length == "n"
            for each in self.statements
        )
        if plain and self.tile is None and not self.loop:
            guards += ["none"] * 2
        guard = self.pick(*guards)
        guarded_by = self.pick(*sizes) if sizes else 0
        count = guard == "count" or self.chance(0.4)
        kernel = replace(kernel, guard=guard, guarded_by=guarded_by, count=count)
        if self.tile is not None:
            local_x = self.pick(4, 32, 64, 128) if self.tile.operation != "sort" else 32
            style = self.pick("", "", "shapes")
            return replace(
                kernel, local=(local_x, 1, 1), local_ids=(0 if spec else None, None, None),
                grid=style,
            )  # fmt: skip
        grids = [""] * 6
        if self.split == "whole":
            grids += ["tuple"] + (["shapes"] * 2 if _has_domain(self) else [])
            grids += ["params"] * 2 if any(each.meaning == "n" for each in self.params) else []
        grid = self.pick(*grids)
        local_x = self.pick(1, 3, 8, 32, 64, 100, 128)
        if not grid and self.chance(0.4):
            return replace(kernel, local=(0, 1, 1), local_ids=(0, None, None))
        style = self.random.randint(0, 2) if not self.loop else 0
        return replace(
            kernel, local=(local_x, 1, 1), local_ids=(0 if spec else None, None, None), grid=grid,
            index_style=style,
        )  # fmt: skip

    def _draw_block(self, kernel: Description) -> Description:
        """Choose where the parameters are, and whether the count must be declared."""
        block, binding = "push", 0
        if kernel.params and self.chance(0.3):
            block = "uniform"
            taken = {buffer.binding for buffer in self.buffers}
            binding = self.pick(*(each for each in range(12) if each not in taken))
        members = [] if block == "uniform" else list(kernel.params)
        looks_like_count = bool(members) and (members[0].kind, members[0].width) in (
            ("uint", 1),
            ("int", 1),
        )
        say = (not kernel.count and looks_like_count) or (kernel.count and self.chance(0.1))
        return replace(kernel, block=block, uniform_binding=binding, say_count=say)

    def _draw_declaration(self, kernel: Description) -> str:
        if any(each.access_in_code != each.role for each in kernel.buffers):
            return "access"
        roles = [each.role for each in kernel.buffers]
        in_order = "inout" not in roles and roles == sorted(roles)
        chosen: str = self.pick("code", "code", "access", "counts" if in_order else "code")
        return chosen

    def _draw_compiler(self, kernel: Description) -> Description:
        kinds = {kind.name for each in kernel.buffers for _, kind, _ in each.parts()}
        plain = kinds <= set(PLAIN_KINDS) and not kernel.subgroup
        target = self.pick("vulkan1.2", "vulkan1.2", "vulkan1.1", "vulkan1.0", "vulkan1.3")
        # Without names, default parameters and structs' members cannot be named either.
        used = all(each.loads or each.stores for each in kernel.buffers)
        used = used and all(each.default is None for each in kernel.params)
        return replace(
            kernel,
            target=target if plain else "vulkan1.2",
            optimize=used and self.chance(0.2),
        )

    def _draw_calls(self, kernel: Description) -> list[Call]:
        calls: list[Call] = []
        sizes: Any = None
        for number in range(CALLS):
            if sizes is None or self.chance(0.5):  # otherwise the same sizes with other values
                sizes = self._draw_sizes(kernel, number)
            calls.append(self._draw_call(kernel, *sizes))
        return calls

    def _draw_call(self, kernel: Description, extent: Any, axes: Any, own: tuple[int, ...]) -> Call:
        layout = self.pick(*LAYOUTS, "plain", "plain")
        has_inout = any(each.role == "inout" for each in kernel.buffers)
        out = self.pick("", "", "given", "mapped", "part", "same" if has_inout else "given")
        flat = len(axes) == 1 and kernel.out_shape in ("", "leading")
        if out == "given" and flat and self.chance(0.3):
            out = "strided"
        if out == "same":
            layout = self.pick("plain", "mapped", "part")
        values = tuple(
            None
            if each.meaning != "value" or (each.default is not None and self.chance(0.5))
            else self.draw_value(each)
            for each in kernel.params
        )
        # A parameter with a default can be left out by name only.
        by_position = self.chance(0.3) and not kernel.optimize
        seed, typed = self.random.randint(1, 1 << 30), self.chance(0.3)
        return Call(extent, axes, own, seed, values, layout, out, by_position, typed)

    def _draw_sizes(self, kernel: Description, number: int) -> tuple[Any, Any, Any]:
        """The extent of the domain, the axes of arrays of that size, and other lengths."""
        extent, axes = self._draw_domain(kernel, number)
        own = tuple(self.random.randint(1, 40) for _ in kernel.buffers)
        if kernel.out_shape == "outer":
            lengths = list(self.list_role("in"))
            axes = tuple(self.pick(1, 2, 5, 8, 13, 17) for _ in range(2))
            if self.rank > 1 and kernel.constants:
                axes = extent[::-1]
            own = tuple(axes[lengths.index(n)] if n in lengths else 0 for n in range(3))
            extent = axes[::-1] if self.rank > 1 else (math.prod(axes),)
        return extent, axes, own

    def _draw_domain(self, kernel: Description, number: int) -> tuple[Any, Any]:
        if kernel.rank > 1:
            fixed = {each[0] - 20: each[3] for each in kernel.constants if each[0] >= 20}
            extent = tuple(
                fixed.get(axis) or self.pick(*EXTENTS[kernel.rank]) for axis in range(kernel.rank)
            )
            return extent, extent[::-1]
        if kernel.split == "elements" and number == 0 and self.chance(0.4):
            return (0,), self.pick((0,), (3, 0), (0, 2))
        size = self.pick(*SIZES)
        axes: tuple[int, ...] = (size,)
        divisors = [each for each in range(1, size + 1) if size % each == 0]
        if self.chance(0.3):
            divisor = self.pick(*divisors)
            axes = (divisor, size // divisor)
            if self.chance(0.3):
                axes = (1, *axes)
        return (size,), axes

    def _mark_wgsl(self, kernel: Description) -> Description:
        """Mark the kernels that have a WGSL text, too."""
        kinds = {kind.name for each in kernel.buffers for _, kind, _ in each.parts()}
        kinds |= {each.compute for each in kernel.statements}
        kinds |= {each.kind for each in kernel.params}
        able = (
            kinds <= set(PLAIN_KINDS)
            and kernel.rank == 1
            and kernel.tile is None
            and not kernel.grid
            and not kernel.loop
            and not kernel.constants
            and kernel.guard in ("count", "length", "n")
            and all(not each.members and not each.columns for each in kernel.buffers)
            and all(each.packing == "std430" for each in kernel.buffers)
            and all(each.width == 1 for each in kernel.params)
            and not any(each.atomic for each in kernel.statements)
        )
        return replace(kernel, wgsl=able)


def _has_domain(drawer: Drawer) -> bool:
    return drawer.out_shape in ("outer", "product") or any(
        each.role != "out" and each.length == "n" for each in drawer.buffers
    )


def _find_loads(node: Any) -> set[int]:
    """The buffers that expressions and places load from."""
    if not isinstance(node, list):
        return set()
    found = {number for each in node for number in _find_loads(each)}
    if node and node[0] in ("load", "indirect"):
        found.add(node[1])
    elif node and node[0] == "dot":
        found |= set(node[1:])
    return found


FAMILIES = {
    "elements": Drawer.draw_elements,
    "elements ": Drawer.draw_elements,
    "whole": Drawer.draw_whole,
    "whole ": Drawer.draw_whole,
    "grid": Drawer.draw_grid,
    "generator": Drawer.draw_generator,
    "outer": Drawer.draw_outer,
    "product": Drawer.draw_product,
    "atomic": Drawer.draw_atomic,
    "shared": Drawer.draw_shared,
}


def draw_kernel(random: Random, name: str) -> Description:
    """Draw a kernel and its calls."""
    drawer = Drawer(random, name)
    FAMILIES[drawer.family](drawer)
    return drawer.finish()
