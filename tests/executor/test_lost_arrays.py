"""Device arrays are lost with their device: every call on them says so, and is not retried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError
from gpu_executor.vulkan.binding import vk
from tests.conftest import RunPython
from tests.support.contract_kernels import expect_step, step
from tests.support.executor_scripts import check_script
from tests.support.executors import ADD, words
from tests.support.fault_codes import LOST, NO_MEMORY, OTHER, code_of, executor
from tests.support.jobs import check_sums
from tests.support.vulkan_faults import Fail, fail

__all__ = ["executor", "fail"]  # the fixtures

STEP = step()
X, Y = words(50)
GONE = r"argument 0, a device array of shape \(50,\) and dtype uint32, was on .*, which was lost"


@pytest.fixture
def two(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as opened:
        yield opened


def lose(executor: gx.GpuExecutor, index: int = 0) -> None:
    """Let the executor reopen a device as after a loss."""
    device = executor._devices[index]
    device._recover(device.backend, gx.DeviceLostError("vkQueueSubmit", -4, "on purpose"))


def list_ways(executor: gx.GpuExecutor, there: gx.DeviceArray) -> list[Callable[[], object]]:
    return [
        lambda: executor.run(ADD, there, Y),
        lambda: executor.submit(ADD, there, Y).result(),
        lambda: executor.submit(ADD, there, Y, keep=False).result(),
        lambda: executor.run_batch(ADD, [(X, Y), (there, Y)]),
        lambda: list(executor.map(ADD, [there], [Y])),
        lambda: list(executor.stream(ADD, [(there, Y)])),
        lambda: executor.explain(ADD, there, Y),
    ]


@pytest.mark.parametrize("way", range(6))
def test_the_call_that_finds_the_loss_names_the_array_and_the_device(
    executor: gx.GpuExecutor, fail: Fail, way: int
) -> None:
    there = executor.to_device(X)
    executor.synchronize()
    fail("vkQueueSubmit", code_of(LOST), on=1)
    with pytest.raises(gx.DeviceLostError, match=f"{ADD.name}: {GONE}"):
        list_ways(executor, there)[way]()
    (device,) = executor.stats().devices
    assert (device.reopened, device.retries) == (1, 0)
    for again in list_ways(executor, there):
        with pytest.raises(gx.DeviceLostError, match=GONE):
            again()
    there = executor.to_device(X)
    np.testing.assert_array_equal(executor.run(ADD, there, Y).numpy(), X + Y)


def test_arrays_stay_lost_after_the_device_was_reopened(executor: gx.GpuExecutor) -> None:
    there, other = executor.to_device(X), executor.to_device(Y)
    mapped = executor.asarray(X)
    lose(executor)
    for way in list_ways(executor, there):
        with pytest.raises(gx.DeviceLostError, match=GONE):
            way()
    new = executor.to_device(X)
    with pytest.raises(gx.DeviceLostError, match=r"argument 1, .* was lost"):
        executor.run(ADD, new, other)
    with pytest.raises(gx.DeviceLostError, match=r"out 0, .* was lost"):
        executor.run(ADD, new, Y, out=other)
    with pytest.raises(gx.DeviceLostError, match=r"to_device: the array, .* was lost"):
        executor.to_device(there)
    with pytest.raises(gx.DeviceLostError, match=r"graph: input 0, .* was lost"):
        executor.graph(there)
    with pytest.raises(ClosedError, match="which was closed or lost; its elements are gone"):
        there.numpy()
    np.testing.assert_array_equal(executor.run(ADD, new, mapped).numpy(), X + X)
    assert executor.stats().devices[0].reopened == 1


def test_a_loss_that_a_fetch_finds_is_named_too(executor: gx.GpuExecutor, fail: Fail) -> None:
    there = executor.to_device(X)
    executor.synchronize()
    fail("vkWaitSemaphores", code_of(LOST), upto=1)
    future = executor.submit(ADD, there, Y, keep=False)
    with pytest.raises(gx.DeviceLostError, match=r"result 0, .* was on .*, which was lost"):
        future.result()
    np.testing.assert_array_equal(executor.run(ADD, executor.to_device(X), Y).numpy(), X + Y)


def test_a_loss_that_synchronize_finds_reopens_the_device(
    executor: gx.GpuExecutor, fail: Fail
) -> None:
    there = executor.to_device(X)
    executor.run(ADD, there, Y)
    fail("vkWaitSemaphores", code_of(LOST), upto=1)
    with pytest.raises(gx.DeviceLostError) as caught:
        executor.synchronize()
    assert "was lost, and its device arrays are gone with it" in str(caught.value.__notes__)
    assert executor.stats().devices[0].reopened == 1
    with pytest.raises(gx.DeviceLostError, match=GONE):
        executor.run(ADD, there, Y)


@pytest.mark.parametrize("code", [NO_MEMORY, OTHER])
def test_other_faults_of_calls_on_device_arrays_are_retried_on_their_device(
    two: gx.GpuExecutor, fail: Fail, code: str
) -> None:
    there = two.to_device(X, index=1)
    two.synchronize()
    fail("vkQueueSubmit", code_of(code), on=1)
    np.testing.assert_array_equal(two.run(ADD, there, Y).numpy(), X + Y)
    assert [each.calls for each in two.stats().devices] == [0, 1]
    assert two.stats().devices[1].retries == 1
    fail("vkQueueSubmit", code_of(code), on=1)
    with pytest.raises(gx.GpuError) as caught:
        two.run(STEP, there, Y, out=there)
    assert "not retried: its output overlaps one of its inputs" in str(caught.value.__notes__)
    np.testing.assert_array_equal(there.numpy(), X)
    two.run(STEP, there, Y, out=there)
    np.testing.assert_array_equal(there.numpy(), expect_step(X, Y))


def test_only_the_arrays_of_the_lost_device_are_lost(two: gx.GpuExecutor) -> None:
    here, there = two.to_device(X, index=0), two.to_device(X, index=1)
    lose(two, 1)
    np.testing.assert_array_equal(two.run(ADD, here, Y).numpy(), X + Y)
    with pytest.raises(gx.DeviceLostError, match=r"argument 0, .* was on device 1 \("):
        two.run(ADD, there, Y)
    with pytest.raises(gx.DeviceLostError, match=r"argument 1, .* was on device 1 \("):
        two.run(ADD, here, there)


def test_calls_are_not_moved_from_a_device_that_cannot_be_reopened(
    two: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = two.to_device(X)
    two.synchronize()
    with monkeypatch.context():
        fail("vkQueueSubmit", code_of(LOST), on=1)
        fail("vkCreateDevice", vk.VK_ERROR_INITIALIZATION_FAILED)
        with pytest.raises(gx.DeviceLostError, match=GONE):
            two.run(ADD, there, Y)
    with pytest.raises(gx.DeviceLostError, match=GONE):
        two.run(ADD, there, Y)
    assert two.stats().devices[0].failed is not None
    two.synchronize()
    assert two.trim() >= 0
    new = two.to_device(X)  # on the first usable device
    assert new.storage.device is two._devices[1].array_device
    np.testing.assert_array_equal(two.run(ADD, new, Y).numpy(), X + Y)
    with pytest.raises(gx.NoDeviceError, match="is quarantined"):
        two.to_device(X, index=0)
    check_sums([two.run(ADD, X, Y)], [(X, Y)])


@pytest.mark.parametrize("use", ["to_device", "asarray", "empty", "keep"])
def test_new_arrays_are_made_again_after_a_loss(
    executor: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    uses: dict[str, Callable[[], Any]] = {
        "to_device": lambda: executor.to_device(X),
        "asarray": lambda: executor.asarray(X),
        "empty": lambda: executor.empty(50, np.uint32),
        "keep": lambda: executor.run(ADD, X, X * 0, keep=True),
    }
    backend: Any = executor._devices[0].backend

    def lost(*_arguments: Any, **_options: Any) -> Any:
        raise gx.DeviceLostError("vkQueueSubmit", -4, "on purpose")

    for name in ("to_device", "empty", "asarray", "run"):
        monkeypatch.setattr(backend, name, lost)
    made = uses[use]()
    if use != "empty":
        np.testing.assert_array_equal(np.asarray(made), X)
    assert executor.stats().devices[0].reopened == 1


FORK = """
import os
executor = gx.GpuExecutor("vulkan")
there = executor.to_device(X)
result = executor.run(ADD, there, X)
pid = os.fork()
if pid == 0:
    refused = 0
    for use in (
        lambda: executor.run(ADD, there, X),
        lambda: executor.submit(ADD, there, X),
        lambda: executor.run_batch(ADD, [(there, X)]),
        lambda: executor.stream(ADD, [(there, X)]),
        lambda: executor.to_device(X),
        lambda: executor.empty(5),
        lambda: executor.synchronize(),
        lambda: executor.graph(there),
        lambda: executor.trim(),
        lambda: there.numpy(),
        lambda: result.numpy(),
    ):
        try:
            use()
        except gx.errors.ForkedError:
            refused += 1
    executor.close()
    os._exit(refused)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 11, status
assert right([result.numpy(), executor.run(ADD, there, X).numpy()])
executor.close()
print("parent")
"""


def test_a_child_of_fork_cannot_use_the_arrays(run_python: RunPython) -> None:
    check_script(run_python, FORK, "parent")
