"""The instructions of a SPIR-V module: where each begins, and checks that cost little.

Checked are the number of operands, the range of ids, that each id is defined once and before the
module ends, that functions are made of blocks, and that pointers are not used as numbers. All of
it is done on arrays, because a module has up to tens of thousands of instructions. What is checked
here is far from all that makes a module valid: see `validation.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import SpirvError

Words = npt.NDArray[np.integer[Any]]

HEADER_WORDS = 5
FUNCTION, FUNCTION_PARAMETER, FUNCTION_END, VARIABLE = 54, 55, 56, 59

# In layouts, "r" is the result id, "i" any other id, "l" a literal. A row has the required operands
# and the kind of all operands that may follow: "" for none, "?" if they are not checked.
# fmt: off
# Declarations: opcode: name, required, following.
DECLARATIONS: dict[int, tuple[str, str, str]] = {
    5: ("OpName", "il", "?"), 6: ("OpMemberName", "ill", "?"), 11: ("OpExtInstImport", "rl", "?"),
    15: ("OpEntryPoint", "lil", "l"), 16: ("OpExecutionMode", "il", "l"),
    17: ("OpCapability", "l", ""), 20: ("OpTypeBool", "r", ""), 21: ("OpTypeInt", "rll", ""),
    22: ("OpTypeFloat", "rl", "?"), 23: ("OpTypeVector", "ril", ""),
    24: ("OpTypeMatrix", "ril", ""), 25: ("OpTypeImage", "ri", "?"), 26: ("OpTypeSampler", "r", ""),
    27: ("OpTypeSampledImage", "ri", ""), 28: ("OpTypeArray", "rii", ""),
    29: ("OpTypeRuntimeArray", "ri", ""), 30: ("OpTypeStruct", "r", "i"),
    32: ("OpTypePointer", "rli", ""), 41: ("OpConstantTrue", "ir", ""),
    42: ("OpConstantFalse", "ir", ""), 43: ("OpConstant", "irl", "l"),
    44: ("OpConstantComposite", "ir", "i"), 48: ("OpSpecConstantTrue", "ir", ""),
    49: ("OpSpecConstantFalse", "ir", ""), 50: ("OpSpecConstant", "irl", "l"),
    51: ("OpSpecConstantComposite", "ir", "i"), 52: ("OpSpecConstantOp", "irl", "?"),
    FUNCTION: ("OpFunction", "irli", ""), FUNCTION_PARAMETER: ("OpFunctionParameter", "ir", ""),
    FUNCTION_END: ("OpFunctionEnd", "", ""), VARIABLE: ("OpVariable", "irl", "i"),
    71: ("OpDecorate", "il", "l"), 72: ("OpMemberDecorate", "ill", "l"),
    73: ("OpDecorationGroup", "r", ""), 331: ("OpExecutionModeId", "il", "i"),
    5341: ("OpTypeAccelerationStructureKHR", "r", ""),
}
# Declarations that nothing is read from.
_OTHER_DECLARATIONS: tuple[tuple[Iterable[int], str, str], ...] = (
    ((2, 3, 4, 10, 14, 330), "", "?"), ((7,), "r", "?"), ((19,), "r", ""), ((33,), "ri", "i"),
    ((39,), "il", ""), ((46,), "ir", ""), ((8,), "ill", ""), ((317,), "", ""),
)
# The code of functions that takes values only: composites, conversions of numbers, arithmetic,
# bits, comparisons, derivatives, subgroup operations, dot products. Composites have no pointers as
# parts (Spec 2.16.1, Universal Validation Rules).
_VALUE_CODE: tuple[tuple[Iterable[int], str, str], ...] = (
    ((*range(109, 117), 118, 119, 126, 127), "iri", ""),  # conversions, negation
    ((84, *range(154, 161), 168, 200, 204, 205, *range(207, 216)), "iri", ""),
    ((77, *range(128, 153), *range(161, 168), *range(170, 192), *range(194, 200)), "irii", ""),
    ((78, 202, 203), "iriii", ""), ((201,), "iriiii", ""),
    ((79,), "irii", "l"), ((80,), "ir", "i"), ((81,), "iri", "l"), ((82,), "irii", "l"),
    ((333,), "iri", ""), ((*range(334, 342), *range(343, 349), 365, 366), "irii", "i"),
    ((342, *range(349, 365)), "irili", "i"),  # with a literal GroupOperation
    ((4421, 4422, 4428, 4429, 4430), "iri", ""), ((4431,), "iriii", "i"), ((4432,), "irii", ""),
    ((4450, 4451, 4452), "irii", "l"), ((4453, 4454, 4455), "iriii", "l"),
    ((4459,), "iriii", "l"), ((4460,), "iri", ""), ((5361,), "iriii", ""), ((5362,), "iri", ""),
    ((5630,), "i", ""), ((5631,), "irii", ""),
)
# Control flow, and what neither loads nor stores through a pointer that it takes: OpArrayLength,
# comparisons of pointers, memory barriers, lifetimes.
_NEUTRAL_CODE: tuple[tuple[Iterable[int], str, str], ...] = (
    ((0, 252, 253, 255, 4416, 5380), "", ""), ((1,), "ir", ""), ((68,), "iril", ""),
    ((225,), "ii", ""), ((246,), "iil", "l"), ((247,), "il", ""), ((248,), "r", ""),
    ((249,), "i", ""), ((250,), "iii", "l"), ((251,), "ii", "l"), ((256, 257), "il", ""),
    ((401, 402, 403), "irii", ""),
)
# The code that `access.py` reads.
_POINTER_CODE: tuple[tuple[Iterable[int], str, str], ...] = (
    ((12,), "iril", "?"), ((57,), "iri", "i"), ((61,), "iri", "l"), ((62,), "ii", "l"),
    ((63,), "ii", "l"), ((64,), "iii", "l"), ((65, 66), "iri", "i"), ((67, 70), "irii", "i"),
    ((83, 124, 400), "iri", ""), ((169,), "iriii", ""), ((224,), "iii", ""),
    ((227,), "iriii", ""), ((228,), "iiii", ""), ((229, *range(234, 243)), "iriiii", ""),
    ((230, 231), "iriiiiii", ""), ((232, 233), "iriii", ""), ((245,), "ir", "i"), ((254,), "i", ""),
    ((318,), "iriii", ""), ((319,), "iii", ""), ((5614, 5615, 6035), "iriiii", ""),
    ((4457,), "irii", "?"), ((4458,), "iii", "?"), ((5359,), "iriii", "?"),
    ((5360,), "iiii", "?"), ((5398,), "iriiiii", "?"),
)
# fmt: on
# OpCopyObject, OpBitcast, OpSelect, OpPhi, OpCopyLogical: read only if their results are pointers.
_OF_ANY_TYPE = (83, 124, 169, 245, 400)
_ANYWHERE = (8, 12, 317)  # debug information: OpLine, OpNoLine, OpExtInst of non-semantic sets
_EXTENDED, _TYPE_POINTER, _LABEL_OPCODE = 12, 32, 248
_PHYSICAL_STORAGE_BUFFER = 5349  # Spec, "Storage Class"
_BITCAST, _COMPOSITES = 124, (80, 81, 82)  # OpCompositeConstruct, -Extract, -Insert
_LAST_BIT = 31  # of a row of `_IDS`: stands for all words from there on


class _Tables:
    """The layouts by opcode: arrays of 65,536 entries."""

    def __init__(self) -> None:
        self.known = np.zeros(1 << 16, dtype=np.bool_)
        self.least = np.zeros(1 << 16, dtype=np.uint32)  # operands
        self.most = np.full(1 << 16, 0xFFFF, dtype=np.uint32)
        # Bit k of `ids`: word k of the instruction is an id. `result`: which word is the result id.
        self.ids = np.zeros(1 << 16, dtype=np.int64)
        self.result = np.zeros(1 << 16, dtype=np.int64)
        self.read = np.ones(1 << 16, dtype=np.bool_)  # whether the reader looks at it
        self.of_any_type = np.zeros(1 << 16, dtype=np.bool_)
        self.of_any_type[list(_OF_ANY_TYPE)] = True
        self.of_numbers = np.zeros(1 << 16, dtype=np.bool_)  # whether it takes no logical pointer
        self.placed = np.ones(1 << 16, dtype=np.bool_)  # whether its place in a function matters
        self.placed[list(_ANYWHERE)] = False
        for opcode, (_, required, following) in DECLARATIONS.items():
            self._add(opcode, required, following)
        for rows in (_OTHER_DECLARATIONS, _VALUE_CODE, _NEUTRAL_CODE, _POINTER_CODE):
            for opcodes, required, following in rows:
                for opcode in opcodes:
                    self._add(opcode, required, following)
                    self.read[opcode] = rows is _POINTER_CODE
                    self.of_numbers[opcode] = rows is _VALUE_CODE
        self.of_numbers[_BITCAST] = True
        self.of_numbers[list(_COMPOSITES)] = False

    def _add(self, opcode: int, required: str, following: str) -> None:
        kinds = ("l" + required + following * _LAST_BIT)[: _LAST_BIT + 1]
        self.known[opcode] = True
        self.least[opcode] = len(required)
        if not following:
            self.most[opcode] = len(required)
        self.ids[opcode] = sum(1 << at for at, kind in enumerate(kinds) if kind in "ri")
        self.result[opcode] = kinds.find("r") if "r" in kinds else 0


_TABLES = _Tables()


@functools.cache
def has_typed_result(opcode: int) -> bool:
    """Whether an instruction begins with the type of its result and the result."""
    return int(_TABLES.result[opcode]) == 2


@functools.cache
def _list_value_places(opcode: int) -> tuple[int, ...]:
    """Which of the first operands are ids, without the type of the result and the result."""
    first = 2 if has_typed_result(opcode) else 0
    ids = int(_TABLES.ids[opcode])
    return tuple(place for place in range(first, _LAST_BIT) if ids >> (place + 1) & 1)


def list_values(opcode: int, operands: tuple[int, ...]) -> list[int]:
    """The ids of an instruction of a function that are not the type of its result or the result:
    values, pointers and labels, without literals."""
    if opcode == _EXTENDED:
        return list(operands[4:])  # behind the instruction set and its instruction
    places = _list_value_places(opcode)
    found = [operands[place] for place in places if place < len(operands)]
    if places and places[-1] == _LAST_BIT - 1:
        found += operands[_LAST_BIT:]
    return found


# The classes of instructions in and around functions, and which of them may follow which.
_OTHER, _BEGIN, _PARAMETER, _LABEL, _TERMINATOR, _END = range(6)
_CLASSES = np.full(1 << 16, _OTHER, dtype=np.uint8)
_CLASSES[[FUNCTION, FUNCTION_PARAMETER, _LABEL_OPCODE, FUNCTION_END]] = (
    _BEGIN,
    _PARAMETER,
    _LABEL,
    _END,
)
# OpBranch .. OpUnreachable, OpTerminateInvocation, the ends of ray and mesh shaders.
_CLASSES[[249, 250, 251, 252, 253, 254, 255, 4416, 4448, 4449, 5294]] = _TERMINATOR
_MAY_FOLLOW = np.zeros((6, 6), dtype=np.bool_)
_MAY_FOLLOW[_BEGIN, [_PARAMETER, _LABEL]] = True
_MAY_FOLLOW[_PARAMETER, [_PARAMETER, _LABEL]] = True
_MAY_FOLLOW[_LABEL, [_OTHER, _TERMINATOR]] = True
_MAY_FOLLOW[_OTHER, [_OTHER, _TERMINATOR]] = True
_MAY_FOLLOW[_TERMINATOR, [_LABEL, _END]] = True
_MAY_FOLLOW[_END, _BEGIN] = True


def has_id(opcode: int, operand: int) -> bool:
    """Whether an operand of an instruction is an id; no operand of an unknown instruction is."""
    return bool(_TABLES.ids[opcode] >> min(operand + 1, _LAST_BIT) & 1)


def read_instructions(
    code: bytes, words: tuple[int, ...], bound: int
) -> tuple[list[int], frozenset[int]]:
    """Return the word offsets of the declarations and of the code that can take pointers, and the
    ids of declarations that the code uses.

    Raise SpirvError if the instructions are damaged.
    """
    offsets = _find_instructions(words)
    array = np.frombuffer(code, dtype="<u4")
    heads = array[offsets]
    opcodes, counts = heads & 0xFFFF, heads >> 16
    _check_operands(offsets, opcodes, counts)
    ids_at = _find_ids(offsets, opcodes, counts)
    used = _check_ids(array, offsets, opcodes, counts, bound, ids_at)
    _check_blocks(offsets, opcodes)
    _check_pointers(array, offsets, opcodes, counts, bound, ids_at)
    read = _TABLES.read[opcodes]
    is_pointer_type = np.zeros(bound, dtype=np.bool_)
    is_pointer_type[array[offsets[opcodes == _TYPE_POINTER] + 1]] = True
    selecting = np.flatnonzero(_TABLES.of_any_type[opcodes])
    read[selecting] = is_pointer_type[array[offsets[selecting] + 1]]
    return cast("list[int]", offsets[read].tolist()), used


def _find_instructions(words: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the word offset of every instruction."""
    offset, end, count = HEADER_WORDS, len(words), 1
    offsets: list[int] = []
    append = offsets.append
    while offset < end and count:
        append(offset)
        count = words[offset] >> 16
        offset += count
    if offset > end or not count:
        last = offsets[-1]
        raise SpirvError(
            f"the instruction at word {last} (opcode {words[last] & 0xFFFF}) claims {count} words, "
            f"{end - last} are left: the module is cut short or damaged"
        )
    return np.array(offsets, dtype=np.int64)


