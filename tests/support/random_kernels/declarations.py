"""Choices that do not change what a kernel computes: bounds, work-groups, the parameters' blocks
and names, the declaration, the compiler's options. Some of them have the kernel refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.support.random_kernels.calls import SMALL
from tests.support.random_kernels.description import Description, Parameter
from tests.support.random_kernels.draw import Drawer
from tests.support.random_kernels.families import FAMILIES
from tests.support.random_kernels.kinds import PLAIN_KINDS
from tests.support.random_kernels.parameters import (
    COUNT_NAMES,
    find_fault_in_count,
    find_filled,
    has_same_names,
)
from tests.support.random_kernels.work_groups import NAMED, find_built_ins, needs_size

NO_IDS = (None, None, None)


def draw_kernel(random: Random, name: str) -> Description:
    """Draw a kernel."""
    drawer = Drawer(random, name, random.choice(list(FAMILIES)))
    FAMILIES[drawer.family](drawer)
    return _finish(drawer)


def _finish(drawer: Drawer) -> Description:
    _mark_access(drawer)
    _draw_out_shape(drawer)
    described = Description(
        name=drawer.name,
        buffers=tuple(drawer.buffers),
        statements=tuple(drawer.statements),
        split=drawer.split,
        small=drawer.small,
        signed=drawer.signed,
        rank=drawer.rank,
        params=tuple(drawer.params),
        constants=tuple(drawer.constants),
        tile=drawer.tile,
        out_shape=drawer.out_shape,
        helpers=drawer.chance(0.25),
        version=drawer.pick(450, 450, 460),
        subgroup=drawer.subgroup,
        loop=drawer.loop,
        domain=next((n for n, b in enumerate(drawer.buffers) if b.length == "n"), 0),
        init=_draw_init(drawer),
    )
    described = _draw_guard(drawer, described)
    described = _draw_work_group(drawer, described)
    described = _draw_blocks(drawer, described)
    described = replace(described, declare=_draw_declaration(drawer, described))
    described = _draw_compiler(drawer, described)
    described = _draw_count(drawer, described)
    described = replace(described, in_place=_may_be_in_place(described) and drawer.chance(0.3))
    return replace(described, wgsl=_has_wgsl(described))


# --- buffers ---


def _mark_access(drawer: Drawer) -> None:
    text: list[Any] = [[each.value, each.place, each.when] for each in drawer.statements]
    text += [drawer.tile.value] if drawer.tile is not None else []
    loaded = _find_loads(text)
    stored = {each.buffer for each in drawer.statements}
    for number in range(len(drawer.buffers)):
        loads, stores = number in loaded, number in stored
        qualifiers = ["", "", "coherent", "restrict"]
        if not stores:
            qualifiers += ["readonly", "readonly", "readonly restrict"]
        elif not loads and not any(s.atomic for s in drawer.statements if s.buffer == number):
            qualifiers += ["writeonly", "writeonly"]
        drawer.change(number, loads=loads, stores=stores, qualifiers=drawer.pick(*qualifiers))


def _find_loads(node: Any) -> set[int]:
    """The buffers that expressions and places load from."""
    if not isinstance(node, list | tuple):
        return set()
    found = {number for each in node for number in _find_loads(each)}
    if node and node[0] in ("load", "indirect"):
        found.add(node[1])
    elif node and node[0] == "dot":
        found |= set(node[1:])
    return found


def _draw_out_shape(drawer: Drawer) -> None:
    outputs = [drawer.buffers[number] for number in drawer.list_role("out")]
    if drawer.out_shape or not outputs or drawer.split == "elements":
        return
    passed = [each for each in drawer.buffers if each.role != "out"]
    by_default = all(each.length == "n" or each.sized for each in outputs)
    by_default = by_default and (passed[0].length == "n" or all(o.sized for o in outputs))
    choices = ["leading", "call"]
    choices += ["flat"] if drawer.rank == 1 else []
    choices += ["", "", ""] if by_default else []
    drawer.out_shape = drawer.pick(*choices)


def _draw_init(drawer: Drawer) -> Any:
    outputs = [drawer.buffers[number] for number in drawer.list_role("out")]
    if not outputs or drawer.chance(0.5):
        return "default"
    value = drawer.random.randint(0, SMALL)
    loads = any(each.loads for each in outputs)
    if drawer.chance(0.4) and not loads and not any(each.atomic for each in drawer.statements):
        return None
    if any(each.members for each in outputs):
        return 0
    return [drawer.random.randint(0, SMALL) for _ in outputs] if drawer.chance(0.4) else value


# --- the bound of the index, and the grid ---


def _draw_guard(drawer: Drawer, kernel: Description) -> Description:
    """Choose what bounds the index, and the grid."""
    if drawer.rank > 1:
        grids = ["tuple"]
        grids += ["shapes"] * 2 if _has_domain(drawer) else []
        in_params = any(each.meaning.startswith("extent") for each in drawer.params)
        grids += ["params"] * 2 if in_params else []
        return replace(kernel, guard="extent", grid=drawer.pick(*grids))
    buffers, meanings = drawer.buffers, {each.meaning for each in drawer.params}
    first = (drawer.list_role("in", "inout") or [0])[0]
    sizes = [number for number, each in enumerate(buffers) if each.length == "n"]
    guards = ["length", "length"] if sizes else []
    guards += ["count"] * 4 if "count" in meanings and buffers[first].length == "n" else []
    if "n" in meanings:
        guards = ["n"] * 6 + guards
    elif drawer.split == "whole" and not guards:
        drawer.params.append(Parameter("n", "uint", meaning="n"))
        kernel, guards = replace(kernel, params=tuple(drawer.params)), ["n"]
        meanings.add("n")
    plain = all(
        each.place == ["same"] and not each.atomic and buffers[each.buffer].length == "n"
        for each in drawer.statements
    )
    if plain and drawer.tile is None and not drawer.loop:
        guards += ["none"] * 2
    guard = drawer.pick(*guards)
    grids = [""] * 6
    if drawer.tile is not None:
        grids = ["", "", "shapes"]
    elif drawer.split == "whole":
        grids += ["tuple"] + (["shapes"] * 2 if _has_domain(drawer) else [])
        grids += ["params"] * 2 if "n" in meanings else []
    guarded_by = drawer.pick(*sizes) if sizes else 0
    return replace(kernel, guard=guard, guarded_by=guarded_by, grid=drawer.pick(*grids))


def _has_domain(drawer: Drawer) -> bool:
    return drawer.out_shape in ("outer", "product") or any(
        each.role != "out" and each.length == "n" for each in drawer.buffers
    )


# --- the work-group size ---


def _draw_work_group(drawer: Drawer, kernel: Description) -> Description:
    """Choose the size of work-groups and who says it."""
    if drawer.rank > 1:
        local = {
            2: ((8, 8, 1), (4, 2, 1), (16, 1, 1), (1, 1, 1), (3, 5, 1)),
            3: ((4, 4, 4), (2, 3, 4), (1, 1, 1), (8, 2, 1)),
        }[drawer.rank]
        ids = drawer.pick(NO_IDS, NO_IDS, (0, 1, None))
        size_by = "code" if ids == NO_IDS else "constants"
        return replace(kernel, local=drawer.pick(*local), local_ids=ids, size_by=size_by)
    x = drawer.pick(1, 3, 8, 32, 64, 100, 128)
    if drawer.tile is not None:
        x = drawer.pick(4, 32, 64, 128) if drawer.tile.operation != "sort" else 32
    style = 0 if drawer.loop or drawer.tile is not None else drawer.pick(0, 0, 0, 1, 2)
    kernel = replace(kernel, local=(x, 1, 1), index_style=style)
    named = drawer.names_size or bool(find_built_ins(kernel) & set(NAMED))
    by = ["constants", "work_group"] + (["default", "default"] if named else ["code", "code"])
    if not named and not kernel.grid and all(each.length != "groups" for each in kernel.buffers):
        by += ["nobody"] if needs_size(kernel) else ["nobody"] * 3
    size_by = drawer.pick(*by)
    if size_by == "code":
        return kernel
    kernel = replace(kernel, size_by=size_by, local_ids=(0, None, None))
    if named:
        default = x if size_by == "default" else drawer.pick(1, 2, 16, 64)
        kernel = replace(kernel, size_default=default)
    if size_by == "nobody" or (size_by == "default" and not needs_size(kernel)):
        kernel = replace(kernel, local=(0, 1, 1))
    return kernel


# --- parameters ---


def _draw_blocks(drawer: Drawer, kernel: Description) -> Description:
    """Choose names for the parameters, some of them misleading, and for their blocks."""
    params, taken = list(kernel.params), {each.name for each in kernel.params}
    pushed = [number for number, each in enumerate(params) if each.block == "push"]
    uniform = [number for number, each in enumerate(params) if each.block == "uniform"]
    for number, each in enumerate(params):
        name = drawer.pick(*COUNT_NAMES, "n_elements")
        if (
            each.meaning == "value"
            and name not in taken
            and number not in pushed[:1]
            and drawer.chance(0.1)
        ):
            params[number] = replace(each, name=name)
            taken.add(name)
    twins = [
        (one, other)
        for one in pushed
        for other in uniform
        if params[one].meaning == params[other].meaning == "value"
        and params[one].length == params[other].length
        and (params[one].kind, params[one].width) == (params[other].kind, params[other].width)
    ]
    if twins and drawer.chance(0.4):
        one, other = drawer.pick(*twins)
        params[one] = replace(params[one], default=None)
        params[other] = replace(params[other], name=params[one].name, default=None)
    bindings = {buffer.binding for buffer in kernel.buffers}
    kernel = replace(
        kernel,
        params=tuple(params),
        uniform_binding=drawer.pick(*(each for each in range(20) if each not in bindings)),
    )
    return replace(kernel, instances=has_same_names(kernel) or drawer.chance(0.15))


def _draw_count(drawer: Drawer, kernel: Description) -> Description:
    """Choose what `count=` says: something that fits the code, and rarely something that does
    not."""
    pushed = [each for each in kernel.params if each.block == "push"]
    names = [each.name for each in pushed if each.meaning == "count"]
    choices: list[Any] = ["unsaid", "unsaid", False]
    if pushed and pushed[0].meaning == "count":
        choices += [True, True, "unsaid"]
    choices += names * 2
    if drawer.chance(0.04):
        choices = ["no_such_member", *([True] if not pushed else [])]
    elif kernel.split == "elements" and kernel.guard == "count":
        # A number that the call gives would not be that of a chunk, or of gathered calls.
        filling = [each for each in choices if _is_filled(replace(kernel, count=each))]
        kernel = kernel if filling else replace(kernel, optimize=False)
        choices = filling or names
    chosen = replace(kernel, count=drawer.pick(*choices))
    filled = find_filled(chosen)
    if filled is not None and chosen.params[filled].meaning != "count":
        # A value of the call would be replaced.
        return kernel if find_filled(kernel) is None else replace(kernel, count=False)
    if kernel.optimize and chosen.count in names:  # without names
        return replace(kernel, count="unsaid")
    return chosen


def _is_filled(kernel: Description) -> bool:
    """Whether the number of elements is set without a value of the call."""
    filled = find_filled(kernel)
    return filled is not None and not find_fault_in_count(kernel)


# --- the declaration and the compiler ---


def _draw_declaration(drawer: Drawer, kernel: Description) -> str:
    if any(each.access_in_code != each.role for each in kernel.buffers):
        return "list"
    chosen: str = drawer.pick("code", "code", "list", "text")
    return chosen


def _draw_compiler(drawer: Drawer, kernel: Description) -> Description:
    kinds = {kind.name for each in kernel.buffers for _, kind, _ in each.parts()}
    subgroup = kernel.subgroup or "subgroups" in find_built_ins(kernel)
    plain = kinds <= set(PLAIN_KINDS) and not subgroup
    target = drawer.pick("vulkan1.2", "vulkan1.2", "vulkan1.1", "vulkan1.0", "vulkan1.3")
    # Without names, default parameters and structs' members cannot be named either.
    used = all(each.loads or each.stores for each in kernel.buffers)
    used = used and all(each.default is None for each in kernel.params)
    return replace(
        kernel,
        target=target if plain else "vulkan1.2",
        optimize=used and drawer.chance(0.2),
    )


def _may_be_in_place(kernel: Description) -> bool:
    """Whether each invocation loads all that it needs of its element before it stores there, and
    every element is stored."""
    [output, *others] = [number for number, each in enumerate(kernel.buffers) if each.stores]
    [statement, *more] = kernel.statements
    buffer = kernel.buffers[output]
    return (
        not others
        and not more
        and buffer.role == "out"
        and not buffer.loads
        and not buffer.has_padding
        and buffer.length == "n"
        and statement.place == ["same"]
        and statement.when is None
        and statement.skip is None
        and not statement.atomic
        and kernel.tile is None
        and kernel.rank == 1
        and _list_load_places(statement.value) <= {"same"}
    )


def _list_load_places(node: Any) -> set[str]:
    if not isinstance(node, list):
        return set()
    found = {name for each in node for name in _list_load_places(each)}
    return found | ({node[2][0]} if node and node[0] == "load" else set())


def _has_wgsl(kernel: Description) -> bool:
    """Whether the kernel has a WGSL text, too."""
    kinds = {kind.name for each in kernel.buffers for _, kind, _ in each.parts()}
    kinds |= {each.compute for each in kernel.statements}
    kinds |= {each.kind for each in kernel.params}
    filled = find_filled(kernel)
    return (
        kinds <= set(PLAIN_KINDS)
        and kernel.rank == 1
        and kernel.tile is None
        and not kernel.grid
        and not kernel.loop
        and not kernel.constants
        and not find_built_ins(kernel)
        and not find_fault_in_count(kernel)
        and kernel.guard in ("count", "length", "n")
        and all(not each.members and not each.columns for each in kernel.buffers)
        and all(each.packing == "std430" for each in kernel.buffers)
        and all(each.width == 1 and each.length is None for each in kernel.params)
        and not any(each.atomic for each in kernel.statements)
        and not has_same_names(kernel)
        and filled in (None, next((n for n, p in enumerate(kernel.params) if p.block == "push"), 0))
    )
