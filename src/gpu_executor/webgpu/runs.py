"""Runs: calls carried out as tasks, in groups of one bucket and one submission each.

calls -> pieces -> groups by bucket -> sets written -> one submission -> sets read, given back
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
from gpu_executor.webgpu.exact import ExactCache
from gpu_executor.webgpu.programs import Program, Programs
from gpu_executor.webgpu.sets import BufferSet
from gpu_executor.webgpu.waiting import Waiting

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
    bucket: Bucket | None
    """None where the set is an exact one."""
    buffers: BufferSet


class Runs:
    """Safe from several threads."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        programs: Programs,
        waiting: Waiting,
        cutting: Cutting,
    ) -> None:
        self._device, self._pool, self._programs = device, pool, programs
        self._waiting, self._cutting = waiting, cutting
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
        size = self._cutting.bucket_size(form, form.count)
        task = Task(call, Piece(0, form.count), None, buffers)
        found = self._finish(self._submit_tasks(self._programs.get(form.kernel, size), [task]))
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
                group = self._submit(groups, wait=not flying) if groups else None
                if group is not None:
                    flying.append(group)
                    nbytes += sum(task.buffers.nbytes for task in group)
                    if nbytes <= IN_FLIGHT_BYTES or len(flying) == 1:
                        continue
                done = flying.popleft()
                nbytes -= sum(task.buffers.nbytes for task in done)
                found += self._finish(done)
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

    def _submit(self, groups: deque[tuple[Key, list[Part]]], *, wait: bool) -> list[Task] | None:
        """The first group, with one encoder, one pass and one submission.

        Where memory is short, as much of it as there are sets for. For none at all it waits, if it
        may; None where others of its own are in flight, which are to be read first.
        """
        (kernel, size), parts = groups.popleft()
        program = self._programs.get(kernel, size)
        tasks: list[Task] = []
        single = len(parts) == 1
        try:
            for call, piece in parts:
                alone = wait and not tasks
                tasks.append(self._task(kernel, size, call, piece, single=single, wait=alone))
        except OutOfMemoryError:
            if not tasks and wait:
                raise
            groups.appendleft(((kernel, size), parts[len(tasks) :]))
            if not tasks:
                return None
        except BaseException:
            self._abandon(tasks)
            raise
        return self._submit_tasks(program, tasks)

    def _submit_tasks(self, program: Program, tasks: list[Task]) -> list[Task]:
        try:
            uses = [task.buffers.use(task.call, task.piece) for task in tasks]
        except BaseException:
            for task in tasks:
                self._put_back(task)  # nothing was done with them
            raise
        try:
            dispatches = []
            for task, use in zip(tasks, uses, strict=True):
                task.buffers.write(task.call, task.piece)
                dispatches.append(task.buffers.dispatch(program, use))
            copies_in = [copy for use in uses for copy in use.copies_in]
            copies_out = [copy for use in uses for copy in use.copies_out]
            submitted = self._waiting.submit(program.pipeline, copies_in, dispatches, copies_out)
            for task, use in zip(tasks, uses, strict=True):
                task.buffers.begin(use, submitted)
        except BaseException:
            self._abandon(tasks)
            raise
        with self._counting:
            self.submissions += 1
            self.tasks += len(tasks)
        return tasks

    def _task(
        self, kernel: Kernel, size: int, call: Call, piece: Piece, *, single: bool, wait: bool
    ) -> Task:
        form = call.form
        if (single and piece.count == form.count) or kernel.split == "whole":
            exact = self.exact.take(form)
            if exact is None and (kernel.split == "whole" or self.exact.comes_again(form)):
                exact = self._make_set(kernel, form.operands, wait=wait)
            if exact is not None:
                return Task(call, piece, None, exact)
        bucket = self.buckets.get_or_create(size, kernel)
        return Task(call, piece, bucket, self.buckets.take_set(bucket, wait=wait))

    def _finish(self, group: list[Task]) -> list[ElementRangeError]:
        """Read the results of a group, and give its sets back; what its kernels found."""
        found = []
        for done, task in enumerate(group):
            try:
                reader = task.buffers.reader
                error = task.buffers.read(reader.wait(), task.call, task.piece)
                reader.end()
            except BaseException:
                self._abandon(group[done:])
                raise
            if error is not None:
                found.append(error)
            self._put_back(task)
        return found

    def _put_back(self, task: Task) -> None:
        if task.bucket is None:
            self.exact.put_back(task.call.form, task.buffers)
        else:
            self.buckets.put_back(task.bucket, task.buffers)
        self._pool.look_again()

    def _abandon(self, group: list[Task]) -> None:
        """Forget tasks, and their sets with them: where an error or an interrupt came, nobody knows
        which buffers are mapped."""
        for task in group:
            task.buffers.discard()
            if task.bucket is not None:
                self.buckets.lose_set(task.bucket)
            self._lost.append(task.buffers)

    def _bucket_set(self, kernel: Kernel, bucket: int, *, wait: bool) -> BufferSet:
        types = kernel.types
        assert types is not None, "kernels for WebGPU name their types"
        return self._make_set(kernel, [Operand(type_, bucket) for type_ in types], wait=wait)

    def _make_set(self, kernel: Kernel, operands: Sequence[Operand], *, wait: bool) -> BufferSet:
        with self._counting:
            self.sets += 1
        layout = self._programs.layout(kernel)
        return BufferSet(
            self._device, self._pool, kernel, operands, layout, self._waiting, wait=wait
        )

    def _count(self, calls: int, elements: int) -> None:
        with self._counting:
            self.calls += calls
            self.elements += elements


def _bytes_of_set(form: Form, size: int) -> int:
    """About what a buffer set takes: inputs, outputs and staging."""
    if form.kernel.split == "whole":
        return sum(operand.nbytes for operand in form.operands)
    return size * sum(operand.type.nbytes for operand in form.operands)
