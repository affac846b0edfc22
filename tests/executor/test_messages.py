"""What an executor says to arguments that mean nothing, and when it is asked at a bad time."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, ClosedError, NoDeviceError, SettingsError
from gpu_executor.executor.candidates import BackendName, DeviceCandidate
from tests.support.executors import ADD, BACKENDS, words
from tests.support.threads import PATIENCE, in_background

LOST = gx.DeviceLostError("vkQueueSubmit", -4, "on purpose")
NO_KERNEL = (
    "a GpuExecutor runs kernels, and 'len' is not a kernel; use a ThreadPoolExecutor for functions"
)


# --- arguments ---


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", [0.0, 1.0])
@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_function_is_no_kernel_whoever_else_looks_at_it(
    backend: BackendName, check: float, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "gpu_executor.executor")
    no_kernel: Any = len
    with gx.GpuExecutor(backend, check=check) as executor:
        with pytest.raises(ArgumentTypeError) as raised:
            executor.run(no_kernel, *words(3))
        assert str(raised.value) == NO_KERNEL
        with pytest.raises(ArgumentTypeError) as raised:
            executor.explain(no_kernel, 3)
        assert str(raised.value) == NO_KERNEL


def test_a_name_is_no_kernel_and_no_function() -> None:
    name: Any = ADD.name
    with gx.GpuExecutor("cpu") as executor:
        for ask in (executor.run, executor.submit):
            with pytest.raises(
                ArgumentTypeError, match=r"argument is a str, .*kernels\.load\(name\)"
            ):
                ask(name, *words(3))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tries": 0}, "tries is 0; it must be a whole number, at least 1"),
        ({"tries": "3"}, "tries is '3'; it must be a whole number, at least 1"),
        ({"tries": 2.5}, "tries is 2.5; it must be a whole number, at least 1"),
        ({"tries": None}, "tries is None; it must be a whole number, at least 1"),
        ({"check": "0.1"}, "check is '0.1'; it must be a fraction from 0 to 1"),
        ({"check": None}, "check is None; it must be a fraction from 0 to 1"),
        ({"devices": 1}, "devices= must be 'all' or a list of devices, not 1"),
        ({"devices": np.zeros(0)}, r"devices= must be 'all' or a list of devices, not array\(.*\)"),
        ({"queued_bytes": 0}, "queued_bytes is 0; it takes a whole number of bytes, 1 at least"),
        (
            {"queued_bytes": "1e6"},
            "queued_bytes is '1e6'; it takes a whole number of bytes, 1 at least",
        ),
        ({"memory_limit": -5}, "memory_limit is -5; it takes a whole number of bytes, 1 at least"),
        ({"when_full": "wait"}, "when_full is 'wait'; it must be 'block' or 'raise'"),
    ],
    ids=str,
)
def test_a_keyword_that_means_nothing_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}$"):
        gx.GpuExecutor("cpu", **wrong)


def test_several_devices_may_be_named_in_whatever_can_be_gone_through() -> None:
    ways: list[Any] = [np.array([0, 0]), (each for each in "00"), {0: "the first"}]
    for devices in ways:
        with gx.GpuExecutor("cpu", devices=devices, tries=np.int64(1)) as executor:  # type: ignore[arg-type]
            assert {str(each.candidate) for each in executor._devices} == {"NumPy by cpu"}


def test_a_registry_that_is_none_is_refused() -> None:
    registry: Any = 5
    with gx.GpuExecutor("cpu") as executor, pytest.raises(SettingsError) as raised:
        executor.serve_metrics(registry=registry)
    said = "registry= must be a CollectorRegistry of prometheus_client, not a int"
    assert str(raised.value) == said


# --- asked for a plan ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_that_is_asked_for_after_the_shutdown_is_refused(backend: BackendName) -> None:
    with gx.GpuExecutor(backend) as executor:
        assert "* 0: " in executor.explain(ADD, 10)
    with pytest.raises(ClosedError, match="the executor is shut down; open another one"):
        executor.explain(ADD, 10)


def test_the_same_where_it_is_shut_down_meanwhile() -> None:
    executor = gx.GpuExecutor("vulkan")
    backend: Any = executor._devices[0].backend
    plan = backend.explain

    def too_late(*arguments: Any) -> Any:
        executor.shutdown()
        return plan(*arguments)

    backend.explain = too_late
    with pytest.raises(ClosedError, match="the executor is shut down; open another one"):
        executor.explain(ADD, 10)


def test_a_plan_waits_for_a_device_that_is_being_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed, may_open, open_seat = threading.Event(), threading.Event(), DeviceCandidate.open

    def slowly(candidate: DeviceCandidate, settings: gx.Settings) -> Any:
        closed.set()
        assert may_open.wait(PATIENCE)
        return open_seat(candidate, settings)

    with gx.GpuExecutor("vulkan") as executor:
        device = executor._devices[0]
        monkeypatch.setattr(DeviceCandidate, "open", slowly)
        reopening, _ = in_background(lambda: device._recover(device.backend, LOST))
        assert closed.wait(PATIENCE)
        asking, said = in_background(lambda: executor.explain(ADD, 10))
        asking.join(0.2)
        assert said == []
        may_open.set()
        for thread in (asking, reopening):
            thread.join(PATIENCE)
        assert "10 elements on the" in said[0]


def test_a_plan_is_that_of_a_device_which_has_not_failed() -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        failed, _ = executor._devices
        failed.backend.close()
        failed.failed = NoDeviceError("it is gone")
        said = executor.explain(ADD, 10)
        assert "quarantined: it is gone" in said
        assert "10 elements on the" in said
