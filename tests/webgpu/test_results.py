"""Results of the WebGPU executor: in memory of earlier ones that were dropped, and of no others."""

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
from gpu_executor.result_memory import LOOKED_AT, SMALLEST
from gpu_executor.webgpu.buffer_set import BufferSet
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, Array, check_sums, word_jobs
from tests.support.webgpu import InjectedError, fail_once, idle
from tests.vulkan.test_recycled_results import COUNT, HOLDS, ZEROS, address, filled, numbers_in
from tests.vulkan.test_threads import in_threads

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


@pytest.fixture(scope="module")
def warm() -> Iterator[gx.WgpuExecutor]:
    """One for all tests that do not count what it holds."""
    with gx.WgpuExecutor(settings=gx.Settings()) as executor:
        yield executor


def result_of(gpu: gx.WgpuExecutor, number: int, **more: Any) -> Any:
    """An array full of that number, made by the device."""
    return gpu.run(ADD_U32, filled(number), ZEROS, **more)


def result_in_batch(gpu: gx.WgpuExecutor, number: int, out: Array) -> Any:
    """The same, as a batch of one."""
    return gpu.run_batch(ADD_U32, [(filled(number), ZEROS)], out=[out])[0]


def remembered(gpu: gx.WgpuExecutor) -> int:
    """Bytes that results lie in or lay in."""
    return gpu._outputs._recycled.nbytes


def check_apart(results: list[Array]) -> None:
    """No two of them share memory."""
    ranges = sorted((address(each), address(each) + each.nbytes) for each in results)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


@pytest.mark.parametrize("private", [True, False])
def test_a_result_that_was_dropped_makes_room_for_the_next(
    open_webgpu: OpenWebGpu, private: bool
) -> None:
    gpu = open_webgpu(private=private)
    result = result_of(gpu, 1)
    place = address(result)
    del result
    for number in range(2, 8):
        result = result_of(gpu, number)
        assert (address(result), set(result.tolist())) == (place, {number})
        assert result.flags.writeable and result.flags.c_contiguous
        del result
    assert remembered(gpu) == ZEROS.nbytes
    held = result_of(gpu, 30)
    other = result_of(gpu, 31)
    check_apart([held, other])
    assert (set(held.tolist()), set(other.tolist())) == ({30}, {31})
    assert remembered(gpu) == 2 * ZEROS.nbytes


def test_results_of_batches_lie_in_those_of_earlier_ones(open_webgpu: OpenWebGpu) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*[COUNT] * 4)
    results = gpu.run_batch(ADD_U32, jobs)
    check_apart(results)
    places = {address(each) for each in results}
    del results
    for _ in range(3):
        results = gpu.run_batch(ADD_U32, jobs)
        check_sums(results, jobs)
        assert {address(each) for each in results} == places
        del results
    assert remembered(gpu) == 4 * ZEROS.nbytes


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_what_is_held_in_any_way_is_never_written_over(
    warm: gx.WgpuExecutor, hold: Callable[[Any], Any]
) -> None:
    held = hold(result_of(warm, 0x07070707))
    for number in range(20, 20 + 2 * LOOKED_AT):
        result_of(warm, number)
    warm.run_batch(ADD_U32, [(filled(50), ZEROS)] * 3)
    assert numbers_in(held) == {7}


def test_a_result_that_is_the_next_ones_input_is_not_its_output(open_webgpu: OpenWebGpu) -> None:
    gpu, x = open_webgpu(), np.arange(COUNT, dtype=np.uint32)
    result = x
    for _ in range(10):
        result = gpu.run(ADD_U32, result, result)
    np.testing.assert_array_equal(result, x << 10)
    assert remembered(gpu) == 2 * x.nbytes


