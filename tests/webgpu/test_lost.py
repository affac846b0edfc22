"""Buffer sets in use at an error or an interrupt are discarded, and no others."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.webgpu.buffer_set import BufferSet
from tests.conftest import OpenWebGpu, RunPython
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, word_jobs
from tests.support.webgpu import (
    InjectedError,
    count_made,
    fail_once,
    finish_compiling,
    is_idle,
    list_cached_sets,
)

MIXED = (5, 20_000, 300, 40_000, 7, 16_385, 40_001)
"""Three jobs of the first bucket, two of each of the next two."""


def record_sets(gpu: gx.WgpuExecutor, monkeypatch: pytest.MonkeyPatch) -> list[BufferSet]:
    """Return a list of every set that the executor makes from now on."""
    seen: list[BufferSet] = []
    make = gpu._scheduler._make_set

    def noted(*arguments: Any, **options: Any) -> BufferSet:
        seen.append(make(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(gpu._scheduler, "_make_set", noted)
    return seen


def check_discarded(gpu: gx.WgpuExecutor, sets: list[BufferSet], number: int) -> None:
    """Check that `number` of the sets are discarded without buffers, and the others are cached."""
    cached, lost = list_cached_sets(gpu), gpu._scheduler._discarded
    assert (len(lost), len(cached)) == (number, len(sets) - number)
    assert set(lost) | set(cached) == set(sets)
    assert all(each.nbytes == 0 for each in lost)
    assert all(each.nbytes > 0 for each in cached)
    assert is_idle(gpu)


STEPS = [
    pytest.param("write", 1, 3, id="writing the first job"),
    pytest.param("write", 3, 3, id="writing the third job"),
    pytest.param("write", 4, 5, id="writing the fourth job"),
    pytest.param("make_dispatch", 7, 5, id="recording the last job"),
    pytest.param("begin_map", 2, 3, id="mapping the results of the second job"),
    pytest.param("read", 1, 7, id="reading the first job"),
    pytest.param("read", 3, 5, id="reading the third job"),
    pytest.param("read", 7, 1, id="reading the last job"),
]


@pytest.mark.parametrize("error", [InjectedError, KeyboardInterrupt])
@pytest.mark.parametrize(("step", "at", "lost"), STEPS)
def test_sets_in_flight_at_an_error_are_discarded(
    open_webgpu: OpenWebGpu,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    at: int,
    lost: int,
    error: type[BaseException],
) -> None:
    gpu, jobs = open_webgpu(), word_jobs(*MIXED)
    sets = record_sets(gpu, monkeypatch)
    gpu.run_batch(ADD_U32, jobs)
    check_discarded(gpu, sets, 0)
    with monkeypatch.context() as patch:
        fail_once(patch, BufferSet, step, at=at, error=error())
        with pytest.raises(error):
            gpu.run_batch(ADD_U32, jobs)
    assert len(sets) == 7
    check_discarded(gpu, sets, lost)
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    assert len(sets) == 7 + lost, "new sets replace the discarded ones"
    check_discarded(gpu, sets, lost)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("error", [InjectedError, KeyboardInterrupt])
@pytest.mark.parametrize(("at", "lost"), [(1, 3), (2, 5), (3, 7)])
def test_a_failed_submission_discards_its_sets_and_those_in_flight(
    open_webgpu: OpenWebGpu,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    lost: int,
    error: type[BaseException],
    private: bool,
) -> None:
    gpu, jobs = open_webgpu(private=private), word_jobs(*MIXED)
    sets = record_sets(gpu, monkeypatch)
    gpu.run_batch(ADD_U32, jobs)
    with monkeypatch.context() as patch:
        fail_once(patch, gpu._queue, "submit", at=at, error=error())
        with pytest.raises(error):
            gpu.run_batch(ADD_U32, jobs)
    check_discarded(gpu, sets, lost)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)
    check_discarded(gpu, sets, lost)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("step", ["prepare", "make_dispatch"])
def test_an_error_before_a_set_is_written_discards_nothing(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, step: str, private: bool
) -> None:
    gpu, (job,) = open_webgpu(private=private), word_jobs(1000)
    sets = record_sets(gpu, monkeypatch)
    for _ in range(2):  # the third call would be the first that records in the set it repeats
        gpu.run(ADD_U32, *job)
    with monkeypatch.context() as patch:
        fail_once(patch, BufferSet, step)
        with pytest.raises(InjectedError, match=step):
            gpu.run(ADD_U32, *job)
    assert gpu._scheduler._discarded == []
    assert set(list_cached_sets(gpu)) == set(sets)
    check_sums([gpu.run(ADD_U32, *job)], [job])


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("step", ["find_recorded", "write", "begin_map", "read"])
def test_an_exact_size_set_is_discarded_too(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, step: str, private: bool
) -> None:
    gpu, (job,) = open_webgpu(private=private), word_jobs(1000)
    sets = record_sets(gpu, monkeypatch)
    for _ in range(3):
        gpu.run(ADD_U32, *job)
    in_bucket, exact = sets
    with monkeypatch.context() as patch:
        fail_once(patch, BufferSet, step)
        with pytest.raises(InjectedError, match=step):
            gpu.run(ADD_U32, *job)
    assert gpu._scheduler._discarded == [exact]
    assert list_cached_sets(gpu) == [in_bucket]
    assert gpu.stats().exact_entries == 0
    for _ in range(2):
        check_sums([gpu.run(ADD_U32, *job)], [job])
    assert gpu.stats().exact_entries == 1
    check_discarded(gpu, sets, 1)


@pytest.mark.parametrize("private", [True, False])
def test_a_range_error_discards_nothing(open_webgpu: OpenWebGpu, private: bool) -> None:
    gpu, jobs = open_webgpu(private=private), field_jobs(5, 20_000, 300)
    wrong = [(a, b.copy()) for a, b in jobs]
    for _, b in wrong[1:]:
        b[4] = TOO_LARGE
    for _ in range(2):
        check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
        check_sums([gpu.run(FQ_ADD, *job) for job in jobs], jobs)
    finish_compiling(gpu)
    before, sets = gpu.stats(), set(list_cached_sets(gpu))
    for _ in range(3):
        with pytest.raises(gx.ElementRangeError):
            gpu.run_batch(FQ_ADD, wrong)
        with pytest.raises(gx.ElementRangeError):
            gpu.run(FQ_ADD, *wrong[2])
        assert gpu._scheduler._discarded == []
        assert set(list_cached_sets(gpu)) == sets
    check_sums(gpu.run_batch(FQ_ADD, jobs), jobs)
    assert count_made(gpu.stats()) == count_made(before)
    assert is_idle(gpu)


# In its own process: WebGPU aborts the process when a mapped buffer is used in a submission.
INTERRUPTED_IN_THE_CALLBACK = """
import numpy as np, gpu_executor as gx
from gpu_executor.webgpu.native_queue import NativeQueue

