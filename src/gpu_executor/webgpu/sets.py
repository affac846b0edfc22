"""Buffer sets: all buffers that one task needs, with the bind group made once for them.

inputs, outputs, status word   what the kernel binds
staging                        status word and outputs once more, for the host to read
uniform                        the parameters, where the device has no immediates
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_executor.call import Array, Call, Operand
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.programs import PARAMETER_BYTES, Program
from gpu_executor.webgpu.waiting import Readable, Waiting

STATUS_BYTES = 8
"""In staging: mapped ranges begin at multiples of 8."""
STATUS_CLEAR = b"\xff\xff\xff\xff"


class BufferSet:
    """One task at a time uses it."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        kernel: Kernel,
        operands: Sequence[Operand],
        layout: Any,
    ) -> None:
        self._device, self._pool, self._kernel = device, pool, kernel
        usage = device.wgpu.BufferUsage
        self._buffers: list[Any] = []
        self._operands = operands
        self._inputs = [
            self._acquire(operand.nbytes, usage.STORAGE | usage.COPY_DST)
            for operand in operands[: kernel.inputs]
        ]
        self._outputs = [
            self._acquire(operand.nbytes, usage.STORAGE | usage.COPY_SRC)
            for operand in operands[kernel.inputs :]
        ]
        bound = [*self._inputs, *self._outputs]
        self._status: Any = None
        if kernel.status:
            kind = usage.STORAGE | usage.COPY_DST | usage.COPY_SRC
            self._status = self._acquire(len(STATUS_CLEAR), kind)
            self._clear_status()
            bound.append(self._status)
        self._uniform: Any = None
        if not device.immediates:
            self._uniform = self._acquire(PARAMETER_BYTES, usage.UNIFORM | usage.COPY_DST)
            bound.append(self._uniform)
        staged = STATUS_BYTES + sum(padded(o.nbytes, 8) for o in operands[kernel.inputs :])
        self._staging = self._acquire(staged, usage.MAP_READ | usage.COPY_DST)
        self._bind_group = device.device.create_bind_group(
            layout=layout,
            entries=[
                {"binding": index, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
                for index, buffer in enumerate(bound)
            ],
        )

    @property
    def nbytes(self) -> int:
        return sum(buffer.size for buffer in self._buffers)

    def write(self, call: Call, piece: Piece) -> None:
        """Hand the inputs of a piece to the queue, which copies them."""
        queue = self._device.device.queue
        for buffer, array in zip(self._inputs, call.inputs, strict=True):
            queue.write_buffer(buffer, 0, _in_fours(_part(array, call, piece)))

    def dispatch(self, compute_pass: Any, program: Program, call: Call, piece: Piece) -> None:
        """Record the kernel; the program's pipeline is set."""
        parameters = struct.pack("<I", piece.count) + call.form.shape_words
        assert self._kernel.wgsl is not None
        parameters = parameters[:4] + self._kernel.wgsl.data + parameters[4:]
        parameters = parameters.ljust(PARAMETER_BYTES, b"\0")
        compute_pass.set_bind_group(0, self._bind_group)
        if self._uniform is None:
            compute_pass.set_immediates(0, parameters, 0, PARAMETER_BYTES)
        else:
            self._device.device.queue.write_buffer(self._uniform, 0, parameters)
        compute_pass.dispatch_workgroups(*self._grid(program, call, piece))

    def _grid(self, program: Program, call: Call, piece: Piece) -> tuple[int, int]:
        if self._kernel.wgsl_grid is not None:
            words = call.form.shape_words
            return self._kernel.wgsl_grid(*struct.unpack(f"<{len(words) // 4}I", words))
        most = self._device.limits["max-compute-workgroups-per-dimension"]
        return program.groups(piece.count, most)

    def copy_out(self, encoder: Any, call: Call, piece: Piece) -> None:
        """Record the copies to where the host reads."""
        if self._status is not None:
            encoder.copy_buffer_to_buffer(self._status, 0, self._staging, 0, len(STATUS_CLEAR))
        for buffer, (offset, nbytes) in zip(self._outputs, self._ranges(call, piece), strict=True):
            encoder.copy_buffer_to_buffer(buffer, 0, self._staging, offset, padded(nbytes, 4))

    def begin_to_read(self, waiting: Waiting, call: Call, piece: Piece, submitted: Any) -> Readable:
        """Ask for the results to be mapped."""
        end = STATUS_BYTES + sum(padded(nbytes, 8) for _, nbytes in self._ranges(call, piece))
        return waiting.map(self._staging, end, submitted)

    def read(self, view: memoryview, call: Call, piece: Piece) -> None:
        """Copy results to the caller's arrays; raise what the kernel found."""
        if self._status is not None and view[:4] != STATUS_CLEAR:
            (code,) = struct.unpack("<I", view[:4])
            self._clear_status()
            element, argument = divmod(code, self._kernel.inputs)
            raise ElementRangeError(self._kernel.name, argument, piece.start + element, call.job)
        for array, (offset, nbytes) in zip(call.outputs, self._ranges(call, piece), strict=True):
            target = _part(array, call, piece)
            source = np.frombuffer(view, target.dtype, nbytes // target.dtype.itemsize, offset)
            target[...] = source.reshape(target.shape)

    def release(self) -> None:
        """Give the buffers back to the pool."""
        for buffer in self._buffers:
            self._pool.release(buffer)
        self._buffers.clear()

    def _acquire(self, nbytes: int, usage: int) -> Any:
        buffer = self._pool.acquire(nbytes, usage)
        self._buffers.append(buffer)
        return buffer

    def _clear_status(self) -> None:
        self._device.device.queue.write_buffer(self._status, 0, STATUS_CLEAR)

    def _ranges(self, call: Call, piece: Piece) -> list[tuple[int, int]]:
        """Offset in staging and bytes of every output of a piece."""
        ranges, offset = [], STATUS_BYTES
        for operand in call.form.operands[self._kernel.inputs :]:
            whole = self._kernel.split == "whole"
            nbytes = operand.nbytes if whole else piece.count * operand.type.nbytes
            ranges.append((offset, nbytes))
            offset += padded(nbytes, 8)
        return ranges


def padded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _part(array: Array, call: Call, piece: Piece) -> Array:
    if call.form.kernel.split == "whole" or piece.count == call.form.count:
        return array
    part: Array = array[piece.start : piece.start + piece.count]
    return part


def _in_fours(array: Array) -> Array:
    """The array as the queue takes it: in one run, little-endian, in multiples of four bytes."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if plain.nbytes % 4 == 0:
        return plain
    room = np.zeros(padded(plain.nbytes, 4), np.uint8)
    room[: plain.nbytes] = plain.reshape(-1).view(np.uint8)
    return room
