"""`Extension`: a finite field that extends a prime field or another extension, and exact arithmetic
on single elements.

An element is c0 + c1 u + ... with coefficients in the base and u^degree = nonresidue. As Python
values an element of a prime field is an integer, and an element of an extension is the tuple of its
coefficients, which are tuples themselves in a tower.

u^degree - nonresidue is irreducible and the degree is at most 4. Therefore the degree divides
q - 1, q the number of elements of the base (Lidl and Niederreiter, Finite Fields, theorem 3.75). So
x -> x^q multiplies each coefficient by a power of nonresidue^((q - 1) / degree).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count, product
from typing import Any, Protocol

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import KernelError
from gpu_executor.primes.prime import Form, Prime

DEGREES = range(2, 5)

Scalar = Any
"""An element: an integer, or a tuple of elements of the base."""


class ElementLayout(Protocol):
    """What algorithms that only move elements need to know: a `Prime` or an `Extension`."""

    @property
    def name(self) -> str:
        """The name of the field, for messages."""

    @property
    def form(self) -> Form:
        """The form in which the field computes."""

    @property
    def words(self) -> int:
        """32-bit words in an element."""

    @property
    def element_bytes(self) -> int:
        """Bytes in an element."""

    @property
    def columns(self) -> int:
        """Columns in an element."""

    @property
    def column_dtype(self) -> np.dtype[Any]:
        """The dtype of one column."""

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The trailing axes that an element adds to an array's shape."""


