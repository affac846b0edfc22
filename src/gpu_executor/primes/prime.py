"""A prime modulus, the memory layout of its elements, and the limbs that kernels work on.

In memory an element is k = ceil(bits / 32) little-endian 32-bit words. The words hold x * R mod p
with R = 2^(32k) (Montgomery form), or x itself (canonical form) for primes with a special
reduction.

Inside a kernel an element is L limbs of B < 32 bits, so several products of limbs can be summed
before carries are propagated. L*B is at least 32k. A kernel whose reduction divides by 2^(L*B)
shifts one operand left by L*B - 32k bits when it converts words to limbs; the result is then
divided by R = 2^(32k), as the memory layout requires.
"""

from dataclasses import KW_ONLY
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentValueError, KernelError
from gpu_executor.primes.moduli import ODD_FACTORS
from gpu_executor.primes.number_theory import (
    check_factors,
    find_generator,
    find_non_residue,
    find_odd_prime_factors,
    is_prime,
    two_adicity,
)

__all__ = [
    "LIMB_BITS",
    "MAX_BITS",
    "MAX_LIMBS",
    "MAX_MODULUS_BYTES",
    "WORD_BITS",
    "WORD_BYTES",
    "Form",
    "LimbLayout",
    "Prime",
    "choose_limb_layout",
    "is_prime",
]

Form = Literal["montgomery", "canonical"]

WORD_BITS = 32
WORD_BYTES = WORD_BITS // 8

MAX_BITS = 768
# The push constants of a kernel hold the modulus as L 32-bit words. Every Vulkan device has 128
# bytes of push constants; 104 for the modulus leave 24 for the element count and the kernel's own.
MAX_MODULUS_BYTES = 104
MAX_LIMBS = MAX_MODULUS_BYTES // WORD_BYTES

LIMB_BITS = range(28, 31)


