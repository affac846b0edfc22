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
from gpu_executor.lru import remember
from gpu_executor.plan import Piece
from gpu_executor.webgpu.buffers import BufferPool, Wanted
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import BoundDispatch, BufferCopy, DeviceQueue
from gpu_executor.webgpu.programs import PARAMETER_BYTES, Program

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


def wanted_buffers(
    ins: Region, outs: Region, device: WebGpuDevice, *, maps_inputs: bool
) -> dict[str, Wanted]:
    """The buffers of a set by their names; one that is not there is the same as another."""
    usage, shares = device.wgpu.BufferUsage, device.shares_memory
    bound = usage.STORAGE | usage.COPY_DST
    wanted = {"inputs": (ins.nbytes, bound)}
    if maps_inputs and shares:
        wanted["inputs"] = ins.nbytes, usage.STORAGE | usage.MAP_WRITE
    elif maps_inputs:
        wanted["upload"] = ins.nbytes, usage.MAP_WRITE | usage.COPY_SRC
    if shares:
        wanted["outputs"] = outs.nbytes, bound | usage.MAP_READ
    else:
        wanted["outputs"] = outs.nbytes, bound | usage.COPY_SRC
        wanted["staging"] = outs.nbytes, usage.MAP_READ | usage.COPY_DST
    if not device.immediates:
        wanted["uniform"] = PARAMETER_BYTES, usage.UNIFORM | usage.COPY_DST
    return wanted


@dataclass(frozen=True, slots=True)
class Use:
    """A number of elements in a set: what the kernel is told, and what is copied."""

    count: int
    parameters: bytes
    copies_in: tuple[BufferCopy, ...]
    copies_out: tuple[BufferCopy, ...]
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
        queue: DeviceQueue,
        *,
        wait: bool = True,
    ) -> None:
        """`wait`: for memory that others use, where there is a limit."""
        self._device, self._pool, self._kernel = device, pool, kernel
        self._in, self._out = regions(kernel, [operand.nbytes for operand in operands])
        self._uses: dict[tuple[int, bytes], Use] = {}
        wanted = wanted_buffers(self._in, self._out, device, maps_inputs=queue.maps_inputs)
        self._buffers = pool.acquire(list(wanted.values()), wait=wait)
        self.nbytes = 0
        """Of its buffers, as long as it has them."""
        try:
            self.nbytes = sum(buffer.size for buffer in self._buffers)
            self._make(dict(zip(wanted, self._buffers, strict=True)), layout, queue)
        except BaseException:
            self._give_back()  # nothing is mapped yet
            raise

    def _make(self, made: dict[str, Any], layout: Any, queue: DeviceQueue) -> None:
        self._inputs, self._outputs = made["inputs"], made["outputs"]
        self._upload = made.get("upload", self._inputs)
        self._staging = made.get("staging", self._outputs)
        self._uniform = made.get("uniform")
        self.writer, self.reader = queue.make_writer(self._upload), queue.make_reader(self._staging)
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
        if self._uniform is not None:
            bound.append((self._uniform, 0, PARAMETER_BYTES))
        return [
            {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for index, (buffer, offset, size) in enumerate(bound)
        ]

    def use(self, call: Call, piece: Piece) -> Use:
        """What a piece of that size needs, worked out once."""
        key = piece.count, call.form.shape_words
        known = self._uses.get(key)
        if known is None:
            known = self._make_use(call.form, piece)
            remember(self._uses, key, known, USES_KEPT)
        return known

    def write(self, call: Call, piece: Piece) -> None:
        """Write the inputs of a piece for the device."""
        if not self._status_is_clear:
            self._queue.write_buffer(self._outputs, 0, STATUS_CLEAR)
            self._status_is_clear = True
        for offset, array in zip(self._in.offsets, call.inputs, strict=True):
            self.writer.write(offset, _part(array, call, piece))
        self.writer.finish()

    def dispatch(self, program: Program, use: Use) -> BoundDispatch:
        """The kernel on what was written."""
        grid = use.grid
        if grid is None:
            most = self._device.limits["max-compute-workgroups-per-dimension"]
            grid = program.groups(use.count, most)
        if self._uniform is None:
            return BoundDispatch(self._bind_group, use.parameters, grid)
        self._queue.write_buffer(self._uniform, 0, use.parameters)
        return BoundDispatch(self._bind_group, None, grid)

    def begin(self, use: Use, submission: Any) -> None:
        """The device has it now: begin to map what can be read, and written, when it is done."""
        self.reader.begin_map(use.read, submission)
        self.writer.begin_map(submission)

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
            self._pool.destroy(buffer)
        self._buffers.clear()
        self.nbytes = 0

    def _give_back(self) -> None:
        for buffer in self._buffers:
            self._pool.release(buffer)
        self._buffers.clear()
        self.nbytes = 0

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


def _copies(source: Any, target: Any, places: Iterable[tuple[int, int]]) -> tuple[BufferCopy, ...]:
    """None where both are one buffer."""
    if source is target:
        return ()
    return tuple(BufferCopy(source, target, offset, padded(nbytes, 4)) for offset, nbytes in places)


def _part(array: Array, call: Call, piece: Piece) -> Array:
    if call.form.kernel.split == "whole" or piece.count == call.form.count:
        return array
    part: Array = array[piece.start : piece.start + piece.count]
    return part
