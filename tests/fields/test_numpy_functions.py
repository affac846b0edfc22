"""NumPy's functions on arrays of fields and of points: those that move elements, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields.numpy_functions import SHAPE_FUNCTIONS
from tests.support.curves_under_test import OVER_MERSENNE31
from tests.support.fields_under_test import Place, check_elements, draw_elements, make_array

QUADRATIC = gx.ExtensionField(gx.fields.BABYBEAR, 11)
Function = Callable[[Any], Any]
HALF: Any = [0.5]

MOVES: dict[str, tuple[tuple[int, ...], Function]] = {
    "reshape": ((2, 6), lambda a: np.reshape(a, (3, -1))),
    "reshape to no axes": ((1, 1), lambda a: np.reshape(a, shape=())),
    "ravel": ((2, 3, 2), np.ravel),
    "ravel of a view": ((4, 3), lambda a: np.ravel(a[::2].T, order="C")),
    "ravel of no axes": ((), np.ravel),
    "transpose": ((2, 3, 2), np.transpose),
    "transpose axes": ((2, 3, 2), lambda a: np.transpose(a, [1, -1, 0])),
    "permute_dims": ((2, 3), lambda a: np.permute_dims(a, axes=(1, 0))),
    "copy": ((2, 3), np.copy),
    "squeeze": ((1, 3, 1, 2), np.squeeze),
    "squeeze axis": ((1, 3, 1), lambda a: np.squeeze(a, axis=-1)),
    "squeeze axes": ((1, 3, 1, 2), lambda a: np.squeeze(a, (0, 2))),
    "expand_dims": ((3, 2), lambda a: np.expand_dims(a, 1)),
    "expand_dims axes": ((3, 2), lambda a: np.expand_dims(a, axis=(0, -1))),
    "expand_dims of no axes": ((), lambda a: np.expand_dims(a, 0)),
    "swapaxes": ((2, 3, 2), lambda a: np.swapaxes(a, 0, -1)),
    "moveaxis": ((2, 3, 4), lambda a: np.moveaxis(a, 0, -1)),
    "moveaxis axes": ((2, 3, 4), lambda a: np.moveaxis(a, [0, 1], [-1, 0])),
    "atleast_1d": ((), np.atleast_1d),
    "atleast_1d of two": ((2,), lambda a: np.concatenate(np.atleast_1d(a, a[0]))),
    "atleast_2d": ((3,), np.atleast_2d),
    "flip": ((2, 3), np.flip),
    "flip axis": ((2, 3), lambda a: np.flip(a, 0)),
    "flip axes": ((2, 3, 2), lambda a: np.flip(a, axis=(0, -1))),
    "flipud": ((3, 2), np.flipud),
    "fliplr": ((3, 2), np.fliplr),
    "roll": ((3, 4), lambda a: np.roll(a, 5)),
    "roll backwards": ((3, 4), lambda a: np.roll(a, -1, axis=1)),
    "roll far": ((3, 4), lambda a: np.roll(a, 1 << 70, 0)),
    "roll by 0": ((3, 4), lambda a: np.roll(a, 0, 0)),
    "roll axes": ((3, 4), lambda a: np.roll(a, (1, 2), axis=(0, 1))),
    "roll axes alike": ((3, 4), lambda a: np.roll(a, 2, axis=(1, 0))),
    "roll an axis twice": ((3, 4), lambda a: np.roll(a, (1, 2), axis=1)),
    "roll nothing": ((0, 4), lambda a: np.roll(a, 1, axis=0)),
    "tile": ((2, 3), lambda a: np.tile(a, 2)),
    "tile axes": ((2, 3), lambda a: np.tile(a, (3, 1, 2))),
    "tile first axes": ((2, 2, 3), lambda a: np.tile(A=a, reps=(2,))),
    "tile never": ((2, 3), lambda a: np.tile(a, (0, 2))),
    "tile no axes": ((), lambda a: np.tile(a, 3)),
    "repeat": ((2, 3), lambda a: np.repeat(a, 2)),
    "repeat axis": ((2, 3), lambda a: np.repeat(a, 3, axis=1)),
    "repeat each": ((2, 3), lambda a: np.repeat(a, [2, 0, 3], axis=-1)),
    "repeat never": ((2, 3), lambda a: np.repeat(a, 0, axis=0)),
    "broadcast_to": ((3, 1), lambda a: np.broadcast_to(a, (2, 3, 2))),
    "broadcast_to a length": ((1,), lambda a: np.broadcast_to(a, 4)),
    "take": ((2, 3), lambda a: np.take(a, [5, 0, -1])),
    "take one": ((2, 3), lambda a: np.take(a, 4)),
    "take axis": ((2, 3), lambda a: np.take(a, [[2, 0], [1, 1]], axis=1)),
    "take none": ((2, 3), lambda a: np.take(a, [], axis=0)),
    "split": ((6, 2), lambda a: np.stack(np.split(a, 3))),
    "split at": ((6, 2), lambda a: np.split(a, [1, 4])[1]),
    "array_split": ((2, 5), lambda a: np.array_split(a, 3, axis=1)[1]),
    "array_split beyond": ((2, 3), lambda a: np.array_split(a, 5)[-1]),
    "concatenate": ((2, 3), lambda a: np.concatenate([a, a[:1]])),
    "concatenate flat": ((2, 3), lambda a: np.concatenate([a, a[0]], axis=None)),
    "concat": ((2, 3), lambda a: np.concat((a, a[:, :1]), axis=-1)),
    "stack": ((2, 3), lambda a: np.stack([a, a], axis=1)),
    "stack behind": ((2, 3), lambda a: np.stack((a, a[::-1]), -1)),
    "vstack": ((3,), lambda a: np.vstack([a, a])),
    "vstack rows": ((2, 3), lambda a: np.vstack([a, a[0]])),
    "hstack": ((3,), lambda a: np.hstack([a, a[:1]])),
    "hstack columns": ((2, 3), lambda a: np.hstack((a, a))),
    "hstack of no axes": ((), lambda a: np.hstack((a, a))),
}  # fmt: skip
SIZE = max(int(np.prod(shape)) for shape, _ in MOVES.values())


def make_arrays(gpu: gx.PersistentVulkanBackend) -> list[tuple[Any, Any]]:
    """Rows of different elements in every kind of array and in every place, and these elements as
    Python values."""
    curve, draw = OVER_MERSENNE31, list(range(5, SIZE + 5))
    hosts: list[Any] = [
        gx.fields.BABYBEAR.encode(draw),
        gx.fields.BLS12_381_FR.encode(draw),
        QUADRATIC.encode([(each, each + 1) for each in draw]),
        curve.generator * draw,
    ]
    cpu = gx.CpuBackend()
    placed = [each if place is None else place.to_device(each) for each in hosts
              for place in (None, cpu, gpu)]  # fmt: skip
    return [(each, each.to_host().tolist()) for each in placed]


@pytest.fixture(scope="module")
def arrays(gpu: gx.PersistentVulkanBackend) -> list[tuple[Any, Any]]:
    return make_arrays(gpu)


def look_up(values: list[Any], numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [look_up(values, each) for each in numbers]
    return values[numbers]


@pytest.mark.parametrize("name", MOVES)
def test_elements_move_as_in_numpy(arrays: list[tuple[Any, Any]], name: str) -> None:
    shape, function = MOVES[name]
    count = int(np.prod(shape))
    numbers = np.arange(count).reshape(shape)
    expected = function(numbers)
    for array, values in arrays:
        found = function(array[:count].reshape(shape))
        assert type(found) is type(array)
        assert (found.shape, found.on_device) == (np.shape(expected), array.on_device)
        assert found.to_host().tolist() == look_up(values, expected.tolist())


def test_every_function_is_tested() -> None:
    tested = {name.split()[0] for name in MOVES}
    others = {"shape", "ndim", "size", "array_equal"}
    assert {each.__name__ for each in SHAPE_FUNCTIONS} <= tested | others


def test_shapes_and_comparisons(arrays: list[tuple[Any, Any]]) -> None:
    for array, _ in arrays:
        rows = array[:6].reshape(2, 3)
        assert (np.shape(rows), np.ndim(rows), np.size(rows), np.size(rows, 1)) == ((2, 3), 2, 6, 3)
        assert np.array_equal(rows, rows.copy())
        assert not np.array_equal(rows, rows.T)
        assert not np.array_equal(rows, rows[::-1])


def test_results_can_be_assigned_to_as_those_of_numpy(gpu: gx.PersistentVulkanBackend) -> None:
    """Views share memory; arrays that repeat elements have memory for each of them."""
    field = gx.fields.BABYBEAR
    for place in (None, gx.CpuBackend(), gpu):
        host = field.encode([[1, 2], [3, 4]])
        x = host if place is None else place.to_device(host)
        for view in (np.ravel(x), np.transpose(x), np.flip(x), np.expand_dims(x, 0)):
            view[...] = view + 1
        assert x.tolist() == [[5, 6], [7, 8]]
        for copy in (np.broadcast_to(x, (3, 2, 2)), np.tile(x, 2), np.roll(x, 1), np.repeat(x, 2),
                     np.broadcast_to(x, (2, 2)), np.copy(x)):  # fmt: skip
            first = (0,) * copy.ndim
            rest = copy.tolist()
            copy[first] = 99
            assert np.sum(np.array(copy.tolist()) != np.array(rest)) == 1
        assert x.tolist() == [[5, 6], [7, 8]]


COMPUTATIONS: dict[str, tuple[tuple[int, ...], Function]] = {
    "cumsum": ((2, 3), np.cumsum),
    "cumsum axis": ((2, 3, 2), lambda a: np.cumsum(a, axis=1)),
    "cumsum first axis": ((3, 4), lambda a: np.cumsum(a, 0)),
    "cumsum of no axes": ((), np.cumsum),
    "cumsum of nothing": ((0, 3), lambda a: np.cumsum(a, axis=1)),
    "cumprod": ((2, 3), np.cumprod),
    "cumprod axis": ((3, 4), lambda a: np.cumprod(a, axis=-2)),
    "methods": ((3, 4), lambda a: a.cumsum(axis=0).cumprod(axis=1)),
    "outer": ((2, 3), lambda a: np.outer(a, a[0])),
    "outer of no axes": ((), lambda a: np.outer(a, a)),
    "pad": ((2, 3), lambda a: np.pad(a, 1)),
    "pad by 0": ((2, 3), lambda a: np.pad(a, 0)),
    "pad with": ((3,), lambda a: np.pad(a, (0, 2), constant_values=7)),
    "pad axes": ((2, 3), lambda a: np.pad(a, ((1, 0), (0, 2)), mode="constant")),
    "pad all axes alike": ((2, 3), lambda a: np.pad(a, [1, 2])),
    "pad nothing": ((0,), lambda a: np.pad(a, 2)),
    "pad no axes": ((), lambda a: np.pad(a, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_elements_are_computed_as_in_numpy(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    shape, function = COMPUTATIONS[name]
    for field in (gx.fields.BABYBEAR, gx.fields.BLS12_381_FR):
        exact = np.array(draw_elements(field, int(np.prod(shape)), 1), object).reshape(shape)
        # NumPy pads arrays of objects with its own integers.
        wanted = np.frompyfunc(int, 1, 1)(function(exact))
        for place in get_args(Place):
            check_elements(function(make_array(gpu, place, field, exact)), wanted, place)


def test_elements_of_extensions_are_padded_and_multiplied() -> None:
    x = QUADRATIC.encode([(1, 2), (3, 4)])
    assert np.pad(x, (1, 0), constant_values=(5, 6)).tolist() == [(5, 6), (1, 2), (3, 4)]
    small = gx.fields.BABYBEAR.encode([2, 3])
    assert np.outer(small, x).tolist() == [[(2, 4), (6, 8)], [(3, 6), (9, 12)]]


def test_a_padded_array_is_a_copy() -> None:
    x = gx.fields.BABYBEAR.encode([1, 2])
    y = np.pad(x, 0)
    y[0] = 9
    assert x.tolist() == [1, 2] and y.tolist() == [9, 2]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: np.pad(a, 1, mode="edge"), "mode is 'edge'"),
        (lambda a: np.pad(a, -1), "pad_width is -1"),
        (lambda a: np.pad(a, HALF[0]), "pad_width is 0.5"),
        (lambda a: np.pad(a, True), "pad_width is True"),
        (lambda a: np.pad(a, (1, 2, 3)), r"a pair for each of the 2 axes"),
        (lambda a: np.pad(a, 1, constant_values=0.5), "not float"),
        (lambda a: np.pad(a, 1, stat_length=1), "'stat_length'; it takes array, pad_width, mode"),
        (lambda a: np.outer(a, [1, 2]), "np.outer: the array is a list"),
        (lambda a: np.outer(3, a), "np.outer: the array is an int"),
        (lambda a: np.cumsum(a, axis=None, dtype=int), "'dtype'; it takes a, axis"),
        (lambda a: np.cumsum(a, axis=HALF[0]), "axis must be an integer"),
    ],
)
def test_computations_without_meaning_are_refused_in_words(call: Function, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        call(gx.fields.BABYBEAR.encode([[1, 2], [3, 4]]))


def test_points_have_no_such_functions() -> None:
    points = OVER_MERSENNE31.generator * [1, 2]
    for call in (np.cumsum, np.cumprod, lambda a: np.pad(a, 1), lambda a: np.outer(a, a)):
        with pytest.raises(TypeError, match="no implementation found"):
            call(points)


def test_what_has_no_meaning_is_refused_in_words(arrays: list[tuple[Any, Any]]) -> None:
    shapes: list[tuple[Function, str]] = [
        (lambda a: np.squeeze(a, 0), "axis 0 of the shape"),
        (lambda a: np.expand_dims(a, (0, 0)), "each one once"),
        (lambda a: np.expand_dims(a, 5), "axis"),
        (lambda a: np.swapaxes(a, 0, 2), "axis 2"),
        (lambda a: np.moveaxis(a, 0, (0, 1)), "differ in length"),
        (lambda a: np.flip(a, 3), "axis 3"),
        (lambda a: np.roll(a, (1, 2, 3), (0, 1)), "differ in length"),
        (lambda a: np.broadcast_to(a, (2, 4)), "broadcast"),
        (lambda a: np.broadcast_to(a, (3,)), r"has no elements for \(3,\)"),
        (lambda a: np.split(a, 5), "has no 5 equal parts"),
        (lambda a: np.split(a, 0), "has no 0 equal parts"),
        (lambda a: np.stack([a, a[0]]), "one shape"),
        (lambda a: np.concatenate([a, a[0]]), "cannot be joined"),
    ]  # fmt: skip
    types: list[tuple[Function, str]] = [
        (lambda a: np.ravel(a, order="F"), "order is 'F'"),
        (lambda a: np.reshape(a, (3, 2), order="A"), "order is 'A'"),
        (lambda a: np.reshape(a, (3, 2), copy=True), r"np.reshape of an? \w+: .*'copy'; it takes"),
        (lambda a: np.sum(a, dtype=np.int64), r"np.sum of an? \w+: .*'dtype'; it takes a, axis"),
        (lambda a: np.take(a, [True, False]), "take: indices is a list"),
        (lambda a: np.take(a, HALF), "take: indices is a list"),
        (lambda a: np.take(a, a), r"take: indices is an? \w+Array"),
        (lambda a: np.roll(a, HALF[0], 0), "shift is 0.5"),
        (lambda a: np.repeat(a, HALF[0], 0), "repeats is 0.5"),
        (lambda a: np.repeat(a, [1, 2, 3], 0), "one for each of the 2 elements"),
        (lambda a: np.repeat(a, -1, 0), "repeats is -1"),
        (lambda a: np.tile(a, -1), "reps is -1"),
        (lambda a: np.tile(a, HALF), r"reps is \[0.5\]"),
        (lambda a: np.concatenate([a, [[1, 2, 3]]]), "np.concatenate: the array is a list"),
        (lambda a: np.vstack([np.arange(3), a]), "np.vstack: the array is an ndarray"),
        (np.sort, "no implementation found for 'numpy.sort'"),
        (np.diff, "no implementation found for 'numpy.diff'"),
        (np.zeros_like, "no implementation found for 'numpy.zeros_like'"),
        (np.exp, "ufunc"),
    ]  # fmt: skip
    for array, _ in arrays:
        rows = array[:6].reshape(2, 3)
        for call, words in shapes:
            with pytest.raises(ArgumentShapeError, match=words):
                call(rows)
        for call, words in types:
            with pytest.raises(TypeError, match=words):
                call(rows)
    assert issubclass(ArgumentTypeError, TypeError)
