"""How field kernels number their specialization constants, and the modulus as they take it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gpu_executor.primes.prime import MAX_MODULUS_BYTES, LimbLayout, Prime

# As glsl/grid.glsl, words.glsl, limbs.glsl, products.glsl, field_mul_chain.comp, broadcast.glsl and
# doubles.glsl have them; families/wide_constants.glsl has those between.
PER_INVOCATION, WORDS, LIMBS, LIMB_BITS, NEGATIVE_INVERSE, CHAIN_LENGTH, BROADCAST = range(1, 8)
STRIDES, NEGATIVE_INVERSE_HIGH = 57, 58

DOUBLE_BITS = 52
"""Bits of a limb that is multiplied as a double."""
MOST_DOUBLES = 12
"""Limbs of a modulus that is given as doubles, as glsl/push.glsl has it."""


def limb_constants(prime: Prime) -> dict[int, int]:
    """What a kernel that multiplies by limbs has to know."""
    limbs = prime.limbs
    return {
        WORDS: prime.words,
        LIMBS: limbs.count,
        LIMB_BITS: limbs.bits,
        NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
    }


def double_constants(prime: Prime, limbs: LimbLayout) -> dict[int, int]:
    """What a kernel that multiplies limbs as doubles has to know."""
    inverse = limbs.negative_inverse(prime.modulus)
    return {
        WORDS: prime.words,
        LIMBS: limbs.count,
        NEGATIVE_INVERSE: inverse & 0xFFFFFFFF,
        NEGATIVE_INVERSE_HIGH: inverse >> 32,
    }


def packed(numbers: Sequence[int]) -> bytes:
    """32-bit words as push constants."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def packed_modulus(modulus: Sequence[int]) -> bytes:
    """The modulus's words or limbs, as long as glsl/field.glsl and families/wide.glsl have it."""
    return packed(modulus).ljust(MAX_MODULUS_BYTES, b"\0")


def packed_doubles(modulus: Sequence[int]) -> bytes:
    """The modulus's limbs as doubles, which begin at a multiple of their size."""
    limbs = [*modulus, *[0] * (MOST_DOUBLES - len(modulus))]
    return struct.pack(f"<4x{MOST_DOUBLES}d", *limbs)
