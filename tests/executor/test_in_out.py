"""In-out arguments under an executor: an array that is passed changes only if `out=` says so, and
a call that overwrites what it reads runs at most once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLostError, VulkanError
from gpu_executor.executor import jobs as jobs_module
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.jobs import CallArguments
from tests.support.contract_kernels import (
    PARTICLE,
    RENAMED_PARTICLE,
    expect_step,
    make_particles,
    move,
    reverse,
    step,
)
from tests.support.executors import (
    Array,
    HeldKernel,
    call_before,
    cpu,
    executor,
    held,
    lose,
    synchronize_devices,
)
from tests.support.fault_codes import CODES, LOST, code_of, for_every_code
from tests.support.jobs import watch
from tests.support.pairwise import choose_pairwise
from tests.support.threads import PATIENCE
from tests.support.vulkan_faults import Fail, fail

__all__ = ["cpu", "executor", "fail", "held"]  # the fixtures

STEP, REVERSE, MOVE = step(), reverse(), move()
SIZES = (1, 3, 64, 65, 200, 5000)
PLACES = ("vkQueueSubmit", 1), ("vkWaitSemaphores", 1)
NOT_RETRIED = "not retried: its output overlaps one of its inputs"


def make_job(size: int, seed: int = 1) -> tuple[Array, Array]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 1 << 32, size, np.uint32), draw.integers(0, 1 << 32, size, np.uint32)


def notes(error: BaseException) -> str:
    return " ".join(getattr(error, "__notes__", ()))


WAYS: dict[str, Callable[[gx.GpuExecutor, list[Any]], list[Any]]] = {
    "run": lambda gpu, jobs: [gpu.run(STEP, *job) for job in jobs],
    "submit": lambda gpu, jobs: [
        future.result(PATIENCE) for future in [gpu.submit(STEP, *job) for job in jobs]
    ],
    "map": lambda gpu, jobs: list(gpu.map(STEP, *zip(*jobs, strict=True))),
    "run_batch": lambda gpu, jobs: gpu.run_batch(STEP, jobs),
}
by_every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def vulkan(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("vulkan") as opened:
        yield opened


# --- without out= ---


@by_every_way
def test_a_passed_array_does_not_change(executor: gx.GpuExecutor, way: str) -> None:
    jobs = [make_job(size, size) for size in SIZES]
    copies = [(x.copy(), c.copy()) for x, c in jobs]
    results = WAYS[way](executor, jobs)
    for result, (x, c), (old_x, old_c) in zip(results, jobs, copies, strict=True):
        np.testing.assert_array_equal(x, old_x)
        np.testing.assert_array_equal(c, old_c)
        np.testing.assert_array_equal(result, expect_step(x, c))
        assert not np.may_share_memory(result, x)


@pytest.mark.parametrize(("code", "place", "way"), choose_pairwise(CODES, PLACES, WAYS))
def test_a_passed_array_does_not_change_in_a_retry(
    vulkan: gx.GpuExecutor, fail: Fail, code: str, place: tuple[str, int], way: str
) -> None:
    """A failed wait comes after the device has written its copy of the array."""
    backend = cast(gx.PersistentVulkanBackend, vulkan._devices[0].backend)
    for make in (np.array, backend.asarray):  # plain and mapped arrays
        jobs = [tuple(make(each) for each in make_job(20_000, n)) for n in range(3)]
        before = [x.copy() for x, _ in jobs]
        fail(place[0], code_of(code), on=place[1])
        results = WAYS[way](vulkan, jobs)
        for result, (x, c), old in zip(results, jobs, before, strict=True):
            np.testing.assert_array_equal(x, old)
            np.testing.assert_array_equal(result, expect_step(old, c))
        if code == LOST:
            return  # the mapped arrays of the lost device are gone with it
    assert vulkan.stats().devices[0].retries == 2


def test_calls_that_change_an_array_in_place_are_coalesced(
    cpu: gx.GpuExecutor, held: HeldKernel
) -> None:
    jobs = [make_job(size, size) for size in SIZES]
    coalesced = coalesce(STEP, [CallArguments(job) for job in jobs])
    assert coalesced is not None
    before = [x.copy() for x, _ in jobs]
    held.hold(cpu)
    futures = [cpu.submit(STEP, *job) for job in jobs]
    held.released.set()
    for future, (x, c), old in zip(futures, jobs, before, strict=True):
        np.testing.assert_array_equal(future.result(PATIENCE), expect_step(old, c))
        np.testing.assert_array_equal(x, old)


def test_structs_are_coalesced_and_split_among_devices(
    monkeypatch: pytest.MonkeyPatch, held: HeldKernel
) -> None:
    monkeypatch.setattr(jobs_module, "UNIT_BYTES", 1024)
    particles, small = make_particles(1000), [make_particles(size) for size in (1, 5, 9)]
    with gx.GpuExecutor("vulkan", devices=[0, 0], check=1.0) as gpu:
        synchronize_devices(gpu)
        for given in (particles, particles.view(RENAMED_PARTICLE)):
            moved = gpu.run(MOVE, given)
            assert moved.dtype == PARTICLE
            np.testing.assert_array_equal(moved["at"], particles["at"] + [1, 2, 3])
            np.testing.assert_array_equal(moved["id"], np.arange(1000) + 1)
            np.testing.assert_array_equal(moved["mass"], particles["mass"])
            np.testing.assert_array_equal(particles, make_particles(1000))
        for moved, before in zip(gpu.run_batch(MOVE, [(p,) for p in small]), small, strict=True):
            np.testing.assert_array_equal(moved["id"], before["id"] + 1)
        assert all(device.calls for device in gpu.stats().devices)


# --- with out= over the argument ---


def test_out_may_be_the_argument_itself(executor: gx.GpuExecutor) -> None:
    for size in SIZES:
        x, c = make_job(size)
        expected = expect_step(expect_step(x, c), c)
        assert executor.run(STEP, x, c, out=x) is x
        assert executor.submit(STEP, x, c, out=x).result(PATIENCE) is x
        np.testing.assert_array_equal(x, expected)
    jobs = [make_job(size, size) for size in SIZES]
    wanted = [expect_step(*job) for job in jobs]
    results = executor.run_batch(STEP, jobs, out=[x for x, _ in jobs])
    for result, (x, _), right in zip(results, jobs, wanted, strict=True):
        assert result is x
        np.testing.assert_array_equal(x, right)


def test_calls_in_place_on_one_array_run_in_the_order_of_their_submission(
    cpu: gx.GpuExecutor, held: HeldKernel
) -> None:
    x, c = make_job(100)
    expected = x.copy()
    held.hold(cpu)
    futures = [cpu.submit(STEP, x, c, out=x) for _ in range(10)]
    held.released.set()
    for future in futures:
        assert future.result(PATIENCE) is x
        expected = expect_step(expected, c)
    np.testing.assert_array_equal(x, expected)


@for_every_code
@pytest.mark.parametrize("tries", [1, 3])
def test_a_call_in_place_is_not_retried(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, code: str, tries: int
) -> None:
    with gx.GpuExecutor("vulkan", tries=tries) as gpu:
        x, c = make_job(50)
        for call in (gpu.run, lambda *a, **o: gpu.submit(*a, **o).result(PATIENCE)):
            fail("vkQueueSubmit", code_of(code), on=1)
            submitted = watch(monkeypatch, "vkQueueSubmit")
            with pytest.raises((VulkanError, gx.OutOfMemoryError)) as caught:
                call(STEP, x, c, out=x)
            assert NOT_RETRIED in notes(caught.value)
            assert len(submitted) == 1
            monkeypatch.undo()
        expected = expect_step(x, c)
        np.testing.assert_array_equal(gpu.run(STEP, x, c, out=x), expected)
        stats = gpu.stats().devices[0]
        assert (stats.retries, stats.errors) == (0, 2)


def test_the_device_is_reopened_after_a_call_in_place_lost_it(
    vulkan: gx.GpuExecutor, fail: Fail
) -> None:
    x, c = make_job(50)
    expected = expect_step(x, c)
    fail("vkQueueSubmit", code_of(LOST), on=1)
    with pytest.raises(DeviceLostError):
        vulkan.run(STEP, x, c, out=x)
    np.testing.assert_array_equal(vulkan.run(STEP, x, c, out=x), expected)
    assert vulkan.stats().devices[0].reopened == 1


@pytest.mark.parametrize("way", ["run", "submit", "run_batch"])
def test_a_call_in_place_is_not_sent_to_another_device(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    calls: list[int] = []

    def run_half(_elements: int) -> None:
        calls.append(1)
        x[: len(x) // 2] = 0  # as a device that fails in the middle of a call
        lose(0)

    with gx.GpuExecutor("cpu", devices=[0, 0]) as gpu:
        for device_index in (0, 1):
            call_before(gpu, device_index, run_half)
        x, c = make_job(40)
        with pytest.raises(DeviceLostError) as caught:
            if way == "run":
                gpu.run(STEP, x, c, out=x)
            elif way == "submit":
                gpu.submit(STEP, x, c, out=x).result(PATIENCE)
            else:
                gpu.run_batch(STEP, [(x, c)], out=[x])
        assert NOT_RETRIED in notes(caught.value)
        assert len(calls) == 1


def test_a_large_call_in_place_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "UNIT_BYTES", 1024)
    x, c = make_job(10_000)
    expected = expect_step(x, c)
    sizes: list[int] = []
    with gx.GpuExecutor("cpu", devices=[0, 0]) as gpu:
        for device_index in (0, 1):
            call_before(gpu, device_index, sizes.append)
        assert gpu.run(STEP, x, c, out=x) is x
        np.testing.assert_array_equal(x, expected)
        assert sizes == [10_000]
        out = np.empty_like(x)
        np.testing.assert_array_equal(gpu.run(STEP, x, c, out=out), expect_step(x, c))
        assert len(sizes) > 2, "a call with an array of its own for the result is shared"


def test_only_the_calls_of_a_batch_that_run_in_place_are_not_retried(
    vulkan: gx.GpuExecutor, fail: Fail
) -> None:
    jobs = [make_job(500, n) for n in range(8)]
    expected = [expect_step(*job) for job in jobs]
    outs: list[Any] = [None] * 8
    outs[3] = jobs[3][0]
    for failing in range(1, 9):
        jobs[3][0][:] = make_job(500, 3)[0]
        fail("vkQueueSubmit", code_of(LOST), on=failing)
        calls = [CallArguments(job, out) for job, out in zip(jobs, outs, strict=True)]
        outcomes = vulkan._devices[0].run_calls(STEP, calls)
        for index, (outcome, right) in enumerate(zip(outcomes, expected, strict=True)):
            if index == 3 and failing == 4:
                assert isinstance(outcome, DeviceLostError)
                assert NOT_RETRIED in notes(outcome)
            else:
                np.testing.assert_array_equal(outcome, right)


# --- whole kernels ---


def test_a_whole_kernel_is_neither_split_nor_shared_nor_coalesced(
    monkeypatch: pytest.MonkeyPatch, held: HeldKernel
) -> None:
    monkeypatch.setattr(jobs_module, "UNIT_BYTES", 1024)
    sizes: list[int] = []

    def compute(x: Array) -> Array:
        sizes.append(len(x))
        return x[::-1]

    logged, x = reverse(reference=compute), np.arange(10_000, dtype=np.uint32)
    with gx.GpuExecutor("cpu", devices=[0, 0]) as gpu:
        for call in (gpu.run, lambda *a: gpu.submit(*a).result(PATIENCE)):
            np.testing.assert_array_equal(call(logged, x), x[::-1])
        for result in gpu.run_batch(logged, [(x,)] * 3):
            np.testing.assert_array_equal(result, x[::-1])
        assert sizes == [10_000] * 5
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as gpu:
        np.testing.assert_array_equal(gpu.run(REVERSE, x), x[::-1])
        held_calls = [gpu.submit(REVERSE, x[:n]) for n in range(1, 40)]
        for n, future in enumerate(held_calls, 1):
            np.testing.assert_array_equal(future.result(PATIENCE), x[:n][::-1])
