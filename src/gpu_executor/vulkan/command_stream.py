"""Chains: dispatches on arrays on the card, submitted in order and not waited for.

Everything goes to one queue. A dispatch that touches what an earlier one of its submission wrote,
or writes what one read, waits behind a barrier; the others may overlap. Each submission ends with a
barrier, so that whatever comes to the queue later sees all of it.

What the device may still use (arrays, commands, descriptors, pipelines) is kept until it is done.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_executor.dispatch import Dispatch
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.vulkan.binding import Handle
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.dispatch_cache import (
    DispatchCache,
    PreparedDispatch,
    TransientSet,
    TransientSets,
)
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.timeline import Submission

IN_FLIGHT = 64
"""Submissions whose commands are kept; one more waits for the oldest."""


class PlacedStep(NamedTuple):
    """A step with the places of its arrays."""

    work: Dispatch | Copy
    storages: Sequence[object]
    """Of its arrays, which live until the device is done."""
    inputs: int
    """How many of them it reads: the first ones."""
    numbers: Sequence[int] = ()
    """What a dispatch binds."""


@dataclass(slots=True, eq=False)
class RecordedCommands:
    """Steps in a command buffer of their own, with what it refers to."""

    commands: Handle
    submission: Submission
    busy: bool = False
    """Whether the device may have it."""
    holds: list[object] = field(default_factory=list)
    dispatches: list[PreparedDispatch] = field(default_factory=list)
    sets: list[TransientSet] = field(default_factory=list)


class CommandStream:
    """One of these belongs to a session. Safe from several threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._timeline = resources.compute
        self._lock = threading.RLock()
        self._opened = contextlib.ExitStack()
        self._pool: CommandPool | None = None
        self._dispatches, self._sets = DispatchCache(resources), TransientSets(resources)
        self._links: deque[RecordedCommands] = deque()
        """Commands in turn, those submitted longest ago first."""
        self._graphs: set[RecordedCommands] = set()
        self._forgotten: deque[RecordedCommands] = deque()
        self._closed = False
        self.submissions = self.dispatches = self.barriers = 0

    def submit(self, steps: Sequence[PlacedStep]) -> None:
        """Run steps in order, after all that came before."""
        self._run(lambda recorder, link: self._record(recorder, steps, link))

    def copy(self, copy: Copy, holds: Iterable[object]) -> None:
        """One copy in the same order; what it touches is held until it is done."""

        def record(recorder: Recorder, link: RecordedCommands) -> None:
            link.holds += holds
            recorder.copy([copy])

        self._run(record)

    def write(self, buffer: Handle, offset: int, data: Any, holds: Iterable[object]) -> None:
        """Few bytes into a buffer in the same order, as `Recorder.write` takes them."""

        def record(recorder: Recorder, link: RecordedCommands) -> None:
            link.holds += holds
            recorder.write(buffer, offset, data)

        self._run(record)

    def record(self, steps: Sequence[PlacedStep]) -> RecordedCommands:
        """Commands for these steps, to be run any number of times."""
        with self._lock:
            self._check_open()
            commands = self._command_pool().allocate()
            made = RecordedCommands(commands, self._timeline.prepare(commands))
            try:
                with Recorder(commands, simultaneous_use=True) as recorder:
                    self._record(recorder, steps, made)
                    recorder.barrier_all()
            except BaseException:
                self._free(made)
                raise
            self._graphs.add(made)
            return made

    def replay(self, recorded: RecordedCommands) -> None:
        """Run recorded steps, after all that came before; returns at once."""
        with self._lock:
            self._check_open()
            recorded.busy = True
            self._timeline.submit(recorded.submission)
            self.submissions += 1

    def forget(self, recorded: RecordedCommands) -> None:
        """Nobody needs these steps any more. From a finalizer, which may run anywhere: what they
        have is freed with a later submission."""
        self._forgotten.append(recorded)

    def allocate(self, purpose: Purpose, nbytes: int) -> Allocation:
        """Memory; where there is none, what the device still uses is waited for."""
        memory = self._resources.memory
        try:
            return memory.allocate(purpose, nbytes)
        except OutOfMemoryError:
            self.wait()
            return memory.allocate(purpose, nbytes)

    def wait(self) -> None:
        """Return when the device is done with all of it."""
        with self._lock:
            for each in (*self._graphs, *self._links):
                self._wait_for(each)
            self._free_forgotten()

    def wait_for_oldest(self) -> bool:
        """Return when the oldest submission in flight is done; False where there is none."""
        with self._lock:
            oldest = next((link for link in self._links if link.busy), None)
            if oldest is not None:
                self._wait_for(oldest)
            return oldest is not None

    def let_go_of_done(self) -> None:
        """Free what only submissions hold that are done, unless another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for link in self._links:
                if link.busy:
                    if not self._timeline.is_done(link.submission):
                        return
                    self._let_go(link)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait and free; nothing can be submitted afterwards."""
        with self._lock:
            self._closed = True
            interrupt = None
            for each in (*self._graphs, *self._links):
                interrupt = self._timeline.wait_uninterrupted(each.submission) or interrupt
                self._let_go(each)
            self._links.clear()
            self._graphs.clear()
            self._forgotten.clear()
            self._sets.close()
            self._dispatches.close()
            self._opened.close()
        if interrupt is not None:
            raise interrupt

    def _run(self, record: Callable[[Recorder, RecordedCommands], None]) -> None:
        with self._lock:
            self._check_open()
            link = self._link()
            try:
                with Recorder(link.commands) as recorder:
                    record(recorder, link)
                    recorder.barrier_all()
            except BaseException:
                self._let_go(link)
                self._links.appendleft(link)
                raise
            # Whatever becomes of the submission, an interrupt too: the device may have it.
            link.busy = True
            self._links.append(link)
            self._timeline.submit(link.submission)
            self.submissions += 1

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the backend that the arrays lie on is closed")
        if self._forgotten:
            self._free_forgotten()

    def _command_pool(self) -> CommandPool:
        if self._pool is None:
            self._pool = CommandPool(self._resources.device, self._timeline.family)
            self._opened.callback(self._pool.close)
        return self._pool

    def _free_forgotten(self) -> None:
        """Those that the device is done with."""
        for _ in range(len(self._forgotten)):
            recorded = self._forgotten.popleft()
            if recorded.busy and not self._timeline.is_done(recorded.submission):
                self._forgotten.append(recorded)
            elif recorded in self._graphs:
                self._graphs.remove(recorded)
                self._free(recorded)

    def _free(self, recorded: RecordedCommands) -> None:
        self._let_go(recorded)
        self._command_pool().free(recorded.commands)

    def _link(self) -> RecordedCommands:
        """Commands that the device does not use: the oldest where it is done, else new ones."""
        self.let_go_of_done()  # frees arrays as early as may be
        if self._links and (not self._links[0].busy or len(self._links) >= IN_FLIGHT):
            self._wait_for(self._links[0])
            return self._links.popleft()
        commands = self._command_pool().allocate()
        return RecordedCommands(commands, self._timeline.prepare(commands))

    def _wait_for(self, recorded: RecordedCommands) -> None:
        """A link lets go of what it has; a graph will be run again."""
        if not recorded.busy:
            return
        self._timeline.wait(recorded.submission)
        if recorded in self._graphs:
            recorded.busy = False
        else:
            self._let_go(recorded)

    def _let_go(self, recorded: RecordedCommands) -> None:
        """The device is done with it."""
        recorded.busy = False
        self._dispatches.give_back(recorded.dispatches)
        self._sets.give_back(recorded.sets)
        recorded.holds.clear()

    def _record(
        self, recorder: Recorder, steps: Sequence[PlacedStep], into: RecordedCommands
    ) -> None:
        read: set[object] = set()
        written: set[object] = set()
        copied = False
        for step in steps:
            into.holds += step.storages
            if len(steps) > 1:
                copies = isinstance(step.work, Copy)
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
            if isinstance(step.work, Copy):
                recorder.copy([step.work])
            else:
                self._dispatch(recorder, step.work, step.numbers, into)

    def _dispatch(
        self, recorder: Recorder, dispatch: Dispatch, numbers: Sequence[int], into: RecordedCommands
    ) -> None:
        launch = self._dispatches.take(dispatch)
        into.dispatches.append(launch)
        bound = self._sets.take(numbers)
        into.sets.append(bound)
        recorder.launch(launch.pipeline, bound.handles, launch.push, launch.groups)
        self.dispatches += 1
