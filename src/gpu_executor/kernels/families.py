"""Families of primes: which element kernels a prime has, and what they are told about it.

Each kernel of `glsl/elements` is compiled once for each family; `glsl/element.glsl` says what they
are. What a module has to be told about its prime shows in its code: `family_constants` and
`family_push` serve every kernel that includes `element.glsl`.
"""

from __future__ import annotations

from gpu_executor.kernels.constants import (
    DOUBLE_BITS,
    LIMBS,
    MOST_DOUBLES,
    double_constants,
    limb_constants,
    packed,
    packed_doubles,
    packed_modulus,
)
from gpu_executor.kernels.modules import has_module
from gpu_executor.primes.prime import WORD_BITS, LimbLayout, Prime
from gpu_executor.spirv import ShaderInterface

FAMILIES = ("wide", "doubles", "monty31", "mersenne31", "goldilocks")
"""`doubles` has the primes of `wide`, and of the kernels those that it makes faster."""
MONTGOMERY_FAMILIES = ("wide", "doubles", "monty31")
"""Those whose elements are in Montgomery form; the others' are as they are."""

NEIGHBOURS = {"monty31": 4, "mersenne31": 4, "goldilocks": 2}
"""Elements that fill 16 bytes, the most that one load brings, where one alone does not."""

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


def module_family(prime: Prime, module: str, *, doubles: bool) -> str:
    """The family whose module serves a prime: its own, or `doubles` where those are wanted, the
    module multiplies, and the modulus has few enough limbs."""
    own = family(prime)
    fits = prime.words * WORD_BITS <= MOST_DOUBLES * DOUBLE_BITS
    if own == "wide" and doubles and fits and has_module(f"doubles_{module}"):
        return "doubles"
    return own


def module_name(kind: str, module: str, *, neighbours: bool = False) -> str:
    """A family's module, or the one of it that takes several `NEIGHBOURS` at once."""
    return f"{kind}_neighbours_{module}" if neighbours else f"{kind}_{module}"


def in_montgomery_form(prime: Prime) -> bool:
    """Whether the prime's elements on the card are multiplied by R."""
    return family(prime) in MONTGOMERY_FAMILIES


def family_limbs(prime: Prime, kind: str) -> LimbLayout:
    """How elements that lie in memory are cut, by the family of a module."""
    return LimbLayout.covering(prime.words, DOUBLE_BITS) if kind == "doubles" else prime.limbs


def family_constants(prime: Prime, kind: str, interface: ShaderInterface) -> dict[int, int]:
    """The specialization constants that follow from the prime, as far as the code has them."""
    if kind not in ("wide", "doubles"):
        return {}
    limbs = family_limbs(prime, kind)
    known = double_constants(prime, limbs) if kind == "doubles" else limb_constants(prime)
    known |= _words_from(ONE, prime, prime.r_mod_p)
    known |= _words_from(R_SQUARED, prime, prime.r2_mod_p)
    there = {constant.spec_id for constant in interface.constants}
    return {spec_id: value for spec_id, value in known.items() if spec_id in there}


def family_push(prime: Prime, kind: str, interface: ShaderInterface) -> bytes:
    """The push constants behind the element count; the kernel's own follow them."""
    if kind == "doubles":
        return packed_doubles(family_limbs(prime, kind).split(prime.modulus))
    if kind == "wide":
        # A kernel that multiplies, and so has limbs, gets the modulus as limbs.
        by_limbs = interface.constant(LIMBS) is not None
        return packed_modulus(prime.limbs.split(prime.modulus) if by_limbs else prime.modulus_words)
    if kind == "monty31":
        inverse = pow(prime.modulus, -1, prime.r)
        return packed([prime.modulus, inverse, prime.r_mod_p, prime.r2_mod_p])
    return b""


def _words_from(first: int, prime: Prime, value: int) -> dict[int, int]:
    words = LimbLayout(WORD_BITS, prime.words, 0).split(value)
    return dict(enumerate(words, first))
