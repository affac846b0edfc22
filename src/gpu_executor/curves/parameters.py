"""The parameters of the named curves. A curve is made when its name is first used.

Moduli and orders are in `primes.moduli`, by their formulas. The generators are those of the
libraries that use the curve. Making a curve checks that its generator is on it and has its order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpu_executor.curves.curve import Coefficient, Curve
from gpu_executor.curves.point_encoding import (
    ArkworksEncoding,
    Eip196Encoding,
    PastaEncoding,
    PointEncoding,
    Sec1Encoding,
    ZcashEncoding,
)
from gpu_executor.fields import BLS12_377_FQ, BLS12_381_FQ, BN254_FQ, SECP256K1
from gpu_executor.fields import PALLAS as PALLAS_FQ
from gpu_executor.fields import VESTA as VESTA_FQ
from gpu_executor.primes import moduli


def _make(
    name: str,
    field: Any,
    b: Coefficient,
    order: int,
    generator: tuple[Coefficient, Coefficient],
    encoding: type[PointEncoding],
) -> Curve:
    """y^2 = x^3 + b: all of these curves have a = 0."""
    return Curve(field, 0, b, order=order, generator=generator, name=name, encoding=encoding)


def _parse(*parts: str) -> int:
    """A number in hexadecimal digits, in parts that fit a line."""
    return int("".join(parts), 16)


def _make_bls12_381_g1() -> Curve:
    x = _parse(
        "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905",
        "a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb",
    )
    y = _parse(
        "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af6",
        "00db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1",
    )
    return _make(
        "bls12_381_g1", BLS12_381_FQ, 4, moduli.BLS12_381_R, (x, y), encoding=ZcashEncoding
    )


def _make_bn254_g1() -> Curve:
    return _make("bn254_g1", BN254_FQ, 3, moduli.BN254_R, (1, 2), encoding=Eip196Encoding)


def _make_bls12_377_g1() -> Curve:
    x = _parse(
        "008848defe740a67c8fc6225bf87ff5485951e2caa9d41bb",
        "188282c8bd37cb5cd5481512ffcd394eeab9b16eb21be9ef",
    )
    y = _parse(
        "01914a69c5102eff1f674f5d30afeec4bd7fb348ca3e52d9",
        "6d182ad44fb82305c2fe3d3634a9591afd82de55559c8ea6",
    )
    return _make(
        "bls12_377_g1", BLS12_377_FQ, 1, moduli.BLS12_377_R, (x, y), encoding=ArkworksEncoding
    )


def _make_pallas() -> Curve:
    return _make("pallas", PALLAS_FQ, 5, moduli.VESTA_Q, (-1, 2), encoding=PastaEncoding)


def _make_vesta() -> Curve:
    return _make("vesta", VESTA_FQ, 5, moduli.PALLAS_Q, (-1, 2), encoding=PastaEncoding)


def _make_secp256k1() -> Curve:
    x = _parse("79be667ef9dcbbac55a06295ce870b07", "029bfcdb2dce28d959f2815b16f81798")
    y = _parse("483ada7726a3c4655da4fbfc0e1108a8", "fd17b448a68554199c47d08ffb10d4b8")
    return _make("secp256k1", SECP256K1, 7, moduli.SECP256K1_R, (x, y), encoding=Sec1Encoding)


_MAKERS: dict[str, Callable[[], Curve]] = {
    "BLS12_377_G1": _make_bls12_377_g1,
    "BLS12_381_G1": _make_bls12_381_g1,
    "BN254_G1": _make_bn254_g1,
    "PALLAS": _make_pallas,
    "SECP256K1": _make_secp256k1,
    "VESTA": _make_vesta,
}
NAMES = tuple(_MAKERS)


@functools.cache
def get_named(name: str) -> Curve:
    """The curve of that name in `gx.curves`; KeyError if there is none."""
    return _MAKERS[name]()
