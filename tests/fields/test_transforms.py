"""Transforms on a device: any split into passes, tables that are made once and freed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.fields import BABYBEAR, GOLDILOCKS, Field, FieldArray
from gpu_executor.kernels.modules import SpecId
from gpu_executor.ops import transform_splits, transforms
from gpu_executor.ops.transform_splits import split_levels, split_long
from gpu_executor.ops.transforms import Order, Pass, PowerTable, TransformPasses
from gpu_executor.vulkan import binding, device_memory
from tests.support.device_arrays import get_device_memory
from tests.support.fields_under_test import (
    ORDERS,
    check_extension,
    check_order,
    check_transforms,
    draw_elements,
    make_polynomial,
    put_in_order,
    record_puts,
    reverse_bits,
    to_ints,
    transform_naively,
)

WIDE = Field(((2**116 - 2205) << 12) + 1, name="wide", factors=[2**116 - 2205])
"""Four words, with twiddles between passes; test_block_transforms.py has the primes without."""


def put_on_device(gpu: gx.PersistentVulkanBackend, field: Field, values: Any) -> FieldArray:
    return gpu.to_device(field.encode(values))


@pytest.mark.parametrize("log_n", [0, 1])
def test_more_rows_than_one_grid_covers_are_transformed(
    gpu: gx.PersistentVulkanBackend, log_n: int
) -> None:
    p, rows = BABYBEAR.modulus, 70_000
    values = np.random.default_rng(1).integers(0, p, (rows, 1 << log_n), dtype=np.int64)
    first, last = values[:, 0], values[:, -1]
    wanted = np.stack([first + last, first - last], axis=1) % p if log_n else values
    y = BABYBEAR.ntt(put_on_device(gpu, BABYBEAR, values))
    np.testing.assert_array_equal(y.in_form("canonical").numpy(), wanted)
    np.testing.assert_array_equal(BABYBEAR.intt(y).in_form("canonical").numpy(), values)


@pytest.mark.parametrize("field", [BABYBEAR, GOLDILOCKS, WIDE], ids=lambda field: field.name)
def test_work_groups_process_several_tiles(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    make_dispatch, strides = Pass.make_dispatch, []

    def limit_groups(
        self: Pass, x: Any, y: Any, count: int, _max_groups: int, **options: Any
    ) -> Dispatch:
        made = make_dispatch(self, x, y, count, 3, **options)
        strides.append(dict(made.kernel.constants)[SpecId.GRID_STRIDE])
        return made

    monkeypatch.setattr(Pass, "make_dispatch", limit_groups)
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 4)
    monkeypatch.setattr(transform_splits, "ROW_BYTES", 16)
    rows = [draw_elements(field, 1 << 8, seed) for seed in (0, 1)]
    wanted = [transform_naively(field, row) for row in rows]
    for order in ORDERS:
        x = field.encode([put_in_order(row, order) for row in rows]).in_form(field.form)
        y = field.ntt(gpu_without_tables.to_device(x), order_in=order, order_out=order)
        assert to_ints(y.to_host()) == [put_in_order(row, order) for row in wanted]
    if field is BABYBEAR:
        check_extension(gpu_without_tables, "device", field, 7, 2)
    assert set(strides) == {True}


# --- other splits into passes, other tables ---


def uses_two_tables(gpu: gx.PersistentVulkanBackend) -> bool:
    """Whether any cached pass multiplies twiddles from two tables."""
    values = [cached.value for cached in get_device_memory(gpu)._cache.values()]
    cached = [each for each in values if isinstance(each, TransformPasses)]
    return any(each.high is not each.roots for passes in cached for each in passes.passes)


@pytest.mark.parametrize(
    ("field", "levels", "row_bytes"),
    [(BABYBEAR, 1, 1), (BABYBEAR, 2, 16), (BABYBEAR, 3, 1 << 20), (GOLDILOCKS, 2, 64)],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_passes_of_any_number_of_levels_and_tiles_of_any_width_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    levels: int,
    row_bytes: int,
) -> None:
    monkeypatch.setattr(transform_splits, "ROW_BYTES", row_bytes)
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", levels)
    assert len(split_levels(5, transform_splits.LEVELS_PER_PASS)) == -(-5 // levels)
    for order in ORDERS if field is BABYBEAR else ORDERS[:1]:
        check_order(gpu_without_tables, field, 5, order, order)
    if field is BABYBEAR:
        check_extension(gpu_without_tables, "device", field, 4, 4)
    assert not uses_two_tables(gpu_without_tables)


@pytest.mark.parametrize(
    ("field", "direct_levels"),
    [(BABYBEAR, 0), (BABYBEAR, 3), (BABYBEAR, 4), (GOLDILOCKS, 3)],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_twiddles_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    direct_levels: int,
) -> None:
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", direct_levels)
    for order in ORDERS if field is BABYBEAR else ORDERS[1:]:
        check_order(gpu_without_tables, field, 5, order, order)
    assert uses_two_tables(gpu_without_tables)


def test_twiddles_from_two_tables_after_several_rounds_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 4)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", 4)
    check_order(gpu_without_tables, BABYBEAR, 8, "natural", "reversed")
    assert uses_two_tables(gpu_without_tables)


def test_twiddles_of_many_limbs_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", 2)
    values = draw_elements(WIDE, 16, 1)
    y = WIDE.ntt(put_on_device(gpu_without_tables, WIDE, values))
    assert to_ints(y) == transform_naively(WIDE, values)
    assert to_ints(WIDE.intt(y)) == values
    assert uses_two_tables(gpu_without_tables)


@pytest.mark.parametrize(("log_n", "blowup", "coset"), [(8, 8, 5), (9, 2, None)])
def test_rows_of_one_and_of_two_passes_are_extended(
    gpu: gx.PersistentVulkanBackend, log_n: int, blowup: int, coset: int | None
) -> None:
    check_extension(gpu, "device", BABYBEAR, log_n, blowup, coset)


@pytest.mark.parametrize(
    ("field", "direct_levels", "sizes"),
    [
        (BABYBEAR, 0, [(0, 8), (1, 16), (2, 8), (3, 2), (5, 8)]),
        (GOLDILOCKS, 16, [(1, 8), (5, 8)]),
        (WIDE, 16, [(3, 2)]),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_extensions_of_any_number_of_passes_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    direct_levels: int,
    sizes: list[tuple[int, int]],
) -> None:
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", direct_levels)
    for log_n, blowup in sizes:
        check_extension(gpu_without_tables, "device", field, log_n, blowup)
    assert uses_two_tables(gpu_without_tables) == (direct_levels == 0)


@pytest.mark.parametrize("field", [BABYBEAR, WIDE], ids=lambda field: field.name)
def test_polynomials_are_padded_in_the_first_of_several_passes(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    monkeypatch.setattr(transform_splits, "LEVELS_PER_PASS", 2)
    # Products of one, two and three passes; the factor of 16 coefficients needs no zeros.
    for long, short in ((2, 3), (7, 2), (16, 1), (19, 13)) if field is BABYBEAR else ((7, 2),):
        a = [draw_elements(field, long, seed) for seed in range(3)]
        b = draw_elements(field, short, 9)
        x, y = (put_on_device(gpu_without_tables, field, each) for each in (a, b))
        exact = [make_polynomial(field, row) * make_polynomial(field, b) for row in a]
        wanted = [[int(each[i]) for i in range(long + short - 1)] for each in exact]
        assert to_ints(field.poly_mul(x, y)) == wanted


def test_levels_are_split_evenly_into_passes() -> None:
    assert [
        split_levels(log_n, transform_splits.LEVELS_PER_PASS) for log_n in (0, 1, 8, 9, 16, 17, 24)
    ] == [(0,), (1,), (8,), (5, 4), (8, 8), (6, 6, 5), (8, 8, 8)]


def list_long_splits(element_bytes: int, *, from_reversed: bool, reverses: bool) -> list[Any]:
    return [
        split_long(
            log_n, element_bytes, from_reversed=from_reversed, reverses=reverses, log_repeats=0
        ).levels
        for log_n in (18, 20, 22, 23, 24, 25)
    ]


def test_the_contiguous_pass_of_a_gpu_has_more_levels() -> None:
    assert list_long_splits(8, from_reversed=False, reverses=False) == [
        (9, 9),
        (6, 6, 8),
        (7, 6, 9),
        (7, 7, 9),
        (8, 7, 9),
        (7, 6, 6, 6),
    ]
    assert list_long_splits(4, from_reversed=False, reverses=False) == [
        (9, 9),
        (10, 10),
        (7, 6, 9),
        (7, 7, 9),
        (7, 7, 10),
        (7, 6, 6, 6),
    ]
    assert list_long_splits(4, from_reversed=True, reverses=False) == [
        (9, 9),
        (10, 10),
        (8, 7, 7),
        (8, 8, 7),
        (7, 7, 10),
        (7, 6, 6, 6),
    ]
    assert list_long_splits(8, from_reversed=False, reverses=True) == [
        (6, 6, 6),
        (7, 7, 6),
        (6, 6, 5, 5),
        (6, 6, 6, 5),
        (6, 6, 6, 6),
        (7, 6, 6, 6),
    ]


@pytest.fixture
def gpu_with_long_transforms(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """A backend that transforms rows of any length as GPUs transform long ones."""
    monkeypatch.setattr(transforms, "is_long", lambda *_: True)
    monkeypatch.setattr(transform_splits, "TWO_PASSES_UP_TO", {4: 0, 8: 0})
    lengths = dict.fromkeys((4, 8), transform_splits.LONGER_LENGTHS)
    monkeypatch.setattr(transform_splits, "LONGER_FROM_REVERSED", lengths)
    monkeypatch.setattr(transform_splits, "SMALL_TILES_FROM", {4: 0, 8: 0})
    return gpu_without_tables


def list_splits(gpu: gx.PersistentVulkanBackend) -> set[tuple[int, ...]]:
    """The levels of the cached passes, those of the largest distances first."""
    cached = [each.value for each in get_device_memory(gpu)._cache.values()]
    return {made._split.levels for made in cached if isinstance(made, TransformPasses)}


@pytest.mark.parametrize(
    ("field", "two_passes", "inverse_from", "splits"),
    [
        (BABYBEAR, 0, "reversed", {(3, 3, 6), (6, 6)}),
        (BABYBEAR, 12, "natural", {(6, 6)}),
        (GOLDILOCKS, 0, "natural", {(3, 3, 6), (6, 6)}),
    ],
    ids=["babybear", "babybear_in_two_passes", "goldilocks"],
)
def test_splits_of_gpus_are_exact(
    gpu_with_long_transforms: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    two_passes: int,
    inverse_from: Order,
    splits: set[tuple[int, ...]],
) -> None:
    """With twiddles from one table and from two: an inverse transform from one order, a transform
    from the other one."""
    monkeypatch.setattr(transform_splits, "TWO_PASSES_UP_TO", dict.fromkeys((4, 8), two_passes))
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", 8)
    x = field.random((2, 1 << 12), seed=1)
    given = gpu_with_long_transforms.to_device(x)
    at = np.array(reverse_bits(range(1 << 12)))
    for order_in in ORDERS:
        transform, coset = (field.intt, None) if order_in == inverse_from else (field.ntt, 3)
        wanted = transform(x, coset=coset, order_in=order_in).numpy()
        for order_out in ORDERS:
            found = transform(given, coset=coset, order_in=order_in, order_out=order_out)
            expected = wanted if order_out == "natural" else wanted[:, at]
            np.testing.assert_array_equal(found.numpy(), expected)
    assert list_splits(gpu_with_long_transforms) == splits


def test_extensions_and_padded_rows_are_exact_in_splits_of_gpus(
    gpu_with_long_transforms: gx.PersistentVulkanBackend,
) -> None:
    gpu, log_n = gpu_with_long_transforms, 12
    values = GOLDILOCKS.random((2, 1 << log_n), seed=1)
    extended = GOLDILOCKS.lde(gpu.to_device(values), 4, 3)
    np.testing.assert_array_equal(extended.numpy(), GOLDILOCKS.lde(values, 4, 3).numpy())
    assert list_splits(gpu) == {(3, 3, 6), (6, 6)}, "an extension has no contiguous pass"
    a, b = (GOLDILOCKS.random(length, seed=2) for length in (3_000, 1_000))
    found = GOLDILOCKS.poly_mul(gpu.to_device(a), gpu.to_device(b))
    np.testing.assert_array_equal(found.numpy(), GOLDILOCKS.poly_mul(a, b).numpy())


# --- cached tables ---


def test_tables_are_made_once(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = gpu_without_tables
    arrays = {
        (field, log_n): put_on_device(gpu, field, [[1] * (1 << log_n)] * 2)
        for field, log_n in ((BABYBEAR, 4), (BABYBEAR, 9), (GOLDILOCKS, 4))
    }
    puts = record_puts(monkeypatch)

    def count_tables(array: FieldArray, **way: Any) -> int:
        """The number of tables made for a transform and its inverse, of two rows and of one."""
        before = len(puts)
        field = array.field
        for each in (array, array[:1], array[1]):
            field.ntt(each, **way)
            field.intt(each, **way)
        return len(puts) - before

    for array in arrays.values():
        assert count_tables(array) > 0
        assert count_tables(array) == 0
        assert count_tables(array, order_out="reversed") == 0, (
            "the same passes, except for the last"
        )
        assert count_tables(array, order_in="reversed") > 0, "passes in the other direction"
        assert count_tables(array, order_in="reversed", order_out="reversed") == 0
        assert count_tables(array, coset=5) == 4, "powers of 5 and of 1/5, from two tables each"
        assert count_tables(array, coset=5, order_in="reversed") == 0
        assert count_tables(array, coset=6) == 4
    for array in arrays.values():
        assert count_tables(array) == 0, "the others did not evict them"


def test_tables_are_evicted_when_the_cache_is_full(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "MAX_CACHED", 2)
    gpu = gpu_without_tables
    for _ in range(2):
        for log_n in (0, 1, 4):  # sizes whose pipelines other tests use too
            check_transforms(gpu, "device", BABYBEAR, log_n, coset=3)
    assert len(get_device_memory(gpu)._cache) == 2


def test_tables_are_freed_when_the_backend_closes() -> None:
    before = binding.count_live_objects()
    with gx.PersistentVulkanBackend() as gpu:
        x = put_on_device(gpu, BABYBEAR, [1] * 512)
        y = BABYBEAR.intt(BABYBEAR.ntt(x, coset=3), coset=3) * 5
        assert to_ints(y) == [5] * 512
        tables = [
            weakref.ref(table.storage)
            for cached in get_device_memory(gpu)._cache.values()
            if isinstance(cached.value, TransformPasses | PowerTable)
            for table in _list_arrays(cached.value)
        ]
        assert len(tables) > 8
        assert all(table() is not None for table in tables)
        assert binding.count_live_objects() != before
    gc.collect()
    assert [table() for table in tables] == [None] * len(tables)
    assert binding.count_live_objects() == before


def _list_arrays(cached: TransformPasses | PowerTable) -> list[gx.DeviceArray]:
    if isinstance(cached, PowerTable):
        return [cached.low, cached.high]
    return [table for each in cached.passes for table in (each.roots, each.low, each.high)]
