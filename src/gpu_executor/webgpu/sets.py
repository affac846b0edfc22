"""Buffer sets: all buffers that one task needs, with the bind group made once for them.

inputs, outputs, status word   what the kernel binds
staging                        status word and outputs once more, for the host to read
uniform                        the parameters, where the device has no immediates
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array, Call, Operand
from gpu_executor.errors import DeviceLacksError, ElementRangeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.programs import PARAMETER_BYTES, Program
from gpu_executor.webgpu.waiting import CopyOut, Dispatch, Waiting

STATUS_BYTES = 8
"""In staging: mapped ranges begin at multiples of 8."""
STATUS_CLEAR = b"\xff\xff\xff\xff"


USES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Use:
    """A number of elements in a set: what the kernel is told, and where results are read."""

    count: int
    parameters: bytes
    ranges: tuple[tuple[int, int], ...]
    """Offset in staging and bytes of every output."""
    copies: tuple[CopyOut, ...]
    """From what the kernel wrote to staging."""
    read: int
    """All bytes that are read."""
    grid: tuple[int, int] | None
    """Work-groups, where the kernel says how many."""


class BufferSet:
    """One task at a time uses it."""

    def __init__(
        self,
        device: WebGpuDevice,
        pool: BufferPool,
        kernel: Kernel,
        operands: Sequence[Operand],
        layout: Any,
        waiting: Waiting,
    ) -> None:
        self._device, self._pool, self._kernel = device, pool, kernel
        self._waiting = waiting
        self._uses: dict[tuple[int, bytes], Use] = {}
        self._buffers: list[Any] = []
        try:
            self._make(operands, layout)
        except BaseException:
            self.release()
            raise

    def _make(self, operands: Sequence[Operand], layout: Any) -> None:
        device, kernel = self._device, self._kernel
        usage = device.wgpu.BufferUsage
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
        self.reader = self._waiting.reader(self._staging)
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

    def use(self, call: Call, piece: Piece) -> Use:
        """What a piece of that size needs, worked out once."""
        key = piece.count, call.form.shape_words
        known = self._uses.get(key)
        if known is None:
            if len(self._uses) >= USES_KEPT:
                self._uses.clear()
            known = self._uses[key] = self._make_use(call, piece)
        return known

    def write(self, call: Call, piece: Piece) -> None:
        """Hand the inputs of a piece to the queue, which copies them."""
        for buffer, array in zip(self._inputs, call.inputs, strict=True):
            self._waiting.write(buffer, _in_fours(_part(array, call, piece)))

    def dispatch(self, program: Program, use: Use) -> Dispatch:
        """The kernel on what was written."""
        grid = use.grid
        if grid is None:
            most = self._device.limits["max-compute-workgroups-per-dimension"]
            grid = program.groups(use.count, most)
        if self._uniform is None:
            return Dispatch(self._bind_group, use.parameters, grid)
        self._waiting.write(self._uniform, np.frombuffer(use.parameters, np.uint8))
        return Dispatch(self._bind_group, None, grid)

    def read(self, view: memoryview, call: Call, piece: Piece, *, drop: bool = False) -> None:
        """Copy results to the caller's arrays; raise what the kernel found. Or drop both."""
        if self._status is not None and view[:4] != STATUS_CLEAR:
            (code,) = struct.unpack("<I", view[:4])
            self._clear_status()
            if drop:
                return
            element, argument = divmod(code, self._kernel.inputs)
            raise ElementRangeError(self._kernel.name, argument, piece.start + element, call.job)
        if drop:
            return
        for array, (offset, nbytes) in zip(call.outputs, self.use(call, piece).ranges, strict=True):
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
        self._waiting.write(self._status, np.frombuffer(STATUS_CLEAR, np.uint8))

    def _make_use(self, call: Call, piece: Piece) -> Use:
        kernel, words = self._kernel, call.form.shape_words
        assert kernel.wgsl is not None
        parameters = struct.pack("<I", piece.count) + kernel.wgsl.data + words
        if len(parameters) > PARAMETER_BYTES:
            raise KernelError(
                f"kernel {kernel.name!r} has {len(parameters)} bytes of parameters; there is room "
                f"for {PARAMETER_BYTES}"
            )
        ranges, copies, offset = [], [], STATUS_BYTES
        if self._status is not None:
            copies.append(CopyOut(self._status, self._staging, 0, len(STATUS_CLEAR)))
        whole = kernel.split == "whole"
        for buffer, operand in zip(self._outputs, call.form.operands[kernel.inputs :], strict=True):
            nbytes = operand.nbytes if whole else piece.count * operand.type.nbytes
            ranges.append((offset, nbytes))
            copies.append(CopyOut(buffer, self._staging, offset, padded(nbytes, 4)))
            offset += padded(nbytes, 8)
        grid = None
        if kernel.wgsl_grid is not None:
            grid = kernel.wgsl_grid(*struct.unpack(f"<{len(words) // 4}I", words))
            most = self._device.limits["max-compute-workgroups-per-dimension"]
            if max(grid) > most:
                raise DeviceLacksError(
                    f"{kernel.name}: {max(grid):,} work-groups in one dimension; "
                    f"{self._device.name} starts {most:,} at most"
                )
        parameters = parameters.ljust(PARAMETER_BYTES, b"\0")
        return Use(piece.count, parameters, tuple(ranges), tuple(copies), offset, grid)


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
