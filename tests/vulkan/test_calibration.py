"""Calibration by a backend: when it measures, what it stores, and that it leaves nothing behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import ElementType
from gpu_executor.plan.calibration import Calibration
from gpu_executor.vulkan import binding, copy_threads
from gpu_executor.vulkan import session as session_module
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.disk_cache import calibration_path, read_calibration, write_calibration
from gpu_executor.vulkan.memory import Allocation, Block, mapped_view
from tests.conftest import OpenGpu, RunPython
from tests.support.calibrations import EAGER, H200, LAVAPIPE, is_sound
from tests.support.device_waits import HeldWait
from tests.support.jobs import ADD_U32, FQ_ADD, Array, check_sums, field_jobs, watch, word_jobs
from tests.support.ring_backends import press_ctrl_c, watch_busy_pools
from tests.support.threads import PATIENCE, in_background, in_threads

Gpu = gx.PersistentVulkanBackend
X = np.arange(70, dtype=np.uint32)
SMALL = field_jobs(1, 2, 70)


class FakeMeasure:
    """Replaces the measurement: takes no time and counts its calls."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self.times, self._meanwhile = 0, meanwhile
        monkeypatch.setattr(session_module, "measure", self)

    def __call__(self, *_arguments: object) -> Calibration:
        self.times += 1
        self._meanwhile()
        return LAVAPIPE


@pytest.fixture
def fake_measure(monkeypatch: pytest.MonkeyPatch) -> FakeMeasure:
    return FakeMeasure(monkeypatch)


def batch(gpu: Gpu, count: int = 70) -> None:
    """Run a batch of a signature that no other batch has."""
    jobs = word_jobs(count, count, 3)
    check_sums(gpu.run_batch(ADD_U32, jobs), jobs)


