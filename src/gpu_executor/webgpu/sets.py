"""Buffer sets: all buffers that one task needs, with the bind group made once for them.

upload     where the host writes the inputs, one after the other
inputs     what the kernel binds of them
outputs    what the kernel binds: the status word, then the outputs
staging    where the host reads both
uniform    the parameters, where the device has no immediates

Where the device shares its memory with the host, upload and inputs are one buffer, and so are
outputs and staging: nothing is copied but by the host. Writers that go through the queue need no
upload buffer either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array, Call, Form, Operand
from gpu_executor.errors import DeviceLacksError, ElementRangeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.programs import PARAMETER_BYTES, Program
from gpu_executor.webgpu.waiting import Copy, Dispatch, Waiting

ALIGNMENT = 256
"""Bindings may begin at its multiples on every device."""
VECTOR_BYTES = 16
"""Kernels may work on whole vectors of four words."""
STATUS_CLEAR = b"\xff\xff\xff\xff"
USES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Region:
    """Where arrays lie in a buffer."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, sizes: Iterable[int], *, first: int = 0) -> Region:
        """One after the other, from a first place on."""
        offsets, rounded, end = [], [], first
        for size in sizes:
            start = padded(end, ALIGNMENT)
            offsets.append(start)
            rounded.append(padded(size, VECTOR_BYTES))
            end = start + rounded[-1]
        return cls(tuple(offsets), tuple(rounded), max(end, VECTOR_BYTES))


def regions(kernel: Kernel, sizes: Sequence[int]) -> tuple[Region, Region]:
    """The regions of a set's inputs and outputs, by the bytes of its arrays."""
    first = VECTOR_BYTES if kernel.status else 0
    return Region.of(sizes[: kernel.inputs]), Region.of(sizes[kernel.inputs :], first=first)


def fits(kernel: Kernel, sizes: Sequence[int], device: WebGpuDevice) -> bool:
    """Whether a device can have a set for arrays of so many bytes."""
    both = regions(kernel, sizes)
    return (
        max(size for region in both for size in region.sizes) <= device.most_bound
        and max(region.nbytes for region in both) <= device.most_in_buffer
    )


