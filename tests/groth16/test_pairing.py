"""The pairings: bilinear, equal to other implementations', and closed to points outside of G2."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from flint import fmpz_poly
from py_ecc import optimized_bn128

from gpu_executor.groth16 import bn254_pairing, bn254_tower
from gpu_executor.groth16.bn254_tower import F12, ONE
from gpu_executor.groth16.pairing import get_engine, is_on_curve
from gpu_executor.groth16.point_json import get_integers, make_point
from gpu_executor.groth16.proof_curve import CURVE_NAMES, get_proof_curve
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.primes.moduli import BN254_Q as Q
from gpu_executor.primes.moduli import BN254_Z as Z
from tests.support.toy_proofs import multiply_generator

BN254 = get_proof_curve("bn128")
TWIST = get_arithmetic(BN254.g2.key)
COFACTOR = 2 * BN254.q - BN254.r
SMALL_ORDER = 10069
"""The smallest factor of the twist's cofactor."""


def draw_twist_points(count: int) -> list[Point]:
    """Points on the twist of BN254; hardly one of them is in the group of order r."""
    numbers, field = random.Random(3), TWIST.field
    points: list[Point] = []
    while len(points) < count:
        x = field.make([numbers.randrange(Q), numbers.randrange(Q)])
        y = field.sqrt(TWIST.compute_right_side(x))
        if y is not None:
            points.append((x, y))
    return points


def raise_to(x: F12, exponent: int) -> F12:
    result = ONE
    for bit in f"{exponent:b}":
        result = bn254_tower.multiply(result, result)
        if bit == "1":
            result = bn254_tower.multiply(result, x)
    return result


def draw_f12(seed: int) -> F12:
    numbers = random.Random(seed)
    a, b = (tuple(numbers.randrange(Q) for _ in range(6)) for _ in range(2))
    return a, b  # type: ignore[return-value]


def to_polynomial(x: F12) -> list[int]:
    """The coefficients modulo w^12 - 18 w^6 + 82, as py_ecc has them: u = w^6 - 9."""
    found = [0] * 12
    for half, coefficients in enumerate(x):
        for pair in range(3):
            c0, c1 = coefficients[2 * pair : 2 * pair + 2]
            found[2 * pair + half] = (c0 - 9 * c1) % Q
            found[2 * pair + half + 6] = c1
    return found


# --- fields ---


def test_products_of_f12_are_those_of_polynomials() -> None:
    x, y = draw_f12(1), draw_f12(2)
    product = [0] * 23
    for i, one in enumerate(to_polynomial(x)):
        for j, two in enumerate(to_polynomial(y)):
            product[i + j] += one * two
    for power in range(22, 11, -1):
        product[power - 6] += 18 * product[power]
        product[power - 12] -= 82 * product[power]
    assert to_polynomial(bn254_tower.multiply(x, y)) == [each % Q for each in product[:12]]


def test_other_operations_of_f12_agree_with_products() -> None:
    x = draw_f12(3)
    assert bn254_tower.square(x) == bn254_tower.multiply(x, x)
    assert bn254_tower.multiply(x, bn254_tower.invert(x)) == ONE
    line: F12 = ((1, 0, 0, 0, 0, 0), (5, 6, 7, 8, 0, 0))
    assert bn254_tower.multiply_by_line(x, 5, 6, 7, 8) == bn254_tower.multiply(x, line)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_frobenius_map_is_a_power(power: int) -> None:
    x = draw_f12(4)
    assert bn254_tower.map_frobenius(x, power) == raise_to(x, Q**power)


def test_squares_of_the_cyclotomic_group() -> None:
    x = raise_to(draw_f12(5), (Q**6 - 1) * (Q**2 + 1))
    assert bn254_tower.square_cyclotomic(x) == bn254_tower.multiply(x, x)
    assert bn254_tower.multiply(bn254_tower.conjugate(x), x) == ONE


