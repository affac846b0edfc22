"""`PointArray`: shapes, operators, coordinates, conversions, places, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    PointError,
)
from gpu_executor.fields import BLS12_381_FR, FieldArray
from tests.support.curves_under_test import (
    SMALL,
    add_ints,
    draw_points,
    encode_points,
    get_curve,
    list_points,
)

G1 = gx.curves.BLS12_381_G1
BN = gx.curves.BN254_G1
CURVE = SMALL[4]
POINTS = list_points(CURVE)[:12]
CPU = gx.CpuBackend()


def make_points(*shape: int) -> PointArray:
    """Points of a small curve, the first one infinity."""
    return encode_points(CURVE, POINTS[: int(np.prod(shape))]).reshape(shape)


# --- shape ---


def test_shapes_count_points() -> None:
    points = make_points(3, 4)
    assert (points.shape, points.ndim, points.size, len(points)) == ((3, 4), 2, 12, 3)
    assert points.form == "affine"
    assert points.nbytes == 12 * 2 * 4
    assert CURVE.generator.shape == ()


def test_the_words_are_in_montgomery_form() -> None:
    words = G1.generator.words()
    assert words.shape == (2, 6)
    x = int.from_bytes(words[0].tobytes(), "little")
    generator = G1.generator.tolist()
    assert x == generator[0] * 2**384 % G1.field.modulus
    assert not G1.infinity().numpy().any()
    assert not words.flags.writeable


def test_indexing_is_numpys() -> None:
    points, flat = make_points(3, 4), np.empty(12, np.object_)
    flat[:] = POINTS
    expected = flat.reshape(3, 4)
    items: list[Any] = [0, slice(1, None), (..., -1), (None, 2), ([2, 0],), (slice(None), [1, 1])]
    for item in items:
        assert points[item].tolist() == expected[item].tolist()
    assert points[1, 2].tolist() == expected[1, 2]
    assert points[points.is_infinity()].tolist() == [None]
    assert points[np.array([True, False, True])].tolist() == expected[[0, 2]].tolist()
    with pytest.raises(IndexError):
        _ = points[5]


def test_iteration_and_reshaping() -> None:
    points = make_points(3, 4)
    assert [row.shape for row in points] == [(4,)] * 3
    assert points.reshape(-1, 6).shape == points.reshape((2, 6)).shape == (2, 6)
    assert points.ravel().tolist() == POINTS
    assert points.transpose().tolist() == [list(row) for row in zip(*points.tolist(), strict=True)]
    assert points.transpose(1, 0).shape == (4, 3)
    with pytest.raises(ArgumentShapeError, match="cannot be reshaped to"):
        points.reshape(5, -1)
    with pytest.raises(ArgumentTypeError, match="a shape consists of integers"):
        points.reshape(1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="does not name axes"):
        points.transpose(0, 0)
    for wrong in (len, iter):
        with pytest.raises(TypeError, match="an array without axes"):
            wrong(CURVE.generator)


def test_joining() -> None:
    first, second = make_points(2, 3), make_points(3, 3)
    joined = CURVE.concatenate([first, second])
    assert joined.tolist() == first.tolist() + second.tolist()
    assert np.concatenate([first, second]).tolist() == joined.tolist()
    stacked = CURVE.stack([first, first], axis=1)
    assert stacked.shape == (2, 2, 3)
    assert (np.stack([first, first], axis=1) == stacked).all()
    with pytest.raises(ArgumentShapeError, match="there are no points to join"):
        CURVE.concatenate([])
    with pytest.raises(ArgumentShapeError, match="cannot be joined"):
        CURVE.concatenate([first, second], axis=1)


def test_numpys_functions() -> None:
    points = make_points(3, 4)
    assert np.shape(points) == (3, 4)
    assert np.sum(points, axis=0).shape == (4,)
    assert np.array_equal(np.reshape(points, (4, 3)), points.reshape(4, 3))
    assert np.array_equal(np.copy(points), points)
    with pytest.raises(TypeError):
        np.sort(points)
    with pytest.raises(TypeError):
        _ = np.add(points, points)
    with pytest.raises(ArgumentTypeError, match="becomes an array of words of uint32"):
        np.asarray(points, np.float64)


# --- operators ---


def test_operands_are_broadcast() -> None:
    column, row = make_points(12).reshape(12, 1)[:4], make_points(12)[:3]
    expected = [[add_ints(CURVE, x, y) for y in POINTS[:3]] for x in POINTS[:4]]
    assert (column + row).tolist() == expected
    assert (column == row).shape == (4, 3)
    assert (row + CURVE.generator).shape == (3,)
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast together"):
        _ = make_points(3) + make_points(4)


def test_comparison_is_point_by_point() -> None:
    points = make_points(12)
    assert (points == points[0]).tolist() == [True] + [False] * 11
    assert (points != points[0]).tolist() == [False] + [True] * 11
    assert not (points == 5).any()
    assert (points != "point").all()
    assert (CURVE.neg(-points) == points).all()
    with pytest.raises(TypeError, match="unhashable"):
        hash(points)


def test_points_have_no_truth_value() -> None:
    with pytest.raises(ArgumentTypeError, match="points have no truth value"):
        bool(CURVE.generator)


def test_points_of_other_curves_are_refused() -> None:
    for operation in (
        lambda: CURVE.generator + G1.generator,
        lambda: CURVE.generator == BN.generator,
    ):
        with pytest.raises(ArgumentTypeError, match="were given to an operation of small 101"):
            operation()
    for operand in (0, 5, None, [1, 2], "point", np.ones(3)):
        with pytest.raises(
            (ArgumentTypeError, TypeError), match=r"expected a PointArray|unsupported"
        ):
            _ = CURVE.generator + operand
        with pytest.raises(
            (ArgumentTypeError, TypeError), match=r"expected a PointArray|unsupported"
        ):
            _ = operand - CURVE.generator


def test_sums_over_axes() -> None:
    points = make_points(3, 4)
    columns: list[Any] = [None] * 4
    for row in points.tolist():
        columns = [add_ints(CURVE, *pair) for pair in zip(columns, row, strict=True)]
    assert points.sum(axis=0).tolist() == columns
    assert CURVE.sum(points, axis=-1, keepdims=True).shape == (3, 1)
    total = None
    for point in POINTS:
        total = add_ints(CURVE, total, point)
    assert points.sum().tolist() == total == points.sum(axis=(1, 0)).tolist()
    assert CURVE.generator.sum().tolist() == CURVE.generator.tolist()
    assert make_points(3, 4)[:0].sum(axis=0).tolist() == [None] * 4
    assert CURVE.infinity(0).sum().is_infinity()
    with pytest.raises(ArgumentShapeError, match="axis 2"):
        points.sum(axis=2)


# --- coordinates ---


def test_coordinates_are_arrays_of_the_field() -> None:
    points = make_points(3, 4)
    x, y = points.x, points.y
    assert isinstance(x, FieldArray)
    assert x.shape == y.shape == (3, 4)
    pairs = [point or (0, 0) for point in POINTS]
    assert x.ravel().tolist() == [pair[0] for pair in pairs]
    assert y.ravel().tolist() == [pair[1] for pair in pairs]
    assert (y * y - x * x * x - 2 * x - 1)[1:].tolist() == [[0] * 4] * 2
    assert (CURVE.from_affine(x, y, check=False) == points).all()
    single = CURVE.generator
    assert isinstance(single.x.data, np.ndarray)
    assert (int(single.x), int(-single.y)) == (69, 101 - 87)
    assert CURVE.from_affine(single.x, single.y) == single


def test_points_from_coordinates_are_checked() -> None:
    x, y = CURVE.generator.tolist()
    assert CURVE.from_affine(x, y).tolist() == (x, y)
    assert CURVE.from_affine([x, 0], [y, 0]).tolist() == [(x, y), None]
    assert CURVE.from_affine(x, [y, 101 - y]).shape == (2,)
    with pytest.raises(PointError, match="small 101 2 1: point 1: x and y are not on the curve"):
        CURVE.from_affine([x, x], [y, y + 1])
    outside = next(
        p for p in list_points(CURVE) if p and not encode_points(CURVE, [p]).in_subgroup()
    )
    with pytest.raises(PointError, match="point 2: it is on the curve and not in the group"):
        CURVE.from_affine([x, 0, outside[0]], [y, 0, outside[1]])
    with pytest.raises(PointError, match="point 1"):
        CURVE.from_affine([[x, 0]], [[y, 5]])
    with pytest.raises(PointError, match="point 1: y is not below the modulus"):
        CURVE.from_affine(x, [y, y + 101])
    with pytest.raises(ArgumentTypeError, match="x is an array of bls12_381_fr, and the curve is"):
        CURVE.from_affine(BLS12_381_FR.encode([1]), [1])
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast together"):
        CURVE.from_affine([x, x], [y, y, y])


@pytest.mark.parametrize(
    ("curve", "place"),
    [(CURVE, "host"), (CURVE, "cpu"), (CURVE, "gpu"), (G1, "cpu"), (gx.curves.BLS12_381_G2, "cpu")],
    ids=str,
)
def test_numpy_has_the_canonical_words_of_x_and_y(curve: Any, place: str, request: Any) -> None:
    points = curve.concatenate([curve.generator * [1, 2, 3], curve.infinity(1)])
    if place != "host":
        backend = CPU if place == "cpu" else request.getfixturevalue("gpu")
        points = backend.to_device(points).double()
    found = points.numpy()
    expected = [list(each or (curve.field.zeros(()).item(),) * 2) for each in points.tolist()]
    assert curve.field.from_words(found, "canonical").tolist() == expected
    assert np.array_equal(np.asarray(points), found)
    for words, form in ((found, "canonical"), (points.affine().words(), "montgomery")):
        assert curve.from_words(words, form).tolist() == points.tolist()
    with pytest.raises(ArgumentTypeError, match="from_words takes the form of the words"):
        curve.from_words(found)


def test_points_from_words_are_checked() -> None:
    points = make_points(3, 4)
    words = np.array(points.words())
    again = CURVE.from_words(words, "montgomery", check=False)
    assert (again == points).all()
    words[0, 1] = 0
    assert (again == points).all()  # a copy
    bad = np.array(points.words())
    bad[1, 1, 1] += 1
    with pytest.raises(PointError, match="point 5: "):
        CURVE.from_words(bad, "montgomery", check=False)
    bad[0, 2, 0] = 101
    with pytest.raises(PointError, match="point 2: a coordinate is not below the modulus"):
        CURVE.from_words(bad, "montgomery")
    with pytest.raises(PointError, match="not in the group"):
        CURVE.from_words(points.numpy(), "canonical")
    with pytest.raises(ArgumentTypeError, match="a NumPy array of uint32, not int64"):
        CURVE.from_words(np.zeros((3, 2), np.int64), "canonical")
    with pytest.raises(ArgumentTypeError, match="a NumPy array of uint64, not list"):
        G1.from_words([], "canonical")  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="the last axes of words"):
        G1.from_words(np.zeros((5, 3, 6), np.uint64), "canonical")


# --- XYZZ form, which results on devices have ---


def make_xyzz(curve: Curve, points: PointArray, factor: int) -> PointArray:
    """The same points with ZZ = factor^2 and ZZZ = factor^3; infinity with ZZ = ZZZ = 0."""
    field, finite = curve.field, (~points.is_infinity()).astype(int).tolist()
    zz = field.encode([each * factor**2 % field.modulus for each in finite])
    zzz = field.encode([each * factor**3 % field.modulus for each in finite])
    parts = [points.x * zz, points.y * zzz, zz, zzz]
    data = [part.in_form(field.form).data for part in parts]
    return PointArray(curve, np.stack(data, axis=1))


@pytest.mark.parametrize("curve", [CURVE, G1, gx.curves.SECP256K1], ids=lambda curve: curve.name)
def test_points_in_xyzz_form_are_the_same_points(curve: Curve) -> None:
    points = curve.concatenate([draw_points(curve, 5, seed=9), curve.infinity(2)])
    other = make_xyzz(curve, points, 7)
    assert other.form == "xyzz"
    assert other.shape == points.shape
    assert other.affine().form == "affine"
    assert (other.affine().numpy() == points.numpy()).all()
    assert points.affine() is points
    assert (other == points).all()
    assert (other == make_xyzz(curve, points, 11)).all()
    assert (other + points == points.double()).all()
    assert (other - points).is_infinity().all()
    assert (other * 3 == points * 3).all()
    assert other.sum() == points.sum()
    assert other.tolist() == points.tolist()
    assert other.x.tolist() == points.x.tolist()
    assert other.is_infinity().tolist() == points.is_infinity().tolist()
    assert other.is_on_curve().all()
    assert curve.concatenate([other, points]).tolist() == 2 * points.tolist()
    assert curve.msm(other, range(7)) == curve.msm(points, range(7))


# --- copies and places ---


def test_pickled_points_come_back() -> None:
    points = draw_points(G1, 3, seed=2)
    again = pickle.loads(pickle.dumps(points))
    assert (again == points).all()
    assert again.curve == G1
    assert again.to_bytes().tobytes() == points.to_bytes().tobytes()
    for copied in (copy.copy(points), copy.deepcopy(points), +points, points.copy()):
        assert (copied == points).all()
        assert not np.shares_memory(copied.data, points.data)


@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_points_are_copied_to_a_device_and_back(place: str, request: Any) -> None:
    backend = CPU if place == "cpu" else request.getfixturevalue("gpu")
    points = G1.concatenate([draw_points(G1, 5, seed=3), G1.infinity(1)])
    there = backend.to_device(points)
    assert isinstance(there, PointArray)
    assert there.on_device
    assert not points.on_device
    assert there.shape == (6,)
    assert (there.to_host() == points).all()
    assert (there.words() == points.words()).all()
    assert (there[2:4].to_host() == points[2:4]).all()
    assert (there.reshape(2, 3).to_host() == points.reshape(2, 3)).all()
    assert (there[[5, 0]].to_host() == points[[5, 0]]).all()
    assert (G1.concatenate([there, there[:1]]).to_host()[6] == points[0]).all()
    assert backend.to_device(there) is there
    assert there.x.tolist() == points.x.tolist()
    assert there.to_bytes().tobytes() == points.to_bytes().tobytes()
    assert (pickle.loads(pickle.dumps(there)) == points).all()
    assert "on the device, affine: [(" in repr(there)
    with pytest.raises(ArgumentTypeError, match="different places"):
        _ = there + points
    with pytest.raises(ArgumentTypeError, match="the array is on the host"):
        _ = points.device


def test_operations_on_device_arrays_of_the_cpu_backend() -> None:
    points = draw_points(G1, 6, seed=4)
    there = CPU.to_device(points)
    scalars = G1.scalar_field.random(6, seed=5)
    assert (there + there[::-1]).to_host().tolist() == (points + points[::-1]).tolist()
    assert (there * CPU.to_device(scalars)).to_host().tolist() == (points * scalars).tolist()
    found = G1.msm(there, scalars)
    assert found.on_device
    assert found.to_host().tolist() == G1.msm(points, scalars).tolist()
    assert there.sum().to_host().tolist() == points.sum().tolist()
    assert (there == there.copy()).all()
    assert there.in_subgroup().all()
    made = G1.from_affine(there.x, there.y)
    assert made.on_device
    assert made.tolist() == points.tolist()
    with pytest.raises(ArgumentTypeError, match="different places"):
        _ = points * CPU.to_device(scalars)


def test_points_are_no_arguments_of_kernels() -> None:
    kernel = gx.kernels.load("vector_add_u32")
    points = make_points(4)
    with pytest.raises(ArgumentTypeError, match="vector_add_u32 takes no points"):
        CPU.run(kernel, points, points)


def test_a_graph_takes_points_as_inputs() -> None:
    points, others = draw_points(CURVE, 4, seed=6), draw_points(CURVE, 4, seed=7)
    there = CPU.to_device(points)
    with CPU.graph(there) as graph:
        result = there + there
    graph(there)
    assert result.to_host().tolist() == (points + points).tolist()
    graph(CPU.to_device(others))
    assert result.to_host().tolist() == (others + others).tolist()
    with pytest.raises(ArgumentTypeError, match="points of bn254_g1"):
        graph(CPU.to_device(draw_points(BN, 4, seed=1)))


# --- repr ---


def test_repr_shows_the_first_and_the_last_points() -> None:
    assert repr(G1.generator) == (
        "<PointArray () of bls12_381_g1 on the host, affine: (0x17f1d3..., 0x8b3f48...)>"
    )
    points = CURVE.concatenate([CURVE.generator.reshape(1), CURVE.infinity(1)])
    assert repr(points) == (
        "<PointArray (2,) of small 101 2 1 on the host, affine: [(0x45, 0x57), infinity]>"
    )
    assert repr(make_points(3, 4)).endswith(f"affine: [infinity, ..., {_show(POINTS[11])}]>")
    assert repr(CURVE.infinity(0)).endswith("affine: []>")


def _show(point: Any) -> str:
    return f"({point[0]:#x}, {point[1]:#x})"


def test_curves_by_name_have_their_points() -> None:
    assert get_curve("PALLAS").generator.tolist() == (gx.curves.PALLAS.field.modulus - 1, 2)


def test_a_row_of_integers_as_long_as_the_words_of_a_scalar() -> None:
    points, row = G1.generator * [2, 3, 5, 7], np.array([1, 2, 3, 4], np.uint64)
    assert (points * row == G1.generator * [2, 6, 15, 28]).all()
    assert (points * row.reshape(1, 4)).shape == (1, 4)
    with pytest.raises(ArgumentShapeError, match=r"scalar_field.from_words\(words, 'canonical'\)"):
        points[:3] * row
    many = G1.generator * list(range(1, 33))
    assert (many * np.ones(32, np.uint8) == many).all()
