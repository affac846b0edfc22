"""`Extension`: a finite field that extends a prime field or another extension, and exact arithmetic
on single elements.

An element is c0 + c1 u + ... with coefficients in the base, u the root of an irreducible
polynomial. As Python values an element of a prime field is an integer, and an element of an
extension is the tuple of its coefficients, which are tuples themselves in a tower.

The polynomial of a binomial extension is u^degree - nonresidue. Such a polynomial of degree 4 or
less is irreducible only if the degree divides q - 1, q the number of elements of the base (Lidl and
Niederreiter, Finite Fields, theorem 3.75). So there x -> x^q multiplies each coefficient by a power
of nonresidue^((q - 1) / degree). In other extensions x -> x^q is a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
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
    """The extension of `base` by a root u of an irreducible polynomial."""

    name: str
    base: Prime | Extension
    reduction: tuple[Scalar, ...]
    """u^degree as an element: what replaces u^degree in a product. Its coefficients are elements of
    the base, their integers in 0 .. p-1."""

    def __post_init__(self) -> None:
        check_degree(self.name, self.degree)
        reason = explain_reducible(self)
        if reason is not None:
            raise KernelError(f"{self.name}: {reason}")

    @classmethod
    def binomial(
        cls, name: str, base: Prime | Extension, nonresidue: Scalar, degree: int
    ) -> Extension:
        """The extension with u^degree = nonresidue, an element of the base."""
        check_degree(name, degree)
        return cls(name, base, (nonresidue, *[make_zero(base)] * (degree - 1)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.base, self.reduction))

    # --- the polynomial ---

    @cached_property
    def degree(self) -> int:
        """The degree of the polynomial: coefficients of an element."""
        return len(self.reduction)

    @cached_property
    def nonresidue(self) -> Scalar | None:
        """u^degree if it is an element of the base, that is in a binomial extension; else None."""
        first, *others = self.reduction
        return None if any(not is_zero(each) for each in others) else first

    @cached_property
    def high_terms(self) -> tuple[tuple[tuple[int, Scalar], ...], ...]:
        """u^degree, u^(degree + 1), ... to the highest power in a product: for each, the indices
        and the values of its coefficients that are not 0."""
        row, found = self.reduction, []
        for _ in range(self.degree - 1):
            found.append(tuple((k, factor) for k, factor in enumerate(row) if not is_zero(factor)))
            shifted = (make_zero(self.base), *row[:-1])
            row = tuple(
                add(self.base, low, mul(self.base, row[-1], factor))
                for low, factor in zip(shifted, self.reduction, strict=True)
            )
        return tuple(found)

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


PrimeOrExtension = Prime | Extension
"""A finite field of one kind or the other."""


def check_degree(name: str, degree: int) -> None:
    """Refuse a degree that extensions do not have."""
    if degree not in DEGREES:
        raise KernelError(
            f"{name}: the degree is {degree}; it must be {DEGREES[0]} to {DEGREES[-1]} (a tower of "
            "extensions has larger degrees)"
        )


def explain_reducible(extension: Extension) -> str | None:
    """Why the polynomial of u is not irreducible, in words; None if it is irreducible."""
    if extension.nonresidue is None:
        return _explain_reducible_polynomial(extension)
    return _explain_reducible_binomial(extension, extension.nonresidue)


def _explain_reducible_binomial(extension: Extension, nonresidue: Scalar) -> str | None:
    """u^degree - nonresidue is irreducible if, for each prime divisor r of the degree, r divides
    q - 1 and the nonresidue is not an r-th power; for degree 4, also only if 4 divides q - 1."""
    base, degree = extension.base, extension.degree
    others, divisor = get_order(base) - 1, 3 if degree == 3 else 2
    kind = "a cube" if divisor == 3 else "a square"
    described = f"u^{degree} - {nonresidue} is not irreducible over {base.name}"
    if is_zero(nonresidue):
        return f"{described}: the nonresidue is 0"
    if others % degree:
        return (
            f"{described}: no u^{degree} - c is, because {degree} does not divide q - 1, q the "
            "number of elements of the base; take another degree, a polynomial with more terms, or "
            "a tower of extensions"
        )
    if power(base, nonresidue, others // divisor) == make_one(base):
        return f"{described}: {nonresidue} is {kind} there; take an element that is not"
    return None


def _explain_reducible_polynomial(extension: Extension) -> str | None:
    """A factor of degree k divides u^(q^k) - u. So there is none of a degree up to half of the
    polynomial's if and only if the polynomial has no divisor in common with these."""
    base, degree = extension.base, extension.degree
    one, zero = make_one(base), make_zero(base)
    root = (zero, one, *[zero] * (degree - 2))
    modulus = [*(negate(base, each) for each in extension.reduction), one]
    image = root
    for k in range(1, degree // 2 + 1):
        image = power(extension, image, get_order(base))
        difference = [subtract(base, a, b) for a, b in zip(image, root, strict=True)]
        if not _are_coprime(base, modulus, difference):
            return (
                f"the polynomial with u^{degree} = {extension.reduction} is not irreducible over "
                f"{base.name}: it has a factor of degree {k}; take another one"
            )
    return None


def _are_coprime(field: PrimeOrExtension, a: list[Scalar], b: list[Scalar]) -> bool:
    """Whether polynomials, their constant terms first, have no common divisor (Euclid)."""
    while b:
        if is_zero(b[-1]):
            b = b[:-1]
        elif len(a) < len(b):
            a, b = b, a
        elif is_zero(a[-1]):
            a = a[:-1]
        else:
            factor = mul(field, a[-1], inverse(field, b[-1]))
            shift = len(a) - len(b)
            for i, each in enumerate(b, shift):
                a = [*a[:i], subtract(field, a[i], mul(field, factor, each)), *a[i + 1 :]]
    return len(a) == 1


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


def negate(field: PrimeOrExtension, x: Scalar) -> Scalar:
    """-x."""
    if isinstance(field, Prime):
        return -x % field.modulus
    return tuple(negate(field.base, each) for each in x)


def subtract(field: PrimeOrExtension, x: Scalar, y: Scalar) -> Scalar:
    """x - y."""
    return add(field, x, negate(field, y))


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
        for high, terms in enumerate(field.high_terms, degree):
            for k, factor in terms:
                sums[k] += factor * sums[high]
        return tuple(each % base.modulus for each in sums[:degree])
    parts = [make_zero(base)] * (2 * degree - 1)
    for (i, a), (j, b) in product(enumerate(x), enumerate(y)):
        parts[i + j] = add(base, parts[i + j], mul(base, a, b))
    for high, terms in enumerate(field.high_terms, degree):
        for k, factor in terms:
            parts[k] = add(base, parts[k], mul(base, factor, parts[high]))
    return tuple(parts[:degree])


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


@lru_cache(maxsize=256)
def find_frobenius_rows(field: Extension, times: int) -> tuple[Scalar, ...]:
    """The rows of x -> x^(p^times), which takes c0 + c1 u + ... to c0' row 0 + c1' row 1 + ... with
    c' = c^(p^times): row i is u^(i p^times), an element."""
    base, degree, exponent = field.base, field.degree, field.prime.modulus**times
    zero = make_zero(base)
    if field.nonresidue is None:
        root = power(field, (zero, make_one(base), *[zero] * (degree - 2)), exponent)
        rows = [make_one(field)]
        for _ in range(degree - 1):
            rows.append(mul(field, rows[-1], root))
        return tuple(rows)
    found: list[Scalar] = []
    for i in range(degree):  # a power of the nonresidue times a power of u
        quotient, target = divmod(i * exponent, degree)
        factor = power(base, field.nonresidue, quotient % (get_order(base) - 1))
        found.append(tuple(factor if k == target else zero for k in range(degree)))
    return tuple(found)


def find_conjugate_rows(field: Extension, times: int) -> tuple[Scalar, ...]:
    """The rows of x -> x^(q^times), q the number of elements of the base: coefficients stay."""
    below = 1 if isinstance(field.base, Prime) else field.base.total_degree
    return find_frobenius_rows(field, times * below)


def inverse(field: PrimeOrExtension, x: Scalar) -> Scalar:
    """1 / x for an x that is not 0: the product of the conjugates of x, divided by the norm."""
    if isinstance(field, Prime):
        return pow(x, -1, field.modulus)
    base, conjugates = field.base, make_one(field)
    for times in range(1, field.degree):
        rows = find_conjugate_rows(field, times)
        conjugate = make_zero(field)
        for a, row in zip(x, rows, strict=True):
            conjugate = add(field, conjugate, tuple(mul(base, a, each) for each in row))
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
