"""Arguments that few callers pass: they work as NumPy's do, or are refused in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError

G, B = gx.fields.GOLDILOCKS, gx.fields.BABYBEAR
Gpu = gx.PersistentVulkanBackend
in_both_places = pytest.mark.parametrize("place", ["host", "device"])


def put(gpu: Gpu, place: str, array: gx.FieldArray) -> gx.FieldArray:
    return gpu.to_device(array) if place == "device" else array


@in_both_places
@pytest.mark.parametrize(
    "coset", [np.int64(2**62 + 1), np.uint8(200), np.uint64(5), 2**70 + 3, -7], ids=repr
)
def test_a_coset_of_any_integer_type(gpu: Gpu, place: str, coset: Any) -> None:
    x = put(gpu, place, B.arange(8))
    factor = int(coset) % B.modulus
    assert B.ntt(x, coset=coset).tolist() == B.ntt(x, coset=factor).tolist()
    assert B.intt(B.ntt(x, coset=coset), coset=coset).tolist() == list(range(8))
    assert B.lde(x, 2, coset).tolist() == B.lde(x, 2, factor).tolist()


def test_arrays_are_not_encoded_again() -> None:
    for given in (G.encode(3), G.encode([[1], [2]]), G.zeros((2, 2))):
        with pytest.raises(ArgumentTypeError, match="encode takes integers, not an array of"):
            G.encode(given)
    with pytest.raises(ArgumentTypeError, match="is of type FieldArray, not an integer"):
        G.encode([G.encode([1]), G.encode([2])])
    assert G.encode([G.encode(1), G.encode(2)]).tolist() == [1, 2]


@in_both_places
def test_shapes_of_a_division_are_checked_before_its_divisors(gpu: Gpu, place: str) -> None:
    x, y = (put(gpu, place, G.arange(count)) for count in (2, 3))
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast"):
        x / y
    gpu.synchronize()
    empty = put(gpu, place, G.zeros((0,))) / put(gpu, place, G.encode(0))
    assert empty.tolist() == []
    gpu.synchronize()


@in_both_places
def test_empty_arrays_of_other_shapes_are_not_assigned(gpu: Gpu, place: str) -> None:
    x = put(gpu, place, G.zeros((3, 0)))
    with pytest.raises(ArgumentShapeError, match=re.escape("(0, 3, 0) cannot be assigned")):
        x[...] = put(gpu, place, G.zeros((0, 3, 0)))
    x[...] = put(gpu, place, G.zeros((1, 3, 0)))


@in_both_places
def test_a_product_over_an_axis_of_no_elements(gpu: Gpu, place: str) -> None:
    a, b = (put(gpu, place, G.zeros(shape)) for shape in ((2, 0), (3, 0, 2)))
    assert a.dot(b).tolist() == np.zeros((2, 3, 2), int).tolist()


def test_axes_in_an_array() -> None:
    x = G.arange(6).reshape(2, 3)
    assert np.transpose(x, np.array([1, 0])).tolist() == x.transpose().tolist() == x.T.tolist()


@pytest.mark.parametrize("width", ["4", 4.5, True, 10**30, 0])
def test_widths_that_are_none(width: Any) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentShapeError), match="width is"):
        G.to_bytes(G.arange(3), width=width)


def test_bytes_that_are_not_contiguous() -> None:
    with pytest.raises(ArgumentTypeError, match="expected contiguous bytes"):
        G.from_bytes(memoryview(bytes(16))[::2])


Q = gx.ExtensionField(B, 11)
BOOLEANS: list[Any] = [
    True, [True, 2], [2, True], (2, True), [2, np.True_], [[2, 3], [4, False]],
    np.array([2, True], object), np.array([True, False]), np.array([[2, 3], [4, np.True_]], object),
    [np.array([2, 3]), np.array([True, True])], [[True], [2]],
]  # fmt: skip


@pytest.mark.parametrize("field", [B, G, gx.fields.BLS12_381_FR, Q], ids=lambda field: field.name)
def test_booleans_are_no_elements_wherever_they_are(gpu: Gpu, field: Any) -> None:
    for given in BOOLEANS:
        for reduce in (False, True):
            with pytest.raises(ArgumentTypeError, match=r"bool|True|False"):
                field.encode(given, reduce=reduce)
    for place in ("host", "device"):
        x = put(gpu, place, field.encode([2, 3]))
        for given in (True, np.False_, [True, 2], [2, True], np.array([2, True], object)):
            with pytest.raises(ArgumentTypeError, match=r"bool|True|False"):
                x[...] = given
        calls: list[Callable[[Any], Any]] = [
            lambda x: x + True,
            lambda x: True * x,
            lambda x: x / np.True_,
            lambda x: x**True,
            lambda x: field.fma(x, 2, False),
            lambda x: field.where([1, 0], x, True),
            lambda _: field.full(2, True),
            lambda _: field.arange(True),
        ]
        for call in calls:
            with pytest.raises(ArgumentTypeError, match="bool"):
                call(x)
        assert x.tolist() == field.encode([2, 3]).tolist()


def test_booleans_in_tuples_are_no_coefficients() -> None:
    x = Q.encode([(1, 2), (3, 4)])
    for given in ((True, 2), (2, True), (2, np.True_)):
        with pytest.raises(ArgumentTypeError, match="neither an integer nor a tuple"):
            Q.encode([given])
        with pytest.raises(ArgumentTypeError, match="neither an integer nor a tuple"):
            x * given
    with pytest.raises(ArgumentTypeError):
        gx.ExtensionField(B, True)


@in_both_places
def test_numbers_of_every_type_are_compared_alike(gpu: Gpu, place: str) -> None:
    """Booleans and floats equal the integers that they are equal to, alone and in lists."""
    x = put(gpu, place, B.encode([0, 1, 2]))
    for one in (1, True, np.True_, 1.0, np.float32(1), np.int8(1), B.modulus + 1):
        assert (x == one).tolist() == [False, True, False]
        assert (x == [one] * 3).tolist() == [False, True, False]
        assert (x == np.array([0, one, one], object)).tolist() == [True, True, False]
        assert (x != [0, one, 5]).tolist() == [False, False, True]
    assert (x == np.array([False, True, True])).tolist() == [True, True, False]
    assert (x == np.array([0.0, 1.0, 3.0])).tolist() == [True, True, False]
    assert (x == np.array([-0.0, 1.0, 2.0], np.float32)).tolist() == [True, True, True]
    assert (x == 0.5).tolist() == [False, False, False]
    pairs = Q.encode([(0, 1), (1, 0)])
    assert (pairs == [(False, True), (1.0, 0)]).tolist() == [True, True]
    assert (pairs == [(0, 1), True]).tolist() == [True, True]
