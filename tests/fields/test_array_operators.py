"""Operators of arrays as in NumPy, on the host and on a device: compared with arrays of Python's
integers, which are reduced modulo p."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import BABYBEAR, BLS12_381_FQ2, BLS12_381_FR, Field, FieldArray
from tests.support.fields_under_test import (
    Place,
    check_elements,
    draw_elements,
    draw_ints,
    in_every_place,
    make_array,
    on_three_fields,
)

Gpu = gx.PersistentVulkanBackend
Ints = np.ndarray[Any, np.dtype[np.object_]]


def draw_nonzero(field: Field, shape: tuple[int, ...], seed: int) -> Ints:
    values: Ints = draw_ints(field, shape, seed)
    values[values == 0] = 1
    return values


def invert_all(field: Field, values: Ints) -> Ints:
    inverses = [pow(int(value), -1, field.modulus) for value in values.ravel()]
    return np.array(inverses, object).reshape(values.shape)


# --- broadcasting ---

SHAPES = [
    ((3, 1), (1, 4)),
    ((2, 4), (2, 1)),
    ((2, 1), (2, 4)),
    ((2, 1, 4), (3, 1)),
    ((4,), (3, 1, 1)),
    ((1, 1), (5,)),
    ((), (2, 3)),
    ((2, 3, 4), (3, 1)),
    ((0, 3), (1, 1)),
    ((2, 0), (1,)),
]


@in_every_place
@on_three_fields
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_any_shapes_are_broadcast(gpu: Gpu, field: Field, place: Place, shapes: Any) -> None:
    a, b = (draw_ints(field, shape, seed) for seed, shape in enumerate(shapes))
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    check_elements(x + y, a + b, place)
    check_elements(x - y, a - b, place)
    check_elements(y - x, b - a, place)
    check_elements(x * y, a * b, place)
    check_elements(field.fma(x, y, x), a * b + a, place)
    check_elements(field.fma(y, y, x), b * b + a, place)
    assert (x == y).tolist() == (a == b).tolist()


@in_every_place
@on_three_fields
def test_the_condition_of_where_is_broadcast(gpu: Gpu, field: Field, place: Place) -> None:
    a, b, condition = (
        draw_ints(field, (2, 1, 4), 1),
        draw_ints(field, (3, 1), 2),
        np.array([True, False] * 2),
    )
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    check_elements(field.where(condition, x, y), np.where(condition, a, b), place)
    column = condition[:2].reshape(2, 1, 1)
    check_elements(field.where(column, x, y), np.where(column, a, b), place)
    check_elements(
        field.where(np.ones((2, 2, 1, 1), bool), y, 5), np.broadcast_to(b, (2, 2, 3, 1)), place
    )


# --- operators ---


@in_every_place
@on_three_fields
def test_division_multiplies_by_the_inverse(gpu: Gpu, field: Field, place: Place) -> None:
    a, b = draw_ints(field, (3, 4), 1), draw_nonzero(field, (3, 1), 2)
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    check_elements(x / y, a * invert_all(field, b), place)
    check_elements(x / 7, a * pow(7, -1, field.modulus), place)
    check_elements(5 / y, 5 * invert_all(field, b), place)
    check_elements(x / -3, a * pow(-3, -1, field.modulus), place)


@in_every_place
@on_three_fields
def test_division_by_zero_is_an_error(gpu: Gpu, field: Field, place: Place) -> None:
    x, y = (make_array(gpu, place, field, each) for each in ([1, 2, 3], [1, 0, 3]))
    divisions: list[Callable[[], FieldArray]] = [
        lambda: x / y,
        lambda: 1 / y,
        lambda: x / 0,
        lambda: x / field.modulus,
    ]
    for divide in divisions:
        with pytest.raises(ZeroDivisionError, match=field.name):
            (divide() * 3)[1:].ints()  # on a device, the first fetch of a dependent array raises


@in_every_place
@on_three_fields
def test_unary_operators(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, (2, 3), 1)
    x = make_array(gpu, place, field, a)
    copied = +x
    check_elements(copied, a, place)
    check_elements(-x, -a, place)
    copied += 1
    check_elements(x, a, place)


MATRICES = [
    ((3, 4), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 2)),
    ((2, 3, 4), (2, 4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((3, 0), (0, 2)),
    ((0, 3), (3, 2)),
    ((1, 200), (200, 1)),
]


@in_every_place
@on_three_fields
@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_products_of_matrices_and_vectors(
    gpu: Gpu, field: Field, place: Place, shapes: Any
) -> None:
    a, b = (draw_ints(field, shape, seed) for seed, shape in enumerate(shapes))
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    exact = np.einsum(*prepare_einsum(a, b), optimize=False) if 0 not in a.shape else zeros(a, b)
    check_elements(x @ y, exact, place)


def prepare_einsum(a: Ints, b: Ints) -> tuple[str, Ints, Ints]:
    left = "k" if a.ndim == 1 else "...mk"
    right = "k" if b.ndim == 1 else "...kn"
    out = "..." + ("m" if a.ndim > 1 else "") + ("n" if b.ndim > 1 else "")
    return f"{left},{right}->{out}", a, b


def zeros(a: Ints, b: Ints) -> Any:
    return np.zeros((a.shape[0], b.shape[1]), object)


@in_every_place
def test_products_of_large_matrices(gpu: Gpu, place: Place) -> None:
    a, b = draw_ints(BABYBEAR, (7, 9000), 1), draw_ints(BABYBEAR, (9000, 3), 2)
    x, y = (make_array(gpu, place, BABYBEAR, each) for each in (a, b))
    check_elements(x @ y, a @ b, place)
    check_elements(x @ x.T, a @ a.T, place)


@in_every_place
def test_matrices_that_do_not_fit_are_rejected(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [[1, 2, 3], [4, 5, 6]])
    for other in (x, x[0, :2], x[0, 0]):
        with pytest.raises(ArgumentShapeError, match="takes shapes"):
            x @ other
    with pytest.raises(ArgumentTypeError, match="expected a FieldArray, found list"):
        [[1, 2]] @ x


@in_every_place
@on_three_fields
def test_dot_follows_numpy(gpu: Gpu, field: Field, place: Place) -> None:
    a, b, c = draw_ints(field, (2, 3), 1), draw_ints(field, (4, 3, 2), 2), draw_ints(field, (3,), 3)
    x, y, z = (make_array(gpu, place, field, each) for each in (a, b, c))
    check_elements(x.dot(y), np.dot(a, b), place)
    check_elements(x.dot(z), np.dot(a, c), place)
    check_elements(z.dot(z), np.dot(c, c), place)
    check_elements(z.dot(5), c * 5, place)
    check_elements(np.dot(x, y), np.dot(a, b), place)
    check_elements(x.field.dot(x, y), np.dot(a, b), place)


# --- operators that change the array ---

IN_PLACE: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Field, Ints, Ints], Any]]] = {
    "+=": (operator.iadd, lambda _, a, b: a + b),
    "-=": (operator.isub, lambda _, a, b: a - b),
    "*=": (operator.imul, lambda _, a, b: a * b),
    "/=": (operator.itruediv, lambda field, a, b: a * invert_all(field, b)),
}


@in_every_place
@on_three_fields
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_operators_change_the_array_and_its_views(
    gpu: Gpu, field: Field, place: Place, name: str
) -> None:
    change, exact = IN_PLACE[name]
    a, b = draw_ints(field, (4, 3), 1), draw_nonzero(field, (3,), 2)
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    same, view = x, x[1:, ::-1]
    x = change(x, y)
    assert x is same
    wanted = exact(field, a, b)
    check_elements(x, wanted, place)
    check_elements(view, wanted[1:, ::-1], place)


@in_every_place
@on_three_fields
def test_in_place_operators_work_on_views(gpu: Gpu, field: Field, place: Place) -> None:
    p, a = field.modulus, draw_ints(field, (4, 6), 1)
    x = make_array(gpu, place, field, a)
    part, exact = x[::2, 1::3], a[::2, 1::3]
    part *= 3
    exact *= 3
    check_elements(x, a, place)
    x[1] += x[0]
    a[1] += a[0]
    x[1:] -= x[:-1]
    a[1:] -= a[:-1].copy()
    x **= 2
    check_elements(x, a**2, place)
    x[0] **= -1
    check_elements(x[0], [pow(int(v), -2, p) if v % p else 0 for v in a[0]], place)


@in_every_place
def test_a_result_of_another_shape_cannot_be_written_in_place(gpu: Gpu, place: Place) -> None:
    x, rows = (make_array(gpu, place, BABYBEAR, each) for each in ([1, 2], [[1, 2], [3, 4]]))
    with pytest.raises(ArgumentShapeError, match="cannot be written to an array of shape"):
        x += rows
    check_elements(x, [1, 2], place)


@in_every_place
def test_in_place_operators_keep_the_form(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BLS12_381_FR, [1, 2]).in_form("canonical")
    x += 5
    assert x.form == "canonical"
    check_elements(x, [6, 7], place)


# --- comparison ---


@in_every_place
@on_three_fields
def test_equality_with_anything(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    x = make_array(gpu, place, field, [[1, 2, 3], [4, 5, p - 1]])
    none = np.zeros((2, 3), bool)
    for other in (
        "text",
        None,
        object(),
        2.5,
        float("nan"),
        1j,
        b"1",
        {},
        ["a", "b", "c"],
        [[1], 2],
    ):
        assert (x == other).tolist() == none.tolist()
        assert (x != other).tolist() == (~none).tolist()
    numbers: list[tuple[Any, Any]] = [
        (1, (0, 0)),
        (-1, (1, 2)),
        (2.0, (0, 1)),
        (True, (0, 0)),
        (3 + p, (0, 2)),
    ]
    for other, where in numbers:
        wanted = none.copy()
        wanted[where] = True
        assert (x == other).tolist() == wanted.tolist()
        assert (x != other).tolist() == (~wanted).tolist()
        assert (other == x).tolist() == wanted.tolist()
    row = [[True, True, True], [False, False, False]]
    rows: list[Any] = [[1, 2, 3], (1, 2, 3), np.arange(1, 4), np.array([1, 2, 3 + p], object)]
    for other in rows:
        assert (x == other).tolist() == row
        assert (other == x).tolist() == row
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast"):
        _ = x == [1, 2]
    assert 5 in x
    assert 6 not in x


def test_arrays_are_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(BABYBEAR.encode([1]))


# --- powers on the host ---


@on_three_fields
@pytest.mark.parametrize("count", [0, 1, 5, 40, 400])
def test_powers_on_the_host_are_exact_in_both_forms(field: Field, count: int) -> None:
    p = field.modulus
    values = [0, 1, p - 1, *draw_elements(field, 400, 1)][:count]
    arrays = field.encode(values), field.encode(values).in_form(field.form)
    inverses = [pow(v, -1, p) if v else 0 for v in values]
    for exponent in (0, 1, 2, 3, 257, p - 2, p - 1, p, -1, -2, -257, 2**300 + 1):
        wanted = [pow(v, abs(exponent), p) for v in (values if exponent >= 0 else inverses)]
        for x in arrays:
            found = x**exponent
            assert (found.form, found.shape) == (x.form, x.shape)
            assert found.tolist() == wanted, exponent
    assert [x.tolist() for x in arrays] == [values] * 2


def test_a_first_power_on_the_host_has_memory_of_its_own() -> None:
    x = BABYBEAR.encode([3, 4])
    y = x**1
    y[0] = 5
    assert (x.tolist(), y.tolist()) == ([3, 4], [5, 4])


def test_powers_of_views_on_the_host_keep_the_order_of_elements() -> None:
    values = draw_nonzero(BLS12_381_FR, (30, 40), 1)
    x = BLS12_381_FR.encode(values).T[::-1, ::2]
    for exponent in (0, 1, 3, -1):
        wanted = [
            [pow(v, exponent, BLS12_381_FR.modulus) for v in row] for row in values.T[::-1, ::2]
        ]
        assert (x**exponent).tolist() == wanted


DOT_SHAPES = [
    *(((3,), (3,)), ((), (3,)), ((2, 3), ()), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4))),
    *(((3,), (2, 3, 4)), ((2, 3), (4, 3, 2)), ((2, 1, 3), (2, 3, 1)), ((2, 0), (3, 0, 2))),
]


@in_every_place
@pytest.mark.parametrize("field", [BABYBEAR, BLS12_381_FR], ids=lambda field: field.name)
def test_dot_is_that_of_numpy(gpu: Gpu, place: Place, field: Field) -> None:
    """A method, a function of the field and NumPy's function are one operation."""
    for one, other in DOT_SHAPES:
        a, b = draw_ints(field, one, 1), draw_ints(field, other, 2)
        x, y = (make_array(gpu, place, field, each) for each in (a, b))
        expected = np.asarray(np.dot(a, b))
        for found in (field.dot(x, y), x.dot(y), np.dot(x, y)):
            assert found.shape == expected.shape
            check_elements(found, expected, place)
    check_elements(field.dot(3, y), 3 * b, place)
    with pytest.raises(ArgumentTypeError, match=r"vecdot\(a, b, axis=0\) sums products"):
        field.dot(x, x, axis=0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError):
        field.dot(x, x)


