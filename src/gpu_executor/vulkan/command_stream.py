"""`CommandStream`: dispatches and copies on device arrays, submitted in order and not waited for.

Everything goes to one queue. Inside a submission a step waits behind a barrier if it touches what
an earlier step wrote, or writes what an earlier step read; other steps may overlap. Each
submission ends with a barrier, so that whatever comes to the queue later sees its results.

A submission keeps alive what the device may still use (arrays, command buffers, descriptor sets,
pipelines) until the device has completed it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import ClosedError, GpuError, OutOfMemoryError
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import CommandPool, Copy, Fill, Recorder
from gpu_executor.vulkan.dispatch_cache import (
    CallDispatch,
    DispatchCache,
    PreparedDispatch,
    TransientSet,
    TransientSets,
)
from gpu_executor.vulkan.memory import Allocation, Owner, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.status_check import StatusCheck
from gpu_executor.vulkan.timeline import Submission

MAX_IN_FLIGHT = 64
"""Submissions in flight; one more waits for the oldest."""


class Write(NamedTuple):
    """A few bytes that become part of the commands (`Recorder.write`)."""

    buffer: Handle
    offset: int
    data: bytes


class BoundStep(NamedTuple):
    """A dispatch, a copy, a fill or a write, with the memory that it uses."""

    work: Dispatch | CallDispatch | Copy | Fill | Write
    storages: Sequence[object]
    """The storages of its arrays, kept alive until the device has completed the step."""
    inputs: int
    """The number of storages that it only reads: the first ones. It writes the others."""
    bindings: Sequence[int] = ()
    """What a dispatch binds, as `TransientSets.acquire` takes it."""
    check: StatusCheck | None = None
    """The status word of a checked kernel."""


@dataclass(slots=True, eq=False)
class RecordedCommands:
    """A command buffer, with everything that it refers to."""

    commands: Handle
    submission: Submission
    in_flight: bool = False
    """Whether the device may still use it."""
    keep_alive: list[object] = field(default_factory=list)
    dispatches: list[PreparedDispatch] = field(default_factory=list)
    sets: list[TransientSet] = field(default_factory=list)
    checks: list[StatusCheck] = field(default_factory=list)


class CommandStream:
    """The command stream of a session. Safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._timeline = resources.compute
        self._lock = threading.RLock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._dispatches, self._sets = DispatchCache(resources), TransientSets(resources)
        self._buffers: deque[RecordedCommands] = deque()
        """Command buffers that are used again and again, the one submitted longest ago first."""
        self._graphs: set[RecordedCommands] = set()
        self._released_graphs: deque[RecordedCommands] = deque()
        self._errors: list[GpuError] = []
        """Errors of completed checked calls that `synchronize` has not raised yet."""
        self.closed = False
        self.submissions = self.dispatches = self.barriers = 0

    def submit(self, steps: Sequence[BoundStep]) -> None:
        """Run steps in order, after everything submitted before; returns at once."""
        self._record_and_submit(lambda recorder, into: self._record(recorder, steps, into))

    def copy(self, copy: Copy, keep_alive: Iterable[object]) -> None:
        """Run one copy, after everything submitted before; returns at once."""

        def record(recorder: Recorder, into: RecordedCommands) -> None:
            into.keep_alive += keep_alive
            recorder.copy([copy])

        self._record_and_submit(record)

    def write(self, buffer: Handle, offset: int, data: Any, keep_alive: Iterable[object]) -> None:
        """Write a few bytes to a buffer (`Recorder.write`), after everything submitted before."""

        def record(recorder: Recorder, into: RecordedCommands) -> None:
            into.keep_alive += keep_alive
            recorder.write(buffer, offset, data)

        self._record_and_submit(record)

    def record(self, steps: Sequence[BoundStep]) -> RecordedCommands:
        """Record steps without running them; `replay` runs them any number of times."""
        with self._lock:
            self._check_open()
            commands = self._command_pool().allocate()
            recorded = RecordedCommands(commands, self._timeline.prepare(commands))
            try:
                with Recorder(commands, simultaneous_use=True) as recorder:
                    self._record(recorder, steps, recorded)
                    recorder.barrier_all()
                    if recorded.checks:
                        recorder.barrier_all_to_host()
            except BaseException:
                self._free(recorded)
                raise
            self._graphs.add(recorded)
            return recorded

    def replay(self, recorded: RecordedCommands) -> None:
        """Run recorded steps, after everything submitted before; returns at once."""
        with self._lock:
            self._check_open()
            recorded.in_flight = True
            for check in recorded.checks:
                check.passed = False
            self._timeline.submit(recorded.submission)
            self.submissions += 1

    def release_when_possible(self, recorded: RecordedCommands) -> None:
        """Free recorded steps with a later submission.

        Safe from a finalizer, which may run in any thread at any point: it takes no lock.
        """
        self._released_graphs.append(recorded)

    def allocate(self, purpose: Purpose, nbytes: int, owner: Owner) -> Allocation:
        """Allocate memory; if there is none, wait for the device and try once more."""
        memory = self._resources.memory
        try:
            return memory.allocate(purpose, nbytes, owner)
        except OutOfMemoryError:
            self.wait()
            return memory.allocate(purpose, nbytes, owner)

    def wait(self) -> None:
        """Wait until the device has completed every submission."""
        with self._lock:
            for each in (*self._graphs, *self._buffers):
                self._wait_for(each)
            self._free_released_graphs()

    def synchronize(self) -> None:
        """Wait like `wait`, and raise the first error that a checked call found since the last
        time.
        """
        with self._lock:
            self.wait()
            errors, self._errors = self._errors, []
            if errors:
                raise errors[0]

    def wait_for_oldest(self) -> bool:
        """Wait for the oldest submission in flight; False if there is none."""
        with self._lock:
            oldest = next((each for each in self._buffers if each.in_flight), None)
            if oldest is not None:
                self._wait_for(oldest)
            return oldest is not None

    def release_completed(self) -> None:
        """Release what completed submissions keep alive; does nothing if another thread is busy."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for each in self._buffers:
                if each.in_flight:
                    if not self._timeline.is_done(each.submission):
                        return
                    self._release_references(each)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for the device and free everything; nothing can be submitted afterwards."""
        with self._lock:
            self.closed = True
            interrupt = None
            for each in (*self._graphs, *self._buffers):
                interrupt = self._timeline.wait_uninterrupted(each.submission) or interrupt
                self._release_references(each)
            self._buffers.clear()
            self._graphs.clear()
            self._released_graphs.clear()
            self._sets.close()
            self._dispatches.close()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _record_and_submit(self, record: Callable[[Recorder, RecordedCommands], None]) -> None:
        with self._lock:
            self._check_open()
            buffer = self._acquire_buffer()
            try:
                with Recorder(buffer.commands) as recorder:
                    record(recorder, buffer)
                    recorder.barrier_all()
                    if buffer.checks:
                        recorder.barrier_all_to_host()
            except BaseException:
                self._release_references(buffer)
                self._buffers.appendleft(buffer)
                raise
            # Before the submission: if it fails or is interrupted, the device may have it anyway.
            buffer.in_flight = True
            self._buffers.append(buffer)
            self._timeline.submit(buffer.submission)
            self.submissions += 1

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the backend that owns the device arrays is closed")
        if self._released_graphs:
            self._free_released_graphs()

    def _command_pool(self) -> CommandPool:
        if self._pool is None:
            self._pool = CommandPool(self._resources.device, self._timeline.family)
            self._opened.callback(self._pool.close)
        return self._pool

    def _free_released_graphs(self) -> None:
        """Free those that the device has completed; the others stay in the queue."""
        for _ in range(len(self._released_graphs)):
            recorded = self._released_graphs.popleft()
            if recorded.in_flight and not self._timeline.is_done(recorded.submission):
                self._released_graphs.append(recorded)
            elif recorded in self._graphs:
                self._graphs.remove(recorded)
                self._free(recorded)

    def _free(self, recorded: RecordedCommands) -> None:
        self._release_references(recorded)
        self._command_pool().free(recorded.commands)

    def _acquire_buffer(self) -> RecordedCommands:
        """A command buffer that the device does not use: the oldest if completed, else a new one.

        With MAX_IN_FLIGHT in flight, it waits for the oldest.
        """
        self.release_completed()  # frees arrays as early as possible
        if self._buffers and (
            not self._buffers[0].in_flight or len(self._buffers) >= MAX_IN_FLIGHT
        ):
            self._wait_for(self._buffers[0])
            return self._buffers.popleft()
        commands = self._command_pool().allocate()
        return RecordedCommands(commands, self._timeline.prepare(commands))

    def _wait_for(self, recorded: RecordedCommands) -> None:
        """Wait for a submission and release its references; a graph keeps them for its next run."""
        if not recorded.in_flight:
            return
        self._timeline.wait(recorded.submission)
        if recorded in self._graphs:
            recorded.in_flight = False
            self._complete_checks(recorded)
        else:
            self._release_references(recorded)

    def _release_references(self, recorded: RecordedCommands) -> None:
        """Release everything that commands refer to, once the device has completed them."""
        recorded.in_flight = False
        self._dispatches.release(recorded.dispatches)
        self._sets.release(recorded.sets)
        recorded.keep_alive.clear()
        if recorded.checks:
            self._complete_checks(recorded)
            recorded.checks.clear()

    def _complete_checks(self, recorded: RecordedCommands) -> None:
        """Read the status words of completed commands."""
        for check in recorded.checks:
            error = check.complete()
            if error is not None:
                self._errors.append(error)

    def _record(
        self, recorder: Recorder, steps: Sequence[BoundStep], into: RecordedCommands
    ) -> None:
        read: set[object] = set()
        written: set[object] = set()
        copied = False
        for step in steps:
            into.keep_alive += step.storages
            if len(steps) > 1:
                copies = isinstance(step.work, Copy | Fill | Write)
                reads = step.storages[: step.inputs]
                writes = step.storages[step.inputs :]
                if not written.isdisjoint(step.storages) or not read.isdisjoint(writes):
                    if copied or copies:
                        recorder.barrier_all()
                    else:
                        recorder.barrier_kernels()
                    self.barriers += 1
                    read, written, copied = set(), set(), False
                read.update(reads)
                written.update(writes)
                copied |= copies
            work = step.work
            if isinstance(work, Copy):
                recorder.copy([work])
            elif isinstance(work, Fill):
                recorder.fill(work)
            elif isinstance(work, Write):
                recorder.write(*work)
            else:
                self._record_dispatch(recorder, work, step.bindings, into)
            if step.check is not None:
                into.checks.append(step.check)

    def _record_dispatch(
        self,
        recorder: Recorder,
        dispatch: Dispatch | CallDispatch,
        bindings: Sequence[int],
        into: RecordedCommands,
    ) -> None:
        prepared = self._dispatches.acquire(dispatch)
        into.dispatches.append(prepared)
        if isinstance(dispatch, CallDispatch):
            bound = self._sets.acquire(bindings, dispatch.set_layout)
            push, grid = vk.ffi.from_buffer(dispatch.push), dispatch.grid
        else:
            bound = self._sets.acquire(bindings, len(dispatch.arrays))
            push, grid = prepared.push, prepared.grid
        into.sets.append(bound)
        recorder.dispatch_prepared(prepared.pipeline, bound.handles, push, grid)
        self.dispatches += 1
