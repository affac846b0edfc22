"""The compiled SPIR-V modules, the ids of their specialization constants, their push constants."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from gpu_executor.primes.prime import MAX_MODULUS_BYTES, LimbLayout, Prime
from gpu_executor.spirv import ShaderInterface, read_interface

FOLDER = Path(__file__).parent


def load_spirv(module: str) -> bytes:
    """Return the code of the module `spirv/<module>.spv`."""
    return read_data("spirv", f"{module}.spv")


@functools.cache
def load_interface(module: str) -> ShaderInterface:
    """Return the interface of a module with the default values of its constants. Kernels of many
    primes have the same module."""
    return read_interface(load_spirv(module))


@functools.cache
def has_module(module: str) -> bool:
    """Return whether there is a module of that name."""
    try:
        return bool(read_data("spirv", f"{module}.spv"))
    except OSError:
        return False


@functools.cache
def get_digests() -> frozenset[str]:
    """Return the SHA-256 of every module, as the manifest has them."""
    return frozenset(get_module_names())


@functools.cache
def get_module_names() -> dict[str, str]:
    """Return the name of every module by its SHA-256, as the manifest has them."""
    manifest = json.loads(read_data("spirv", "manifest.json"))
    return {entry["spirv"]: name for name, entry in manifest.items()}


SLOW_MODULES = frozenset(
    f"curve{degree}_{operation}"
    for degree in (1, 2)
    for operation in ("accumulate", "shift_points", "join_windows", "add_pairs", "to_affine")
)
"""Modules that a driver compiles much faster if loops over limbs stay loops. Milliseconds on the
host of an NVIDIA H200 (driver 580.159.04, eight compilations at a time), usual form and loops:

                   BLS12-381 G1     BLS12-381 G2     BN254 G1       BN254 G2
    accumulate     6,349 ->   712   5,190 -> 1,585   (f64 limbs)    2,145 -> 1,295
    add_pairs      3,222 ->   892
    shift_points   1,641 ->   880   2,475 -> 1,280   1,078 -> 964   1,419 -> 1,097
    join_windows   1,392 ->   964   2,440 -> 1,517     896 -> 710   1,460 -> 1,008
    to_affine      1,837 ->   553                      600 -> 634

All others take less than 0.9 s and gain less than a third, or lose: additions with f64 limbs take
1,028 ms, and with loops 2,619 ms."""


def compiles_slowly(digest: str) -> bool:
    """Return whether a module is one of those, by its SHA-256."""
    return get_module_names().get(digest) in SLOW_MODULES


def read_data(folder: str, name: str) -> bytes:
    """Read a file of a folder of this package, with the loader of this module, which may be that of
    a zip file. `importlib.resources` would take 6 ms to import."""
    loader: Any = __spec__.loader
    content: bytes = loader.get_data(str(FOLDER / folder / name))
    return content


# --- specialization constants ---


class SpecId(IntEnum):
    """The ids of the specialization constants: the only list of them.

    `build` writes them to glsl/spec_ids.glsl as ID_WORDS and so on, and the GLSL files use those
    names.
    """

    WORK_GROUP_SIZE = 0
    PER_INVOCATION = 1
    WORDS = 2
    LIMBS = 3
    LIMB_BITS = 4
    NEGATIVE_INVERSE = 5
    CHAIN_LENGTH = 6
    BROADCAST = 7
    ONE = 8
    """The first of 24 words."""
    R_SQUARED = 32
    """The first of 24 words."""
    GRID_STRIDE = 57
    NEGATIVE_INVERSE_HIGH = 58
    BY_BLOCK = 59
    LEVELS = 60
    COLUMNS = 61
    TWIDDLES = 62
    DIRECT = 63
    REVERSES = 64
    KEYS = 65
    DIGIT_BITS = 66
    ORDER = 67
    INDICES = 68
    SHARED_BINS = 69
    A_IS_ZERO = 70
    NONRESIDUE = 71
    MODULUS = 72
    """The first of 28 limbs."""
    STORED_LIMBS = 100
    STORED_LIMB_BITS = 101
    FACTOR_SHIFT = 102
    ROOT_SHIFT = 103
    PADS = 104
    LOG_REPEATS = 105
    RECIPROCAL = 106
    RECIPROCAL_SHIFT = 107
    SCALES = 108
    REPEATS = 109
    LOG_SUBGROUP = 110
    UNIT_BITS = 111
    ROW_BYTES = 120
    PREFIX_BYTES = 121
    SORTS = 122
    DOUBLES = 123
    ROWS_PER_ELEMENT = 124
    DOMAIN = 125
    REDUCES = 126
    WIDTH = 140
    FULL_ROUNDS = 141
    PARTIAL_ROUNDS = 142
    EXPONENT = 143
    UNROLLED = 144
    CIRCULANT = 145
    FEISTEL = 146
    ROUNDS = 147
    ODD_PART = 148
    TWO_ADICITY = 149
    SUM_LIMIT = 150
    LANES = 151
    RESIDUES = 152
    DEGREE = 170
    VALUES_DEGREE = 171
    LOG_ARITY = 172
    MIX = 173
    DIAGONAL_CODES = 180
    """The first of 24 words."""
    OPERATION = 210
    A_TYPE = 211
    B_TYPE = 212
    RESULT_TYPE = 213
    A_IS_SCALAR = 214
    B_IS_SCALAR = 215
    AXES = 216
    IS_SIGNED = 217
    BITS = 218


F64_LIMB_BITS = 52
"""The width of an f64 limb: a float64 has a mantissa of 53 bits (glsl/f64_limbs.glsl)."""
MAX_F64_LIMBS = 12
"""The number of f64 limbs that fit into the push constants (glsl/push.glsl)."""


def limb_constants(prime: Prime, limbs: LimbLayout) -> dict[int, int]:
    """Return the specialization constants of a kernel that multiplies short limbs."""
    return {
        SpecId.WORDS: prime.words,
        SpecId.LIMBS: limbs.count,
        SpecId.LIMB_BITS: limbs.bits,
        SpecId.NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
    }


def f64_limb_constants(prime: Prime, limbs: LimbLayout) -> dict[int, int]:
    """Return the specialization constants of a kernel that multiplies f64 limbs."""
    inverse = limbs.negative_inverse(prime.modulus)
    return {
        SpecId.WORDS: prime.words,
        SpecId.LIMBS: limbs.count,
        SpecId.NEGATIVE_INVERSE: inverse & 0xFFFFFFFF,
        SpecId.NEGATIVE_INVERSE_HIGH: inverse >> 32,
    }


# --- push constants ---


def encode_words(numbers: Sequence[int]) -> bytes:
    """Encode 32-bit words as push constants."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def encode_modulus(modulus: Sequence[int]) -> bytes:
    """Encode the words or short limbs of the modulus, zero-padded to the size of the array in
    glsl/push.glsl.
    """
    return encode_words(modulus).ljust(MAX_MODULUS_BYTES, b"\0")


def encode_f64_modulus(modulus: Sequence[int]) -> bytes:
    """Encode the f64 limbs of the modulus as float64, after 4 bytes of padding that align them to 8
    bytes.
    """
    limbs = [*modulus, *[0] * (MAX_F64_LIMBS - len(modulus))]
    return struct.pack(f"<4x{MAX_F64_LIMBS}d", *limbs)
