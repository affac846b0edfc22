"""The decomposition of Gallant, Lambert and Vanstone (GLV): a scalar as two of half its length.

On a curve y^2 = x^3 + b over a field with a cube root of unity beta, the map
(x, y) -> (beta x, y) multiplies the points of a group of prime order r by an eigenvalue l, a cube
root of unity modulo r. So k P = k1 P + k2 (beta x, y) for all k1 and k2 with k1 + k2 l = k mod r.
There are such k1 and k2 of half the bits of r: (k1, k2) is the difference of (k, 0) and a near
point of the lattice of all (a, b) with a + b l = 0 mod r.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Vector = tuple[int, int]
WORD_BITS = 32
LEAST_WINDOW_BITS = 3
"""With smaller windows the signed digits of a negative half would need one more window."""


def find_cube_root_of_unity(modulus: int) -> int | None:
    """A cube root of unity other than 1, always the same one; None where there is none."""
    if modulus % 3 != 1:
        return None
    powers = (pow(base, (modulus - 1) // 3, modulus) for base in range(2, modulus))
    return next(power for power in powers if power != 1)


@dataclass(frozen=True)
class Glv:
    """The halves of scalars modulo `order`, given a basis of the lattice.

    With c1 and c2, the coordinates of (k, 0) in the basis, rounded: (k1, k2) =
    (k, 0) - c1 basis[0] - c2 basis[1]. Kernels multiply k by c / k as a binary fraction
    (glsl/halve_scalars.comp). Whatever c1 and c2 are, the halves are right; their rounding decides
    how long the halves are.
    """

    order: int
    basis: tuple[Vector, Vector]

    @cached_property
    def eigenvalue(self) -> int:
        """What the map multiplies points by."""
        a, b = self.basis[0]
        return -a * pow(b, -1, self.order) % self.order

    @property
    def words(self) -> int:
        """32-bit words of a scalar."""
        return -(-self.order.bit_length() // WORD_BITS)

    @property
    def half_words(self) -> int:
        """32-bit words of a half, in two's complement. These are at least 22 bits more than
        `scalar_bits`, as many as the longest window has."""
        return (self.words + 1) // 2 + 1

    @cached_property
    def scalar_bits(self) -> int:
        """b so that halves are between -3/4 2^b and 3/4 2^b. Their signed digits then fit the
        windows of scalars of b bits: a negative half has a negative topmost digit."""
        longest = max(abs(first) + abs(second) for first, second in zip(*self.basis, strict=True))
        # Coordinates are wrong by 1/2 at most, and by 2^-33 because of their fractions.
        bound = longest // 2 + (longest >> 32) + 1
        return (bound * 4 // 3 + 1).bit_length()

    def halve(self, scalar: int) -> Vector:
        """k1 and k2 of a scalar."""
        (a1, b1), (a2, b2) = self.basis
        determinant = a1 * b2 - a2 * b1
        first = _divide_rounded(scalar * b2, determinant)
        second = _divide_rounded(-scalar * b1, determinant)
        return scalar - first * a1 - second * a2, -first * b1 - second * b2

    def encode(self) -> npt.NDArray[np.uint32]:
        """The constants of the kernel: |c1 / k| and |c2 / k| as fractions of 2^(32 (words + 1)),
        then what their products with k are multiplied by: for k1 and for k2."""
        (a1, b1), (a2, b2) = self.basis
        determinant = a1 * b2 - a2 * b1
        scale = 1 << WORD_BITS * (self.words + 1)
        fractions = [(2 * scale * abs(each) + self.order) // (2 * self.order) for each in (b2, b1)]
        signs = [1 if value * determinant >= 0 else -1 for value in (b2, -b1)]
        factors = [
            -sign * value
            for values in ((a1, a2), (b1, b2))
            for sign, value in zip(signs, values, strict=True)
        ]
        half = self.half_words
        split = [_split(each, half + 1) for each in fractions]
        split += [_split(each, half) for each in factors]
        return np.array([word for number in split for word in number], np.uint32)


def make_glv(order: int, eigenvalue: int) -> Glv:
    """The decomposition for a cube root of unity modulo the order."""
    # Gauss's reduction of a basis with two vectors.
    u, v = (order, 0), (-eigenvalue, 1)
    while True:
        if _multiply(u, u) > _multiply(v, v):
            u, v = v, u
        times = _divide_rounded(_multiply(u, v), _multiply(u, u))
        if not times:
            return Glv(order, (u, v))
        v = v[0] - times * u[0], v[1] - times * u[1]


def _multiply(u: Vector, v: Vector) -> int:
    """The scalar product."""
    return u[0] * v[0] + u[1] * v[1]


def _divide_rounded(a: int, b: int) -> int:
    return (2 * a + b) // (2 * b)


def _split(number: int, words: int) -> list[int]:
    """The words of a number in two's complement."""
    return [number >> WORD_BITS * i & 0xFFFFFFFF for i in range(words)]
