"""Fields compared with independent libraries: FLINT, arkworks, py_ecc."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
from flint import fmpz_mod_ctx
from py_arkworks_bls12381 import Scalar

import gpu_executor as gx
from gpu_executor.fields import (
    BLS12_381_FQ,
    BLS12_381_FQ2,
    BLS12_381_FR,
    BN254_FQ,
    BN254_FQ2,
    ExtensionField,
    Field,
)
from tests.support.extensions_under_test import draw_tuples, make_extension_array
from tests.support.fields_under_test import (
    FULL96,
    ONE_OF_EACH,
    THREE,
    Place,
    draw_elements,
    in_both_places,
    list_edge_values,
    make_array,
    to_ints,
)

Gpu = gx.PersistentVulkanBackend
Element = Callable[[int], Any]


def import_py_ecc_fields() -> Any:
    """Import py_ecc and restore the recursion limit, which its import raises."""
    limit = sys.getrecursionlimit()
    try:
        return importlib.import_module("py_ecc.fields")
    finally:
        sys.setrecursionlimit(limit)


PY_ECC = import_py_ecc_fields()


def check_against_oracle(gpu: Gpu, place: Place, field: Field, element: Element) -> None:
    """Compare sums, differences, products and quotients, which every oracle computes."""
    values, others = (
        [*list_edge_values(field), *draw_elements(field, 40, 1)],
        draw_elements(field, 40 + len(list_edge_values(field)), 2),
    )
    nonzero = [value or 1 for value in others]
    a, b, c = (make_array(gpu, place, field, each) for each in (values, others, nonzero))
    x, y, z = ([element(each) for each in row] for row in (values, others, nonzero))
    for found, exact in (
        (a + b, map(operator.add, x, y)),
        (a - b, map(operator.sub, x, y)),
        (a * b, map(operator.mul, x, y)),
        (a * field.inverse(c), map(operator.truediv, x, z)),
        (-a, map(operator.neg, x)),
    ):
        assert to_ints(found) == [int(each) for each in exact]


@in_both_places
@pytest.mark.parametrize(
    "field", [*ONE_OF_EACH, BLS12_381_FQ, FULL96, THREE], ids=lambda field: field.name
)
def test_operations_equal_those_of_flint(gpu: Gpu, field: Field, place: Place) -> None:
    check_against_oracle(gpu, place, field, fmpz_mod_ctx(field.modulus))


@in_both_places
def test_bls12_381_fr_equals_that_of_arkworks(gpu: Gpu, place: Place) -> None:
    check_against_oracle(gpu, place, BLS12_381_FR, Scalar)


@in_both_places
@pytest.mark.parametrize(
    ("field", "element"),
    [(BLS12_381_FQ, PY_ECC.bls12_381_FQ), (BN254_FQ, PY_ECC.bn128_FQ)],
    ids=["bls12_381_fq", "bn254_fq"],
)
def test_base_fields_of_curves_equal_those_of_py_ecc(
    gpu: Gpu, field: Field, element: Element, place: Place
) -> None:
    check_against_oracle(gpu, place, field, element)


@in_both_places
@pytest.mark.parametrize(
    ("field", "element"),
    [(BLS12_381_FQ2, PY_ECC.bls12_381_FQ2), (BN254_FQ2, PY_ECC.bn128_FQ2)],
    ids=["bls12_381_fq2", "bn254_fq2"],
)
def test_extensions_of_curves_equal_those_of_py_ecc(
    gpu: Gpu, field: ExtensionField, element: Any, place: Place
) -> None:
    values, others = (draw_tuples(field, 30, seed) for seed in (1, 2))
    others = [(1, 1) if other == (0, 0) else other for other in others]
    a, b = (make_extension_array(gpu, place, field, each) for each in (values, others))
    x, y = ([element(each) for each in row] for row in (values, others))
    for found, exact in (
        (a + b, map(operator.add, x, y)),
        (a - b, map(operator.sub, x, y)),
        (a * b, map(operator.mul, x, y)),
        (a / b, map(operator.truediv, x, y)),
        (a**5, [each**5 for each in x]),
    ):
        assert found.tolist() == [tuple(map(int, each.coeffs)) for each in exact]


@in_both_places
def test_montgomery_form_equals_a_product_by_arkworks(gpu: Gpu, place: Place) -> None:
    """Words in Montgomery form equal the product x R by arkworks."""
    values = draw_elements(BLS12_381_FR, 20, 3)
    r = Scalar(2**256 % BLS12_381_FR.modulus)
    words = make_array(gpu, place, BLS12_381_FR, values).in_form("montgomery").words()
    wanted = b"".join((Scalar(value) * r).to_le_bytes() for value in values)
    assert words.astype("<u8").tobytes() == wanted
