"""Operands and shapes, on the host and on a device: integers, broadcasting, empty arrays, arrays
without axes, slices."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.fields import (
    BLS12_381_FR,
    Field,
)
from gpu_executor.primes import words
from tests.support.fields_under_test import (
    Place,
    draw_elements,
    in_every_place,
    list_edge_values,
    make_array,
    on_one_of_each,
    to_ints,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


# --- operands ---


@in_every_place
@on_one_of_each
def test_any_integer_stands_for_an_element(gpu: Gpu, field: Field, place: Place) -> None:
    p, values = field.modulus, list_edge_values(field)
    x = make_array(gpu, place, field, values)
    for number in (0, 7, -1, p - 1, p, p + 1, -3 * p - 2, 2**800 + 1, np.int64(-9), np.uint8(9)):
        integer = int(number)
        assert to_ints(x + number) == to_ints(number + x) == [(v + integer) % p for v in values]
        assert to_ints(x * number) == to_ints(number * x) == [v * integer % p for v in values]
        assert to_ints(x - number) == [(v - integer) % p for v in values]
        assert to_ints(number - x) == [(integer - v) % p for v in values]
        assert (x == number).tolist() == [v == integer % p for v in values]
        assert to_ints(field.fma(x, number, -2)) == [(v * integer - 2) % p for v in values]


@in_every_place
@on_one_of_each
def test_shorter_operands_are_broadcast_over_rows(gpu: Gpu, field: Field, place: Place) -> None:
    p, shape = field.modulus, (2, 3, 5)
    cube = np.array(draw_elements(field, 30, 1), object).reshape(shape)
    square = np.array(draw_elements(field, 15, 2), object).reshape(shape[1:])
    row = np.array(draw_elements(field, 5, 3), object)
    single = np.array([5], object)
    x, y, z, one = (make_array(gpu, place, field, each) for each in (cube, square, row, single))
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
            assert to_ints(result) == (wanted % p).tolist()
        for found in (x == other, other == x):
            assert found.tolist() == (cube == np.broadcast_to(exact, shape)).tolist()
    assert to_ints(field.vecdot(x, z)) == ((cube * row).sum(axis=-1) % p).tolist()


@in_every_place
@on_one_of_each
def test_the_first_operand_may_be_the_shorter_one(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    row, rows = np.array([1, 2, 3], object), np.array([[4, 5, 6], [7, 8, 9]], object)
    x, y = (make_array(gpu, place, field, each) for each in (row, rows))
    assert to_ints(field.sub(7, x)) == [6, 5, 4]
    assert to_ints(x - y) == ((row - rows) % p).tolist()
    assert to_ints(x[0] - x) == [0, p - 1, p - 2]
    assert to_ints(field.fma(3, x, x)) == [4, 8, 12]
    assert to_ints(field.fma(x, y, 1)) == (row * rows + 1).tolist()
    assert to_ints(x + x.reshape(1, 3)) == [[2, 4, 6]]
    assert (x + x[:1].reshape(1, 1)).shape == (1, 3)
    assert field.sub(7, x[0]).shape == ()
    assert to_ints(field.select([True, False, True], 1, x)) == [1, 2, 1]


@in_every_place
def test_select_works_without_axes(gpu: Gpu, place: Place) -> None:
    assert to_ints(FR.select(True, make_array(gpu, place, FR, 3), 4)) == 3


@in_every_place
def test_exponents_and_moduli_may_be_numpy_integers(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, FR, [2, 3])
    assert to_ints(x ** np.int64(3)) == [8, 27]  # type: ignore[operator]
    inverses = [pow(v, -1, FR.modulus) for v in (2, 3)]
    assert to_ints(x ** np.int64(-1)) == inverses  # type: ignore[operator]
    assert Field(np.int64(97)).modulus == 97  # type: ignore[arg-type]


# --- shapes ---


@in_every_place
@on_one_of_each
def test_empty_arrays_have_empty_results(gpu: Gpu, field: Field, place: Place) -> None:
    for shape in ((0,), (0, 4), (3, 0)):
        x = make_array(gpu, place, field, np.zeros(shape, object))
        results = [x + x, x - x, x * x, -x, x**5, x**-1, field.fma(x, x, x), field.square(x)]
        results += [field.double(x), field.inverse(x), field.prefix_product(x)]
        results += [field.inverse(x, zero="error")]
        assert {result.shape for result in results} == {shape}
        assert (x.size, len(x), to_ints(results[0])) == (0, shape[0], np.zeros(shape).tolist())
        assert field.equal(x, x).shape == shape
        assert to_ints(field.sum(x)) == to_ints(field.vecdot(x, x).sum()) == 0
        assert to_ints(field.sum(x, axis=-1)) == np.zeros(shape[:-1], int).tolist()


@in_every_place
@on_one_of_each
def test_empty_arrays_take_integers_and_rows_as_operands(
    gpu: Gpu, field: Field, place: Place
) -> None:
    x, row = (make_array(gpu, place, field, each) for each in (np.zeros((0, 3), object), [1, 2, 3]))
    for result in (x + 7, 7 + x, x * 7, 7 - x, x + row, row * x):
        assert result.shape == (0, 3)
    assert (x == 0).shape == (0, 3)


@in_every_place
@on_one_of_each
def test_arrays_without_axes_are_single_elements(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    x, y = make_array(gpu, place, field, 5), make_array(gpu, place, field, p - 3)
    results = [x + y, x - y, y * x, -x, x**3, 7 - x, x + 7, field.inverse(x), field.square(x)]
    results.append(field.prefix_product(x))
    wanted = [2, 8, -15, -5, 125, 2, 12, pow(5, -1, p), 25, 5]
    assert [(result.shape, result.size) for result in results] == [((), 1)] * len(wanted)
    assert [to_ints(result) for result in results] == [value % p for value in wanted]
    assert (bool(x == 5), bool(x == y), field.equal(x, y).shape) == (True, False, ())
    row = make_array(gpu, place, field, [1, 2, 3])
    assert to_ints(row + x) == to_ints(x + row) == [6, 7, 8]
    assert to_ints(row - x) == [value % p for value in (-4, -3, -2)]


@in_every_place
@on_one_of_each
def test_slices_and_reshaped_arrays_have_the_right_elements(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = np.array(draw_elements(field, 48, 1), object).reshape(3, 16)
    x, flat = make_array(gpu, place, field, values), values.reshape(-1).tolist()
    assert (x.shape, x.ndim, x.size, len(x)) == ((3, 16), 2, 48, 3)
    assert x.nbytes == 48 * field.prime.element_bytes
    assert to_ints(x[1]) == values[1].tolist()
    assert to_ints(x[-1][4:8]) == values[-1, 4:8].tolist()
    assert to_ints(x[1:]) == values[1:].tolist()
    assert to_ints(x[:0]) == []
    assert to_ints(x.reshape(48)) == to_ints(x.reshape(-1)) == flat
    assert to_ints(x.reshape(2, -1, 4)) == values.reshape(2, -1, 4).tolist()
    assert to_ints(x.reshape(-1)[8]) == flat[8]
    assert (
        to_ints(x[0] * x[2] + x[1])
        == ((values[0] * values[2] + values[1]) % field.modulus).tolist()
    )
    for start in (1, 2, 3, 7):  # at any offset in memory
        part = x.reshape(-1)[start:]
        assert to_ints(part) == flat[start:]
        assert to_ints(part + 1) == [(value + 1) % field.modulus for value in flat[start:]]
        assert to_ints(part[0] * part[1]) == flat[start] * flat[start + 1] % field.modulus
    assert [to_ints(x[row]) for row in range(len(x))] == values.tolist()


@on_one_of_each
def test_host_arrays_are_indexed_as_numpy_arrays(field: Field) -> None:
    values = np.array(draw_elements(field, 24, 1), object).reshape(4, 6)
    x = field.encode(values)
    for item in (np.s_[::2], np.s_[::-1], np.s_[1, 2], np.s_[1:3, ::2], np.s_[:, 4], [2, 0, 2]):
        wanted = np.array(values[item] * 2 % field.modulus, object)
        found = x[item] * 2
        assert (found.shape, to_ints(found)) == (wanted.shape, wanted.tolist())


def test_an_ellipsis_counts_axes_of_elements() -> None:
    x = FR.encode([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert to_ints(x[..., 0]) == [1, 5]
    assert to_ints(x[..., None, 0]) == [[1], [5]]


@in_every_place
def test_an_index_may_have_several_axes(gpu: Gpu, place: Place) -> None:
    assert to_ints(make_array(gpu, place, FR, [[1, 2], [3, 4]])[1, 0]) == 3


@in_every_place
def test_reshape_takes_a_tuple(gpu: Gpu, place: Place) -> None:
    assert make_array(gpu, place, FR, [1, 2, 3, 4]).reshape((2, 2)).shape == (2, 2)


# --- words ---


def test_from_words_copies_what_it_has_checked() -> None:
    data = words.from_ints(FR.prime, [1, 2, 3])
    array = FR.from_words(data, "canonical")
    data[...] = np.iinfo(data.dtype).max
    assert to_ints(array) == [1, 2, 3]
    with pytest.raises(ArgumentTypeError, match="words is a masked array"):
        FR.from_words(np.ma.MaskedArray(data), "canonical")


def test_the_words_of_an_array_on_the_host_are_read_only() -> None:
    array = FR.encode([1, 2, 3])
    with pytest.raises(ValueError, match="read-only"):
        array.numpy()[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        array[1].to_host().words()[...] = 5
    assert to_ints(array) == [1, 2, 3]
