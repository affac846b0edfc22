"""The soak test: a short run passes, and every kind of defect is detected."""

from __future__ import annotations

import json
import mmap
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpu_executor as gx
from gpu_executor.cli.commands import commands
from gpu_executor.errors import VulkanError
from gpu_executor.executor.candidates import BackendName
from gpu_executor.soak import call_methods, load_generator, runner, workload
from gpu_executor.soak.call_methods import CallMethod, FutureOutcome
from gpu_executor.soak.fault_injection import (
    DEVICE_LOST,
    DRIVER_ERROR,
    OUT_OF_MEMORY,
    Fault,
    FaultInjector,
)
from gpu_executor.soak.kernels import KERNELS as SOAK_KERNELS
from gpu_executor.soak.load_generator import LoadGenerator
from gpu_executor.soak.memory import (
    MIB,
    MemorySample,
    MemoryTrend,
    find_trends,
    read_mapped_bytes,
)
from gpu_executor.soak.runner import ExecutorConfig, soak
from gpu_executor.soak.tally import Tally
from gpu_executor.vulkan.binding import count_live_objects, vk
from tests.support.executors import BACKENDS

ADD = gx.kernels.load("vector_add_u32")
X = np.arange(50, dtype=np.uint32)


def make_rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.slow
def test_a_short_run_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "MIN_PHASES", 4)
    file = tmp_path / "soak.json"
    options = ["--minutes", "0.03", "--faults", "600", "--seed", "7", "--json", str(file)]
    shown = CliRunner().invoke(commands, ["soak", *options])
    assert shown.exit_code == 0, shown.output
    assert "seed 7" in shown.output
    assert "passed: 0 lost, 0 wrong, 0 answered twice, 0 failed, 0 growth" in shown.output
    written = json.loads(file.read_text())
    assert written["well"] and not written["troubles"] and not written["left"]
    assert written["jobs"] == sum(each["jobs"] for each in written["asked"].values()) >= 10
    assert len(written["executors"]) == 4 and len(written["executors"][1]) == 2
    assert not written["absent"]


@pytest.mark.parametrize("name", workload.KERNELS)
def test_a_call_detects_wrong_results(name: str) -> None:
    for largest in (5, 500):
        call = workload.draw_call(make_rng(), name, largest)
        result = gx.CpuBackend().run(call.kernel, *call.arrays, params=call.params)
        assert call.find_error(result) is None
        result.reshape(-1)[-1] += 1
        assert "1 wrong values" in str(call.find_error(result))
        assert call.find_error(call.make_output()) is not None
        assert "ClosedError: gone" in str(call.find_error(gx.errors.ClosedError("gone")))


def test_an_invalid_call_must_be_refused_for_its_invalid_element() -> None:
    call = workload.draw_call(make_rng(), "goldilocks_add", 500, invalid=True)
    with pytest.raises(gx.ElementRangeError) as caught:
        gx.CpuBackend().run(call.kernel, *call.arrays)
    assert call.find_error(caught.value) is None
    assert "refused for another" in str(call.find_error(gx.ElementRangeError("x", 1, 10**6)))
    assert "above the modulus" in str(call.find_error(X))


def test_a_call_that_changes_an_in_out_argument_is_reported() -> None:
    call = workload.draw_call(make_rng(), "lcg_step_u32", 500)
    result = gx.CpuBackend().run(call.kernel, *call.arrays)
    assert call.find_error(result) is None
    call.arrays[0][-1] += 1
    assert "argument 0 was changed" in str(call.find_error(result))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SOAK_KERNELS)
def test_kernels_of_the_soak_test_run_on_every_backend(backend: BackendName, name: str) -> None:
    calls = [workload.draw_call(make_rng(seed), name, 3_000) for seed in range(5)]
    jobs, params = [call.arrays for call in calls], [call.params for call in calls]
    with gx.GpuExecutor(backend, check=0.5) as executor:
        results = executor.run_batch(calls[0].kernel, jobs, params=params)
        for call, result in zip(calls, results, strict=True):
            assert call.find_error(result) is None
            again = executor.run(call.kernel, *call.arrays, params=call.params)
            assert call.find_error(again) is None


