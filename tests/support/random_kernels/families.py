"""The families of random kernels: what a kernel's invocations load, compute and store."""

from __future__ import annotations

from dataclasses import replace

from tests.support.random_kernels.calls import SMALL
from tests.support.random_kernels.description import (
    Buffer,
    Expression,
    Member,
    Parameter,
    Place,
    Statement,
    Tile,
)
from tests.support.random_kernels.draw import Drawer, avoid_wide_comparisons
from tests.support.random_kernels.kinds import KINDS
from tests.support.random_kernels.sizes import EXTENTS


def draw_elements(drawer: Drawer) -> None:
    """Element i of the outputs from elements i of the inputs."""
    drawer.split = "elements"
    total = drawer.random.randint(1, 5)
    inouts = drawer.random.randint(0, min(2, total)) if drawer.chance(0.4) or total == 1 else 0
    inouts = max(inouts, int(total == 1))
    outputs = (
        0 if total == inouts else drawer.random.randint(0 if inouts else 1, min(2, total - inouts))
    )
    inputs = total - inouts - outputs
    if inputs + inouts == 0:
        inputs, outputs = 1, max(1, outputs - 1)
    drawer.add_buffers(inputs, outputs, inouts)
    drawer.start_params()
    drawer.draw_params()
    drawer.draw_constants()
    drawer.store_everything()


def draw_whole(drawer: Drawer) -> None:
    """Any element of the outputs from any element of the inputs, in one dimension."""
    drawer.add_buffers(
        drawer.random.randint(1, 3), drawer.random.randint(1, 2), drawer.pick(0, 0, 1)
    )
    inputs = drawer.list_role("in")
    for number in inputs[1:]:
        if drawer.chance(0.3):
            drawer.change(number, length="own")
    if drawer.chance(0.2) and len(inputs) > 1:
        drawer.change(inputs[0], length="own")
        drawer.change(inputs[1], length="n")
    for number in drawer.list_role("out"):
        if drawer.chance(0.15) and not drawer.buffers[number].members:
            drawer.change(number, length="double")
    drawer.start_params()
    if drawer.chance(0.2):
        drawer.params.append(Parameter("n", "uint", meaning="n"))
    drawer.draw_params()
    drawer.draw_constants()
    drawer.loop = drawer.chance(0.2)
    drawer.store_everything(partly=True)


def draw_grid(drawer: Drawer) -> None:
    """A domain of two or three dimensions."""
    drawer.rank = drawer.pick(2, 2, 3)
    drawer.add_buffers(
        drawer.random.randint(1, 2), drawer.random.randint(1, 2), drawer.pick(0, 0, 1)
    )
    if drawer.rank == 2 and not drawer.list_role("inout") and drawer.chance(0.4):
        drawer.out_shape = "reversed"
    drawer.start_params()
    draw_extent(drawer)
    drawer.draw_params(2)
    drawer.store_everything(partly=True)


def draw_extent(drawer: Drawer) -> None:
    """How the code knows the domain's extent."""
    kind = drawer.pick("uint", "int")
    style = drawer.random.randint(0, 2)
    if style == 0:
        drawer.params.append(Parameter("extent", "uint", drawer.rank, "extent"))
    elif style == 1:
        drawer.params += [
            Parameter(f"e{axis}", kind, meaning=f"extent{axis}") for axis in range(drawer.rank)
        ]
    else:
        for axis in range(drawer.rank):
            extent = drawer.pick(*EXTENTS[drawer.rank])
            drawer.constants.append((20 + axis, "uint", 1, extent))


def draw_generator(drawer: Drawer) -> None:
    """Outputs without inputs."""
    drawer.add_buffers(0, drawer.random.randint(1, 3), 0)
    drawer.rank = drawer.pick(1, 1, 2)
    drawer.out_shape = "call"
    drawer.start_params()
    if drawer.rank > 1:
        draw_extent(drawer)
    elif drawer.chance(0.5):
        drawer.params.append(Parameter("n", "uint", meaning="n"))
    drawer.draw_params()
    drawer.store_everything(partly=drawer.rank == 1)


def draw_outer(drawer: Drawer) -> None:
    """A table of two inputs."""
    drawer.rank = drawer.pick(1, 2)
    drawer.add_buffers(2, 1, 0)
    for number in drawer.list_role("in"):
        drawer.change(number, length="own")
    drawer.out_shape = "outer"
    drawer.start_params()
    if drawer.rank > 1:
        draw_extent(drawer)
    drawer.draw_params(1)
    drawer.store_everything()


def draw_product(drawer: Drawer) -> None:
    """A product of two matrices."""
    drawer.rank, drawer.product, drawer.out_shape = 2, True, "product"
    drawer.kinds = [drawer.pick("float", "int", "uint", "double")]
    drawer.small = KINDS[drawer.kinds[0]].is_float
    drawer.buffers = [
        Buffer(0, "in", drawer.kinds[0], length="rows"),
        Buffer(1, "in", drawer.kinds[0], length="columns"),
        Buffer(2, "out", drawer.kinds[0]),
    ]
    drawer.start_params()
    draw_extent(drawer)
    drawer.statements = [Statement(2, ["same"], ["dot", 0, 1], drawer.kinds[0])]


