"""The well-known moduli p, each by its formula, and the odd primes that divide each p - 1.

Finding a generator requires the prime factors of p - 1. They are listed here because factoring
takes up to half a minute. The tests prove that these factors and the moduli are prime.
"""

# --- BLS curves of embedding degree 12 ---
#
# The parameter x gives the group order r = x^4 - x^2 + 1 (the 12th cyclotomic polynomial) and the
# modulus q = (x - 1)^2 r / 3 + x of the base field. Then
# r - 1 = x^2 (x - 1)(x + 1) and q - 1 = (x - 1)((x - 1) r / 3 + 1).


def _bls12(x: int) -> tuple[int, int]:
    r = x**4 - x**2 + 1
    return (x - 1) ** 2 * r // 3 + x, r


BLS12_381_Z = -0xD201000000010000  # x above, z or u elsewhere
BLS12_381_Q, BLS12_381_R = _bls12(BLS12_381_Z)
_BLS12_381_X = (906349, 254760293)
_BLS12_381_X_LESS_1 = (3, 11, 10177, 859267, 52437899)
_BLS12_381_X_PLUS_1 = (19, 125527, 2508409, 2529403)
_BLS12_381_Q_REST = (
    23,
    47,
    2584487767265781317813,
    15778400344354997994418419698270088123916926905054652752758194827714659,
)

BLS12_377_Z = 0x8508C00000000001
BLS12_377_Q, BLS12_377_R = _bls12(BLS12_377_Z)
_BLS12_377_X = (9586122913090633729,)
_BLS12_377_X_LESS_1 = (3, 7, 13, 499)
_BLS12_377_X_PLUS_1 = (5, 958612291309063373)
_BLS12_377_Q_REST = (
    53,
    409,
    2557,
    6633514200929891813,
    73387170334035996766247648424745786170238574695861388454532790956181,
)

# --- Barreto-Naehrig curves ---
#
# q = 36x^4 + 36x^3 + 24x^2 + 6x + 1, and r = q - 6x^2: the trace of Frobenius is 6x^2 + 1.
# q - 1 = 6x (6x^3 + 6x^2 + 4x + 1) and r - 1 = 6x (6x^3 + 6x^2 + 3x + 1).


def _barreto_naehrig(x: int) -> tuple[int, int]:
    q = 36 * x**4 + 36 * x**3 + 24 * x**2 + 6 * x + 1
    return q, q - 6 * x**2


BN254_Z = 0x44E992B44A6909F1
BN254_Q, BN254_R = _barreto_naehrig(BN254_Z)
_BN254_X = (3, 13, 29, 983, 11003, 405928799)
_BN254_Q_REST = (67, 229, 311, 11465965001, 13427688667394608761327070753331941386769)
_BN254_R_REST = (237073, 1670836401704629, 13818364434197438864469338081)

# --- Pasta curves ---
#
# The base field of each curve is the scalar field of the other. The pair was found by complex
# multiplication with discriminant -3: t and v with 4p = 3v^2 + t^2 give a curve over p with trace
# t, which has p + 1 - t points. Both moduli are 1 mod 2^32.

_PASTA_T = -0x47AFC1F319BA33FFFFFFFF
_PASTA_V = 0x93CD3A2C8198E2690C7C095A00000001
PALLAS_Q = (3 * _PASTA_V**2 + _PASTA_T**2) // 4
VESTA_Q = PALLAS_Q + 1 - _PASTA_T

# --- single curves and fields ---

SECP256K1_Q = 2**256 - 2**32 - 977
SECP256K1_R = 2**256 - 0x14551231950B75FC4402DA1732FC9BEBF  # as published in SEC 2
CURVE25519_Q = 2**255 - 19
GOLDILOCKS_P = 2**64 - 2**32 + 1
BABYBEAR_P = 15 * 2**27 + 1
KOALABEAR_P = 127 * 2**24 + 1
MERSENNE31_P = 2**31 - 1

ODD_FACTORS: dict[int, tuple[int, ...]] = {
    BLS12_381_Q: (*_BLS12_381_X_LESS_1, *_BLS12_381_Q_REST),
    BLS12_381_R: (*_BLS12_381_X, *_BLS12_381_X_LESS_1, *_BLS12_381_X_PLUS_1),
    BLS12_377_Q: (*_BLS12_377_X_LESS_1, *_BLS12_377_Q_REST),
    BLS12_377_R: (*_BLS12_377_X, *_BLS12_377_X_LESS_1, *_BLS12_377_X_PLUS_1),
    BN254_Q: (*_BN254_X, *_BN254_Q_REST),
    BN254_R: (*_BN254_X, *_BN254_R_REST),
    SECP256K1_Q: (
        3,
        7,
        13441,
        205115282021455665897114700593932402728804164701536103180137503955397371,
    ),
    SECP256K1_R: (
        3,
        149,
        631,
        107361793816595537,
        174723607534414371449,
        341948486974166000522343609283189,
    ),
    CURVE25519_Q: (
        3,
        65147,
        74058212732561358302231226437062788676166966415465897661863160754340907,
    ),
    PALLAS_Q: (3, 463, 539204044132271846773, 8999194758858563409123804352480028797519453),
    VESTA_Q: (3, 1709, 24859, 1690502597179744445941507, 10427374428728808478656897599072717),
    GOLDILOCKS_P: tuple(2**2**n + 1 for n in range(5)),  # 2^32 - 1 = 3 * 5 * 17 * 257 * 65537
    BABYBEAR_P: (3, 5),
    KOALABEAR_P: (127,),
    MERSENNE31_P: (3, 7, 11, 31, 151, 331),
}
"""The odd primes that divide p - 1, for every modulus p of this file."""
