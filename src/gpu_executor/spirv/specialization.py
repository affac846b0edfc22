"""Specialization: a module whose specialization constants have become plain constants.

Drivers specialize modules themselves. A module is specialized here where the code must be changed
before a driver sees it, and where an interface takes no specialization constants.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.constants import (
    evaluate_integer,
    find_spec_id,
    read_constant,
    read_scalar_type,
)
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.module import BUILT_IN, SPEC_ID, Module, read_module

_WORKGROUP_SIZE = 25  # Spec, "BuiltIn"
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38  # Spec, "Execution Mode"


def specialize(code: bytes, constants: Mapping[int, int | float | bool]) -> bytes:
    """Return the module with its specialization constants set; others keep their defaults."""
    module, editor = read_module(code), ModuleEditor(code)
    results: dict[int, int | None] = {}
    for at, (opcode, operands) in enumerate(editor.declarations):
        if opcode in (Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE, Op.SPEC_CONSTANT):
            editor.declarations[at] = _set_constant(module, operands, constants)
        elif opcode == Op.SPEC_CONSTANT_COMPOSITE:
            editor.declarations[at] = (Op.CONSTANT_COMPOSITE, operands)
        elif opcode == Op.SPEC_CONSTANT_OP:
            value = evaluate_integer(module, operands[1], constants, results)
            if value is None:
                raise SpirvError(f"constant %{operands[1]} cannot be computed before it runs")
            editor.declarations[at] = _make_constant(module, operands[0], operands[1], value)
    _set_local_size(module, editor, constants, results)
    return editor.encode()


def _set_constant(
    module: Module, operands: tuple[int, ...], constants: Mapping[int, int | float | bool]
) -> tuple[int, tuple[int, ...]]:
    """The plain constant in place of a specialization constant."""
    type_id, result = operands[:2]
    constant, spec_id = read_constant(module, result), find_spec_id(module, result)
    assert constant is not None, "read_module checked it"
    value = constant.value if spec_id is None else constants.get(spec_id, constant.value)
    return _make_constant(module, type_id, result, value)


def _make_constant(
    module: Module, type_id: int, result: int, value: int | float | bool
) -> tuple[int, tuple[int, ...]]:
    scalar = read_scalar_type(module, type_id)
    if scalar is None:
        return (Op.CONSTANT_TRUE if value else Op.CONSTANT_FALSE), (type_id, result)
    kind, bits = scalar
    if kind == "float":
        raw = struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], value)
    else:
        # A narrow integer is in the low bits of a word, sign-extended (Spec 2.2.1).
        width = max(bits, 32)
        raw = (int(value) & ((1 << width) - 1)).to_bytes(width // 8, "little")
    words = struct.unpack(f"<{max(bits // 32, 1)}I", raw.ljust(4, b"\0"))
    return Op.CONSTANT, (type_id, result, *words)


def _set_local_size(
    module: Module,
    editor: ModuleEditor,
    constants: Mapping[int, int | float | bool],
    results: dict[int, int | None],
) -> None:
    """State the size of a work-group as three numbers, and drop the decorations of constants."""
    sizes: dict[int, tuple[int, ...]] = {}
    built_in = next(
        (
            target
            for (target, _), found in module.decorations.items()
            if found.get(BUILT_IN) == _WORKGROUP_SIZE
        ),
        None,
    )
    preamble = []
    for opcode, operands in editor.preamble:
        if opcode == Op.EXECUTION_MODE_ID and operands[1] == _LOCAL_SIZE_ID:
            sizes[operands[0]] = operands[2:]
            opcode, operands = Op.EXECUTION_MODE, (operands[0], _LOCAL_SIZE, 1, 1, 1)
        if opcode == Op.DECORATE and operands[1] == SPEC_ID:
            continue
        if opcode == Op.DECORATE and operands[1:] == (BUILT_IN, _WORKGROUP_SIZE):
            continue
        preamble.append((opcode, operands))
    editor.preamble = preamble
    for at, (opcode, operands) in enumerate(preamble):
        if opcode != Op.EXECUTION_MODE or operands[1] != _LOCAL_SIZE:
            continue
        parts = sizes.get(operands[0], ())
        if built_in is not None:
            parts = module.definition(built_in)[1][2:]
        if parts:
            values = [evaluate_integer(module, part, constants, results) for part in parts]
            if None in values:
                raise SpirvError("the size of the work-group cannot be computed before it runs")
            preamble[at] = (opcode, (*operands[:2], *(value or 0 for value in values)))
