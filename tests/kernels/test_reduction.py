"""Reductions on Vulkan (GLSL) and WebGPU (WGSL): exact integers, and floats in a fixed order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend, open_backend

Array = npt.NDArray[Any]
OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}
BLOCK, INVOCATIONS, MAX_WORK_GROUPS = 4_096, 256, 1_024
COUNTS = [1, 2, 255, 257, 4_095, 4_096, 4_097, 100_000]
SEVERAL_ROUNDS = BLOCK * MAX_WORK_GROUPS + 5_000
"""Elements of a call whose first work-groups have two blocks each."""
SUM_F32, SUM_U32 = gx.kernels.load("reduce_sum_f32"), gx.kernels.load("reduce_sum_u32")


@pytest.fixture(scope="module", params=["vulkan", "webgpu"])
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    if request.param == "vulkan":
        yield gpu
        return
    with open_backend(request.param) as opened:
        yield opened


def draw_integers(count: int) -> Array:
    return np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32)


def draw_floats(count: int) -> Array:
    draw = np.random.default_rng(count)
    return (draw.standard_normal(count) * 10.0 ** draw.integers(-3, 4, count)).astype(np.float32)


def add_by_halves(values: list[Array]) -> Array:
    while len(values) > 1:
        half = len(values) // 2
        values = [values[i] + values[i + half] for i in range(half)]
    return values[0]


def add_strided(values: Array) -> Array:
    """Invocation l adds values l, l + 256, ... along the first axis; then by halves."""
    zero = np.full(values.shape[1:], -0.0, np.float32)
    sums = []
    for invocation in range(INVOCATIONS):
        total = zero
        for value in values[invocation::INVOCATIONS]:
            total = total + value
        sums.append(total)
    return add_by_halves(sums)


def add_in_order(array: Array) -> Array:
    """The sum in the order of the kernel's description, with one work-group per column."""
    blocks = -(-len(array) // BLOCK)
    groups = min(blocks, MAX_WORK_GROUPS)
    padded = np.full(-(-blocks // groups) * groups * BLOCK, np.float32(-0.0))
    padded[: len(array)] = array
    by_group = padded.reshape(-1, groups, BLOCK).swapaxes(1, 2).reshape(-1, groups)
    return add_strided(add_strided(by_group))


# Rounds are the same for all operations: the integers' sum has several, and the floats' minimum.
@pytest.mark.parametrize(
    ("operation", "count"), [*itertools.product(OPERATIONS, COUNTS), ("sum", SEVERAL_ROUNDS)]
)
def test_integers_are_reduced_to_one_number(backend: Backend, operation: str, count: int) -> None:
    kernel, array = gx.kernels.load(f"reduce_{operation}_u32"), draw_integers(count)
    result = backend.run(kernel, array)
    assert (result.shape, result.dtype) == ((), np.uint32)
    assert result == OPERATIONS[operation].reduce(array, dtype=np.uint32)


@pytest.mark.parametrize(
    ("operation", "count"),
    [*itertools.product(["min", "max"], COUNTS), ("min", SEVERAL_ROUNDS)],
)
def test_the_extremes_of_floats_are_exact(backend: Backend, operation: str, count: int) -> None:
    kernel, array = gx.kernels.load(f"reduce_{operation}_f32"), draw_floats(count)
    assert backend.run(kernel, array) == OPERATIONS[operation].reduce(array)


@pytest.mark.parametrize("count", [*COUNTS, SEVERAL_ROUNDS])
def test_floats_are_added_in_the_documented_order(backend: Backend, count: int) -> None:
    array = draw_floats(count)
    result = backend.run(SUM_F32, array)
    assert result.tobytes() == add_in_order(array).tobytes()
    assert SUM_F32.reference is not None
    assert result.tobytes() == SUM_F32.reference(array).tobytes()
    scale = np.abs(array).sum(dtype=np.float64)
    assert abs(float(result) - array.sum(dtype=np.float64)) <= 1e-6 * scale


def test_arrays_of_any_shape_are_reduced_in_memory_order(backend: Backend) -> None:
    array = draw_floats(60_000).reshape(20, 30, 100)
    expected = add_in_order(array.reshape(-1)).tobytes()
    assert backend.run(SUM_F32, array).tobytes() == expected
    assert backend.run(SUM_F32, np.asfortranarray(array)).tobytes() == expected


@pytest.mark.parametrize("place", [0, 4_096, 9_999])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_nan_makes_the_result_nan(backend: Backend, operation: str, place: int) -> None:
    array = draw_floats(10_000)
    array[[1, 9_000]] = np.inf, -np.inf
    for nan in (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF):
        array.view(np.uint32)[place] = nan
        assert np.isnan(backend.run(gx.kernels.load(f"reduce_{operation}_f32"), array))


def test_the_sum_of_negative_zeros_is_negative_zero(backend: Backend) -> None:
    result = backend.run(SUM_F32, np.full(5_000, -0.0, np.float32))
    assert result == 0 and np.signbit(result)


@pytest.mark.parametrize("type_", ["u32", "f32"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_blocks_are_reduced_one_by_one(backend: Backend, operation: str, type_: str) -> None:
    array = draw_integers(50_000) if type_ == "u32" else draw_floats(50_000)
    whole = gx.kernels.load(f"reduce_{operation}_{type_}")
    by_block = gx.kernels.load(f"reduce_{operation}_{type_}_by_block")
    assert whole.reference is not None
    expected = [
        whole.reference(array[start : start + BLOCK]) for start in range(0, len(array), BLOCK)
    ]
    result = backend.run(by_block, array)
    assert result.tobytes() == np.array(expected).tobytes()


def test_calls_never_see_results_of_other_calls(backend: Backend) -> None:
    """The counter of finished work-groups begins anew, in single calls, batches and threads."""
    arrays = [draw_integers(count) for count in (100_000, 1, 50_000, 8_192, 8_193) * 4]
    expected = [each.sum(dtype=np.uint32) for each in arrays]
    assert [backend.run(SUM_U32, each) for each in arrays] == expected
    for _ in range(2):
        assert backend.run_batch(SUM_U32, [(each,) for each in arrays]) == expected
    found: dict[int, list[Array]] = {}

    def run_all(thread: int) -> None:
        found[thread] = [backend.run(SUM_U32, each) for each in arrays]

    threads = [threading.Thread(target=run_all, args=(index,)) for index in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert list(found.values()) == [expected] * 3


@pytest.mark.parametrize("name", [name for name in gx.kernels.names() if "reduce" in name])
def test_single_elements_are_those_of_the_reference(name: str) -> None:
    kernel = gx.kernels.load(name)
    array = draw_floats(50_000) if "f32" in name else draw_integers(50_000)
    assert kernel.reference is not None and kernel.reference_at is not None
    whole = kernel.reference(array).reshape(-1)
    at = np.array([0, len(whole) - 1, len(whole) // 2, 0])
    found = kernel.reference_at(at, array)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, whole[at])
