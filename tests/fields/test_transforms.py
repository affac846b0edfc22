"""Transforms on the card: any cut into passes, tables that are made once and freed."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field, FieldArray
from gpu_executor.lru import LruCache
from gpu_executor.ops import transforms
from gpu_executor.ops.transforms import PowerTable, TransformPasses, split_levels
from gpu_executor.vulkan import binding, device_memory
from tests.conftest import OpenGpu
from tests.support.fields_under_test import (
    check_transforms,
    count_puts,
    devices,
    ints,
    naive_transform,
    some,
)


def on_the_card(gpu: gx.PersistentVulkanBackend, field: Field, values: Any) -> FieldArray:
    return gpu.to_device(field.encode(values))


@pytest.mark.parametrize("log_n", [0, 1])
def test_more_rows_than_work_groups_are_transformed(
    gpu: gx.PersistentVulkanBackend, log_n: int
) -> None:
    p, rows = BABYBEAR.modulus, 70_000
    values = np.random.default_rng(1).integers(0, p, (rows, 1 << log_n), dtype=np.int64)
    first, last = values[:, 0], values[:, -1]
    wanted = np.stack([first + last, first - last], axis=1) % p if log_n else values
    y = BABYBEAR.ntt(on_the_card(gpu, BABYBEAR, values))
    np.testing.assert_array_equal(y.in_form("canonical").numpy(), wanted)
    np.testing.assert_array_equal(BABYBEAR.intt(y).in_form("canonical").numpy(), values)


# --- other cuts into passes, other tables ---


@pytest.fixture
def gpu_without_tables(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """One that knows pipelines, and will make tables and passes as a test has them."""
    monkeypatch.setattr(devices(gpu), "_cache", LruCache())
    return gpu


def two_tables(gpu: gx.PersistentVulkanBackend) -> bool:
    """Whether any pass of those kept takes its roots from two."""
    kept = [each for each in devices(gpu)._cache.values() if isinstance(each, TransformPasses)]
    return any(each.high is not each.roots for passes in kept for each in passes._passes)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("field", [GOLDILOCKS, BABYBEAR], ids=lambda field: field.name)
def test_passes_of_any_number_of_levels_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    levels: int,
) -> None:
    monkeypatch.setattr(transforms, "LEVELS_PER_PASS", levels)
    for log_n in (3, 5):
        assert len(split_levels(log_n, transforms.LEVELS_PER_PASS)) == -(-log_n // levels)
        check_transforms(gpu_without_tables, "card", field, log_n)
    check_transforms(gpu_without_tables, "card", field, 5, coset=3)
    assert not two_tables(gpu_without_tables)


@pytest.mark.parametrize("direct_levels", [0, 3, 4])
@pytest.mark.parametrize("field", [GOLDILOCKS, BABYBEAR], ids=lambda field: field.name)
def test_roots_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    direct_levels: int,
) -> None:
    monkeypatch.setattr(transforms, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", direct_levels)
    for log_n in (1, 4, 5):
        check_transforms(gpu_without_tables, "card", field, log_n)
    assert two_tables(gpu_without_tables)


def test_roots_of_many_limbs_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transforms, "DIRECT_LEVELS", 2)
    values = some(BLS12_381_FR, 16, 1)
    y = BLS12_381_FR.ntt(on_the_card(gpu_without_tables, BLS12_381_FR, values))
    assert ints(y) == naive_transform(BLS12_381_FR, values)
    assert ints(BLS12_381_FR.intt(y)) == values
    assert two_tables(gpu_without_tables)


@pytest.mark.parametrize("row_bytes", [1, 16, 1 << 20])
def test_tiles_of_any_width_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    row_bytes: int,
) -> None:
    monkeypatch.setattr(transforms, "ROW_BYTES", row_bytes)
    monkeypatch.setattr(transforms, "LEVELS_PER_PASS", 3)
    check_transforms(gpu_without_tables, "card", BABYBEAR, 6)


def test_transforms_are_cut_into_passes_as_even_as_can_be() -> None:
    assert [
        split_levels(log_n, transforms.LEVELS_PER_PASS) for log_n in (0, 1, 8, 9, 16, 17, 24)
    ] == [
        [0],
        [1],
        [8],
        [5, 4],
        [8, 8],
        [6, 6, 5],
        [8, 8, 8],
    ]


# --- what is kept ---


def test_tables_are_made_once(fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fresh_gpu()
    arrays = {
        (field, log_n): on_the_card(gpu, field, [[1] * (1 << log_n)] * 2)
        for field, log_n in ((BABYBEAR, 4), (BABYBEAR, 9), (GOLDILOCKS, 4))
    }
    puts = count_puts(monkeypatch)

    def tables_of(array: FieldArray, **way: Any) -> int:
        """How many are made for a transform and its inverse, with rows and with one row."""
        before = len(puts)
        field = array.field
        for each in (array, array[:1], array[1]):
            field.ntt(each, **way)
            field.intt(each, **way)
        return len(puts) - before

    for array in arrays.values():
        assert tables_of(array) > 0
        assert tables_of(array) == 0
        assert tables_of(array, order_out="reversed") == 0, "the same passes, but for the last"
        assert tables_of(array, order_in="reversed") > 0, "passes the other way"
        assert tables_of(array, order_in="reversed", order_out="reversed") == 0
        assert tables_of(array, coset=5) == 4, "powers of 5 and of 1/5, from two tables each"
        assert tables_of(array, coset=5, order_in="reversed") == 0
        assert tables_of(array, coset=6) == 4
    for array in arrays.values():
        assert tables_of(array) == 0, "nor did the others take their place"


def test_tables_go_when_there_are_too_many(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "MAX_CACHED", 2)
    gpu = fresh_gpu()
    for _ in range(2):
        for log_n in (2, 3, 4):
            check_transforms(gpu, "card", BABYBEAR, log_n, coset=3)
    assert len(devices(gpu)._cache) == 2


def test_tables_are_freed_when_the_backend_closes() -> None:
    before = binding.count_live_objects()
    with gx.PersistentVulkanBackend() as gpu:
        x = on_the_card(gpu, BABYBEAR, [1] * 512)
        y = BABYBEAR.intt(BABYBEAR.ntt(x, coset=3), coset=3) * 5
        assert ints(y) == [5] * 512
        tables = [
            weakref.ref(table.storage)
            for kept in devices(gpu)._cache.values()
            if isinstance(kept, TransformPasses | PowerTable)
            for table in _arrays_of(kept)
        ]
        assert len(tables) > 8
        assert all(table() is not None for table in tables)
        assert binding.count_live_objects() != before
    gc.collect()
    assert [table() for table in tables] == [None] * len(tables)
    assert binding.count_live_objects() == before


def _arrays_of(kept: TransformPasses | PowerTable) -> list[gx.DeviceArray]:
    if isinstance(kept, PowerTable):
        return [kept.low, kept.high]
    return [table for each in kept._passes for table in (each.roots, each.low, each.high)]
