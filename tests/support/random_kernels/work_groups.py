"""The work-group size: who says it, what the code reads of it, and when a kernel is refused.

No result depends on what the plan chooses. Code that reads its size, or its place in a work-group,
gets the size of `work_group=` or `constants=`, else the default of the constant that the code
names. If nobody says a size, such a kernel is refused. `split="elements"` is the promise that
results do not depend on the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.random_kernels.description import Description

Array = npt.NDArray[Any]
BUILT_INS: dict[str, tuple[str, Callable[[Array, int, int], Array]]] = {
    "constant": ("S0", lambda i, size, groups: np.full_like(i, size)),
    "size": ("gl_WorkGroupSize.x", lambda i, size, groups: np.full_like(i, size)),
    "groups": ("gl_NumWorkGroups.x", lambda i, size, groups: np.full_like(i, groups)),
    "group": ("gl_WorkGroupID.x", lambda i, size, groups: i // size % groups),
    "lane": ("gl_LocalInvocationID.x", lambda i, size, groups: i % size),
    "lane index": ("gl_LocalInvocationIndex", lambda i, size, groups: i % size),
    "block": ("(i / S0)", lambda i, size, groups: i // size),
    "subgroups": ("min(gl_NumSubgroups, 1u)", lambda i, size, groups: np.ones_like(i)),
}
"""What code reads: in GLSL, and its value by index, work-group size and number of work-groups."""
NAMED = ("constant", "block")
"""Those that need the name of the size's constant."""


def find_built_ins(kernel: Description) -> set[str]:
    """The built-in values that the kernel's expressions read."""
    found: list[Any] = [[each.value, each.place, each.when] for each in kernel.statements]
    found += [kernel.tile.value] if kernel.tile is not None else []
    return set(_iterate_built_ins(found))


def _iterate_built_ins(node: Any) -> Iterator[str]:
    if isinstance(node, list | tuple):
        if node and node[0] == "built-in":
            yield node[1]
        for each in node:
            yield from _iterate_built_ins(each)


def depends_on_size(kernel: Description) -> bool:
    """Whether the code reads the work-group size or a place in a work-group, or has a grid."""
    return bool(kernel.grid) or _reads_group(kernel)


def _reads_group(kernel: Description) -> bool:
    return (
        kernel.loop
        or kernel.index_style != 0
        or kernel.tile is not None
        or any(each.place == ["group"] for each in kernel.statements)
        or bool(find_built_ins(kernel))
    )


def needs_size(kernel: Description) -> bool:
    """Whether somebody must say the work-group size."""
    return kernel.split == "whole" and depends_on_size(kernel)


def is_size_missing(kernel: Description) -> bool:
    """Whether a kernel is refused because nobody says its work-group size. A default of 1 says
    nothing: it is what glslang gives to a constant without a name. `glslc -O` removes a named one
    that the code does not use, except in code with atomic operations on floats, which it does not
    know. A kernel that only has a grid has the size that the code gives."""
    adds_floats = any(
        each.atomic and kernel.buffers[each.buffer].scalar.is_float for each in kernel.statements
    )
    is_used = bool(find_built_ins(kernel) & set(NAMED)) or kernel.tile is not None or adds_floats
    is_said = kernel.size_by != "nobody"
    if kernel.size_by == "default":
        is_said = kernel.size_default > 1 and (is_used or not kernel.optimize)
    return not is_said and kernel.split == "whole" and _reads_group(kernel)
