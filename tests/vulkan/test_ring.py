"""Chunks that copy threads fill and drain: exact, in order, on one queue or on several."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.plan import strategy
from gpu_executor.vulkan import slot_commands
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu, on_both_paths
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, watch, word_jobs
from tests.support.pairwise import choose_pairwise
from tests.support.ring_backends import CHUNK, MIXED, MUCH, Watched, in_time, open_with_copy_threads
from tests.support.threads import PATIENCE, in_background, in_threads

Gpu = gx.PersistentVulkanBackend


@pytest.fixture
def threaded_gpu(fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return open_with_copy_threads(fresh_gpu, monkeypatch)


@pytest.mark.parametrize(
    ("device_local", "depth", "given"), choose_pairwise((True, False), (2, 3, 16), (False, True))
)
def test_batches_give_identical_bits(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, device_local: bool, depth: int, given: bool
) -> None:
    watched = Watched(monkeypatch)
    for kernel, jobs in ((FQ_ADD, field_jobs(*MIXED)), (ADD_U32, word_jobs(*MIXED, *MIXED))):
        out = [np.full_like(a, 7) for a, _ in jobs] if given else None
        one_by_one = threaded_gpu.run_batch(
            kernel, jobs, device_local=device_local, pipelined=False
        )
        for _ in range(2):
            results = threaded_gpu.run_batch(
                kernel, jobs, out=out, device_local=device_local, depth=depth
            )
            check_sums(results, jobs)
            assert [r.tobytes() for r in results] == [r.tobytes() for r in one_by_one]
            assert out is None or all(r is o for r, o in zip(results, out, strict=True))
    for name in ("fill", "drain"):
        assert len(watched.threads[name]) > 1, "others took part"


@on_both_paths
def test_calls_and_streams_are_exact(threaded_gpu: Gpu, device_local: bool) -> None:
    jobs = field_jobs(*MIXED)
    check_sums([threaded_gpu.run(FQ_ADD, *job, device_local=device_local) for job in jobs], jobs)
    for depth in (2, 16):
        stream = threaded_gpu.stream(FQ_ADD, iter(jobs), device_local=device_local, depth=depth)
        check_sums(list(stream), jobs)
    backwards = [(a[::-1], b[::-1]) for a, b in jobs]
    check_sums(threaded_gpu.run_batch(FQ_ADD, backwards, device_local=device_local), backwards)


def test_chunks_are_submitted_in_order_whichever_is_filled_first(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = [threading.Event() for _ in range(12)]

    def wait_for_the_next(job: int | None) -> None:
        assert job is not None
        if job % 3 < 2:
            assert filled[job + 1].wait(PATIENCE)
        threading.Timer(0.02, filled[job].set).start()

    watched = Watched(monkeypatch, fill=wait_for_the_next)
    jobs = field_jobs(*[70] * 12)
    check_sums(in_time(lambda: threaded_gpu.run_batch(FQ_ADD, jobs, depth=3)), jobs)
    assert watched.ended["fill"] != sorted(watched.ended["fill"], key=lambda job: job or 0)
    assert watched.begun["submit"] == list(range(12))


def test_a_small_chunk_does_not_overtake_a_large_one(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_is_next, small_is_through = threading.Event(), threading.Event()

    def prepare(job: int | None) -> None:
        if job == 1:
            assert large_is_next.wait(PATIENCE)

    def submit(job: int | None) -> None:
        if job == 0:
            large_is_next.set()
            small_is_through.wait(0.3)

    watched = Watched(monkeypatch, prepare=prepare, submit=submit)
    jobs = word_jobs(70, 1)
    work, results = in_background(lambda: threaded_gpu.run_batch(ADD_U32, jobs, depth=2))
    while not watched.ended["submit"] and work.is_alive():
        time.sleep(0.001)
    small_is_through.set()
    work.join(PATIENCE)
    check_sums(results[0], jobs)
    others = threaded_gpu._session.resources.copy_threads._workers
    assert not watched.threads["submit"].isdisjoint(others), "another submits the large one"
    assert watched.ended["submit"] == [0, 1]


def test_batches_of_several_threads_share_the_copy_threads(threaded_gpu: Gpu) -> None:
    def work(number: int) -> None:
        jobs = word_jobs(*[CHUNK - number] * 5, 250 + number, number)
        for depth in (2, 3, 16):
            check_sums(threaded_gpu.run_batch(ADD_U32, jobs, depth=depth), jobs)
        bad = field_jobs(70, 71, 72)
        bad[1][0][number] = TOO_LARGE
        with pytest.raises(gx.ElementRangeError) as caught:
            threaded_gpu.run_batch(FQ_ADD, bad, depth=2)
        assert (caught.value.job, caught.value.index) == (1, number)

    in_threads(work)
    assert threaded_gpu.stats().slots.in_use == 0


def open_two_queues(resources: Resources, opened: ExitStack) -> Resources:
    """Two stand-ins for parallel compute queues: the one compute queue with two timeline
    semaphores.
    """
    made = [Timeline(resources.device, resources.device.queues.compute) for _ in range(2)]
    for timeline in made:
        opened.callback(timeline.close)
        timeline._lock = resources.compute._lock  # one thread at a time may use a queue
    return dataclasses.replace(resources, parallel_compute=tuple(made))


@pytest.fixture
def several_gpu(fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A backend that alternates between two compute queues."""
    make = Session._make_resources
    monkeypatch.setattr(slot_commands, "LARGE_COPY_BYTES", MUCH)
    monkeypatch.setattr(strategy, "_choose_queues", lambda *_: ("several", "queues: several"))
    monkeypatch.setattr(
        Session,
        "_make_resources",
        lambda self, opened: open_two_queues(make(self, opened), opened),
    )
    return fresh_gpu(stream_chunk_elems=CHUNK)


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
@pytest.mark.parametrize("depth", [2, 3, 16])
def test_parallel_compute_queues_give_the_same_results(
    several_gpu: Gpu, depth: int, mapped: bool
) -> None:
    jobs, out = field_jobs(*MIXED), None
    if mapped:
        jobs = [(several_gpu.asarray(a), several_gpu.asarray(b)) for a, b in jobs]
        out = [several_gpu.empty(a.shape, a.dtype) for a, _ in jobs]
    for _ in range(3):
        results = several_gpu.run_batch(FQ_ADD, jobs, out=out, device_local=True, depth=depth)
        check_sums(results, jobs)
    check_sums(list(several_gpu.stream(FQ_ADD, jobs, device_local=True, depth=depth)), jobs)
    jobs[3][0][207] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        several_gpu.run_batch(FQ_ADD, jobs, device_local=True, depth=depth)
    assert (caught.value.job, caught.value.index) == (3, 207)
    assert several_gpu.stats().slots.in_use == 0


@pytest.mark.parametrize("depth", [2, 4])
def test_chunks_alternate_between_the_parallel_queues(
    several_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    queues = several_gpu._session.resources.parallel_compute
    jobs = word_jobs(*[70] * 12)
    submitted = watch(monkeypatch, "vkQueueSubmit")
    for _ in range(3):
        check_sums(several_gpu.run_batch(ADD_U32, jobs, device_local=True, depth=depth), jobs)
    signalled = [info.pSignalSemaphores[0] for _, _, info, _ in submitted]
    assert signalled == [queue._semaphore for queue in queues] * 18
    assert several_gpu.stats().slots.misses == depth
    # Other strategies use the one queue.
    submitted.clear()
    several_gpu.run(ADD_U32, *jobs[0], device_local=True)
    several_gpu.run_batch(ADD_U32, jobs[:2], device_local=False, depth=2)
    alone = several_gpu._session.resources.compute._semaphore
    assert [info.pSignalSemaphores[0] for _, _, info, _ in submitted] == [alone] * 3
