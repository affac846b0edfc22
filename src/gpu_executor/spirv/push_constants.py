"""Moves a shader's push constants into a buffer.

Push constants are part of recorded commands: new values would have to be recorded again, which
costs 30 to 50 us on an NVIDIA H200. The host writes a uniform buffer in less than a microsecond,
and recorded commands stay as they are.
"""

from __future__ import annotations

import struct

from gpu_executor.spirv.module import BINDING, DESCRIPTOR_SET

_HEADER_WORDS = 5
_OP_TYPE_POINTER, _OP_VARIABLE, _OP_DECORATE, _OP_CAPABILITY = 32, 59, 71, 17
_FIRST_TYPE, _LAST_TYPE = 19, 39  # OpTypeVoid .. OpTypeForwardPointer
_PUSH_CONSTANT, _UNIFORM, _STORAGE_BUFFER = 9, 2, 12  # Spec, "Storage Class"
_CAPABILITIES = {4435: 4434, 4450: 4449}
"""StoragePushConstant16 and 8, and UniformAndStorageBuffer16BitAccess and 8BitAccess."""


def move_to_uniform_buffer(code: bytes, binding: int) -> bytes:
    """Return the module with its push constants in a uniform buffer at that binding of set 0.

    The layout stays that of push constants (std430), so the device needs the feature
    uniformBufferStandardLayout. `code` was read by `read_interface` before, so it is well formed.
    """
    return _move(code, binding, _UNIFORM)


def move_to_storage_buffer(code: bytes, binding: int) -> bytes:
    """Return the module with its push constants in a storage buffer at that binding of set 0, for
    an interface whose uniform buffers have no standard layout."""
    return _move(code, binding, _STORAGE_BUFFER)


def _move(code: bytes, binding: int, storage_class: int) -> bytes:
    words = list(struct.unpack(f"<{len(code) // 4}I", code))
    variables: list[int] = []
    first_type = None
    offset = _HEADER_WORDS
    while offset < len(words):
        count, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        if opcode == _OP_CAPABILITY:
            words[offset + 1] = _CAPABILITIES.get(words[offset + 1], words[offset + 1])
        elif opcode == _OP_TYPE_POINTER and words[offset + 2] == _PUSH_CONSTANT:
            words[offset + 2] = storage_class
        elif opcode == _OP_VARIABLE and words[offset + 3] == _PUSH_CONSTANT:
            words[offset + 3] = storage_class
            variables.append(words[offset + 2])
        if first_type is None and _FIRST_TYPE <= opcode <= _LAST_TYPE:
            first_type = offset  # all decorations come before the first type (Spec 2.4)
        offset += count
    decorations = [
        word
        for variable in variables
        for decoration, operand in ((DESCRIPTOR_SET, 0), (BINDING, binding))
        for word in (4 << 16 | _OP_DECORATE, variable, decoration, operand)
    ]
    assert first_type is not None
    moved = words[:first_type] + decorations + words[first_type:]
    return struct.pack(f"<{len(moved)}I", *moved)