def _name(opcode: int, offset: int) -> str:
    name = DECLARATIONS[opcode][0] if opcode in DECLARATIONS else f"the instruction {opcode}"
    return f"{name} at word {offset}"


def _check_operands(offsets: Words, opcodes: Words, counts: Words) -> None:
    given = counts - 1
    fits = (given >= _TABLES.least[opcodes]) & (given <= _TABLES.most[opcodes])
    if not fits.all():
        at = int(fits.argmin())
        least, most = int(_TABLES.least[opcodes[at]]), int(_TABLES.most[opcodes[at]])
        found = int(given[at])
        what = f"lacks {least - found} of" if found < least else f"has {found - most} beyond"
        raise SpirvError(
            f"{_name(int(opcodes[at]), int(offsets[at]))} {what} its operands: the module is "
            "damaged"
        )


def _find_ids(offsets: Words, opcodes: Words, counts: Words) -> Words:
    """Return the positions of all ids, counted from the end of the header."""
    position = np.arange(int(counts.sum())) - np.repeat(offsets - HEADER_WORDS, counts)
    bits = np.repeat(_TABLES.ids[opcodes], counts) >> np.minimum(position, _LAST_BIT)
    return np.flatnonzero(bits & 1)


def _check_ids(
    array: Words, offsets: Words, opcodes: Words, counts: Words, bound: int, ids_at: Words
) -> frozenset[int]:
    """Check that ids are in range and defined once, and that the ids that code uses are defined.

    Return the ids defined outside of functions that code uses. All operands of instructions whose
    operands are not known count as ids.
    """
    words, at = array[HEADER_WORDS:], ids_at
    ids = words[at]
    in_range = ids - np.uint32(1) < bound - 1  # 0 wraps around to the largest number
    if not in_range.all():
        wrong = int(in_range.argmin())
        where = _name_word(array, offsets, int(at[wrong]))
        raise SpirvError(f"{where} uses id {ids[wrong]}: ids must be in 1 .. {bound - 1}")
    position = _TABLES.result[opcodes]
    results = array[(offsets + position)[position > 0]]
    defined = np.zeros(bound, dtype=np.bool_)
    defined[results] = True
    if np.count_nonzero(defined) < len(results):
        _refuse_repetition(array, offsets, opcodes)
    if not _TABLES.known[opcodes].all():  # any word of an unknown instruction may define an id
        unknown = words[np.repeat(~_TABLES.known[opcodes], counts)]
        defined[unknown[unknown < bound]] = True
    labels = np.flatnonzero(opcodes == _LABEL_OPCODE)
    code = offsets[labels[0]] - HEADER_WORDS if labels.size else len(words)
    used = ids[np.searchsorted(at, code) :]
    if not defined[used].all():
        wrong = len(ids) - len(used) + int(defined[used].argmin())
        where = _name_word(array, offsets, int(at[wrong]))
        raise SpirvError(f"{where} uses %{ids[wrong]}, which is not defined")
    is_used = np.zeros(bound, dtype=np.bool_)
    is_used[used] = True
    return _list_used_declarations(array, offsets, opcodes, counts, is_used, code + HEADER_WORDS)


