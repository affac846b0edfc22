"""The layout of a buffer set: which buffers it has, and where each argument lies in them.

upload     the host writes the inputs and the in-out arguments here, one after the other
inputs     the buffer that the kernel binds for its inputs
outputs    the buffer that the kernel binds for the rest: status word, in-out arguments, outputs
staging    the host reads the status word and the results here
scratch    the scratch buffer, if the kernel has one
uniform    the parameters, if the device has no immediates; modules of SPIR-V bind it as storage

Where the device shares the host's memory, upload and inputs are one buffer, and so are outputs and
staging: the device copies only the in-out arguments. With a `PublicQueue` there is no upload buffer
either, since the queue's `write_buffer` copies the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_executor.kernel import Kernel
from gpu_executor.kernel.wgsl import PARAMETER_BYTES
from gpu_executor.webgpu.buffer_pool import BufferDescriptor
from gpu_executor.webgpu.device import WebGpuDevice

ALIGNMENT = 256
"""Alignment in bytes that every device accepts for the offset of a binding."""
WORD_BYTES = 4
"""Sizes of bindings, copies and clears are multiples of this many bytes."""
STATUS_BYTES = 4


def round_up(nbytes: int, unit: int = WORD_BYTES) -> int:
    """Return the next multiple of `unit`."""
    return -(-nbytes // unit) * unit


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The offsets of the arguments in the buffers of a set, and the buffers' sizes, in bytes."""

    sizes: tuple[int, ...]
    """The room of each argument; a multiple of four bytes, and of a vector if the text is packed.
    """
    bound: tuple[int, ...]
    """The offset of each argument in the buffer that the kernel binds: `inputs` for an input,
    `outputs` for the others."""
    uploads: tuple[int, ...]
    """The offset in `upload` of each array that a call passes."""
    results: tuple[int, ...]
    """The offset in `outputs` of each array that a call returns."""
    input_bytes: int
    upload_bytes: int
    """The inputs come first, at the offsets that they have in `inputs`; then the in-outs."""
    output_bytes: int
    scratch_bytes: int

    @classmethod
    def pack(cls, kernel: Kernel, sizes: Sequence[int], scratch_bytes: int = 0) -> BufferLayout:
        """Place arguments of these sizes in bytes one after the other."""
        packed = 1 if kernel.wgsl is None else kernel.wgsl.packed
        rooms = [
            round_up(round_up(size, packed * argument.type.nbytes))
            for size, argument in zip(sizes, kernel.arguments, strict=True)
        ]
        inputs, outputs = _Packer(), _Packer(STATUS_BYTES if kernel.status else 0)
        bound = [
            (outputs if argument.is_output else inputs).place(room)
            for argument, room in zip(kernel.arguments, rooms, strict=True)
        ]
        uploads = _Packer(inputs.end)
        passed = [
            uploads.place(room) if argument.is_output else offset
            for argument, room, offset in zip(kernel.arguments, rooms, bound, strict=True)
            if argument.is_input
        ]
        pairs = zip(kernel.arguments, bound, strict=True)
        return cls(
            tuple(rooms),
            tuple(bound),
            tuple(passed),
            tuple(offset for argument, offset in pairs if argument.is_output),
            inputs.end,
            uploads.end,
            outputs.end,
            max(scratch_bytes, WORD_BYTES) if kernel.scratch is not None else 0,
        )

    def find_largest_binding(self) -> int:
        """Return the size in bytes of the largest range that the kernel binds."""
        return max(*self.sizes, self.scratch_bytes)

    def find_largest_buffer(self) -> int:
        """Return the size in bytes of the largest buffer."""
        return max(self.upload_bytes, self.output_bytes, self.scratch_bytes)


class _Packer:
    """Places arrays one after the other in a buffer."""

    def __init__(self, end: int = 0) -> None:
        self.end = end

    def place(self, nbytes: int) -> int:
        """Return the offset of the next array."""
        offset = round_up(self.end, ALIGNMENT)
        self.end = offset + nbytes
        return offset


def describe_buffers(
    layout: BufferLayout, device: WebGpuDevice, *, maps_inputs: bool
) -> dict[str, BufferDescriptor]:
    """Return the descriptors of a set's buffers by name.

    `upload` and `staging` are missing if they are the same buffers as `inputs` and `outputs`.
    Buffers for which the kernel has no arguments are missing too.
    """
    usage, shares = device.wgpu.BufferUsage, device.shares_memory
    bound = usage.STORAGE | usage.COPY_DST
    # In-out arguments are copied from where the host wrote them to `outputs`.
    copied = usage.COPY_SRC if layout.upload_bytes > layout.input_bytes else 0
    described: dict[str, BufferDescriptor] = {}
    if maps_inputs and not shares:
        if layout.upload_bytes:
            described["upload"] = layout.upload_bytes, usage.MAP_WRITE | usage.COPY_SRC
        if layout.input_bytes:
            described["inputs"] = layout.input_bytes, bound
    elif layout.upload_bytes:
        written = usage.STORAGE | usage.MAP_WRITE if maps_inputs else bound
        described["inputs"] = layout.upload_bytes, written | copied
    if shares:
        described["outputs"] = layout.output_bytes, bound | usage.MAP_READ
    else:
        described["outputs"] = layout.output_bytes, bound | usage.COPY_SRC
        described["staging"] = layout.output_bytes, usage.MAP_READ | usage.COPY_DST
    if layout.scratch_bytes:
        described["scratch"] = layout.scratch_bytes, bound
    if not device.immediates:
        described["uniform"] = PARAMETER_BYTES, device.parameter_usage
    return described
