"""How field kernels number their specialization constants, and the modulus as they take it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gpu_executor.primes.prime import MAX_MODULUS_BYTES, Prime

# As glsl/grid.glsl, words.glsl, limbs.glsl, products.glsl, field_mul_chain.comp and broadcast.glsl
# have them; families/wide_constants.glsl has those between.
PER_INVOCATION, WORDS, LIMBS, LIMB_BITS, NEGATIVE_INVERSE, CHAIN_LENGTH, BROADCAST = range(1, 8)
BY_ROWS, STRIDES = 56, 57


def limb_constants(prime: Prime) -> dict[int, int]:
    """What a kernel that multiplies by limbs has to know."""
    limbs = prime.limbs
    return {
        WORDS: prime.words,
        LIMBS: limbs.count,
        LIMB_BITS: limbs.bits,
        NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
        # 64 bits take too few products of 30-bit limbs for a column, which then folds what is too
        # much. On an NVIDIA H200 13 limbs give 22.6 G/s in a chain by rows, 22.3 by columns, with
        # which lavapipe makes 2.5 times as many; it does not unroll the rows of 16.
        BY_ROWS: limbs.bits == 30 and limbs.count < 16,
    }


def packed(numbers: Sequence[int]) -> bytes:
    """32-bit words as push constants."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def packed_modulus(modulus: Sequence[int]) -> bytes:
    """The modulus's words or limbs, as long as glsl/field.glsl and families/wide.glsl have it."""
    return packed(modulus).ljust(MAX_MODULUS_BYTES, b"\0")
