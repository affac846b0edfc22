"""Methods and conversions of arrays as in NumPy, on the host and on a device."""

from __future__ import annotations

import copy
import operator
import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field, FieldArray
from tests.support.fields_under_test import (
    Place,
    check_elements,
    draw_ints,
    in_every_place,
    make_array,
    on_three_fields,
)

Gpu = gx.PersistentVulkanBackend
Ints = np.ndarray[Any, np.dtype[np.object_]]


# --- over many elements ---


@in_every_place
@on_three_fields
def test_sums_and_products_over_any_axes(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, (3, 4, 5))
    x = make_array(gpu, place, field, a)
    axes = [None, *range(-3, 3), *combinations(range(3), 2), (2, 0), (0, 1, 2), (-1, 0), ()]
    for axis in axes:
        check_elements(x.sum(axis), a.sum(axis=axis), place)
        check_elements(x.prod(axis), a.prod(axis=axis), place)
        check_elements(x.sum(axis, keepdims=True), a.sum(axis=axis, keepdims=True), place)
    for axis in range(-3, 3):
        check_elements(field.vecdot(x, x, axis=axis), (a * a).sum(axis=axis), place)
    check_elements(field.prod(x[:, ::2], axis=1), a[:, ::2].prod(axis=1), place)


@in_every_place
def test_long_products(gpu: Gpu, place: Place) -> None:
    a = draw_ints(GOLDILOCKS, (2, 2500))
    a[a == 0] = 3
    x = make_array(gpu, place, GOLDILOCKS, a)
    check_elements(x.prod(axis=1), a.prod(axis=1), place)
    check_elements(x.prod(), a.prod(), place)


@in_every_place
def test_sums_and_products_of_nothing(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, np.zeros((0, 3), object))
    check_elements(x.sum(), 0, place)
    check_elements(x.prod(), 1, place)
    check_elements(x.sum(axis=0), [0, 0, 0], place)
    check_elements(x.prod(axis=0), [1, 1, 1], place)
    assert x.prod(axis=1).shape == (0,)


@in_every_place
def test_axes_that_do_not_exist_are_rejected(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [[1, 2], [3, 4]])
    for axis in (2, -3, (0, 0), (0, -2)):
        with pytest.raises(ArgumentShapeError, match="does not name axes"):
            x.sum(axis)
    with pytest.raises(ArgumentTypeError, match="axis must be an integer"):
        x.sum("0")  # type: ignore[arg-type]


# --- shape ---


@in_every_place
@on_three_fields
def test_shapes_follow_numpy(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, (2, 3, 4))
    x = make_array(gpu, place, field, a)
    assert (x.ndim, x.size, x.shape, len(x)) == (3, 24, (2, 3, 4), 2)
    check_elements(x.T, a.T, place)
    check_elements(x.transpose(1, 0, 2), a.transpose(1, 0, 2), place)
    check_elements(x.transpose((-1, 0, 1)), a.transpose((-1, 0, 1)), place)
    check_elements(x.transpose(), a.transpose(), place)
    check_elements(x.T.reshape(4, 6), a.T.reshape(4, 6), place)
    check_elements(x.reshape((6, -1)), a.reshape((6, -1)), place)
    check_elements(x[::2, :, 1:].reshape(-1), a[::2, :, 1:].reshape(-1), place)
    check_elements(x.T.flatten(), a.T.flatten(), place)
    check_elements(x.ravel(), a.ravel(), place)
    check_elements(x[0, 0, 0].T, a[0, 0, 0], place)
    for bad in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with pytest.raises(ArgumentShapeError):
            x.transpose(bad)
    for wrong in ((5, 5), (-1, -1), (-2, 12), (7, -1), (0, -1)):
        with pytest.raises(ArgumentShapeError, match="cannot be reshaped"):
            x.reshape(wrong)