def test_the_final_exponent() -> None:
    x = draw_f12(6)
    exponent = 2 * Z * (6 * Z**2 + 3 * Z + 1) * ((Q**12 - 1) // BN254.r)
    assert (Q**12 - 1) % BN254.r == 0
    assert bn254_pairing.raise_to_final_power(x) == raise_to(x, exponent)


# --- pairings ---


def test_the_pairing_is_a_power_of_the_one_of_py_ecc() -> None:
    p, q = multiply_generator(BN254.g1, 12345), multiply_generator(BN254.g2, 678)
    engine = get_engine(BN254)
    (p0, p1), ((x0, x1), (y0, y1)) = get_integers(p), get_integers(q)
    oracle: Any = optimized_bn128
    fq, fq2 = oracle.FQ, oracle.FQ2
    expected = oracle.pairing(
        (fq2([x0, x1]), fq2([y0, y1]), fq2.one()), (fq(p0), fq(p1), fq.one())
    ) ** (2 * Z * (6 * Z**2 + 3 * Z + 1) % BN254.r)
    found = engine.pair([(p, engine.prepare(q))])
    assert to_polynomial(found) == [int(each) for each in expected.coeffs]


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_pairings_are_bilinear(name: str) -> None:
    curve = get_proof_curve(name)
    engine, r = get_engine(curve), curve.r

    def pair(*scalars: tuple[int, int]) -> object:
        return engine.pair(
            [
                (multiply_generator(curve.g1, a), engine.prepare(multiply_generator(curve.g2, b)))
                for a, b in scalars
            ]
        )

    a, b = 2**200 + 1, r - 3
    assert pair((a, b)) == pair((a * b, 1)) == pair((1, a), (1, a * (b - 1)))
    assert pair((a, b), (-a, b)) == pair() == engine.one
    assert pair((1, 1)) != engine.one
    assert pair((a, b)) != pair((a, b + 1))


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_pairings_with_infinity_are_one(name: str) -> None:
    curve = get_proof_curve(name)
    engine = get_engine(curve)
    p, q = multiply_generator(curve.g1, 5), engine.prepare(multiply_generator(curve.g2, 7))
    infinity = engine.prepare(None)
    assert engine.pair([(None, q)]) == engine.pair([(p, infinity)]) == engine.one
    assert engine.pair([(None, infinity), (p, q)]) == engine.pair([(p, q)])


def test_the_vector_of_the_precompiled_contract() -> None:
    """The input jeff1 of Ethereum's tests of EIP-197, in its order: the coefficient of u first."""
    words = [
        "1c76476f4def4bb94541d57ebba1193381ffa7aa76ada664dd31c16024c43f59",
        "3034dd2920f673e204fee2811c678745fc819b55d3e9d294e45c9b03a76aef41",
        "209dd15ebff5d46c4bd888e51a93cf99a7329636c63514396b4a452003a35bf7",
        "04bf11ca01483bfa8b34b43561848d28905960114c8ac04049af4b6315a41678",
        "2bb8324af6cfc93537a2ad1a445cfd0ca2a71acd7ac41fadbf933c2a51be344d",
        "120a2a4cf30c1bf9845f20c6fe39e07ea2cce61f0c9bb048165fe5e4de877550",
        "111e129f1cf1097710d41c4ac70fcdfa5ba2023c6ff1cbeac322de49d1b6df7c",
        "2032c61a830e3c17286de9462bf242fca2883585b93870a73853face6a6bf411",
        "198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2",
        "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed",
        "090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b",
        "12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa",
    ]
    numbers, engine = [int(word, 16) for word in words], get_engine(BN254)
    pairs = []
    for x, y, x1, x0, y1, y0 in (numbers[:6], numbers[6:]):
        prepared = engine.prepare(make_point(BN254.g2, (x0, x1), (y0, y1)))
        assert prepared is not None
        pairs.append(((x, y), prepared))
    assert engine.pair(pairs) == engine.one
    assert engine.pair(pairs[:1]) != engine.one


# --- points that are not in the groups ---


def test_points_of_the_twist_are_told_from_those_of_the_group() -> None:
    outside = draw_twist_points(2)
    (small,) = TWIST.multiply(outside[:1], [COFACTOR // SMALL_ORDER * BN254.r])
    inside = [*TWIST.multiply(outside, [COFACTOR] * 2), multiply_generator(BN254.g2, 1)]
    assert small is not None
    points = [*outside, small, *TWIST.add([small], inside[:1]), *inside]
    points += TWIST.multiply(outside[1:], [BN254.r])  # of the order of the cofactor
    orders_divide_r = [each is None for each in TWIST.multiply(points, [BN254.r] * len(points))]
    assert orders_divide_r == [False] * 4 + [True] * 3 + [False]
    found = get_engine(BN254).prepare_all(points)
    assert [each is not None for each in found] == orders_divide_r
    # A point alone is judged as it is among others.
    assert [get_engine(BN254).prepare(each) is not None for each in points] == orders_divide_r


def test_the_equation_of_the_group_holds_for_no_other_point() -> None:
    """The resultant of 6z + 2 + f - f^2 + f^3 and of f^2 - t f + q has only r in common with the
    number of points of the twist."""
    q, r, trace = BN254.q, BN254.r, 6 * Z**2 + 1
    rest = fmpz_poly([6 * Z + 2, 1, -1, 1]) % fmpz_poly([q, -trace, 1])
    low, high = int(rest[0]), int(rest[1])
    resultant = low**2 + low * high * trace + high**2 * q
    assert math.gcd(resultant, r * COFACTOR) == r


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_coordinates_that_are_no_point_are_not_in_the_groups(name: str) -> None:
    curve = get_proof_curve(name)
    engine = get_engine(curve)
    x, y = get_integers(multiply_generator(curve.g1, 9))
    assert engine.is_in_g1((x, y))
    for bad in ((x, y + 1), (0, 0), (x + curve.q, y), (x, y - curve.q)):
        assert not engine.is_in_g1(bad)
        assert not is_on_curve(curve.g1, bad)
    (x0, x1), y = get_integers(multiply_generator(curve.g2, 9))
    assert engine.prepare(make_point(curve.g2, (x0, x1), y)) is not None
    for pair in ((x0, x1 + curve.q), (x0 - curve.q, x1), (x0, x1 + 1)):
        assert engine.prepare(make_point(curve.g2, pair, y)) is None
    assert engine.prepare(make_point(curve.g2, (0, 0), (0, 0))) is None


def test_points_of_bls12_381_outside_of_the_groups() -> None:
    curve = get_proof_curve("bls12381")
    engine = get_engine(curve)
    for group in (curve.g1, curve.g2):
        arithmetic = get_arithmetic(group.key)
        points: list[Point] = []
        for number in range(20):
            x = arithmetic.field.make([number, 0][: group.key.degree])
            y = arithmetic.field.sqrt(arithmetic.compute_right_side(x))
            points += [] if y is None else [(x, y)]
        point = points[0]
        assert point is not None
        assert is_on_curve(group, point)
        assert arithmetic.multiply([point], [curve.r]) != [None]
        if group is curve.g1:
            assert not engine.is_in_g1(point)
        else:
            assert engine.prepare(point) is None
