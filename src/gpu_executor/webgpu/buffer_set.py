"""Buffer sets: all buffers that one task needs, with the bind groups for them.

`buffer_layout.py` describes the buffers. A bind group binds exactly the range of each array, so it
is created once for each number of elements that a set meets; kernels whose text is `padded` need
one for all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.calls.call import Array, Call, Operand
from gpu_executor.common.lru import remember
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.kernel.parameters import ParameterValues
from gpu_executor.kernel.wgsl import PARAMETER_BYTES
from gpu_executor.plan import ElementRange
from gpu_executor.webgpu.buffer_layout import (
    STATUS_BYTES,
    BufferLayout,
    describe_buffers,
    round_up,
)
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import (
    BoundDispatch,
    BufferClear,
    BufferCopy,
    Command,
    DeviceQueue,
    copy_out,
)
from gpu_executor.webgpu.parameters import encode_fixed
from gpu_executor.webgpu.pipelines import PipelineCompiler, TunedPipeline

STATUS_CLEAR = b"\xff\xff\xff\xff"
MAX_PREPARED = 64
"""The number of `TaskCommands` that a buffer set caches."""


@dataclass(frozen=True, slots=True)
class TaskCommands:
    """The commands to submit for tasks of one size in a buffer set."""

    bind_group: Any
    fixed_parameters: bytes
    """The element count and the words that no call sets."""
    copies_in: tuple[BufferCopy, ...]
    clears: tuple[BufferClear, ...]
    """Outputs that begin as zeros, and the scratch buffer."""
    fills: tuple[BoundDispatch, ...]
    """Outputs that begin with another value."""
    copies_out: tuple[BufferCopy, ...]
    read_bytes: int
    """Bytes that the host reads back."""


@dataclass(frozen=True, slots=True)
class RecordedWork:
    """The commands of one submission, for one task or several of a kernel."""

    kernel: Kernel
    commands: list[Command]
    """In the order in which the device runs them."""
    prepared: list[TaskCommands]
    """Those of each task."""


class BufferSet:
    """The buffers and the bind groups of one task at a time."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        pipelines: PipelineCompiler,
        queue: DeviceQueue,
        kernel: Kernel,
        operands: Sequence[Operand],
        scratch_bytes: int = 0,
        *,
        wait: bool = True,
    ) -> None:
        """With `wait`, wait until other threads release buffers if the memory limit is reached."""
        self._device, self._pool, self._pipelines = device, pool, pipelines
        self._kernel = kernel
        sizes = [operand.nbytes for operand in operands]
        self._layout = BufferLayout.pack(kernel, sizes, scratch_bytes)
        self._prepared: dict[tuple[int, bytes, bytes], TaskCommands] = {}
        self._padded_group: Any = None
        """The bind group for tasks of every size, if the text is padded."""
        described = describe_buffers(self._layout, device, maps_inputs=queue.maps_inputs)
        self._buffers = pool.acquire(list(described.values()), wait=wait)
        self.nbytes = 0
        """Size of the buffers in bytes; 0 once they are released."""
        self.last_used = 0
        """When it was put into a cache last, in nanoseconds of `time.monotonic_ns`."""
        try:
            self.nbytes = sum(buffer.size for buffer in self._buffers)
            buffers = dict(zip(described, self._buffers, strict=True))
            self._inputs, self._outputs = buffers.get("inputs"), buffers["outputs"]
            self._upload = buffers.get("upload", self._inputs)
            self._staging = buffers.get("staging", self._outputs)
            self._scratch, self._uniform = buffers.get("scratch"), buffers.get("uniform")
            self._writer = None if self._upload is None else queue.make_writer(self._upload)
            self.reader = queue.make_reader(self._staging)
            self._queue = self._device.device.queue
            self._status_is_clear = not kernel.status
            self._recorded: tuple[RecordedWork, ParameterValues, Grid | None] | None = None
            """What a set of an exact size submitted last, for which parameters and work-groups of a
            call. Another call of its signature with the same ones may submit it again; the uniform
            buffer still has them then. So whatever makes another dispatch drops it."""
        except BaseException:
            self._give_back()  # nothing is mapped yet
            raise

    def prepare(self, call: Call, chunk: ElementRange) -> TaskCommands:
        """Return the commands for a chunk; they are made once for each size."""
        key = chunk.count, call.signature.shape_words, call.values.given_count
        commands = self._prepared.get(key)
        if commands is None:
            commands = self._make_commands(call, chunk)
            remember(self._prepared, key, commands, MAX_PREPARED)
        return commands

    def keep_recorded(self, work: RecordedWork, call: Call) -> None:
        """Keep what the set submits for a call, for calls that may submit it again."""
        self._recorded = work, call.values, call.grid

    def find_recorded(self, call: Call) -> RecordedWork | None:
        """Return the work that was kept, if a call of the set's signature would record the same."""
        if self._recorded is None:
            return None
        work, values, grid = self._recorded
        return work if call.values == values and call.grid == grid else None

    def write(self, call: Call, chunk: ElementRange) -> None:
        """Write the inputs of a chunk."""
        if not self._status_is_clear:
            self._queue.write_buffer(self._outputs, 0, STATUS_CLEAR)
            self._status_is_clear = True
        if self._writer is not None:
            for offset, array in zip(self._layout.uploads, call.inputs, strict=True):
                self._writer.write(offset, _slice(array, call, chunk))
            self._writer.finish()

    def make_dispatch(
        self, pipeline: TunedPipeline, commands: TaskCommands, values: bytes, grid: Grid
    ) -> BoundDispatch:
        """Return the dispatch. `values` are the words of the call's parameters; a uniform buffer
        gets them now."""
        self._recorded = None
        parameters = (commands.fixed_parameters + values).ljust(pipeline.parameter_bytes, b"\0")
        if self._uniform is None:
            return BoundDispatch(pipeline.pipeline, commands.bind_group, parameters or None, grid)
        self._queue.write_buffer(self._uniform, 0, parameters)
        return BoundDispatch(pipeline.pipeline, commands.bind_group, None, grid)

    def begin_map(self, commands: TaskCommands, submission: Any) -> None:
        """Begin to map the results and the upload buffer; the mapping completes after the
        submission.
        """
        self.reader.begin_map(commands.read_bytes, submission)
        if self._writer is not None:
            self._writer.begin_map(submission)

    def read(self, view: memoryview, call: Call, chunk: ElementRange) -> ElementRangeError | None:
        """Copy results to the caller's arrays; return the error if the kernel reported one."""
        if self._kernel.status and view[:STATUS_BYTES] != STATUS_CLEAR:
            (code,) = struct.unpack("<I", view[:STATUS_BYTES])
            self._status_is_clear = False
            element, argument = divmod(code, max(self._kernel.inputs, 1))
            return ElementRangeError(self._kernel.name, argument, chunk.start + element, call.job)
        for array, offset in zip(call.outputs, self._layout.results, strict=True):
            copy_out(view, offset, _slice(array, call, chunk))
        return None

    def release(self) -> None:
        """Give the buffers back to the pool. No submission may still use them."""
        if self._writer is not None:
            self._writer.close()
        self._give_back()

    def discard(self) -> None:
        """Destroy the buffers, mapped or not; WebGPU keeps those that a submission still uses."""
        for buffer in self._buffers:
            self._pool.destroy(buffer)
        self._buffers.clear()
        self.nbytes = 0

    def _give_back(self) -> None:
        for buffer in self._buffers:
            self._pool.release(buffer)
        self._buffers.clear()
        self.nbytes = 0

    # --- commands ---

    def _make_commands(self, call: Call, chunk: ElementRange) -> TaskCommands:
        signature = call.signature
        count = call.values.given_count or struct.pack("<I", chunk.count)
        sizes = [
            operand.nbytes if self._kernel.split == "whole" else chunk.count * operand.type.nbytes
            for operand in signature.operands
        ]
        returned = [
            size
            for size, argument in zip(sizes, self._kernel.arguments, strict=True)
            if argument.is_output
        ]
        clears, fills = self._make_initializations(sizes)
        return TaskCommands(
            self._bind(sizes),
            encode_fixed(self._kernel, count, signature.shape_words),
            tuple(self._make_copies_in(sizes)),
            clears,
            fills,
            tuple(self._make_copies_out(returned)),
            round_up(self._layout.results[-1] + returned[-1]),
        )

    def _bind(self, sizes: Sequence[int]) -> Any:
        """Return a bind group for arrays of these sizes in bytes."""
        if self._padded_group is not None:
            return self._padded_group
        padded = self._kernel.wgsl is not None and self._kernel.wgsl.padded
        bound = self._layout.sizes if padded else [round_up(size) for size in sizes]
        ranges = [
            (self._outputs if argument.is_output else self._inputs, offset, size)
            for argument, offset, size in zip(
                self._kernel.arguments, self._layout.bound, bound, strict=True
            )
        ]
        if self._scratch is not None:
            ranges.append((self._scratch, 0, self._layout.scratch_bytes))
        if self._kernel.status:
            ranges.append((self._outputs, 0, STATUS_BYTES))
        if self._uniform is not None:
            ranges.append((self._uniform, 0, PARAMETER_BYTES))
        group = self._device.bind(self._pipelines.get_layout(self._kernel), ranges)
        if padded:
            self._padded_group = group
        return group

    def _make_initializations(
        self, sizes: Sequence[int]
    ) -> tuple[tuple[BufferClear, ...], tuple[BoundDispatch, ...]]:
        """Return what sets the outputs and the scratch buffer to their initial values."""
        clears, fills = [], []
        init = iter(self._kernel.init)
        for argument, offset, size in zip(
            self._kernel.arguments, self._layout.bound, sizes, strict=True
        ):
            element = None if argument.is_input else next(init)
            if element is None:
                continue
            if any(element):
                fill = self._pipelines.fill
                group, grid = fill.bind(element, self._outputs, offset, round_up(size))
                fills.append(BoundDispatch(fill.pipeline, group, None, grid))
            else:
                clears.append(BufferClear(self._outputs, offset, round_up(size)))
        if self._scratch is not None:
            clears.append(BufferClear(self._scratch, 0, self._layout.scratch_bytes))
        return tuple(clears), tuple(fills)

    def _make_copies_in(self, sizes: Sequence[int]) -> Iterator[BufferCopy]:
        """Yield the copies from where the host writes to what the kernel binds."""
        uploads = iter(self._layout.uploads)
        for argument, offset, size in zip(
            self._kernel.arguments, self._layout.bound, sizes, strict=True
        ):
            if not argument.is_input:
                continue
            source, target = next(uploads), self._outputs if argument.is_output else self._inputs
            if self._upload is not target:
                yield BufferCopy(self._upload, source, target, offset, round_up(size))

    def _make_copies_out(self, sizes: Sequence[int]) -> Iterator[BufferCopy]:
        """Yield the copies from what the kernel binds to where the host reads."""
        if self._staging is self._outputs:
            return
        for index, (offset, size) in enumerate(zip(self._layout.results, sizes, strict=True)):
            # The status word is copied together with the first result.
            start = 0 if index == 0 and self._kernel.status else offset
            nbytes = round_up(offset + size) - start
            yield BufferCopy(self._outputs, start, self._staging, start, nbytes)


def _slice(array: Array, call: Call, chunk: ElementRange) -> Array:
    """Return the elements of a chunk."""
    if call.signature.kernel.split == "whole" or chunk.count == call.signature.count:
        return array
    part: Array = array[chunk.start : chunk.start + chunk.count]
    return part
