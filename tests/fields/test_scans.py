"""Sums, prefix sums and products, and inverses on a device, in one and several passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    GOLDILOCKS,
    SECP256K1_FQ,
    Field,
    FieldArray,
)
from gpu_executor.ops import scans
from gpu_executor.ops.scans import CHUNK
from gpu_executor.ops.scans import ELEMENTS_PER_INVOCATION as GROUP
from tests.conftest import OpenGpu
from tests.support.device_arrays import get_device_memory
from tests.support.fields_under_test import draw_elements, on_one_of_each, to_ints

SHORT = [
    1,
    2,
    GROUP - 1,
    GROUP,
    GROUP + 1,
    3 * GROUP + 5,
]
TWICE = GROUP * GROUP
AROUND_TWICE = [TWICE - 1, TWICE, TWICE + 1]


def draw_nonzero(field: Field, count: int, seed: int = 1) -> list[int]:
    """Elements without zeros, which would make products zero."""
    return [value or 1 for value in draw_elements(field, count, seed)]


def put_zeros(values: Sequence[int], at: Sequence[int]) -> list[int]:
    places = set(at)
    return [0 if index in places else value for index, value in enumerate(values)]


def check_inverses(gpu: gx.PersistentVulkanBackend, field: Field, values: Sequence[int]) -> None:
    p, inverses = field.modulus, to_ints(field.inverse(gpu.to_device(field.encode(values))))
    products = [x * y % p if x else y for x, y in zip(values, inverses, strict=True)]
    assert max(inverses) < p
    assert products == [int(value != 0) for value in values]


def check_sums(
    gpu: gx.PersistentVulkanBackend, field: Field, rows: Sequence[Sequence[int]]
) -> None:
    array = gpu.to_device(field.encode(rows))
    assert to_ints(field.sum(array, axis=-1)) == [sum(row) % field.modulus for row in rows]
    assert to_ints(field.sum(array)) == sum(map(sum, rows)) % field.modulus


def check_prefixes(
    gpu: gx.PersistentVulkanBackend, field: Field, rows: Sequence[Sequence[int]]
) -> None:
    array = gpu.to_device(field.encode(rows))
    assert to_ints(field.prefix_sum(array)) == [
        [each % field.modulus for each in accumulate(row)] for row in rows
    ]
    assert to_ints(field.prefix_product(array)) == [
        list(accumulate(row, lambda x, y: x * y % field.modulus)) for row in rows
    ]


def draw_rows(field: Field, rows: int, columns: int) -> list[list[int]]:
    return [draw_nonzero(field, columns, seed) for seed in range(rows)]


# --- sums ---


@pytest.mark.parametrize("columns", [*SHORT, *AROUND_TWICE])
@on_one_of_each
def test_sums_of_rows_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field, columns: int
) -> None:
    for rows in (1, 3):
        check_sums(gpu, field, draw_rows(field, rows, columns))


@pytest.mark.parametrize("field", [BABYBEAR, GOLDILOCKS], ids=lambda field: field.name)
def test_sums_of_the_largest_elements_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    for columns in (GROUP * TWICE - 1, GROUP * TWICE + 1):
        check_sums(gpu, field, [[field.modulus - 1] * columns] * 2)


def test_many_short_rows_are_summed_separately(gpu: gx.PersistentVulkanBackend) -> None:
    check_sums(gpu, BABYBEAR, [[row % 7, row, 1] for row in range(5000)])


# --- prefix sums and products ---


@pytest.mark.parametrize("columns", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, *AROUND_TWICE])
@on_one_of_each
def test_prefix_sums_and_products_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field, columns: int
) -> None:
    for rows in (1, 3):
        check_prefixes(gpu, field, draw_rows(field, rows, columns))


def test_prefix_sums_and_products_of_three_passes_are_exact(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    for columns in (CHUNK**3 - 1, CHUNK**3, CHUNK**3 + 1):
        check_prefixes(gpu, BABYBEAR, draw_rows(BABYBEAR, 2, columns))


@pytest.mark.parametrize("at", [[0], [CHUNK - 1], [CHUNK], [100], [1199], [40, 700]], ids=str)
def test_prefix_products_after_a_zero_are_zero_in_its_row_only(
    gpu: gx.PersistentVulkanBackend, at: Sequence[int]
) -> None:
    first, second, third = draw_rows(BLS12_381_FR, 3, 1200)
    check_prefixes(gpu, BLS12_381_FR, [first, put_zeros(second, at), third])


# --- inverses ---


def set_direct_inverses(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Invert up to this many elements directly, on any device."""
    monkeypatch.setattr(scans, "count_direct_inverses", lambda _: few)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 4099])
