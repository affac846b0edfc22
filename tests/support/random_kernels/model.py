"""What a random kernel computes, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.random_kernels.description import Description, Statement
from tests.support.random_kernels.expressions import Invocations, get_part
from tests.support.random_kernels.kinds import KINDS

Array = npt.NDArray[Any]
ATOMIC: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def execute(
    kernel: Description, arrays: list[Array], values: list[Any], extent: tuple[int, ...]
) -> None:
    """Run a kernel on arrays of shape (elements, *element shape), in binding order. Outputs hold
    their initial values before, and the results afterwards."""
    invocations = Invocations(kernel, arrays, values, extent)
    if kernel.tile is not None:
        value = invocations.evaluate(kernel.tile.value, KINDS[kernel.tile.compute])
        value = np.broadcast_to(value, (invocations.count, 1))
        blocks = [
            compute_tile(kernel.tile.operation, value[at : at + kernel.local[0]])
            for at in range(0, invocations.count, kernel.local[0])
        ]
        invocations.tile = np.concatenate(blocks) if blocks else value
    for statement in kernel.statements:
        _run_statement(invocations, statement)


def compute_tile(operation: str, block: Array) -> Array:
    """What the shared memory of a work-group makes of a block of values."""
    if operation == "reverse":
        return block[::-1]
    if operation == "sort":
        return np.sort(block, axis=0)
    if operation == "scan":
        return np.cumsum(block, axis=0, dtype=block.dtype)
    return np.full_like(block, block.sum(dtype=block.dtype))


def _run_statement(invocations: Invocations, statement: Statement) -> None:
    kernel, number = invocations.kernel, statement.buffer
    buffer = kernel.buffers[number]
    _, kind, width = buffer.parts()[statement.part]
    target = get_part(buffer, invocations.arrays[number], statement.part)
    value = invocations.evaluate(statement.value, KINDS[statement.compute])
    with np.errstate(all="ignore"):
        value = value.astype(KINDS[kind.wide].dtype if kind.wide else kind.dtype)
        value = np.broadcast_to(value.astype(kind.dtype), (invocations.count, width))
    place = invocations.place_index(number, statement.place, statement.part)
    chosen = np.ones(invocations.count, bool)
    if buffer.is_bounded:
        chosen &= place < len(target)
    if statement.when is not None:
        less, more = (
            invocations.evaluate(each, KINDS[statement.compute])[:, 0] for each in statement.when
        )
        chosen &= less < more
    if statement.place == ["group"]:
        chosen &= invocations.index % kernel.local[0] == 0
    elif statement.skip is not None:
        chosen &= invocations.index % statement.skip[0] != statement.skip[1]
    if statement.atomic:
        ATOMIC[statement.atomic].at(target, place[chosen], value[chosen])
    else:
        target[place[chosen]] = value[chosen]
