"""Replaces the search for the lowest bit of a ballot by arithmetic on its words.

ACO, the compiler of RADV, has no such search in 64 bits that differs between invocations: of Mesa
22.3.6 it prints an error, leaves the instruction out and succeeds, so that kernels that sort would
give wrong results.
"""

from __future__ import annotations

from gpu_executor.spirv.editor import Instruction, ModuleEditor, Op


def lower_ballot_find_lsb(code: bytes) -> bytes:
    """Return the module without OpGroupNonUniformBallotFindLSB.

    The number of zeros below the lowest bit of a word x is z(x) = bitCount(~x & (x - 1)), which is
    32 for 0. So the lowest bit of the words x, y is z(x) + (z(x) >> 5) * z(y), and a ballot has
    four words.
    """
    editor = ModuleEditor(code)
    if not any(opcode == Op.BALLOT_FIND_LSB for opcode, _ in editor.functions):
        return code

    def expand(opcode: int, operands: tuple[int, ...]) -> list[Instruction] | None:
        if opcode != Op.BALLOT_FIND_LSB:
            return None
        type_id, result, _, ballot = operands
        out: list[Instruction] = []

        def emit(opcode: int, *values: int) -> int:
            out.append((opcode, (type_id, made := editor.make_id(), *values)))
            return made

        def count_zeros(word: int) -> int:
            x = emit(Op.COMPOSITE_EXTRACT, ballot, word)
            below = emit(Op.I_SUB, x, editor.find_constant(type_id, 1))
            return emit(Op.BIT_COUNT, emit(Op.BITWISE_AND, emit(Op.NOT, x), below))

        found = count_zeros(3)
        for number in (2, 1, 0):
            zeros = count_zeros(number)
            is_empty = emit(Op.SHIFT_RIGHT_LOGICAL, zeros, editor.find_constant(type_id, 5))
            found = emit(Op.I_ADD, zeros, emit(Op.I_MUL, is_empty, found))
        out.append((Op.COPY_OBJECT, (type_id, result, found)))
        return out

    editor.expand(expand)
    return editor.encode()
