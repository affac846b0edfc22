"""Roots of unity, domains, and the generator of a field's multiplicative group."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    KernelError,
    OutOfMemoryError,
)
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, Field
from tests.support.fields_under_test import (
    CPU,
    FIVE,
    FULL96,
    NAMED,
    Place,
    draw_elements,
    in_every_place,
    make_array,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
with_names = pytest.mark.parametrize("field", NAMED, ids=lambda field: field.name)
DEVICES: dict[Place, Any] = {"host": None, "cpu": CPU}


def choose_device(gpu: Gpu, place: Place) -> Any:
    return gpu if place == "device" else DEVICES[place]


@with_names
def test_roots_have_their_order_and_are_powers_of_the_generator(field: Field) -> None:
    p, exponent = field.modulus, field.modulus - 1
    odd = field.prime.odd_factors
    assert odd is not None
    assert all(pow(field.generator, exponent // q, p) != 1 for q in (2, *odd))
    for n in (1, 2, odd[0], 2 * odd[-1], 1 << field.prime.two_adicity, exponent):
        root = field.root_of_unity(n)
        assert type(root) is int and pow(root, n, p) == 1
        assert all(pow(root, n // q, p) != 1 for q in (2, *odd) if n % q == 0)
        assert root == pow(field.generator, exponent // n, p)


def test_roots_of_powers_of_two_exist_where_the_generator_is_unknown() -> None:
    # p - 1 is 8 times the product of two primes of 64 bits, which is not factored.
    first, second = 2**63 + 29, 2**63 + 99
    p = next(n for k in range(1, 4000, 2) if is_prime_of_flint(n := 8 * k * first * second + 1))
    field = Field(p)
    with pytest.raises(KernelError, match="prime factors of p - 1"):
        assert field.generator
    root = field.root_of_unity(8)
    assert pow(root, 4, p) == p - 1
    x = field.encode(draw_elements(field, 8, 1))
    assert field.poly_eval(x, field.domain(8)).tolist() == field.ntt(x).tolist()
    with pytest.raises(KernelError, match="prime factors of p - 1"):
        field.root_of_unity(first)


def is_prime_of_flint(number: int) -> bool:
    from flint import fmpz

    return bool(fmpz(number).is_probable_prime())


@in_every_place
@pytest.mark.parametrize("field", [FR, GOLDILOCKS, BABYBEAR, FULL96], ids=lambda f: f.name)
@pytest.mark.parametrize("coset", [None, 5])
def test_transforms_evaluate_at_the_points_of_the_domain(
    gpu: Gpu, field: Field, place: Place, coset: int | None
) -> None:
    for n in (1, 8):
        points = field.domain(n, coset=coset, device=choose_device(gpu, place))
        assert (points.shape, points.on_device) == ((n,), place != "host")
        x = make_array(gpu, place, field, draw_elements(field, n, 1))
        assert field.poly_eval(x, points).tolist() == field.ntt(x, coset=coset).tolist()


@in_every_place
def test_domains_have_the_powers_of_a_root_of_any_order(gpu: Gpu, place: Place) -> None:
    for field, n in ((MERSENNE31, 42), (FR, 33), (FIVE, 4)):
        w, p = field.root_of_unity(n), field.modulus
        found = field.domain(n, coset=-3, device=choose_device(gpu, place)).tolist()
        assert found == [-3 * pow(w, i, p) % p for i in range(n)]
        assert len({*found}) == n


@pytest.mark.parametrize(
    ("n", "kind", "words"),
    [
        (0, ArgumentValueError, "no root of unity of order 0: n must be a divisor of p - 1"),
        (-4, ArgumentValueError, "no root of unity of order -4"),
        (5, ArgumentValueError, "bls12_381_fr: there is no root of unity of order 5"),
        (1 << 33, ArgumentValueError, "no root of unity of order 8589934592"),
        (4.0, ArgumentTypeError, "n of root_of_unity must be an integer, not float"),
        (True, ArgumentTypeError, "not bool"),
    ],
)
def test_orders_that_do_not_exist_are_rejected(n: Any, kind: type[Exception], words: str) -> None:
    for use in (FR.root_of_unity, FR.domain):
        with pytest.raises(kind, match=words):
            use(n)


def test_domains_that_do_not_fit_and_cosets_of_0_are_rejected() -> None:
    with pytest.raises(OutOfMemoryError, match="more than any memory"):
        FR.domain(FR.modulus - 1)
    with pytest.raises(ArgumentTypeError, match="coset must not be a multiple"):
        FR.domain(4, coset=FR.modulus)
    with pytest.raises(ArgumentTypeError, match="device is an executor"):
        FR.domain(4, device="gpu")  # type: ignore[arg-type]
