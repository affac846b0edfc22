"""The parameters of the named curves. A curve is made when its name is first used.

Moduli and orders are in `primes.moduli`, by their formulas. The generators are those of the
libraries that use the curve. Making a curve checks that its generator is on it and has its order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gpu_executor.curves.curve import Coefficient, Curve
from gpu_executor.curves.endomorphism import (
    Endomorphism,
    list_cube_root_maps,
    make_frobenius_map,
)
from gpu_executor.curves.point_encoding import (
    ArkworksEncoding,
    Eip196Encoding,
    PastaEncoding,
    PointEncoding,
    Sec1Encoding,
    ZcashEncoding,
)
from gpu_executor.fields import (
    BLS12_377_FQ,
    BLS12_377_FQ2,
    BLS12_381_FQ,
    BLS12_381_FQ2,
    BN254_FQ,
    BN254_FQ2,
    PALLAS_FQ,
    SECP256K1_FQ,
    VESTA_FQ,
    ExtensionField,
)
from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.primes import moduli


def _make(
    name: str,
    field: Any,
    b: Coefficient,
    order: int,
    generator: tuple[Coefficient, Coefficient],
    encoding: type[PointEncoding],
    endomorphisms: Sequence[Endomorphism] = (),
) -> Curve:
    """y^2 = x^3 + b: all of these curves have a = 0."""
    return Curve(
        field,
        0,
        b,
        order=order,
        generator=generator,
        name=name,
        encoding=encoding,
        endomorphisms=endomorphisms,
    )


def _make_twist(
    name: str,
    field: ExtensionField,
    b: int,
    twisted_b: tuple[int, int],
    order: int,
    generator: tuple[Coefficient, Coefficient],
    encoding: type[PointEncoding],
    eigenvalue: int,
) -> Curve:
    """The twist y^2 = x^3 + twisted_b of y^2 = x^3 + b."""
    assert field.nonresidue is not None
    coordinates = CoordinateField(field.prime, field.degree, field.nonresidue)
    frobenius = make_frobenius_map(coordinates, b, twisted_b, eigenvalue)
    return _make(name, field, twisted_b, order, generator, encoding, [frobenius])


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
        "bls12_381_g1",
        BLS12_381_FQ,
        4,
        moduli.BLS12_381_R,
        (x, y),
        ZcashEncoding,
        list_cube_root_maps(BLS12_381_FQ.prime, -(moduli.BLS12_381_Z**2)),
    )


def _make_bls12_381_g2() -> Curve:
    x0 = _parse(
        "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02",
        "b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8",
    )
    x1 = _parse(
        "13e02b6052719f607dacd3a088274f65596bd0d09920b61a",
        "b5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e",
    )
    y0 = _parse(
        "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a7",
        "6d429a695160d12c923ac9cc3baca289e193548608b82801",
    )
    y1 = _parse(
        "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af",
        "267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be",
    )
    return _make_twist(
        "bls12_381_g2",
        BLS12_381_FQ2,
        4,
        (4, 4),  # 4 (1 + u)
        moduli.BLS12_381_R,
        ((x0, x1), (y0, y1)),
        ZcashEncoding,
        moduli.BLS12_381_Z,
    )


def _make_bn254_g1() -> Curve:
    return _make("bn254_g1", BN254_FQ, 3, moduli.BN254_R, (1, 2), Eip196Encoding)


def _make_bn254_g2() -> Curve:
    """The generator of EIP-197."""
    x0 = _parse("1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed")
    x1 = _parse("198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2")
    y0 = _parse("12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa")
    y1 = _parse("090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b")
    inverse = pow(82, -1, BN254_FQ.modulus)  # 3 / (9 + u) = 3 (9 - u) / 82
    return _make_twist(
        "bn254_g2",
        BN254_FQ2,
        3,
        (27 * inverse % BN254_FQ.modulus, -3 * inverse % BN254_FQ.modulus),
        moduli.BN254_R,
        ((x0, x1), (y0, y1)),
        Eip196Encoding,
        6 * moduli.BN254_Z**2,
    )


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
        "bls12_377_g1",
        BLS12_377_FQ,
        1,
        moduli.BLS12_377_R,
        (x, y),
        ArkworksEncoding,
        list_cube_root_maps(BLS12_377_FQ.prime, -(moduli.BLS12_377_Z**2)),
    )


def _make_bls12_377_g2() -> Curve:
    x0 = _parse(
        "018480be71c785fec89630a2a3841d01c565f071203e5031",
        "7ea501f557db6b9b71889f52bb53540274e3e48f7c005196",
    )
    x1 = _parse(
        "00ea6040e700403170dc5a51b1b140d5532777ee6651cecb",
        "e7223ece0799c9de5cf89984bff76fe6b26bfefa6ea16afe",
    )
    y0 = _parse(
        "00690d665d446f7bd960736bcbb2efb4de03ed7274b49a58",
        "e458c282f832d204f2cf88886d8c7c2ef094094409fd4ddf",
    )
    y1 = _parse(
        "00f8169fd28355189e549da3151a70aa61ef11ac3d591bf1",
        "2463b01acee304c24279b83f5e52270bd9a1cdd185eb8f93",
    )
    return _make_twist(
        "bls12_377_g2",
        BLS12_377_FQ2,
        1,
        (0, -pow(5, -1, BLS12_377_FQ.modulus) % BLS12_377_FQ.modulus),  # 1 / u = -u / 5
        moduli.BLS12_377_R,
        ((x0, x1), (y0, y1)),
        ArkworksEncoding,
        moduli.BLS12_377_Z,
    )


def _make_pallas() -> Curve:
    return _make("pallas", PALLAS_FQ, 5, moduli.VESTA_Q, (-1, 2), PastaEncoding)


def _make_vesta() -> Curve:
    return _make("vesta", VESTA_FQ, 5, moduli.PALLAS_Q, (-1, 2), PastaEncoding)


def _make_secp256k1() -> Curve:
    x = _parse("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
    y = _parse("483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8")
    return _make("secp256k1", SECP256K1_FQ, 7, moduli.SECP256K1_R, (x, y), Sec1Encoding)


_MAKERS: dict[str, Callable[[], Curve]] = {
    "BLS12_377_G1": _make_bls12_377_g1,
    "BLS12_377_G2": _make_bls12_377_g2,
    "BLS12_381_G1": _make_bls12_381_g1,
    "BLS12_381_G2": _make_bls12_381_g2,
    "BN254_G1": _make_bn254_g1,
    "BN254_G2": _make_bn254_g2,
    "PALLAS": _make_pallas,
    "SECP256K1": _make_secp256k1,
    "VESTA": _make_vesta,
}
NAMES = tuple(_MAKERS)


@functools.cache
def get_named(name: str) -> Curve:
    """The curve of that name in `gx.curves`; KeyError if there is none."""
    return _MAKERS[name]()
