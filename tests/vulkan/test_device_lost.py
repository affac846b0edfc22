"""A lost device: every use of it raises, it can be closed, and other backends keep working."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import binding, slot_commands
from gpu_executor.vulkan.binding import vk
from tests.conftest import OpenGpu
from tests.support.jobs import ADD_U32, FQ_ADD, check_sums, field_jobs, word_jobs
from tests.support.ring_backends import MUCH, in_time

Gpu = gx.PersistentVulkanBackend
X = np.arange(70, dtype=np.uint32)
JOBS = word_jobs(*[70] * 12)
CAN_BE_LOST = ("vkQueueSubmit", "vkWaitSemaphores")

wherever_it_is_noticed = pytest.mark.parametrize("name", CAN_BE_LOST, ids=["submit", "wait"])


class Loss:
    """From a given call of `name` on, a device returns VK_ERROR_DEVICE_LOST; other devices work.

    Work in flight is completed first, because a lost device has none in flight.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, gpu: Gpu, name: str, after: int = 0
    ) -> None:
        resources = gpu._session.resources
        self._device, self._compute = resources.device.handle, resources.compute
        self._name, self._left = name, after
        self.happened = False
        self._callbacks = [self._make(each) for each in CAN_BE_LOST]
        for each, failing in zip(CAN_BE_LOST, self._callbacks, strict=True):
            monkeypatch.setattr(vk, each, binding._check_results(each, failing))

    def _make(self, name: str) -> Any:
        real = getattr(binding.load_library(), name)

        def failing(*arguments: Any) -> int:
            if arguments[0] not in (self._device, self._compute._queue):
                return int(real(*arguments))
            if name == self._name and not self.happened:
                self.happened = self._left == 0
                self._left -= 1
                if self.happened:
                    self._finish_work_in_flight()
            return int(vk.VK_ERROR_DEVICE_LOST if self.happened else real(*arguments))

        return vk.ffi.callback(vk.ffi.typeof(real), failing)

    def _finish_work_in_flight(self) -> None:
        with contextlib.ExitStack() as locked:
            if self._name != "vkQueueSubmit":  # called while the queue's lock is held
                locked.enter_context(self._compute._lock)
            vk.vkDeviceWaitIdle(self._device)