def test_sizes_are_mostly_small() -> None:
    sizes = [workload.draw_size(make_rng(seed), 100_000) for seed in range(500)]
    assert min(sizes) == 1 and max(sizes) > 50_000
    assert 100 < np.median(sizes) < 1_000


@pytest.mark.parametrize("method", call_methods.CALL_METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("name", ["babybear_add", "scale_u32"])
def test_every_call_method_yields_every_call_once(method: CallMethod, name: str) -> None:
    calls = [workload.draw_call(make_rng(n), name, 40) for n in range(method.max_calls)]
    with gx.GpuExecutor("cpu") as executor:
        outcomes = list(method.call(executor, calls, make_rng()))
    assert [call for call, _ in outcomes] == calls
    for call, outcome in outcomes:
        assert outcome is FutureOutcome.CANCELLED or call.find_error(outcome) is None


class BrokenExecutor(gx.GpuExecutor):
    """Its futures get `outcome` instead of a result; none at all where that is None."""

    def __init__(self, outcome: Any) -> None:
        super().__init__("cpu")
        self.outcome = outcome

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(self.outcome, Exception):
            future.set_exception(self.outcome)
        elif self.outcome is not None:
            future.set_result(self.outcome)
        return future


@pytest.mark.parametrize(
    ("outcome", "defect"),
    [
        (None, "lost"),
        (X, "wrong"),
        (VulkanError("vkQueueSubmit", -1, "by itself"), "failed"),
        (gx.errors.ClosedError("too early"), "failed"),
    ],
)
def test_a_defect_of_an_executor_is_reported(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, defect: str
) -> None:
    submit = CallMethod("submit", call_methods.call_submit, 1)
    monkeypatch.setattr(call_methods, "RESULT_TIMEOUT", 0.01)
    monkeypatch.setattr(call_methods, "CANCEL_SHARE", 0.0)
    monkeypatch.setattr(call_methods, "UNTIMED_SHARE", 0.0)
    monkeypatch.setattr(load_generator, "CALL_METHODS", [submit])
    monkeypatch.setattr(load_generator, "INVALID_SHARE", 0.0)
    tally = Tally()
    with BrokenExecutor(outcome) as executor:
        LoadGenerator(make_rng(), [executor], FaultInjector(make_rng(), 0), tally)._call_executor()
    assert dict(tally.defects) == {defect: 1}
    assert tally.descriptions[0].startswith(f"{defect}: submit on <GpuExecutor")


def test_a_result_that_changes_later_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_generator, "INVALID_SHARE", 0.0)
    tally = Tally()
    with gx.GpuExecutor("cpu") as executor:
        generator = LoadGenerator(make_rng(), [executor], FaultInjector(make_rng(), 0), tally)
        generator._call_executor()
        generator._retained[0][2].reshape(-1)[0] += 1
        generator.recheck_results()
    assert dict(tally.defects) == {"wrong": 1}
    assert "changed after it had been checked" in tally.descriptions[0]


def test_a_future_that_is_completed_twice_is_reported() -> None:
    tally, future = Tally(), Future[int]()
    future.set_result(1)
    before, threading.excepthook = threading.excepthook, tally.report_thread_death
    try:
        thread = threading.Thread(target=future.set_result, args=(2,), name="worker")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    assert dict(tally.defects) == {"answered twice": 1}