@dataclass(frozen=True)
class Extension:
    """The extension of `base` by a root u of u^degree - nonresidue, which must be irreducible."""

    name: str
    base: Prime | Extension
    nonresidue: Scalar
    """An element of the base, its integers in 0 .. p-1."""
    degree: int

    def __post_init__(self) -> None:
        if self.degree not in DEGREES:
            raise KernelError(
                f"{self.name}: the degree is {self.degree}; it must be {DEGREES[0]} to "
                f"{DEGREES[-1]} (a tower of extensions has larger degrees)"
            )
        reason = explain_reducible(self)
        if reason is not None:
            raise KernelError(f"{self.name}: {reason}")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.base, self.nonresidue, self.degree))

    # --- layout ---

    @cached_property
    def prime(self) -> Prime:
        """The prime field at the bottom of the tower."""
        return self.base if isinstance(self.base, Prime) else self.base.prime

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """The axes of coefficients: this extension's degree, then those of the base."""
        rest = () if isinstance(self.base, Prime) else self.base.degrees
        return (self.degree, *rest)

    @cached_property
    def total_degree(self) -> int:
        """The degree over the prime field: integers in an element."""
        below = 1 if isinstance(self.base, Prime) else self.base.total_degree
        return self.degree * below

    @cached_property
    def order(self) -> int:
        """The number of elements."""
        return int(self.prime.modulus**self.total_degree)

    @property
    def form(self) -> Form:
        """The form of every coefficient."""
        return self.prime.form

    @cached_property
    def words(self) -> int:
        """32-bit words in an element."""
        return self.total_degree * self.prime.words

    @cached_property
    def element_bytes(self) -> int:
        """Bytes in an element."""
        return self.total_degree * self.prime.element_bytes

    @cached_property
    def columns(self) -> int:
        """Columns in an element."""
        return self.total_degree * self.prime.columns

    @cached_property
    def column_dtype(self) -> np.dtype[Any]:
        """The dtype of one column."""
        return self.prime.column_dtype

    @cached_property
    def element_shape(self) -> tuple[int, ...]:
        """The trailing axes that an element adds to an array's shape."""
        return (*self.degrees, *self.prime.element_shape)

    # --- constants of the Frobenius maps ---

    @cached_property
    def relative_factors(self) -> tuple[Scalar, ...]:
        """The factor of each coefficient in x -> x^q, q the number of elements of the base."""
        root = power(self.base, self.nonresidue, (get_order(self.base) - 1) // self.degree)
        return tuple(power(self.base, root, i) for i in range(self.degree))

    def find_frobenius_terms(self, times: int) -> list[tuple[int, Scalar]]:
        """For each coefficient c, where x -> x^(p^times) moves it and what that map multiplies
        c^(p^times) with: u^(i p^times) is a power of the nonresidue times a power of u."""
        terms: list[tuple[int, Scalar]] = []
        for i in range(self.degree):
            quotient, target = divmod(i * self.prime.modulus**times, self.degree)
            exponent = quotient % (get_order(self.base) - 1)
            terms.append((target, power(self.base, self.nonresidue, exponent)))
        return terms


PrimeOrExtension = Prime | Extension
"""A finite field of one kind or the other."""


def explain_reducible(extension: Extension) -> str | None:
    """Why u^degree - nonresidue is not irreducible, in words; None if it is irreducible.

    It is irreducible if, for each prime divisor r of the degree, r divides q - 1 and the nonresidue
    is not an r-th power; for degree 4, also only if 4 divides q - 1.
    """
    base, degree, nonresidue = extension.base, extension.degree, extension.nonresidue
    others, divisor = get_order(base) - 1, 3 if degree == 3 else 2
    kind = "a cube" if divisor == 3 else "a square"
    described = f"u^{degree} - {nonresidue} is not irreducible over {base.name}"
    if is_zero(nonresidue):
        return f"{described}: the nonresidue is 0"
    if others % degree:
        return (
            f"{described}: no u^{degree} - c is, because {degree} does not divide q - 1, q the "
            "number of elements of the base; take another degree, or a tower of extensions"
        )
    if power(base, nonresidue, others // divisor) == make_one(base):
        return f"{described}: {nonresidue} is {kind} there; take an element that is not"
    return None


# --- arithmetic on single elements ---


def get_order(field: PrimeOrExtension) -> int:
    """The number of elements of a field."""
    return field.modulus if isinstance(field, Prime) else field.order


def embed(field: PrimeOrExtension, value: Scalar) -> Scalar:
    """An element of a field, given as such or as an element of a base of it, reduced modulo p.

    An integer is an element of the prime field.
    """
    if isinstance(field, Prime):
        return value % field.modulus
    if isinstance(value, tuple) and len(value) == field.degree and _is_coefficients(field, value):
        return tuple(embed(field.base, each) for each in value)
    zero = make_zero(field.base)
    return (embed(field.base, value), *[zero] * (field.degree - 1))


def _is_coefficients(field: Extension, value: tuple[Any, ...]) -> bool:
    """Whether a tuple of this field's degree holds coefficients of this field, and not those of a
    base of the same degree."""
    return count_levels(value) == len(field.degrees)


def count_levels(value: Scalar) -> int:
    """The depth to which tuples are nested; 0 for an integer."""
    return 1 + max(map(count_levels, value), default=0) if isinstance(value, tuple) else 0


def make_zero(field: PrimeOrExtension) -> Scalar:
    """0."""
    return embed(field, 0)


def make_one(field: PrimeOrExtension) -> Scalar:
    """1."""
    return embed(field, 1)


def is_zero(x: Scalar) -> bool:
    """Whether an element is 0."""
    return not any(flatten(x))


def flatten(x: Scalar) -> Iterator[int]:
    """The integers of an element, in the order in which they lie in memory."""
    if isinstance(x, tuple):
        for each in x:
            yield from flatten(each)
    else:
        yield x


def unflatten(field: PrimeOrExtension, integers: Sequence[int]) -> Scalar:
    """The element that has these integers."""
    if isinstance(field, Prime):
        return integers[0]
    step = len(integers) // field.degree
    parts = (integers[at : at + step] for at in range(0, len(integers), step))
    return tuple(unflatten(field.base, part) for part in parts)


def add(field: PrimeOrExtension, x: Scalar, y: Scalar) -> Scalar:
    """x + y."""
    if isinstance(field, Prime):
        return (x + y) % field.modulus
    return tuple(add(field.base, a, b) for a, b in zip(x, y, strict=True))


def mul(field: PrimeOrExtension, x: Scalar, y: Scalar) -> Scalar:
    """x * y."""
    if isinstance(field, Prime):
        return x * y % field.modulus
    base, degree = field.base, field.degree
    if isinstance(base, Prime):  # sums of integers are reduced once
        sums = [0] * (2 * degree - 1)
        for i, a in enumerate(x):
            for j, b in enumerate(y):
                sums[i + j] += a * b
        for high in range(degree, 2 * degree - 1):
            sums[high - degree] += field.nonresidue * sums[high]
        return tuple(each % base.modulus for each in sums[:degree])
    terms = [make_zero(base)] * (2 * degree - 1)
    for (i, a), (j, b) in product(enumerate(x), enumerate(y)):
        terms[i + j] = add(base, terms[i + j], mul(base, a, b))
    for high in range(degree, 2 * degree - 1):
        wrapped = mul(base, field.nonresidue, terms[high])
        terms[high - degree] = add(base, terms[high - degree], wrapped)
    return tuple(terms[:degree])


def power(field: PrimeOrExtension, x: Scalar, exponent: int) -> Scalar:
    """x^exponent, for an exponent that is not negative."""
    if isinstance(field, Prime):
        return pow(x, exponent, field.modulus)
    result = make_one(field)
    for bit in f"{exponent:b}":
        result = mul(field, result, result)
        if bit == "1":
            result = mul(field, result, x)
    return result


def inverse(field: PrimeOrExtension, x: Scalar) -> Scalar:
    """1 / x for an x that is not 0: the product of the conjugates of x, divided by the norm."""
    if isinstance(field, Prime):
        return pow(x, -1, field.modulus)
    base, conjugate, conjugates = field.base, x, make_one(field)
    for _ in range(field.degree - 1):
        terms = zip(conjugate, field.relative_factors, strict=True)
        conjugate = tuple(mul(base, a, factor) for a, factor in terms)
        conjugates = mul(field, conjugates, conjugate)
    norm = mul(field, x, conjugates)[0]
    scale = inverse(base, norm)
    return tuple(mul(base, each, scale) for each in conjugates)


def find_non_square(field: PrimeOrExtension) -> Scalar:
    """An element that is not a square, the same one every time."""
    half = get_order(field) // 2
    first = 2 if isinstance(field, Prime) else 0
    for number in count(first):
        element = number if isinstance(field, Prime) else _make_candidate(field, number)
        if not is_zero(element) and power(field, element, half) != make_one(field):
            return element
    raise AssertionError("half of the elements that are not 0 are not squares")


def _make_candidate(field: Extension, number: int) -> Scalar:
    """number + u; the elements of the base may all be squares."""
    zeros = [make_zero(field.base)] * (field.degree - 2)
    return (embed(field.base, number), make_one(field.base), *zeros)
