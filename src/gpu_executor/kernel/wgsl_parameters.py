"""Parameters of a WGSL text: the type of each word, and the values that fit it.

The type is what the text shows (`kernel/wgsl_words.py`) or what `params=` declares. A word that has
neither is an error: nothing is guessed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gpu_executor.errors import KernelError
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.spirv import BlockMember

if TYPE_CHECKING:
    from gpu_executor.kernel.wgsl_words import Reading, WordUse, WordUses

WordType = Literal["f32", "i32", "u32", "i32 and u32"]
"""The type of a word. "i32 and u32" takes the integers that both have, as a text reads that has
signed and unsigned uses of one word."""

TYPES: tuple[WordType, ...] = ("f32", "i32", "u32")
_DTYPES = {"f32": np.dtype("f4"), "i32": np.dtype("i4"), "u32": np.dtype("u4")}
_FITS: dict[str, set[Reading]] = {
    "f32": {"f32"},
    "i32": {"i32", "integer"},
    "u32": {"u32", "integer"},
}
"""The uses that agree with a declared type."""
_FITS_MEMBER: dict[str, set[Reading]] = {
    "f": {"f32"},
    "i": {"i32", "integer"},
    "u": {"i32", "u32", "integer"},  # a cast from uint to int is common, and keeps the bits
}
"""The uses that agree with a number of SPIR-V, by the kind of its dtype."""
_MEMBER_TYPES = {"f": "f32", "i": "i32", "u": "u32"}
WORD_BYTES = 4


class WordParameter(NamedTuple):
    """A parameter of a WGSL text: one 32-bit word."""

    name: str
    offset: int
    word: int
    """The index that the text gives to `param`."""
    type: WordType
    member: BlockMember
    """Encodes the values."""

    def encode_into(self, buffer: bytearray, value: Any) -> None:
        """Write a value as the word's type, with the rules of `BlockMember`."""
        try:
            self.member.encode_into(buffer, value)
        except KernelError as error:
            raise KernelError(f"{error}{self._advise(value)}") from None
        if self.type == "i32 and u32" and buffer[self.offset + WORD_BYTES - 1] & 0x80:
            raise KernelError(
                f"parameter {self.name!r}: the text reads param({self.word}u) as an i32 and as a "
                f"u32, and {value} is not both; declare its type: "
                f"params={{{self.name!r}: 'i32'}} or 'u32'"
            )

    def _advise(self, value: Any) -> str:
        if isinstance(value, bool | np.bool_) or self.type == "f32":
            return ""
        if isinstance(value, float | np.floating):
            return f"; a text reads a float as bitcast<f32>(param({self.word}u))"
        if self.type == "u32" and isinstance(value, int | np.integer) and value < 0:
            return f"; a text reads a signed integer as bitcast<i32>(param({self.word}u))"
        return ""


