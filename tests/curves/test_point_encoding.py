"""The byte formats of points: published encodings, round trips, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.curves.point_encoding import (
    PastaEncoding,
    PointEncoding,
    Sec1Encoding,
    ZcashEncoding,
)
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, CurveError, PointError
from tests.support.curves_under_test import (
    NAMED_CURVES,
    SMALL,
    draw_points,
    encode_points,
    get_curve,
    get_encoding,
)

named = pytest.mark.parametrize("name", NAMED_CURVES)
both_kinds = pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "whole"])

BLS = gx.curves.BLS12_381_G1
X_LIMIT = BLS.field.modulus.to_bytes(48, "big")


def from_hex(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


GENERATORS = {
    "BLS12_381_G1": "97f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac58"
    "6c55e83ff97a1aeffb3af00adb22c6bb",
    "BN254_G1": "80" + 30 * "00" + "01",
    "BLS12_377_G1": "efe91bb26eb1b9ea4e39cdff121548d55ccb37bdc8828218bb419daa2c1e9585"
    "54ff87bf2562fcc8670a74fede488880",
    "PALLAS": "00000000ed302d991bf94c09fc984622" + 15 * "00" + "40",
    "VESTA": "0000000021eb468cdda89409fc984622" + 15 * "00" + "40",
    # G2: c1 before c0 in big-endian formats, c0 before c1 in little-endian ones.
    "BLS12_381_G2": "93e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049"
    "334cf11213945d57e5ac7d055d042b7e024aa2b2f08f0a91260805272dc51051"
    "c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8",
    "BN254_G2": "998e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"
    "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed",
    "BLS12_377_G2": "9651007c8fe4e374025453bb529f88719b6bdb57f501a57e31503e2071f065c5"
    "011d84a3a23096c8fe85c771be808401fe6aa16efafe6bb2e66ff7bf8499f85c"
    "dec99907ce3e22e7cbce5166ee772753d540b1b1515adc70314000e74060ea80",
    "SECP256K1": "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
}
WHOLE_GENERATORS = {
    "BLS12_381_G1": "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac58"
    "6c55e83ff97a1aeffb3af00adb22c6bb"
    "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3ed"
    "d03cc744a2888ae40caa232946c5e7e1",
    "BN254_G1": 31 * "00" + "01" + 31 * "00" + "02",
    "BLS12_377_G1": "efe91bb26eb1b9ea4e39cdff121548d55ccb37bdc8828218bb419daa2c1e9585"
    "54ff87bf2562fcc8670a74fede488800"
    "a68e9c5555de82fd1a59a934363dfec20523b84fd42a186dd9523eca48b37fbd"
    "c4eeaf305d4f671fff2e10c5694a9181",
    "PALLAS": "00000000ed302d991bf94c09fc984622" + 15 * "00" + "40" + "02" + 31 * "00",
    "VESTA": "0000000021eb468cdda89409fc984622" + 15 * "00" + "40" + "02" + 31 * "00",
    "BLS12_381_G2": "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049"
    "334cf11213945d57e5ac7d055d042b7e024aa2b2f08f0a91260805272dc51051"
    "c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"
    "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab"
    "3f370d275cec1da1aaa9075ff05f79be0ce5d527727d6e118cc9cdc6da2e351a"
    "adfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801",
    "BN254_G2": "198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"
    "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed"
    "090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b"
    "12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa",
    "BLS12_377_G2": "9651007c8fe4e374025453bb529f88719b6bdb57f501a57e31503e2071f065c5"
    "011d84a3a23096c8fe85c771be808401fe6aa16efafe6bb2e66ff7bf8499f85c"
    "dec99907ce3e22e7cbce5166ee772753d540b1b1515adc70314000e74060ea00"
    "df4dfd09440994f02e7c8c6d8888cff204d232f882c258e4589ab47472ed03de"
    "b4efb2cb6b7360d97b6f445d660d6900938feb85d1cda1d90b27525e3fb87942"
    "c204e3ce1ab06324f11b593dac11ef61aa701a15a39d549e185583d29f16f880",
    "SECP256K1": "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8",
}
INFINITIES = {
    "BLS12_381_G1": ("c0" + 47 * "00", "40" + 95 * "00"),
    "BN254_G1": ("40" + 31 * "00", 64 * "00"),
    "BLS12_377_G1": (47 * "00" + "40", 95 * "00" + "40"),
    "BLS12_381_G2": ("c0" + 95 * "00", "40" + 191 * "00"),
    "BN254_G2": ("40" + 63 * "00", 128 * "00"),
    "BLS12_377_G2": (95 * "00" + "40", 191 * "00" + "40"),
    "PALLAS": (32 * "00", 64 * "00"),
    "VESTA": (32 * "00", 64 * "00"),
    "SECP256K1": (33 * "00", 65 * "00"),
}


@named
def test_the_generators_encodings(name: str) -> None:
    generator = get_curve(name).generator
    assert generator.to_bytes().tobytes().hex() == GENERATORS[name]
    assert generator.to_bytes(compressed=False).tobytes().hex() == WHOLE_GENERATORS[name]


@named
def test_the_encodings_of_infinity(name: str) -> None:
    curve = get_curve(name)
    infinity = curve.infinity()
    assert (
        infinity.to_bytes().tobytes().hex(),
        infinity.to_bytes(compressed=False).tobytes().hex(),
    ) == INFINITIES[name]


@named
@both_kinds
def test_points_come_back(name: str, compressed: bool) -> None:
    curve = get_curve(name)
    points = curve.concatenate([draw_points(curve, 6, seed=1), curve.infinity(2)])
    points = curve.concatenate([points, -points]).reshape(4, 4)
    data = points.to_bytes(compressed=compressed)
    assert data.shape[:2] == (4, 4)
    assert (curve.from_bytes(data) == points).all()
    rows = [row.tobytes() for row in data.reshape(16, -1)]
    assert (curve.from_bytes(rows, check=False) == points.ravel()).all()
    joined = curve.from_bytes(data.tobytes(), compressed=compressed, check=False)
    assert (joined == points.ravel()).all()


def test_an_example_of_eip_196() -> None:
    """The first test of addition in go-ethereum."""
    one = from_hex(
        "18b18acfb4c2c30276db5411368e7185b311dd124691610c5d3b74034e093dc9"
        "063c909c4720840cb5134cb9f59fa749755796819658d32efc0d288198f37266"
    )
    two = from_hex(
        "07c2b7f58a84bd6145f00c9c2bc0bb1a187f20ff2c92963a88019e7c6a014eed"
        "06614e20c147e940f2d70da3f74c9a17df361706a4485c742bd6788478fa17d7"
    )
    expected = (
        "2243525c5efd4b9c3d3c45ac0ca3fe4dd85e830a4ce6b65fa1eeaee202839703"
        "301d1d33be6da8e509df21cc35964723180eed7532537db9ae5e7d48f195c915"
    )
    points = gx.curves.BN254_G1.from_bytes([one, two])
    assert points.sum().to_bytes(compressed=False).tobytes().hex() == expected


def test_a_published_point_of_secp256k1() -> None:
    twice = gx.curves.SECP256K1.generator.double()
    assert twice.to_bytes().tobytes().hex() == (
        "02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"
    )


# --- what is refused ---

GOOD_BLS = from_hex(GENERATORS["BLS12_381_G1"])
GOOD_BN = from_hex(GENERATORS["BN254_G1"])
GOOD_377 = from_hex(GENERATORS["BLS12_377_G1"])
WHOLE_377 = from_hex(WHOLE_GENERATORS["BLS12_377_G1"])
GOOD_PALLAS = from_hex(GENERATORS["PALLAS"])
GOOD_SECP = from_hex(GENERATORS["SECP256K1"])


def flip(data: bytes, byte: int, bits: int) -> bytes:
    changed = bytearray(data)
    changed[byte] ^= bits
    return bytes(changed)


BAD_ENCODINGS = [
    ("BLS12_381_G1", flip(GOOD_BLS, 0, 0x80), "its first bit says uncompressed.*48 bytes"),
    ("BLS12_381_G1", flip(GOOD_BLS, 0, 0x40), "flagged as the point at infinity"),
    ("BLS12_381_G1", from_hex("e0" + 47 * "00"), "flagged as the point at infinity"),
    ("BLS12_381_G1", flip(X_LIMIT, 0, 0x80), "x is not below the modulus"),
    ("BLS12_381_G1", from_hex("9f" + 47 * "ff"), "x is not below the modulus"),
    ("BLS12_381_G1", from_hex("80" + 46 * "00" + "01"), "no point of the curve with this x"),
    ("BLS12_381_G1", from_hex("80" + 46 * "00" + "04"), "not in the group of prime order"),
    ("BLS12_381_G1", from_hex("80" + 95 * "00"), "its first bit says compressed.*96 bytes"),
    ("BLS12_381_G1", from_hex("20" + 95 * "00"), "its third bit is set"),
    ("BLS12_381_G1", from_hex("60" + 95 * "00"), "its third bit is set"),
    ("BLS12_381_G1", from_hex("40" + 94 * "00" + "01"), "flagged as the point at infinity"),
    ("BLS12_381_G1", from_hex(96 * "00"), "0 without the flag of the point at infinity"),
    ("BLS12_381_G1", from_hex(95 * "00" + "01"), "not the coordinates of a point"),
    ("BLS12_381_G1", X_LIMIT + bytes(48), "x is not below the modulus"),
    ("BLS12_381_G1", bytes(48) + X_LIMIT, "y is not below the modulus"),
    ("BN254_G1", flip(GOOD_BN, 0, 0x80), "its first two bits say uncompressed"),
    ("BN254_G1", from_hex("40" + 30 * "00" + "01"), "flagged as the point at infinity"),
    ("BN254_G1", from_hex("bf" + 31 * "ff"), "x is not below the modulus"),
    ("BN254_G1", from_hex("80" + 30 * "00" + "04"), "no point of the curve with this x"),
    ("BN254_G1", from_hex(63 * "00" + "01"), "not the coordinates of a point"),
    ("BN254_G1", from_hex(64 * "ff"), "x is not below the modulus"),
    ("BLS12_377_G1", flip(GOOD_377, 47, 0x40), "both flags are set"),
    ("BLS12_377_G1", flip(GOOD_377, 47, 0xC0), "flagged as the point at infinity"),
    ("BLS12_377_G1", from_hex(48 * "3f"), "x is not below the modulus"),
    ("BLS12_377_G1", flip(WHOLE_377, 95, 0x80), "the larger root does not fit y"),
    ("BLS12_377_G1", flip(WHOLE_377, 95, 0x40), "both flags are set"),
    ("BLS12_377_G1", from_hex(96 * "00"), "0 without the flag of the point at infinity"),
    ("BLS12_377_G1", flip(WHOLE_377, 0, 1), "not the coordinates of a point"),
    ("BLS12_381_G2", X_LIMIT + bytes(48), "its first bit says uncompressed"),
    ("BLS12_381_G2", flip(X_LIMIT + bytes(48), 0, 0x80), "a coefficient of x is not below"),
    ("BLS12_381_G2", flip(bytes(48) + X_LIMIT, 0, 0x80), "a coefficient of x is not below"),
    ("BLS12_381_G2", flip(bytes(95) + b"\2", 0, 0x80), "not in the group of prime order"),
    ("BN254_G2", bytes(64) + 64 * b"\xff", "a coefficient of y is not below the modulus"),
    ("BN254_G2", bytes(127) + b"\1", "not the coordinates of a point"),
    ("BLS12_377_G2", 96 * b"\x3f", "a coefficient of x is not below the modulus"),
    ("PALLAS", from_hex(31 * "00" + "80"), "no point of the curve with this x"),
    ("PALLAS", from_hex(31 * "ff" + "7f"), "x is not below the modulus"),
    ("PALLAS", flip(GOOD_PALLAS, 0, 1), "x is not below the modulus"),
    ("PALLAS", from_hex("01" + 63 * "00"), "not the coordinates of a point"),
    ("SECP256K1", flip(GOOD_SECP, 0, 4), "its first byte is 6; a compressed point has 2 or 3"),
    ("SECP256K1", bytes([2]) + 31 * b"\0" + b"\5", "no point of the curve with this x"),
    ("SECP256K1", bytes([2]) + 32 * b"\xff", "x is not below the modulus"),
    ("SECP256K1", bytes([0]) + 32 * b"\x01", "its first byte is 0"),
    ("SECP256K1", bytes([7]) + 64 * b"\x01", "its first byte is 7; an uncompressed point has"),
    ("SECP256K1", bytes([4]) + bytes(64), "x and y are 0"),
]
"""The name of a curve, an encoding and what is wrong with it."""
bad_encodings = pytest.mark.parametrize(("name", "data", "words"), BAD_ENCODINGS)


@bad_encodings
def test_a_bad_encoding_is_named(name: str, data: bytes, words: str) -> None:
    curve = get_curve(name)
    compressed = len(data) == get_encoding(curve).compressed_bytes
    good_row = curve.generator.to_bytes(compressed=compressed).tobytes()
    with pytest.raises(PointError, match=f"^{name.lower()}: point 1: .*({words})") as caught:
        curve.from_bytes([good_row, data, good_row])
    assert caught.value.index == 1


@bad_encodings
def test_a_device_names_a_bad_encoding_in_the_same_words(
    gpu: gx.PersistentVulkanBackend, name: str, data: bytes, words: str
) -> None:
    curve = get_curve(name)
    compressed = len(data) == get_encoding(curve).compressed_bytes
    good_row = curve.generator.to_bytes(compressed=compressed).tobytes()
    rows = [good_row, good_row, data, data, good_row]
    messages = []
    for place in (None, gpu):
        with pytest.raises(PointError, match=words) as caught:
            curve.from_bytes(rows, device=place)
        assert caught.value.index == 2
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_the_first_of_several_bad_encodings_is_named(
    gpu: gx.PersistentVulkanBackend, on_device: bool
) -> None:
    """Whatever is wrong with it: checks of flags, of the modulus, of the curve and of the group
    are made one after the other for all points. Membership of the group is checked last."""
    flags, modulus = flip(GOOD_BLS, 0, 0x80), flip(X_LIMIT, 0, 0x80)
    no_point, outside = (from_hex(f"80{46 * '00'}0{x}") for x in (1, 4))
    cases = {"its first bit": flags, "below the modulus": modulus, "with this x": no_point}
    place = gpu if on_device else None
    for words, first in cases.items():
        rows = [GOOD_BLS, outside, first, *cases.values(), GOOD_BLS]
        with pytest.raises(PointError, match=words) as caught:
            BLS.from_bytes(rows, device=place)
        assert caught.value.index == 2


@both_kinds
def test_a_point_with_y_0_has_no_larger_root(
    gpu: gx.PersistentVulkanBackend, compressed: bool
) -> None:
    """(-1, 0) is a point of order 2 of y^2 = x^3 + 1."""
    curve = gx.curves.BLS12_377_G1
    points = encode_points(curve, [(curve.field.modulus - 1, 0)])
    data = points.to_bytes(compressed=compressed)
    flipped = flip(data.tobytes(), -1, 0x80)
    for place in (None, gpu):
        found = curve.from_bytes(data, check=False, device=place)
        assert found.tolist() == [(curve.field.modulus - 1, 0)]
        with pytest.raises(PointError, match=r"point 0: .*larger root"):
            curve.from_bytes(flipped, compressed=compressed, check=False, device=place)


def test_points_outside_the_group_are_accepted_without_a_check() -> None:
    data = from_hex("80" + 46 * "00" + "04")
    points = BLS.from_bytes(data, check=False)
    assert points.shape == (1,)
    assert points.is_on_curve().all()
    assert not points.in_subgroup().any()


@st.composite
def encodings(draw: st.DrawFn) -> tuple[Curve, bytes]:
    """Encodings of points of curves, with a few bits changed."""
    curve = get_curve(draw(st.sampled_from(NAMED_CURVES)))
    point = curve.generator * draw(st.integers(0, 50))
    data = bytearray(point.to_bytes(compressed=draw(st.booleans())).tobytes())
    for _ in range(draw(st.integers(0, 2))):
        byte = draw(st.sampled_from([0, 1, len(data) // 2, len(data) - 1]))
        data[byte] ^= draw(st.integers(0, 255))
    return curve, bytes(data)


@given(encodings())
@settings(max_examples=50)
def test_what_is_read_is_written_again(case: tuple[Curve, bytes]) -> None:
    """So no point has two encodings of one kind."""
    curve, data = case
    try:
        point = curve.from_bytes(np.frombuffer(data, np.uint8), check=False)
    except PointError:
        return
    compressed = len(data) == get_encoding(curve).compressed_bytes
    assert point.to_bytes(compressed=compressed).tobytes() == data


def test_bytes_of_wrong_lengths_are_refused() -> None:
    with pytest.raises(ArgumentShapeError, match="50 bytes are no multiple of the 48 bytes"):
        BLS.from_bytes(bytes(50))
    with pytest.raises(ArgumentShapeError, match=r"48 or 96 of them; the shape is .2, 50."):
        BLS.from_bytes(np.zeros((2, 50), np.uint8))
    with pytest.raises(ArgumentShapeError, match=r"48 of them; the shape is .2, 96."):
        BLS.from_bytes(np.zeros((2, 96), np.uint8), compressed=True)
    with pytest.raises(ArgumentShapeError, match=r"the shape is \(\)"):
        BLS.from_bytes(np.zeros((), np.uint8))


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="an array of uint8, not of int64"):
        BLS.from_bytes(np.zeros((2, 48), np.int64))
    with pytest.raises(ArgumentTypeError, match=r"`bytes` of one length; found lengths .48, 96."):
        BLS.from_bytes([bytes(48), bytes(96)])
    with pytest.raises(ArgumentTypeError, match="a list of encoded points has `bytes`"):
        BLS.from_bytes([5])
    with pytest.raises(ArgumentTypeError, match="not int"):
        BLS.from_bytes(5)
    place: Any = "gpu"
    with pytest.raises(ArgumentTypeError, match=r"device is an executor or a backend.*not str"):
        BLS.from_bytes(GOOD_BLS, device=place)


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="masked array"):
        BLS.from_bytes(np.ma.masked_array(np.zeros((2, 48), np.uint8), mask=True))


@pytest.mark.parametrize(
    ("curve", "encoding", "words"),
    [
        (gx.curves.SECP256K1, ZcashEncoding, "needs 3 bits for flags; the 256 bits"),
        (gx.curves.SECP256K1, PastaEncoding, "needs 1 bits for flags"),
        (gx.curves.BN254_G2, Sec1Encoding, "for curves over prime fields"),
    ],
)
def test_a_format_that_does_not_fit_a_curve_is_refused(
    curve: Curve, encoding: type[PointEncoding], words: str
) -> None:
    with pytest.raises(CurveError, match=words):
        Curve(
            curve.field,
            curve.key.a,
            curve.key.b,
            order=curve.order,
            generator=curve.generator.tolist(),
            encoding=encoding,
        )


@both_kinds
def test_no_points_are_no_bytes(compressed: bool) -> None:
    width = 48 if compressed else 96
    assert BLS.infinity(0).to_bytes(compressed=compressed).shape == (0, width)
    assert BLS.from_bytes(np.zeros((0, width), np.uint8)).shape == (0,)
    assert BLS.from_bytes(b"").shape == (0,)
    assert BLS.from_bytes([]).shape == (0,)


def test_other_curves_have_no_byte_format() -> None:
    points = encode_points(SMALL[0], [None])
    with pytest.raises(CurveError, match="has no byte format"):
        points.to_bytes()
    with pytest.raises(CurveError, match="has no byte format"):
        SMALL[0].from_bytes(b"")
