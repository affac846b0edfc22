"""Arithmetic of coordinates on the host: extensions of small primes element by element, square
roots of every kind of prime."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.primes import NAMED, Prime

SMALL = [(7, 2, -1), (11, 2, 2), (13, 2, 2), (7, 3, 2), (13, 3, 2), (5, 4, 2), (13, 4, 2)]
"""A prime, a degree, and a nonresidue of that degree."""
small = pytest.mark.parametrize(("p", "degree", "nonresidue"), SMALL)


def make_field(p: int, degree: int = 1, nonresidue: int = 0) -> CoordinateField:
    return CoordinateField(Prime(f"prime {p}", p), degree, nonresidue)


def list_elements(field: CoordinateField) -> list[Any]:
    return [field.make(each) for each in product(range(field.modulus), repeat=field.degree)]


def multiply(field: CoordinateField, x: Any, y: Any) -> tuple[int, ...]:
    """The product of polynomials in u, reduced by u^degree = nonresidue."""
    degree, found = field.degree, [0] * (2 * field.degree)
    for i, one in enumerate(field.get_coefficients(x)):
        for j, two in enumerate(field.get_coefficients(y)):
            found[i + j] += one * two
    low = [found[i] + field.nonresidue * found[i + degree] for i in range(degree)]
    return tuple(each % field.modulus for each in low)


@small
def test_products_are_those_of_polynomials(p: int, degree: int, nonresidue: int) -> None:
    field = make_field(p, degree, nonresidue)
    draw = random.Random(p)
    elements = list_elements(field)
    for _ in range(500):
        x, y = draw.choice(elements), draw.choice(elements)
        assert field.get_coefficients(x * y % p) == multiply(field, x, y)
        pairs = list(zip(field.get_coefficients(x), field.get_coefficients(y), strict=True))
        assert field.get_coefficients((x + y) % p) == tuple((a + b) % p for a, b in pairs)
        assert field.get_coefficients((x - y) % p) == tuple((a - b) % p for a, b in pairs)
        assert 3 * x % p == x * 3 % p == (x + x + x) % p


@small
def test_every_element_has_its_inverse(p: int, degree: int, nonresidue: int) -> None:
    field = make_field(p, degree, nonresidue)
    elements = [each for each in list_elements(field) if each][:2500]
    inverses = field.invert_all(elements)
    assert all(x * y % p == field.one for x, y in zip(elements, inverses, strict=True))
    assert field.invert(elements[-1]) == inverses[-1]
    assert field.invert_all([]) == []


@small
def test_every_square_has_a_root_and_nothing_else(p: int, degree: int, nonresidue: int) -> None:
    field = make_field(p, degree, nonresidue)
    elements = list_elements(field)
    squares = {x * x % p for x in elements}
    assert len(squares) == (field.order + 1) // 2
    for x in random.Random(1).sample(elements, min(len(elements), 400)):
        root = field.sqrt(x)
        assert (root is not None) == (x in squares)
        assert root is None or root * root % p == x


@pytest.mark.parametrize("prime", [*NAMED.values(), Prime("3", 3), Prime("17", 17)], ids=str)
def test_square_roots_modulo_primes(prime: Prime) -> None:
    """Primes that are 3 mod 4, and primes with few and many factors of 2 in p - 1."""
    p, field = prime.modulus, CoordinateField(prime)
    draw = random.Random(2)
    for _ in range(6):
        number = draw.randrange(p)
        root = field.sqrt(number * number % p)
        assert root in (number, p - number)
        maybe = field.sqrt(number)
        assert (maybe is not None) == (pow(number, (p - 1) // 2, p) in (0, 1))


def test_the_larger_root_is_told_by_the_highest_coefficient() -> None:
    field = make_field(13, 2, 2)
    larger = [(7, 0), (0, 7), (1, 7), (12, 12), (12, 0)]
    for coefficients in larger:
        x = field.make(coefficients)
        assert field.is_larger(x)
        assert not field.is_larger(-x % 13)
    assert not field.is_larger(field.zero)


@pytest.mark.parametrize("name", ["bls12_381_fq", "mersenne31", "goldilocks", "babybear"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_words_come_back(name: str, degree: int) -> None:
    prime = NAMED[name]
    field = CoordinateField(prime, degree, 7)
    draw = random.Random(3)
    rows = [[draw.randrange(prime.modulus) for _ in range(degree)] for _ in range(5)]
    elements = [field.make(row) for row in rows]
    words = field.to_words(elements)
    axes = () if degree == 1 else (degree,)
    assert words.shape == (5, *axes, *prime.element_shape)
    assert words.dtype == prime.column_dtype
    assert field.from_words(words) == elements
    first = np.ascontiguousarray(words).tobytes()[: prime.element_bytes]
    assert int.from_bytes(first, "little") == prime.in_form(rows[0][0])
