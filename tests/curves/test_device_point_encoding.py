"""Points that a device reads from bytes and writes as bytes, and every encoding of small curves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from py_arkworks_bls12381 import G1Point, G2Point, Scalar
from py_ecc import optimized_bls12_381
from py_ecc.bls import point_compression

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.curves.point_encoding import (
    ArkworksEncoding,
    Eip196Encoding,
    PastaEncoding,
    PointEncoding,
    Sec1Encoding,
    ZcashEncoding,
)
from gpu_executor.errors import CurveError, PointError
from tests.support.curves_under_test import (
    SMALL,
    SMALL_QUADRATIC,
    draw_points,
    find_outside_points,
    get_curve,
    list_points,
)
from tests.support.device_arrays import limit_bindings

both_kinds = pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "whole"])
both_places = pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])

G1 = gx.curves.BLS12_381_G1
PY_ECC: Any = optimized_bls12_381


# --- small curves: all of their points, and encodings by the definition of each format ---


def is_larger(curve: Curve, y: tuple[int, ...]) -> bool:
    """y > -y, compared from the highest coefficient down."""
    p = curve.field.modulus
    return tuple(reversed(y)) > tuple(-each % p for each in reversed(y))


def encode_zcash(curve: Curve, point: Any, compressed: bool) -> bytes:
    width = curve.key.degree * (1 if compressed else 2)
    if point is None:
        return bytes([0xC0 if compressed else 0x40, *[0] * (width - 1)])
    first, *rest = list_downward(point, compressed)
    larger = 0x20 * is_larger(curve, point[1])
    return bytes([first | 0x80 | larger if compressed else first, *rest])


def encode_eip196(curve: Curve, point: Any, compressed: bool) -> bytes:
    if point is None:
        width = curve.key.degree
        return bytes([0x40, *[0] * (width - 1)]) if compressed else bytes(2 * width)
    first, *rest = list_downward(point, compressed)
    root = 0xC0 if is_larger(curve, point[1]) else 0x80
    return bytes([first | root if compressed else first, *rest])


def encode_arkworks(curve: Curve, point: Any, compressed: bool) -> bytes:
    if point is None:
        return bytes([*[0] * (curve.key.degree * (1 if compressed else 2) - 1), 0x40])
    *rest, last = point[0] if compressed else (*point[0], *point[1])
    return bytes([*rest, last | 0x80 * is_larger(curve, point[1])])


def encode_pasta(_: Curve, point: Any, compressed: bool) -> bytes:
    if point is None:
        return bytes(1 if compressed else 2)
    (x,), (y,) = point
    return bytes([x | (y & 1) << 7]) if compressed else bytes([x, y])


def encode_sec1(_: Curve, point: Any, compressed: bool) -> bytes:
    if point is None:
        return bytes(2 if compressed else 3)
    (x,), (y,) = point
    return bytes([2 + (y & 1), x]) if compressed else bytes([4, x, y])


def list_downward(point: Any, compressed: bool) -> list[int]:
    """The coefficients of x, or of x and y, of each the highest first."""
    coordinates = point[:1] if compressed else point
    return [each for coordinate in coordinates for each in reversed(coordinate)]


def list_all_points(curve: Curve) -> list[Any]:
    """All points of a small curve, coordinates as tuples; infinity is None."""
    if curve.key.degree == 1:
        return [point and ((point[0],), (point[1],)) for point in list_points(curve)]
    p, n = curve.key.prime.modulus, curve.key.nonresidue
    elements = list(itertools.product(range(p), repeat=2))

    def multiply(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, int]:
        return (x[0] * y[0] + n * x[1] * y[1]) % p, (x[0] * y[1] + x[1] * y[0]) % p

    def compute_right_side(x: tuple[int, ...]) -> tuple[int, ...]:
        terms = multiply(multiply(x, x), x), multiply(curve.key.a, x), curve.key.b
        return tuple(sum(each) % p for each in zip(*terms, strict=True))

    pairs = itertools.product(elements, repeat=2)
    return [None, *((x, y) for x, y in pairs if multiply(y, y) == compute_right_side(x))]


def give_format(curve: Curve, encoding: type[PointEncoding]) -> Curve:
    return Curve(
        curve.field,
        curve.key.a,
        curve.key.b,
        order=curve.order,
        generator=curve.generator.tolist(),
        name=f"{curve.name} {encoding.__name__}",
        encoding=encoding,
    )


small_formats = pytest.mark.parametrize(
    ("curve", "encode"),
    [
        (give_format(SMALL[0], ZcashEncoding), encode_zcash),
        (give_format(SMALL[1], Eip196Encoding), encode_eip196),
        (give_format(SMALL[1], ArkworksEncoding), encode_arkworks),
        (give_format(SMALL[1], PastaEncoding), encode_pasta),
        (give_format(SMALL[0], Sec1Encoding), encode_sec1),
        (give_format(SMALL_QUADRATIC, ZcashEncoding), encode_zcash),
        (give_format(SMALL_QUADRATIC, Eip196Encoding), encode_eip196),
        (give_format(SMALL_QUADRATIC, ArkworksEncoding), encode_arkworks),
    ],
    ids=lambda value: value.name if isinstance(value, Curve) else value.__name__,
)
Encode = Callable[[Curve, Any, bool], bytes]


@small_formats
@both_kinds
@both_places
def test_every_point_of_a_small_curve(
    gpu: gx.PersistentVulkanBackend, curve: Curve, encode: Encode, compressed: bool, on_device: bool
) -> None:
    """Points with y = 0 are among them, and over the extension y with c1 = 0 and with c0 = 0."""
    points = list_all_points(curve)
    rows = [encode(curve, point, compressed) for point in points]
    found = curve.from_bytes(rows, check=False, device=gpu if on_device else None)
    assert found.on_device == on_device
    own = [point and tuple(each[0] for each in point) for point in points]
    assert found.tolist() == (own if curve.key.degree == 1 else points)
    assert [row.tobytes() for row in found.to_bytes(compressed=compressed)] == rows


@small_formats
def test_no_other_bytes_are_points(curve: Curve, encode: Encode) -> None:
    """All values of a byte with flags; behind those of a point, another byte up to the modulus."""
    good = {encode(curve, point, True) for point in list_all_points(curve)}
    assert curve.encoding is not None
    width, p = curve.encoding.compressed_bytes, curve.field.modulus
    top = 0 if curve.encoding.byteorder == "big" else -1
    tops = {row[top] for row in good}
    for first in range(256):
        others = [*range(p + 2), 255] if first in tops else [0, p - 1]
        for rest in itertools.product(others, repeat=width - 1):
            check_bytes(curve, good, (first, *rest))


def check_bytes(curve: Curve, good: set[bytes], values: tuple[int, ...]) -> None:
    assert curve.encoding is not None
    row = bytes(values if curve.encoding.byteorder == "big" else reversed(values))
    try:
        curve.from_bytes([row], check=False)
        accepted = True
    except PointError:
        accepted = False
    assert accepted == (row in good), row.hex()


def test_a_curve_with_x_0_has_no_format_of_pasta() -> None:
    with pytest.raises(CurveError, match="a point of the curve has x = 0"):
        give_format(SMALL[4], PastaEncoding)


# --- named curves ---

ROOTS = [
    *(("BLS12_381_G1", True), ("SECP256K1", True), ("BLS12_381_G2", True)),
    *(("BLS12_381_G1", False), ("SECP256K1", False), ("BLS12_381_G2", False)),
    *(pytest.param(f"BLS12_377_G{each}", True, marks=pytest.mark.slow) for each in (1, 2)),
]
"""Every way to a square root: p = 3 modulo 4 or not, over prime fields and their extensions. Small
curves show every format and every root too."""


@pytest.mark.parametrize(("name", "compressed"), ROOTS)
def test_points_come_back_on_a_device(
    gpu: gx.PersistentVulkanBackend, name: str, compressed: bool
) -> None:
    curve = get_curve(name)
    points = curve.concatenate([draw_points(curve, 6, seed=1), curve.infinity(2)])
    points = curve.concatenate([points, -points, find_outside_points(curve, 4)]).reshape(4, 5)
    data = points.to_bytes(compressed=compressed)
    found = curve.from_bytes(data, check=False, device=gpu)
    assert found.on_device
    assert found.shape == (4, 5)
    assert found.tolist() == points.tolist()
    assert np.array_equal(found.to_bytes(compressed=compressed), data)


@pytest.mark.parametrize("name", ["BN254_G1", "PALLAS"])
def test_a_device_writes_the_other_formats(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    """Those of the named curves over prime fields that the test above has not."""
    curve = get_curve(name)
    points = curve.concatenate([draw_points(curve, 3, seed=1), curve.infinity(1)])
    points = curve.concatenate([points, -points])
    assert np.array_equal(gpu.to_device(points).to_bytes(), points.to_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BLS12_381_G1", "BLS12_381_G2", "SECP256K1"])
def test_points_outside_the_group_are_found_on_a_device(
    gpu: gx.PersistentVulkanBackend, name: str
) -> None:
    curve = get_curve(name)
    inside, outside = draw_points(curve, 3, seed=2), find_outside_points(curve, 3)
    assert (curve.from_bytes(inside.to_bytes(), device=gpu).to_host() == inside).all()
    data = curve.concatenate([inside, outside]).to_bytes()
    if curve.cofactor == 1:
        assert curve.from_bytes(data, device=gpu).is_on_curve().all()
        return
    with pytest.raises(PointError, match="not in the group of prime order") as caught:
        curve.from_bytes(data, device=gpu)
    assert caught.value.index == 3


P256 = Curve(
    gx.Field(2**256 - 2**224 + 2**192 + 2**96 - 1),
    -3,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    generator=(
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    name="P-256",
    encoding=Sec1Encoding,
)
"""A curve whose a is not 0."""
SUPERSINGULAR = Curve(
    gx.Field(1152921504606853307),
    0,
    4,
    order=96076792050571109,
    generator=(599250850336238826, 943187286102686263),
    name="supersingular",
    encoding=ZcashEncoding,
)
"""A curve with p + 1 points, of which one has y = 0, over a field of two words."""
WITH_Y_0 = 707084123728461135
DECODED = ["BLS12_381_G1", "SECP256K1", "BLS12_377_G1"]
"""p = 3 modulo 4 with and without spare bits, and p = 1 modulo 4."""


@pytest.mark.parametrize(
    "curve",
    [
        *(get_curve(name) for name in DECODED[:2]),
        pytest.param(get_curve(DECODED[2]), marks=pytest.mark.slow),
        pytest.param(P256, marks=pytest.mark.slow),
        SUPERSINGULAR,
    ],
    ids=lambda curve: curve.name,
)
def test_a_device_decodes_and_refuses_what_the_host_does(
    gpu: gx.PersistentVulkanBackend, curve: Curve
) -> None:
    points = curve.concatenate([draw_points(curve, 7, seed=3), curve.infinity(1)])
    points = curve.concatenate([points, -points])
    data = points.to_bytes()
    read = curve.from_bytes(data, check=False, device=gpu)
    assert read.tolist() == points.tolist()
    assert np.array_equal(read.to_bytes(), data)
    assert np.array_equal(read[::-3].to_bytes(), data[::-3])
    draw = np.random.default_rng(27)
    tops = data[:, [0, -1]].reshape(-1)
    refused = set()
    for _ in range(4):
        rows = data[:8].copy()
        at = int(draw.integers(8))
        rows[at:] = draw.integers(0, 256, rows[at:].shape)
        rows[at, int(draw.integers(2)) - 1] = draw.choice(tops)
        rows[at:, 0] = np.where(draw.random(8 - at) < 0.8, draw.choice(tops, 8 - at), 0xFF)
        outcomes: list[tuple[Any, Any]] = []
        for device in (None, gpu):
            try:
                found = curve.from_bytes(rows, check=False, device=device).tolist()
                outcomes.append((None, found))
            except PointError as error:
                outcomes.append((error.index, str(error)))
        assert outcomes[0] == outcomes[1]
        refused.add(outcomes[0][1] if outcomes[0][0] is not None else "")
    assert any("no point of the curve with this x" in str(each) for each in refused)


def test_the_flag_of_the_larger_root_is_refused_for_y_0_on_a_device(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    good = (0x80 << 56 | WITH_Y_0).to_bytes(8, "big")
    bad = (0xA0 << 56 | WITH_Y_0).to_bytes(8, "big")
    found = SUPERSINGULAR.from_bytes([good] * 2, check=False, device=gpu)
    assert found.tolist() == [(WITH_Y_0, 0)] * 2
    with pytest.raises(PointError, match="y is 0") as caught:
        SUPERSINGULAR.from_bytes([good, bad, bad], check=False, device=gpu)
    assert caught.value.index == 1
    with pytest.raises(PointError, match="not in the group") as caught:
        SUPERSINGULAR.from_bytes([SUPERSINGULAR.generator.to_bytes().tobytes(), good], device=gpu)
    assert caught.value.index == 1


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["one", "rows"])
def test_a_device_finds_the_points_of_the_group_in_any_shape(
    gpu: gx.PersistentVulkanBackend, shape: tuple[int, ...]
) -> None:
    inside, outside = draw_points(G1, 6, seed=5), find_outside_points(G1, 6)
    for points, expected in ((inside, True), (outside, False), (G1.infinity(6), True)):
        given = points.reshape(shape) if shape else points[0]
        found = gpu.to_device(given).in_subgroup()
        assert found.shape == shape
        assert (found == expected).all()
    mixed = gpu.to_device(G1.stack([inside, outside], axis=1))
    assert mixed.in_subgroup().tolist() == [[True, False]] * 6
    assert mixed[:, 0].in_subgroup().all()
    assert not mixed[::-2, 1].in_subgroup().any()


@pytest.mark.slow
def test_bytes_of_arkworks_on_a_device(gpu: gx.PersistentVulkanBackend) -> None:
    scalars = [0, 1, 2, 3, G1.order - 1, G1.order // 5]
    theirs = [G1Point() * Scalar.from_le_bytes(k.to_bytes(32, "little")) for k in scalars]
    rows = [bytes(each.to_compressed_bytes()) for each in theirs]
    points = G1.from_bytes(rows, device=gpu)
    assert points.tolist() == (G1.generator * scalars).tolist()
    sums = points + points
    assert sums.form == "xyzz"
    doubled = [bytes((each + each).to_compressed_bytes()) for each in theirs]
    assert [row.tobytes() for row in sums.to_bytes()] == doubled


def test_bytes_of_g2_of_py_ecc_and_arkworks_on_a_device(gpu: gx.PersistentVulkanBackend) -> None:
    curve, rows, expected = gx.curves.BLS12_381_G2, [], []
    for scalar in (1, 2, 3, 7, curve.order - 1):
        point = PY_ECC.multiply(PY_ECC.G2, scalar)
        z1, z2 = point_compression.compress_G2(point)
        rows.append(z1.to_bytes(48, "big") + z2.to_bytes(48, "big"))
        expected.append(tuple(tuple(map(int, each.coeffs)) for each in PY_ECC.normalize(point)))
    assert all(
        bytes(G2Point.from_compressed_bytes(row).to_compressed_bytes()) == row for row in rows
    )
    points = curve.from_bytes(rows, device=gpu)
    assert points.tolist() == expected
    assert [row.tobytes() for row in points.to_bytes()] == rows


# --- shapes and places ---


@both_kinds
def test_shapes_and_views_on_a_device(gpu: gx.PersistentVulkanBackend, compressed: bool) -> None:
    points = G1.generator * [1, 2, 3, 4, 5, 6]
    data = points.to_bytes(compressed=compressed)
    data.flags.writeable = False
    one = G1.from_bytes(data[2], device=gpu)
    assert one.shape == ()
    assert np.array_equal(one.to_bytes(compressed=compressed), data[2])
    every_second = G1.from_bytes(data[::-2], device=gpu)
    assert every_second.tolist() == points[::-2].tolist()
    found = G1.from_bytes(data.reshape(2, 3, -1), device=gpu)
    assert np.array_equal(found.T.to_bytes(compressed=compressed)[2, 1], data[5])
    assert np.array_equal(found[:, ::-1].to_bytes(compressed=compressed)[0, 0], data[2])
    repeated = found[0, 0].broadcast_to((3,))
    assert np.array_equal(repeated.to_bytes(compressed=compressed), data[[0, 0, 0]])


@both_kinds
def test_no_points_on_a_device(gpu: gx.PersistentVulkanBackend, compressed: bool) -> None:
    width = 48 if compressed else 96
    found = G1.from_bytes(np.zeros((2, 0, width), np.uint8), device=gpu)
    assert found.on_device
    assert found.shape == (2, 0)
    assert found.to_bytes(compressed=compressed).shape == (2, 0, width)


@both_kinds
def test_infinity_alone_on_a_device(gpu: gx.PersistentVulkanBackend, compressed: bool) -> None:
    data = G1.infinity(3).to_bytes(compressed=compressed)
    found = G1.from_bytes(data, device=gpu)
    assert found.is_infinity().all()
    assert np.array_equal(found.to_bytes(compressed=compressed), data)


def test_the_cpu_backend_reads_and_writes_bytes() -> None:
    points = G1.concatenate([G1.generator * [1, 2, 3], G1.infinity(1)])
    data = points.to_bytes()
    with gx.CpuBackend() as cpu:
        found = G1.from_bytes(data, device=cpu)
        assert found.on_device
        assert found.tolist() == points.tolist()
        assert np.array_equal(found.to_bytes(), data)
        with pytest.raises(PointError, match="point 2: its first bit"):
            G1.from_bytes([data[0].tobytes(), data[1].tobytes(), bytes(48)], device=cpu)


def test_an_executor_reads_bytes(vulkan_executor: gx.GpuExecutor) -> None:
    curve = give_format(SMALL[0], ZcashEncoding)
    data = (curve.generator * [1, 2, 3]).to_bytes()
    found = curve.from_bytes(data, device=vulkan_executor)
    assert found.on_device
    assert np.array_equal(found.to_bytes(), data)


def test_bytes_of_points_larger_than_a_binding(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding has 19 points in XYZZ form."""
    limit_bindings(monkeypatch, gpu, 19 * 4 * 48, alignment=16)
    points = G1.concatenate([draw_points(G1, 7, seed=1), G1.infinity(1)])[list(range(8)) * 11]
    encoded = points.to_bytes()
    there = G1.from_bytes(encoded, device=gpu)
    assert there.tolist() == points.tolist()
    assert there.known_in_subgroup
    np.testing.assert_array_equal(there.to_bytes(), encoded)
    np.testing.assert_array_equal((there + there).to_bytes(), points.double().to_bytes())
    encoded[80, 1:] ^= 1
    with pytest.raises(PointError, match="point 80: "):
        G1.from_bytes(encoded, device=gpu)