@dataclass(frozen=True, slots=True)
class LimbLayout:
    """`count` limbs of `bits` bits each; together they have `shift` bits more than the element's
    words.
    """

    bits: int
    count: int
    shift: int

    @classmethod
    def covering(cls, words: int, bits: int, spare: int = 0) -> "LimbLayout":
        """Return the layout with the fewest limbs of `bits` bits that hold `words` 32-bit words and
        `spare` bits more.
        """
        count = -(-(WORD_BITS * words + spare) // bits)
        return cls(bits, count, count * bits - WORD_BITS * words)

    def split(self, value: int) -> tuple[int, ...]:
        """Return `value` as limbs, the least significant first."""
        if not 0 <= value < 1 << (self.bits * self.count):
            raise ArgumentValueError(
                f"{value:#x} does not fit {self.count} limbs of {self.bits} bits"
            )
        mask = (1 << self.bits) - 1
        return tuple(value >> (self.bits * limb) & mask for limb in range(self.count))

    def negative_inverse(self, modulus: int) -> int:
        """Return -1/modulus mod 2^bits. Multiplied by the lowest limb of x, it gives the m for
        which x + m * modulus has a lowest limb of zero.
        """
        return -pow(modulus, -1, 1 << self.bits) % (1 << self.bits)


def choose_limb_layout(words: int, spare: int = 0) -> LimbLayout:
    """Return the layout that kernels use for elements of `words` 32-bit words, with at least
    `spare` bits more.
    """
    # The fewest limbs give the fewest products (2 L^2 + L for a Montgomery product). Of the widths
    # with that many limbs, the narrowest leaves the most free bits above a product in a 64-bit
    # accumulator, so it needs the fewest carry passes. Both are counts of instructions, which hold
    # for every device that multiplies words. On an NVIDIA H200, in 10^9 products a second: at 381
    # bits 23.9 with 30-bit limbs (13 of them), 21.5 with 28-bit, 16.6 with 32-bit; at 255 bits 53.3
    # with 29-bit limbs (9), 38.0 with 32-bit.
    layouts = (LimbLayout.covering(words, bits, spare) for bits in LIMB_BITS)
    return min(layouts, key=lambda layout: (layout.count, layout.bits))


@dataclass(frozen=True)
class Prime:
    """A named prime modulus; every other constant is derived from the modulus.

    With `canonical`, elements are stored in canonical form instead of Montgomery form. `factors`
    are the prime factors of p - 1: give them if you need the generator and p - 1 is too hard to
    factor.
    """

    name: str
    modulus: int
    _: KW_ONLY
    canonical: bool = False
    factors: tuple[int, ...] = ()

    def __hash__(self) -> int:
        # Every operation looks its kernel up by the prime. A hash of all attributes takes twice as
        # long (0.50 us and 0.28 us), and few primes differ in the others alone.
        return hash(self.modulus)

    def __post_init__(self) -> None:
        if self.modulus < 3:
            raise KernelError(
                f"{self.name}: the modulus {self.modulus} is less than 3; give an odd prime"
            )
        if self.modulus % 2 == 0:
            raise KernelError(
                f"{self.name}: the modulus {self.modulus:#x} is even; give an odd prime"
            )
        if self.bits > MAX_BITS:
            raise KernelError(
                f"{self.name}: the modulus has {self.bits} bits; at most {MAX_BITS} are supported"
            )
        # The tests prove the well-known moduli prime: doing it here adds 0.1 s to every import.
        if self.modulus not in ODD_FACTORS and not is_prime(self.modulus):
            raise KernelError(f"{self.name}: the modulus {self.modulus:#x} is not prime")
        if self.factors:
            checked = check_factors(self.name, self.modulus, self.factors)
            # Sort the factors, so that primes with the same factors are equal. The dataclass is
            # frozen, so its attributes cannot be assigned directly.
            object.__setattr__(self, "factors", checked)

    @cached_property
    def bits(self) -> int:
        """The bit length of the modulus."""
        return self.modulus.bit_length()

    @cached_property
    def words(self) -> int:
        """k = ceil(bits / 32): 32-bit words in an element."""
        return -(-self.bits // WORD_BITS)

    @cached_property
    def element_bytes(self) -> int:
        """4k: bytes in an element."""
        return WORD_BYTES * self.words

    @cached_property
    def r(self) -> int:
        """R = 2^(32k), the Montgomery factor."""
        return 1 << (WORD_BITS * self.words)

    @cached_property
    def r_mod_p(self) -> int:
        """R mod p: the Montgomery form of 1."""
        return self.r % self.modulus

    @cached_property
    def form(self) -> Form:
        """The form of an element's words: "montgomery" is x * R mod p, "canonical" is x itself."""
        return "canonical" if self.canonical else "montgomery"

    def in_form(self, value: int) -> int:
        """Return the integer that the words of the element `value` mod p hold; `value` is any
        integer.
        """
        return (value if self.canonical else value * self.r) % self.modulus

    @cached_property
    def one(self) -> int:
        """The integer that the words of the element 1 hold."""
        return self.in_form(1)

    @cached_property
    def r_inverse(self) -> int:
        """1 / R mod p: an integer product with it is the Montgomery product with 1."""
        return pow(self.r, -1, self.modulus)

    @cached_property
    def r2_mod_p(self) -> int:
        """R^2 mod p: the Montgomery product with it converts to Montgomery form."""
        return self.r * self.r % self.modulus

    @cached_property
    def column_dtype(self) -> np.dtype[Any]:
        """The dtype of one column of an element array: uint64, or uint32 when k is odd."""
        return np.dtype(np.uint32 if self.words % 2 else np.uint64)

    @cached_property
    def columns(self) -> int:
        """Columns in an element array."""
        return self.element_bytes // self.column_dtype.itemsize

    @cached_property
    def element_shape(self) -> tuple[int, ...]:
        """The trailing axes that an element adds to an array's shape: none if it is one column."""
        return () if self.columns == 1 else (self.columns,)

    @cached_property
    def element_dtype(self) -> np.dtype[Any]:
        """An element as a dtype: one number, or a subarray of `columns` numbers."""
        if not self.element_shape:
            return self.column_dtype
        return np.dtype((self.column_dtype, self.element_shape))

    @cached_property
    def modulus_words(self) -> tuple[int, ...]:
        """The modulus as k 32-bit words, the least significant first."""
        return LimbLayout(WORD_BITS, self.words, 0).split(self.modulus)

    @cached_property
    def limbs(self) -> LimbLayout:
        """The limbs that kernels convert an element to."""
        return choose_limb_layout(self.words)

    @cached_property
    def two_adicity(self) -> int:
        """The s in p - 1 = 2^s * odd_part: the largest power-of-two root of unity has order 2^s."""
        return two_adicity(self.modulus - 1)

    @cached_property
    def odd_part(self) -> int:
        """(p - 1) / 2^two_adicity."""
        return self.modulus - 1 >> self.two_adicity

    @cached_property
    def odd_factors(self) -> tuple[int, ...] | None:
        """The odd primes that divide p - 1; None if they are not known.

        The source is `factors`, the table of well-known moduli, or `find_odd_prime_factors` within
        its budget of a few seconds.
        """
        if self.factors:
            return self.factors
        return ODD_FACTORS.get(self.modulus) or find_odd_prime_factors(self.modulus - 1)

    @cached_property
    def generator(self) -> int:
        """The smallest generator of the multiplicative group: its powers are all elements except
        zero.
        """
        if self.odd_factors is None:
            raise KernelError(
                f"{self.name}: finding a generator requires the prime factors of p - 1, which were "
                "not found within the factoring budget; give factors="
            )
        return find_generator(self.modulus, self.odd_factors)

    def root_of_unity(self, log2_order: int) -> int:
        """Return the root of unity of order 2^log2_order, an integer: generator^((p-1) /
        2^log2_order).

        The root of order 2^n is the square of the root of order 2^(n+1). If the prime factors of
        p - 1 are not known, the smallest quadratic non-residue replaces the generator; its powers
        have the same orders.
        """
        if not 0 <= log2_order <= self.two_adicity:
            raise KernelError(
                f"{self.name}: there is no root of unity of order 2^{log2_order}; "
                f"the largest power of two that divides p - 1 is 2^{self.two_adicity}"
            )
        if log2_order <= 1:  # 1 and -1 do not depend on the generator, so none is searched for
            return (1, self.modulus - 1)[log2_order]
        return pow(self._non_residue, self.modulus - 1 >> log2_order, self.modulus)

    @cached_property
    def _non_residue(self) -> int:
        """The non-residue whose powers are the roots of unity: the generator if it is known."""
        if self.odd_factors is None:
            return find_non_residue(self.modulus)
        return self.generator
