"""Runs: calls carried out as tasks, in groups of one bucket and one submission each.

    calls -> pieces -> groups by bucket -> sets written -> one submission -> sets read, given back

Under a memory limit a set may have to wait for others' buffers. Only who has none may wait: a run
that has tasks in flight reads those first.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.call import Call, Form, Operand
from gpu_executor.errors import ElementRangeError, OutOfMemoryError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buckets import Bucket, BucketCache
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.cutting import Cutting
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import DeviceQueue
from gpu_executor.webgpu.exact import ExactCache
from gpu_executor.webgpu.programs import Program, Programs
from gpu_executor.webgpu.sets import BufferSet

IN_FLIGHT_BYTES = 256 << 20
"""Buffers of tasks that were submitted and not read yet."""

Key = tuple[Kernel, int]
"""A bucket's."""
Part = tuple[Call, Piece]


@dataclass(slots=True, eq=False)
class Task:
    """A piece of a call on its way through a buffer set."""

    call: Call
    piece: Piece
    bucket: Bucket | None = None
    """None where the set is an exact one."""
    _buffers: BufferSet | None = None
    """Until it is given back or lost."""

    @property
    def buffers(self) -> BufferSet:
        assert self._buffers is not None
        return self._buffers

    def take(self, buffers: BufferSet, bucket: Bucket | None = None) -> None:
        self.bucket, self._buffers = bucket, buffers

    def part(self) -> BufferSet | None:
        """Part with the set, if it has one."""
        buffers, self._buffers = self._buffers, None
        return buffers


