"""Exact arithmetic of coordinates on the host, in Python integers.

A coordinate of a curve over a prime field is an `int`. Over an extension field it is an
`ExtensionElement`, which has the operators of an `int` that formulas need: sums, products and the
remainder modulo p. So one text of a formula serves both, and `(x * y - z) % p` reduces once.

Integers of Python are as fast as vectors of words, and much faster for few points: a product modulo
BLS12-381's q takes 1.1 us, and with NumPy's words (`primes.words`) 1.1 us in blocks of 8,192 and 22
us in blocks of 16 (Intel Xeon, 2.5 GHz).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy.typing as npt

from gpu_executor.primes import Form, Prime, words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.number_theory import two_adicity

Words = npt.NDArray[Any]
Coordinate = Any
"""An `int` or an `ExtensionElement`; reduced, unless a formula is in the middle of a product."""


class ExtensionElement:
    """c0 + c1 u + ... with u^degree = nonresidue; the coefficients are integers of any size."""

    __slots__ = ("coefficients", "nonresidue")

    def __init__(self, coefficients: tuple[int, ...], nonresidue: int) -> None:
        self.coefficients = coefficients
        self.nonresidue = nonresidue

    def _combine(self, coefficients: Iterable[int]) -> ExtensionElement:
        return ExtensionElement(tuple(coefficients), self.nonresidue)

    def __add__(self, other: ExtensionElement) -> ExtensionElement:
        pairs = zip(self.coefficients, other.coefficients, strict=True)
        return self._combine([x + y for x, y in pairs])

    def __sub__(self, other: ExtensionElement) -> ExtensionElement:
        pairs = zip(self.coefficients, other.coefficients, strict=True)
        return self._combine([x - y for x, y in pairs])

    def __neg__(self) -> ExtensionElement:
        return self._combine([-x for x in self.coefficients])

    def __mul__(self, other: ExtensionElement | int) -> ExtensionElement:
        if isinstance(other, int):
            return self._combine([x * other for x in self.coefficients])
        if len(self.coefficients) == 2:
            (a, b), (c, d) = self.coefficients, other.coefficients
            low, high = a * c, b * d
            middle = (a + b) * (c + d) - low - high
            return ExtensionElement((low + self.nonresidue * high, middle), self.nonresidue)
        degree = len(self.coefficients)
        product = [0] * degree
        for i, x in enumerate(self.coefficients):
            for j, y in enumerate(other.coefficients):
                factor = 1 if i + j < degree else self.nonresidue
                product[(i + j) % degree] += factor * x * y
        return self._combine(product)

    __rmul__ = __mul__

    def __mod__(self, modulus: int) -> ExtensionElement:
        return self._combine([x % modulus for x in self.coefficients])

    def __bool__(self) -> bool:
        return any(self.coefficients)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtensionElement) and self.coefficients == other.coefficients

    def __hash__(self) -> int:
        return hash(self.coefficients)

    def __repr__(self) -> str:
        return f"ExtensionElement{self.coefficients}"


class CoordinateField:
    """The field of a curve's coordinates: conversions, inverses and square roots."""

    def __init__(self, prime: Prime, degree: int = 1, nonresidue: int = 0) -> None:
        self.prime = prime
        self.modulus = prime.modulus
        self.degree = degree
        # A small representative makes products with it quick: -1 instead of p - 1.
        half = self.modulus // 2
        self.nonresidue = (nonresidue + half) % self.modulus - half
        self.zero = self.make([0] * degree)
        self.one = self.make([1] + [0] * (degree - 1))

    @classmethod
    def of(cls, key: CurveKey) -> CoordinateField:
        """The field of a curve's coordinates."""
        return cls(key.prime, key.degree, key.nonresidue)

    @property
    def order(self) -> int:
        """The number of elements."""
        return int(self.modulus**self.degree)

    # --- conversions ---

    def make(self, coefficients: Sequence[int]) -> Coordinate:
        """The element with these coefficients, which are any integers."""
        reduced = tuple(each % self.modulus for each in coefficients)
        return reduced[0] if self.degree == 1 else ExtensionElement(reduced, self.nonresidue)

    def get_coefficients(self, x: Coordinate) -> tuple[int, ...]:
        """The coefficients of an element."""
        return (x,) if self.degree == 1 else x.coefficients

    def to_integers(self, x: Coordinate) -> Any:
        """An element as users see it: an integer, or a tuple of its coefficients."""
        return x if self.degree == 1 else x.coefficients

    def from_words(self, data: Words, form: Form | None = None) -> list[Coordinate]:
        """The elements of an array of words in a form, by default the prime's, in flat order."""
        p, ints = self.modulus, words.to_ints(self.prime, data)
        if (form or self.prime.form) == "montgomery":
            ints = [each * self.prime.r_inverse % p for each in ints]
        if self.degree == 1:
            return ints
        rows = zip(*[iter(ints)] * self.degree, strict=True)
        return [ExtensionElement(row, self.nonresidue) for row in rows]

    def to_words(self, elements: Sequence[Coordinate], form: Form | None = None) -> Words:
        """The words of elements in a form, by default the prime's: shape (n, *axes of a
        coordinate)."""
        ints: Iterable[int] = elements
        if self.degree > 1:
            ints = itertools.chain.from_iterable(each.coefficients for each in elements)
        if (form or self.prime.form) == "montgomery":
            ints = map(self.prime.in_form, ints)
        found = words.from_ints(self.prime, ints)
        coefficients = () if self.degree == 1 else (self.degree,)
        return found.reshape((len(elements), *coefficients, *self.prime.element_shape))

    # --- arithmetic beyond operators ---

    def power(self, x: Coordinate, exponent: int) -> Coordinate:
        """x to a power that is not negative."""
        if self.degree == 1:
            return pow(x, exponent, self.modulus)
        result = self.one
        for bit in f"{exponent:b}":
            result = result * result % self.modulus
            if bit == "1":
                result = result * x % self.modulus
        return result

    def invert(self, x: Coordinate) -> Coordinate:
        """1 / x; x is not 0."""
        p = self.modulus
        if self.degree == 1:
            return pow(x, -1, p)
        # The norm of x is in the prime field: x times its other conjugates, x^p, x^(p^2), ...
        if self.degree == 2:
            c0, c1 = x.coefficients
            others = ExtensionElement((c0, -c1), self.nonresidue)
        else:
            others = self.power(x, (self.order - 1) // (p - 1) - 1)
        norm = self.get_coefficients(x * others % p)[0]
        return others * pow(norm, -1, p) % p

    def invert_all(self, elements: Sequence[Coordinate]) -> list[Coordinate]:
        """The inverses of elements that are not 0: one inversion, and 3 products for each."""
        if not elements:
            return []
        p = self.modulus
        products = list(itertools.accumulate(elements, lambda x, y: x * y % p))
        rest = self.invert(products[-1])
        inverses = [rest] * len(elements)
        for at in range(len(elements) - 1, 0, -1):
            inverses[at] = rest * products[at - 1] % p
            rest = rest * elements[at] % p
        inverses[0] = rest
        return inverses

    def is_larger(self, x: Coordinate) -> bool:
        """Whether x is larger than -x, compared by the highest coefficient that is not 0."""
        highest = next((each for each in reversed(self.get_coefficients(x)) if each), 0)
        return highest > self.modulus // 2

    # --- square roots ---

    def sqrt(self, x: Coordinate) -> Coordinate | None:
        """One of the two square roots; None if there are none."""
        if not x:
            return x
        if self.degree == 2:
            return self._sqrt_quadratic(x)
        if self.order % 4 == 3:
            root = self.power(x, (self.order + 1) // 4)
        else:
            root = self._tonelli_shanks(x)
        return root if root is not None and root * root % self.modulus == x else None

    def _sqrt_quadratic(self, x: ExtensionElement) -> Coordinate | None:
        """(s + t u)^2 = c0 + c1 u means s^2 + n t^2 = c0 and 2 s t = c1. The norm of c0 + c1 u is
        (s^2 - n t^2)^2, so its root and c0 give s^2, up to the sign of the root."""
        p, base, (c0, c1) = self.modulus, CoordinateField(self.prime), x.coefficients
        if not c1:
            root = base.sqrt(c0)
            if root is not None:
                return self.make([root, 0])
            imaginary = base.sqrt(c0 * pow(self.nonresidue, -1, p) % p)
            return None if imaginary is None else self.make([0, imaginary])
        norm = base.sqrt((c0 * c0 - self.nonresidue * c1 * c1) % p)
        if norm is None:
            return None
        half = (p + 1) // 2
        for sign in (norm, -norm):
            s = base.sqrt((c0 + sign) * half % p)
            if s:
                return self.make([s, c1 * pow(2 * s, -1, p)])
        return None

    @cached_property
    def _two_power_generator(self) -> Coordinate:
        """An element whose order is the largest power of two that divides the group's order."""
        group, minus_one = self.order - 1, -self.one % self.modulus
        found = next(x for x in self._enumerate() if self.power(x, group // 2) == minus_one)
        return self.power(found, group >> two_adicity(group))

    def _enumerate(self) -> Iterator[Coordinate]:
        """Elements other than 0, without end; all of them if the field is small."""
        base, top = min(self.modulus, 8), self.degree - 1
        for number in itertools.count(1):
            digits = [number // base**power % base for power in range(top)]
            yield self.make([*digits, number // base**top])

    def _tonelli_shanks(self, x: Coordinate) -> Coordinate | None:
        """A square root by the algorithm of Tonelli and Shanks; None if x is not a square."""
        p, twos = self.modulus, two_adicity(self.order - 1)
        odd = self.order - 1 >> twos
        power = self.power(x, odd // 2)
        root = power * x % p
        rest = power * root % p  # root^2 = x * rest, and the order of rest is a power of two
        generator = self._two_power_generator
        while rest != self.one:
            square, order = rest, 0
            while square != self.one:
                square, order = square * square % p, order + 1
            if order >= twos:
                return None
            factor = generator
            for _ in range(twos - order - 1):
                factor = factor * factor % p
            root, generator, twos = root * factor % p, factor * factor % p, order
            rest = rest * generator % p
        return root