def test_a_result_keeps_its_shape_and_dtype(warm: gx.WgpuExecutor) -> None:
    for shape in [(COUNT,), (2, COUNT // 2), (COUNT // 6, 2, 3), (1, COUNT, 1)]:
        x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
        for _ in range(2):
            result = warm.run(ADD_U32, x, x)
            assert (result.shape, result.dtype) == (shape, np.uint32)
            np.testing.assert_array_equal(result, 2 * x)
            del result


def test_several_results_are_recycled_one_by_one(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    kernel = gx.Kernel.from_wgsl(SUM_AND_DIFFERENCE, inputs=2, outputs=2, dtypes=["u4"] * 4)
    total, difference = gpu.run(kernel, filled(5), filled(3))
    check_apart([total, difference])
    free = address(difference)
    del difference
    for number in range(10, 14):
        other, another = gpu.run(kernel, filled(2 * number), filled(number))
        check_apart([total, other, another])
        assert free in (address(other), address(another))
        assert (set(other.tolist()), set(another.tolist())) == ({3 * number}, {number})
        del other, another
    assert set(total.tolist()) == {8}


def test_small_results_and_very_large_ones_are_plain_arrays(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu._outputs._max_bytes = SMALLEST + 400
    words = SMALLEST // 4
    jobs = word_jobs(9, words - 1, words, words + 100, words + 101)
    for results in (gpu.run_batch(ADD_U32, jobs), [gpu.run(ADD_U32, *job) for job in jobs]):
        check_sums(results, jobs)
        assert [each.flags.owndata for each in results] == [True, True, False, False, True]


def test_no_more_is_remembered_than_the_most_bytes(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    most = gpu._outputs._max_bytes = 4 * ZEROS.nbytes
    held = []
    for number in range(10):
        held.append(result_of(gpu, number))
        assert remembered(gpu) <= most
    for more in range(10):
        x = np.full(COUNT + 100 * more, more, np.uint32)
        held.append(gpu.run(ADD_U32, x, np.zeros_like(x)))
        assert remembered(gpu) <= most
    check_apart(held)
    assert [set(each.tolist()) for each in held] == [{number} for number in [*range(10)] * 2]


def test_arrays_of_the_callers_own_are_never_given_to_others(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    for run in (result_of, result_in_batch):
        out = np.empty_like(ZEROS)
        assert run(gpu, 3, out=out) is out
        assert set(out.tolist()) == {3}
        assert remembered(gpu) == 0
        gone = weakref.ref(out)
        del out
        assert gone() is None, "nobody but the caller held it"
    first = result_of(gpu, 4)
    assert result_of(gpu, 5, out=first) is first
    assert remembered(gpu) == ZEROS.nbytes
    check_apart([first, result_of(gpu, 6)])
    assert set(first.tolist()) == {5}


def test_results_that_are_held_are_valid_after_close(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    part, whole = result_of(gpu, 9)[5:7], result_of(gpu, 8)
    of_dropped = weakref.ref(result_of(gpu, 7).base)
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
def test_an_error_midway_hands_no_memory_out_twice(
    open_webgpu: OpenWebGpu,
    monkeypatch: pytest.MonkeyPatch,
    error: Callable[[], BaseException],
    private: bool,
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(*[COUNT] * 3)
    held = [result_of(gpu, 70)]
    for at in (1, 2, 3):
        with monkeypatch.context() as patch:
            fail_once(patch, BufferSet, "read", at=at, error=error())
            with pytest.raises((InjectedError, KeyboardInterrupt)):
                gpu.run_batch(ADD_U32, jobs)
        results = gpu.run_batch(ADD_U32, jobs)
        check_sums(results, jobs)
        held.append(result_of(gpu, 70 + at))
        check_apart([*held, *results])
        del results
    assert [set(each.tolist()) for each in held] == [{number} for number in range(70, 74)]
    assert idle(gpu)


def test_calls_that_fail_leave_their_memory_to_later_ones(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    good = np.ones((SMALLEST // 48 + 70, 6), np.uint64)
    bad = good.copy()
    bad[-1] = TOO_LARGE
    held = gpu.run(FQ_ADD, good, good)
    for _ in range(6):
        with pytest.raises(gx.ElementRangeError):
            gpu.run(FQ_ADD, good, bad)
        with pytest.raises(gx.ElementRangeError):
            gpu.run_batch(FQ_ADD, [(good, good), (good, bad)])
        gc.collect()
    results = gpu.run_batch(FQ_ADD, [(good, good)] * 3)
    check_apart([held, *results])
    assert all((each == 2).all() for each in [held, *results])
    assert remembered(gpu) <= 6 * good.nbytes


def test_no_two_results_of_several_threads_share_memory(warm: gx.WgpuExecutor) -> None:
    lock = threading.Lock()
    live: dict[int, tuple[int, int]] = {}
    """Where the results are that somebody holds, by the number they are full of."""

    def work(thread: int) -> None:
        held: dict[int, Any] = {}
        for number in range(100 * thread, 100 * thread + 10):
            held[number] = result_of(warm, number)
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
