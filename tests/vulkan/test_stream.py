"""Streams: infinite jobs, results in order, bounded memory, every way to end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.errors import SettingsError
from gpu_executor.plan import MAX_SLOTS
from gpu_executor.plan.bounds import DEFAULT_SLOTS
from gpu_executor.vulkan import binding
from tests.conftest import CHUNK, OpenGpu, on_both_paths
from tests.support.interrupts import InFlightTracker, interrupt_waits
from tests.support.jobs import (
    ADD_U32,
    FQ_ADD,
    TOO_LARGE,
    Array,
    Job,
    check_sums,
    field_job,
    field_jobs,
    word_jobs,
)
from tests.support.resource_counts import resident_bytes

Gpu = gx.PersistentVulkanBackend
GROWING = (1, 10, 1000, 5, 5000, 0, 3)
sizes = st.lists(st.sampled_from([0, 1, 2, 64, 65, 99, 100, 101, 250]), max_size=8)


class CountedJobs:
    """An iterable that counts the jobs taken from it."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs
        self.count = 0

    def __iter__(self) -> Iterator[Job]:
        for job in self._jobs:
            self.count += 1
            yield job


@on_both_paths
@given(counts=sizes, depth=st.sampled_from([None, 2, 3, 16]))
@example(counts=[101, 0, 7], depth=None)
@settings(max_examples=20)
def test_a_stream_yields_every_result_in_order(
    gpu: Gpu, chunking_gpu: Gpu, device_local: bool, counts: list[int], depth: int | None
) -> None:
    jobs = field_jobs(*counts)
    for backend in (gpu, chunking_gpu):
        stream = backend.stream(FQ_ADD, iter(jobs), device_local=device_local, depth=depth)
        check_sums(list(stream), jobs)


@on_both_paths
@pytest.mark.parametrize("counts", [GROWING, GROWING[::-1], (0, 0, 7), (7, 0, 7, 0), (0,), ()])
def test_sizes_may_grow_shrink_and_be_zero(
    gpu: Gpu, device_local: bool, counts: tuple[int, ...]
) -> None:
    jobs = word_jobs(*counts)
    check_sums(list(gpu.stream(ADD_U32, iter(jobs), device_local=device_local)), jobs)


@on_both_paths
@pytest.mark.parametrize("depth", [None, 2, 3, MAX_SLOTS])
def test_a_stream_takes_no_more_jobs_than_it_has_slots(
    fresh_gpu: OpenGpu, device_local: bool, depth: int | None
) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[70] * 50)
    slots = depth or DEFAULT_SLOTS
    counted = CountedJobs(jobs)
    stream = gpu.stream(ADD_U32, counted, device_local=device_local, depth=depth)
    assert counted.count == 0
    results: list[Array] = []
    for taken in range(1, 40):
        results.append(next(stream))
        assert counted.count <= taken + slots
    assert counted.count > 40, "the next jobs are in flight while the caller uses this result"
    assert gpu.stats().slots.in_use == gpu.stats().slots.misses == slots
    results += stream
    check_sums(results, jobs)
    assert gpu.stats().slots.in_use == 0


def test_thousands_of_jobs_need_bounded_memory() -> None:
    """Without the validation layer, which allocates memory of its own."""
    with gx.PersistentVulkanBackend(settings=gx.Settings()) as gpu:
        known = word_jobs(1, 64, 100, 65, 3)

        def run(number: int) -> None:
            jobs = itertools.islice(itertools.cycle(known), number)
            for result, (a, b) in zip(gpu.stream(ADD_U32, jobs), itertools.cycle(known)):
                assert np.array_equal(result, a + b)

        run(500)
        objects, resident, held = binding.count_live_objects(), resident_bytes(), gpu.stats().memory
        run(5000)
        assert gpu.stats().memory.bytes_held == held.bytes_held
        assert gpu.stats().memory.bytes_used == held.bytes_used
        assert binding.count_live_objects() == objects
        assert resident_bytes() - resident < 1 << 20
        assert gpu.stats().calls == 5500


def test_a_stream_of_one_size_makes_its_slots_once(fresh_gpu: OpenGpu) -> None:
    gpu, jobs = fresh_gpu(stream_chunk_elems=CHUNK), field_jobs(*[70] * 40, 250, *[99] * 9)
    for _ in range(2):
        check_sums(list(gpu.stream(FQ_ADD, jobs, depth=3)), jobs)
    assert gpu.stats().slots.misses <= 6


