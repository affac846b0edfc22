"""Operands and shapes of fields, on the host and on the card: integers for elements, shorter
operands, no elements, no axes, slices."""

from __future__ import annotations

import numpy as np

import gpu_executor as gx
from gpu_executor.fields import (
    BLS12_381_FR,
    Field,
)
from tests.support.fields_under_test import (
    Place,
    edges,
    in_both_places,
    ints,
    made,
    on_one_of_each,
    some,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


# --- operands ---


@in_both_places
@on_one_of_each
def test_any_integer_stands_for_an_element(gpu: Gpu, field: Field, place: Place) -> None:
    p, values = field.modulus, edges(field)
    x = made(gpu, place, field, values)
    for number in (0, 7, -1, p - 1, p, p + 1, -3 * p - 2, 2**800 + 1, np.int64(-9), np.uint8(9)):
        integer = int(number)
        assert ints(x + number) == ints(number + x) == [(v + integer) % p for v in values]
        assert ints(x * number) == ints(number * x) == [v * integer % p for v in values]
        assert ints(x - number) == [(v - integer) % p for v in values]
        assert ints(number - x) == [(integer - v) % p for v in values]
        assert (x == number).tolist() == [v == integer % p for v in values]
        assert ints(field.fma(x, number, -2)) == [(v * integer - 2) % p for v in values]


@in_both_places
@on_one_of_each
def test_shorter_operands_meet_every_row(gpu: Gpu, field: Field, place: Place) -> None:
    p, shape = field.modulus, (2, 3, 5)
    cube = np.array(some(field, 30, 1), object).reshape(shape)
    square = np.array(some(field, 15, 2), object).reshape(shape[1:])
    row = np.array(some(field, 5, 3), object)
    single = np.array([5], object)
    x, y, z, one = (made(gpu, place, field, each) for each in (cube, square, row, single))
    for other, exact in ((y, square), (z, row), (one, single), (one[0], single)):
        for result, wanted in (
            (x + other, cube + exact),
            (other + x, cube + exact),
            (x - other, cube - exact),
            (x * other, cube * exact),
            (other * x, cube * exact),
            (field.fma(x, other, x), cube * exact + cube),
            (field.fma(x, x, other), cube * cube + exact),
            (field.fma(x, other, z), cube * exact + row),
            (field.fma(x, y, other), cube * square + exact),
        ):
            assert result.shape == shape
            assert ints(result) == (wanted % p).tolist()
        for found in (x == other, other == x):
            assert found.tolist() == (cube == np.broadcast_to(exact, shape)).tolist()
    assert ints(field.dot(x, z, axis=-1)) == ((cube * row).sum(axis=-1) % p).tolist()


@in_both_places
@on_one_of_each
def test_the_first_operand_may_be_the_shorter_one(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    row, rows = np.array([1, 2, 3], object), np.array([[4, 5, 6], [7, 8, 9]], object)
    x, y = (made(gpu, place, field, each) for each in (row, rows))
    assert ints(field.sub(7, x)) == [6, 5, 4]
    assert ints(x - y) == ((row - rows) % p).tolist()
    assert ints(x[0] - x) == [0, p - 1, p - 2]
    assert ints(field.fma(3, x, x)) == [4, 8, 12]
    assert ints(field.fma(x, y, 1)) == (row * rows + 1).tolist()
    assert ints(x + x.reshape(1, 3)) == [[2, 4, 6]]
    assert (x + x[:1].reshape(1, 1)).shape == (1, 3)
    assert field.sub(7, x[0]).shape == ()
    assert ints(field.select([True, False, True], 1, x)) == [1, 2, 1]


@in_both_places
def test_a_single_element_is_selected(gpu: Gpu, place: Place) -> None:
    assert ints(FR.select(True, made(gpu, place, FR, 3), 4)) == 3


@in_both_places
def test_exponents_and_moduli_may_be_of_numpy(gpu: Gpu, place: Place) -> None:
    x = made(gpu, place, FR, [2, 3])
    assert ints(x ** np.int64(3)) == [8, 27]  # type: ignore[operator]
    inverses = [pow(v, -1, FR.modulus) for v in (2, 3)]
    assert ints(x ** np.int64(-1)) == inverses  # type: ignore[operator]
    assert Field(np.int64(97)).modulus == 97  # type: ignore[arg-type]


# --- shapes ---


@in_both_places
@on_one_of_each
def test_arrays_without_elements_have_results_without_elements(
    gpu: Gpu, field: Field, place: Place
) -> None:
    for shape in ((0,), (0, 4), (3, 0)):
        x = made(gpu, place, field, np.zeros(shape, object))
        results = [x + x, x - x, x * x, -x, x**5, x**-1, field.fma(x, x, x), field.square(x)]
        results += [field.double(x), field.inverse(x), field.prefix_product(x)]
        results += [field.inverse(x, zero="error")]
        assert {result.shape for result in results} == {shape}
        assert (x.size, len(x), ints(results[0])) == (0, shape[0], np.zeros(shape).tolist())
        assert field.equal(x, x).shape == shape
        assert ints(field.sum(x)) == ints(field.dot(x, x)) == 0
        assert ints(field.sum(x, axis=-1)) == np.zeros(shape[:-1], int).tolist()


@in_both_places
@on_one_of_each
def test_arrays_without_elements_take_integers_and_rows(
    gpu: Gpu, field: Field, place: Place
) -> None:
    x, row = (made(gpu, place, field, each) for each in (np.zeros((0, 3), object), [1, 2, 3]))
    for result in (x + 7, 7 + x, x * 7, 7 - x, x + row, row * x):
        assert result.shape == (0, 3)
    assert (x == 0).shape == (0, 3)


@in_both_places
@on_one_of_each
def test_arrays_without_axes_are_single_elements(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    x, y = made(gpu, place, field, 5), made(gpu, place, field, p - 3)
    results = [x + y, x - y, y * x, -x, x**3, 7 - x, x + 7, field.inverse(x), field.square(x)]
    results.append(field.prefix_product(x))
    wanted = [2, 8, -15, -5, 125, 2, 12, pow(5, -1, p), 25, 5]
    assert [(result.shape, result.size) for result in results] == [((), 1)] * len(wanted)
    assert [ints(result) for result in results] == [value % p for value in wanted]
    assert (bool(x == 5), bool(x == y), field.equal(x, y).shape) == (True, False, ())
    row = made(gpu, place, field, [1, 2, 3])
    assert ints(row + x) == ints(x + row) == [6, 7, 8]
    assert ints(row - x) == [value % p for value in (-4, -3, -2)]


@in_both_places
@on_one_of_each
def test_slices_and_shapes_have_the_elements_that_they_say(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = np.array(some(field, 48, 1), object).reshape(3, 16)
    x, flat = made(gpu, place, field, values), values.reshape(-1).tolist()
    assert (x.shape, x.ndim, x.size, len(x)) == ((3, 16), 2, 48, 3)
    assert x.nbytes == 48 * field.prime.element_bytes
    assert ints(x[1]) == values[1].tolist()
    assert ints(x[-1][4:8]) == values[-1, 4:8].tolist()
    assert ints(x[1:]) == values[1:].tolist()
    assert ints(x[:0]) == []
    assert ints(x.reshape(48)) == ints(x.reshape(-1)) == flat
    assert ints(x.reshape(2, -1, 4)) == values.reshape(2, -1, 4).tolist()
    assert ints(x.reshape(-1)[8]) == flat[8]
    assert (
        ints(x[0] * x[2] + x[1]) == ((values[0] * values[2] + values[1]) % field.modulus).tolist()
    )
    for start in (1, 2, 3, 7):  # wherever it begins in memory
        part = x.reshape(-1)[start:]
        assert ints(part) == flat[start:]
        assert ints(part + 1) == [(value + 1) % field.modulus for value in flat[start:]]
        assert ints(part[0] * part[1]) == flat[start] * flat[start + 1] % field.modulus
    assert [ints(x[row]) for row in range(len(x))] == values.tolist()


@on_one_of_each
def test_slices_on_the_host_are_those_of_numpy(field: Field) -> None:
    values = np.array(some(field, 24, 1), object).reshape(4, 6)
    x = field.encode(values)
    for item in (np.s_[::2], np.s_[::-1], np.s_[1, 2], np.s_[1:3, ::2], np.s_[:, 4], [2, 0, 2]):
        wanted = np.array(values[item] * 2 % field.modulus, object)
        found = x[item] * 2
        assert (found.shape, ints(found)) == (wanted.shape, wanted.tolist())


def test_an_ellipsis_counts_axes_of_elements() -> None:
    x = FR.encode([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert ints(x[..., 0]) == [1, 5]
    assert ints(x[..., None, 0]) == [[1], [5]]


@in_both_places
def test_indices_may_be_of_several_axes(gpu: Gpu, place: Place) -> None:
    assert ints(made(gpu, place, FR, [[1, 2], [3, 4]])[1, 0]) == 3


@in_both_places
def test_shapes_may_be_tuples(gpu: Gpu, place: Place) -> None:
    assert made(gpu, place, FR, [1, 2, 3, 4]).reshape((2, 2)).shape == (2, 2)
