"""A prime modulus, how its elements lie in memory, and how kernels cut them into limbs.

In memory an element is k = ceil(bits / 32) little-endian 32-bit words, in Montgomery form with
R = 2^(32k), or in canonical form, as it is, where a prime has a cheaper reduction of its own.
Inside a kernel it is L limbs of B bits, B < 32, so that products of limbs can be summed before
their carries are taken. L*B is at least 32k; a kernel makes up the difference by shifting one
operand left by L*B - 32k bits while it unpacks it, which leaves R as it is.
"""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gpu_executor.errors import KernelError
from gpu_executor.primes import structure
from gpu_executor.primes.factoring import odd_prime_factors
from gpu_executor.primes.moduli import ODD_FACTORS
from gpu_executor.primes.primality import is_prime

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
    "is_prime",
    "limb_layout",
]

Form = Literal["montgomery", "canonical"]

WORD_BITS = 32
WORD_BYTES = WORD_BITS // 8

MAX_BITS = 768
# A kernel is handed the modulus as L 32-bit words in its push constants: 104 bytes leave 24 of
# the 128 that every Vulkan device has for the kernel's own numbers.
MAX_MODULUS_BYTES = 104
MAX_LIMBS = MAX_MODULUS_BYTES // WORD_BYTES

LIMB_BITS = range(28, 31)


