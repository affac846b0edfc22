"""Polynomials over fields: products, values, division by X^n - 1, against plain integers."""

from __future__ import annotations

import random

import pytest

import gpu_executor as gx
from gpu_executor.fields import polynomials

FIELDS = (gx.fields.BLS12_381_FR, gx.fields.GOLDILOCKS, gx.fields.BABYBEAR)
each_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)


def drawn(field: gx.Field, count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(field.modulus) for _ in range(count)]


def value_at(coefficients: list[int], point: int, modulus: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % modulus
    return value


@each_field
@pytest.mark.parametrize(("long", "short"), [(1, 1), (5, 1), (16, 17), (100, 37)])
def test_products_are_those_of_school(
    gpu: gx.PersistentVulkanBackend, field: gx.Field, long: int, short: int
) -> None:
    a, b = drawn(field, long, 1), drawn(field, short, 2)
    expected = [0] * (long + short - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            expected[i + j] = (expected[i + j] + x * y) % field.modulus
    product = field.poly_mul(gpu.to_device(field.encode(a)), gpu.to_device(field.encode(b)))
    assert product.ints().tolist() == expected


@each_field
@pytest.mark.parametrize("most", [16, 1 << 15], ids=["in parts", "at once"])
def test_values_are_those_of_horners_rule(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: gx.Field,
    most: int,
) -> None:
    monkeypatch.setattr(polynomials, "MOST_COEFFICIENTS", most)
    a, points = drawn(field, 100, 1), [0, 1, field.modulus - 1, *drawn(field, 20, 2)]
    values = field.poly_eval(gpu.to_device(field.encode(a)), gpu.to_device(field.encode(points)))
    assert values.ints().tolist() == [value_at(a, point, field.modulus) for point in points]


@each_field
@pytest.mark.parametrize("place", ["host", "card"])
@pytest.mark.parametrize("n", [1, 3, 8, 64, 99, 100, 128])
def test_quotient_and_remainder_make_the_polynomial_again(
    gpu: gx.PersistentVulkanBackend, field: gx.Field, place: str, n: int
) -> None:
    a, p = drawn(field, 100, n), field.modulus
    given = field.encode(a)
    x = gpu.to_device(given) if place == "card" else given
    quotient, remainder = (each.ints().tolist() for each in field.poly_divide_vanishing(x, n))
    assert (len(quotient), len(remainder)) == (max(100 - n, 0), n)
    again = [0] * max(100, n)
    for i, coefficient in enumerate(quotient):
        again[i + n] += coefficient
        again[i] -= coefficient
    for i, coefficient in enumerate(remainder):
        again[i] += coefficient
    assert [each % p for each in again[:100]] == a
    assert not any(each % p for each in again[100:])


def test_what_is_no_polynomial_is_refused_in_words(gpu: gx.PersistentVulkanBackend) -> None:
    field = FIELDS[0]
    x = gpu.to_device(field.encode([[1, 2], [3, 4]]))
    with pytest.raises(gx.ArgumentShapeError, match="one polynomial"):
        field.poly_eval(x, x)
    with pytest.raises(gx.ArgumentShapeError, match="one polynomial"):
        field.poly_divide_vanishing(x, 2)
    with pytest.raises(gx.ArgumentShapeError, match="axis of coefficients"):
        field.poly_mul(gpu.to_device(field.encode(5)), x)
    with pytest.raises(gx.ArgumentTypeError, match="on a card"):
        field.poly_eval(field.encode([1, 2]), field.encode([3]))
