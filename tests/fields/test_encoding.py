"""Conversions between integers, bytes, words and elements, on the host and on a device."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
)
from tests.support.fields_under_test import (
    NAMED,
    Place,
    draw_elements,
    in_both_places,
    list_edge_values,
    make_array,
    on_conforming_fields,
    on_every_field,
    to_ints,
    to_words,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


@in_both_places
@on_every_field
def test_integers_survive_conversion_to_elements_and_back(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 50, 1)]
    array = make_array(gpu, place, field, values)
    assert array.ints().dtype == object
    assert to_ints(array) == values
    assert to_ints(array.to_host()) == values
    reduced = field.encode([-1, field.modulus, 2**900 + 1], reduce=True)
    assert to_ints(reduced) == [field.modulus - 1, 0, (2**900 + 1) % field.modulus]


@in_both_places
@pytest.mark.parametrize("byteorder", ["big", "little"])
@on_conforming_fields
def test_bytes_survive_conversion_to_elements_and_back(
    gpu: Gpu, field: Field, byteorder: Any, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 50, 1)]
    usual = -(-field.modulus.bit_length() // 8)
    for width, asked in ((usual, None), (usual + 5, usual + 5)):
        data = b"".join(value.to_bytes(width, byteorder) for value in values)
        array = field.from_bytes(data, byteorder=byteorder, width=asked)
        if place == "device":
            array = gpu.to_device(array)
        assert to_ints(array) == values
        found = field.to_bytes(array, byteorder=byteorder, width=asked)
        assert (found.shape, found.tobytes()) == ((len(values), width), data)
        again = field.from_bytes(found.reshape(1, -1, width), byteorder=byteorder, width=asked)
        assert (again.shape, to_ints(again)) == ((1, len(values)), [values])


@in_both_places
@on_conforming_fields
def test_canonical_and_montgomery_words_are_the_same_elements(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 20, 1)]
    plain = to_words(field, values)
    arrays = [field.from_words(plain, "canonical")]
    np.testing.assert_array_equal(field.encode(values).numpy(), plain)
    if field.form == "montgomery":
        r = 2 ** (32 * field.prime.words)
        by_r = to_words(field, [value * r % field.modulus for value in values])
        arrays.append(field.from_words(by_r, "montgomery"))
    assert [array.form for array in arrays] == ["canonical", "montgomery"][: len(arrays)]
    if place == "device":
        arrays = [gpu.to_device(array) for array in arrays]
        assert {array.form for array in arrays} == {field.form}
    for array, other in product(arrays, repeat=2):
        assert to_ints(array) == values
        assert (array == other).all()
        assert to_ints(array + other) == [2 * value % field.modulus for value in values]
        np.testing.assert_array_equal(array.in_form("canonical").numpy(), plain)
        if field.form == "montgomery":
            np.testing.assert_array_equal(array.in_form("montgomery").numpy(), by_r)


def test_only_goldilocks_and_mersenne31_compute_in_canonical_form() -> None:
    canonical = {field.name for field in NAMED if field.form == "canonical"}
    assert canonical == {"goldilocks", "mersenne31"}
    assert {Field(field.modulus).form for field in (GOLDILOCKS, MERSENNE31)} == {"canonical"}