@dataclass(frozen=True, slots=True)
class LimbLayout:
    """`count` limbs of `bits` bits, `shift` bits more than the words they are cut from."""

    bits: int
    count: int
    shift: int

    @classmethod
    def covering(cls, words: int, bits: int) -> "LimbLayout":
        """The fewest limbs of `bits` bits that hold `words` 32-bit words."""
        count = -(-WORD_BITS * words // bits)
        return cls(bits, count, count * bits - WORD_BITS * words)

    def split(self, value: int) -> tuple[int, ...]:
        """`value` as limbs, the least significant first."""
        if not 0 <= value < 1 << (self.bits * self.count):
            raise ValueError(f"{value:#x} does not fit {self.count} limbs of {self.bits} bits")
        mask = (1 << self.bits) - 1
        return tuple(value >> (self.bits * limb) & mask for limb in range(self.count))

    def negative_inverse(self, modulus: int) -> int:
        """-1/modulus mod 2^bits: times the lowest limb, the multiple of p that clears it."""
        return -pow(modulus, -1, 1 << self.bits) % (1 << self.bits)


def limb_layout(words: int) -> LimbLayout:
    """The layout kernels use for elements of `words` 32-bit words."""
    # The fewest limbs make the fewest products; of the widths that give that many, the narrowest
    # leaves the most room above a product and so needs the fewest carry passes. On an NVIDIA
    # H200, in 10^9 products a second: at 381 bits 23.9 with 30-bit limbs (13 of them), 21.5 with
    # 28-bit, 16.6 with 32-bit; at 255 bits 53.3 with 29-bit limbs (9), 38.0 with 32-bit.
    layouts = (LimbLayout.covering(words, bits) for bits in LIMB_BITS)
    return min(layouts, key=lambda layout: (layout.count, layout.bits))


@dataclass(frozen=True)
class Prime:
    """A prime modulus under a name; everything else follows from the modulus.

    `canonical` keeps elements as they are instead of in Montgomery form. `factors` are the prime
    factors of p - 1, for moduli whose generator is wanted and whose p - 1 is hard to factor.
    """

    name: str
    modulus: int
    _: KW_ONLY
    canonical: bool = False
    factors: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.modulus < 3:
            raise KernelError(f"{self.name}: {self.modulus} is less than 3, the first odd prime")
        if self.modulus % 2 == 0:
            raise KernelError(f"{self.name}: {self.modulus:#x} is even; Montgomery form needs odd")
        if self.bits > MAX_BITS:
            raise KernelError(f"{self.name}: {self.bits} bits, and {MAX_BITS} are the most")
        # The tests prove the well-known ones, which would take 0.1 s of every import.
        if self.modulus not in ODD_FACTORS and not is_prime(self.modulus):
            raise KernelError(f"{self.name}: {self.modulus:#x} is not prime")
        if self.factors:
            checked = structure.checked_factors(self.name, self.modulus, self.factors)
            # The dataclass is frozen, and a factorization in another order is the same.
            object.__setattr__(self, "factors", checked)

    @cached_property
    def bits(self) -> int:
        """The modulus's length in bits."""
        return self.modulus.bit_length()

    @cached_property
    def words(self) -> int:
        """k: 32-bit words in an element."""
        return -(-self.bits // WORD_BITS)

    @cached_property
    def element_bytes(self) -> int:
        """Bytes in an element."""
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
        """What an element's words hold: x * R mod p, or x itself."""
        return "canonical" if self.canonical else "montgomery"

    def in_form(self, value: int) -> int:
        """What an element's words hold for `value`, any integer."""
        return (value if self.canonical else value * self.r) % self.modulus

    @cached_property
    def one(self) -> int:
        """What an element's words hold for 1."""
        return self.in_form(1)

    @cached_property
    def r2_mod_p(self) -> int:
        """R^2 mod p: a Montgomery product with it takes an element into Montgomery form."""
        return self.r * self.r % self.modulus

    @cached_property
    def column_dtype(self) -> np.dtype[Any]:
        """One column of an element array: uint64, or uint32 when k is odd."""
        return np.dtype(np.uint32 if self.words % 2 else np.uint64)

    @cached_property
    def columns(self) -> int:
        """Columns in an element array."""
        return self.element_bytes // self.column_dtype.itemsize

    @cached_property
    def element_shape(self) -> tuple[int, ...]:
        """What an element adds to an array's shape: nothing when it is one column."""
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
        """How kernels cut an element into limbs."""
        return limb_layout(self.words)

    @cached_property
    def two_adicity(self) -> int:
        """How often 2 divides p - 1: there are roots of unity of every order up to 2^this."""
        return structure.two_adicity(self.modulus - 1)

    @cached_property
    def odd_part(self) -> int:
        """p - 1 without its factors 2."""
        return self.modulus - 1 >> self.two_adicity

    @cached_property
    def odd_factors(self) -> tuple[int, ...] | None:
        """The odd primes that divide p - 1: given, well known, or found within a few seconds.

        None where they are not (`factoring` says how far it looks).
        """
        return self.factors or ODD_FACTORS.get(self.modulus) or odd_prime_factors(self.modulus - 1)

    @cached_property
    def generator(self) -> int:
        """The smallest element whose powers are all elements but zero."""
        if self.odd_factors is None:
            raise KernelError(
                f"{self.name}: a generator is known by the prime factors of p - 1, and they were "
                "not found in the steps allowed; give factors="
            )
        return structure.smallest_generator(self.modulus, self.odd_factors)

    def root_of_unity(self, log2_order: int) -> int:
        """An element of order 2^log2_order, as an integer: generator^((p-1) / 2^log2_order).

        Each is the square of the next. Where the prime factors of p - 1 are not known, the
        smallest quadratic non-residue takes the generator's place, which gives the same orders.
        """
        if not 0 <= log2_order <= self.two_adicity:
            raise KernelError(
                f"{self.name}: there is no root of unity of order 2^{log2_order}; "
                f"the largest power of two that divides p - 1 is 2^{self.two_adicity}"
            )
        if log2_order <= 1:  # 1 and -1 whatever the generator, so it need not be looked for
            return (1, self.modulus - 1)[log2_order]
        return pow(self._non_residue, self.modulus - 1 >> log2_order, self.modulus)

    @cached_property
    def _non_residue(self) -> int:
        """What roots of unity are powers of."""
        if self.odd_factors is None:
            return structure.smallest_non_residue(self.modulus)
        return self.generator
