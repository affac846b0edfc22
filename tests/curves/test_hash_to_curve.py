"""Hashing to curves: the vectors of RFC 9380, py_ecc, and points that other packages computed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.curves.hash_to_curve import _map_to_curve, _parse_dst, expand_message, get_suite
from gpu_executor.curves.isogeny import Isogeny
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError, CurveError
from gpu_executor.ops.host_coordinates import CoordinateField
from tests.support.curves_under_test import OVER_MERSENNE31, get_curve

Gpu = gx.PersistentVulkanBackend
DATA = Path(__file__).parent.parent / "data" / "hash_to_curve.json"
SUITES = json.loads(DATA.read_text(encoding="utf-8"))["suites"]
NAMES = ["BLS12_381_G1", "BLS12_381_G2", "SECP256K1"]
with_suites = pytest.mark.parametrize("name", NAMES)
CPU = gx.CpuBackend()


def parse_point(vector: dict[str, Any]) -> tuple[Any, Any]:
    """x and y as integers, or as tuples of two."""
    parts = ([int(each, 16) for each in vector[name]] for name in "xy")
    x, y = (each[0] if len(each) == 1 else tuple(each) for each in parts)
    return x, y


# --- against vectors and other packages ---


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite["suite"])
def test_points_equal_those_of_the_rfc(suite: dict[str, Any]) -> None:
    curve, dst = get_curve(suite["curve"]), suite["dst"].encode()
    use = curve.hash_to_curve if suite["suite"].endswith("_RO_") else curve.encode_to_curve
    assert suite["suite"].startswith(get_suite(curve).name)
    points = use([each["msg"].encode() for each in suite["vectors"]], dst=dst)
    assert points.tolist() == [parse_point(each) for each in suite["vectors"]]


@pytest.mark.parametrize("name", NAMES[:2])
def test_points_equal_those_of_py_ecc(name: str) -> None:
    from py_ecc.bls import hash_to_curve as peer

    messages = [bytes(range(n)) for n in (0, 1, 55, 64, 200)]
    hash_one: Any = peer.hash_to_G1 if name == "BLS12_381_G1" else peer.hash_to_G2
    wanted = [normalize_peer_point(hash_one(each, b"x" * 255, hashlib.sha256)) for each in messages]
    assert get_curve(name).hash_to_curve(messages, dst=b"x" * 255).tolist() == wanted


def normalize_peer_point(point: Any) -> tuple[Any, Any]:
    """x and y of a point of py_ecc, as integers or as tuples of two."""
    from py_ecc.optimized_bls12_381.optimized_curve import normalize

    x, y = (
        tuple(map(int, each.coeffs)) if hasattr(each, "coeffs") else each.n
        for each in normalize(point)
    )
    return x, y


@with_suites
def test_the_exceptional_element_0_has_its_point(name: str) -> None:
    """z^2 u^4 + z u^2 is 0 for u = 0, and has no inverse."""
    curve = get_curve(name)
    suite, u = get_suite(curve), curve.field.encode([[0], [0]])
    points = _map_to_curve(curve, suite, u, np.zeros((2, 1), np.bool_))[:, 0]
    wanted = map_zero_elsewhere(name)
    assert suite.clear_cofactor(curve, points).tolist() == [wanted] * 2


def map_zero_elsewhere(name: str) -> tuple[Any, Any]:
    """The point of u = 0 by py_ecc; on secp256k1 by npm @noble/curves 2.4.0."""
    from py_ecc.bls import hash_to_curve as peer
    from py_ecc.fields import optimized_bls12_381_FQ, optimized_bls12_381_FQ2

    if name == "BLS12_381_G1":
        first: Any = peer.map_to_curve_G1(optimized_bls12_381_FQ(0))
        return normalize_peer_point(peer.clear_cofactor_G1(first))
    if name == "BLS12_381_G2":
        first = peer.map_to_curve_G2(optimized_bls12_381_FQ2([0, 0]))
        return normalize_peer_point(peer.clear_cofactor_G2(first))
    return (
        0xBF6CE2ABC92F03C7ABFB18752134ACC036B8E8EF46A7ED2634A86727C12D6AC1,
        0xCB18D77A942CE3413CFB072B4F6C28B51EE64786E67FA94CF7B24DE22D281A15,
    )


def test_long_tags_are_hashed() -> None:
    """The vectors of RFC 9380, appendix K.2."""
    tag = b"QUUX-V01-CS02-with-expander-SHA256-128-long-DST-" + b"1" * 208
    assert len(tag) == 256
    parsed = _parse_dst("curve", tag)
    found = [expand_message(message, parsed, 32).hex() for message in (b"", b"abc")]
    assert found == [
        "e8dc0c8b686b7ef2074086fbdd2f30e3f8bfbd3bdf177f73f04b97ce618a3ed3",
        "52dbf4f36cf560fca57dedec2ad924ee9c266341d8f3d6afe5171733b16bbb12",
    ]
    assert _parse_dst("curve", tag[:255]) == tag[:255]


# --- the group, and places ---


@with_suites
def test_points_are_in_the_group(name: str) -> None:
    curve = get_curve(name)
    for use in (curve.hash_to_curve, curve.encode_to_curve):
        points = use([bytes([each]) for each in range(4)], dst=b"test")
        assert points.known_in_subgroup and points.shape == (4,)
        fresh = curve.from_words(points.numpy(), "canonical")  # checks curve and group
        assert (fresh == points).all() and not points.is_infinity().any()


@with_suites
def test_the_cofactor_is_cleared_by_the_effective_cofactor(name: str) -> None:
    """h_eff of the suites, which is larger than the order of G2."""
    h_eff = {
        "BLS12_381_G1": 0xD201000000010001,
        "BLS12_381_G2": int(
            "bc69f08f2ee75b3584c6a0ea91b352888e2a8e9145ad7689986ff031508ffe1329c2f178731db956"
            "d82bf015d1212b02ec0ec69d7477c1ae954cbc06689f6a359894c0adebbf6b4e8020005aaa95551",
            16,
        ),
        "SECP256K1": 1,
    }[name]
    curve = get_curve(name)
    suite = get_suite(curve)
    u = curve.field.random((2, 1), seed=1)
    points = _map_to_curve(curve, suite, u, np.zeros((2, 1), np.bool_))[:, 0]
    assert points.is_on_curve().all()
    if curve.cofactor != 1:
        assert not curve.in_subgroup(points).any()
    multiple = curve.infinity((2,))
    for bit in f"{h_eff:b}":
        multiple = multiple.double() + points if bit == "1" else multiple.double()
    assert (suite.clear_cofactor(curve, points) == multiple).all()


@pytest.mark.parametrize("name", NAMES)
def test_devices_find_the_same_points(gpu: Gpu, name: str) -> None:
    curve, messages = get_curve(name), [b"", b"abc", b"\x00" * 100]
    for use in (curve.hash_to_curve, curve.encode_to_curve):
        wanted = use(messages, dst=b"test").tolist()
        for device in (gpu, CPU):
            found = use(messages, dst=b"test", device=device)
            assert found.on_device and found.known_in_subgroup and found.tolist() == wanted


def test_points_of_the_kernel_of_an_isogeny_become_infinity() -> None:
    curve = gx.curves.SECP256K1
    field = curve.field
    kernel = 0x76D6E37B21C1EE0EFBE2596A8DAA112A0369B5B20FAF20DDE2952B309546368A
    isogeny: Isogeny = get_suite(curve).isogeny
    x, y = isogeny.map_coordinates(field, field([field.modulus - kernel]), field([5]))
    assert curve.join_coordinates(x, y).is_infinity().all()


def test_an_isogeny_maps_twice_a_point_to_twice_its_image() -> None:
    """The points (0, y) of y^2 = x^3 + 2 have the order 3. Without them it is y^2 = x^3 - 54."""
    field = gx.Field(103)
    isogeny = Isogeny(CoordinateField(field.prime), 0, 2, [0], 1)
    found = [(x, y) for x in range(1, 103) for y in range(1, 103) if (y * y - x**3 - 2) % 103 == 0]
    x, y = (field([point[at] for point in found]) for at in (0, 1))
    u, v = (each.tolist() for each in isogeny.map_coordinates(field, x, y))
    images = dict(zip(found, zip(u, v, strict=True), strict=True))
    assert all((v * v - u**3 + 54) % 103 == 0 for u, v in images.values())
    doubles = {point: double_point(point) for point in found}
    checked = [point for point, double in doubles.items() if double in images]
    assert len(checked) > 50
    assert all(images[doubles[each]] == double_point(images[each]) for each in checked)


def double_point(point: tuple[int, int]) -> tuple[int, int]:
    """Twice a point of a curve with a = 0 over 103 elements."""
    x, y = point
    slope = 3 * x * x * pow(2 * y, -1, 103)
    third = (slope * slope - 2 * x) % 103
    return third, (slope * (x - third) - y) % 103


# --- messages and tags ---


def test_one_message_has_a_point_without_axes(gpu: Gpu) -> None:
    curve = gx.curves.SECP256K1
    wanted = curve.hash_to_curve([b"abc"], dst=b"test")[0].tolist()
    forms: list[Any] = [
        *(b"abc", bytearray(b"abc"), memoryview(b"abc")),
        np.frombuffer(b"abc", np.uint8),
    ]
    for message in forms:
        found = curve.hash_to_curve(message, dst=b"test")
        assert found.shape == () and found.tolist() == wanted
        assert curve.hash_to_curve([message], dst=b"test").tolist() == [wanted]
    assert curve.hash_to_curve(b"abc", dst=b"test", device=gpu).shape == ()


def test_messages_are_rows_of_arrays_and_any_iterable() -> None:
    curve = gx.curves.SECP256K1
    rows = np.arange(6, dtype=np.uint8).reshape(2, 3)
    wanted = curve.hash_to_curve([b"\0\1\2", b"\3\4\5"], dst=b"test").tolist()
    for messages in (rows, iter([b"\0\1\2", b"\3\4\5"]), np.asfortranarray(rows)):
        assert curve.hash_to_curve(messages, dst=b"test").tolist() == wanted


def test_no_messages_have_no_points(gpu: Gpu) -> None:
    for curve in (gx.curves.BLS12_381_G2, gx.curves.SECP256K1):
        assert curve.hash_to_curve([], dst=b"test").shape == (0,)
        found = curve.hash_to_curve([], dst=b"test", device=gpu)
        assert found.on_device and found.shape == (0,)


def test_messages_and_tags_make_different_points() -> None:
    curve = gx.curves.SECP256K1
    found = [
        curve.hash_to_curve(message, dst=dst).tolist()
        for message in (b"", b"a")
        for dst in (b"a", b"b", b"a" * 255, b"a" * 256)
    ]
    found += [curve.encode_to_curve(b"", dst=b"a").tolist()]
    assert len({*found}) == 9


def test_a_curve_of_the_same_equation_has_the_suite() -> None:
    named = gx.curves.SECP256K1
    again = Curve(named.field, 0, 7, order=named.order, generator=(named.generator * 5).tolist())
    found = again.hash_to_curve(b"abc", dst=b"test")
    assert found.tolist() == named.hash_to_curve(b"abc", dst=b"test").tolist()


@pytest.mark.parametrize(
    ("messages", "dst", "kind", "words"),
    [
        ("abc", b"test", ArgumentTypeError, "message 0 is a str"),
        (["abc"], b"test", ArgumentTypeError, "message 0 is a str"),
        ([b"abc", 5], b"test", ArgumentTypeError, "message 1 is a int"),
        (np.zeros(3), b"test", ArgumentTypeError, "float64"),
        (np.zeros((1, 2, 3), np.uint8), b"test", ArgumentTypeError, r"shape \(2, 3\)"),
        (5, b"test", ArgumentTypeError, "messages is an int"),
        ([b"abc"], "test", ArgumentTypeError, "dst is a str"),
        ([b"abc"], None, ArgumentTypeError, "dst is a NoneType"),
        ([b"abc"], b"", ArgumentValueError, "dst is empty"),
    ],
)
def test_what_is_no_message_and_no_tag_is_rejected(
    messages: Any, dst: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        gx.curves.SECP256K1.hash_to_curve(messages, dst=dst)


def test_the_tag_must_be_given_and_the_device_is_one() -> None:
    curve: Any = gx.curves.SECP256K1
    with pytest.raises(TypeError, match="dst"):
        curve.hash_to_curve(b"abc")
    with pytest.raises(ArgumentTypeError, match="device is an executor"):
        curve.hash_to_curve(b"abc", dst=b"test", device="gpu")


@pytest.mark.parametrize("curve", [gx.curves.PALLAS, OVER_MERSENNE31], ids=lambda each: each.name)
def test_curves_without_a_suite_say_which_have_one(curve: Curve) -> None:
    with pytest.raises(CurveError, match="BLS12_381_G1, BLS12_381_G2, SECP256K1"):
        curve.hash_to_curve(b"abc", dst=b"test")
