"""Large fills of single calls: the device copies each segment as soon as the host has filled it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.plan.calibration import MIN_FILL_BYTES_IN_SEGMENTS
from gpu_executor.vulkan.copy_threads import CopyThreads, Segment
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu
from tests.support.interrupts import InFlightTracker
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, Array, check_sums, field_job, word_jobs

Gpu = gx.PersistentVulkanBackend
COUNT = MIN_FILL_BYTES_IN_SEGMENTS // 8 + 1001
"""Elements of 4 bytes: two inputs are filled in two segments each, the second one shorter."""


@pytest.fixture
def gpu(staged_inputs: None) -> Iterator[Gpu]:
    """A backend whose device copies what the host fills."""
    with Gpu() as backend:
        yield backend


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many segments each call had."""
    seen: list[int] = []
    copy = CopyThreads.copy_segments

    def watched(copiers: CopyThreads, given: Any) -> None:
        seen.append(len(given))
        copy(copiers, given)

    monkeypatch.setattr(CopyThreads, "copy_segments", watched)
    return seen


def run(gpu: Gpu, *arrays: Array, **options: Any) -> Any:
    return gpu.run(ADD_U32, *arrays, device_local=True, **options)


def test_every_element_of_a_large_call_arrives(gpu: Gpu, segments: list[int]) -> None:
    jobs = word_jobs(COUNT, COUNT, COUNT + 77)
    check_sums([run(gpu, *job) for job in jobs], jobs)
    assert segments == [4, 4, 4]
    job = field_job(30_000)
    check_sums([gpu.run(FQ_ADD, *job, device_local=True)], [job])
    assert len(segments) == 4


def test_small_and_profiled_calls_are_filled_as_a_whole(gpu: Gpu, segments: list[int]) -> None:
    jobs = word_jobs(MIN_FILL_BYTES_IN_SEGMENTS // 8 - 1, COUNT)
    small = run(gpu, *jobs[0])
    with gpu.profile() as profile:
        large = run(gpu, *jobs[1])
    check_sums([small, large], jobs)
    assert segments == []
    assert {"fill", "copy in", "compute", "copy out"} <= set(profile.stages())


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "every other": lambda x: np.repeat(x, 2)[::2],
    "reversed": lambda x: x[::-1],
    "big-endian": lambda x: x.astype(">u4"),
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_any_layout_are_filled_in_segments(
    gpu: Gpu, segments: list[int], layout: Callable[[Array], Array]
) -> None:
    ((a, b),) = word_jobs(COUNT)
    given = layout(a)
    np.testing.assert_array_equal(run(gpu, given, b), given + b)
    np.testing.assert_array_equal(run(gpu, b, given), given + b)
    assert len(segments) == 2


def test_mapped_arrays_are_copied_beside_the_segments(gpu: Gpu, segments: list[int]) -> None:
    ((a, b),) = word_jobs(MIN_FILL_BYTES_IN_SEGMENTS // 4)
    out = gpu.zeros(len(a), np.uint32)
    run(gpu, gpu.asarray(a), b, out=out)
    run(gpu, out, b, out=out)
    np.testing.assert_array_equal(out, a + b + b)
    assert len(segments) == 2
    plain = np.empty_like(a)
    run(gpu, a, b, out=plain)
    run(gpu, plain, b, out=plain)
    np.testing.assert_array_equal(plain, a + b + b)


def test_slots_of_single_calls_serve_batches(fresh_gpu: OpenGpu, segments: list[int]) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(COUNT, COUNT, COUNT)
    for _ in range(2):
        check_sums([run(gpu, *job) for job in jobs], jobs)
        for depth in (1, 2):
            pipelined = depth > 1
            batch = gpu.run_batch(
                ADD_U32,
                jobs,
                device_local=True,
                pipelined=pipelined,
                depth=depth if pipelined else None,
            )
            check_sums(batch, jobs)
    assert segments == [4] * 6


def test_invalid_elements_in_a_later_segment_are_found(gpu: Gpu, segments: list[int]) -> None:
    a, b = field_job(30_000)
    b = b.copy()
    b[29_998] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match="29998"):
        gpu.run(FQ_ADD, a, b, device_local=True)
    b[29_998] = 0
    check_sums([gpu.run(FQ_ADD, a, b, device_local=True)], [(a, b)])
    assert len(segments) == 2


class SegmentError(Exception):
    """The error that these tests raise after a segment."""


@pytest.mark.parametrize("error", [SegmentError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [0, 2])
def test_an_error_between_segments_is_raised_and_the_next_call_is_exact(
    fresh_gpu: OpenGpu,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    at: int,
) -> None:
    """No segment is in flight when the error is raised: its memory may be used again."""
    gpu, jobs, count = fresh_gpu(), word_jobs(COUNT), 0
    check_sums([run(gpu, *jobs[0])], jobs)
    in_flight = InFlightTracker(gpu, monkeypatch)
    submit, lock = Timeline.submit, threading.Lock()

    def failing(timeline: Timeline, submission: Any) -> None:
        nonlocal count
        with lock:
            number, count = count, count + 1
        if number == at:
            raise error
        submit(timeline, submission)

    with monkeypatch.context() as patch:
        patch.setattr(Timeline, "submit", failing)
        with pytest.raises(error):
            run(gpu, *jobs[0])
    check_sums([run(gpu, *jobs[0])], jobs)
    assert in_flight.touched == []
    assert gpu.stats().slots.in_use == 0


def test_segments_are_copied_by_several_threads() -> None:
    copiers, source = CopyThreads(3), np.arange(1 << 20, dtype=np.uint32)
    target, done = np.zeros_like(source), list[int]()
    step = len(source) // 8

    def make_segment(number: int) -> Segment:
        some = slice(number * step, (number + 1) * step)
        return [(target[some], source[some])], lambda: done.append(number)

    copiers.copy_segments([make_segment(number) for number in range(8)])
    np.testing.assert_array_equal(target, source)
    assert sorted(done) == list(range(8))
    assert len(copiers._workers) == 2
    copiers.close()
