"""Calls in graphs: recorded functions whose constants change, and recordings that run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import gpu_executor as gx
from tests.support.random_kernels.memory import find_aliased, list_passed
from tests.support.random_kernels.runs import PreparedCall


def run_in_graph(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """All calls through one recorded function. What differs between them, apart from the arrays, is
    constants of the function: in new containers, and in containers that change."""
    _select(calls)
    changing: dict[str, list[Any]] = {"names": [], "values": []}

    @gx.graph
    def run(*arrays: Any, constants: Any = None, **named: Any) -> Any:
        given = _unpack(constants) if constants is not None else dict(named)
        number = given.pop("out", None)
        out = {} if number is None else {"out": arrays[number]}
        return backend.run(kernel, *arrays, **given, **out, **options)

    results = []
    for each in calls:
        given = dict(each.options)
        aliased = find_aliased(each.kernel, each.call)
        if len(each.call.outs) == len(aliased) == 1 and not each.has_inout:
            given["out"] = aliased[0]
        each.out = None
        arrays = [backend.to_device(array) for array in each.before]
        form = each.call.number % 4
        if form == 0:
            results.append(run(*arrays, **given))
        elif form == 1:
            results.append(run(*arrays, constants=tuple(given.items())))
        elif form == 2:
            results.append(run(*arrays, constants=given))
        else:
            changing["names"][:], changing["values"][:] = given.keys(), given.values()
            results.append(run(*arrays, constants=changing))
    return results


def _unpack(constants: Any) -> dict[str, Any]:
    if isinstance(constants, dict) and set(constants) == {"names", "values"}:
        return dict(zip(constants["names"], constants["values"], strict=True))
    return dict(constants)


def replay_graph(
    backend: Any, kernel: gx.Kernel, calls: list[PreparedCall], **options: Any
) -> Sequence[Any]:
    """Each call as the replay of a recording that was made with other arrays."""
    _select(calls)
    results = []
    for each in calls:
        each.out = None
        inputs = [backend.to_device(np.zeros_like(array)) for array in each.before]
        with backend.graph(*inputs) as recorded:
            result = backend.run(kernel, *inputs, **each.options, **options)
        recorded(*(backend.to_device(array) for array in each.before))
        results.append(result)
    return results


def _select(calls: list[PreparedCall]) -> None:
    """Keep the calls that graphs can have: with arrays of numbers."""
    calls[:] = [
        each
        for each in calls
        if list_passed(each.kernel) and all(array.dtype.names is None for array in each.before)
    ]
