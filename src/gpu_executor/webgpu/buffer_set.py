"""Buffer sets: all buffers that one task needs, with the bind group for them, which is created
once.

upload     the host writes the inputs here, one after the other
inputs the buffer that the kernel binds as its inputs
outputs the buffer that the kernel binds as its outputs: the status word, then the outputs
staging    the host reads the status word and the outputs here
uniform    the parameters, if the device has no immediates

Where the device shares the host's memory, upload and inputs are one buffer, and so are outputs and
staging: the device copies nothing. With a `PublicQueue` there is no upload buffer either, since the
queue's `write_buffer` copies the inputs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array, Call, Operand, Signature
from gpu_executor.errors import DeviceLacksError, ElementRangeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import remember
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buffer_pool import BufferDescriptor, BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import BoundDispatch, BufferCopy, DeviceQueue
from gpu_executor.webgpu.pipelines import PARAMETER_BYTES, TunedPipeline

ALIGNMENT = 256
"""Alignment in bytes that every device accepts for the offset of a binding."""
VECTOR_BYTES = 16
"""Kernels may access whole vectors of four words, so arrays are padded to multiples of this size in
bytes."""
STATUS_CLEAR = b"\xff\xff\xff\xff"
MAX_PREPARED = 64
"""The number of `TaskCommands` that a buffer set caches."""


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The offsets and sizes of arrays in a buffer, in bytes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    nbytes: int

    @classmethod
    def pack(cls, sizes: Iterable[int], *, start: int = 0) -> BufferLayout:
        """Place arrays of these sizes one after the other, from the byte `start` on."""
        offsets, rounded, end = [], [], start
        for size in sizes:
            offset = _round_up(end, ALIGNMENT)
            offsets.append(offset)
            rounded.append(_round_up(size, VECTOR_BYTES))
            end = offset + rounded[-1]
        return cls(tuple(offsets), tuple(rounded), max(end, VECTOR_BYTES))


def lay_out_buffers(kernel: Kernel, sizes: Sequence[int]) -> tuple[BufferLayout, BufferLayout]:
    """Return the layouts of the inputs and of the outputs, from the sizes of a task's arrays."""
    status = VECTOR_BYTES if kernel.status else 0
    return (
        BufferLayout.pack(sizes[: kernel.inputs]),
        BufferLayout.pack(sizes[kernel.inputs :], start=status),
    )


def describe_buffers(
    inputs: BufferLayout, outputs: BufferLayout, device: WebGpuDevice, *, maps_inputs: bool
) -> dict[str, BufferDescriptor]:
    """Return the descriptors of a set's buffers by name.

    `upload` and `staging` are missing if they are the same buffers as `inputs` and `outputs`.
    """
    usage, shares = device.wgpu.BufferUsage, device.shares_memory
    bound = usage.STORAGE | usage.COPY_DST
    described = {"inputs": (inputs.nbytes, bound)}
    if maps_inputs and shares:
        described["inputs"] = inputs.nbytes, usage.STORAGE | usage.MAP_WRITE
    elif maps_inputs:
        described["upload"] = inputs.nbytes, usage.MAP_WRITE | usage.COPY_SRC
    if shares:
        described["outputs"] = outputs.nbytes, bound | usage.MAP_READ
    else:
        described["outputs"] = outputs.nbytes, bound | usage.COPY_SRC
        described["staging"] = outputs.nbytes, usage.MAP_READ | usage.COPY_DST
    if not device.immediates:
        described["uniform"] = PARAMETER_BYTES, usage.UNIFORM | usage.COPY_DST
    return described


@dataclass(frozen=True, slots=True)
class TaskCommands:
    """The commands to submit for a task of one size in a buffer set: parameters, copies and
    grid.
    """

    count: int
    """Elements of the task."""
    parameters: bytes
    copies_in: tuple[BufferCopy, ...]
    copies_out: tuple[BufferCopy, ...]
    read_bytes: int
    """Bytes that the host reads back."""
    grid: tuple[int, int] | None
    """The grid in work-groups if the kernel computes it; None if the pipeline does."""