@pytest.mark.parametrize(
    ("kind", "call", "error"),
    [
        (DEVICE_LOST, "vkQueueSubmit", gx.DeviceLostError),
        (DEVICE_LOST, "vkWaitSemaphores", gx.DeviceLostError),
        (OUT_OF_MEMORY, "vkQueueSubmit", gx.OutOfMemoryError),
        (DRIVER_ERROR, "vkQueueSubmit", VulkanError),
    ],
)
def test_a_fault_fires_once_and_a_lost_device_stays_lost(
    kind: str, call: str, error: type[Exception]
) -> None:
    before, real = count_live_objects(), vk.vkQueueSubmit
    with FaultInjector(make_rng(), 0) as faults:
        with gx.PersistentVulkanBackend() as gpu, gx.PersistentVulkanBackend() as other:
            faults._armed[call] = Fault(kind, call, "VK_ERROR_UNKNOWN", 0)
            with pytest.raises(error, match="injected fault"):
                gpu.run(ADD, X, X)
            assert dict(faults.fired) == {(kind, call): 1}
            np.testing.assert_array_equal(other.run(ADD, X, X), 2 * X)
            if kind == DEVICE_LOST:
                with pytest.raises(gx.DeviceLostError):
                    gpu.run(ADD, X, X)
            else:
                np.testing.assert_array_equal(gpu.run(ADD, X, X), 2 * X)
        with gx.PersistentVulkanBackend() as gpu:
            np.testing.assert_array_equal(gpu.run(ADD, X, X), 2 * X)
    assert vk.vkQueueSubmit is real
    assert count_live_objects() == before


def test_memory_mapped_from_a_device_file_is_counted() -> None:
    before = read_mapped_bytes()
    with (
        Path("/dev/zero").open("r+b") as file,
        mmap.mmap(file.fileno(), MIB, mmap.MAP_PRIVATE) as made,
    ):
        made[:] = bytes(range(256)) * (MIB // 256)
        assert read_mapped_bytes() - before == MIB
    assert read_mapped_bytes() == before


def test_growth_is_detected_and_the_warm_up_is_ignored() -> None:
    def trends(*megabytes: float) -> list[MemoryTrend]:
        samples = enumerate(int(each * MIB) for each in megabytes)
        return find_trends([MemorySample(10.0 * n, 0, 0, 0, 0, other, 0) for n, other in samples])

    def grew(*megabytes: float) -> bool:
        return any(each.grew for each in trends(*megabytes))

    steady = [100.0, 200.0, 290.0, *[300.0, 310.0, 305.0] * 20]
    assert not grew(*steady)
    assert not grew(*reversed(steady))
    assert grew(*(300 + 5 * n for n in range(60)))
    # All of the warm-up, then too few samples after it.
    assert {each.allowed for each in trends(*[100.0] * 15)} == {None}
    assert {each.allowed for each in trends(*[300.0] * 15, *[900.0] * 15)} == {None}
    assert grew(*[300.0] * 25, *[900.0] * 15)
    assert not grew(1, 1, 1, 1, 999, 999)


def test_a_thread_that_does_not_return_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    monkeypatch.setattr(runner, "EXECUTOR_CONFIGS", (ExecutorConfig("cpu"),))
    monkeypatch.setattr(runner, "JOIN_TIMEOUT", 0.01)
    monkeypatch.setattr(LoadGenerator, "run", lambda *_: over.wait())
    try:
        report = soak(0.005, 1)
    finally:
        over.set()
    assert dict(report.tally.defects) == {"lost": 3}
    assert report.samples == () and len(report.executors) == 1
    assert "in wait" in capfd.readouterr().err


def test_an_absent_backend_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = (ExecutorConfig("cpu"), ExecutorConfig("vulkan", [99]))
    monkeypatch.setattr(runner, "EXECUTOR_CONFIGS", configs)
    monkeypatch.setattr(runner, "MIN_PHASES", 2)
    monkeypatch.setattr(load_generator, "FIELD_OPERATIONS_SHARE", 0.0)
    report = soak(0.001, 1)
    assert report.passed and len(report.executors) == 1
    assert "no device matches 99" in report.absent[0]
