"""Resources of batches: memory within limits, no allocation in a steady state, no leaks after
errors.
"""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.slot import MAX_RECORDINGS
from tests.conftest import CHUNK, OpenGpu, on_both_paths
from tests.support.interrupts import InFlightTracker, interrupt_waits
from tests.support.jobs import (
    ADD_U32,
    FQ_ADD,
    TOO_LARGE,
    Job,
    check_sums,
    field_jobs,
    watch,
    word_jobs,
)
from tests.support.pairwise import choose_pairwise
from tests.support.resource_counts import count_resources
from tests.support.threads import THREADS, in_threads

Gpu = gx.PersistentVulkanBackend
SIZES = (5, 0, 100, 1, 64, 250, 3, 101)
STEADY = (5, 0, 100, 64, 250)
"""Six chunks: a slot has commands for eight at once, and each mapped array needs its own."""


@pytest.mark.parametrize(
    ("where", "depth", "device_local"),
    choose_pairwise(("plain", "mapped", "mapped in place"), (1, 2, 3, 16), (True, False)),
)
def test_a_repeated_batch_allocates_records_and_compiles_nothing(
    fresh_gpu: OpenGpu, device_local: bool, depth: int, where: str
) -> None:
    gpu, jobs = fresh_gpu(stream_chunk_elems=CHUNK), field_jobs(*STEADY)
    out = None
    if where != "plain":
        jobs = [(gpu.asarray(a), gpu.asarray(b)) for a, b in jobs]
        out = [gpu.empty(a.shape, a.dtype) for a, _ in jobs]
    if where == "mapped in place":
        zeros = [(gpu.zeros(a.shape, a.dtype), gpu.zeros(a.shape, a.dtype)) for a, _ in jobs]
        jobs, out = zeros, [a for a, _ in zeros]

    def run() -> None:
        results = gpu.run_batch(FQ_ADD, jobs, out=out, device_local=device_local, depth=depth)
        check_sums(results, jobs)

    run()
    before = count_resources(gpu)
    for _ in range(3):
        run()
    assert count_resources(gpu) == before
    assert gpu.stats().slots.hits == 3 * depth


@on_both_paths
def test_jobs_within_a_chunk_share_the_slots_of_the_largest(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu = fresh_gpu()
    jobs = word_jobs(*range(1793, 2049, 5))
    for _ in range(2):
        check_sums(gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=2), jobs)
    assert gpu.stats().slots.misses == 2


@pytest.mark.parametrize("limit", [None, 150_000])
def test_batches_of_many_threads_are_exact(fresh_gpu: OpenGpu, limit: int | None) -> None:
    gpu = fresh_gpu(stream_chunk_elems=150, memory_limit=limit)
    batches = [field_jobs(*SIZES), field_jobs(7, 0, 400), word_jobs(*SIZES), word_jobs(1000, 1)]

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(8):
            jobs = draw.choice(batches)
            results = gpu.run_batch(
                FQ_ADD if jobs[0][0].ndim == 2 else ADD_U32,
                jobs,
                device_local=draw.choice([True, False, None]),
                depth=draw.choice([None, 1, 2, 3, 16]),
            )
            check_sums(results, jobs)

    in_threads(work)
    stats = gpu.stats()
    assert stats.slots.in_use == 0
    assert stats.descriptors.sets_used <= MAX_RECORDINGS * stats.slots.idle
    assert stats.calls >= THREADS * 8
    assert limit is None or stats.memory.bytes_held <= limit


@on_both_paths
def test_a_batch_too_deep_for_the_memory_runs_with_fewer_slots(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    limit = 400_000
    gpu, jobs = fresh_gpu(memory_limit=limit), word_jobs(*[4000] * 20, 9000)
    check_sums(gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=16), jobs)
    stats = gpu.stats()
    assert stats.shrunk == 1
    assert 1 < stats.slots.misses < 16
    assert 0 < stats.memory.bytes_held <= limit
    check_sums(gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=16), jobs)
    assert gpu.stats().slots.hits == gpu.stats().slots.misses == stats.slots.misses
    check_sums(gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=2), jobs)
    assert gpu.stats().shrunk == 2