def test_the_first_batch_calibrates_and_the_next_backend_reads_the_file(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    assert gpu.calibration is None
    assert gpu.explain(FQ_ADD, 70).foreseen is None
    batch(gpu)
    calibration = gpu.calibration
    assert calibration is not None
    assert is_sound(calibration)
    assert calibration.host_copy[0][0] == 1
    assert calibration.host_copy[-1][0] == gpu._session.resources.copy_threads.max_threads
    assert (calibration.chunk_split is None) == (gpu._session.resources.upload is None)
    assert (calibration.chunk_several is None) == (not gpu._session.resources.parallel_compute)
    assert read_calibration(tmp_path, gpu.device) == calibration
    foreseen = gpu.explain(FQ_ADD, 70).foreseen
    assert foreseen is not None and foreseen > 0
    fake_measure = FakeMeasure(monkeypatch)
    batch(gpu, 71)
    other = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    assert other.calibration == calibration
    assert other.explain(FQ_ADD, 70).foreseen == foreseen
    batch(other)
    assert other._session.resources.copy_threads.threads == calibration.choose_threads()
    assert fake_measure.times == 0


def test_small_calls_do_not_calibrate(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure
) -> None:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    for device_local in (True, False, None):
        check_sums([gpu.run(FQ_ADD, *job, device_local=device_local) for job in SMALL], SMALL)
    np.testing.assert_array_equal(gpu.run(ADD_U32, gpu.to_device(X), X, keep=True).numpy(), 2 * X)
    gpu.run_batch(ADD_U32, [])
    gpu.run_batch(ADD_U32, [(X[:0], X[:0])] * 3)
    assert (fake_measure.times, gpu.calibration) == (0, None)
    assert not calibration_path(tmp_path, gpu.device).exists()


@pytest.mark.parametrize(
    "use",
    [
        batch,
        lambda gpu: list(gpu.stream(ADD_U32, word_jobs(9, 9))),
        lambda gpu: gpu.run(ADD_U32, *word_jobs(1 << 17)[0]),
        lambda gpu: gpu.explain(FQ_ADD, 1 << 20),
        lambda gpu: gpu.calibrate(),
    ],
    ids=["a batch", "a stream", "a large call", "a large plan", "calibrate"],
)
def test_batches_and_large_calls_calibrate_once(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure, use: Callable[[Gpu], object]
) -> None:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    use(gpu)
    batch(gpu)
    batch(gpu, 3000)
    assert (fake_measure.times, gpu.calibration) == (1, LAVAPIPE)
    assert read_calibration(tmp_path, gpu.device) == LAVAPIPE


@pytest.mark.parametrize("off", [{"calibrate": False}, {"cache_dir": None}], ids=str)
def test_without_a_cache_folder_only_calibrate_measures(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure, off: dict[str, Any]
) -> None:
    changes = {"calibrate": True, "cache_dir": tmp_path} | off
    gpu = fresh_gpu(**changes)
    batch(gpu)
    gpu.run(ADD_U32, *word_jobs(1 << 17)[0])
    assert (fake_measure.times, gpu.calibration) == (0, None)
    by_thresholds = gpu.explain(FQ_ADD, 70)
    assert by_thresholds.foreseen is None
    assert gpu.calibrate() == gpu.calibration == LAVAPIPE
    by_figures = gpu.explain(FQ_ADD, 70)
    assert by_figures.foreseen is not None and by_figures.foreseen > 0
    batch(gpu)
    assert fake_measure.times == 1
    stored = calibration_path(tmp_path, gpu.device)
    assert stored.exists() == ("calibrate" in off)
    assert fresh_gpu(**changes).calibration is None


def test_the_one_shot_backend_does_not_calibrate(tmp_path: Path, fake_measure: FakeMeasure) -> None:
    settings = gx.Settings(cache_dir=tmp_path, validation=True)
    with gx.VulkanSpirvBackend(settings=settings) as backend:
        jobs = word_jobs(1 << 17)
        check_sums([backend.run(ADD_U32, *jobs[0])], jobs)
    assert fake_measure.times == 0
    assert not list(tmp_path.iterdir())


def test_an_unreadable_file_is_replaced_by_a_new_calibration(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure, caplog: pytest.LogCaptureFixture
) -> None:
    path = calibration_path(tmp_path, gx.devices()[0])
    path.write_text(LAVAPIPE.to_json()[:-5])
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    assert gpu.calibration is None
    assert f"{path} is not a calibration" in caplog.text
    batch(gpu)
    assert (fake_measure.times, read_calibration(tmp_path, gpu.device)) == (1, LAVAPIPE)


def test_a_calibration_that_cannot_be_stored_is_still_used(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    gpu = fresh_gpu(calibrate=True, cache_dir=in_the_way)
    batch(gpu)
    assert "the calibration was not stored" in caplog.text
    assert (fake_measure.times, gpu.calibration) == (1, LAVAPIPE)


def test_a_calibration_during_which_calls_ran_is_discarded(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile: list[Callable[[], object]] = [lambda: gpu.run(ADD_U32, X, X), lambda: batch(gpu, 5)]
    fake_measure = FakeMeasure(monkeypatch, lambda: meanwhile and meanwhile.pop()())
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    for times in (1, 2):
        batch(gpu, 10 * times)
        assert (fake_measure.times, gpu.calibration) == (times, None)
        assert not calibration_path(tmp_path, gpu.device).exists()
    batch(gpu, 30)
    assert (fake_measure.times, gpu.calibration) == (3, LAVAPIPE)
    assert read_calibration(tmp_path, gpu.device) == LAVAPIPE


def test_no_calibration_starts_while_calls_are_running(
    fresh_gpu: OpenGpu, tmp_path: Path, fake_measure: FakeMeasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    with HeldWait(monkeypatch) as held:
        thread, results = in_background(lambda: gpu.run(ADD_U32, X, X))
        assert held.reached.wait(PATIENCE)
        batch(gpu)
        assert (fake_measure.times, gpu.calibration) == (0, None)
    thread.join(PATIENCE)
    np.testing.assert_array_equal(results, [2 * X])
    batch(gpu, 71)
    assert (fake_measure.times, gpu.calibration) == (1, LAVAPIPE)


def test_one_thread_calibrates_at_a_time(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = threading.Lock()

    def alone() -> None:
        assert at_work.acquire(blocking=False)
        time.sleep(0.02)
        at_work.release()

    fake_measure = FakeMeasure(monkeypatch, alone)
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)

    def work(number: int) -> None:
        batch(gpu, 10 + number)
        if number % 4 == 0:
            assert gpu.calibrate() == LAVAPIPE
        batch(gpu, 30 + number)

    in_threads(work)
    assert fake_measure.times >= 2
    assert gpu.calibration == LAVAPIPE


@pytest.mark.parametrize("use", [batch, lambda gpu: gpu.calibrate()], ids=["a batch", "calibrate"])
def test_close_waits_for_a_calibration(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Gpu], Any]
) -> None:
    reached, may_end = threading.Event(), threading.Event()

    def last() -> None:
        reached.set()
        assert may_end.wait(PATIENCE)

    FakeMeasure(monkeypatch, last)
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    using, results = in_background(lambda: use(gpu))
    assert reached.wait(PATIENCE)
    closing, _ = in_background(gpu.close)
    closing.join(0.2)
    waited = closing.is_alive()
    may_end.set()
    for thread in (using, closing):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert waited, "the device is being measured"
    assert results[0] in (None, LAVAPIPE) or isinstance(results[0], gx.errors.ClosedError)


def test_without_memory_for_a_calibration_plans_use_thresholds(
    fresh_gpu: OpenGpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path, memory_limit=6 << 20)
    batch(gpu)
    assert caplog.text.count("the device was not calibrated") == 1
    assert gpu.calibration is None
    assert gpu.explain(FQ_ADD, 1 << 20).foreseen is None
    assert not calibration_path(tmp_path, gpu.device).exists()
    fake_measure = FakeMeasure(monkeypatch)
    batch(gpu, 71)
    assert fake_measure.times == 0
    monkeypatch.undo()
    with pytest.raises(gx.OutOfMemoryError):
        gpu.calibrate()
    batch(gpu, 72)
    gc.collect()
    assert gpu.stats().memory.bytes_in_arrays == 0
    assert gpu.stats().memory.bytes_held <= 6 << 20


LARGE = 524_309


@pytest.mark.parametrize("calibration", [LAVAPIPE, H200, EAGER], ids=["slow", "fast", "eager"])
def test_staged_results_under_a_calibrated_plan_are_exact(
    fresh_gpu: OpenGpu, tmp_path: Path, calibration: Calibration
) -> None:
    """test_calibrated_plans.py leaves the path to the plan."""
    write_calibration(tmp_path, gx.devices()[0], calibration)
    gpu = fresh_gpu(calibrate=True, cache_dir=tmp_path)
    assert gpu.calibration == calibration
    for kernel, jobs in (
        (FQ_ADD, field_jobs(1, 2, 3, 70, 4097)),
        (ADD_U32, word_jobs(1, LARGE, 70, 65_536, *[9] * 20)),
    ):
        for _ in range(2):
            check_sums([gpu.run(kernel, *job, device_local=True) for job in jobs], jobs)
            check_sums(gpu.run_batch(kernel, jobs, device_local=True), jobs)
            check_sums(list(gpu.stream(kernel, jobs, device_local=True)), jobs)
    cut = gpu.explain(ADD_U32, LARGE, device_local=True)
    assert (len(list(cut.chunks())) > 1) == (calibration is EAGER)
    assert gpu.stats().slots.in_use == 0


def test_calibration_leaves_nothing_behind(tmp_path: Path) -> None:
    before, threads = binding.count_live_objects(), set(threading.enumerate())
    settings = gx.Settings(cache_dir=tmp_path, validation=True)
    with gx.PersistentVulkanBackend(settings=settings) as gpu:
        gpu.run(ADD_U32, X, X)
        used = gpu.stats()
        gpu.calibrate()
        after = gpu.stats()
        assert after.memory.bytes_used == used.memory.bytes_used
        assert after.memory.bytes_in_arrays == 0
        assert after.descriptors.sets_used == used.descriptors.sets_used
        assert (after.slots, after.calls) == (used.slots, used.calls)
        gpu.trim()
        objects = binding.count_live_objects()
        gpu.calibrate()
        gpu.trim()  # how many blocks a calibration takes depends on how busy the machine is
        assert binding.count_live_objects() == objects
        assert gpu.stats().memory.bytes_held == 0
    assert binding.count_live_objects() == before
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize(("waits", "times"), [(0, 1), (4, 3), (40, 2), (200, 1)])
def test_ctrl_c_during_calibration_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: int, times: int
) -> None:
    def interrupt(*_arguments: object) -> None:
        if waits < len(waited) <= waits + times:
            raise KeyboardInterrupt

    before, threads = binding.count_live_objects(), set(threading.enumerate())
    settings = gx.Settings(cache_dir=tmp_path, validation=True)
    with gx.PersistentVulkanBackend(settings=settings) as gpu:
        with monkeypatch.context() as patch:
            waited = watch(patch, "vkWaitSemaphores", interrupt)
            destroyed_at_work = watch_busy_pools(patch)
            with pytest.raises(KeyboardInterrupt):
                batch(gpu)
        assert destroyed_at_work == []
        assert gpu.calibration is None
        assert not calibration_path(tmp_path, gpu.device).exists()
        gc.collect()  # the exception's traceback keeps the arrays of its frames alive
        vk.vkDeviceWaitIdle(gpu._session.resources.device.handle)  # a copy keeps what it copies
        assert gpu.stats().memory.bytes_used == 0
        FakeMeasure(monkeypatch)
        batch(gpu)
        assert gpu.calibration == LAVAPIPE
    assert binding.count_live_objects() == before
    assert set(threading.enumerate()) <= threads


@pytest.mark.usefixtures("sigint_handler")
def test_after_ctrl_c_no_thread_writes_to_released_memory(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, late = threading.Event(), threading.Event()
    copy, main = copy_threads._SharedCopy.copy, threading.main_thread()

    def interrupt_the_first(parts: copy_threads._SharedCopy) -> None:
        if late.is_set() or threading.current_thread() is main:
            copy(parts)
            return
        press_ctrl_c("copy")
        arrived.wait(0.2)  # in vain where this one is waited for
        copy(parts)
        late.set()

    gpu = fresh_gpu()
    copiers = gpu._session.resources.copy_threads
    with monkeypatch.context() as patch:
        patch.setattr(copy_threads._SharedCopy, "copy", interrupt_the_first)
        with pytest.raises(KeyboardInterrupt):
            gpu.calibrate()
    blocks = gpu._session.resources.memory._blocks
    assert blocks
    for block in blocks:
        assert block.idle
        mapped_bytes(block)[...] = 7
    arrived.set()
    assert late.wait(PATIENCE)
    assert all((mapped_bytes(block) == 7).all() for block in blocks)
    assert copiers.threads == copiers.max_threads


def mapped_bytes(block: Block) -> Array:
    whole = Allocation(block, 0, block.nbytes)
    return mapped_view(whole, 0, block.nbytes, ElementType(np.dtype(np.uint8)))


# In a process of its own: a hang ends by a time limit and shows where it is.
CTRL_C_BEFORE_A_COPY_IS_HANDED_OVER = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import gpu_executor as gx
from gpu_executor.vulkan.copy_threads import CopyThreads
need = CopyThreads._ensure_workers
def interrupted(copiers, number):
    CopyThreads._ensure_workers = need
    raise KeyboardInterrupt
CopyThreads._ensure_workers = interrupted
with gx.PersistentVulkanBackend() as gpu:
    try:
        gpu.calibrate()
    except KeyboardInterrupt:
        print("arrived")
"""


def test_ctrl_c_while_threads_start_is_raised(run_python: RunPython) -> None:
    ran = run_python(CTRL_C_BEFORE_A_COPY_IS_HANDED_OVER)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "arrived\n", "")
