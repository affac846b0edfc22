"""Hashing of messages to points of curves, by RFC 9380.

The suites are those with SHA-256 and the simplified map of Shallue, van de Woestijne and Ulas for
BLS12-381 G1 and G2 and secp256k1. The host hashes the messages to elements of the curve's field.
The rest is written with operations of fields and curves on whole arrays, so it runs where the
points are to be: a map to a curve that is isogenous to the wanted one, the isogeny, a sum of two
points, and a multiplication that leads into the group of prime order. Nothing runs in constant
time.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.calls.arguments import describe
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.curves.coordinate_arithmetic import get_lowest_bits
from gpu_executor.curves.endomorphism import Coefficient, Endomorphism, make_frobenius_map
from gpu_executor.curves.isogeny import Isogeny
from gpu_executor.curves.point_array import PointArray
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError, CurveError
from gpu_executor.fields import BLS12_381_FQ, SECP256K1_FQ
from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.primes import moduli
from gpu_executor.primes.curve_key import CurveKey

Booleans = npt.NDArray[np.bool_]

MAX_DST_BYTES = 255
"""A longer domain separation tag is hashed (RFC 9380, section 5.3.3)."""
LONG_DST_PREFIX = b"H2C-OVERSIZE-DST-"
BLOCK_BYTES, DIGEST_BYTES = 64, 32
"""Of SHA-256."""


@dataclass(frozen=True)
class HashSuite:
    """What a suite of RFC 9380 says of one curve E."""

    name: str
    """The name in the RFC, which ends with "_RO_" for `hash_to_curve` and with "_NU_" for
    `encode_to_curve`."""
    element_bytes: int
    """L: bytes that become an integer modulo p."""
    z: Coefficient
    a: Coefficient
    b: Coefficient
    """The isogenous curve E' is y^2 = x^3 + a x + b."""
    isogeny: Isogeny
    """From E' to E."""
    clear_cofactor: Callable[[Any, PointArray], PointArray]
    """A multiple of points of the curve, all in the group of prime order."""


def hash_to_points(
    curve: Any, messages: Any, dst: Any, device: ArrayDevice | None, count: int
) -> PointArray:
    """The point of every message, each the sum of `count` points of the map: 2 for `hash_to_curve`,
    1 for `encode_to_curve`."""
    suite = get_suite(curve)
    tag = _parse_dst(curve.name, dst)
    given, shape = _parse_messages(curve.name, messages)
    if not given:
        none: PointArray = curve.infinity(shape)
        return none if device is None else none.copy_to_device(device)
    degree = curve.key.degree
    modulus, size = curve.key.prime.modulus, suite.element_bytes
    rows = []
    for message in given:
        expanded = expand_message(message, tag, count * degree * size)
        parts = (expanded[at : at + size] for at in range(0, len(expanded), size))
        rows.append([int.from_bytes(each, "big") % modulus for each in parts])
    elements = np.array(rows, object).reshape(len(given), count, *([degree] if degree > 1 else []))
    u = curve.field.encode(elements)
    signs = _find_integer_signs(elements.reshape(len(given), count, degree))
    points = _map_to_curve(curve, suite, u if device is None else u.copy_to_device(device), signs)
    total = points[:, 0] if count == 1 else curve.add(points[:, 0], points[:, 1])
    cleared = suite.clear_cofactor(curve, total)
    return PointArray(curve, cleared.data, known_in_subgroup=True).reshape(shape)


