"""Executors with several devices: the same device opened twice, or NumPy twice."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, DeviceLostError, NoDeviceError
from gpu_executor.executor import jobs
from gpu_executor.executor.candidates import DeviceCandidate
from gpu_executor.executor.jobs import CallArguments
from tests.support.executors import (
    ADD,
    FQ_ADD,
    InterposedBackend,
    call_before,
    lose,
    make_kernel,
    synchronize_devices,
    total,
    words,
)
from tests.support.jobs import TOO_LARGE, check_sums, field_job, word_jobs
from tests.support.threads import PATIENCE, in_background, in_threads

MANY = 100_000


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small calls are split too, into units of 1,024 words."""
    monkeypatch.setattr(jobs, "UNIT_BYTES", 8192)


on_vulkan_and_cpu = pytest.mark.parametrize("two", ["vulkan", "cpu"], indirect=True)
"""For tests of what the executor does itself, over any backend."""


@pytest.fixture(params=["vulkan", "webgpu", "cpu"])
def two(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor(request.param, devices=[0, 0]) as executor:
        yield executor


@pytest.fixture
def cpus() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu", devices=[0, 0]) as executor:
        yield executor


def read_by(executor: gx.GpuExecutor) -> list[int]:
    """Bytes that each device has read."""
    return [each.nbytes for each in executor.stats().devices]


# --- results ---


def test_a_large_call_is_split_among_both_devices(two: gx.GpuExecutor) -> None:
    synchronize_devices(two)
    a, b = words(MANY)
    for ask in (two.run, lambda *arrays: two.submit(*arrays).result(PATIENCE)):
        result = ask(ADD, a, b)
        np.testing.assert_array_equal(result, a + b)
        assert (result.shape, result.dtype, result.flags.writeable) == (a.shape, a.dtype, True)
    assert sum(read_by(two)) == 2 * (a.nbytes + b.nbytes)
    assert all(read_by(two)), "each device has run a part"


def test_a_split_call_keeps_shapes_layouts_and_outputs(two: gx.GpuExecutor) -> None:
    a, b = (each.reshape(100, 250, 4) for each in words(MANY))
    np.testing.assert_array_equal(two.run(ADD, a, b), a + b)
    np.testing.assert_array_equal(two.run(ADD, a[::-1], b[::-1]), (a + b)[::-1])
    out = np.zeros_like(a)
    assert two.run(ADD, a, b, out=out) is out
    np.testing.assert_array_equal(out, a + b)
    over = a.copy()
    assert two.run(ADD, over, b, out=over) is over
    np.testing.assert_array_equal(over, a + b)
    x, y = field_job(3000)
    check_sums([two.run(FQ_ADD, x, y)], [(x, y)])


@on_vulkan_and_cpu
def test_the_error_of_a_part_is_the_error_of_the_call(two: gx.GpuExecutor) -> None:
    a, b = field_job(3000)
    b[2500] = a[2900] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as raised:
        two.run(FQ_ADD, a, b)
    assert (raised.value.index, raised.value.argument) == (2500, 1)
    x, y = words(MANY)
    with pytest.raises(ArgumentShapeError, match="argument 1 has elements in shape"):
        two.run(ADD, x, y[:-1])
    with pytest.raises(ArgumentShapeError, match="out 0 has shape"):
        two.submit(ADD, x, y, out=np.empty(3, np.uint32)).result(PATIENCE)


def test_a_kernel_that_does_not_work_by_elements_is_not_split(two: gx.GpuExecutor) -> None:
    job = words(MANY)
    whole = dataclasses.replace(ADD, split="whole")
    np.testing.assert_array_equal(two.run(whole, *job), total(job))
    assert sorted(each.calls for each in two.stats().devices) == [0, 1]


def test_batches_and_maps_are_split_and_their_results_are_in_order(two: gx.GpuExecutor) -> None:
    synchronize_devices(two)
    jobs = word_jobs(*range(1, 300))
    check_sums(two.run_batch(ADD, jobs), jobs)
    check_sums(list(two.map(ADD, *zip(*jobs, strict=True))), jobs)
    outs = [np.empty_like(a) for a, _ in jobs]
    two.run_batch(ADD, jobs, out=outs)
    check_sums(outs, jobs)
    stats = two.stats().devices
    assert sum(each.calls for each in stats) == 3 * len(jobs)
    assert all(each.calls for each in stats)


@on_vulkan_and_cpu
def test_a_batch_raises_the_error_of_its_first_failed_job(two: gx.GpuExecutor) -> None:
    jobs = [field_job(3, seed) for seed in range(40)]
    jobs[13][0][1] = jobs[35][0][0] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as raised:
        two.run_batch(FQ_ADD, jobs)
    assert (raised.value.job, raised.value.index) == (13, 1)


@on_vulkan_and_cpu
def test_threads_share_several_devices(two: gx.GpuExecutor) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            a, b = words(30_000 * (turn % 2) + 10 + number, turn)
            np.testing.assert_array_equal(two.run(ADD, a, b), a + b)
            np.testing.assert_array_equal(two.submit(ADD, b, b).result(PATIENCE), b + b)
            check_sums(two.run_batch(ADD, [(a, b)] * 3), [(a, b)] * 3)

    in_threads(work)


# --- work stealing ---


def test_a_slow_device_gets_a_smaller_share(cpus: gx.GpuExecutor) -> None:
    call_before(cpus, 0, lambda elements: time.sleep(elements * 1e-6))
    call_before(cpus, 1, lambda elements: time.sleep(elements * 10e-6))
    arrays = words(MANY)
    for _ in range(3):
        np.testing.assert_array_equal(cpus.run(ADD, *arrays), total(arrays))
    before = read_by(cpus)
    np.testing.assert_array_equal(cpus.run(ADD, *arrays), total(arrays))
    fast, slow = (now - then for now, then in zip(read_by(cpus), before, strict=True))
    assert slow < fast / 2, "it is ten times slower"
    assert cpus._pool.rates.compute_shares(ADD)[1] < 1 / 3


def test_single_jobs_go_to_the_idle_device(cpus: gx.GpuExecutor) -> None:
    came = threading.Event()
    call_before(cpus, 0, lambda _elements: came.wait(PATIENCE))

    def slow(_elements: int) -> None:
        came.set()
        time.sleep(0.1)

    call_before(cpus, 1, slow)
    kernels = [make_kernel(lambda a, b: a + b, name=f"own {n}") for n in range(40)]  # not one batch
    futures = [cpus.submit(kernel, *words(9)) for kernel in kernels]
    check_sums([future.result(PATIENCE) for future in futures], [words(9)] * 40)
    first, second = (each.calls for each in cpus.stats().devices)
    assert first > second > 0


def test_work_is_stolen_from_a_slow_device(cpus: gx.GpuExecutor) -> None:
    begun, released = threading.Event(), threading.Event()

    def hold(_elements: int) -> None:
        begun.set()
        assert released.wait(PATIENCE)

    call_before(cpus, 0, lambda _elements: begun.wait(PATIENCE))
    call_before(cpus, 1, hold)
    arrays = words(MANY)
    thread, results = in_background(lambda: cpus.run(ADD, *arrays))
    assert begun.wait(PATIENCE)
    read, end = arrays[0].nbytes * 2, time.monotonic() + PATIENCE
    while read_by(cpus)[0] < 0.74 * read:
        assert time.monotonic() < end, "the other device steals all units but those in progress"
        time.sleep(0.001)
    assert cpus.stats().waiting == 0
    released.set()
    thread.join(PATIENCE)
    np.testing.assert_array_equal(results[0], total(arrays))
    assert 0 < read_by(cpus)[1] <= 0.26 * read, "at most half of its half"


def test_run_uses_the_least_busy_device(cpus: gx.GpuExecutor) -> None:
    begun, released = threading.Event(), threading.Event()

    def hold(_elements: int) -> None:
        begun.set()
        assert released.wait(PATIENCE)

    call_before(cpus, 0, hold)
    thread, _ = in_background(lambda: cpus.run(ADD, *words(3)))
    assert begun.wait(PATIENCE)
    cpus.run(ADD, *words(4))
    released.set()
    thread.join(PATIENCE)
    assert [each.calls for each in cpus.stats().devices] == [1, 1]


# --- failing devices ---


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost device cannot be reopened."""
    open_seat = DeviceCandidate.open
    opened: list[int] = []

    def reopen(candidate: DeviceCandidate, settings: gx.Settings) -> object:
        opened.append(1)
        if len(opened) > 2:
            raise NoDeviceError("it is not there any more")
        return open_seat(candidate, settings)

    monkeypatch.setattr(DeviceCandidate, "open", reopen)


@on_vulkan_and_cpu
def test_a_quarantined_device_gets_no_more_calls(gone: None, two: gx.GpuExecutor) -> None:
    call_before(two, 1, lose)
    synchronize_devices(two)
    arrays, jobs = words(MANY), word_jobs(*range(1, 100))
    np.testing.assert_array_equal(two.run(ADD, *arrays), total(arrays))
    check_sums(two.run_batch(ADD, jobs), jobs)
    check_sums(list(two.map(ADD, *zip(*jobs, strict=True))), jobs)
    check_sums([two.submit(ADD, *job).result(PATIENCE) for job in jobs], jobs)
    for job in jobs:
        check_sums([two.run(ADD, *job)], [job])
    stats = two.stats().devices
    why = "it was lost and could not be reopened: it is not there any more"
    assert (stats[0].failed, stats[1].failed) == (None, why)
    assert f"quarantined: {why}" in str(stats[1])
    assert two._pool.rates.compute_shares(ADD) == [1.0, 0.0]
    assert stats[1].calls <= 64, "at most the batch in which it failed"


def check_by(way: str, executor: gx.GpuExecutor, jobs: list[Any]) -> None:
    """Compute the sums of jobs in one way of calling."""
    if way == "run":
        check_sums([executor.run(ADD, *job) for job in jobs], jobs)
    elif way == "submit":
        futures = [executor.submit(ADD, *job) for job in jobs]
        check_sums([future.result(PATIENCE) for future in futures], jobs)
    elif way == "run_batch":
        check_sums(executor.run_batch(ADD, jobs), jobs)
    else:
        check_sums(list(executor.map(ADD, *zip(*jobs, strict=True), chunksize=4)), jobs)


@pytest.mark.parametrize("way", ["run", "submit", "run_batch", "map"])
def test_the_jobs_of_a_failed_device_run_on_the_other(
    gone: None, cpus: gx.GpuExecutor, way: str
) -> None:
    call_before(cpus, 1, lose)
    synchronize_devices(cpus)
    jobs = word_jobs(*[20_000] * 40)
    check_by(way, cpus, jobs)
    assert cpus.stats().devices[1].failed is not None


def test_a_call_that_overwrites_its_input_does_not_run_on_another_device(
    gone: None, cpus: gx.GpuExecutor
) -> None:
    for index in (0, 1):  # one of them runs the whole call
        call_before(cpus, index, lose)
    a, b = words(MANY)
    with pytest.raises(DeviceLostError) as raised:
        cpus.run(ADD, a, b, out=a)
    assert "may be overwritten" in raised.value.__notes__[0]


def test_all_jobs_fail_when_both_devices_have_failed(gone: None, cpus: gx.GpuExecutor) -> None:
    for index in (0, 1):
        call_before(cpus, index, lose)
    arrays = words(MANY)
    for _ in range(2):
        with pytest.raises(NoDeviceError, match="not there any more"):
            cpus.run(ADD, *arrays)
        with pytest.raises(NoDeviceError, match="not there any more"):
            cpus.submit(ADD, *words(3)).result(PATIENCE)
        with pytest.raises(NoDeviceError, match="not there any more"):
            cpus.run_batch(ADD, [words(3)] * 5)


def test_a_lost_device_that_is_reopened_stays_in_use(cpus: gx.GpuExecutor) -> None:
    call_before(cpus, 1, lose)
    synchronize_devices(cpus)
    arrays = words(MANY)
    for _ in range(3):
        np.testing.assert_array_equal(cpus.run(ADD, *arrays), total(arrays))
    stats = cpus.stats().devices[1]
    assert (stats.failed, stats.reopened) == (None, 1)


@pytest.fixture
def always_lost(monkeypatch: pytest.MonkeyPatch, cpus: gx.GpuExecutor) -> None:
    """The second device can be reopened, and is lost in every call."""
    open_seat = DeviceCandidate.open
    monkeypatch.setattr(
        DeviceCandidate,
        "open",
        lambda candidate, settings: InterposedBackend(open_seat(candidate, settings), lose),
    )
    call_before(cpus, 1, lose)


@pytest.mark.parametrize("way", ["run", "submit", "run_batch", "map"])
def test_a_device_that_is_lost_in_every_call_is_quarantined(
    always_lost: None, cpus: gx.GpuExecutor, way: str
) -> None:
    jobs = word_jobs(*[3] * 20)
    end = time.monotonic() + PATIENCE
    while cpus.stats().devices[1].failed is None and time.monotonic() < end:
        # As in another thread: device 0 is busier.
        with cpus._pool.reserve_device(ADD, CallArguments(jobs[0])):
            check_by(way, cpus, jobs)
    stats = cpus.stats().devices
    assert stats[0].failed is None
    assert stats[1].failed is not None and "in 3 calls in a row" in stats[1].failed


def test_a_call_that_loses_every_device_raises_the_loss(cpus: gx.GpuExecutor) -> None:
    def harmful(a: Any, b: Any) -> Any:
        raise DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")

    bad = make_kernel(harmful)
    with pytest.raises(DeviceLostError):
        cpus.submit(bad, *words(3)).result(PATIENCE)
    assert [each.failed for each in cpus.stats().devices] == [None, None]
    for number in range(5):
        with pytest.raises(DeviceLostError):
            cpus.submit(bad, *words(3)).result(PATIENCE)
        with pytest.raises(DeviceLostError):
            cpus.run(bad, *words(3))
        job = words(3, number)
        for _ in range(20):
            check_sums([cpus.submit(ADD, *job).result(PATIENCE), cpus.run(ADD, *job)], [job] * 2)
    assert any(each.failed is None for each in cpus.stats().devices)


def test_the_last_usable_device_tries_every_call_of_a_batch(
    cpus: gx.GpuExecutor,
) -> None:
    bad = make_kernel(lambda _a, _b: lose(0))
    for _ in range(4):
        with pytest.raises(DeviceLostError):
            cpus.run(bad, *words(3))
    left = [index for index, each in enumerate(cpus.stats().devices) if each.failed is None]
    assert len(left) == 1 and cpus._devices[left[0]].consecutive_losses >= 3
    losses = [1, 2]

    def lose_at_first(elements: int) -> None:
        if losses:
            losses.pop()
            lose(elements)

    call_before(cpus, left[0], lose_at_first)
    jobs = word_jobs(3, 4, 5)
    check_sums(cpus.run_batch(ADD, jobs), jobs)


# --- statistics ---


def test_each_device_has_its_own_statistics(two: gx.GpuExecutor) -> None:
    synchronize_devices(two)
    two.run(ADD, *words(MANY))
    stats = two.stats()
    assert len(stats.devices) == len(str(stats).splitlines()) - 1 == 2
    assert all(each.seconds > 0 for each in stats.devices)
    text = str(two.explain(ADD, 10))
    assert text.count("% ") == 2 and "shares of a large call" in text


def test_devices_all_opens_every_device_of_the_best_kind() -> None:
    with gx.GpuExecutor("vulkan", devices="all") as executor:
        kinds = {each.device for each in executor.stats().devices}
        assert len(kinds) == len(executor.stats().devices)
        np.testing.assert_array_equal(executor.run(ADD, *words(3)), total(words(3)))