def refuse_above(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Allocations of more than that many bytes fail."""

    def refuse(_device: Any, info: Any, *_others: Any) -> None:
        if info.allocationSize > most:
            raise binding._make_error("vkAllocateMemory", vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)

    watch(monkeypatch, "vkAllocateMemory", refuse)


@on_both_paths
@pytest.mark.parametrize("depth", [None, 1, 2, 16])
def test_chunks_are_halved_until_they_can_be_allocated(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, device_local: bool, depth: int | None
) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(9000, 1, 0, 5000, 9000)
    refuse_above(monkeypatch, 24_000)  # of inputs that are 72,000 bytes
    check_sums(gpu.run_batch(ADD_U32, jobs, device_local=device_local, depth=depth), jobs)
    stats = gpu.stats()
    assert stats.shrunk == 2
    assert stats.chunks > stats.calls == 4
    assert stats.slots.in_use == 0


@pytest.mark.parametrize("chunk", [3000, 100_000], ids=["of several chunks", "of one chunk"])
def test_a_single_call_shrinks_like_a_batch(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    gpu, jobs = fresh_gpu(stream_chunk_elems=chunk), word_jobs(9000)
    refuse_above(monkeypatch, 17_000)
    check_sums([gpu.run(ADD_U32, *jobs[0])], jobs)
    assert gpu.stats().shrunk > 0


def test_a_device_without_memory_fails_the_batch(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, jobs = binding.count_live_objects(), word_jobs(9000, 0, 70)
    gpu = fresh_gpu()
    refuse_above(monkeypatch, 0)
    with pytest.raises(gx.OutOfMemoryError, match=re.escape(gpu.device.name)):
        gpu.run_batch(ADD_U32, jobs, depth=3)
    assert gpu.stats().slots.in_use == gpu.stats().memory.bytes_held == 0
    monkeypatch.undo()
    check_sums(gpu.run_batch(ADD_U32, jobs, depth=3), jobs)
    gpu.close()
    assert binding.count_live_objects() == before


def lose(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The device is lost at the `number`-th submission."""
    seen: list[Any] = []

    def lost(*_arguments: Any) -> None:
        if len(seen) == at:
            raise binding._make_error("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)

    seen = watch(monkeypatch, "vkQueueSubmit", lost)


def bad_element(gpu: Gpu, jobs: list[Job], _patch: pytest.MonkeyPatch, depth: int) -> None:
    jobs[4][0][30] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError):
        gpu.run_batch(FQ_ADD, jobs, device_local=True, depth=depth)
    jobs[4][0][30] = 0


def bad_job(gpu: Gpu, jobs: list[Job], _patch: pytest.MonkeyPatch, depth: int) -> None:
    with pytest.raises(gx.errors.ArgumentShapeError):
        gpu.run_batch(FQ_ADD, [*jobs, (jobs[0][0], jobs[2][0])], depth=depth)


def ctrl_c(gpu: Gpu, jobs: list[Job], patch: pytest.MonkeyPatch, depth: int) -> None:
    for times in (1, 2):
        interrupt_waits(patch, times)
        with pytest.raises(KeyboardInterrupt):
            gpu.run_batch(FQ_ADD, jobs, device_local=times == 1, depth=depth)


def lost_device(gpu: Gpu, jobs: list[Job], patch: pytest.MonkeyPatch, depth: int) -> None:
    lose(patch, at=3)
    with pytest.raises(gx.DeviceLostError):
        gpu.run_batch(FQ_ADD, jobs, device_local=True, depth=depth)


ERRORS = [bad_element, bad_job, ctrl_c, lost_device]


@pytest.mark.parametrize("depth", [1, 2, 3, 16])
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_in_a_batch_leaves_no_slot_in_use_and_leaks_nothing(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, error: Any, depth: int
) -> None:
    before, jobs = binding.count_live_objects(), field_jobs(*SIZES)
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    in_flight = InFlightTracker(gpu, monkeypatch)
    for _ in range(2):
        error(gpu, jobs, monkeypatch, depth)
        assert gpu.stats().slots.in_use == 0
    check_sums(gpu.run_batch(FQ_ADD, jobs, depth=depth), jobs)
    assert in_flight.touched == []
    gpu.close()
    assert binding.count_live_objects() == before


def test_later_batches_do_not_change_earlier_results(fresh_gpu: OpenGpu) -> None:
    """Later batches through the same slots leave earlier results as they were."""
    gpu, jobs = fresh_gpu(), word_jobs(70, 70, 70)
    results = gpu.run_batch(ADD_U32, jobs, depth=2)
    for _ in range(3):
        gpu.run_batch(ADD_U32, [(np.zeros_like(a), b) for a, b in jobs], depth=2)
    check_sums(results, jobs)