def expand_message(message: bytes, tag: bytes, length: int) -> bytes:
    """`expand_message_xmd` with SHA-256 (RFC 9380, section 5.3.1).

    Args:
        message (bytes): The message.
        tag (bytes): The domain separation tag, at most 255 bytes.
        length (int): The bytes of the result, at most 255 digests.
    """
    suffix = tag + len(tag).to_bytes(1, "big")
    start = bytes(BLOCK_BYTES) + message + length.to_bytes(2, "big") + b"\0" + suffix
    first = int.from_bytes(hashlib.sha256(start).digest(), "big")
    digest, found = b"", b""
    for index in range(1, -(-length // DIGEST_BYTES) + 1):
        # The exclusive or of numbers takes 0.43 us, that of pairs of bytes 2.9.
        mixed = (first ^ int.from_bytes(digest, "big")).to_bytes(DIGEST_BYTES, "big")
        digest = hashlib.sha256(mixed + index.to_bytes(1, "big") + suffix).digest()
        found += digest
    return found[:length]


# --- arguments ---


def _parse_dst(name: str, dst: Any) -> bytes:
    """The domain separation tag, of at most 255 bytes."""
    if not isinstance(dst, bytes):
        raise ArgumentTypeError(
            f"{name}: dst is {describe(dst)}; the domain separation tag must be bytes, such as "
            "b'MY-PROTOCOL-V01-CS01'"
        )
    if not dst:
        raise ArgumentValueError(
            f"{name}: dst is empty; the domain separation tag has at least one byte, and should "
            "have 16 (RFC 9380, section 3.1)"
        )
    if len(dst) > MAX_DST_BYTES:
        return hashlib.sha256(LONG_DST_PREFIX + dst).digest()
    return dst


def _parse_messages(name: str, messages: Any) -> tuple[list[bytes], tuple[int, ...]]:
    """The messages, and the shape of their points: one message has a point without axes."""
    from gpu_executor.hashes.byte_hash import check_message

    is_one = isinstance(messages, bytes | bytearray | memoryview | str)
    if is_one or (isinstance(messages, np.ndarray) and messages.ndim == 1):
        return [bytes(check_message(name, 0, messages))], ()
    if not isinstance(messages, Iterable):
        raise ArgumentTypeError(
            f"{name}: messages is {describe(messages)}; it must be a message or a list of messages"
        )
    found = [bytes(check_message(name, number, each)) for number, each in enumerate(messages)]
    return found, (len(found),)


# --- the map ---


def _map_to_curve(curve: Any, suite: HashSuite, u: Any, signs: Booleans) -> PointArray:
    """The points of the curve for elements u of its field, which have the given signs: the
    simplified map of Shallue, van de Woestijne and Ulas (RFC 9380, section 6.6.2) to the isogenous
    curve, and the isogeny.

    Of x1 = (-b / a) (1 + 1 / (z^2 u^4 + z u^2)) and x2 = z u^2 x1 one at least is the x of a point;
    x1 is taken if both are. x1 is b / (z a) where z^2 u^4 + z u^2 is 0. y has the sign of u.
    """
    field, coordinates = curve.field, CoordinateField.of(curve.key)
    p = coordinates.modulus
    z, a, b = (_make_coordinate(coordinates, each) for each in (suite.z, suite.a, suite.b))
    ratio = b * coordinates.invert(a) % p
    factor, exception = (
        coordinates.to_integers(each % p) for each in (-ratio, ratio * coordinates.invert(z))
    )
    multiple = field.square(u) * suite.z
    inverse = field.inverse(field.square(multiple) + multiple)  # 0 for 0
    x1 = field.fma(inverse, factor, factor)
    undefined = field.equal(inverse, 0)
    if undefined.any():
        x1 = field.where(undefined, exception, x1)
    x2 = multiple * x1
    right1, right2 = (field.fma(field.square(x) + suite.a, x, suite.b) for x in (x1, x2))
    is_first = field.is_square(right1)
    x = field.where(is_first, x1, x2)
    y = field.sqrt(field.where(is_first, right1, right2))
    y = field.where(_find_signs(y) != signs, -y, y)
    points: PointArray = curve.join_coordinates(*suite.isogeny.map_coordinates(field, x, y))
    return points


def _make_coordinate(field: CoordinateField, value: Coefficient) -> Any:
    return field.make(value if isinstance(value, tuple) else (value,))


def _find_signs(x: Any) -> Booleans:
    """`sgn0` of RFC 9380, section 4.1: whether the first coefficient that is not 0 is odd."""
    *lower, highest = x.coefficients if hasattr(x, "coefficients") else (x,)
    found = get_lowest_bits(highest)
    for each in reversed(lower):
        found = np.where(each == 0, found, get_lowest_bits(each))
    return found


def _find_integer_signs(elements: npt.NDArray[np.object_]) -> Booleans:
    """`sgn0` of elements whose coefficients are along the last axis."""
    rows = elements.reshape(-1, elements.shape[-1]).tolist()
    first = [next(filter(None, row), 0) for row in rows]
    return np.array([each & 1 for each in first], np.bool_).reshape(elements.shape[:-1])


# --- suites ---


def get_suite(curve: Any) -> HashSuite:
    """The suite of a curve, which is found by its equation and order."""
    for key, make in _SUITES.values():
        if curve.key == key:
            return make()
    raise CurveError(
        f"{curve.name}: messages are not hashed to points of this curve; there are suites of RFC "
        f"9380 for {', '.join(_SUITES)}"
    )


@functools.cache
def _make_bls12_381_g1() -> HashSuite:
    """The isogeny has the degree 11."""
    a = _parse(
        "144698a3b8e9433d693a02c96d4982b0ea985383ee66a8d8",
        "e8981aefd881ac98936f8da0e0f97f5cf428082d584c1d",
    )
    b = _parse(
        "12e2908d11688030018b12e8753eee3b2016c1f0f24f4070",
        "a0b9c14fcef35ef55a23215a316ceaa5d1cc48e98e172be0",
    )
    kernel = [
        _parse(
            "133341fb0962a34cb0504a9c4fada0a5090d38679b4c040d",
            "5d1c3afb023a3409fcc0815fea66d8b02bbef9c8b5a66e07",
        ),
        _parse(
            "0264908af037bcede00d054cf5d4775e83eb6cf63c76b969",
            "f8ed174fb59fcff78d201f46f6cfc4ed6552e59ce75177b0",
        ),
        _parse(
            "1335c502c1f54c49aceea65e87fd7203ba0f626f305fc0cf",
            "d606a5dae9f3c8e81a4b3b69600129fabd307c69bf319d39",
        ),
        _parse(
            "094440f65f408a6e930e16e3e92dd17bf60d6e9679a8d3d5",
            "8593de55ac23703042d609537eb3549aac234d896ca82944",
        ),
        _parse(
            "04afe09d5cf4956a23b6b71f59d2b3407b415a774b7be81b",
            "bb6fa99cbc798e0ac98ba725a5bc328016b1c268b4766e85",
        ),
    ]
    isogeny = Isogeny(CoordinateField(BLS12_381_FQ.prime), a, b, kernel, 11)
    name = "BLS12381G1_XMD:SHA-256_SSWU"
    return HashSuite(name, 64, 11, a, b, isogeny, _clear_cofactor_of_g1)


def _clear_cofactor_of_g1(curve: Any, points: PointArray) -> PointArray:
    """h_eff of the suite is 1 - z, z the parameter of the curve."""
    found: PointArray = curve.mul(points, 1 - moduli.BLS12_381_Z)
    return found


@functools.cache
def _make_bls12_381_g2() -> HashSuite:
    """The isogeny has the degree 3."""
    field = CoordinateField(BLS12_381_FQ.prime, 2, -1)
    a, b, kernel = (0, 240), (1012, 1012), (6, -6)
    isogeny = Isogeny(field, field.make(a), field.make(b), [field.make(kernel)], -3)
    name = "BLS12381G2_XMD:SHA-256_SSWU"
    return HashSuite(name, 64, (-2, -1), a, b, isogeny, _clear_cofactor_of_g2)


def _clear_cofactor_of_g2(curve: Any, points: PointArray) -> PointArray:
    """(z^2 - z - 1) P + (z - 1) psi(P) + psi(psi(2 P)), z the parameter of the curve and psi its
    Frobenius map: h_eff P by Budroni and Pintore (RFC 9380, appendix G.3).

    Scalars of `mul` are modulo the order, which the points need not have, so they are below it.
    """
    frobenius = _make_frobenius()

    def apply_frobenius(p: PointArray) -> PointArray:
        x, y = frobenius.map_coordinates(p.x, p.y)
        found: PointArray = curve.join_coordinates(x, y)
        return found

    def multiply(p: PointArray) -> PointArray:
        found: PointArray = -curve.mul(p, -moduli.BLS12_381_Z)  # z is negative
        return found

    image, multiple = apply_frobenius(points), multiply(points)
    last = apply_frobenius(apply_frobenius(points.double()))
    return multiply(multiple + image) - multiple - image - points + last


@functools.cache
def _make_frobenius() -> Endomorphism:
    field = CoordinateField(BLS12_381_FQ.prime, 2, -1)
    return make_frobenius_map(field, 4, field.make((4, 4)).coefficients, moduli.BLS12_381_Z)


@functools.cache
def _make_secp256k1() -> HashSuite:
    """The isogeny has the degree 3. All points of the curve are in the group."""
    a = _parse("3f8731abdd661adca08a5558f0f5d272e953d363cb6f0e5d405447c01a444533")
    kernel = _parse("76d6e37b21c1ee0efbe2596a8daa112a0369b5b20faf20dde2952b309546368a")
    isogeny = Isogeny(CoordinateField(SECP256K1_FQ.prime), a, 1771, [kernel], 3)
    name = "secp256k1_XMD:SHA-256_SSWU"
    return HashSuite(name, 48, -11, a, 1771, isogeny, lambda _curve, points: points)


def _parse(*parts: str) -> int:
    """A number in hexadecimal digits, in parts that fit a line."""
    return int("".join(parts), 16)


_FQ = BLS12_381_FQ.prime
_SUITES: dict[str, tuple[CurveKey, Callable[[], HashSuite]]] = {
    "BLS12_381_G1": (
        CurveKey(_FQ, 1, 0, (0,), (4,), moduli.BLS12_381_R),
        _make_bls12_381_g1,
    ),
    "BLS12_381_G2": (
        CurveKey(_FQ, 2, _FQ.modulus - 1, (0, 0), (4, 4), moduli.BLS12_381_R),
        _make_bls12_381_g2,
    ),
    "SECP256K1": (
        CurveKey(SECP256K1_FQ.prime, 1, 0, (0,), (7,), moduli.SECP256K1_R),
        _make_secp256k1,
    ),
}
"""The curves by their names in `gx.curves`, and their suites."""