class BufferSet:
    """The buffers and the bind group of one task at a time."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        kernel: Kernel,
        operands: Sequence[Operand],
        bind_group_layout: Any,
        queue: DeviceQueue,
        *,
        wait: bool = True,
    ) -> None:
        """With `wait`, wait until other threads release buffers if the memory limit is reached."""
        self._device, self._pool, self._kernel = device, pool, kernel
        sizes = [operand.nbytes for operand in operands]
        self._input_layout, self._output_layout = lay_out_buffers(kernel, sizes)
        self._prepared: dict[tuple[int, bytes], TaskCommands] = {}
        described = describe_buffers(
            self._input_layout, self._output_layout, device, maps_inputs=queue.maps_inputs
        )
        self._buffers = pool.acquire(list(described.values()), wait=wait)
        self.nbytes = 0
        """Size of the buffers in bytes; 0 once they are released."""
        self.last_used = 0
        """When it was put into a cache last, in nanoseconds of `time.monotonic_ns`."""
        try:
            self.nbytes = sum(buffer.size for buffer in self._buffers)
            buffers = dict(zip(described, self._buffers, strict=True))
            self._bind(buffers, bind_group_layout, queue)
        except BaseException:
            self._give_back()  # nothing is mapped yet
            raise

    def _bind(self, buffers: dict[str, Any], bind_group_layout: Any, queue: DeviceQueue) -> None:
        self._inputs, self._outputs = buffers["inputs"], buffers["outputs"]
        self._upload = buffers.get("upload", self._inputs)
        self._staging = buffers.get("staging", self._outputs)
        self._uniform = buffers.get("uniform")
        self.writer, self.reader = queue.make_writer(self._upload), queue.make_reader(self._staging)
        self._queue = self._device.device.queue
        self._status_is_clear = not self._kernel.status
        self._bind_group = self._device.device.create_bind_group(
            layout=bind_group_layout, entries=self._make_bind_group_entries()
        )

    def _make_bind_group_entries(self) -> list[dict[str, Any]]:
        bindings = [
            (buffer, offset, size)
            for buffer, layout in (
                (self._inputs, self._input_layout),
                (self._outputs, self._output_layout),
            )
            for offset, size in zip(layout.offsets, layout.sizes, strict=True)
        ]
        if self._kernel.status:
            bindings.append((self._outputs, 0, VECTOR_BYTES))
        if self._uniform is not None:
            bindings.append((self._uniform, 0, PARAMETER_BYTES))
        return [
            {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for index, (buffer, offset, size) in enumerate(bindings)
        ]

    def prepare(self, call: Call, piece: Piece) -> TaskCommands:
        """Return the commands for a piece; they are computed once for each size."""
        key = piece.count, call.signature.shape_words
        commands = self._prepared.get(key)
        if commands is None:
            commands = self._make_commands(call.signature, piece)
            remember(self._prepared, key, commands, MAX_PREPARED)
        return commands

    def write(self, call: Call, piece: Piece) -> None:
        """Write the inputs of a piece."""
        if not self._status_is_clear:
            self._queue.write_buffer(self._outputs, 0, STATUS_CLEAR)
            self._status_is_clear = True
        for offset, array in zip(self._input_layout.offsets, call.inputs, strict=True):
            self.writer.write(offset, _slice(array, call, piece))
        self.writer.finish()

    def make_dispatch(self, pipeline: TunedPipeline, commands: TaskCommands) -> BoundDispatch:
        """Return the dispatch for the inputs that were written."""
        grid = commands.grid
        if grid is None:
            limit = self._device.limits["max-compute-workgroups-per-dimension"]
            grid = pipeline.size_grid(commands.count, limit)
        if self._uniform is None:
            return BoundDispatch(self._bind_group, commands.parameters, grid)
        self._queue.write_buffer(self._uniform, 0, commands.parameters)
        return BoundDispatch(self._bind_group, None, grid)

    def begin_map(self, commands: TaskCommands, submission: Any) -> None:
        """Begin to map the results and the upload buffer; the mapping completes after the
        submission.
        """
        self.reader.begin_map(commands.read_bytes, submission)
        self.writer.begin_map(submission)

    def read(self, view: memoryview, call: Call, piece: Piece) -> ElementRangeError | None:
        """Copy results to the caller's arrays; return the error if the kernel reported one."""
        if self._kernel.status and view[:4] != STATUS_CLEAR:
            (code,) = struct.unpack("<I", view[:4])
            self._status_is_clear = False
            element, argument = divmod(code, self._kernel.inputs)
            return ElementRangeError(self._kernel.name, argument, piece.start + element, call.job)
        for array, offset in zip(call.outputs, self._output_layout.offsets, strict=True):
            target = _slice(array, call, piece)
            source = np.frombuffer(view, target.dtype.newbyteorder("<"), target.size, offset)
            target[...] = source.reshape(target.shape)
        return None

    def release(self) -> None:
        """Give the buffers back to the pool. No submission may still use them."""
        self.writer.close()
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

    def _make_commands(self, signature: Signature, piece: Piece) -> TaskCommands:
        kernel, words = self._kernel, signature.shape_words
        assert kernel.wgsl is not None
        parameters = struct.pack("<I", piece.count) + kernel.wgsl.data + words
        if len(parameters) > PARAMETER_BYTES:
            raise KernelError(
                f"kernel {kernel.name!r} has {len(parameters)} bytes of parameters; WebGPU kernels "
                f"may have {PARAMETER_BYTES}"
            )
        sizes = [
            operand.nbytes if kernel.split == "whole" else piece.count * operand.type.nbytes
            for operand in signature.operands
        ]
        ins = list(zip(self._input_layout.offsets, sizes[: kernel.inputs], strict=True))
        outs = list(zip(self._output_layout.offsets, sizes[kernel.inputs :], strict=True))
        read_bytes = _round_up(outs[-1][0] + outs[-1][1], 4)
        if kernel.status:  # in one copy with the first output
            outs[0] = 0, outs[0][0] + outs[0][1]
        return TaskCommands(
            piece.count,
            parameters.ljust(PARAMETER_BYTES, b"\0"),
            _make_copies(self._upload, self._inputs, ins),
            _make_copies(self._outputs, self._staging, outs),
            read_bytes,
            self._compute_grid(words),
        )

    def _compute_grid(self, words: bytes) -> tuple[int, int] | None:
        """Return the grid of a kernel that computes it from its shape words."""
        kernel = self._kernel
        if kernel.wgsl_grid is None:
            return None
        grid = kernel.wgsl_grid(*struct.unpack(f"<{len(words) // 4}I", words))
        limit = self._device.limits["max-compute-workgroups-per-dimension"]
        if max(grid) > limit:
            raise DeviceLacksError(
                f"{kernel.name}: the grid needs {max(grid):,} work-groups in one dimension; "
                f"{self._device.name} allows {limit:,}"
            )
        return grid


def _round_up(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _make_copies(
    source: Any, target: Any, ranges: Iterable[tuple[int, int]]
) -> tuple[BufferCopy, ...]:
    """Return a copy for each pair of offset and size; none if both buffers are the same."""
    if source is target:
        return ()
    return tuple(
        BufferCopy(source, target, offset, _round_up(nbytes, 4)) for offset, nbytes in ranges
    )


def _slice(array: Array, call: Call, piece: Piece) -> Array:
    """Return the elements of a piece."""
    if call.signature.kernel.split == "whole" or piece.count == call.signature.count:
        return array
    part: Array = array[piece.start : piece.start + piece.count]
    return part