class Runs:
    """Safe from several threads."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        programs: Programs,
        queue: DeviceQueue,
        cutting: Cutting,
    ) -> None:
        self._device, self._pool, self._programs = device, pool, programs
        self._queue, self._cutting = queue, cutting
        self.buckets = BucketCache(self._bucket_set)
        self.exact = ExactCache()
        self._lost: list[BufferSet] = []
        """Kept until the device is closed: their buffers may yet call back."""
        self._counting = threading.Lock()
        self.calls = self.elements = self.tasks = self.submissions = self.sets = 0

    def run_single(self, call: Call) -> None:
        """A call that comes again at its size has all that it needs at hand."""
        form = call.form
        buffers = self.exact.take(form)
        if buffers is None:
            self.run_calls([call])
            return
        task = Task(call, Piece(0, form.count))
        task.take(buffers)
        try:
            size = self._cutting.bucket_size(form, form.count)
            self._submit(self._programs.get(form.kernel, size), [task])
            found = self._finish([task])
        except BaseException:
            self._abandon([task])
            raise
        if found:
            raise found[0]
        self._count(1, form.count)

    def run_calls(self, calls: Sequence[Call]) -> None:
        """Submit group after group; read the oldest when much is in flight, the rest at the end."""
        groups = deque(self._groups(calls))
        flying: deque[list[Task]] = deque()
        found: list[ElementRangeError] = []
        nbytes = 0
        try:
            while groups or flying:
                if groups:
                    begun = self._begin(groups, flying)
                    nbytes += begun
                    if begun and (nbytes <= IN_FLIGHT_BYTES or len(flying) == 1):
                        continue
                nbytes -= sum(task.buffers.nbytes for task in flying[0])
                found += self._finish(flying[0])
                flying.popleft()
        except BaseException:
            for group in flying:
                self._abandon(group)
            raise
        if found:  # groups are by size; who called thinks in jobs
            raise min(found, key=lambda error: (error.job or 0, error.index))
        self._count(len(calls), sum(call.form.count for call in calls))

    def warm_up(self, kernel: Kernel, bucket: int) -> None:
        """Make a buffer set for tasks in a bucket."""
        made = self.buckets.get_or_create(bucket, kernel)
        self.buckets.put_back(made, self.buckets.take_set(made))
        self._pool.offer()

    def reclaim(self) -> bool:
        """Give up a buffer set that is kept for later; whether there was one."""
        return self.buckets.give_up_set() or self.exact.give_up_set()

    def clear(self) -> None:
        """Give up all that are kept."""
        self.buckets.clear()
        self.exact.clear()

    def _groups(self, calls: Sequence[Call]) -> list[tuple[Key, list[Part]]]:
        """Pieces by bucket, and within it by size."""
        cutting = self._cutting
        pieces = [
            (cutting.bucket_size(call.form, piece.count), call, piece)
            for call in calls
            for piece in cutting.pieces(call.form)
        ]
        pieces.sort(key=lambda entry: (entry[0], entry[2].count))
        groups = []
        for size, group in itertools.groupby(pieces, key=lambda entry: entry[0]):
            among = [(call, piece) for _, call, piece in group]
            form = among[0][0].form
            most = max(1, IN_FLIGHT_BYTES // (2 * _bytes_of_set(form, size)))
            for start in range(0, len(among), most):
                groups.append(((form.kernel, size), among[start : start + most]))
        return groups

    def _begin(self, groups: deque[tuple[Key, list[Part]]], flying: deque[list[Task]]) -> int:
        """Submit the first group, with one encoder, one pass and one submission; the bytes of it.

        Where memory is short, as much of it as there are sets for: the rest is the first group
        then. None at all where others are in flight, which are to be read first.
        """
        (kernel, size), parts = groups.popleft()
        program, wait = self._programs.get(kernel, size), not flying
        tasks: list[Task] = []
        flying.append(tasks)  # before they have anything, so that nothing is forgotten
        try:
            for call, piece in parts:
                task = Task(call, piece)
                tasks.append(task)
                alone = len(parts) == 1
                self._equip(task, kernel, size, alone=alone, wait=wait and len(tasks) == 1)
        except OutOfMemoryError:
            tasks.pop()
            if not tasks:
                flying.pop()
                if wait:
                    raise
            groups.appendleft(((kernel, size), parts[len(tasks) :]))
        if not tasks:
            return 0
        self._submit(program, tasks)
        return sum(task.buffers.nbytes for task in tasks)

    def _equip(self, task: Task, kernel: Kernel, size: int, *, alone: bool, wait: bool) -> None:
        """With a set: one of just its size if that comes again, else one of its bucket."""
        form = task.call.form
        if (alone and task.piece.count == form.count) or kernel.split == "whole":
            exact = self.exact.take(form)
            if exact is None and (kernel.split == "whole" or self.exact.comes_again(form)):
                exact = self._make_set(kernel, form.operands, wait=wait)
            if exact is not None:
                task.take(exact)
                return
        bucket = self.buckets.get_or_create(size, kernel)
        task.take(self.buckets.take_set(bucket, wait=wait), bucket)

    def _submit(self, program: Program, tasks: list[Task]) -> None:
        try:
            uses = [task.buffers.use(task.call, task.piece) for task in tasks]
        except BaseException:
            for task in tasks:
                self._put_back(task)  # nothing was done with them
            raise
        dispatches = []
        for task, use in zip(tasks, uses, strict=True):
            task.buffers.write(task.call, task.piece)
            dispatches.append(task.buffers.dispatch(program, use))
        copies_in = [copy for use in uses for copy in use.copies_in]
        copies_out = [copy for use in uses for copy in use.copies_out]
        submission = self._queue.submit(program.pipeline, copies_in, dispatches, copies_out)
        for task, use in zip(tasks, uses, strict=True):
            task.buffers.begin(use, submission)
        with self._counting:
            self.submissions += 1
            self.tasks += len(tasks)

    def _finish(self, group: list[Task]) -> list[ElementRangeError]:
        """Read the results of a group, and give its sets back; what its kernels found."""
        found = []
        for task in group:
            reader = task.buffers.reader
            error = task.buffers.read(reader.wait(), task.call, task.piece)
            reader.unmap()
            if error is not None:
                found.append(error)
            self._put_back(task)
        return found

    def _put_back(self, task: Task) -> None:
        buffers = task.part()
        if buffers is None:
            return
        if task.bucket is None:
            self.exact.put_back(task.call.form, buffers)
        else:
            self.buckets.put_back(task.bucket, buffers)
        self._pool.offer()

    def _abandon(self, group: list[Task]) -> None:
        """Forget tasks, and the sets that they still have: where an error or an interrupt came,
        nobody knows which buffers are mapped."""
        for task in group:
            buffers = task.part()
            if buffers is None:
                continue
            buffers.discard()
            if task.bucket is not None:
                self.buckets.lose_set(task.bucket)
            self._lost.append(buffers)

    def _bucket_set(self, kernel: Kernel, bucket: int, *, wait: bool) -> BufferSet:
        types = kernel.types
        assert types is not None, "kernels for WebGPU name their types"
        return self._make_set(kernel, [Operand(type_, bucket) for type_ in types], wait=wait)

    def _make_set(self, kernel: Kernel, operands: Sequence[Operand], *, wait: bool) -> BufferSet:
        with self._counting:
            self.sets += 1
        layout = self._programs.layout(kernel)
        return BufferSet(self._device, self._pool, kernel, operands, layout, self._queue, wait=wait)

    def _count(self, calls: int, elements: int) -> None:
        with self._counting:
            self.calls += calls
            self.elements += elements


def _bytes_of_set(form: Form, size: int) -> int:
    """About what a buffer set takes: inputs, outputs and staging."""
    if form.kernel.split == "whole":
        return sum(operand.nbytes for operand in form.operands)
    return size * sum(operand.type.nbytes for operand in form.operands)