@in_every_place
@pytest.mark.parametrize("field", [BABYBEAR, BLS12_381_FR], ids=lambda field: field.name)
def test_vecdot_is_that_of_numpy(gpu: Gpu, place: Place, field: Field) -> None:
    shapes = [((4,), (4,), -1), ((2, 4), (4,), -1), ((3, 1, 4), (2, 4), -1), ((4, 2), (4, 1), 0)]
    for one, other, axis in [*shapes, ((2, 0), (2, 0), 1), ((2, 3, 4), (2, 3, 4), 1)]:
        a, b = draw_ints(field, one, 1), draw_ints(field, other, 2)
        x, y = (make_array(gpu, place, field, each) for each in (a, b))
        expected = (np.moveaxis(a, axis, -1) * np.moveaxis(b, axis, -1)).sum(axis=-1)
        found = [field.vecdot(x, y, axis=axis), x.vecdot(y, axis)]
        if (vecdot := getattr(np, "vecdot", None)) is not None:  # NumPy 2
            found.append(vecdot(x, y, axis=axis))
        for each in found:
            check_elements(each, expected, place)
    z = make_array(gpu, place, field, [1, 2, 3])
    bad: list[tuple[Any, Any]] = [(z, z[:2]), (z, z[:1]), (z[0], z), (z, z[0])]
    for p, q in bad:
        with pytest.raises(ArgumentShapeError):
            field.vecdot(p, q)
    with pytest.raises(ArgumentTypeError, match="expected a FieldArray, found int"):
        field.vecdot(z, 3)  # type: ignore[arg-type]


def test_products_of_extension_fields_take_elements_of_the_base() -> None:
    field = BLS12_381_FQ2
    rows = [[(1, 2), (3, 4)], [(5, 6), (7, 8)]]
    m, v = field.encode(rows), field.base.encode([10, 100])
    assert m.dot(v).tolist() == m.vecdot(v).tolist() == [(310, 420), (750, 860)]
    assert v.dot(m).tolist() == [(510, 620), (730, 840)]
    assert np.dot(v, m).field == field
    assert m.vecdot(m, axis=0).tolist() == field.sum(m * m, axis=0).tolist()
