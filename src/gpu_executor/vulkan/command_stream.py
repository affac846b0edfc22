"""`CommandStream`: dispatches and copies on device arrays, submitted in order and not waited for.

Everything goes to one queue. Inside a submission steps that do not depend on each other may overlap
(`bound_steps.py`). Each submission ends with a barrier, so that whatever comes to the queue later
sees its results.

Recorded commands are cached by what they do and by the buffer ranges that they bind. A program that
repeats an operation gets the same ranges again and again, because the pool hands out released
memory first, so most submissions record nothing.

Memory of arrays that are gone serves the next operations at once, although the device may still use
it: the device runs those operations later. So a loop that drops its results needs the memory of one
or two of them, and its commands bind the same ranges every time. The memory returns to the pool
when the device has completed the last submission that uses it. Staging memory, which the host
writes, is kept alive until then.

Memory that held secrets serves other secrets only, and is filled with zeros before it returns to
the pool. When the stream is closed, that of arrays that still exist is, too.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from typing import Any

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import ClosedError, DeviceLostError, GpuError, OutOfMemoryError
from gpu_executor.steps.bound_steps import BoundStep, CallDispatch, Copy, Fill, Write
from gpu_executor.steps.status import StatusCheck
from gpu_executor.steps.step_binder import StorageStep
from gpu_executor.steps.storage import DeviceStorage
from gpu_executor.vulkan.binding import Handle, vk
from gpu_executor.vulkan.commands import COPIES, HOST, KERNELS, CommandPool, Recorder
from gpu_executor.vulkan.descriptors import VALUES_PER_BINDING, DescriptorSet, TransientSets
from gpu_executor.vulkan.dropped_memory import DroppedMemory
from gpu_executor.vulkan.memory import Allocation, Owner, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.step_recorder import (
    DispatchCache,
    PreparedDispatch,
    ResolvedDispatch,
    record_steps,
)
from gpu_executor.vulkan.timeline import Submission

MAX_IN_FLIGHT = 64
"""Submissions in flight; one more waits for the oldest."""
MAX_CACHED_COMMANDS = 128
"""Cached command buffers. More exist only while more are in flight."""
ZEROS = bytes(4)


def _get_name(steps: Sequence[StorageStep]) -> str:
    work = steps[0].work if steps else None
    return work.kernel.name if isinstance(work, Dispatch | CallDispatch) else "a copy"


def _serves_host(step: StorageStep) -> bool:
    """Whether the host uses memory that a step writes: a status word, or staging memory."""
    is_overwritten = isinstance(step.work, Fill) and step.staging is not None
    return step.check is not None or is_overwritten


@dataclass(slots=True, eq=False)
class StreamCommands:
    """A command buffer, and what it refers to besides arrays."""

    commands: Handle
    submission: Submission
    value: int = 0
    """The timeline value of its latest submission; 0 before the first."""
    dispatches: list[PreparedDispatch] = field(default_factory=list)
    sets: list[DescriptorSet] = field(default_factory=list)
    barriers: int = 0


@dataclass(slots=True, eq=False)
class CapturedGraph:
    """Commands that `replay` runs, and the arrays that they use."""

    steps: Sequence[StorageStep]
    recorded: StreamCommands
    replacements: int
    """How many pipelines had been replaced when the commands were recorded."""
    keep_alive: list[DeviceStorage]
    checks: list[StatusCheck]


class _InFlight:
    """A submission that the device may not have completed."""

    __slots__ = ("checks", "keep_alive", "value", "what")

    def __init__(self, what: str, keep_alive: object, checks: Sequence[StatusCheck]) -> None:
        self.what, self.keep_alive, self.checks = what, keep_alive, checks
        """`what` is the name of its first kernel, for the error of a lost device."""
        self.value = 0
        """Its timeline value."""


class CommandStream:
    """The command stream of a session. Safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._timeline, self._memory = resources.compute, resources.memory
        self._lock = threading.RLock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._dispatches = DispatchCache(resources.pipelines, resources.device.info)
        self._sets = TransientSets(resources.descriptors)
        self._cached: LruCache[Hashable, StreamCommands] = LruCache()
        self._unused: deque[StreamCommands] = deque()
        """Commands to be recorded anew, the one submitted longest ago first."""
        self._freed_blocks = 0
        """The pool's count of freed blocks when the cache was last valid: another buffer may have
        the handle of a freed one."""
        self._in_flight: deque[_InFlight] = deque()
        """Oldest first."""
        self._completed = 0
        """A timeline value up to which the device has completed everything."""
        self._dropped = DroppedMemory(resources.memory)
        self._wait = self._timeline.prepare_wait()
        self._released_graphs: deque[CapturedGraph] = deque()
        self._failed: list[StatusCheck] = []
        """Completed checks that found an error, since the last `synchronize`."""
        self.closed = False
        self.submissions = self.dispatches = self.barriers = 0
        self.recordings = 0
        """Submissions whose commands were not cached."""

    def submit(self, steps: Sequence[StorageStep]) -> None:
        """Run steps in order, after everything submitted before; returns at once."""
        with self._lock:
            self.check_open()
            self._make_room()
            recorded = self._find_commands(steps)
            checks = [step.check for step in steps if step.check is not None]
            staging = steps[0].staging if len(steps) == 1 else None
            try:
                self._submit(recorded, _InFlight(_get_name(steps), staging, checks))
            finally:  # the device may have an interrupted submission
                value = recorded.value
                for step in steps:
                    for storage in step.memory:
                        storage.last_use = max(storage.last_use, value)

    def copy(self, copy: Copy, target: DeviceStorage, staging: object) -> None:
        """Copy from staging memory, after everything submitted before; returns at once."""
        self.submit([BoundStep(copy, (target,), 0, staging=staging)])

    def write(self, buffer: Handle, offset: int, data: Any, target: DeviceStorage) -> None:
        """Write a few bytes to a buffer (`Recorder.write`), after everything submitted before."""
        self.submit([BoundStep(Write(buffer, offset, data), (target,), 0)])

    def exchange(self, submission: Submission) -> int:
        """Submit the signal or the wait of a semaphore of another API, after everything submitted
        before and before everything submitted later; returns its timeline value."""
        with self._lock:
            self.check_open()
            self._make_room()
            commands = StreamCommands(vk.ffi.NULL, submission)
            self._submit(commands, _InFlight("an exchange with CUDA", None, ()))
            return commands.value

    def record(self, steps: Sequence[StorageStep]) -> CapturedGraph:
        """Record steps without running them; `replay` runs them any number of times."""
        with self._lock:
            self.check_open()
            self._dispatches.compile_ahead(
                each.work for each in steps if isinstance(each.work, Dispatch)
            )
            replacements = self._resources.pipelines.replacements
            recorded = self._record_anew(steps)
            kept = [storage for step in steps for storage in step.memory]
            checks = [step.check for step in steps if step.check is not None]
            return CapturedGraph(steps, recorded, replacements, kept, checks)

    def replay(self, graph: CapturedGraph) -> None:
        """Run recorded steps, after everything submitted before; returns at once."""
        with self._lock:
            self.check_open()
            self._make_room()
            if graph.replacements != self._resources.pipelines.replacements:
                self._renew_pipelines(graph)
            self._submit(graph.recorded, _InFlight("a graph", graph, list(graph.checks)))

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Let several threads compile what dispatches need that will be submitted soon."""
        with self._lock:
            self.check_open()
            self._dispatches.compile_ahead(dispatches)

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str:
        """In which form the pipelines of dispatches are there, in words."""
        return self._dispatches.describe_pipelines(dispatches)

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile the pipelines of dispatches in their usual form; returns their number. Other
        threads may submit meanwhile."""
        with self._lock:
            self.check_open()
        return self._dispatches.compile_all(dispatches, progress)

    def renew_checks(self, graph: CapturedGraph) -> dict[StatusCheck, StatusCheck]:
        """Prepare the status words of recorded steps for another run, after the one before; returns
        the new check for each one before."""
        if not graph.checks:
            return {}
        with self._lock:
            self.check_open()
            self.wait_until(graph.recorded.value)
            renewed = {check: check.renew() for check in graph.checks}
            graph.checks[:] = renewed.values()
            return renewed

    def release_when_possible(self, graph: CapturedGraph) -> None:
        """Free recorded steps with a later submission.

        Safe from a finalizer, which may run in any thread at any point: it takes no lock.
        """
        self._released_graphs.append(graph)

    def allocate_array(self, nbytes: int, *, is_secret: bool) -> tuple[int, Allocation]:
        """Allocate memory of a device array. It is memory that submissions of this stream may still
        use, up to the timeline value that is returned, if there is some of that size. A secret one
        gets that of another secret, too."""
        if self._dropped:
            found = self._reuse(self._memory.round_up_to_class(nbytes), is_secret=is_secret)
            if found is not None:
                return found
        return 0, self.allocate(Purpose.DEVICE, nbytes, "device array")

    def allocate(self, purpose: Purpose, nbytes: int, owner: Owner) -> Allocation:
        """Allocate memory that nothing uses; if there is none, wait for the device and try once
        more."""
        try:
            return self._memory.allocate(purpose, nbytes, owner)
        except OutOfMemoryError:
            self.wait()
            return self._memory.allocate(purpose, nbytes, owner)

    def release(self, allocation: Allocation, last_use: int) -> None:
        """Take the memory of a storage that is gone; safe from a finalizer.

        `last_use` is the timeline value of the last submission that uses it.
        """
        if last_use <= self._completed and not allocation.is_secret:
            self._memory.release_when_possible(allocation)
        else:
            self._dropped.add(last_use, allocation)

    def count_reusable(self) -> int:
        """The bytes of arrays that are gone and that submissions in flight use; 0 if another thread
        is busy."""
        self.release_completed()
        if not self._dropped or not self._lock.acquire(blocking=False):
            return 0
        try:
            return self._dropped.count_bytes()
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait until the device has completed every submission."""
        with self._lock:
            if self._in_flight:
                self._wait_for(self._in_flight[-1].value)
            self._recycle_released_graphs()
            if self._dropped.has_secrets and not self.closed:
                self._wait_for(self._overwrite_dropped())
            self._dropped.release(self._completed)

    def overwrite_secrets(self) -> None:
        """Overwrite the memory of secrets that are gone, after everything submitted before; returns
        at once. Does nothing when the stream is closed, since that overwrites all of it."""
        with self._lock:
            if not self.closed:
                self._release_up_to(self._timeline.count_completed())
                self._recycle_released_graphs()
                if self._dropped.has_secrets:
                    self._overwrite_dropped()

    def synchronize(self) -> None:
        """Wait like `wait`, and raise the first error that a checked call found since the last
        time, unless a fetch has raised it.
        """
        with self._lock:
            self.wait()
            failed, self._failed = self._failed, []
            for check in failed:
                if not check.was_raised:
                    check.raise_error()

    def wait_until(self, value: int) -> None:
        """Wait until the device has completed all submissions up to a timeline value."""
        with self._lock:
            if value > self._completed:
                self._wait_for(value)

    def wait_for_oldest(self) -> bool:
        """Wait for the oldest submission in flight; False if there is none."""
        with self._lock:
            if not self._in_flight:
                return False
            self._wait_for(self._in_flight[0].value)
            return True

    def release_completed(self) -> None:
        """Release what completed submissions use; does nothing if another thread is busy."""
        if (self._in_flight or self._dropped) and self._lock.acquire(blocking=False):
            try:
                if self._dropped.has_secrets and not self.closed:
                    self._overwrite_dropped()
                self._release_up_to(self._timeline.count_completed())
            finally:
                self._lock.release()

    def close(self) -> None:
        """Wait for the device and free everything; nothing can be submitted afterwards."""
        with self._lock:
            if not self.closed:
                with contextlib.suppress(GpuError):  # the device is lost
                    self._overwrite_dropped()
                    self._overwrite(self._memory.list_secrets())
            self.closed = True
            interrupt = None
            if self._in_flight:
                newest = self._in_flight[-1].value
                self._wait.signal_value[0] = newest
                interrupt = self._timeline.wait_uninterrupted(self._wait)
                self._release_up_to(newest)
            self._dropped.release(self._completed)
            self._forget_cached()
            self._recycle_released_graphs(finished=True)
            for recorded in self._unused:
                self._release_references(recorded)
            self._unused.clear()
            self._sets.close()
            self._dispatches.close()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    # --- submissions in flight ---

    def _submit(self, recorded: StreamCommands, entry: _InFlight) -> None:
        # The entry is added first: if the submission is interrupted, the device may have it anyway.
        self._in_flight.append(entry)
        try:
            self._timeline.submit(recorded.submission)
        except GpuError:
            self._in_flight.pop()
            raise
        finally:
            entry.value = recorded.value = recorded.submission.signal_value[0]
        self.submissions += 1
        self.dispatches += len(recorded.dispatches)
        self.barriers += recorded.barriers

    def _overwrite_dropped(self) -> int:
        """Overwrite the memory of secrets that are gone; returns the timeline value of the
        submission."""
        value, entries = 0, self._dropped.take_secrets()
        try:
            value = self._overwrite([allocation for _, allocation in entries])
        finally:  # it still holds secrets if the device may not have the submission
            for last_use, allocation in entries:
                self._dropped.add(max(last_use, value), allocation)
        return value

    def _overwrite(self, allocations: Sequence[Allocation]) -> int:
        """Fill memory with zeros; returns the timeline value of the submission."""
        if not allocations:
            return 0
        steps = [
            BoundStep[DeviceStorage](
                Fill(each.buffer, each.offset, each.nbytes, ZEROS), (), 0, staging=each
            )
            for each in allocations
        ]
        recorded = self._find_commands(steps)
        self._submit(recorded, _InFlight("a fill", None, ()))
        self._memory.note_overwritten(allocations)
        return recorded.value

    def _make_room(self) -> None:
        """Release what is completed; with MAX_IN_FLIGHT in flight, wait for the oldest."""
        if self._in_flight:
            self._release_up_to(self._timeline.count_completed())
            if len(self._in_flight) >= MAX_IN_FLIGHT:
                self._wait_for(self._in_flight[0].value)

    def _wait_for(self, value: int) -> None:
        self._wait.signal_value[0] = value
        with self.naming_calls():
            self._timeline.wait(self._wait)
        self._release_up_to(value)

    def _release_up_to(self, value: int) -> None:
        """Release everything that only submissions up to a timeline value use."""
        self._completed = max(self._completed, value)
        while self._in_flight and self._in_flight[0].value <= value:
            for check in self._in_flight.popleft().checks:
                check.passed = check.find_error() is None
                if not check.passed:
                    self._failed.append(check)
        if self._dropped:
            self._dropped.release(self._completed)

    def _reuse(self, nbytes: int, *, is_secret: bool) -> tuple[int, Allocation] | None:
        """Take dropped memory of this size, with its last use; None if there is none, or if another
        thread is busy."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._dropped.take(nbytes, is_secret=is_secret)
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def naming_calls(self) -> Iterator[None]:
        """Add the calls that were in flight to the error of a lost device."""
        try:
            yield
        except DeviceLostError as error:
            names = list(dict.fromkeys(entry.what for entry in self._in_flight))
            if not names:
                raise
            several = f" and {len(names) - 1} more" if len(names) > 1 else ""
            meaning = f"{error.meaning}; in flight: {names[0]}{several}"
            raise DeviceLostError(error.call, error.result, meaning) from error

    # --- recorded commands ---

    def _make_key(self, steps: Sequence[StorageStep]) -> Hashable:
        """What distinguishes the commands of steps; None for those that are not cached."""
        key: list[Hashable] = []
        for step in steps:
            work = step.work
            if isinstance(work, Dispatch):
                key.append(self._dispatches.find(work))
            elif isinstance(work, Write):
                return None  # its data rarely come again
            else:
                key += work, step.staging is not None
            key += step.bindings
            if len(steps) > 1:
                key.append(step.inputs)
        return tuple(key)

    def _find_commands(self, steps: Sequence[StorageStep]) -> StreamCommands:
        """The cached commands of steps, recorded if there are none."""
        if self._freed_blocks != self._memory.freed_blocks:
            self._forget_cached()
        key = self._make_key(steps)
        recorded = None if key is None else self._cached.get(key)
        if recorded is None:
            recorded = self._record_anew(steps)
            if key is None:
                self._unused.append(recorded)
            else:
                self._cached[key] = recorded
        elif key is not None:
            self._cached.move_to_end(key)
        return recorded

    def _record_anew(self, steps: Sequence[StorageStep]) -> StreamCommands:
        recorded = self._acquire_commands()
        try:
            with Recorder(recorded.commands, simultaneous_use=True) as recorder:
                resolve = functools.partial(self._resolve, recorded)
                recorded.barriers = record_steps(recorder, steps, resolve)
                recorder.barrier_all()
                if any(_serves_host(step) for step in steps):
                    recorder.barrier(COPIES | KERNELS, HOST)
        except BaseException:
            self._release_references(recorded)
            self._unused.appendleft(recorded)
            raise
        self.recordings += 1
        return recorded

    def _renew_pipelines(self, graph: CapturedGraph) -> None:
        """Record the steps of a graph again, if pipelines of them were replaced."""
        graph.replacements = self._resources.pipelines.replacements
        before = graph.recorded
        if any(each.pipeline.is_replaced for each in before.dispatches):
            graph.recorded = self._record_anew(graph.steps)
            self._unused.append(before)

    def _acquire_commands(self) -> StreamCommands:
        """Commands that the device does not use: recorded longest ago, or new ones."""
        if len(self._cached) >= MAX_CACHED_COMMANDS:
            self._unused += self._cached.evict(MAX_CACHED_COMMANDS - 1)
        if self._unused:
            oldest = self._unused[0].value
            if not self._in_flight or oldest < self._in_flight[0].value:
                recorded = self._unused.popleft()
                self._release_references(recorded)
                return recorded
        if self._pool is None:
            self._pool = CommandPool(self._resources.device, self._timeline.family)
            self._opened.callback(self._pool.close)
        commands = self._pool.allocate()
        return StreamCommands(commands, self._timeline.prepare(commands))

    def _forget_cached(self) -> None:
        """Empty the cache; its command buffers are recorded anew."""
        self._freed_blocks = self._memory.freed_blocks
        self._unused += self._cached.values()
        self._cached.clear()

    def _recycle_released_graphs(self, *, finished: bool = False) -> None:
        """Record the commands of dropped graphs anew, once the device has completed them."""
        for _ in range(len(self._released_graphs)):
            graph = self._released_graphs.popleft()
            value = graph.recorded.value
            if not finished and self._in_flight and value >= self._in_flight[0].value:
                self._released_graphs.append(graph)
            else:
                self._release_references(graph.recorded)
                self._unused.appendleft(graph.recorded)
                graph.keep_alive.clear()
                graph.steps = ()

    def check_open(self) -> None:
        """Raise `ClosedError` if nothing can be submitted any more."""
        if self.closed:
            raise ClosedError(
                "the backend of the device arrays is closed, or its device was lost; the arrays "
                "are gone with it"
            )
        if self._released_graphs:
            self._recycle_released_graphs()
            if self._dropped.has_secrets:
                self._overwrite_dropped()

    def _release_references(self, recorded: StreamCommands) -> None:
        """Release everything that commands refer to; the device has completed them."""
        self._dispatches.release(recorded.dispatches)
        self._sets.release(recorded.sets)
        recorded.barriers = 0

    def _resolve(
        self, into: StreamCommands, dispatch: Dispatch | CallDispatch, bindings: Sequence[int]
    ) -> ResolvedDispatch:
        prepared = self._dispatches.acquire(dispatch)
        into.dispatches.append(prepared)
        if isinstance(dispatch, CallDispatch):
            layout, grid = dispatch.set_layout, dispatch.grid
            push = vk.ffi.from_buffer(dispatch.push)
        else:
            layout, grid = len(bindings) // VALUES_PER_BINDING, prepared.grid
            push = prepared.push
        bound = self._sets.acquire(bindings, layout)
        into.sets.append(bound)
        return ResolvedDispatch(prepared.pipeline, bound.handles, push, grid)