class Answers(list):
    left = 0
    def append(self, answer):
        Answers.left -= 1
        if Answers.left == 0:
            raise KeyboardInterrupt
        super().append(answer)

make = NativeQueue.{makes}
def made(self, buffer):
    whole = make(self, buffer)
    mapping = getattr(whole, "_mapping", whole)
    mapping._answers = Answers()
    return whole
NativeQueue.{makes} = made

kernel = gx.kernels.load("vector_add_u32")
jobs = [(x, x) for x in (np.arange(n, dtype=np.uint32) for n in (5, 20_000, 300, 20_001))]
def check_results():
    for (x, _), result in zip(jobs, gpu.run_batch(kernel, jobs), strict=True):
        assert (result == 2 * x).all()
    for x, _ in jobs:
        assert (gpu.run(kernel, x, x) == 2 * x).all()

for at in {at}:
    with gx.WgpuExecutor(settings=gx.Settings()) as gpu:
        Answers.left = at
        interrupts = 0
        for _ in range({within}):
            try:
                check_results()
            except KeyboardInterrupt:
                interrupts += 1
                assert gpu._scheduler._discarded
        assert all(bucket.busy == 0 for bucket in gpu._scheduler.buckets._buckets.values())
        for _ in range(3):
            check_results()
        print(interrupts)
NativeQueue.{makes} = make
"""


def test_an_interrupt_in_the_callback_of_a_result_or_an_input_is_raised_once(
    run_python: RunPython,
) -> None:
    """That of a result by its call, that of an input by one of the next calls."""
    of_results = INTERRUPTED_IN_THE_CALLBACK.format(makes="make_reader", at=(1, 4, 8), within=1)
    of_inputs = INTERRUPTED_IN_THE_CALLBACK.format(makes="make_writer", at=(1, 5), within=3)
    ran = run_python(of_results + of_inputs)
    assert (ran.returncode, ran.stdout.split()) == (0, ["1"] * 5), ran.stderr