@in_every_place
def test_transposed_and_reshaped_arrays_are_views(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BLS12_381_FR, [[1, 2], [3, 4]])
    x.T[0] = [7, 8]
    x.reshape(-1)[1] = 9
    check_elements(x, [[7, 9], [8, 4]], place)
    x.flatten()[0] = 1
    x.copy()[0] = 1
    check_elements(x, [[7, 9], [8, 4]], place)


# --- one element ---


@in_every_place
@on_three_fields
def test_one_element_is_a_number(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    x = make_array(gpu, place, field, [0, 5, p - 1])
    assert [int(each) for each in x] == [operator.index(each) for each in x] == [0, 5, p - 1]
    assert [bool(each) for each in x] == [False, True, True]
    assert int(x[1:2]) == 5
    assert bool(x[1:2].reshape(1, 1))
    assert list(range(10))[x[1]] == 5
    assert x[1].item() == 5
    for convert in (int, bool, operator.index, FieldArray.item):
        for wrong in (x, x[:0]):
            with pytest.raises((ArgumentShapeError, ArgumentTypeError), match="of shape"):
                convert(wrong)


def test_elements_are_no_exponents() -> None:
    x = BABYBEAR.encode([3])
    with pytest.raises(ArgumentTypeError, match="the exponent must be an integer, not FieldArray"):
        x ** x[0]  # type: ignore[operator]


# --- conversion ---


@in_every_place
@on_three_fields
def test_numpy_arrays_of_an_array_have_canonical_words(
    gpu: Gpu, field: Field, place: Place
) -> None:
    p = field.modulus
    host = field.encode([[1, p - 1], [2, 3]])
    words = host.numpy()
    for x in (make_array(gpu, place, field, host.ints()), host.in_form(field.form)):
        found = np.asarray(x)
        assert found.dtype == field.prime.column_dtype
        np.testing.assert_array_equal(found, words)
        np.testing.assert_array_equal(np.array(x, copy=True), words)
        with pytest.raises(ArgumentTypeError, match="tolist\\(\\) returns Python integers"):
            np.asarray(x, dtype=object)
        with pytest.raises(ArgumentTypeError, match="not of float64"):
            np.asarray(x, dtype=float)
        np.testing.assert_array_equal(x.numpy(), words)
        assert field.from_words(x.words(), x.form).tolist() == host.tolist()
        stored = [
            [each * (field.prime.r_mod_p if x.form == "montgomery" else 1) % p for each in row]
            for row in host.tolist()
        ]
        assert field.from_words(x.words(), "canonical").tolist() == stored
        np.testing.assert_array_equal(x.to_bytes(), field.to_bytes(host))
        assert x.to_bytes(byteorder="little", width=40)[1, 0, 0] == 2
    assert np.shares_memory(np.asarray(host), words)
    assert not np.shares_memory(np.array(host), words)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(host)[0, 0] = 1
    with pytest.raises(ValueError, match="copy=False"):
        np.array(gpu.to_device(host), copy=False)


@in_every_place
def test_numpy_functions_compute_in_the_field_or_raise(gpu: Gpu, place: Place) -> None:
    a, b = draw_ints(GOLDILOCKS, (2, 3)), draw_ints(GOLDILOCKS, (2, 3), 2)
    x, y = (make_array(gpu, place, GOLDILOCKS, each) for each in (a, b))
    check_elements(np.sum(x, axis=0), a.sum(axis=0), place)
    check_elements(np.prod(x), a.prod(), place)
    check_elements(np.dot(x, y.T), a @ b.T, place)
    check_elements(np.concatenate([x, y], axis=1), np.concatenate([a, b], axis=1), place)
    check_elements(np.stack([x, y], axis=-1), np.stack([a, b], axis=-1), place)
    check_elements(np.where(a > b, x, y), np.where(a > b, a, b), place)
    check_elements(np.reshape(x, (3, 2)), a.reshape(3, 2), place)
    check_elements(np.transpose(x), a.T, place)
    check_elements(np.copy(x), a, place)
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 3), 2, 6)
    assert np.array_equal(x, x.copy())
    assert not np.array_equal(x, y)
    functions: list[Any] = [np.diff, np.linalg.det, np.mean, np.sort, np.add.reduce, np.exp]
    for function in functions:
        with pytest.raises(TypeError):
            function(x)
    add: Any = np.add
    check_elements(add(x, y), a + b, place)
    check_elements(np.subtract(5, x), 5 - a, place)
    check_elements(np.multiply(np.int64(3), x), 3 * a, place)
    check_elements(np.square(x), a * a, place)
    check_elements(np.power(x, 3), a**3, place)
    check_elements(np.negative(x) + np.positive(x), 0 * a, place)
    check_elements(np.matmul(x, y.T), a @ b.T, place)
    check_elements(np.divide(np.multiply(x, 7), 7), a, place)
    assert np.equal(x, a).all()
    assert np.not_equal(x, a + 1).all()
    assert (a == x).all()
    for options in ({"out": x}, {"where": a > 0}):
        with pytest.raises(ArgumentTypeError, match="takes no option"):
            add(x, y, **options)
    with pytest.raises(ArgumentTypeError, match="encode\\(values\\) makes a FieldArray"):
        a + x