def draw_atomic(drawer: Drawer) -> None:
    """Atomic operations on a few elements."""
    float_add = drawer.small and drawer.chance(0.3)
    drawer.kinds = sorted({*drawer.kinds, "uint"}) if not drawer.small else ["float", "uint"]
    drawer.add_buffers(
        drawer.random.randint(1, 2), drawer.random.randint(1, 2), drawer.pick(0, 0, 1)
    )
    drawer.start_params()
    drawer.draw_params(1)
    for number in drawer.list_role("out", "inout"):
        kind = "float" if float_add else drawer.pick("uint", "int", "uint", "int")
        if not drawer.small and drawer.chance(0.1):
            kind = drawer.pick("uint64_t", "int64_t")
        bins = drawer.pick(1, 4, 7, 16, 33)
        drawer.change(
            number, kind=kind, width=1, columns=0, members=(), length="fixed", fixed=bins,
            sized=drawer.chance(0.3),
        )  # fmt: skip
        if drawer.buffers[number].sized and drawer.chance(0.5):
            length = drawer.draw_length()
            drawer.change(number, fixed=length.value, spelled=length)
        operation = "add" if float_add else drawer.pick("add", "min", "max", "or", "xor", "and")
        if kind == "float":
            place: Place = ["bin", ["index", 0]]
        else:
            place = ["bin", drawer.pick(["index", 0], _draw_bin(drawer))]
        value = drawer.draw_expression(1, 1)
        compute = avoid_wide_comparisons("uint" if kind == "float" else kind, [value])
        drawer.statements.append(Statement(number, place, value, compute, atomic=operation))
    if not float_add and len(drawer.statements) == 1 and drawer.chance(0.3):
        # Every subgroup adds its sum to the first element.
        drawer.subgroup = True
        drawer.statements = [
            replace(drawer.statements[0], place=["bin", ["constant", 0]], atomic="add")
        ]
    else:
        drawer.loop = drawer.chance(0.2)


def _draw_bin(drawer: Drawer) -> Expression:
    """A load from which the bin follows: of an integer, so that it converts exactly."""
    loads = [drawer.draw_load(1) for _ in range(4)]
    for load in loads:
        kind = drawer.buffers[load[1]].parts()[load[3]][1]
        if not kind.is_float:
            return load
    return ["index", 0]


def draw_shared(drawer: Drawer) -> None:
    """Shared memory and barriers."""
    drawer.kinds = [kind for kind in drawer.kinds if KINDS[kind].bits >= 32] or ["int"]
    drawer.small = drawer.small and any(KINDS[kind].is_float for kind in drawer.kinds)
    drawer.add_buffers(drawer.random.randint(1, 2), 1, 0)
    operation = drawer.pick("reverse", "sum", "scan", "sort")
    number = drawer.list_role("in")[0]
    output = drawer.list_role("out")[0]
    drawer.change(output, members=(), columns=0, width=1)
    if drawer.chance(0.3):
        drawer.change(output, role="inout")
    load = drawer.draw_load(1)
    if load[2][0] == "indirect":
        load = ["load", load[1], ["same"], load[3], load[4]]
    compute = drawer.pick(*drawer.kinds)
    drawer.tile = Tile(operation, load, compute)
    drawer.tile_bound = SMALL * (128 if operation in ("sum", "scan") else 1)
    drawer.start_params()
    drawer.draw_params(1)
    if operation == "sum" and drawer.buffers[output].role == "out" and drawer.chance(0.6):
        drawer.change(output, length="groups")
        drawer.statements.append(Statement(output, ["group"], ["tile"], compute))
    elif drawer.buffers[output].role == "inout":
        value: Expression = ["+", ["tile"], ["load", output, ["same"], 0, None]]
        drawer.statements.append(Statement(output, ["same"], value, compute))
    else:
        value = ["+", ["tile"], ["constant", 1]] if drawer.chance(0.5) else ["tile"]
        drawer.statements.append(Statement(output, ["same"], value, compute))
    assert drawer.buffers[number].length == "n"


def draw_lengths(drawer: Drawer) -> None:
    """Arrays whose lengths specialization constants determine: alone, or in blocks with others."""
    drawer.plain = False
    drawer.add_buffers(drawer.random.randint(1, 2), 1, 0)
    binding = drawer.buffers[-1].binding
    for _ in range(drawer.random.randint(1, 3)):
        binding += drawer.pick(1, 1, 2)
        role = drawer.pick("in", "out", "out", "inout")
        if drawer.chance(0.6):
            members = _draw_members(drawer)
            drawer.buffers.append(
                Buffer(binding, role, drawer.kinds[0], members=members, block=True,
                       length="fixed", fixed=1, sized=True)
            )  # fmt: skip
            continue
        length = drawer.draw_length()
        drawer.buffers.append(
            Buffer(binding, role, **drawer.draw_element(drawer.pick(1, 2, 3, 4)),
                   length="fixed", fixed=length.value, sized=True, spelled=length)
        )  # fmt: skip
    drawer.start_params()
    drawer.draw_params()
    drawer.store_everything()


def _draw_members(drawer: Drawer) -> tuple[Member, ...]:
    """The members of a block: perhaps some before the last array, and some behind it."""
    members = []
    for at in range(drawer.random.randint(1, 3)):  # one member alone is no struct for NumPy
        length = drawer.draw_length() if drawer.chance(0.15) else None
        kind, width = drawer.pick(*drawer.kinds), drawer.pick(1, 1, 2, 3, 4)
        members.append(Member(f"m{at}", kind, width, length))
    kind, width = drawer.pick(*drawer.kinds), drawer.pick(1, 1, 2, 3, 4)
    members.append(Member(f"m{len(members)}", kind, width, drawer.draw_length()))
    return tuple(members)


FAMILIES = {
    "elements": draw_elements,
    "elements ": draw_elements,
    "whole": draw_whole,
    "whole ": draw_whole,
    "grid": draw_grid,
    "generator": draw_generator,
    "outer": draw_outer,
    "product": draw_product,
    "atomic": draw_atomic,
    "shared": draw_shared,
    "lengths": draw_lengths,
}
