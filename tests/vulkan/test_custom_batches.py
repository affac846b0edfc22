"""Batches and streams of user-defined kernels: several outputs, kernels that are not chunked.

This file requires glslc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from tests.conftest import OpenGpu, on_both_paths
from tests.support.custom_kernels import BODY, buffer, kernel, sum_and_difference, whole_sum
from tests.support.jobs import word_jobs

Gpu = gx.PersistentVulkanBackend
at_depths = pytest.mark.parametrize("depth", [1, 2, 3, 16])
EQUAL = (70, 70, 70, 70, 70)
MIXED = (70, 1, 1000, 5, 101, 1000)


def reverse() -> gx.Kernel:
    """Reverses its input: every output depends on an input of another index."""
    return kernel(
        BODY + "y[i] = x[count - 1 - i];",
        buffer(0, "x"),
        buffer(1, "y"),
        buffers="in, out",
        split="whole",
    )


@on_both_paths
@at_depths
def test_several_outputs_are_returned_as_tuples(
    chunking_gpu: Gpu, device_local: bool, depth: int
) -> None:
    jobs = word_jobs(70, 0, 250, 1, 100)
    results = chunking_gpu.run_batch(
        sum_and_difference(), jobs, device_local=device_local, depth=depth
    )
    for (total, difference), (a, b) in zip(results, jobs, strict=True):
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(difference, a - b)


@on_both_paths
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_several_outputs_are_written_to_out(
    chunking_gpu: Gpu, device_local: bool, mapped: bool
) -> None:
    jobs = word_jobs(70, 0, 250, 1, 100)
    empty: Any = chunking_gpu.empty if mapped else np.empty
    out = [(empty(len(a), np.uint32), empty(len(a), np.uint32)) for a, _ in jobs]
    results = chunking_gpu.run_batch(
        sum_and_difference(), jobs, out=out, device_local=device_local, depth=3
    )
    for result, given, (a, b) in zip(results, out, jobs, strict=True):
        assert all(one is other for one, other in zip(result, given, strict=True))
        np.testing.assert_array_equal(given[0], a + b)
        np.testing.assert_array_equal(given[1], a - b)


def test_one_array_for_two_outputs_is_refused(gpu: Gpu) -> None:
    (a, b), room = word_jobs(70)[0], np.empty(100, np.uint32)
    with pytest.raises(gx.errors.ArgumentShapeError, match="out 1 overlaps out 0"):
        gpu.run(sum_and_difference(), a, b, out=(room[:70], room[30:]))
    with pytest.raises(gx.errors.ArgumentTypeError, match="has 2 outputs and out has 1 array"):
        gpu.run(sum_and_difference(), a, b, out=room[:70])


@on_both_paths
@at_depths
@pytest.mark.parametrize("sizes", [EQUAL, MIXED], ids=["equal", "mixed"])
def test_whole_kernels_run_in_batches(
    chunking_gpu: Gpu, device_local: bool, depth: int, sizes: tuple[int, ...]
) -> None:
    xs = [a for a, _ in word_jobs(*sizes)]
    jobs = [(x,) for x in xs]
    sums = chunking_gpu.run_batch(whole_sum(), jobs, device_local=device_local, depth=depth)
    assert [int(total[0]) for total in sums] == [int(x.sum(dtype=np.uint32)) for x in xs]
    turned = chunking_gpu.run_batch(reverse(), jobs, device_local=device_local, depth=depth)
    for result, x in zip(turned, xs, strict=True):
        np.testing.assert_array_equal(result, x[::-1])


@on_both_paths
@pytest.mark.parametrize("sizes", [EQUAL, MIXED], ids=["equal", "mixed"])
def test_whole_kernels_run_in_streams(
    chunking_gpu: Gpu, device_local: bool, sizes: tuple[int, ...]
) -> None:
    xs = [a for a, _ in word_jobs(*sizes)]
    stream = chunking_gpu.stream(reverse(), ((x,) for x in xs), device_local=device_local)
    for result, x in zip(stream, xs, strict=True):
        np.testing.assert_array_equal(result, x[::-1])


@on_both_paths
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_a_whole_kernel_may_overwrite_its_input(gpu: Gpu, device_local: bool, mapped: bool) -> None:
    x = np.arange(1000, dtype=np.uint32)
    given = gpu.asarray(x) if mapped else x.copy()
    result = gpu.run(reverse(), given, out=given, device_local=device_local)
    assert result is given
    np.testing.assert_array_equal(given, x[::-1])


@on_both_paths
def test_a_whole_kernel_is_not_chunked_when_memory_is_short(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu = fresh_gpu(memory_limit=60_000)
    with pytest.raises(gx.OutOfMemoryError, match="limit 60,000"):
        gpu.run_batch(whole_sum(), [(np.ones(20_000, np.uint32),)] * 3, device_local=device_local)
    assert gpu.stats().slots.in_use == gpu.stats().shrunk == 0
    small = [(np.ones(2000, np.uint32),)] * 9
    sums = gpu.run_batch(whole_sum(), small, device_local=device_local, depth=16)
    assert [int(total[0]) for total in sums] == [2000] * 9
    assert gpu.stats().shrunk == 1
