"""The scheduler: runs calls as tasks, in groups of one bucket and one submission each.

    calls -> chunks -> groups by bucket -> write inputs -> one submission -> read results

Under a memory limit a task may have to wait for buffers that other threads use. Only a thread that
holds no buffers may wait, or two threads could wait for each other: a thread with tasks in flight
reads their results first.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.calls.call import Call, Operand, Signature
from gpu_executor.errors import ElementRangeError, KernelError, OutOfMemoryError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.plan import ElementRange, Plan
from gpu_executor.telemetry.profile import ActiveProfile
from gpu_executor.telemetry.stages import StageCounters, sum_counters
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.buffer_set import BufferSet, RecordedWork
from gpu_executor.webgpu.buffer_set_caches import Bucket, BucketCache, ExactSizeCache
from gpu_executor.webgpu.chunking import ChunkPlanner
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import Command, DeviceQueue
from gpu_executor.webgpu.parameters import encode_values
from gpu_executor.webgpu.pipelines import (
    PipelineCompiler,
    TunedPipeline,
    check_grid,
    describe_error,
)

MAX_IN_FLIGHT_BYTES = 256 << 20
"""The maximum size in bytes of the buffers of one call's tasks in flight."""

BucketKey = tuple[Kernel, int]
CallChunk = tuple[Call, ElementRange]


@dataclass(slots=True, eq=False)
class Task:
    """A chunk of a call, and the buffer set it runs in."""

    call: Call
    chunk: ElementRange
    bucket: Bucket | None = None
    """The bucket that the set belongs to; None for a set of the exact size."""
    submitted: int = 0
    """When it was submitted, in nanoseconds of `time.perf_counter_ns`."""
    profiled_chunk: int = 0
    """The number of its submission in a profile; 0 without one."""
    _buffers: BufferSet | None = None

    @property
    def buffers(self) -> BufferSet:
        """The buffer set; the task must have one."""
        assert self._buffers is not None
        return self._buffers

    def attach(self, buffers: BufferSet, bucket: Bucket | None = None) -> None:
        """Give the task its buffer set."""
        self.bucket, self._buffers = bucket, buffers

    def detach(self) -> BufferSet | None:
        """Take the buffer set from the task, if it has one."""
        buffers, self._buffers = self._buffers, None
        return buffers


@dataclass(frozen=True, slots=True)
class WgpuPlan(Plan):
    """How a call runs on WebGPU."""

    device: str
    kernel: Kernel
    count: int
    chunks: int
    largest: int
    """Elements of the largest chunk."""
    bucket: int
    """Elements of the bucket of the largest chunk."""
    work_group: int
    per_invocation: int
    code: str
    """Which code of the kernel runs."""

    def __str__(self) -> str:
        lines = [
            f"{self.count:,} elements of {self.kernel.name} on {self.device} by WebGPU: "
            f"{self.chunks:,} {'chunk' if self.chunks == 1 else 'chunks'} of up to "
            f"{self.largest:,}, work-groups of {self.work_group} x {self.per_invocation} elements"
        ]
        if self.kernel.split == "whole":
            lines.append("  - chunks: one, the kernel cannot be chunked")
            lines.append("  - buffers: of the exact sizes of the arrays")
        else:
            why = "a buffer set holds the call" if self.chunks < 2 else "limits of the device"
            lines.append(f"  - chunks: {why}")
            lines.append(
                f"  - buffers: of the bucket of {self.bucket:,} elements, or of the exact size "
                "once that has come again"
            )
        return "\n".join([*lines, f"  - {self.code}"])