def _list_used_declarations(
    array: Words,
    offsets: Words,
    opcodes: Words,
    counts: Words,
    is_used: npt.NDArray[np.bool_],
    code: int,
) -> frozenset[int]:
    """Return the ids defined before the word `code` that are used behind it: by `is_used`, or by an
    operand that may be an id.
    """
    unclear = (~_TABLES.known[opcodes] | (opcodes == _EXTENDED)) & (offsets >= code)
    operands = array[HEADER_WORDS:][np.repeat(unclear, counts)]
    position = np.where(offsets < code, _TABLES.result[opcodes], 0)
    declared = array[(offsets + position)[position > 0]]
    is_used[operands[operands < len(is_used)]] = True
    return frozenset(declared[is_used[declared]].tolist())


def _check_pointers(
    array: Words, offsets: Words, opcodes: Words, counts: Words, bound: int, ids_at: Words
) -> None:
    """Check that no arithmetic and no conversion has a logical pointer as operand or result: only
    pointers to PhysicalStorageBuffer have an address (Spec 2.16.1, Universal Validation Rules).
    """
    types = offsets[opcodes == _TYPE_POINTER]
    is_type = np.zeros(bound, dtype=np.bool_)
    is_type[array[types[array[types + 2] != _PHYSICAL_STORAGE_BUFFER] + 1]] = True
    typed = offsets[_TABLES.result[opcodes] == 2]  # word 1 is the type of the result in word 2
    is_pointer = np.zeros(bound, dtype=np.bool_)
    is_pointer[array[typed + 2][is_type[array[typed + 1]]]] = True
    ids = array[HEADER_WORDS + ids_at]
    wrong = is_pointer[ids] & np.repeat(_TABLES.of_numbers[opcodes], counts)[ids_at]
    if wrong.any():
        at = int(wrong.argmax())
        where = _name_word(array, offsets, int(ids_at[at]))
        raise SpirvError(f"{where} uses the pointer %{ids[at]} as a number: load it first")


