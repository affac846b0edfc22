"""Faults of the driver under an executor: jobs are retried, the device is reopened where necessary,
and an error that persists is raised only by its own jobs.

A failing call is a C function that returns the error code (tests/support/vulkan_faults.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import VulkanError
from gpu_executor.vulkan.binding import vk
from tests.support.executors import ADD, FQ_ADD, total, words
from tests.support.fault_codes import (
    CODES,
    COUNT,
    JOBS,
    LOST,
    NO_MEMORY,
    OTHER,
    code_of,
    executor,
    for_every_code,
    run_as_batch,
)
from tests.support.jobs import check_sums, field_jobs, watch
from tests.support.pairwise import choose_pairwise
from tests.support.threads import in_threads
from tests.support.vulkan_faults import Fail, fail

__all__ = ["executor", "fail"]  # the fixtures

FEW, MANY = 7, 20_000
"""Jobs, and elements of a job. Together they are too large to be coalesced."""


def device_of(executor: gx.GpuExecutor) -> Any:
    (device,) = executor.stats().devices
    return device


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


# --- retries give right results ---


@for_every_code
def test_a_batch_is_right_whichever_submission_fails(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    jobs = [words(MANY, 10_000 * number) for number in range(FEW)]
    submitted = watch(monkeypatch, "vkQueueSubmit")
    executor.run_batch(ADD, jobs)
    assert len(submitted) == len(jobs)
    for turn in range(1, len(jobs) + 1):
        fail("vkQueueSubmit", code_of(code), on=turn)
        check_sums(executor.run_batch(ADD, jobs), jobs)
    stats = device_of(executor)
    assert (stats.retries, stats.errors) == (len(jobs), 0)
    assert stats.reopened == (len(jobs) if code == LOST else 0)


WAYS: dict[str, Callable[[gx.GpuExecutor, list[Any]], list[Any]]] = {
    "run": lambda executor, jobs: [executor.run(ADD, *job) for job in jobs],
    "submit": lambda executor, jobs: [
        future.result() for future in [executor.submit(ADD, *job) for job in jobs]
    ],
    "map": lambda executor, jobs: list(executor.map(ADD, *zip(*jobs, strict=True))),
    "run_batch": lambda executor, jobs: executor.run_batch(ADD, jobs),
}
"""Jobs of one kernel, by each way of calling."""
PLACES = [("vkQueueSubmit", 1), ("vkQueueSubmit", 7), ("vkWaitSemaphores", 1)]
"""Calls of an entry point that fail, by number."""


@pytest.mark.parametrize(("code", "place", "way"), choose_pairwise(CODES, PLACES, WAYS))
def test_jobs_are_retried_in_every_way_of_calling(
    executor: gx.GpuExecutor, fail: Fail, code: str, place: tuple[str, int], way: str
) -> None:
    name, on = place
    jobs = [words(MANY, 100 * number) for number in range(12)]
    fail(name, code_of(code), on=on)
    check_sums(WAYS[way](executor, jobs), jobs)
    stats = device_of(executor)
    assert (stats.retries, stats.errors) == (1, 0)


@for_every_code
def test_retried_calls_write_to_out(executor: gx.GpuExecutor, fail: Fail, code: str) -> None:
    jobs = [words(COUNT, 10_000 * number) for number in range(JOBS)]
    outs = [np.zeros(COUNT, np.uint32) for _ in jobs]
    fail("vkQueueSubmit", code_of(code), on=90)
    results = executor.run_batch(ADD, jobs, out=outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    check_sums(outs, jobs)
    assert device_of(executor).retries == 1


def test_a_device_is_lost_under_many_threads(executor: gx.GpuExecutor, fail: Fail) -> None:
    """Some threads find the backend closed by another thread that reopens the device."""
    fail("vkQueueSubmit", code_of(LOST), every=40)

    def work(number: int) -> None:
        for turn in range(25):
            job = words(50, 1000 * number + turn)
            result = executor.run(ADD, *job) if turn % 2 else executor.submit(ADD, *job).result()
            np.testing.assert_array_equal(result, total(job))

    in_threads(work)
    stats = device_of(executor)
    assert stats.reopened >= 3
    assert stats.errors == 0


def test_a_device_is_reopened_after_a_second_driver_error(
    executor: gx.GpuExecutor, fail: Fail
) -> None:
    """An error that is not a loss, and that persists in the first retry."""
    job = words(50)
    fail("vkQueueSubmit", code_of(OTHER), upto=2)
    np.testing.assert_array_equal(executor.run(ADD, *job), total(job))
    stats = device_of(executor)
    assert (stats.retries, stats.reopened, stats.errors) == (2, 1, 0)


def test_idle_memory_is_freed_when_memory_is_short(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (100, 200, 300):
        executor.run(FQ_ADD, *field_jobs(count)[0])
    assert device_of(executor).inside.slots.idle == 3
    job = words(50)
    executor.run(ADD, *job)
    fail("vkQueueSubmit", code_of(NO_MEMORY), on=1)
    np.testing.assert_array_equal(executor.run(ADD, *job), total(job))
    assert device_of(executor).inside.slots.idle == 1


# --- the number of tries ---


TRIES = (1, 2, 4)


@pytest.mark.parametrize(
    ("code", "tries", "way"), choose_pairwise(CODES, TRIES, ("run", "submit", "run_batch"))
)
def test_calls_are_tried_as_often_as_tries_says(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, code: str, tries: int, way: str
) -> None:
    """A batch is tried at most twice, then each call alone, as one call may fail the batch."""
    calls = FEW if way == "run_batch" else 1
    jobs = [words(MANY, number) for number in range(calls)]
    with gx.GpuExecutor("vulkan", tries=tries) as executor:
        fail("vkQueueSubmit", code_of(code))
        submitted = watch(monkeypatch, "vkQueueSubmit")
        with pytest.raises((VulkanError, gx.OutOfMemoryError), match=f"vkQueueSubmit.*{code}"):
            WAYS[way](executor, jobs)
        if calls == 1:
            assert len(submitted) == tries
            stats = device_of(executor)
            assert (stats.retries, stats.errors) == (tries - 1, 1)
        else:
            assert len(submitted) == (1 if tries == 1 else 2 + FEW * tries)
        monkeypatch.undo()
        check_sums(WAYS[way](executor, jobs), jobs)


# --- calls that are not retried ---


@for_every_code
def test_a_call_that_overwrites_its_input_is_not_retried(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    a, b = words(50)
    before = a.copy()
    fail("vkQueueSubmit", code_of(code), on=1)
    submitted = watch(monkeypatch, "vkQueueSubmit")
    with pytest.raises((VulkanError, gx.OutOfMemoryError)) as caught:
        executor.submit(ADD, a, b, out=a).result()
    assert "not retried: its output overlaps one of its inputs" in notes(caught.value)
    assert len(submitted) == 1
    np.testing.assert_array_equal(a, before)
    assert executor.run(ADD, a, b, out=a) is a
    np.testing.assert_array_equal(a, before + b)


@for_every_code
def test_only_the_calls_of_a_batch_that_overwrite_inputs_are_not_retried(
    executor: gx.GpuExecutor, fail: Fail, code: str
) -> None:
    calls = [words(COUNT, 10_000 * number) for number in range(JOBS)]
    outs: list[Any] = [None] * JOBS
    outs[7] = calls[7][0]
    fail("vkQueueSubmit", code_of(code), on=8)
    outcomes = run_as_batch(executor, ADD, calls, outs)
    error = outcomes.pop(7)
    assert isinstance(error, VulkanError | gx.OutOfMemoryError)
    assert "not retried: its output overlaps one of its inputs" in notes(error)
    check_sums(outcomes, calls[:7] + calls[8:])


@for_every_code
def test_calls_that_overlap_run_in_order_and_are_retried(
    executor: gx.GpuExecutor, fail: Fail, code: str
) -> None:
    """Two calls of the queue write to one array, and a call between them reads it."""
    calls = [words(COUNT, 10_000 * number) for number in range(JOBS)]
    outs: list[Any] = [None] * JOBS
    outs[5] = outs[20] = calls[10][0]
    expected = [a + b for a, b in calls]
    expected[10] = expected[5] + calls[10][1]
    expected[5] = expected[20]
    fail("vkQueueSubmit", code_of(code), on=11)
    outcomes = run_as_batch(executor, ADD, calls, outs)
    for outcome, right in zip(outcomes, expected, strict=True):
        np.testing.assert_array_equal(outcome, right)
    assert outcomes[5] is outcomes[20] is calls[10][0]
    assert device_of(executor).retries == 1


def test_device_arrays_are_lost_with_their_device(executor: gx.GpuExecutor, fail: Fail) -> None:
    (a, b), backend = words(50), executor._devices[0].backend
    there: Any = backend.to_device(a)
    others = [words(50, 100 * number) for number in range(5)]
    for code in (NO_MEMORY, OTHER):
        fail("vkQueueSubmit", code_of(code), on=1)
        np.testing.assert_array_equal(executor.run(ADD, there, b), a + b)
    fail("vkQueueSubmit", code_of(LOST), on=1)
    with pytest.raises(gx.DeviceLostError) as caught:
        executor.submit(ADD, there, b).result()
    assert "not retried: its arrays were in the memory of the device that failed" in notes(
        caught.value
    )
    there = executor._devices[0].backend.to_device(a)
    fail("vkQueueSubmit", code_of(LOST), on=3)
    outcomes = run_as_batch(executor, ADD, [*others, (there, b)], [None] * 6)
    assert isinstance(outcomes[5], gx.DeviceLostError)
    assert "its arrays were in the memory of the device that failed" in notes(outcomes[5])
    check_sums(outcomes[:5], others)


# --- devices that cannot be reopened ---


def test_a_device_that_cannot_be_reopened_is_quarantined(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [words(50, number) for number in range(5)]
    fail("vkQueueSubmit", code_of(LOST), on=1)
    fail("vkCreateDevice", vk.VK_ERROR_INITIALIZATION_FAILED)
    opened = watch(monkeypatch, "vkCreateDevice")
    futures: list[Future[Any]] = []
    for job in jobs:
        futures.append(executor.submit(ADD, *job))
        with pytest.raises(gx.NoDeviceError, match="VK_ERROR_INITIALIZATION_FAILED"):
            futures[-1].result()
    assert "it was lost and could not be reopened" in str(futures[0].exception())
    assert isinstance((futures[0].exception() or Exception()).__cause__, gx.DeviceLostError)
    with pytest.raises(gx.NoDeviceError, match=r"is quarantined: .* could not be reopened"):
        executor.run(ADD, *jobs[0])
    with pytest.raises(gx.NoDeviceError, match="is quarantined"):
        executor.run_batch(ADD, jobs)
    assert len({id(future.exception()) for future in futures}) == len(futures)
    assert len(opened) == 1
    assert "could not be reopened" in (device_of(executor).failed or "")


def test_jobs_fall_back_to_the_cpu_if_the_executor_chose_the_device(
    fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [words(50, number) for number in range(JOBS)]
    with gx.GpuExecutor() as executor:
        fail("vkQueueSubmit", code_of(LOST), on=1)
        fail("vkCreateDevice", vk.VK_ERROR_INITIALIZATION_FAILED)
        with pytest.warns(RuntimeWarning, match="falling back to the CPU"):
            results = [future.result() for future in [executor.submit(ADD, *job) for job in jobs]]
        check_sums(results, jobs)
        np.testing.assert_array_equal(executor.run(ADD, *jobs[0]), total(jobs[0]))
        assert executor.stats().fell_back


def test_jobs_of_a_quarantined_device_run_on_the_other(
    fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [words(500, number) for number in range(JOBS)]
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        check_sums(executor.run_batch(ADD, jobs), jobs)
        fail("vkQueueSubmit", code_of(LOST), on=3)
        fail("vkCreateDevice", vk.VK_ERROR_INITIALIZATION_FAILED)
        futures = [executor.submit(ADD, *job) for job in jobs]
        check_sums(executor.run_batch(ADD, jobs), jobs)
        check_sums([each.result() for each in futures], jobs)
        failed = [device.failed for device in executor.stats().devices]
        assert sum(each is not None for each in failed) == 1
        np.testing.assert_array_equal(executor.run(ADD, *jobs[0]), total(jobs[0]))


def test_after_an_interrupt_while_reopening_the_next_call_reopens_the_device(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, candidate = words(50), type(executor._devices[0].candidate)
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(candidate, "open", interrupted)
        fail("vkQueueSubmit", code_of(LOST), on=1)
        for way in (executor.run, lambda *call: executor.submit(*call).result()):
            with pytest.raises(KeyboardInterrupt):
                way(ADD, *job)
    for _ in range(2):
        np.testing.assert_array_equal(executor.run(ADD, *job), total(job))
    assert device_of(executor).reopened == 1


# --- WebGPU ---


@pytest.mark.parametrize("way", ["run", "submit", "run_batch"])
def test_a_lost_webgpu_device_is_reopened(way: str) -> None:
    job = words(5000)
    with gx.GpuExecutor("webgpu", settings=gx.Settings()) as executor:
        for turn in range(1, 3):
            backend: Any = executor._devices[0].backend
            backend.run(ADD, *job)
            backend.trim()  # wgpu-native aborts if prepared commands are submitted
            backend._device.device.destroy()
            if way == "run_batch":
                results = executor.run_batch(ADD, [job] * 3)
            else:
                results = [
                    executor.run(ADD, *job) if way == "run" else executor.submit(ADD, *job).result()
                ]
            for result in results:
                np.testing.assert_array_equal(result, total(job))
            assert device_of(executor).reopened == turn


def test_calls_on_a_lost_webgpu_device_raise_the_loss(open_webgpu: Any) -> None:
    gpu, job = open_webgpu(), words(5000)
    gpu.run(ADD, *job)
    gpu.trim()
    gpu._device.device.destroy()
    for _ in range(2):
        with pytest.raises(gx.DeviceLostError, match="reopen the backend"):
            gpu.run(ADD, *job)
        with pytest.raises(gx.DeviceLostError):
            gpu.run_batch(ADD, [job] * 2)