class TaskScheduler:
    """Runs calls and owns the caches of buffer sets. Thread-safe."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        pipelines: PipelineCompiler,
        queue: DeviceQueue,
        planner: ChunkPlanner,
    ) -> None:
        self._device, self._pool, self._pipelines = device, pool, pipelines
        self._queue, self._planner = queue, planner
        self.buckets = BucketCache(self._make_bucket_set)
        self.exact = ExactSizeCache()
        self._discarded: list[BufferSet] = []
        """Buffer sets that were discarded. They are referenced until the device is closed, because
        callbacks of their mappings may still run."""
        self._counters = threading.Lock()
        self._stages = StageCounters()
        self.submissions = self.sets_made = 0
        self.profiles = ActiveProfile(device.name)

    def run_single(self, call: Call) -> int:
        """Run one call; return the bytes of the buffers that it needed at once.

        If the exact-size cache has a set for it, nothing else is looked up.
        """
        signature = call.signature
        buffers = self.exact.take(signature)
        if buffers is None:
            return self.run_calls([call])
        nbytes, task = buffers.nbytes, Task(call, ElementRange(0, signature.count))
        task.attach(buffers)
        try:
            work = buffers.find_recorded(call) or self._record_single(task)
            self._submit(work, [task])
            errors = self._finish([task])
        except BaseException:
            self._discard([task])
            raise
        if errors:
            raise errors[0]
        self.count(1, signature.count)
        return nbytes

    def _record_single(self, task: Task) -> RecordedWork:
        """Record a call in a set of its exact size, which keeps what it may submit again."""
        signature = task.call.signature
        bucket = self._planner.find_chunk_bucket(signature, signature.count)
        pipeline = self._pipelines.get(signature.kernel, bucket)
        work = self._record(pipeline, [task])
        # Adaptive boundaries learn from every call. A pipeline that stands in for the tuned one is
        # to be replaced as soon as that is compiled.
        if not self._planner.is_adaptive and pipeline is self._pipelines.find(
            signature.kernel, bucket
        ):
            task.buffers.keep_recorded(work, task.call)
        return work

    def run_calls(self, calls: Sequence[Call]) -> int:
        """Run calls of one kernel, one submission for each group of tasks; return the bytes of the
        buffers that they needed at once.

        While too many bytes are in flight, the oldest group is read before the next is submitted.
        """
        groups = deque(self._group(calls))
        in_flight: deque[list[Task]] = deque()
        errors: list[ElementRangeError] = []
        nbytes = most = 0
        try:
            while groups or in_flight:
                if groups:
                    submitted = self._submit_next(groups, in_flight)
                    nbytes += submitted
                    most = max(most, nbytes)
                    if submitted and (nbytes <= MAX_IN_FLIGHT_BYTES or len(in_flight) == 1):
                        continue
                nbytes -= sum(task.buffers.nbytes for task in in_flight[0])
                errors += self._finish(in_flight[0])
                in_flight.popleft()
        except BaseException:
            for group in in_flight:
                self._discard(group)
            raise
        if errors:  # groups are ordered by size, so the first error need not be of the first job
            raise min(errors, key=lambda error: (error.job or 0, error.index))
        self.count(len(calls), sum(call.signature.count for call in calls))
        return most

    def explain(self, signature: Signature) -> WgpuPlan:
        """Describe how `run_calls` runs one call of a signature."""
        kernel, count = signature.kernel, signature.count
        chunks = self._planner.split(signature) if count else []
        largest = max((chunk.count for chunk in chunks), default=0)
        bucket = self._planner.find_chunk_bucket(signature, largest)
        work_group, per_invocation = self._pipelines.tune(kernel, bucket)
        return WgpuPlan(
            self._device.name, kernel, count, len(chunks), largest, bucket, work_group,
            per_invocation, self._pipelines.describe_code(kernel, spirv=kernel.wgsl is None),
        )  # fmt: skip

    def read_counters(self) -> StageCounters:
        """A copy of the counters and of the nanoseconds by stage."""
        with self._counters:
            return sum_counters([self._stages])

    def prepare(self, kernel: Kernel, size: int) -> int:
        """Make a buffer set for the bucket of that size; return its bytes."""
        bucket = self.buckets.get_or_create(size, kernel)
        buffers = self.buckets.take_set(bucket)
        nbytes = buffers.nbytes
        self.buckets.put_back(bucket, buffers)
        self._pool.offer()
        return nbytes

    def reclaim(self) -> bool:
        """Release one idle buffer set to the pool; return whether there was one."""
        return self.buckets.evict_set() or self.exact.evict_set()

    def clear(self) -> None:
        """Release all idle buffer sets."""
        self.buckets.clear()
        self.exact.clear()

    def _group(self, calls: Sequence[Call]) -> list[tuple[BucketKey, list[CallChunk]]]:
        """Group the chunks of calls by bucket, ordered by size within each bucket."""
        planner = self._planner
        chunks = [
            (planner.find_chunk_bucket(call.signature, chunk.count), call, chunk)
            for call in calls
            for chunk in planner.split(call.signature)
        ]
        chunks.sort(key=lambda entry: (entry[0], entry[2].count))
        groups = []
        for size, entries in itertools.groupby(chunks, key=lambda entry: entry[0]):
            members = [(call, chunk) for _, call, chunk in entries]
            signature = members[0][0].signature
            most = max(1, MAX_IN_FLIGHT_BYTES // (2 * _estimate_set_bytes(signature, size)))
            for start in range(0, len(members), most):
                groups.append(((signature.kernel, size), members[start : start + most]))
        return groups

    def _submit_next(
        self, groups: deque[tuple[BucketKey, list[CallChunk]]], in_flight: deque[list[Task]]
    ) -> int:
        """Submit the first group as one submission; return the bytes of its buffers.

        If memory is short, submit only the tasks that get buffer sets; the other tasks become the
        first group. If no task gets a set and other groups are in flight, submit nothing and return
        0: the caller must read those groups first.
        """
        (kernel, size), members = groups.popleft()
        pipeline, wait = self._pipelines.get(kernel, size), not in_flight
        tasks: list[Task] = []
        in_flight.append(tasks)  # before the tasks get sets, so that an interrupt discards them all
        try:
            for call, chunk in members:
                task = Task(call, chunk)
                tasks.append(task)
                alone = len(members) == 1
                self._attach_set(task, kernel, size, alone=alone, wait=wait and len(tasks) == 1)
        except OutOfMemoryError:
            tasks.pop()
            if not tasks:
                in_flight.pop()
                if wait:
                    raise
            groups.appendleft(((kernel, size), members[len(tasks) :]))
        if not tasks:
            return 0
        self._submit(self._record(pipeline, tasks), tasks)
        return sum(task.buffers.nbytes for task in tasks)

    def _attach_set(
        self, task: Task, kernel: Kernel, size: int, *, alone: bool, wait: bool
    ) -> None:
        """Give a task a buffer set: of its exact size if that size repeats, else of its bucket."""
        signature = task.call.signature
        if (alone and task.chunk.count == signature.count) or kernel.split == "whole":
            exact = self.exact.take(signature)
            if exact is None and (kernel.split == "whole" or self.exact.observe(signature)):
                exact = self._make_set(
                    kernel, signature.operands, signature.scratch_bytes, wait=wait
                )
            if exact is not None:
                task.attach(exact)
                return
        bucket = self.buckets.get_or_create(size, kernel)
        task.attach(self.buckets.take_set(bucket, wait=wait), bucket)

    def _record(self, pipeline: TunedPipeline, tasks: list[Task]) -> RecordedWork:
        """Record the commands of tasks; one compute pass has all of their dispatches."""
        try:
            prepared = [task.buffers.prepare(task.call, task.chunk) for task in tasks]
            dispatches = [fill for each in prepared for fill in each.fills]
            for task, each in zip(tasks, prepared, strict=True):
                call = task.call
                words = encode_values(pipeline.kernel, call.signature.shape_words, call.values)
                grid = self._find_grid(pipeline, task)
                dispatches.append(task.buffers.make_dispatch(pipeline, each, words, grid))
        except BaseException:
            for task in tasks:
                self._put_back(task)  # no inputs were written, and nothing is mapped
            raise
        commands: list[Command] = [
            *(copy for each in prepared for copy in each.copies_in),
            *(clear for each in prepared for clear in each.clears),
            *dispatches,
            *(copy for each in prepared for copy in each.copies_out),
        ]
        return RecordedWork(pipeline.kernel, commands, prepared)

    def _submit(self, work: RecordedWork, tasks: list[Task]) -> None:
        """Write the inputs of tasks and submit their commands."""
        begun, chunk = time.perf_counter_ns(), self._next_profiled_chunk()
        for task in tasks:
            task.buffers.write(task.call, task.chunk)
        submitted = time.perf_counter_ns()
        try:
            submission = self._queue.submit(work.commands)
        except self._device.wgpu.GPUValidationError as error:
            raise KernelError(f"kernel {work.kernel.name!r}: {describe_error(error)}") from None
        for task, each in zip(tasks, work.prepared, strict=True):
            task.buffers.begin_map(each, submission)
            task.submitted, task.profiled_chunk = submitted, chunk
        with self._counters:
            self.submissions += 1
            self._stages.chunks += len(tasks)
            self._stages.upload += submitted - begun
        self._add_span("fill", begun, submitted, chunk)

    def _find_grid(self, pipeline: TunedPipeline, task: Task) -> Grid:
        signature = task.call.signature
        grid = task.call.grid or signature.grid
        if grid is not None:
            check_grid(signature.kernel, grid, self._device)
            return grid
        whole = signature.kernel.split == "whole"
        return pipeline.size_grid(
            signature.invocations if whole else task.chunk.count, self._device
        )

    def _finish(self, group: list[Task]) -> list[ElementRangeError]:
        """Read the results of a group and put its sets back; return the errors of its kernels."""
        errors = []
        begun, chunk = group[0].submitted, group[0].profiled_chunk
        for task in group:  # the tasks of one submission: the device computes all of them at once
            reader = task.buffers.reader
            view = reader.wait()
            computed = time.perf_counter_ns()
            error = task.buffers.read(view, task.call, task.chunk)
            reader.unmap()
            if error is not None:
                errors.append(error)
            self._put_back(task)
            ended = time.perf_counter_ns()
            with self._counters:
                self._stages.compute += computed - begun
                self._stages.download += ended - computed
            self._add_span("compute", begun, computed, chunk)
            self._add_span("drain", computed, ended, chunk)
            begun = ended
        return errors

    def _next_profiled_chunk(self) -> int:
        """The number of the next submission in the active profile; 0 without one."""
        profile = self.profiles.profile
        return 0 if profile is None else profile.next_chunk()

    def _add_span(self, stage: str, begun: int, ended: int, chunk: int) -> None:
        profile = self.profiles.profile
        if profile is not None and chunk:  # what was submitted before the profile has no number
            profile.add_host_span(stage, begun, ended, chunk)

    def _put_back(self, task: Task) -> None:
        buffers = task.detach()
        if buffers is None:
            return
        if task.bucket is None:
            self.exact.put_back(task.call.signature, buffers)
        else:
            self.buckets.put_back(task.bucket, buffers)
        self._pool.offer()

    def _discard(self, group: list[Task]) -> None:
        """Discard the buffer sets of tasks that an error or an interrupt ended: it is unknown which
        of the buffers are mapped.
        """
        for task in group:
            buffers = task.detach()
            if buffers is None:
                continue
            buffers.discard()
            if task.bucket is not None:
                self.buckets.forget_set(task.bucket)
            self._discarded.append(buffers)

    def _make_bucket_set(self, kernel: Kernel, size: int, *, wait: bool) -> BufferSet:
        operands = [
            Operand(argument.type, size, argument.is_input, argument.is_output)
            for argument in kernel.arguments
        ]
        return self._make_set(kernel, operands, 0, wait=wait)

    def _make_set(
        self, kernel: Kernel, operands: Sequence[Operand], scratch_bytes: int, *, wait: bool
    ) -> BufferSet:
        with self._counters:
            self.sets_made += 1
        return BufferSet(
            self._device,
            self._pool,
            self._pipelines,
            self._queue,
            kernel,
            operands,
            scratch_bytes,
            wait=wait,
        )

    def count(self, calls: int, elements: int) -> None:
        """Count calls that ran."""
        with self._counters:
            self._stages.calls += calls
            self._stages.elements += elements


def _estimate_set_bytes(signature: Signature, size: int) -> int:
    """Return the approximate size in bytes of the arrays in a buffer set."""
    if signature.kernel.split == "whole":
        return sum(operand.nbytes for operand in signature.operands) + signature.scratch_bytes
    return size * sum(operand.type.nbytes for operand in signature.operands)
