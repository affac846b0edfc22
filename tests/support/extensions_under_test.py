"""Extension fields of every degree and kernel family, and FLINT's elements to compare with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from flint import fmpz_mod_ctx, fmpz_mod_poly_ctx, fmpz_poly, fq_default, fq_default_ctx

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_377_FQ2,
    BLS12_381_FQ2,
    GOLDILOCKS,
    GOLDILOCKS2,
    GOLDILOCKS3,
    MERSENNE31,
    ExtensionArray,
    ExtensionField,
    Field,
)
from tests.support.fields_under_test import CPU, FULL96, Place, draw_elements

BABYBEAR4 = ExtensionField(BABYBEAR, 11, 4)
MERSENNE2 = ExtensionField(MERSENNE31, -1)
TINY2 = ExtensionField(Field(17), 3)
TINY3 = ExtensionField(Field(7), 2, 3)
CUBIC = ExtensionField(GOLDILOCKS, 7, 3)
FIBONACCI = ExtensionField(Field(7), polynomial=(-3, -1, 1))
"""Degree 2, and u^2 = u + 3 is not in the base."""
QUARTIC = ExtensionField(BABYBEAR, polynomial=(1, 1234567, 8, 0, 1))
"""Degree 4, with coefficients that are not multiplied by additions."""
WIDE4 = ExtensionField(FULL96, 5**31, 4, name="96 bits, degree 4")
"""An odd number of words, and a nonresidue that is not multiplied by additions."""
TOWER = ExtensionField(ExtensionField(BABYBEAR, 11), (0, 1))
"""v^2 = u and u^2 = 11, so v^4 = 11."""
ODD_TOWER = ExtensionField(ExtensionField(Field(7), -1), polynomial=((1, 5), (0, 1), 0, 1))
"""A tower whose upper extension has a polynomial of three terms."""
UNEVEN_TOWER = ExtensionField(ExtensionField(Field(7), -1), (1, 2), 4)
"""4 does not divide 7 - 1: x -> x^7 moves coefficients."""
EXTENSIONS = [
    *(BLS12_381_FQ2, BLS12_377_FQ2, GOLDILOCKS2, MERSENNE2, TINY2),
    *(TINY3, BABYBEAR4, WIDE4, TOWER, GOLDILOCKS3, CUBIC, FIBONACCI, QUARTIC),
]
"""The fields that FLINT has too."""

on_every_extension = pytest.mark.parametrize("field", EXTENSIONS, ids=lambda field: field.name)
on_few_extensions = pytest.mark.parametrize(
    "field", [BLS12_381_FQ2, BABYBEAR4, TOWER], ids=lambda field: field.name
)
"""Degree 2 and a wide prime, degree 4 and a small prime, a tower."""


def _list_powers(field: ExtensionField) -> list[int]:
    """For each integer of an element, the power of FLINT's generator that it belongs to."""
    return [0, 2, 1, 3] if field is TOWER else list(range(field.degree))


@cache
def make_context(field: ExtensionField) -> fq_default_ctx:
    """FLINT's field: the polynomials modulo that of the field."""
    ring = fmpz_mod_poly_ctx(fmpz_mod_ctx(field.modulus))
    return fq_default_ctx(
        modulus=ring([-11, 0, 0, 0, 1] if field is TOWER else list(field.polynomial))
    )


def to_flint(field: ExtensionField, values: Sequence[Any]) -> list[fq_default]:
    """Elements, given as tuples, as FLINT's."""
    context, powers = make_context(field), _list_powers(field)
    found: list[fq_default] = []
    for value in values:
        coefficients = [0] * len(powers)
        for power, integer in zip(powers, list_integers(value), strict=True):
            coefficients[power] = integer
        found.append(context(fmpz_poly(coefficients)))
    return found


def from_flint(field: ExtensionField, elements: Sequence[fq_default]) -> list[Any]:
    """FLINT's elements as tuples."""
    found = []
    for element in elements:
        coefficients = list(map(int, element.to_list()))
        integers = [coefficients[power] for power in _list_powers(field)]
        found.append(nest(field, integers))
    return found


def list_integers(value: Any) -> list[int]:
    """The integers of an element, the innermost coefficients first."""
    if isinstance(value, tuple):
        return [each for part in value for each in list_integers(part)]
    return [value]


def nest(field: Field | ExtensionField, integers: Sequence[int]) -> Any:
    """The tuple of an element that has these integers."""
    if isinstance(field, Field):
        return integers[0]
    step = len(integers) // field.degree
    return tuple(nest(field.base, integers[at : at + step]) for at in range(0, len(integers), step))


def draw_tuples(field: ExtensionField, count: int, seed: int) -> list[Any]:
    """Random elements as tuples; many coefficients are edge values, and the first ones are 0, 1,
    -1, and elements of the base."""
    base, degree = field.prime_field, field.layout.total_degree
    drawn = draw_elements(base, count * degree, seed)
    rows = [drawn[at : at + degree] for at in range(0, len(drawn), degree)]
    zeros = [0] * (degree - 1)
    known = [[0, *zeros], [1, *zeros], [base.modulus - 1, *zeros], [*zeros, 1]]
    mixed = [*known, *rows[len(known) :]]
    random.Random(seed).shuffle(mixed)
    return [nest(field, row) for row in mixed]


def make_extension_array(
    gpu: gx.PersistentVulkanBackend, place: Place, field: ExtensionField, values: Any
) -> ExtensionArray:
    """Tuples in lists as an array in a place."""
    array = field.encode(values)
    if place == "host":
        return array
    found: ExtensionArray = (gpu if place == "device" else CPU).to_device(array)
    return found
