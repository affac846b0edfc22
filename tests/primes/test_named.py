"""The named primes: published values, proofs of primality, the curves they belong to."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from flint import fmpz

import gpu_executor as gx
from gpu_executor import primes
from gpu_executor.errors import RemovedNameError
from gpu_executor.primes import NAMED, Prime
from gpu_executor.primes.moduli import ODD_FACTORS

# As published; the package derives them from formulas instead.
PUBLISHED = {
    "bls12_381_fq": "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf"
    "6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab",
    "bls12_381_fr": "73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001",
    "bn254_fq": "30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47",
    "bn254_fr": "30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001",
    "bls12_377_fq": "1ae3a4617c510eac63b05c06ca1493b1a22d9f300f5138f1"
    "ef3622fba094800170b5d44300000008508c00000000001",
    "bls12_377_fr": "12ab655e9a2ca55660b44d1e5c37b00159aa76fed00000010a11800000000001",
    "secp256k1_fq": "fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f",
    "secp256k1_fr": "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
    "curve25519_fq": "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed",
    "pallas_fq": "40000000000000000000000000000000224698fc094cf91b992d30ed00000001",
    "vesta_fq": "40000000000000000000000000000000224698fc0994a8dd8c46eb2100000001",
    "goldilocks": "ffffffff00000001",
    "babybear": "78000001",
    "koalabear": "7f000001",
    "mersenne31": "7fffffff",
}
# Two-adicity, generator, and the root of order 2^two-adicity, as other libraries define them.
CONVENTIONS = {
    "bls12_381_fr": (32, 7, "16a2a19edfe81f20d09b681922c813b4b63683508c2280b93829971f439f0d2b"),
    "bn254_fr": (28, 5, "2a3c09f0a58a7e8500e0a7eb8ef62abc402d111e41112ed49bd61b6e725b19f0"),
    "bls12_377_fr": (47, 22, "11d4b7f60cb92cc160c69477d1a8a12f9b506ee363e3f04a476ef4a4ec2a895e"),
    "pallas_fq": (32, 5, "2bce74deac30ebda362120830561f81aea322bf2b7bb7584bdad6fabd87ea32f"),
    "vesta_fq": (32, 5, "2de6a9b8746d3f589e5c4dfd492ae26e9bb97ea3c106f049a70e2c1102b6d05f"),
    "goldilocks": (32, 7, f"{1753635133440165772:x}"),
    "babybear": (27, 31, "1a427a41"),
    "koalabear": (24, 3, "6ac49f88"),
}
GENERATORS = {
    "bls12_381_fq": 2,
    "bn254_fq": 3,
    "bls12_377_fq": 15,
    "secp256k1_fq": 3,
    "secp256k1_fr": 7,
    "curve25519_fq": 2,
    "mersenne31": 7,
}
# Curves y^2 = x^3 + b of prime order: the base field, the scalar field, b, and the x of a point.
CURVES = [
    ("secp256k1_fq", "secp256k1_fr", 7, 1),
    ("bn254_fq", "bn254_fr", 3, 1),
    ("pallas_fq", "vesta_fq", 5, -1),
    ("vesta_fq", "pallas_fq", 5, -1),
]

Point = tuple[int, int] | None

on_every_prime = pytest.mark.parametrize("prime", NAMED.values(), ids=NAMED)


def add_points(p: int, a: Point, b: Point) -> Point:
    """The sum of two points of a curve y^2 = x^3 + b; None is the point at infinity."""
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % p == 0:
            return None
        slope = 3 * a[0] ** 2 * pow(2 * a[1], -1, p)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
    x = (slope**2 - a[0] - b[0]) % p
    return x, (slope * (a[0] - x) - a[1]) % p


def multiply_point(p: int, point: Point, factor: int) -> Point:
    total: Point = None
    for bit in f"{factor:b}":
        total = add_points(p, total, total)
        if bit == "1":
            total = add_points(p, total, point)
    return total


def test_named_primes_are_the_published_ones() -> None:
    assert list(NAMED) == list(PUBLISHED)
    assert {name: prime.modulus for name, prime in NAMED.items()} == {
        name: int(digits, 16) for name, digits in PUBLISHED.items()
    }
    assert all(prime.name == name for name, prime in NAMED.items())


@on_every_prime
def test_named_primes_are_proved_prime(prime: Prime) -> None:
    """Importing the package skips this proof for named primes (`Prime.__post_init__`)."""
    assert fmpz(prime.modulus).is_prime() == 1


def test_factors_are_written_down_for_exactly_the_named_primes() -> None:
    assert set(ODD_FACTORS) == {prime.modulus for prime in NAMED.values()}


@on_every_prime
def test_the_written_factors_are_all_odd_primes_of_p_less_one(prime: Prime) -> None:
    factors = ODD_FACTORS[prime.modulus]
    assert len(set(factors)) == len(factors)
    assert all(factor % 2 == 1 and fmpz(factor).is_prime() == 1 for factor in factors)
    assert prime.modulus % prod(factors) == 1
    rest = prime.odd_part
    for factor in factors:
        while rest % factor == 0:
            rest //= factor
    assert rest == 1


@pytest.mark.parametrize("curve", ["bls12_381", "bls12_377", "bn254"])
def test_pairing_friendly_curves_have_embedding_degree_12(curve: str) -> None:
    q, r = NAMED[f"{curve}_fq"].modulus, NAMED[f"{curve}_fr"].modulus
    assert [degree for degree in range(1, 13) if pow(q, degree, r) == 1] == [12]


@pytest.mark.parametrize(("base", "scalars", "b", "x"), CURVES)
def test_scalar_fields_are_the_orders_of_their_curves(
    base: str, scalars: str, b: int, x: int
) -> None:
    p, order = NAMED[base].modulus, NAMED[scalars].modulus
    y = int(fmpz(x**3 + b).sqrtmod(fmpz(p)))
    assert (y * y - x**3 - b) % p == 0
    assert multiply_point(p, (x % p, y), order - 1) == (x % p, p - y)
    assert multiply_point(p, (x % p, y), order) is None


@pytest.mark.parametrize("name", CONVENTIONS)
def test_roots_of_unity_are_those_of_other_libraries(name: str) -> None:
    two_adicity, generator, root = CONVENTIONS[name]
    prime = NAMED[name]
    assert (prime.two_adicity, prime.generator) == (two_adicity, generator)
    assert prime.root_of_unity(two_adicity) == int(root, 16)


def test_generators_of_the_other_named_primes() -> None:
    assert set(GENERATORS) | set(CONVENTIONS) == set(NAMED)
    assert {name: NAMED[name].generator for name in GENERATORS} == GENERATORS


@pytest.mark.parametrize("module", [gx.fields, primes], ids=lambda module: module.__name__)
def test_fields_of_curves_are_named_by_one_pattern(module: Any) -> None:
    old = {"SECP256K1": "FQ", "SECP256K1_FN": "FR", "CURVE25519": "FQ", "PALLAS": "FQ"}
    for name, kind in {**old, "VESTA": "FQ"}.items():
        new = f"{name.removesuffix('_FN')}_{kind}"
        with pytest.raises(RemovedNameError, match=rf"{name} is now {module.__name__}\.{new}$"):
            getattr(module, name)
        with pytest.raises(ImportError, match=rf"{name} is now {module.__name__}\.{new}$"):
            exec(f"from {module.__name__} import {name}")
        assert not hasattr(module, name)
        assert getattr(module, new).name == new.lower()
        assert new in module.__all__
    assert module.PALLAS_FR is module.VESTA_FQ
    assert module.VESTA_FR is module.PALLAS_FQ
    with pytest.raises(AttributeError, match="has no attribute 'PALLAS_FN'"):
        module.PALLAS_FN  # noqa: B018
    for curve in (gx.curves.SECP256K1, gx.curves.PALLAS, gx.curves.VESTA):
        scalars, base = (
            getattr(gx.fields, f"{curve.name.upper()}_{kind}") for kind in ("FR", "FQ")
        )
        assert (curve.scalar_field, curve.field) == (scalars, base)
    with pytest.raises(gx.GpuError, match="now named 'secp256k1_fq_add'"):
        gx.kernels.load("secp256k1_add")
