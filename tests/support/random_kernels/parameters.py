"""Parameters: the members of push constants and uniform buffer, and what calls give for them.

The pushed count is filled where the first push member is called `count` or `num_elements`, or where
`count=` says so: a name, True (the first member) or False (none). All other members take values:
by name, or by position in the order of the push constants and then of the uniform buffer. A value
that is given by name wins over the fill. A member without a value is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.random_kernels.description import Call, Description, Parameter
from tests.support.random_kernels.kinds import KINDS
from tests.support.random_kernels.sizes import Shape, count_first

COUNT_NAMES = ("count", "num_elements")
OTHER_NAMES = ("n_items", "size", "total", "Count", "count_", "num_element")
"""Names of members that are not filled unless `count=` says so."""


# --- the declaration ---


def list_members(kernel: Description) -> list[int]:
    """The numbers of the parameters in the order of their positions."""
    numbers = range(len(kernel.params))
    return sorted(numbers, key=lambda number: kernel.params[number].block == "uniform")


def find_filled(kernel: Description) -> int | None:
    """The number of the parameter that is filled with the number of elements."""
    pushed = [n for n, each in enumerate(kernel.params) if each.block == "push"]
    names = {kernel.params[number].name: number for number in pushed}
    if kernel.count == "unsaid":
        known = bool(pushed) and kernel.params[pushed[0]].name in COUNT_NAMES
        return pushed[0] if known and not kernel.optimize else None
    if isinstance(kernel.count, str):
        return names.get(kernel.count)
    return pushed[0] if kernel.count and pushed else None


def find_fault_in_count(kernel: Description) -> str:
    """Why the kernel's `count=` is refused; "" where it is not."""
    if kernel.count in ("unsaid", False):
        return ""
    filled = find_filled(kernel)
    if filled is None or (isinstance(kernel.count, str) and kernel.optimize):
        return "count= names no member"
    member = kernel.params[filled]
    if member.kind not in ("int", "uint") or member.width > 1 or member.length is not None:
        return "count= names a member that is no 32-bit integer"
    return ""


def has_same_names(kernel: Description) -> bool:
    """Whether a push member and a uniform member have one name."""
    return len({each.name for each in kernel.params}) < len(kernel.params)


# --- the values of a call ---


def list_values(kernel: Description, call: Call) -> list[Any]:
    """The values of all parameters, as the code finds them."""
    found: list[Any] = []
    for parameter, value in zip(kernel.params, call.values, strict=True):
        meaning = parameter.meaning
        if value is not None:
            found.append(convert(parameter, value))
        elif meaning == "count":
            found.append(count_first(kernel, call))
        elif meaning == "n":
            found.append(math.prod(call.extent))
        elif meaning == "extent":
            found.append(call.extent[: parameter.width])
        elif meaning.startswith("extent"):
            found.append(call.extent[int(meaning[-1])])
        else:
            found.append(convert(parameter, parameter.default))
    return found


def convert(parameter: Parameter, value: Any) -> Any:
    """A value as the Python number, or the lists of numbers, of the parameter's kind."""
    if isinstance(value, list):
        return [convert(parameter, each) for each in value]
    return float(value) if KINDS[parameter.kind].is_float else value


def is_given(kernel: Description, call: Call, number: int) -> bool:
    """Whether a call gives a value for a parameter, by name."""
    if number == call.omitted:
        return False
    if call.values[number] is not None:
        return True
    return number != find_filled(kernel) and kernel.params[number].meaning != "value"


def make_params(kernel: Description, call: Call) -> Any:
    """What a call passes as `params=`; None: nothing."""
    values = list_values(kernel, call)
    if call.typed:
        values = [
            np.array(value, KINDS[parameter.kind].dtype)[()]
            for value, parameter in zip(values, kernel.params, strict=True)
        ]
    members = list_members(kernel)
    if call.by_position or kernel.optimize:  # without names
        filled = find_filled(kernel)
        given = [number for number in members if number != filled]
        if call.omitted is not None:
            given = given[: given.index(call.omitted)]
        return tuple(values[number] for number in given) or None
    return {
        kernel.params[number].name: values[number]
        for number in members
        if is_given(kernel, call, number)
    } or None


def is_ambiguous(kernel: Description, call: Call) -> bool:
    """Whether a name that a call gives is that of two members: both are set, or the call is
    refused."""
    return has_same_names(kernel) and not call.by_position


# --- what functions of the declaration get ---


def read_keywords(kernel: Description, given: Mapping[str, Any]) -> list[Any]:
    """The values of the parameters from the keywords of a reference or of `grid=`; None for a
    filled one that is not among them."""
    filled, members = find_filled(kernel), list_members(kernel)
    found: list[Any] = [None] * len(members)
    if kernel.optimize:  # without names; in the order of positions
        if len(given) < len(members):
            members = [number for number in members if number != filled]
        for number, value in zip(members, given.values(), strict=True):
            found[number] = value
        return found
    return [given.get(each.name) for each in kernel.params]


def has_domain_in_params(kernel: Description) -> bool:
    """Whether the parameters determine the domain."""
    meanings = {each.meaning for each in kernel.params}
    return (
        bool(meanings & {"n", "extent"})
        or {f"extent{axis}" for axis in range(kernel.rank)} <= meanings
    )


def read_extent(kernel: Description, values: Sequence[Any]) -> Shape:
    """The domain's extent, from the values of the parameters."""
    axes = {}
    for parameter, value in zip(kernel.params, values, strict=True):
        if parameter.meaning == "n":
            return (int(value),)
        if parameter.meaning == "extent":
            return tuple(map(int, value))
        if parameter.meaning.startswith("extent"):
            axes[int(parameter.meaning[-1])] = int(value)
    return tuple(axes[axis] for axis in range(kernel.rank))
