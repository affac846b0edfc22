"""The parameters of a dispatch, as WGSL texts and SPIR-V modules find them.

A text finds words: the element count, the kernel's own words, those that the shapes determine, the
parameters of the call. A module finds its push constants.
"""

from __future__ import annotations

import struct

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.errors import KernelError
from gpu_executor.kernel import COUNT_BYTES, Kernel
from gpu_executor.kernel.parameters import NO_VALUES, ParameterValues
from gpu_executor.kernel.wgsl import PARAMETER_BYTES
from gpu_executor.spirv import BlockMember
from gpu_executor.steps.call_binder import CallForms, HiddenUse
from gpu_executor.webgpu.buffer_layout import WORD_BYTES
from gpu_executor.webgpu.spirv_pipelines import is_readable


def encode_fixed(kernel: Kernel, count: bytes, shape_words: bytes) -> bytes:
    """Return the parameters that no call sets: the element count, the kernel's own words and those
    that the shapes of the call determine."""
    if kernel.wgsl is not None:
        return count + kernel.wgsl.data + shape_words
    return kernel.compose_push(0, shape_words, NO_VALUES._replace(given_count=count))


def encode_values(kernel: Kernel, shape_words: bytes, values: ParameterValues) -> bytes:
    """Return the parameters of a call, which follow the fixed ones.

    Raises `KernelError` if they do not fit.
    """
    words = values.push
    if kernel.wgsl is None:
        return words
    if kernel.spirv and (values.push or values.uniform):
        words = _pack_members(kernel, shape_words, values)
    taken = COUNT_BYTES + len(kernel.wgsl.data) + len(shape_words)
    if taken + len(words) > PARAMETER_BYTES:
        raise KernelError(
            f"kernel {kernel.name!r} has {taken + len(words)} bytes of parameters; WebGPU kernels "
            f"may have {PARAMETER_BYTES}"
        )
    return words


def _pack_members(kernel: Kernel, shape_words: bytes, values: ParameterValues) -> bytes:
    """Return the numbers of all members, without the padding between them."""
    start = kernel.count_bytes + len(kernel.push) + len(shape_words)
    packed = [
        _pack_member(member, values.push, start)
        for member in kernel.interface.list_push_parameters(start, kernel.count)
    ]
    if kernel.interface.uniform is not None:
        packed += [
            _pack_member(member, values.uniform, 0) for member in kernel.interface.uniform.members
        ]
    return b"".join(packed)


def _pack_member(member: BlockMember, block: bytes, start: int) -> bytes:
    numbers: Array = np.ndarray(
        member.shape, member.dtype.newbyteorder("<"), block, member.offset - start, member.strides
    )
    if member.dtype.itemsize < WORD_BYTES:
        numbers = numbers.astype(f"<{member.dtype.kind}{WORD_BYTES}")
    return numbers.tobytes()


class WebGpuForms(CallForms):
    """How calls on device arrays are bound: the package's modules as with Vulkan, WGSL texts with
    words as parameters."""

    def compose_parameters(
        self, kernel: Kernel, count: int, shape_words: bytes, values: ParameterValues
    ) -> bytes:
        if is_readable(kernel):
            return super().compose_parameters(kernel, count, shape_words, values)
        number = values.given_count or struct.pack("<I", count)
        words = encode_fixed(kernel, number, shape_words)
        return words + encode_values(kernel, shape_words, values)

    def list_hidden_buffers(self, kernel: Kernel, scratch_bytes: int) -> dict[HiddenUse, int]:
        hidden = super().list_hidden_buffers(kernel, scratch_bytes)
        if not is_readable(kernel):
            hidden.pop("uniform", None)  # a text has its parameters as words
        return hidden

    def keeps_inputs_apart(self, kernel: Kernel) -> bool:
        """WebGPU refuses a buffer that one dispatch binds as read-only and as writable, and inputs
        of WGSL are read-only."""
        return not is_readable(kernel)
