"""Replaces the search for the lowest bit of a ballot by arithmetic on its words.

ACO, the compiler of RADV, has no such search in 64 bits that differs between invocations: of Mesa
22.3.6 it prints an error, leaves the instruction out and succeeds, so that kernels that sort would
give wrong results.
"""

from __future__ import annotations

import struct

_HEADER_WORDS, _BOUND = 5, 3  # of the module; the place of the bound of ids in it
_BALLOT_FIND_LSB, _FUNCTION, _CONSTANT = 343, 54, 43
_COMPOSITE_EXTRACT, _ADD, _SUBTRACT, _MULTIPLY = 81, 128, 130, 132
_SHIFT_RIGHT, _AND, _NOT, _BIT_COUNT = 194, 199, 200, 205


def lower_ballot_find_lsb(code: bytes) -> bytes:
    """Return the module without OpGroupNonUniformBallotFindLSB, for subgroups of at most 64.

    The number of zeros below the lowest bit of a word x is z(x) = bitCount(~x & (x - 1)), which is
    32 for 0. So the lowest bit of the words x, y is z(x) + (z(x) >> 5) * z(y). `code` was read by
    `read_interface` before, so it is well formed.
    """
    words = list(struct.unpack(f"<{len(code) // 4}I", code))
    bound: int = words[_BOUND]
    made: list[int] = words[:_HEADER_WORDS]
    constants: dict[tuple[int, int], int] = {}
    first_function = None
    offset = _HEADER_WORDS

    def emit(opcode: int, type_id: int, *operands: int) -> int:
        nonlocal bound
        made.extend((3 + len(operands) << 16 | opcode, type_id, bound, *operands))
        bound += 1
        return bound - 1

    def get_constant(type_id: int, value: int) -> int:
        nonlocal bound
        if (type_id, value) not in constants:
            constants[type_id, value] = bound
            bound += 1
        return constants[type_id, value]

    def count_zeros(type_id: int, ballot: int, word: int) -> int:
        x = emit(_COMPOSITE_EXTRACT, type_id, ballot, word)
        below = emit(_SUBTRACT, type_id, x, get_constant(type_id, 1))
        zeros = emit(_AND, type_id, emit(_NOT, type_id, x), below)
        return emit(_BIT_COUNT, type_id, zeros)

    while offset < len(words):
        count, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        if opcode == _FUNCTION and first_function is None:
            first_function = len(made)
        if opcode == _BALLOT_FIND_LSB:
            type_id, result, _, ballot = words[offset + 1 : offset + count]
            low, high = (count_zeros(type_id, ballot, word) for word in (0, 1))
            is_empty = emit(_SHIFT_RIGHT, type_id, low, get_constant(type_id, 5))
            above = emit(_MULTIPLY, type_id, is_empty, high)
            made.extend((5 << 16 | _ADD, type_id, result, low, above))
        else:
            made += words[offset : offset + count]
        offset += count
    if not constants:
        return code
    declared = [
        word
        for (type_id, value), constant in constants.items()
        for word in (4 << 16 | _CONSTANT, type_id, constant, value)
    ]
    made[_BOUND] = bound
    assert first_function is not None
    made = made[:first_function] + declared + made[first_function:]
    return struct.pack(f"<{len(made)}I", *made)