def check_param_types(where: str, types: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return declared types of parameters as `WgslCode.param_types`."""
    for name, type_ in types.items():
        if type_ is not None and (not isinstance(type_, str) or type_ not in TYPES):
            raise KernelError(
                f"{where}: params has {type_!r} for {name!r}; a type is 'f32', 'i32' or 'u32', or "
                "None where the text shows it. A call gives the values"
            )
    return tuple(sorted((name, type_) for name, type_ in types.items() if type_ is not None))


@functools.lru_cache(maxsize=256)
def make_word_parameters(
    kernel_name: str,
    code: WgslCode,
    shape_bytes: int,
    dtypes: tuple[np.dtype[Any], ...],
    *,
    may_be_unread: bool = False,
) -> tuple[WordParameter, ...]:
    """Return the parameters of a text that has no SPIR-V beside it.

    `shape_bytes` is the size of the words that the function of `push` computes. `dtypes` are those
    of the arguments in binding order. With `may_be_unread`, a parameter that the text never reads
    is a u32: a grid may be computed from it. Raises `KernelError` where a type is neither shown nor
    declared, and where the text contradicts a declared one.
    """
    declared, first = dict(code.param_types), _find_first_word(code, shape_bytes)
    made = []
    for index, name in enumerate(code.params):
        word, offset = first + index, WORD_BYTES * index
        uses, obstacle = _find_uses(code, word, dtypes)
        try:
            if name in declared:
                type_ = _check_declared(uses, obstacle, declared[name])
            elif may_be_unread and not uses and not obstacle:
                type_ = "u32"
            else:
                type_ = _decide(word, uses, obstacle)
        except KernelError as error:
            advice = "" if name in declared else _advise_declaration(name)
            raise KernelError(
                f"kernel {kernel_name!r}: parameter {name!r} is {error}{advice}"
            ) from None
        member = BlockMember(name, offset, _DTYPES.get(type_, np.dtype("i4")), (), ())
        made.append(WordParameter(name, offset, word, type_, member))
    return tuple(made)


def check_members(
    kernel_name: str,
    code: WgslCode,
    shape_bytes: int,
    members: Sequence[BlockMember],
    dtypes: tuple[np.dtype[Any], ...],
) -> None:
    """Check how a text reads the parameters of the SPIR-V beside it, whose types hold: it must not
    read a float as an integer alone, or an integer as a float alone. Types that are declared for
    the text must be those of the SPIR-V."""
    declared, end = dict(code.param_types), _find_first_word(code, shape_bytes)
    for member, name in itertools.zip_longest(members, code.params[: len(members)]):
        type_ = _MEMBER_TYPES[member.dtype.kind]
        if declared.get(name, type_) != type_:
            raise KernelError(
                f"kernel {kernel_name!r}: {member} of the SPIR-V is {declared[name]!r} in the "
                f"params of its WGSL; declare {type_!r} there"
            )
        itemsize, first = member.dtype.itemsize, end
        end += math.prod(member.shape) * max(itemsize // WORD_BYTES, 1)
        for word in range(first, end) if itemsize <= WORD_BYTES else ():
            uses, _ = _find_uses(code, word, dtypes)
            if uses and not _FITS_MEMBER[member.dtype.kind] & uses.keys():
                reading, place = next(iter(uses.items()))
                raise KernelError(
                    f"kernel {kernel_name!r}: {member} of the SPIR-V is param({word}u) in the "
                    f"WGSL, which reads it as {_describe(reading)} ({place})"
                )


def _find_first_word(code: WgslCode, shape_bytes: int) -> int:
    """Return the index of the first parameter, behind the number of elements, the data and the
    words that the function of `push` computes."""
    return 1 + (len(code.data) + shape_bytes) // WORD_BYTES


@functools.lru_cache(maxsize=256)
def _find_all_uses(code: WgslCode) -> WordUses:
    from gpu_executor.kernel.wgsl_words import find_word_uses  # loaded for parameters only

    return find_word_uses(code.blank_comments())


def _find_uses(
    code: WgslCode, word: int, dtypes: tuple[np.dtype[Any], ...]
) -> tuple[dict[Reading, str], str]:
    """Return the places of a word's uses by what each takes the word for, and what keeps a use
    from being followed."""
    found = _find_all_uses(code)
    obstacle = found.obstacle
    float_bits = found.float_bits or _find_float_bits(code, dtypes)
    followed: dict[Reading, str] = {}
    for use in found.by_word.get(word, ()):
        if use.reading is None or _keeps_bits(use, dtypes):
            obstacle = obstacle or use.place
        elif float_bits and not use.is_alone:
            obstacle = obstacle or f"{use.place}; bits of floats may be integers: {float_bits}"
        else:
            followed.setdefault(use.reading, use.place)
    return followed, obstacle


@functools.lru_cache(maxsize=256)
def _find_float_bits(code: WgslCode, dtypes: tuple[np.dtype[Any], ...]) -> str:
    """Return which argument of floats the text may read as integers; or ""."""
    variables = {each.binding: each for each in code.find_storage_variables()}
    for binding, dtype in enumerate(dtypes):
        if not _has_floats(dtype):
            continue
        variable, is_struct = variables.get(binding), dtype.names is not None
        if variable is None or variable.has_integers or not (variable.float_dtype or is_struct):
            return f"those of argument {binding}, whose dtype is {dtype}"
    return ""


def _has_floats(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _has_floats(dtype.subdtype[0])
    if dtype.fields is not None:
        return any(_has_floats(each[0]) for each in dtype.fields.values())
    return dtype.kind in "fc"


def _keeps_bits(use: WordUse, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether a use stores the word in an argument whose elements are no integers."""
    if use.binding is None or use.binding >= len(dtypes):
        return False
    return dtypes[use.binding].kind not in "iu"


def _check_declared(uses: dict[Reading, str], obstacle: str, declared: str) -> WordType:
    fits: set[Reading] = set(_FITS[declared])
    if obstacle:  # then an operation on bits does not contradict a float
        fits.add("integer")
    if uses and not fits & uses.keys():
        reading, place = next(iter(uses.items()))
        raise KernelError(
            f"{declared!r} in params, but the text reads its word as {_describe(reading)} ({place})"
        )
    return next(each for each in TYPES if each == declared)


def _decide(word: int, uses: dict[Reading, str], obstacle: str) -> WordType:
    """Return the type that the uses of a word show."""
    if obstacle:
        raise KernelError(f"param({word}u), and a use of it cannot be followed ({obstacle})")
    if not uses:
        raise KernelError(f"param({word}u), which the text never reads")
    if "f32" in uses and len(uses) > 1:
        places = [f"as {_describe(each)} ({place})" for each, place in uses.items()]
        raise KernelError(f"param({word}u), which the text reads {' and '.join(places)}")
    if "f32" in uses:
        return "f32"
    if "i32" in uses:
        return "i32 and u32" if "u32" in uses else "i32"
    return "u32"


def _advise_declaration(name: str) -> str:
    return f"; declare its type: params={{{name!r}: 'f32'}}, or 'i32' or 'u32'"


def _describe(reading: Reading) -> str:
    return {"f32": "an f32", "i32": "an i32", "u32": "a u32", "integer": "an integer"}[reading]