@in_every_place
@on_three_fields
def test_arrays_are_joined(gpu: Gpu, field: Field, place: Place) -> None:
    a, b, c = draw_ints(field, (2, 3), 1), draw_ints(field, (2, 1), 2), draw_ints(field, (0, 3), 3)
    x, y, z = (make_array(gpu, place, field, each) for each in (a, b, c))
    check_elements(field.concatenate([x, y, x], axis=1), np.concatenate([a, b, a], axis=1), place)
    check_elements(field.concatenate([x, z, x]), np.concatenate([a, c, a]), place)
    check_elements(
        field.concatenate([x.T, x[:, ::-1].T], axis=-1), np.hstack([a.T, a[:, ::-1].T]), place
    )
    for axis in (0, 1, 2, -1, -3):
        check_elements(
            field.stack([x, x[::-1]], axis=axis), np.stack([a, a[::-1]], axis=axis), place
        )
    check_elements(field.stack([x[0, 0], x[0, 1]]), [a[0, 0], a[0, 1]], place)
    for bad in ([x, y], [x, x[0]], []):
        with pytest.raises(ArgumentShapeError):
            field.concatenate(bad)
        with pytest.raises(ArgumentShapeError):
            field.stack(bad)
    with pytest.raises(ArgumentShapeError, match="axis 2"):
        field.concatenate([x, x], axis=2)


def test_arrays_are_joined_in_one_form_and_one_place(gpu: Gpu) -> None:
    x = BLS12_381_FR.encode([1, 2])
    assert BLS12_381_FR.concatenate([x, x.in_form("montgomery")]).tolist() == [1, 2, 1, 2]
    with pytest.raises(ArgumentTypeError, match="in different places"):
        BLS12_381_FR.concatenate([x, gpu.to_device(x)])


@on_three_fields
def test_arrays_are_made_from_a_shape(field: Field) -> None:
    p = field.modulus
    assert field.zeros((2, 3)).tolist() == [[0] * 3] * 2
    assert field.ones(2).tolist() == [1, 1]
    assert field.full((1, 2), -1).tolist() == [[p - 1, p - 1]]
    assert field.full((), p + 4).tolist() == 4
    assert field.arange(4).tolist() == [0, 1, 2, 3]
    assert field.arange(3, -2, -2).tolist() == [3, 1, p - 1]
    zeros = field.zeros(3)
    zeros[1] = 5
    assert zeros.tolist() == [0, 5, 0]


@on_three_fields
def test_random_elements_are_spread_and_repeatable(field: Field) -> None:
    x = field.random((50, 40), seed=1)
    values = x.reshape(-1).tolist()
    assert (x.shape, values) == ((50, 40), field.random(2000, seed=1).tolist())
    assert len(set(values)) > 1990
    assert all(0 <= value < field.modulus for value in values)
    assert 0.45 < sum(value / field.modulus for value in values) / 2000 < 0.55
    assert field.random(3).tolist() != field.random(3).tolist()
    assert field.random((), seed=1).tolist() == values[0]