def _name_word(array: Words, offsets: Words, word: int) -> str:
    """Return the instruction that a word belongs to; `word` counts from the end of the header."""
    offset = int(offsets[np.searchsorted(offsets, word + HEADER_WORDS, side="right") - 1])
    return _name(int(array[offset]) & 0xFFFF, offset)


def _refuse_repetition(array: Words, offsets: Words, opcodes: Words) -> None:
    """Raise SpirvError for the first instruction that defines an id again."""
    seen: set[int] = set()
    for offset, opcode in zip(offsets.tolist(), opcodes.tolist(), strict=True):
        if _TABLES.result[opcode] > 0:
            result = int(array[offset + _TABLES.result[opcode]])
            if result in seen:
                raise SpirvError(
                    f"{_name(opcode, offset)} defines %{result}, which is defined already"
                )
            seen.add(result)


def _check_blocks(offsets: Words, opcodes: Words) -> None:
    """Check that functions consist of parameters and blocks, from OpLabel to a terminator."""
    is_begin = opcodes == FUNCTION
    first = int(is_begin.argmax()) if is_begin.any() else len(opcodes)
    classes = _CLASSES[opcodes]
    if classes[:first].any():
        at = int(np.flatnonzero(classes[:first])[0])
        raise SpirvError(f"{_name(int(opcodes[at]), int(offsets[at]))} is outside of a function")
    inside = first + np.flatnonzero(_TABLES.placed[opcodes[first:]])
    chain = classes[inside]
    allowed = _MAY_FOLLOW[chain[:-1], chain[1:]]
    if not allowed.all():
        at = int(inside[np.flatnonzero(~allowed)[0] + 1])
        raise SpirvError(
            f"{_name(int(opcodes[at]), int(offsets[at]))} is out of place: a function consists of "
            "blocks from an OpLabel to a branch or return; the module is damaged"
        )
    if chain.size and chain[-1] != _END:
        raise SpirvError("the module ends inside a function: is the file complete?")