@dataclass(frozen=True, slots=True)
class Use:
    """A number of elements in a set: what the kernel is told, and what is copied."""

    count: int
    parameters: bytes
    copies_in: tuple[Copy, ...]
    copies_out: tuple[Copy, ...]
    read: int
    """All bytes that the host reads."""
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
        self._in, self._out = regions(kernel, [operand.nbytes for operand in operands])
        self._uses: dict[tuple[int, bytes], Use] = {}
        self._buffers: list[Any] = []
        try:
            self._make(layout, waiting)
        except BaseException:
            self._give_back()  # nothing is mapped yet
            raise

    def _make(self, layout: Any, waiting: Waiting) -> None:
        usage, shares = self._device.wgpu.BufferUsage, self._device.shares_memory
        if not waiting.maps_inputs:
            self._inputs = self._acquire(self._in, usage.STORAGE | usage.COPY_DST)
            self._upload = self._inputs
        elif shares:
            self._inputs = self._acquire(self._in, usage.STORAGE | usage.MAP_WRITE)
            self._upload = self._inputs
        else:
            self._inputs = self._acquire(self._in, usage.STORAGE | usage.COPY_DST)
            self._upload = self._acquire(self._in, usage.MAP_WRITE | usage.COPY_SRC)
        written = usage.STORAGE | usage.COPY_DST
        if shares:
            self._outputs = self._acquire(self._out, written | usage.MAP_READ)
            self._staging = self._outputs
        else:
            self._outputs = self._acquire(self._out, written | usage.COPY_SRC)
            self._staging = self._acquire(self._out, usage.MAP_READ | usage.COPY_DST)
        self.writer, self.reader = waiting.writer(self._upload), waiting.reader(self._staging)
        self._queue = self._device.device.queue
        self._status_is_clear = not self._kernel.status
        self._bind_group = self._device.device.create_bind_group(
            layout=layout, entries=self._entries()
        )

    def _entries(self) -> list[dict[str, Any]]:
        bound = [(self._inputs, *place) for place in _places(self._in)]
        bound += [(self._outputs, *place) for place in _places(self._out)]
        if self._kernel.status:
            bound.append((self._outputs, 0, VECTOR_BYTES))
        self._uniform: Any = None
        if not self._device.immediates:
            usage = self._device.wgpu.BufferUsage
            room = Region.of([PARAMETER_BYTES])
            self._uniform = self._acquire(room, usage.UNIFORM | usage.COPY_DST)
            bound.append((self._uniform, 0, PARAMETER_BYTES))
        return [
            {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for index, (buffer, offset, size) in enumerate(bound)
        ]

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
            known = self._uses[key] = self._make_use(call.form, piece)
        return known

    def write(self, call: Call, piece: Piece) -> None:
        """Write the inputs of a piece for the device."""
        if not self._status_is_clear:
            self._queue.write_buffer(self._outputs, 0, STATUS_CLEAR)
            self._status_is_clear = True
        for offset, array in zip(self._in.offsets, call.inputs, strict=True):
            self.writer.write(offset, _part(array, call, piece))
        self.writer.end()

    def dispatch(self, program: Program, use: Use) -> Dispatch:
        """The kernel on what was written."""
        grid = use.grid
        if grid is None:
            most = self._device.limits["max-compute-workgroups-per-dimension"]
            grid = program.groups(use.count, most)
        if self._uniform is None:
            return Dispatch(self._bind_group, use.parameters, grid)
        self._queue.write_buffer(self._uniform, 0, use.parameters)
        return Dispatch(self._bind_group, None, grid)

    def begin(self, use: Use, submitted: Any) -> None:
        """The device has it now: begin to map what can be read, and written, when it is done."""
        self.reader.begin(use.read, submitted)
        self.writer.begin(submitted)

    def read(self, view: memoryview, call: Call, piece: Piece) -> ElementRangeError | None:
        """Copy results to the caller's arrays; or return what the kernel found."""
        if self._kernel.status and view[:4] != STATUS_CLEAR:
            (code,) = struct.unpack("<I", view[:4])
            self._status_is_clear = False
            element, argument = divmod(code, self._kernel.inputs)
            return ElementRangeError(self._kernel.name, argument, piece.start + element, call.job)
        for array, offset in zip(call.outputs, self._out.offsets, strict=True):
            target = _part(array, call, piece)
            source = np.frombuffer(view, target.dtype.newbyteorder("<"), target.size, offset)
            target[...] = source.reshape(target.shape)
        return None

    def release(self) -> None:
        """Give the buffers back to the pool."""
        self.writer.close()
        self._give_back()

    def discard(self) -> None:
        """Destroy the buffers, whatever became of them; the device keeps what it still uses."""
        for buffer in self._buffers:
            buffer.destroy()
        self._buffers.clear()

    def _give_back(self) -> None:
        for buffer in self._buffers:
            self._pool.release(buffer)
        self._buffers.clear()

    def _acquire(self, region: Region, usage: int) -> Any:
        buffer = self._pool.acquire(region.nbytes, usage)
        self._buffers.append(buffer)
        return buffer

    def _make_use(self, form: Form, piece: Piece) -> Use:
        kernel, words = self._kernel, form.shape_words
        assert kernel.wgsl is not None
        parameters = struct.pack("<I", piece.count) + kernel.wgsl.data + words
        if len(parameters) > PARAMETER_BYTES:
            raise KernelError(
                f"kernel {kernel.name!r} has {len(parameters)} bytes of parameters; there is room "
                f"for {PARAMETER_BYTES}"
            )
        sizes = [
            operand.nbytes if kernel.split == "whole" else piece.count * operand.type.nbytes
            for operand in form.operands
        ]
        ins = list(zip(self._in.offsets, sizes[: kernel.inputs], strict=True))
        outs = list(zip(self._out.offsets, sizes[kernel.inputs :], strict=True))
        read = padded(outs[-1][0] + outs[-1][1], 4)
        if kernel.status:  # in one copy with the first output
            outs[0] = 0, outs[0][0] + outs[0][1]
        return Use(
            piece.count,
            parameters.ljust(PARAMETER_BYTES, b"\0"),
            _copies(self._upload, self._inputs, ins),
            _copies(self._outputs, self._staging, outs),
            read,
            self._grid(words),
        )

    def _grid(self, words: bytes) -> tuple[int, int] | None:
        """The work-groups of kernels that say how many they need."""
        kernel = self._kernel
        if kernel.wgsl_grid is None:
            return None
        grid = kernel.wgsl_grid(*struct.unpack(f"<{len(words) // 4}I", words))
        most = self._device.limits["max-compute-workgroups-per-dimension"]
        if max(grid) > most:
            raise DeviceLacksError(
                f"{kernel.name}: {max(grid):,} work-groups in one dimension; "
                f"{self._device.name} starts {most:,} at most"
            )
        return grid


def padded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _places(region: Region) -> Iterable[tuple[int, int]]:
    return zip(region.offsets, region.sizes, strict=True)


def _copies(source: Any, target: Any, places: Iterable[tuple[int, int]]) -> tuple[Copy, ...]:
    """None where both are one buffer."""
    if source is target:
        return ()
    return tuple(Copy(source, target, offset, padded(nbytes, 4)) for offset, nbytes in places)


def _part(array: Array, call: Call, piece: Piece) -> Array:
    if call.form.kernel.split == "whole" or piece.count == call.form.count:
        return array
    part: Array = array[piece.start : piece.start + piece.count]
    return part
