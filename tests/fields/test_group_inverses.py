"""Inverses of elements of one integer, which a work-group inverts together, against integers."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import BABYBEAR, GOLDILOCKS, MERSENNE31, Field
from gpu_executor.kernels.families import PACK_BYTES
from gpu_executor.ops import scans
from gpu_executor.ops.scans import GROUP_SIZES, VECTORS
from gpu_executor.primes import words
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.fields_under_test import (
    FIVE,
    THREE,
    draw_elements,
    invert,
    list_edge_values,
    to_ints,
)

FIELDS = [BABYBEAR, MERSENNE31, GOLDILOCKS]
SMALL = [THREE, FIVE, Field(127), Field(65537), Field(2**31 - 19, name="full 31 bits")]
on_every_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)


def count_tile(field: Field, size: int = GROUP_SIZES[-1]) -> int:
    """The elements that one work-group inverts together."""
    return size * VECTORS * PACK_BYTES // field.prime.element_bytes


def check_inverses(gpu: gx.PersistentVulkanBackend, field: Field, values: Sequence[int]) -> None:
    found = to_ints(field.inverse(gpu.to_device(field.encode(values))))
    assert found == [invert(field, value) for value in values]


@pytest.mark.parametrize("field", [*FIELDS, *SMALL], ids=lambda field: field.name)
def test_inverses_of_few_elements_and_around_a_tile_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    few, tile = (count_tile(field, size) for size in GROUP_SIZES)
    values = draw_elements(field, 2 * tile + 5, 1)
    around = [count for each in (few, tile) for count in (each - 1, each, each + 1)]
    for count in (*range(1, 10), *around, 2 * tile + 5):
        check_inverses(gpu, field, values[:count])


@pytest.mark.parametrize("field", [*FIELDS, *SMALL], ids=lambda field: field.name)
def test_inverses_at_edge_values_are_exact_in_every_place_of_a_vector(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    edges = list_edge_values(field, 1000)
    for at in range(4):
        check_inverses(gpu, field, edges[at:])
    if field.modulus < 1 << 17:
        check_inverses(gpu, field, range(field.modulus))


ZEROS = {
    "first": [0],
    "last": [2999],
    "all of an invocation": [k * 512 + component for k in range(4) for component in range(4)],
    "one component of every vector": range(1, 3000, 4),
    "all but one": [*range(700), *range(701, 3000)],
    "all": range(3000),
    "anywhere": random.Random(1).sample(range(3000), 900),
}


@pytest.mark.parametrize("at", ZEROS.values(), ids=ZEROS.keys())
@on_every_field
def test_zeros_do_not_spoil_the_inverses_of_other_elements(
    gpu: gx.PersistentVulkanBackend, field: Field, at: Sequence[int]
) -> None:
    values = [value or 1 for value in draw_elements(field, 3000, 2)]
    for each in at:
        values[each] = 0
    check_inverses(gpu, field, values)


@pytest.fixture
def device(gpu: gx.PersistentVulkanBackend) -> DeviceMemory:
    return gpu._session.device_memory


def change_limits(
    device: DeviceMemory, monkeypatch: pytest.MonkeyPatch, **limits: int | tuple[int, int, int]
) -> None:
    changed = dataclasses.replace(device.info.limits, **limits)  # type: ignore[arg-type]
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, limits=changed))


@pytest.mark.parametrize("groups", [1, 2])
@on_every_field
def test_few_work_groups_invert_many_tiles(
    gpu: gx.PersistentVulkanBackend,
    device: DeviceMemory,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    groups: int,
) -> None:
    change_limits(device, monkeypatch, max_work_group_count=(groups, 1, 1))
    check_inverses(gpu, field, draw_elements(field, 5 * count_tile(field) + 3, 3))


@on_every_field
def test_slices_that_are_not_aligned_to_vectors_are_inverted(
    gpu: gx.PersistentVulkanBackend,
    device: DeviceMemory,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
) -> None:
    change_limits(device, monkeypatch, buffer_offset_alignment=4)
    values = draw_elements(field, 2000, 4)
    there = gpu.to_device(field.encode(values))
    for start, stop in ((1, 2), (1, 8), (2, 9), (3, 2000), (4, 1999)):
        expected = [invert(field, value) for value in values[start:stop]]
        assert to_ints(field.inverse(there[start:stop])) == expected


@on_every_field
def test_nothing_beyond_the_results_is_written(device: DeviceMemory, field: Field) -> None:
    prime, before = field.prime, 256 // field.prime.element_bytes
    for count in (1, 5, 1023, 1027):
        x = device.put(words.from_ints(prime, [3] * count))
        around = np.full(before + count + before, 0xA5, prime.column_dtype)
        whole = device.put(around)
        y = whole[before : before + count]
        device.submit([scans._make_group_inverse(device, prime, x, y, count)])
        found = whole.numpy()
        assert len(set(found[before : before + count].tolist())) == 1
        around[before : before + count] = found[before]
        assert np.array_equal(found, around)
