"""Points outside the group are found by random sums."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.curves.parameters import get_named
from gpu_executor.groth16 import group_check
from gpu_executor.groth16.group_check import SMALLEST_PRIMES, count_sums, find_outside
from gpu_executor.ops.host_points import Point, get_arithmetic

X = -0xD201000000010000
"""The parameter of BLS12-381."""
COFACTORS = {
    "bn254_g2": 2 * get_named("BN254_G2").key.prime.modulus - get_named("BN254_G2").order,
    "bls12_381_g1": (X - 1) ** 2 // 3,
    "bls12_381_g2": (X**8 - 4 * X**7 + 5 * X**6 - 4 * X**4 + 6 * X**3 - 4 * X**2 - 4 * X + 13) // 9,
}
GROUPS = [get_named(name.upper()) for name in COFACTORS]


def find_points(group: Curve) -> Iterator[Point]:
    """Points of the curve with a small x: of the group with probability 1 / cofactor."""
    arithmetic = get_arithmetic(group.key)
    for x in range(1, 50):
        element = group.field.encode([x] if group.key.degree == 1 else [(x, 1)])
        right = element * element * element + group.field.encode([arithmetic_b(group)])
        if group.field.is_square(right).all():
            points = group.from_affine(element, group.field.sqrt(right), check=False)
            yield arithmetic.load(points.affine().words())[0]


def find_small_point(group: Curve, prime: int) -> Point:
    """A point of the order of a prime of the cofactor."""
    arithmetic, factor = get_arithmetic(group.key), COFACTORS[group.name] * group.order
    while factor % prime == 0:
        factor //= prime
    for point in find_points(group):
        (small,) = arithmetic.multiply([point], [factor])
        while small is not None:
            before, (small,) = small, arithmetic.multiply([small], [prime])
            if small is None:
                return before
    raise AssertionError("no point was found")


def arithmetic_b(group: Curve) -> object:
    return group.key.b[0] if group.key.degree == 1 else tuple(group.key.b)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_the_smallest_primes(group: Curve) -> None:
    """The number of all points is the order times the cofactor, so its multiple of any point is at
    infinity."""
    cofactor, prime = COFACTORS[group.name], SMALLEST_PRIMES[group.name]
    assert cofactor % prime == 0
    assert all(cofactor % each for each in range(2, prime))
    arithmetic, point = get_arithmetic(group.key), next(find_points(group))
    (multiple,) = arithmetic.multiply([point], [cofactor * group.order])
    assert multiple is None
    assert arithmetic.multiply([point], [group.order]) != [None]


@pytest.mark.parametrize(
    ("prime", "bits", "sums"), [(10069, 16, 10), (3, 8, 82), (13, 8, 35), (2, 8, 128)]
)
def test_the_number_of_sums(prime: int, bits: int, sums: int) -> None:
    assert count_sums(prime, bits) == sums
    most_probable = max(np.bincount(np.arange(1 << bits) % prime)) / (1 << bits)
    assert most_probable**sums <= 2.0**-128


@pytest.mark.parametrize(
    "group", [GROUPS[0], pytest.param(GROUPS[1], marks=pytest.mark.slow)], ids=str
)
def test_one_point_outside_is_found(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, group: Curve
) -> None:
    """A point of the smallest prime's order, added to one of the points. BN254 G2 is over an
    extension, with factors of 16 bits; BLS12-381 G1 is over the prime, with 8 bits."""
    monkeypatch.setattr(group_check, "LEAST_POINTS", 1)
    arithmetic, device, count = get_arithmetic(group.key), gpu.array_device, 12
    prime, draw = SMALLEST_PRIMES[group.name], random.Random(1)
    (base,) = arithmetic.load(group.generator.affine().words()[None])
    points = arithmetic.multiply([base] * count, [draw.randrange(1000) for _ in range(count)])
    assert find_outside(group, device.put(arithmetic.store(points, (count,)))) is None
    small = find_small_point(group, prime)
    points[7:8] = arithmetic.add(points[7:8], [small])
    loaded = device.put(arithmetic.store(points, (count,)))
    assert not group_check._are_sums_inside(group, loaded)
    assert find_outside(group, loaded) == 7