def test_slots_grow_with_the_largest_job_only(fresh_gpu: OpenGpu) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(1000, *range(1, 900, 20))
    check_sums(list(gpu.stream(ADD_U32, jobs, depth=2)), jobs)
    assert gpu.stats().slots.misses == 2


class JobsError(Exception):
    pass


def good_then(jobs: list[Job], error: BaseException) -> Iterator[Job]:
    yield from jobs
    raise error


@on_both_paths
@pytest.mark.parametrize("after", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("error", [JobsError, KeyboardInterrupt])
def test_an_error_in_the_jobs_ends_the_stream(
    fresh_gpu: OpenGpu,
    monkeypatch: pytest.MonkeyPatch,
    device_local: bool,
    after: int,
    error: type[BaseException],
) -> None:
    gpu, jobs = fresh_gpu(stream_chunk_elems=CHUNK), field_jobs(*[250] * after)
    in_flight = InFlightTracker(gpu, monkeypatch)
    results: list[Array] = []
    with pytest.raises(error):
        for result in gpu.stream(FQ_ADD, good_then(jobs, error()), device_local=device_local):
            results.append(result)
    check_sums(results, jobs[: len(results)])
    check_still_works(gpu)
    assert in_flight.touched == []


def check_still_works(gpu: Gpu) -> None:
    assert gpu.stats().slots.in_use == 0
    jobs = field_jobs(250, 7, 101)
    check_sums(list(gpu.stream(FQ_ADD, jobs)), jobs)
    check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
    assert gpu.stats().slots.in_use == 0


@on_both_paths
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_stream_may_be_left_early(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, device_local: bool, taken: int
) -> None:
    before = binding.count_live_objects()
    gpu, jobs = fresh_gpu(stream_chunk_elems=CHUNK), field_jobs(*[170] * 20)
    in_flight, counted = InFlightTracker(gpu, monkeypatch), CountedJobs(jobs)
    stream: Any = gpu.stream(FQ_ADD, counted, device_local=device_local, depth=3)
    results = list(itertools.islice(stream, taken))
    stream.close()
    assert counted.count < 20
    check_sums(results, jobs[:taken])
    check_still_works(gpu)
    assert in_flight.touched == []
    gpu.close()
    assert binding.count_live_objects() == before


@on_both_paths
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_stream_and_the_backend_stays_usable(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, device_local: bool, times: int
) -> None:
    # The second Ctrl-C arrives while the jobs in flight are waited for.
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    interrupt_waits(monkeypatch, times)
    in_flight = InFlightTracker(gpu, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        list(gpu.stream(FQ_ADD, field_jobs(*[250] * 9), device_local=device_local, depth=3))
    check_still_works(gpu)
    assert in_flight.touched == []


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_invalid_job_is_refused_by_its_index(chunking_gpu: Gpu, bad: int) -> None:
    jobs: list[Any] = [*field_jobs(9, 250, 7, 64, 9, 9)]
    jobs[bad] = (jobs[bad][0], jobs[bad][0].astype(np.float64))
    with pytest.raises(
        gx.errors.ArgumentTypeError, match=rf"^job {bad}: .*argument 1 has dtype float64"
    ):
        list(chunking_gpu.stream(FQ_ADD, jobs))
    check_still_works(chunking_gpu)


@on_both_paths
@pytest.mark.parametrize(("job", "index"), [(0, 3), (2, 207), (4, 8)])
def test_an_out_of_range_element_is_reported_by_job_argument_and_index(
    chunking_gpu: Gpu, device_local: bool, job: int, index: int
) -> None:
    jobs = field_jobs(9, 1, 250, 64, 9, 7)
    jobs[job][1][index] = TOO_LARGE
    results: list[Array] = []
    with pytest.raises(gx.ElementRangeError, match=rf"^job {job}: ") as caught:
        for result in chunking_gpu.stream(FQ_ADD, jobs, device_local=device_local, depth=2):
            results.append(result)
    assert (caught.value.job, caught.value.argument, caught.value.index) == (job, 1, index)
    check_sums(results, jobs[:job])
    check_still_works(chunking_gpu)


def test_an_invalid_depth_is_refused_at_once(gpu: Gpu) -> None:
    for depth in (0, 1, 17):
        with pytest.raises(SettingsError, match=f"depth is {depth}"):
            gpu.stream(FQ_ADD, [field_job(9)], depth=depth)
