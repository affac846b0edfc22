"""Loops that ask the driver to unroll them no more, for drivers that compile slowly."""

from __future__ import annotations

from gpu_executor.spirv.editor import ModuleEditor, Op

_UNROLL = 1
"""The bit of a loop's control (SPIR-V, section 3.23)."""


def remove_unroll_hints(code: bytes) -> bytes:
    """Return the module in which no loop has the control Unroll. It computes the same."""
    editor = ModuleEditor(code)
    editor.functions = [
        (opcode, (*operands[:2], operands[2] & ~_UNROLL, *operands[3:]))
        if opcode == Op.LOOP_MERGE
        else (opcode, operands)
        for opcode, operands in editor.functions
    ]
    return editor.encode()
