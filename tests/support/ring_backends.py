"""Backends whose copy threads fill and drain every chunk, and records of which thread does what."""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest

import gpu_executor as gx
from gpu_executor.vulkan import slot_commands
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.slot import Slot
from tests.conftest import OpenGpu
from tests.support.interrupts import HANDLED_SIGINTS
from tests.support.jobs import FQ_ADD, check_sums, field_jobs, watch
from tests.support.threads import PATIENCE, in_background

CHUNK = 100
MUCH = 64
"""Bytes from which the copy threads are used in these tests."""
MIXED = (5, 100, 0, 250, 64, 1, 101, 17, 2, 99, 1000, 3)
"""Elements of jobs: some are chunked, some too small for the copy threads."""
WORKERS = 4

See = Callable[[int | None], object]
"""Called with the number of a job."""


def open_with_copy_threads(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """Open a backend whose copy threads copy the smallest chunks too, of 100 elements at most."""
    monkeypatch.setattr(slot_commands, "LARGE_COPY_BYTES", MUCH)
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    gpu._session.resources.copy_threads.threads = WORKERS
    return gpu


def ignore(_job: int | None) -> None:
    """Ignore a job."""


class Watched:
    """Records which thread fills, submits and drains which job; `before` is called first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **before: See) -> None:
        self._jobs: dict[Slot, int | None] = {}
        self._before = before
        self.begun: dict[str, list[int | None]] = {"fill": [], "submit": [], "drain": []}
        self.ended: dict[str, list[int | None]] = {"fill": [], "submit": [], "drain": []}
        self.threads: dict[str, set[threading.Thread]] = {}
        prepare = Slot.prepare

        def prepared(slot: Slot, call: Any, *more: Any, **options: Any) -> None:
            self._jobs[slot] = call.job
            before.get("prepare", ignore)(call.job)
            prepare(slot, call, *more, **options)

        monkeypatch.setattr(Slot, "prepare", prepared)
        for name in self.begun:
            monkeypatch.setattr(Slot, name, self._watched(name, getattr(Slot, name)))

    def _watched(self, name: str, method: Callable[..., None]) -> Callable[..., None]:
        def watched(slot: Slot, *arguments: Any, **options: Any) -> None:
            job = self._jobs[slot]
            self.begun[name].append(job)
            self.threads.setdefault(name, set()).add(threading.current_thread())
            self._before.get(name, ignore)(job)
            method(slot, *arguments, **options)
            self.ended[name].append(job)

        return watched


def in_time(work: Callable[[], Any]) -> Any:
    """Return or raise what `work` does; a hang fails the test."""
    thread, results = in_background(work)
    thread.join(PATIENCE)
    assert not thread.is_alive(), "threads wait for each other"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def check_works(gpu: gx.PersistentVulkanBackend, depth: int = 3) -> None:
    """Run a batch with the backend's copy threads."""
    assert gpu.stats().slots.in_use == 0
    jobs = field_jobs(*MIXED)
    check_sums(in_time(lambda: gpu.run_batch(FQ_ADD, jobs, depth=depth)), jobs)
    assert gpu.stats().slots.in_use == 0


def press_ctrl_c(waiting_in: str) -> None:
    """Send SIGINT when the main thread waits in a function of that name.

    A signal that comes just before the thread waits for a lock does not end the wait, so it is sent
    again until it was handled; until then Python handles several as one.
    """
    thread = threading.main_thread().ident
    assert thread is not None
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.002)
        frame: FrameType | None = sys._current_frames()[thread]
        waits = frame is not None and frame.f_code.co_name in ("wait", waiting_in)
        while frame is not None and frame.f_code.co_name != waiting_in:
            frame = frame.f_back
        while waits and frame is not None:
            signal.pthread_kill(thread, signal.SIGINT)
            with contextlib.suppress(queue.Empty):
                return HANDLED_SIGINTS.get(timeout=0.05)
    raise AssertionError(f"the thread that runs the tests never waits in {waiting_in}")


class Submitted(NamedTuple):
    """Submitted commands, and the semaphore value that is signalled when they are done."""

    commands: Any
    semaphore: Any
    value: int

    def is_running(self, device: Any) -> bool:
        reached = vk.ffi.new("uint64_t *")
        vk.vkGetSemaphoreCounterValue(device, self.semaphore, reached)
        return bool(reached[0] < self.value)


def watch_submissions(monkeypatch: pytest.MonkeyPatch) -> list[Submitted]:
    """Record every submission."""
    seen: list[Submitted] = []

    def note(_queue: Any, _count: int, info: Any, _fence: Any) -> None:
        timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo *", info.pNext)
        value = int(timeline.pSignalSemaphoreValues[0])
        seen.append(Submitted(info.pCommandBuffers[0], info.pSignalSemaphores[0], value))

    watch(monkeypatch, "vkQueueSubmit", note)
    return seen


def watch_busy_pools(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every command pool that is destroyed while the device runs commands from it."""
    allocated = watch(monkeypatch, "vkAllocateCommandBuffers")
    submitted, found = watch_submissions(monkeypatch), list[Any]()

    def look(device: Any, pool: Any, _allocator: Any) -> None:
        of_it = [commands[0] for _, info, commands in allocated if info.commandPool == pool]
        if any(each.commands in of_it and each.is_running(device) for each in submitted):
            found.append(pool)
            vk.vkDeviceWaitIdle(device)  # prevents the crash

    watch(monkeypatch, "vkDestroyCommandPool", look)
    return found