class Used:
    """A backend with arrays of every kind on its device."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.mapped, self.on_device = gpu.asarray(X), gpu.to_device(X)
        self.result = gpu.run(ADD_U32, X, X, keep=True)
        self.known = gpu.run(ADD_U32, X, X, device_local=True)


def profiled(gpu: Gpu) -> None:
    with gpu.profile():
        gpu.run(ADD_U32, X, X)


def list_uses(used: Used) -> dict[str, Callable[[], object]]:
    """Every way to use a device."""
    gpu, mapped, on_device, result = used.gpu, used.mapped, used.on_device, used.result
    return {
        "a call": lambda: gpu.run(ADD_U32, X, X),
        "a staged call": lambda: gpu.run(ADD_U32, X, X, device_local=True),
        "a call of a new size": lambda: gpu.run(ADD_U32, X[:9], X[:9]),
        "a call of another kernel": lambda: gpu.run_field_add(*field_jobs(9)[0]),
        "a chunked call": lambda: gpu.run(ADD_U32, np.tile(X, 9), np.tile(X, 9)),
        "a call on mapped arrays": lambda: gpu.run(ADD_U32, mapped, mapped, out=mapped),
        "a profiled call": lambda: profiled(gpu),
        "a batch": lambda: gpu.run_batch(ADD_U32, JOBS),
        "a sequential batch": lambda: gpu.run_batch(ADD_U32, JOBS, pipelined=False),
        "a deep batch": lambda: gpu.run_batch(ADD_U32, JOBS, device_local=True, depth=16),
        "a stream": lambda: next(gpu.stream(ADD_U32, JOBS)),
        "to_device": lambda: gpu.to_device(X),
        "to_device of a mapped array": lambda: gpu.to_device(mapped),
        "fetching": on_device.numpy,
        "fetching a result": result.numpy,
        "a call on device arrays": lambda: gpu.run(ADD_U32, on_device, result, keep=True),
        "a call on a device array and a host array": lambda: gpu.run(ADD_U32, result, X),
        "a result that stays on the device": lambda: gpu.run(ADD_U32, X, X, keep=True),
        "calibrate": gpu.calibrate,
    }


@pytest.fixture
def check_no_leaks() -> Iterator[None]:
    """Fail if the test leaves objects or threads behind."""
    gc.collect()  # tracebacks keep the arrays of their frames alive
    objects, threads = binding.count_live_objects(), set(threading.enumerate())
    yield
    gc.collect()
    assert binding.count_live_objects() == objects
    assert set(threading.enumerate()) <= threads


@pytest.fixture(params=[None, MUCH], ids=["by this thread", "by others"])
def used(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Used:
    """Chunks of 100 elements, filled and drained by the caller or by copy threads."""
    if request.param is not None:
        monkeypatch.setattr(slot_commands, "LARGE_COPY_BYTES", request.param)
    return Used(fresh_gpu(stream_chunk_elems=100))


@wherever_it_is_noticed
def test_every_use_of_a_lost_device_raises(
    used: Used, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Loss(monkeypatch, used.gpu, name)
    for _ in range(2):
        for what, use in list_uses(used).items():
            with pytest.raises(gx.DeviceLostError, match=r"failed: .*; reopen the backend"):
                in_time(use)
            assert used.gpu.stats().slots.in_use == 0, what
    in_time(used.gpu.close)
    with pytest.raises(gx.errors.ClosedError):
        used.gpu.run(ADD_U32, X, X)


@wherever_it_is_noticed
@pytest.mark.parametrize("use", ["a batch", "a deep batch", "a chunked call"])
def test_a_device_may_be_lost_in_the_middle_of_a_call(
    used: Used, monkeypatch: pytest.MonkeyPatch, name: str, use: str
) -> None:
    loss = Loss(monkeypatch, used.gpu, name, after=3)
    with pytest.raises(gx.DeviceLostError):
        in_time(list_uses(used)[use])
    assert loss.happened
    assert used.gpu.stats().slots.in_use == 0
    with pytest.raises(gx.DeviceLostError):
        in_time(list_uses(used)["a call"])
    in_time(used.gpu.close)


@pytest.mark.parametrize(
    ("name", "after"), [("vkQueueSubmit", 4), ("vkWaitSemaphores", 40)], ids=["submit", "wait"]
)
def test_a_device_may_be_lost_during_calibration(
    check_no_leaks: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    gpu = fresh_gpu()
    loss = Loss(monkeypatch, gpu, name, after)
    with pytest.raises(gx.DeviceLostError):
        in_time(gpu.calibrate)
    assert loss.happened
    assert gpu.calibration is None
    in_time(gpu.close)


@wherever_it_is_noticed
def test_closing_a_lost_device_frees_everything(
    check_no_leaks: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    used = Used(fresh_gpu())
    large = np.zeros(1 << 18, np.uint32)
    used.gpu.run_batch(ADD_U32, [(large, large)] * 3)
    Loss(monkeypatch, used.gpu, name)
    for use in list_uses(used).values():
        with pytest.raises(gx.DeviceLostError):
            in_time(use)
    in_time(used.gpu.close)
    assert used.mapped.tolist() == X.tolist()


@wherever_it_is_noticed
def test_arrays_on_a_lost_device_raise_also_after_close(
    used: Used, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Loss(monkeypatch, used.gpu, name)
    for array in (used.on_device, used.result):
        with pytest.raises(gx.DeviceLostError):
            array.numpy()
        assert (array.shape, array.dtype) == (X.shape, X.dtype)
    in_time(used.gpu.close)
    for array in (used.on_device, used.result):
        with pytest.raises(gx.errors.ClosedError, match="closed"):
            array.numpy()


def test_the_error_names_what_was_in_flight(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    there = gpu.to_device(X)
    gpu.synchronize()
    lose = Loss(monkeypatch, gpu, "vkWaitSemaphores")
    result = gpu.run(ADD_U32, there, there)
    for late in (result.numpy, gpu.synchronize):
        with pytest.raises(gx.DeviceLostError, match="in flight: vector_add_u32"):
            late()
    assert lose.happened


@pytest.mark.parametrize(
    ("name", "depth"), [("vkQueueSubmit", 2), ("vkWaitSemaphores", 16)], ids=["submit", "wait"]
)
def test_an_open_stream_does_not_block_closing_a_lost_device(
    check_no_leaks: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, name: str, depth: int
) -> None:
    gpu = fresh_gpu()
    stream = gpu.stream(ADD_U32, JOBS * 3, depth=depth)
    check_sums([next(stream)], JOBS[:1])
    Loss(monkeypatch, gpu, name)
    in_time(gpu.close)
    with pytest.raises(gx.errors.ClosedError):
        next(stream)


@wherever_it_is_noticed
def test_a_stream_of_a_lost_device_ends_with_the_error(
    used: Used, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stream = used.gpu.stream(ADD_U32, JOBS, depth=2)
    check_sums([next(stream)], JOBS[:1])
    Loss(monkeypatch, used.gpu, name)
    with pytest.raises(gx.DeviceLostError):
        in_time(lambda: list(stream))
    assert list(stream) == []
    assert used.gpu.stats().slots.in_use == 0


@pytest.mark.parametrize(
    ("name", "device_local"),
    [("vkQueueSubmit", False), ("vkWaitSemaphores", True)],
    ids=["submit-host-visible", "wait-device-local"],
)
def test_another_backend_works_with_the_same_arrays(
    used: Used, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, name: str, device_local: bool
) -> None:
    other = fresh_gpu()
    jobs = [*JOBS, (used.mapped, used.known)]
    Loss(monkeypatch, used.gpu, name)
    with pytest.raises(gx.DeviceLostError):
        used.gpu.run_batch(ADD_U32, jobs, device_local=device_local)
    check_sums(other.run_batch(ADD_U32, jobs, device_local=device_local), jobs)
    in_time(used.gpu.close)
    for again in (other, fresh_gpu()):
        check_sums(again.run_batch(ADD_U32, jobs, device_local=device_local), jobs)
        check_sums([again.run(FQ_ADD, *job) for job in field_jobs(70)], field_jobs(70))
        np.testing.assert_array_equal(again.to_device(used.mapped).numpy(), X)
    with pytest.raises(gx.GpuError):
        other.run(ADD_U32, used.on_device, used.on_device)