# --- copies ---


@in_every_place
@on_three_fields
def test_arrays_are_pickled_and_come_back_on_the_host(gpu: Gpu, field: Field, place: Place) -> None:
    a = draw_ints(field, (2, 3))
    x = make_array(gpu, place, field, a)
    for each in (x, x[:, ::-1], x[0, 0]):
        again = pickle.loads(pickle.dumps(each))
        assert (again.field, again.form, again.on_device) == (field, x.form, False)
        assert again.tolist() == each.tolist()
    assert pickle.loads(pickle.dumps(x)).field is field


def test_fields_are_pickled() -> None:
    for field in (Field(97), Field(97, name="own"), Field(13, factors=[3])):
        again = pickle.loads(pickle.dumps(field))
        assert (again, again.name, again.prime) == (field, field.name, field.prime)


@in_every_place
def test_copies_are_in_the_same_place(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [1, 2])
    for make in (copy.copy, copy.deepcopy, FieldArray.copy):
        made = make(x)
        made[0] = 7
        check_elements(made, [7, 2], place)
        check_elements(x, [1, 2], place)


# --- repr ---


def test_repr_shows_values(gpu: Gpu) -> None:
    host = BLS12_381_FR.encode([[1, 2], [3, 4]])
    assert repr(host) == "<FieldArray (2, 2) of bls12_381_fr on the host: [[1, 2], [3, 4]]>"
    there = gpu.to_device(host)
    assert repr(there) == "<FieldArray (2, 2) of bls12_381_fr on the device: [[1, 2], [3, 4]]>"
    assert repr(host[1, 1]) == "<FieldArray () of bls12_381_fr on the host: 4>"
    assert repr(host[:0]) == "<FieldArray (0, 2) of bls12_381_fr on the host: []>"
    assert repr(BLS12_381_FR) == "<Field bls12_381_fr>"


@in_every_place
def test_repr_shortens_large_arrays(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, np.arange(100_000).reshape(2, -1))
    shown = "host" if place == "host" else "device"
    assert repr(x) == (
        f"<FieldArray (2, 50000) of babybear on the {shown}: [[0, 1, 2, ..., 49997, 49998, 49999], "
        "[50000, 50001, 50002, ..., 99997, 99998, 99999]]>"
    )


def test_repr_records_nothing_in_a_graph(gpu: Gpu) -> None:
    x = gpu.to_device(BABYBEAR.encode([1, 2]))
    with gpu.graph(x) as run:
        y = x + 1
        assert repr(y) == "<FieldArray (2,) of babybear on the device, montgomery form>"
    assert len(run) == 1
    run()
    assert repr(y) == "<FieldArray (2,) of babybear on the device: [2, 3]>"


# --- names in errors ---


def test_errors_tell_two_moduli_apart() -> None:
    with pytest.raises(ArgumentTypeError, match=r"an array of prime 11 was given .* of prime 13"):
        Field(13).encode([1]) + Field(11).encode([1])
    with pytest.raises(ArgumentTypeError, match=r"of own modulo 11 was given .* of own modulo 13"):
        Field(13, name="own").encode([1]) + Field(11, name="own").encode([1])
    large = Field(2**61 - 1), Field(2**224 - 63)
    assert [field.name for field in large] == [
        f"prime {2**61 - 1}",
        "prime 0xffffffff...ffffffc1 of 224 bits",
    ]


def test_remainders_do_not_share_memory_with_the_polynomial(gpu: Gpu) -> None:
    for x in (BABYBEAR.encode([1, 2, 3]), gpu.to_device(BABYBEAR.encode([1, 2, 3]))):
        _, remainder = BABYBEAR.poly_divide_vanishing(x.in_form("montgomery"), 3)
        remainder += 1
        assert x.tolist() == [1, 2, 3]
