"""Indexing and assignment of elements as in NumPy, on the host and on a device: compared with
arrays of Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, BN254_FR, GOLDILOCKS, Field, FieldArray
from tests.support.fields_under_test import (
    CPU,
    FULL96,
    Place,
    check_elements,
    draw_ints,
    in_every_place,
    make_array,
)

Gpu = gx.PersistentVulkanBackend
Ints = np.ndarray[Any, np.dtype[np.object_]]

SHAPE = (4, 5, 6)
MASK = np.arange(20).reshape(4, 5) % 3 == 0
BASIC = [
    np.s_[2],
    np.s_[-1],
    np.s_[1, 2, 3],
    np.s_[...],
    np.s_[..., 0],
    np.s_[1, ..., 2],
    np.s_[()],
    np.s_[None],
    np.s_[:, None, 2],
    np.s_[..., None],
    np.s_[1, 2, 3, ...],
    np.s_[::2],
    np.s_[::-1],
    np.s_[1:4:2, ::-2, 5:1:-3],
    np.s_[:, 1:3],
    np.s_[:, :, 4],
    np.s_[10:],
    np.s_[2:2, 1],
    np.s_[np.int64(1), np.uint8(2)],
]
ADVANCED = [
    [2, 0, 2],
    np.array([1, -1]),
    np.array([[0, 1], [2, 3]], np.uint8),
    [],
    np.s_[:, [4, 0]],
    np.s_[[0, 1], [2, 3]],
    np.s_[[0, 1], :, [2, 3]],
    np.s_[1, :, [2, 3]],
    np.s_[..., [5, 0, 5]],
    np.s_[:, [1, 2], ..., 0],  # an ellipsis that stands for no axis separates index arrays
    np.s_[:, [1, 2], ..., [0, 3]],
    np.s_[[[0], [1]], [[1, 2]]],
    np.s_[::2, [1, 3], ::-1],
    np.s_[None, [1, 2], None],
    MASK,
    np.s_[MASK, 2],
    np.s_[MASK[:, 0]],
    np.s_[:, MASK[0], 1:3],
    np.s_[MASK[:, 0], :, [3]],
    np.arange(120).reshape(SHAPE) % 7 == 1,
    np.zeros(SHAPE, bool),
    [True, False, True, True],
    True,
    False,
]
on_four_fields = pytest.mark.parametrize(
    "field", [BLS12_381_FR, GOLDILOCKS, BABYBEAR, FULL96], ids=lambda field: field.name
)
"""Elements of eight words, of two, of one, and of three."""


# --- indexing ---


@in_every_place
@on_four_fields
def test_every_index_selects_what_numpy_selects(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, SHAPE)
    x = make_array(gpu, place, field, a)
    for item in [*BASIC, *ADVANCED]:
        check_elements(x[item], a[item], place)
    check_elements(x[1:, ::2][[0, 2], 1], a[1:, ::2][[0, 2], 1], place)
    check_elements(x.T[[1, 0]], a.T[[1, 0]], place)
    check_elements(x[0, 0, 0][()], a[0, 0, 0], place)


@in_every_place
@on_four_fields
def test_selected_elements_are_operands(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, SHAPE)
    x = make_array(gpu, place, field, a)
    for item in (np.s_[::-1, 1::2], np.s_[:, 3], np.s_[[3, 1]], MASK, np.s_[..., ::-1]):
        check_elements(x[item] * x[item] + 1, a[item] * a[item] + 1, place)
    check_elements(x.T + x.T, a.T + a.T, place)
    check_elements(x[1:] - x[:-1], a[1:] - a[:-1], place)


@in_every_place
def test_basic_indices_give_views_and_others_copies(gpu: Gpu, place: Place) -> None:
    a = draw_ints(BABYBEAR, SHAPE)
    x = make_array(gpu, place, BABYBEAR, a)
    view, row, element, picked = x[1:, ::2], x[0], x[1, 2, 3], x[[1]]
    x[...] = 9
    check_elements(view, np.full((3, 3, 6), 9), place)
    check_elements(row, np.full((5, 6), 9), place)
    check_elements(element, a[1, 2, 3], place)
    check_elements(picked, a[[1]], place)


@in_every_place
def test_two_elements_are_swapped_as_in_numpy(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BLS12_381_FR, [1, 2, 3])
    x[0], x[2] = x[2], x[0]
    check_elements(x, [3, 2, 1], place)


@in_every_place
def test_arrays_are_iterated_over_by_rows(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert [int(element) for element in x[0]] == [1, 2]
    with pytest.raises(TypeError, match="without axes"):
        iter(x[0, 0])


INVALID = [4, -5, np.s_[0, 5], [0, 4], [-5], np.s_[:, [7]], np.s_[0, 0, 0, 0], np.s_[..., ...]]
INVALID += [np.s_[MASK, 0, 0], MASK.T, np.s_[[0, 1], [0, 1, 2]], 1.5, "a", np.array([1.0]), [0.5]]


@in_every_place
@pytest.mark.parametrize("item", INVALID, ids=str)
def test_invalid_indices_are_index_errors(gpu: Gpu, place: Place, item: Any) -> None:
    x = make_array(gpu, place, BABYBEAR, draw_ints(BABYBEAR, SHAPE))
    with pytest.raises(IndexError):
        x[item]
    with pytest.raises(IndexError):
        x[item] = 1


def test_arrays_of_elements_are_no_indices(gpu: Gpu) -> None:
    x = BABYBEAR.encode([1, 2])
    for item in (x, gpu.to_device(x), gpu.to_device(np.arange(2))):
        with pytest.raises(IndexError, match="integers or booleans on the host"):
            x[item]


# --- assignment ---


@in_every_place
@on_four_fields
def test_every_index_assigns_where_numpy_assigns(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, SHAPE)
    x = make_array(gpu, place, field, a)
    for seed, item in enumerate([*BASIC, *ADVANCED]):
        shape = np.shape(a[item])
        values = draw_ints(field, shape, seed)
        a[item] = values
        x[item] = make_array(gpu, place, field, values)
        check_elements(x, a, place)
        a[item] = -seed
        x[item] = -seed
        check_elements(x, a, place)
        if shape:
            last = draw_ints(field, (shape[-1],), seed + 100)
            a[item] = last
            x[item] = make_array(gpu, place, field, last)
            check_elements(x, a, place)


@in_every_place
@on_four_fields
def test_assignment_to_views_changes_the_array(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, SHAPE)
    x = make_array(gpu, place, field, a)
    x[1:, ::2][[0, 2], 1] = 7
    a[1:, ::2][[0, 2], 1] = 7
    x.T[[1, 0]] = x.T[[0, 1]]
    a.T[[1, 0]] = a.T[[0, 1]]
    x[1:][:, 3] = 5
    a[1:][:, 3] = 5
    check_elements(x, a, place)


@in_every_place
def test_the_last_of_several_values_for_an_element_is_written(gpu: Gpu, place: Place) -> None:
    a = np.zeros((50, 3), object)
    index = np.random.default_rng(1).integers(0, 50, 2000)
    values = np.arange(6000).reshape(2000, 3)
    x = make_array(gpu, place, BLS12_381_FR, a)
    x[index] = values
    a[index] = values
    check_elements(x, a, place)


@in_every_place
def test_overlapping_elements_are_read_before_they_are_written(gpu: Gpu, place: Place) -> None:
    a = draw_ints(BABYBEAR, (40,))
    x = make_array(gpu, place, BABYBEAR, a)
    x[1:], a[1:] = x[:-1], a[:-1].copy()
    x[:] = x[::-1]
    a[:] = a[::-1].copy()
    x[[3, 4, 5]] = x[2:5]
    a[[3, 4, 5]] = a[2:5].copy()
    check_elements(x, a, place)


@in_every_place
def test_values_are_integers_lists_and_arrays_of_the_field(gpu: Gpu, place: Place) -> None:
    field = BABYBEAR
    x = make_array(gpu, place, field, np.zeros((2, 3), object))
    x[0] = [1, 2, -1]
    x[1] = np.array([4, 5, 6])
    x[:, 0] = ((7), (8))
    check_elements(x, [[7, 2, -1], [8, 5, 6]], place)
    x[0] = make_array(gpu, place, field, [[1, 2, 3]])  # NumPy ignores leading axes of length 1
    check_elements(x[0], [1, 2, 3], place)
    with pytest.raises(ArgumentTypeError, match="was given to an operation of"):
        x[0] = make_array(gpu, place, BN254_FR, [1, 2, 3])
    for bad in (0.5, True, "7", None):
        with pytest.raises(ArgumentTypeError, match="a FieldArray or an integer"):
            x[0] = bad
    for item in (0, [0, 1], np.s_[:, 1]):
        with pytest.raises(ArgumentShapeError, match="cannot be assigned to"):
            x[item] = [1, 2, 3, 4]
    check_elements(x[0], [1, 2, 3], place)


@in_every_place
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.int64, object])
def test_arrays_of_integers_are_integers_whatever_their_type(
    gpu: Gpu, place: Place, dtype: Any
) -> None:
    for field in (BABYBEAR, GOLDILOCKS, BLS12_381_FR):
        x = make_array(gpu, place, field, [1, 2, 3, 4])
        x[1:] = np.array([7, 8, 9], dtype)
        check_elements(x, [1, 7, 8, 9], place)
        x[:] = np.array([4, 5, 6, 7], dtype)  # as many as the words of an element
        check_elements(x, [4, 5, 6, 7], place)


def test_values_in_another_place_are_rejected(gpu: Gpu) -> None:
    host = BABYBEAR.encode([1, 2])
    there = gpu.to_device(host)
    with pytest.raises(ArgumentTypeError, match="in different places"):
        there[0] = host[1]
    with pytest.raises(ArgumentTypeError, match="in different places"):
        host[0] = there[1]


@in_every_place
def test_values_are_converted_to_the_form_of_the_array(gpu: Gpu, place: Place) -> None:
    field = BLS12_381_FR
    montgomery = make_array(gpu, place, field, [1, 2, 3]).in_form("montgomery")
    canonical = make_array(gpu, place, field, [4, 5, 6]).in_form("canonical")
    canonical[1:] = montgomery[:2]
    canonical[0] = 9
    montgomery[[0]] = canonical[[0]]
    assert (canonical.form, montgomery.form) == ("canonical", "montgomery")
    check_elements(canonical, [9, 1, 2], place)
    check_elements(montgomery, [9, 2, 3], place)


@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
def test_assignments_and_in_place_operators_are_recorded_in_a_graph(gpu: Gpu, backend: str) -> None:
    device: Any = gpu if backend == "vulkan" else CPU
    x = device.to_device(BABYBEAR.encode([1, 2, 3, 4]))
    other = x * 10
    with device.graph(x) as run:
        y = x * 2
        y[1:] += 1
        y[[0]] = 5
        y[3] = x[0]
        z = y[::-1] @ x
        x += 1
    assert x.tolist() == [1, 2, 3, 4]
    run(other)
    assert (y.tolist(), z.tolist(), x.tolist()) == ([5, 41, 61, 10], 2750, [11, 21, 31, 41])
    run()
    assert (y.tolist(), x.tolist()) == ([5, 43, 63, 11], [12, 22, 32, 42])


OPERATIONS: dict[str, Callable[[FieldArray], FieldArray]] = {
    "ntt": lambda x: x.field.ntt(x),
    "intt": lambda x: x.field.intt(x),
    "inverse": lambda x: x.field.inverse(x),
    "prefix_product": lambda x: x.field.prefix_product(x),
    "cumsum": lambda x: x.cumsum(axis=0),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(axis=-1),
    "power": lambda x: x**5,
    "fma": lambda x: x.field.fma(x, x, 3),
    "poly_mul": lambda x: x.field.poly_mul(x, x),
    "poly_eval": lambda x: x.field.poly_eval(x.reshape(-1), x),
    "quotient": lambda x: x.field.poly_divide_vanishing(x.reshape(-1), 5)[0],
    "remainder": lambda x: x.field.poly_divmod(x, [1, 2, 3])[1],
    "canonical": lambda x: x.in_form("canonical"),
    "where": lambda x: x.field.where(np.ones(x.shape, bool), x, 1),
    "from the left": lambda x: 7 - x,
}
VIEWS: dict[str, Callable[[FieldArray], FieldArray]] = {
    "transposed": lambda x: x.T,
    "steps": lambda x: x[::2, ::-1],
    "a column": lambda x: x[::2, 3],
    "an offset": lambda x: x.reshape(-1)[3:35],
}


@pytest.mark.parametrize("place", ["device", "cpu"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_every_operation_takes_views(
    gpu: Gpu, place: Place, view: Callable[[FieldArray], FieldArray]
) -> None:
    values = draw_ints(BABYBEAR, (8, 8))
    host, there = BABYBEAR.encode(values), make_array(gpu, place, BABYBEAR, values)
    copied, x = view(host).copy(), view(there)
    for name, operation in OPERATIONS.items():
        assert operation(x).tolist() == operation(copied).tolist(), name


@in_every_place
def test_a_view_on_the_host_is_copied_to_a_device(gpu: Gpu, place: Place) -> None:
    values = draw_ints(BLS12_381_FR, (4, 6))
    x = make_array(gpu, place, BLS12_381_FR, values)
    check_elements(x[::-1, ::2] + 0, values[::-1, ::2], place)
    assert gpu.to_device(x.to_host()[::-1, ::2]).tolist() == values[::-1, ::2].tolist()
