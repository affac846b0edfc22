"""`msm` and multiples on the host: forms of scalars, batches, algebra, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.curves import PointArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.fields import BLS12_381_FQ
from tests.support.curves_under_test import NAMED_CURVES, draw_points, get_curve

G1 = gx.curves.BLS12_381_G1
ORDER = G1.order
POINTS = draw_points(G1, 40, seed=11)
LOGS = [each * 7919 + 3 for each in range(40)]
KNOWN = G1.generator * LOGS
"""Points whose discrete logarithms are known."""


def combine_logs(scalars: list[int], logs: list[int]) -> PointArray:
    """The point that an MSM of points with known logarithms gives."""
    return G1.generator * (sum(k * log for k, log in zip(scalars, logs, strict=True)) % ORDER)


@pytest.mark.parametrize("name", NAMED_CURVES)
@pytest.mark.parametrize("count", [1, 5, 40])
def test_msm_of_known_logarithms(name: str, count: int) -> None:
    curve = get_curve(name)
    draw = np.random.default_rng(count)
    logs = [int.from_bytes(draw.bytes(4), "big") for _ in range(count)]
    scalars = [int.from_bytes(draw.bytes(32), "big") for _ in range(count)]
    total = sum(k * log for k, log in zip(scalars, logs, strict=True)) % curve.order
    found = curve.msm(curve.generator * logs, scalars)
    assert found.shape == ()
    assert found.tolist() == (curve.generator * total).tolist()


@pytest.mark.parametrize(
    "scalars",
    [
        [0] * 40,
        [1] * 40,
        [ORDER - 1] * 40,
        [ORDER // 2] * 40,
        [5] + [0] * 39,
        [2**255 - 1 - ORDER] * 39 + [1],
        [k % 2 for k in range(40)],
    ],
    ids=["zeros", "ones", "minus ones", "halves", "one hot", "equal", "bits"],
)
@pytest.mark.parametrize(
    "logs",
    [LOGS, [1] * 40, [1, -1] * 20, [0] * 40, [0, 1] * 20],
    ids=["different", "equal", "opposite", "infinities", "half infinities"],
)
def test_msm_of_adversarial_sets(scalars: list[int], logs: list[int]) -> None:
    points = G1.generator * logs
    assert G1.msm(points, scalars) == combine_logs(scalars, logs)


def as_forms(scalars: list[int]) -> dict[str, Any]:
    field = G1.scalar_field
    return {
        "integers": scalars,
        "tuple": tuple(scalars),
        "objects": np.array(scalars, np.object_),
        "elements": field.encode(scalars),
        "montgomery": field.encode(scalars).in_form("montgomery"),
        "words": field.from_words(field.encode(scalars).numpy(), "canonical"),
        "bytes": field.from_bytes(field.encode(scalars).to_bytes()),
    }


@pytest.mark.parametrize("form", list(as_forms([1])))
def test_forms_of_scalars(form: str) -> None:
    scalars = [pow(3, 50 * at, ORDER) for at in range(40)]
    expected = combine_logs(scalars, LOGS)
    assert G1.msm(KNOWN, as_forms(scalars)[form]) == expected
    assert (KNOWN * as_forms(scalars)[form]).sum() == expected


def test_bytes_have_no_order_in_calls_on_points() -> None:
    order: Any = "little"
    calls: list[Callable[[], Any]] = [
        lambda: G1.msm(KNOWN, LOGS, byteorder=order),
        lambda: G1.mul(KNOWN, LOGS, byteorder=order),
        lambda: G1.explain_msm(KNOWN, LOGS, byteorder=order),
    ]
    for call in calls:
        with pytest.raises(ArgumentTypeError, match=r"from_bytes\(data, byteorder='little'\)"):
            call()


KINDS = ["i1", "u1", "u4", "u8", ">u8", "O"]


@pytest.mark.parametrize("kind", KINDS)
def test_integers_of_every_dtype_are_integers(kind: str) -> None:
    """Also where they are as many as the words or the bytes of a scalar."""
    for shape in ((4,), (32,), (4, 4)):
        count = shape[-1]
        values = (np.arange(np.prod(shape)).reshape(shape) % 100 + 3).astype(kind)
        rows = values.reshape(-1, count).tolist()
        sums = [combine_logs(list(map(int, row)), LOGS[:count]) for row in rows]
        found = G1.msm(KNOWN[:count], values)
        assert found.shape == shape[:-1]
        assert found.reshape(-1).tolist() == [each.tolist() for each in sums]
        multiples = G1.generator * values
        assert multiples.shape == shape
        assert multiples.reshape(-1).tolist() == (G1.generator * list(chain(*rows))).tolist()


def test_words_and_bytes_in_the_place_of_scalars_are_refused_with_what_to_call() -> None:
    """Three points, so that no reading of the shapes as integers is possible."""
    field, points = G1.scalar_field, G1.generator * [1, 2, 3]
    x = field.encode([5, 6, 7])
    calls: list[Callable[..., Any]] = [G1.msm, G1.mul, G1.explain_msm]
    for call in calls:
        with pytest.raises(ArgumentShapeError, match=r"from_words\(words, 'canonical'\)"):
            call(points, x.numpy())
        with pytest.raises(ArgumentShapeError, match=r"from_bytes\(data\)"):
            call(points, x.to_bytes())
    assert G1.msm(points, field.from_words(x.numpy(), "canonical")) == G1.generator * 38


def test_scalars_beyond_the_order_are_reduced() -> None:
    large = [2**256 - 1 - at for at in range(40)]
    expected = combine_logs([each % ORDER for each in large], LOGS)
    assert G1.msm(KNOWN, large) == expected
    data = b"".join(each.to_bytes(32, "big") for each in large)
    assert G1.msm(KNOWN, G1.scalar_field.from_bytes(data, reduce=True)) == expected
    with pytest.raises(ElementRangeError, match="element 0"):
        G1.scalar_field.from_bytes(data)
    assert G1.msm(KNOWN, [-each for each in large]) == -expected
    assert G1.generator * (ORDER + 5) == G1.generator * 5
    assert G1.generator * -1 == -G1.generator


def test_leading_axes_are_a_batch() -> None:
    scalars = [[row * 40 + at for at in range(20)] for row in range(3)]
    points = KNOWN.reshape(2, 20)
    one = G1.msm(points[0], scalars)
    assert one.shape == (3,)
    for row in range(3):
        assert one[row] == combine_logs(scalars[row], LOGS[:20])
    each = G1.msm(points, scalars[0])
    assert each.shape == (2,)
    assert each[1] == combine_logs(scalars[0], LOGS[20:])
    both = G1.msm(points.reshape(2, 1, 20), scalars)
    assert both.shape == (2, 3)
    assert (both[1, 2] == combine_logs(scalars[2], LOGS[20:])).all()


def test_no_points_give_infinity() -> None:
    assert G1.msm(G1.infinity(0), []).is_infinity()
    assert G1.msm(G1.infinity((2, 0)), []).is_infinity().tolist() == [True, True]
    assert G1.msm(G1.infinity((0, 3)), [1, 2, 3]).shape == (0,)
    assert G1.msm(G1.infinity(0), np.zeros((0,), np.uint64)).is_infinity()


def test_one_scalar_or_one_each() -> None:
    points = KNOWN[:6].reshape(2, 3)
    assert (points * 5).shape == (2, 3)
    assert (
        points * [1, 2, 3] == G1.stack([points[:, at] * (at + 1) for at in range(3)], axis=1)
    ).all()
    assert (points * [[2], [3]])[1, 0] == points[1, 0] * 3
    assert (G1.generator * [1, 2]).shape == (2,)
    assert (np.int64(3) * points == points * 3).all()
    assert (np.array([1, 2, 3]) * points == points * [1, 2, 3]).all()
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast together"):
        _ = points * [1, 2]


# --- algebra ---

small_scalars = st.lists(st.integers(0, ORDER - 1), min_size=1, max_size=5)


@settings(max_examples=25)
@given(small_scalars, small_scalars)
def test_msm_is_linear_in_the_scalars(first: list[int], second: list[int]) -> None:
    count = min(len(first), len(second))
    points = POINTS[:count]
    sums = [one + two for one, two in zip(first[:count], second[:count], strict=True)]
    assert G1.msm(points, first[:count]) + G1.msm(points, second[:count]) == G1.msm(points, sums)


@settings(max_examples=25)
@given(st.permutations(range(40)), st.integers(0, 40))
def test_msm_does_not_depend_on_order_or_splits(order: list[int], split: int) -> None:
    scalars = [pow(7, at, 2**20) for at in range(40)]
    shuffled = G1.msm(POINTS[order], [scalars[at] for at in order])
    parts = G1.msm(POINTS[:split], scalars[:split]) + G1.msm(POINTS[split:], scalars[split:])
    assert shuffled == parts


# --- what is refused ---


@pytest.mark.parametrize(
    ("scalars", "error", "words"),
    [
        ([1, 2], ArgumentShapeError, "as many scalars as points.*.40,. .points. and .2,."),
        (5, ArgumentShapeError, "as many scalars as points"),
        (np.ones(40), ArgumentTypeError, "an array of float64 was given"),
        (np.ones(40, np.bool_), ArgumentTypeError, "an array of bool was given"),
        ([True] * 40, ArgumentTypeError, "element 0 is of type bool, not an integer"),
        (True, ArgumentTypeError, "element 0 is of type bool, not an integer"),
        (["1"] * 40, ArgumentTypeError, "element 0 is of type str"),
        ("1", ArgumentTypeError, "expected integers, found str"),
        ([1.5] * 40, ArgumentTypeError, "element 0 is of type float"),
        (bytes(40 * 32), ArgumentTypeError, r"field.from_bytes\(data\) makes one of bytes"),
        (np.zeros((40, 32), np.uint8), ArgumentShapeError, r"become scalars by .*from_bytes"),
        (np.zeros((40, 31), np.uint8), ArgumentShapeError, "as many scalars as points"),
        (np.zeros((40, 4), np.uint64), ArgumentShapeError, r"become scalars by .*from_words"),
        (BLS12_381_FQ.encode([1] * 40), ArgumentTypeError, "an array of bls12_381_fq was given"),
        (None, ArgumentTypeError, "NoneType"),
        (POINTS, ArgumentTypeError, "and not a PointArray"),
        (G1.generator, ArgumentTypeError, "and not a PointArray"),
        (gx.CpuBackend().to_device(np.zeros(40)), ArgumentTypeError, "and not a DeviceArray"),
    ],
)
def test_scalars_that_make_no_sense_are_refused(scalars: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        G1.msm(POINTS, scalars)


def test_a_point_without_axes_is_no_msm() -> None:
    with pytest.raises(ArgumentShapeError, match="as many scalars as points"):
        G1.msm(G1.generator, 5)
    with pytest.raises(ArgumentTypeError, match="expected a PointArray, found list"):
        G1.msm([1], [1])  # type: ignore[arg-type]
