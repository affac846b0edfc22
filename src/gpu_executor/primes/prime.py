"""A prime modulus, how its elements lie in memory, and how kernels cut them into limbs.

In memory an element is k = ceil(bits / 32) little-endian 32-bit words, in Montgomery form with
R = 2^(32k). Inside a kernel it is L limbs of B bits, B < 32, so that products of limbs can be
summed before their carries are taken. L*B is at least 32k; a kernel makes up the difference by
shifting one operand left by L*B - 32k bits while it unpacks it, which leaves R as it is.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpu_executor.errors import KernelError

WORD_BITS = 32
WORD_BYTES = WORD_BITS // 8

MAX_BITS = 768
# A kernel is handed the modulus as L 32-bit words in its push constants: 104 bytes leave 24 of
# the 128 that every Vulkan device has for the kernel's own numbers.
MAX_MODULUS_BYTES = 104
MAX_LIMBS = MAX_MODULUS_BYTES // WORD_BYTES

LIMB_BITS = range(28, 31)

# Miller-Rabin with these bases is a proof below this bound (Sorenson and Webster, 2015).
_PROVING_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PROVED_BELOW = 3_317_044_064_679_887_385_961_981
# Above it a composite passes one base in four at most, so 4^-40 = 2^-80 for all of these.
_HASHED_BASES = 40


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
    """A prime modulus under a name; everything else follows from the modulus."""

    name: str
    modulus: int

    def __post_init__(self) -> None:
        if self.modulus < 3:
            raise KernelError(f"{self.name}: {self.modulus} is less than 3, the first odd prime")
        if self.modulus % 2 == 0:
            raise KernelError(f"{self.name}: {self.modulus:#x} is even; Montgomery form needs odd")
        if self.bits > MAX_BITS:
            raise KernelError(f"{self.name}: {self.bits} bits, and {MAX_BITS} are the most")
        if not is_prime(self.modulus):
            raise KernelError(f"{self.name}: {self.modulus:#x} is not prime")

    @property
    def bits(self) -> int:
        """The modulus's length in bits."""
        return self.modulus.bit_length()

    @property
    def words(self) -> int:
        """k: 32-bit words in an element."""
        return -(-self.bits // WORD_BITS)

    @property
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
    def r2_mod_p(self) -> int:
        """R^2 mod p: a Montgomery product with it takes an element into Montgomery form."""
        return self.r * self.r % self.modulus

    @property
    def column_dtype(self) -> np.dtype[Any]:
        """One column of an element array: uint64, or uint32 when k is odd."""
        return np.dtype(np.uint32 if self.words % 2 else np.uint64)

    @property
    def columns(self) -> int:
        """Columns in an element array."""
        return self.element_bytes // self.column_dtype.itemsize

    @property
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


def is_prime(number: int) -> bool:
    """Miller-Rabin: a proof below 3.3 * 10^24, wrong with chance at most 2^-80 above."""
    if number < 2:
        return False
    for prime in _PROVING_BASES:
        if number % prime == 0:
            return number == prime
    bases = _PROVING_BASES if number < _PROVED_BELOW else _hashed_bases(number)
    return all(_passes(number, base) for base in bases)


def _hashed_bases(number: int) -> tuple[int, ...]:
    """Bases drawn from a hash of the number.

    The same number always gets the same answer, yet nobody can build a composite to suit bases
    that change with it.
    """
    # 16 bytes more than the number has, so that reducing them favours no base noticeably.
    size = (number.bit_length() + 7) // 8 + 16
    stream = hashlib.shake_256(number.to_bytes(size, "little")).digest(size * _HASHED_BASES)
    draws = (stream[start : start + size] for start in range(0, len(stream), size))
    return tuple(2 + int.from_bytes(draw, "little") % (number - 3) for draw in draws)


def _passes(number: int, base: int) -> bool:
    """Whether `number`, odd, is a strong probable prime to `base`."""
    # number - 1 = odd * 2^twos
    twos = (number - 1 & 1 - number).bit_length() - 1
    power = pow(base, number - 1 >> twos, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
