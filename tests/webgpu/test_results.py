"""Memory of results: reused only when no reference to the earlier result is left."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.result_memory import MAX_PROBES, MIN_RECYCLED_BYTES
from gpu_executor.plan import round_up_to_class
from gpu_executor.webgpu import output_allocator
from gpu_executor.webgpu.buffer_set import BufferSet
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, Array, check_sums, word_jobs
from tests.support.results import (
    COUNT,
    HOLDS,
    RECYCLED_BYTES,
    ZEROS,
    address,
    filled,
    numbers_in,
)
from tests.support.threads import in_threads
from tests.support.webgpu import InjectedError, fail_once, is_idle

ONE_RESULT = round_up_to_class(ZEROS.nbytes)
"""Bytes of the memory of one result."""
SUM_AND_DIFFERENCE = """\
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> total: array<u32>;
@group(0) @binding(3) var<storage, read_write> difference: array<u32>;

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let first = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        let i = first + n * work_group;
        if (i < param(0u)) {
            total[i] = a[i] + b[i];
            difference[i] = a[i] - b[i];
        }
    }
}
"""


@pytest.fixture(autouse=True)
def recycle_smaller_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_allocator, "MIN_RECYCLED_BYTES", RECYCLED_BYTES)


@pytest.fixture(scope="module")
def warm() -> Iterator[gx.WgpuExecutor]:
    """An executor shared by the tests that do not look at its counters."""
    with gx.WgpuExecutor(settings=gx.Settings()) as executor:
        yield executor


def compute_filled(gpu: gx.WgpuExecutor, number: int, **more: Any) -> Any:
    """Return an array filled with a number, computed by the device."""
    return gpu.run(ADD_U32, filled(number), ZEROS, **more)


def compute_filled_in_batch(gpu: gx.WgpuExecutor, number: int, out: Array) -> Any:
    """Return the same as `compute_filled`, computed as a batch of one job."""
    return gpu.run_batch(ADD_U32, [(filled(number), ZEROS)], out=[out])[0]


def count_remembered_bytes(gpu: gx.WgpuExecutor) -> int:
    """Return the bytes of result memory that the executor remembers."""
    return gpu._outputs._memory.nbytes


def check_disjoint(results: list[Array]) -> None:
    """Check that no two results share memory."""
    ranges = sorted((address(each), address(each) + each.nbytes) for each in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


@pytest.mark.parametrize("private", [True, False])
def test_a_new_result_reuses_the_memory_of_a_dropped_one(
    open_webgpu: OpenWebGpu, private: bool
) -> None:
    gpu = open_webgpu(private=private)
    result = compute_filled(gpu, 1)
    place = address(result)
    del result
    for number in range(2, 8):
        result = compute_filled(gpu, number)
        assert (address(result), set(result.tolist())) == (place, {number})
        assert result.flags.writeable and result.flags.c_contiguous
        del result
    assert count_remembered_bytes(gpu) == ONE_RESULT
    held = compute_filled(gpu, 30)
    other = compute_filled(gpu, 31)
    check_disjoint([held, other])
    assert (set(held.tolist()), set(other.tolist())) == ({30}, {31})
    assert count_remembered_bytes(gpu) == 2 * ONE_RESULT


def test_results_of_a_batch_reuse_the_memory_of_dropped_ones(open_webgpu: OpenWebGpu) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*[COUNT] * 4)
    results = gpu.run_batch(ADD_U32, jobs)
    check_disjoint(results)
    places = {address(each) for each in results}
    del results
    for _ in range(3):
        results = gpu.run_batch(ADD_U32, jobs)
        check_sums(results, jobs)
        assert {address(each) for each in results} == places
        del results
    assert count_remembered_bytes(gpu) == 4 * ONE_RESULT


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_memory_that_is_referenced_in_any_way_is_never_overwritten(
    warm: gx.WgpuExecutor, hold: Callable[[Any], Any]
) -> None:
    held = hold(compute_filled(warm, 0x07070707))
    for number in range(20, 20 + 2 * MAX_PROBES):
        compute_filled(warm, number)
    warm.run_batch(ADD_U32, [(filled(50), ZEROS)] * 3)
    assert numbers_in(held) == {7}


def test_a_result_used_as_input_is_not_reused_for_the_output(open_webgpu: OpenWebGpu) -> None:
    gpu, x = open_webgpu(), np.arange(COUNT, dtype=np.uint32)
    result = x
    for _ in range(10):
        result = gpu.run(ADD_U32, result, result)
    np.testing.assert_array_equal(result, x << 10)
    assert count_remembered_bytes(gpu) == 2 * ONE_RESULT


def test_reused_memory_gets_the_shape_and_dtype_of_the_new_result(warm: gx.WgpuExecutor) -> None:
    for shape in [(COUNT,), (2, COUNT // 2), (COUNT // 6, 2, 3), (1, COUNT, 1)]:
        x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
        for _ in range(2):
            result = warm.run(ADD_U32, x, x)
            assert (result.shape, result.dtype) == (shape, np.uint32)
            np.testing.assert_array_equal(result, 2 * x)
            del result


def test_the_outputs_of_one_call_are_reused_separately(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    kernel = gx.Kernel.from_wgsl(SUM_AND_DIFFERENCE, buffers="in u4, in u4, out u4, out u4")
    total, difference = gpu.run(kernel, filled(5), filled(3))
    check_disjoint([total, difference])
    free = address(difference)
    del difference
    for number in range(10, 14):
        other, another = gpu.run(kernel, filled(2 * number), filled(number))
        check_disjoint([total, other, another])
        assert free in (address(other), address(another))
        assert (set(other.tolist()), set(another.tolist())) == ({3 * number}, {number})
        del other, another
    assert set(total.tolist()) == {8}


def test_small_and_very_large_results_own_their_memory(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_allocator, "MIN_RECYCLED_BYTES", MIN_RECYCLED_BYTES)
    gpu = open_webgpu()
    gpu._outputs._max_bytes = MIN_RECYCLED_BYTES + 400
    words = MIN_RECYCLED_BYTES // 4
    jobs = word_jobs(9, words - 1, words, words + 100, words + 101)
    for results in (gpu.run_batch(ADD_U32, jobs), [gpu.run(ADD_U32, *job) for job in jobs]):
        check_sums(results, jobs)
        assert [each.flags.owndata for each in results] == [True, True, False, False, True]


def test_results_that_the_caller_holds_are_not_remembered_beyond_the_budget(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu(settings=gx.Settings(idle_memory=1))
    held = []
    for number in range(10):
        held.append(compute_filled(gpu, number))
        assert count_remembered_bytes(gpu) <= gpu.stats().memory_use.idle_limit
    for more in range(10):
        x = np.full(COUNT + 100 * more, more, np.uint32)
        held.append(gpu.run(ADD_U32, x, np.zeros_like(x)))
        assert count_remembered_bytes(gpu) <= gpu.stats().memory_use.idle_limit
    assert gpu.stats().memory_use.idle["results"] == 0
    check_disjoint(held)
    assert [set(each.tolist()) for each in held] == [{number} for number in [*range(10)] * 2]


def test_out_arrays_of_the_caller_are_never_reused(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    for run in (compute_filled, compute_filled_in_batch):
        out = np.empty_like(ZEROS)
        assert run(gpu, 3, out=out) is out
        assert set(out.tolist()) == {3}
        assert count_remembered_bytes(gpu) == 0
        gone = weakref.ref(out)
        del out
        assert gone() is None, "only the caller may reference it"
    first = compute_filled(gpu, 4)
    assert compute_filled(gpu, 5, out=first) is first
    assert count_remembered_bytes(gpu) == ONE_RESULT
    check_disjoint([first, compute_filled(gpu, 6)])
    assert set(first.tolist()) == {5}


def test_referenced_results_are_valid_after_close(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    part, whole = compute_filled(gpu, 9)[5:7], compute_filled(gpu, 8)
    of_dropped = weakref.ref(compute_filled(gpu, 7).base)
    assert of_dropped() is not None
    gpu.close()
    assert of_dropped() is None
    assert part.tolist() == [9, 9]
    part[0] = 4
    assert part.tolist() == [4, 9]
    assert set(whole.tolist()) == {8}
    of_part = weakref.ref(part.base)
    del part
    assert of_part() is None


ERRORS: dict[str, Callable[[], BaseException]] = {
    "an error": InjectedError,
    "an interrupt": KeyboardInterrupt,
}


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_after_an_error_no_memory_is_handed_out_twice(
    open_webgpu: OpenWebGpu,
    monkeypatch: pytest.MonkeyPatch,
    error: Callable[[], BaseException],
    private: bool,
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(*[COUNT] * 3)
    held = [compute_filled(gpu, 70)]
    for at in (1, 2, 3):
        with monkeypatch.context() as patch:
            fail_once(patch, BufferSet, "read", at=at, error=error())
            with pytest.raises((InjectedError, KeyboardInterrupt)):
                gpu.run_batch(ADD_U32, jobs)
        results = gpu.run_batch(ADD_U32, jobs)
        check_sums(results, jobs)
        held.append(compute_filled(gpu, 70 + at))
        check_disjoint([*held, *results])
        del results
    assert [set(each.tolist()) for each in held] == [{number} for number in range(70, 74)]
    assert is_idle(gpu)


def test_memory_of_failed_calls_is_reused(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    good = np.ones((RECYCLED_BYTES // 48 + 70, 6), np.uint64)
    bad = good.copy()
    bad[-1] = TOO_LARGE
    held = gpu.run(FQ_ADD, good, good)
    for _ in range(3):
        with pytest.raises(gx.ElementRangeError):
            gpu.run(FQ_ADD, good, bad)
        with pytest.raises(gx.ElementRangeError):
            gpu.run_batch(FQ_ADD, [(good, good), (good, bad)])
        gc.collect()
    results = gpu.run_batch(FQ_ADD, [(good, good)] * 3)
    check_disjoint([held, *results])
    assert all((each == 2).all() for each in [held, *results])
    assert count_remembered_bytes(gpu) <= 6 * good.nbytes


def test_results_of_different_threads_share_no_memory(warm: gx.WgpuExecutor) -> None:
    lock = threading.Lock()
    live: dict[int, tuple[int, int]] = {}
    """Address ranges of the referenced results, by the number that fills them."""

    def work(thread: int) -> None:
        held: dict[int, Any] = {}
        for number in range(100 * thread, 100 * thread + 10):
            held[number] = compute_filled(warm, number)
            start = address(held[number])
            end = start + held[number].nbytes
            with lock:
                overlapping = [of for of, (at, to) in live.items() if at < end and start < to]
                live[number] = start, end
            assert overlapping == []
            assert all((held[each] == each).all() for each in held)
            if len(held) > 2:
                oldest = min(held)
                with lock:
                    del live[oldest]
                del held[oldest]
        with lock:
            for each in held:
                del live[each]

    in_threads(work)
    assert live == {}
