"""Families of primes: which element kernels a prime has, and what they are told about it.

Each kernel of `glsl/elements` is compiled once for each family; `glsl/element.glsl` says what they
are. What a module has to be told about its prime shows in its code: `family_constants` and
`family_push` serve every kernel that includes `element.glsl`.
"""

from __future__ import annotations

from gpu_executor.kernels.constants import LIMBS, limb_constants, packed, packed_modulus
from gpu_executor.primes.prime import WORD_BITS, LimbLayout, Prime
from gpu_executor.spirv import ShaderInterface

FAMILIES = ("wide", "monty31", "mersenne31", "goldilocks")
MONTGOMERY_FAMILIES = ("wide", "monty31")
"""Those whose elements are in Montgomery form; the others' are as they are."""

MERSENNE31_MODULUS = 2**31 - 1
GOLDILOCKS_MODULUS = 2**64 - 2**32 + 1
MONTY31_BITS = 31

# Specialization constants, as glsl/families/wide_constants.glsl numbers them: the first words.
ONE, R_SQUARED = 8, 32


def family(prime: Prime) -> str:
    """The family that a prime belongs to, by its modulus alone."""
    if prime.modulus == GOLDILOCKS_MODULUS:
        return "goldilocks"
    if prime.modulus == MERSENNE31_MODULUS:
        return "mersenne31"
    return "monty31" if prime.bits <= MONTY31_BITS else "wide"


def in_montgomery_form(prime: Prime) -> bool:
    """Whether the prime's elements on the card are multiplied by R."""
    return family(prime) in MONTGOMERY_FAMILIES


def family_constants(prime: Prime, interface: ShaderInterface) -> dict[int, int]:
    """The specialization constants that follow from the prime, as far as the code has them."""
    if family(prime) != "wide":
        return {}
    known = limb_constants(prime) | _words_from(ONE, prime, prime.r_mod_p)
    known |= _words_from(R_SQUARED, prime, prime.r2_mod_p)
    there = {constant.spec_id for constant in interface.constants}
    return {spec_id: value for spec_id, value in known.items() if spec_id in there}


def family_push(prime: Prime, interface: ShaderInterface) -> bytes:
    """The push constants behind the element count; the kernel's own follow them."""
    if family(prime) == "wide":
        # A kernel that multiplies, and so has limbs, gets the modulus as limbs.
        by_limbs = interface.constant(LIMBS) is not None
        return packed_modulus(prime.limbs.split(prime.modulus) if by_limbs else prime.modulus_words)
    if family(prime) == "monty31":
        inverse = pow(prime.modulus, -1, prime.r)
        return packed([prime.modulus, inverse, prime.r_mod_p, prime.r2_mod_p])
    return b""


def _words_from(first: int, prime: Prime, value: int) -> dict[int, int]:
    words = LimbLayout(WORD_BITS, prime.words, 0).split(value)
    return dict(enumerate(words, first))
