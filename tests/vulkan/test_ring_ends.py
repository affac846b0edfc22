"""Errors, Ctrl-C and close while copy threads work: raised in the caller, no thread left."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.copy_threads import CopyThreads, _SharedCopy
from gpu_executor.vulkan.ring import Ring
from tests.conftest import OpenGpu, on_both_paths
from tests.support.jobs import FQ_ADD, TOO_LARGE, check_sums, field_jobs, watch
from tests.support.ring_backends import (
    WORKERS,
    Watched,
    check_works,
    in_time,
    open_with_copy_threads,
    press_ctrl_c,
)
from tests.support.threads import PATIENCE, in_background

Gpu = gx.PersistentVulkanBackend


@pytest.fixture
def threaded_gpu(fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return open_with_copy_threads(fresh_gpu, monkeypatch)


class OtherThreadError(Exception):
    """The error that these tests raise in copy threads."""


@pytest.mark.parametrize("where", ["fill", "submit", "drain"])
@pytest.mark.parametrize("wrong", [0, 11])
@pytest.mark.parametrize("depth", [2, 16])
def test_an_error_in_a_copy_thread_is_raised_in_the_caller(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, where: str, wrong: int, depth: int
) -> None:
    raised_in: list[threading.Thread] = []

    def fail(job: int | None) -> None:
        if job == wrong:
            raised_in.append(threading.current_thread())
            raise OtherThreadError(f"job {job}")

    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        Watched(patch, **{where: fail})
        with pytest.raises(OtherThreadError, match=f"job {wrong}"):
            in_time(lambda: threaded_gpu.run_batch(FQ_ADD, jobs, depth=depth))
        copiers = threaded_gpu._session.resources.copy_threads
        assert set(raised_in) <= set(copiers._workers)
        assert all(worker.is_alive() for worker in copiers._workers)
    check_works(threaded_gpu, depth)


def test_a_failing_submission_in_a_copy_thread_is_raised_in_the_caller(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any) -> None:
        if len(submitted) == 5:
            raise binding._make_error("vkQueueSubmit", vk.VK_ERROR_TOO_MANY_OBJECTS)

    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        submitted = watch(patch, "vkQueueSubmit", refuse)
        with pytest.raises(gx.errors.VulkanError, match="vkQueueSubmit failed"):
            in_time(lambda: threaded_gpu.run_batch(FQ_ADD, jobs, depth=3))
    check_works(threaded_gpu)


@on_both_paths
@pytest.mark.parametrize("depth", [2, 16])
def test_an_out_of_range_element_is_reported_by_job_and_index(
    threaded_gpu: Gpu, device_local: bool, depth: int
) -> None:
    jobs = field_jobs(*[70, 250] * 6)
    jobs[7][1][207] = TOO_LARGE
    jobs[9][0][3] = TOO_LARGE  # submitted later
    for _ in range(2):
        with pytest.raises(gx.ElementRangeError) as caught:
            in_time(
                lambda: threaded_gpu.run_batch(FQ_ADD, jobs, device_local=device_local, depth=depth)
            )
        assert (caught.value.job, caught.value.argument, caught.value.index) == (7, 1, 207)
    check_works(threaded_gpu, depth)


@pytest.mark.usefixtures("sigint_handler")
@pytest.mark.parametrize("where", ["fill", "drain"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_is_raised_when_the_copy_threads_are_done(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, where: str, times: int
) -> None:
    def slow(job: int | None) -> None:
        if job == 2:
            for waiting_in in ("run_stream", "abandon")[:times]:
                press_ctrl_c(waiting_in)
            time.sleep(0.05)

    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        watched = Watched(patch, **{where: slow})
        with pytest.raises(KeyboardInterrupt):
            threaded_gpu.run_batch(FQ_ADD, jobs, depth=3)
        assert 2 in watched.ended[where], "no thread writes to the slots any more"
        for name, jobs_begun in watched.begun.items():
            assert set(jobs_begun) == set(watched.ended[name])
        assert len(watched.ended["drain"]) < 12
    check_works(threaded_gpu)


def test_a_ctrl_c_before_the_wait_for_the_copy_threads_does_not_end_it(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, presses = Ring._wait_for_copy_threads, [KeyboardInterrupt("second"), None]

    def fail_or_take_long(job: int | None) -> None:
        if job == 5:
            raise KeyboardInterrupt("first")
        time.sleep(0.01)

    def interrupted(ring: Ring) -> None:
        if (press := presses.pop(0)) is not None:
            raise press
        wait(ring)

    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        watched = Watched(patch, prepare=fail_or_take_long, fill=fail_or_take_long)
        patch.setattr(Ring, "_wait_for_copy_threads", interrupted)
        with pytest.raises(KeyboardInterrupt, match="second"):
            threaded_gpu.run_batch(FQ_ADD, jobs, depth=3)
        assert presses == []
        assert set(watched.begun["fill"]) == set(watched.ended["fill"]) != set()
    check_works(threaded_gpu)


@pytest.mark.usefixtures("sigint_handler")
def test_ctrl_c_in_a_shared_copy_is_raised_when_the_helpers_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy, begun, ended = _SharedCopy.copy, threading.Event(), threading.Event()

    def slow(shared: _SharedCopy) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(PATIENCE)
        else:
            segment = shared._segments.popleft()
            begun.set()
            press_ctrl_c("wait")
            time.sleep(0.05)
            shared._segments.append(segment)
            copy(shared)
            ended.set()

    monkeypatch.setattr(_SharedCopy, "copy", slow)
    copiers, source = CopyThreads(2), np.ones(4 << 20, np.uint8)
    target = np.zeros_like(source)
    with pytest.raises(KeyboardInterrupt):
        copiers.copy([(target, source)])
    done = ended.is_set()
    assert ended.wait(PATIENCE)
    copiers.close()
    assert done, "a helper still writes to the arrays"


def test_a_stream_is_closed_when_its_fills_are_done(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_end = threading.Event(), threading.Event()

    def slow(job: int | None) -> None:
        if job is not None and job > 2:
            reached.set()
            assert may_end.wait(PATIENCE)

    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        watched = Watched(patch, fill=slow)
        stream = threaded_gpu.stream(FQ_ADD, jobs, depth=3)
        first = [next(stream), next(stream)]
        assert reached.wait(PATIENCE)
        closing, _ = in_background(stream.close)
        closing.join(0.1)
        assert closing.is_alive(), "a slot is being filled"
        may_end.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
        assert set(watched.begun["fill"]) == set(watched.ended["fill"])
    check_sums(first, jobs[:2])
    check_works(threaded_gpu)


def test_closing_the_backend_ends_streams_and_threads(
    threaded_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    jobs = field_jobs(*[70] * 12)
    with monkeypatch.context() as patch:
        Watched(patch, fill=lambda _: time.sleep(0.01))
        streams = [threaded_gpu.stream(FQ_ADD, jobs, depth=depth) for depth in (2, 3)]
        check_sums([next(stream) for stream in streams], [jobs[0]] * 2)
        assert len(set(threading.enumerate()) - before) == WORKERS
        in_time(threaded_gpu.close)
    assert set(threading.enumerate()) <= before
    with pytest.raises(gx.errors.ClosedError):
        next(streams[0])
