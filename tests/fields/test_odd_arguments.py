"""Arguments that few callers pass: they work as NumPy's do, or are refused in words."""

from __future__ import annotations

import re
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
