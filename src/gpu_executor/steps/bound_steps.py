"""Bound steps: dispatches, copies, fills and writes with the memory that they use."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.steps.status import StatusCheck

Memory = TypeVar("Memory", bound=Hashable)
"""Identifies the memory of an array: the storage of a device array, or an offset in a buffer."""
SetLayout = int | tuple[tuple[int, ...], tuple[int, ...]]
"""The storage buffers of a dispatch: their number if they are bindings 0, 1, ..., else their
bindings and those of uniform buffers behind them."""
MAX_UPDATE_BYTES = 65_536
"""The most bytes that become part of commands: the limit of vkCmdUpdateBuffer, which takes
multiples of four bytes (Vulkan 1.3, 19.5)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of `nbytes` from one buffer to another."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Fill:
    """A fill of `nbytes`, a multiple of 4, with repetitions of `pattern`."""

    buffer: Any
    offset: int
    nbytes: int
    pattern: bytes


@dataclass(frozen=True, slots=True, eq=False)
class CallDispatch:
    """One dispatch of a call: everything but its arrays."""

    kernel: Kernel
    work_group: int
    per_invocation: int
    push: bytes
    grid: Grid
    set_layout: SetLayout


class Write(NamedTuple):
    """A few bytes that become part of the commands (`Recorder.write`)."""

    buffer: Any
    offset: int
    data: bytes


class WriteTimestamp(NamedTuple):
    """The device's clock, when the steps before are done."""

    timestamps: Any
    number: int


class BoundStep(NamedTuple, Generic[Memory]):
    """A dispatch, a copy, a fill or a write, with the memory that it uses."""

    work: Dispatch | CallDispatch | Copy | Fill | Write | WriteTimestamp
    memory: Sequence[Memory]
    """The memory of its arrays."""
    inputs: int
    """The number of entries of `memory` that it only reads; they come first. It writes the
    others."""
    bindings: Sequence[Any] = ()
    """What a dispatch binds: the handle of a buffer, an offset and a number of bytes for each
    binding."""
    check: StatusCheck | None = None
    """The status word of a checked kernel."""
    staging: object = None
    """Memory that the host may not write before the device has completed the step."""


def order_by_depth(steps: Sequence[BoundStep[Memory]]) -> list[BoundStep[Memory]]:
    """The same steps in an order that has the same results, in which independent steps are
    neighbours, so that they may overlap: by the length of the longest chain of steps before that
    each depends on. Steps of one depth are independent of each other."""
    written: dict[Memory, int] = {}
    used: dict[Memory, int] = {}
    depths = []
    for step in steps:
        outputs = step.memory[step.inputs :]
        before = [written.get(each, 0) for each in step.memory]
        depth = max((*before, *(used.get(each, 0) for each in outputs)), default=0) + 1
        depths.append(depth)
        for each in step.memory:
            used[each] = max(used.get(each, 0), depth)
        for each in outputs:
            written[each] = depth
    order = sorted(range(len(steps)), key=depths.__getitem__)
    return [steps[number] for number in order]
