"""Bound steps: dispatches, copies, fills and writes with the memory that they use, and the recorder
that turns a sequence of them into commands.

Slots record the steps of a piece: copies in, fills, a dispatch, copies out. The command stream
records the steps of operations on device arrays, and graphs of them. In both, a step waits behind a
barrier if it touches what an earlier step wrote, or writes what an earlier step read; other steps
may overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gpu_executor.dispatch import Dispatch
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.lean_dataclass import dataclass
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.commands import COPIES, KERNELS, Copy, Fill, Recorder
from gpu_executor.vulkan.descriptors import SetLayout
from gpu_executor.vulkan.pipeline import Pipeline
from gpu_executor.vulkan.profile import Timestamps
from gpu_executor.vulkan.status_check import StatusCheck

Memory = TypeVar("Memory", bound=Hashable)
"""What stands for the memory of an array: the storage of a device array, or a place in a buffer."""


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

    buffer: Handle
    offset: int
    data: bytes


class WriteTimestamp(NamedTuple):
    """The device's clock, when the steps before are done."""

    timestamps: Timestamps
    number: int


class BoundStep(NamedTuple, Generic[Memory]):
    """A dispatch, a copy, a fill or a write, with the memory that it uses."""

    work: Dispatch | CallDispatch | Copy | Fill | Write | WriteTimestamp
    memory: Sequence[Memory]
    """The memory of its arrays."""
    inputs: int
    """How much of the memory it only reads: the first ones. It writes the others."""
    bindings: Sequence[int] = ()
    """What a dispatch binds, as `DescriptorPools.write` takes it."""
    check: StatusCheck | None = None
    """The status word of a checked kernel."""
    staging: object = None
    """Memory that the host may not write before the device has completed the step."""


class ResolvedDispatch(NamedTuple):
    """A dispatch as `Recorder.dispatch` takes it."""

    pipeline: Pipeline
    sets: Handle
    push: Handle
    grid: Grid


Resolve = Callable[[Dispatch | CallDispatch, Sequence[int]], ResolvedDispatch]
"""Finds the pipeline of a dispatch, and makes a descriptor set of its bindings."""


class _Accesses:
    """What earlier steps read and wrote, and later steps of one stage do not wait for yet."""

    __slots__ = ("_read", "_written", "stages")

    def __init__(self) -> None:
        self._read: set[object] = set()
        self._written: set[object] = set()
        self.stages = 0
        """The stages of these steps."""

    def add(self, step: BoundStep[Memory], stage: int) -> None:
        self._read.update(step.memory[: step.inputs])
        self._written.update(step.memory[step.inputs :])
        self.stages |= stage

    def conflict_with(self, step: BoundStep[Memory]) -> bool:
        """Whether a step touches what was written, or writes what was read."""
        return not (
            self._written.isdisjoint(step.memory)
            and self._read.isdisjoint(step.memory[step.inputs :])
        )

    def clear(self) -> None:
        self._read.clear()
        self._written.clear()
        self.stages = 0


def record_steps(
    recorder: Recorder,
    steps: Sequence[BoundStep[Memory]],
    resolve: Resolve,
    earlier: Sequence[BoundStep[Memory]] = (),
) -> int:
    """Record steps in order, with barriers where they depend on each other; return the number of
    barriers. `earlier` steps are in commands that were submitted to the same queue before, without
    a barrier behind them."""
    barriers = 0
    has_order = len(steps) + len(earlier) > 1
    unseen = {COPIES: _Accesses(), KERNELS: _Accesses()}
    for step in earlier:
        for accesses in unseen.values():
            accesses.add(step, _get_stage(step))
    copies: list[Copy] = []
    """Copies that do not depend on each other, to be recorded together."""
    for step in steps:
        work = step.work
        if has_order and not isinstance(work, WriteTimestamp):
            stage = _get_stage(step)
            before = unseen[stage]
            if before.conflict_with(step):
                _record_copies(recorder, copies)
                recorder.barrier(before.stages, stage)
                before.clear()
                barriers += 1
            for accesses in unseen.values():
                accesses.add(step, stage)
        if isinstance(work, Copy):
            copies.append(work)
            continue
        _record_copies(recorder, copies)
        if isinstance(work, Fill):
            recorder.fill(work)
        elif isinstance(work, Write):
            recorder.write(*work)
        elif isinstance(work, WriteTimestamp):
            recorder.write_timestamp(*work)
        else:
            recorder.dispatch(*resolve(work, step.bindings))
    _record_copies(recorder, copies)
    return barriers


def _record_copies(recorder: Recorder, copies: list[Copy]) -> None:
    """Record the copies that were collected, and forget them."""
    if copies:
        recorder.copy(copies)
        copies.clear()


def _get_stage(step: BoundStep[Memory]) -> int:
    return COPIES if isinstance(step.work, Copy | Fill | Write) else KERNELS
