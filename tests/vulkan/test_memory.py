"""Memory: types by purpose, blocks and their free ranges, the pool, its limit, trimming."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.kernels import load
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.descriptors import BUFFERS_PER_POOL, DescriptorPools
from gpu_executor.vulkan.memory import (
    DEVICE_LOCAL,
    HOST_CACHED,
    HOST_COHERENT,
    HOST_VISIBLE,
    Block,
    MemoryPool,
    Purpose,
    choose_memory_type,
)
from gpu_executor.vulkan.session import Session
from tests.conftest import OpenGpu, elements, on_both_paths

ADD_U32 = load("vector_add_u32")
FQ = BLS12_381_FQ
MAPPED = HOST_VISIBLE | HOST_COHERENT

# Memory types as these devices list them, and the best for (device, upload, readback).
DEVICES: dict[str, tuple[list[int], tuple[int, int, int]]] = {
    "discrete with a window to its memory": (
        [0, DEVICE_LOCAL, MAPPED, MAPPED | HOST_CACHED, DEVICE_LOCAL | MAPPED],
        (1, 2, 3),
    ),
    "discrete, cached memory first": (
        [DEVICE_LOCAL, MAPPED | HOST_CACHED, MAPPED, DEVICE_LOCAL | MAPPED],
        (0, 2, 1),
    ),
    "integrated": ([DEVICE_LOCAL | MAPPED, DEVICE_LOCAL | MAPPED | HOST_CACHED], (0, 0, 1)),
    "software": ([DEVICE_LOCAL | MAPPED | HOST_CACHED], (0, 0, 0)),
    "cached memory that is not coherent": (
        [DEVICE_LOCAL | MAPPED, DEVICE_LOCAL | HOST_VISIBLE | HOST_CACHED],
        (0, 0, 1),
    ),
    "no cached memory": ([DEVICE_LOCAL, MAPPED], (0, 1, 1)),
    "no memory of its own": ([MAPPED], (0, 0, 0)),
}


@pytest.mark.parametrize(("flags", "best"), DEVICES.values(), ids=DEVICES.keys())
def test_each_purpose_gets_the_best_memory_type(
    flags: list[int], best: tuple[int, int, int]
) -> None:
    purposes = (Purpose.DEVICE, Purpose.UPLOAD, Purpose.READBACK)
    assert tuple(choose_memory_type(flags, 0xFFFFFFFF, purpose) for purpose in purposes) == best


def test_a_memory_type_that_the_buffer_does_not_allow_is_skipped() -> None:
    flags, _ = DEVICES["discrete with a window to its memory"]
    assert choose_memory_type(flags, 0b10001, Purpose.DEVICE) == 4
    assert choose_memory_type(flags, 0b11010, Purpose.UPLOAD) == 3
    assert choose_memory_type(flags, 0b10110, Purpose.READBACK) == 2


def test_the_error_without_a_memory_type_lists_the_types() -> None:
    with pytest.raises(gx.OutOfMemoryError, match=r"no memory type for upload memory; .* \[1\]"):
        choose_memory_type([DEVICE_LOCAL], 0xFFFFFFFF, Purpose.UPLOAD)


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-30, -1)), max_size=60))
def test_ranges_of_a_block_never_overlap_and_are_merged_when_freed(steps: list[int]) -> None:
    """A positive step allocates that many bytes; a negative step releases a range."""
    block = Block(Purpose.UPLOAD, 200, None, binding.vk.ffi.NULL, 0, True, [(0, 200)])
    held: list[tuple[int, int]] = []
    for step in steps:
        if step < 0 and held:
            block.give_back(*held.pop(-step % len(held)))
        elif step > 0:
            offset = block.take(step)
            if offset is None:
                assert all(size < step for _, size in block.free)
            else:
                held.append((offset, step))
        ranges = sorted([*held, *block.free])
        ends = [start + size for start, size in ranges]
        assert [start for start, _ in ranges] == [0, *ends[:-1]]
        assert ends[-1] == 200
        assert block.free == sorted(block.free)
        touching = {start + size for start, size in block.free} & {start for start, _ in block.free}
        assert not touching
    for offset, size in held:
        block.give_back(offset, size)
    assert block.idle


def test_the_pool_allocates_from_existing_blocks(session: Session) -> None:
    pool = MemoryPool(session.resources.device)
    first, second = (pool.allocate(Purpose.UPLOAD, 1000) for _ in range(2))
    assert first.block is second.block
    assert first.offset % pool.alignment == second.offset % pool.alignment == 0
    assert abs(first.offset - second.offset) >= 1000
    other = pool.allocate(Purpose.READBACK, 1000)
    assert other.block is not first.block
    stats = pool.stats()
    assert (stats.hits, stats.misses, stats.blocks) == (1, 2, 2)
    assert stats.bytes_used == sum(part.nbytes for part in (first, second, other))
    assert pool.trim() == 0
    pool.release(other)
    assert pool.trim() == other.block.nbytes
    pool.release(first)
    pool.release(second)
    assert pool.stats().bytes_used == 0
    assert pool.trim() == first.block.nbytes
    assert pool.stats().bytes_held == 0
    pool.close()


def test_unused_blocks_are_freed_under_the_limit(session: Session) -> None:
    pool = MemoryPool(session.resources.device, limit=1 << 20)
    pool.release(pool.allocate(Purpose.UPLOAD, 900_000))
    allocated = pool.allocate(Purpose.READBACK, 900_000)
    assert pool.stats().bytes_held <= 1 << 20
    with pytest.raises(gx.OutOfMemoryError) as caught:
        pool.allocate(Purpose.UPLOAD, 900_000)
    for word in ("upload", session.info.name, f"{allocated.nbytes:,} in use", "limit 1,048,576"):
        assert word in str(caught.value)
    pool.close()


def test_trim_frees_unused_memory(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(), np.arange(1000, dtype=np.uint32)
    for device_local in (True, False):
        gpu.run(ADD_U32, x, x, device_local=device_local)
    held = gpu.stats().memory.bytes_held
    assert held > 0
    assert gpu.trim() == held
    stats = gpu.stats()
    assert (stats.memory.bytes_held, stats.memory.bytes_used, stats.memory.blocks) == (0, 0, 0)
    assert (stats.slots.idle, stats.descriptors.sets_used) == (0, 0)
    assert gpu.trim() == 0
    np.testing.assert_array_equal(gpu.run(ADD_U32, x, x), 2 * x)
    assert gpu.stats().memory.bytes_held > 0


@on_both_paths
@pytest.mark.parametrize("limit", [20_000, 200_000, 1_000_000])
def test_chunks_fit_the_memory_limit(fresh_gpu: OpenGpu, device_local: bool, limit: int) -> None:
    gpu = fresh_gpu(memory_limit=limit)
    x = words.from_ints(FQ, elements(FQ, 3000, 1)).repeat(3, 0)
    y = np.arange(9000, dtype=np.uint32)
    for kernel, array, expected in (
        (load("bls12_381_fq_add"), x, words.add(FQ, x, x)),
        (ADD_U32, y, 2 * y),
    ):
        planned = gpu.explain(kernel, array, array, device_local=device_local)
        assert 3 * array[: planned.chunk].nbytes <= limit
        result = gpu.run(kernel, array, array, device_local=device_local)
        np.testing.assert_array_equal(result, expected)
        assert 0 < gpu.stats().memory.bytes_held <= limit


@on_both_paths
def test_the_error_under_a_small_limit_names_the_sizes(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu, zeros = fresh_gpu(memory_limit=2500), np.zeros((9, 6), np.uint64)
    with pytest.raises(MemoryError) as caught:
        gpu.run_field_add(zeros, zeros, device_local=device_local)
    assert isinstance(caught.value, gx.OutOfMemoryError)
    said = str(caught.value)
    assert gpu.device.name in said
    assert "in use, limit 2,500" in said
    assert gpu.stats().memory.bytes_used == 0


def test_memory_that_is_not_coherent_is_invalidated(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, x, asked = fresh_gpu(), np.arange(70, dtype=np.uint32), list[Any]()
    gpu.run(ADD_U32, x[:1], x[:1])
    blocks = gpu._session.resources.memory._blocks
    (block,) = [block for block in blocks if block.purpose is Purpose.READBACK]
    block.coherent = False  # before the next slot is allocated in it
    invalidate = binding.vk.vkInvalidateMappedMemoryRanges

    def asking(device: Any, count: int, ranges: Any) -> Any:
        asked.extend(ranges[index].memory for index in range(count))
        return invalidate(device, count, ranges)

    monkeypatch.setattr(binding.vk, "vkInvalidateMappedMemoryRanges", asking)
    np.testing.assert_array_equal(gpu.run(ADD_U32, x, x), 2 * x)
    assert asked == [block.memory]


@pytest.mark.parametrize(("sets", "buffers"), [(2, 1000), (500, 6)])
def test_a_full_descriptor_pool_gets_another(session: Session, sets: int, buffers: int) -> None:
    resources = session.resources
    pools = DescriptorPools(resources.device, sets=sets, buffers=buffers)
    room = resources.memory.allocate(Purpose.UPLOAD, 256)
    values = [room.block.handle, room.offset, 256] * 3
    made = [pools.allocate(3, values) for _ in range(5)]
    assert (pools.stats().pools, pools.stats().sets_used) == (3, 5)
    assert len({int(binding.vk.ffi.cast("uintptr_t", one.handles[0])) for one in made}) == 5
    for one in made:
        pools.release(one)
    assert (pools.stats().pools, pools.stats().sets_used) == (3, 0)
    again = [pools.allocate(3, values) for _ in range(6)]
    assert (pools.stats().pools, pools.stats().sets_used) == (3, 6)
    for one in again:
        pools.release(one)
    pools.close()


def test_descriptor_pools_hold_500_sets_and_2000_buffers(session: Session) -> None:
    resources = session.resources
    pools = DescriptorPools(resources.device)
    room = resources.memory.allocate(Purpose.UPLOAD, 256)
    values = [room.block.handle, room.offset, 256] * 3
    for _ in range(500):
        pools.allocate(3, values)
    assert pools.stats().pools == 1
    pools.allocate(3, values)
    assert (pools.stats().pools, pools.stats().sets_used) == (2, 501)
    pools.close()
    assert BUFFERS_PER_POOL == 2000