@on_one_of_each
def test_any_number_of_inverses_is_exact(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, field: Field, count: int
) -> None:
    set_direct_inverses(monkeypatch, 4)
    check_inverses(gpu, field, draw_elements(field, count, 1))


def test_inverses_of_two_levels_of_products_are_exact(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_direct_inverses(monkeypatch, 1000)
    for count in (1000 * GROUP, 1000 * GROUP + 1):
        check_inverses(gpu, BLS12_381_FR, draw_elements(BLS12_381_FR, count, 1))


@on_one_of_each
def test_inverses_of_several_levels_are_exact_for_few_elements(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    set_direct_inverses(monkeypatch, 4)
    for count in (
        3,
        4,
        5,
        4 * GROUP,
        4 * GROUP + 1,
        4 * TWICE + 1,
    ):
        check_inverses(gpu, field, draw_elements(field, count, 1))


ZEROS = {
    "first": [0],
    "last": [999],
    "both ends": [0, 999],
    "all that one invocation has": range(3, 1000, 32),
    "all but one that it has": range(35, 1000, 32),
    "a run": range(100, 400),
    "all but one": [*range(7), *range(8, 1000)],
    "all": range(1000),
    "anywhere": random.Random(1).sample(range(1000), 300),
}


@pytest.mark.parametrize("at", ZEROS.values(), ids=ZEROS.keys())
@pytest.mark.parametrize("field", [BLS12_381_FR, SECP256K1_FQ], ids=lambda field: field.name)
def test_zeros_do_not_spoil_the_inverses_of_other_elements(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    at: Sequence[int],
) -> None:
    set_direct_inverses(monkeypatch, 32)
    check_inverses(gpu, field, put_zeros(draw_nonzero(field, 1000), at))


# --- elements per invocation ---


@pytest.mark.parametrize("together", [2, 3, 7])
def test_any_number_of_elements_per_invocation_is_exact(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(scans, "ELEMENTS_PER_INVOCATION", together)
    monkeypatch.setattr(scans, "CHUNK", together)
    set_direct_inverses(monkeypatch, 1)
    for count in (1, 2, 3, 7, 8, 49, 50, 343):
        rows = draw_rows(GOLDILOCKS, 3, count)
        check_sums(gpu, GOLDILOCKS, rows)
        check_prefixes(gpu, GOLDILOCKS, rows)
        row = draw_elements(BLS12_381_FR, count, 1)
        check_inverses(gpu, BLS12_381_FR, put_zeros(row, [count // 2]))


def test_each_level_has_a_fraction_of_the_elements_of_the_one_before(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_direct_inverses(monkeypatch, 8)
    gpu = fresh_gpu()
    x, y = (
        gpu.to_device(field.encode(draw_nonzero(field, TWICE))).in_form(field.form)
        for field in (BABYBEAR, BLS12_381_FR)
    )
    stream = get_device_memory(gpu).stream

    def count_dispatches(
        use: Callable[[FieldArray], FieldArray], array: FieldArray = x
    ) -> tuple[int, int]:
        submissions, dispatches = stream.submissions, stream.dispatches
        use(array)
        return stream.submissions - submissions, stream.dispatches - dispatches

    assert count_dispatches(BABYBEAR.sum) == (1, 2)  # 1024 elements to 32 sums to 1
    assert count_dispatches(BABYBEAR.prefix_product) == (
        1,
        3,
    )  # products of chunks, one level above, products inside chunks
    assert count_dispatches(BABYBEAR.prefix_sum) == (1, 3)
    assert count_dispatches(BLS12_381_FR.inverse, y) == (1, 5)  # 1024 to 32 to 8, and back
    assert count_dispatches(BABYBEAR.inverse) == (1, 1)
