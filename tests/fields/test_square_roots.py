"""Square roots in prime fields: every square has its roots, and what is no square is named."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FQ,
    GOLDILOCKS,
    MERSENNE31,
    PALLAS_FQ,
    Field,
)
from tests.support.fields_under_test import Place, draw_elements, in_both_places, make_array

Gpu = gx.PersistentVulkanBackend


def is_square(field: Field, value: int) -> bool:
    return pow(value, (field.modulus - 1) // 2, field.modulus) in (0, 1)


@in_both_places
@pytest.mark.parametrize(
    "field", [BLS12_381_FQ, MERSENNE31, PALLAS_FQ, GOLDILOCKS], ids=lambda field: field.name
)
def test_roots_are_found_where_there_are_some(gpu: Gpu, field: Field, place: Place) -> None:
    values = [0, 1, field.modulus - 1, *draw_elements(field, 12, 1)]
    flags = np.array([is_square(field, value) for value in values])
    array = make_array(gpu, place, field, values)
    assert field.is_square(array).tolist() == flags.tolist()
    signs = [(value != 0) * (1 if flag else -1) for value, flag in zip(values, flags, strict=True)]
    assert field.legendre(array).tolist() == signs
    roots = field.sqrt(array, nonsquare="zero")
    assert roots.on_device == (place != "host")
    wanted = [value if flag else 0 for value, flag in zip(values, flags, strict=True)]
    assert [root**2 % field.modulus for root in roots.tolist()] == wanted
    assert field.sqrt(array[flags]).tolist() == roots[flags].tolist()
    with pytest.raises(ValueError, match=f"element {flags.tolist().index(False)} is not a square"):
        field.sqrt(array)


@pytest.mark.parametrize("modulus", [3, 5, 7, 11, 13, 17, 97, 193, 257])
def test_every_square_of_a_small_field_has_its_roots(modulus: int) -> None:
    field = Field(modulus)
    values = list(range(modulus))
    squares = sorted({value**2 % modulus for value in values})
    assert np.flatnonzero(field.is_square(field.encode(values))).tolist() == squares
    roots = field.sqrt(field.encode(squares)).tolist()
    assert [root**2 % modulus for root in roots] == squares


def test_what_sqrt_does_with_others_is_one_of_two() -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="nonsquare must be 'error' or 'zero'"):
        BABYBEAR.sqrt(BABYBEAR.ones(1), nonsquare="none")  # type: ignore[arg-type]
