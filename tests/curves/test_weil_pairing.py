"""Membership where points outside the group have its order: every point of small curves against the
multiples of the generator, on the host and on a device."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray, weil_pairing
from gpu_executor.curves import curve as curve_module
from gpu_executor.curves.endomorphism import Endomorphism
from gpu_executor.curves.point_encoding import Sec1Encoding
from gpu_executor.errors import ArgumentTypeError, CurveError, PointError
from gpu_executor.fields import ExtensionField, Field
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.primes import Prime
from gpu_executor.primes.curve_key import CurveKey
from tests.support.curves_under_test import (
    NAMED_CURVES,
    SMALL,
    SMALL_QUADRATIC,
    add_ints,
    draw_points,
    encode_points,
    get_curve,
    list_points,
    multiply_ints,
)

Gpu = gx.PersistentVulkanBackend
COFACTOR = 86
"""12 times this times 2^127 - 1 is a prime plus 1."""
PRIMES = (7, 13, 19, 31, 43)
OVER_13 = Curve(Field(13), 0, 10, order=3, generator=(0, 6), name="over 13", encoding=Sec1Encoding)
"""All 9 points P with 3 P = 0 are on this curve."""


def list_torsion(p: int, a: int, b: int, order: int) -> list[Any]:
    """The points with order * P = 0 of a curve over a prime field, infinity first."""
    roots: dict[int, list[int]] = {}
    for y in range(p):
        roots.setdefault(y * y % p, []).append(y)
    right = ((x, (x**3 + a * x + b) % p) for x in range(p))
    points = [None, *((x, y) for x, square in right for y in roots.get(square, []))]
    if len(points) % order**2:
        return []
    key = CurveKey(Prime(str(p), p), 1, 0, (a,), (b,), order)
    multiples = get_arithmetic(key).multiply(points, [order] * len(points))
    return [point for point, multiple in zip(points, multiples, strict=True) if multiple is None]


def list_prime_curves() -> Iterator[Curve]:
    """Curves over prime fields with order^2 points of that order, one of them the generator."""
    for p in PRIMES:
        field = Field(p)
        for a, b, order in product(range(p), range(1, p), (3, 5, 7)):
            if (p - 1) % order or not (4 * a**3 + 27 * b * b) % p:
                continue
            torsion = list_torsion(p, a, b, order)
            if len(torsion) == order**2:
                generator = torsion[1 + (a + b) % (order**2 - 1)]
                yield Curve(field, a, b, order=order, generator=generator)


@functools.cache
def list_quadratic_points(a: tuple[int, int], b: tuple[int, int], p: int) -> list[Any]:
    """All points of a curve over the extension u^2 = nonresidue of a small prime field, infinity
    first."""
    field = get_quadratic(p)
    n: Any = field.nonresidue

    def multiply(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
        return (x[0] * y[0] + n * x[1] * y[1]) % p, (x[0] * y[1] + x[1] * y[0]) % p

    elements = [(c0, c1) for c0 in range(p) for c1 in range(p)]
    roots: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for y in elements:
        roots.setdefault(multiply(y, y), []).append(y)
    points: list[Any] = [None]
    for x in elements:
        cube, linear = multiply(multiply(x, x), x), multiply(a, x)
        square = (cube[0] + linear[0] + b[0]) % p, (cube[1] + linear[1] + b[1]) % p
        points += [(x, y) for y in roots.get(square, [])]
    return points


@functools.cache
def get_quadratic(p: int) -> ExtensionField:
    """The field of p^2 elements, with the least nonresidue."""
    squares = {x * x % p for x in range(p)}
    return ExtensionField(Field(p), next(n for n in range(2, p) if n not in squares))


def make_quadratic(
    p: int, a: tuple[int, int], b: tuple[int, int], order: int, which: int = 0
) -> Curve | None:
    """A curve over p^2 elements with the generator of that order and number, if there is one."""
    field = get_quadratic(p)
    prime, points = field.base.prime, list_quadratic_points(a, b, p)
    nonresidue: Any = field.nonresidue
    arithmetic = get_arithmetic(CurveKey(prime, 2, nonresidue, a, b, order))
    made = [each and tuple(map(arithmetic.field.make, each)) for each in points]
    multiples = arithmetic.multiply(made, [order] * len(made))
    torsion = [at for at, each in enumerate(multiples) if each is None][1:]
    if not torsion:
        return None
    generator = points[torsion[which % len(torsion)]]
    return Curve(field, a, b, order=order, generator=generator)


def check_quadratic(curve: Curve, p: int) -> PointArray:
    """Compare every point; returns the points."""
    a, b = curve.key.a, curve.key.b
    listed = list_quadratic_points((a[0], a[1]), (b[0], b[1]), p)
    points = encode_points(curve, listed)
    total, group = curve.generator, [curve.generator.tolist()]
    while group[-1] is not None:
        total = total + curve.generator
        group.append(total.tolist())
    assert len(group) == curve.order
    assert points.in_subgroup().tolist() == [each in group for each in listed]
    return points


def list_group(curve: Curve) -> list[Any]:
    """The multiples of the generator of a curve over a prime field, by the definition of a sum."""
    found: list[Any] = [curve.generator.tolist()]
    while found[-1] is not None:
        found.append(add_ints(curve, found[-1], found[0]))
    return found


def test_every_point_of_curves_over_prime_fields() -> None:
    count = 0
    for each in list_prime_curves():
        points, group = list_points(each), list_group(each)
        assert len(group) == each.order
        found = encode_points(each, points).in_subgroup().tolist()
        assert found == [point in group for point in points], (each, each.generator)
        count += 1
    assert count > 80


@pytest.mark.parametrize(
    ("p", "a", "b", "order"),
    [
        (5, (0, 0), (1, 0), 3),  # supersingular: (x, y) -> (w x, y) with w^3 = 1 leaves the group
        (11, (0, 0), (1, 0), 3),
        (7, (1, 1), (1, 1), 3),
    ],
)
def test_every_point_of_curves_over_an_extension_field(
    p: int, a: tuple[int, int], b: tuple[int, int], order: int
) -> None:
    for which in (0, 1, order**2 - 2):
        found = make_quadratic(p, a, b, order, which)
        assert found is not None
        check_quadratic(found, p)


def test_every_point_of_drawn_curves_over_an_extension_field() -> None:
    """All orders: those whose points are one group, and the characteristic, among them."""
    draw, seen = random.Random(5), set()
    for _ in range(25):
        p = draw.choice((5, 5, 7))
        a, b = ((draw.randrange(p), draw.randrange(p)) for _ in range(2))
        for order in (3, 5, 7):
            try:
                found = make_quadratic(p, a, b, order)
            except CurveError:  # singular, or b is 0
                break
            if found is not None:
                points = check_quadratic(found, p)
                torsion = (points * (order - 1) == -points).sum()
                seen.add((torsion > order, order == p))
    assert seen == {(False, False), (False, True), (True, False)}


def test_points_of_the_order_on_a_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, with infinity, G and -G among them, and with more axes."""
    monkeypatch.setattr(weil_pairing, "LEAST_DEVICE_POINTS", 1)
    monkeypatch.setattr(weil_pairing, "PAIRED_POINTS", 5)
    points = list_points(OVER_13)
    group = list_group(OVER_13)
    there = gpu.to_device(encode_points(OVER_13, points + points))
    expected = [point in group for point in points]
    assert there.in_subgroup().tolist() == expected * 2
    shaped = there[: len(points) // 2 * 4].reshape(2, -1, 2)
    assert shaped.in_subgroup().ravel().tolist() == (expected * 2)[: shaped.size]
    assert (there + there[:1]).in_subgroup().tolist() == expected * 2  # in XYZZ form
    assert not there[:0].in_subgroup().size and there[0].in_subgroup().shape == ()


@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
@pytest.mark.parametrize("degree", [1, 2])
def test_points_of_the_order_with_a_not_0_on_a_device(gpu: Gpu, backend: str, degree: int) -> None:
    device = gpu if backend == "vulkan" else gx.open_backend("cpu")
    if degree == 1:
        found = next(each for each in list_prime_curves() if any(each.key.a) and each.order == 3)
        points = encode_points(found, list_points(found))
    else:
        drawn = make_quadratic(7, (1, 1), (1, 1), 3)
        assert drawn is not None
        found, points = drawn, check_quadratic(drawn, 7)
    inside = points.in_subgroup()
    torsion = points * (found.order - 1) == -points
    assert inside.sum() == found.order < torsion.sum() == found.order**2
    assert device.to_device(points).in_subgroup().tolist() == inside.tolist()


def test_a_distorted_point_of_a_supersingular_curve_is_outside() -> None:
    """y^2 = x^3 + 1 over p^2 elements at a size that is used: (w x, y) with w^3 = 1 has the order,
    and (x, y) does not generate it."""
    r = 2**127 - 1
    p = 12 * COFACTOR * r - 1
    field = ExtensionField(Field(p), -1)
    plain = Curve(Field(p), 0, 1, order=r, generator=find_point(p, 12 * COFACTOR))
    (x, y), half = plain.generator.tolist(), pow(2, -1, p)
    big = Curve(field, 0, 1, order=r, generator=((x, 0), (y, 0)))
    w = -half % p, pow(3, (p + 1) // 4, p) * half % p  # (-1 + sqrt(-3)) / 2
    inside = draw_points(big, 1, seed=1)
    outside = big.from_affine(inside.x * w, inside.y, check=False)
    assert (outside * (r - 1) == -outside).all()  # r P = 0
    points = big.concatenate([inside, outside, inside + outside, -inside, big.infinity(1)])
    assert points.in_subgroup().tolist() == [True, False, False, True, True]
    with pytest.raises(PointError, match="not in the group"):
        big.from_affine(outside.x, outside.y)


def find_point(p: int, cofactor: int) -> tuple[int, int]:
    """The multiple of a point of y^2 = x^3 + 1 with small x by the cofactor."""
    arithmetic = get_arithmetic(CurveKey(Prime("p", p), 1, 0, (0,), (1,), 7))
    x = next(x for x in range(5, p) if arithmetic.field.sqrt((x**3 + 1) % p) is not None)
    found = arithmetic.multiply([(x, arithmetic.field.sqrt((x**3 + 1) % p))], [cofactor])[0]
    assert found is not None
    return found


def test_every_way_to_make_points_refuses_points_outside(gpu: Gpu) -> None:
    points, group = list_points(OVER_13), list_group(OVER_13)
    assert len([each for each in points if multiply_ints(OVER_13, 3, each) is None]) == 9
    for each in points:
        unchecked = encode_points(OVER_13, [each])
        assert not unchecked.known_in_subgroup
        x, y = unchecked.x, unchecked.y
        data = [unchecked.to_bytes(compressed=False), unchecked.to_bytes()]
        ways: list[Callable[[], PointArray]] = [
            partial(OVER_13.from_affine, x, y),
            partial(OVER_13.from_affine, gpu.to_device(x), gpu.to_device(y)),
            partial(OVER_13.from_words, unchecked.numpy(), "canonical"),
            partial(OVER_13.from_bytes, data[0]),
            partial(OVER_13.from_bytes, data[1]),
            partial(OVER_13.from_bytes, data[1], device=gpu),
        ]
        for make in ways:
            if each in group:
                assert make().known_in_subgroup and make().tolist() == [each]
            else:
                with pytest.raises(PointError, match="not in the group of prime order"):
                    make()


def test_groups_of_one_curve_are_different_curves(gpu: Gpu) -> None:
    """Generators of one group make equal curves, those of two groups do not."""
    torsion = list_torsion(13, 0, 10, 3)
    curves = [Curve(OVER_13.field, 0, 10, order=3, generator=each) for each in torsion[1:]]
    groups = [frozenset(list_group(each)) for each in curves]
    assert len(set(groups)) == 4
    for (one, own), (two, other) in product(zip(curves, groups, strict=True), repeat=2):
        assert (one == two) == (own == other)
        assert one != two or hash(one) == hash(two)
    one = OVER_13
    two = next(each for each in curves if each != one)
    assert pickle.loads(pickle.dumps(two)) == two != one
    points, others = gpu.to_device(one.generator * [1, 2]), two.generator * [1, 2]
    table = one.precompute(points)
    calls: list[Callable[[], object]] = [
        lambda: one.add(one.generator, others),
        lambda: two.msm(table, [1, 2]),
        lambda: two.msm(points, [1, 2]),
        lambda: one.concatenate([one.generator.reshape(1), others]),
        lambda: one.in_subgroup(others),
        lambda: one.load_table("table", gpu.to_device(others)),
    ]
    for call in calls:
        with pytest.raises(ArgumentTypeError, match="points of"):
            call()
    assert one.msm(table, [1, 2]).known_in_subgroup
    same = Curve(one.field, 0, 10, order=3, generator=(-one.generator).tolist(), name="same")
    assert same.msm(table, [2, 2]).to_host().is_infinity()


def test_no_endomorphism_takes_the_place_of_the_pairing() -> None:
    """The identity multiplies every point by 1, and the map (3 x, y) all points with x = 0."""
    points, group = list_points(OVER_13), list_group(OVER_13)
    for given in (Endomorphism(1, 1, False, 1), Endomorphism(3, 1, False, 1)):
        made = Curve(OVER_13.field, 0, 10, order=3, generator=(0, 6), endomorphisms=[given])
        assert made.endomorphism == given
        found = encode_points(made, points).in_subgroup().tolist()
        assert found == [each in group for each in points]


@pytest.mark.parametrize("order", [-3, 0, 1, 2, 4, 6, 9, 12])
def test_an_order_that_is_not_an_odd_prime_is_refused(order: int) -> None:
    with pytest.raises(CurveError, match="must be an odd prime"):
        Curve(Field(13), 0, 10, order=order, generator=(0, 6))


def test_curves_whose_points_of_the_order_are_one_group_need_no_pairing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(curve_module, "is_paired_to_one")
    for each in [*map(get_curve, NAMED_CURVES), *SMALL, SMALL_QUADRATIC]:
        made = Curve(
            each.field,
            each.key.a,
            each.key.b,
            order=each.order,
            generator=each.generator.tolist(),
        )
        points = made.concatenate([made.generator.reshape(1), made.infinity(1)])
        assert made.in_subgroup(points).all() and made == each


@pytest.mark.parametrize(
    ("q", "order", "expected"),
    [
        (13, 3, True),  # 9 points
        (13, 5, False),  # 5 does not divide 12
        (11, 5, False),  # no multiple of 25 is between 6 and 18
        (31, 5, True),  # 25 is between 21 and 43
        (43, 7, True),  # 49 is between 31 and 57
        (29, 7, False),  # 49 is not between 20 and 40
        (7**2, 7, False),  # the characteristic
    ],
)
def test_the_bounds_of_the_number_of_points(q: int, order: int, expected: bool) -> None:
    assert weil_pairing.may_have_more_points_of_order(q, order) is expected
