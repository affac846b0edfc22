"""Messages of an executor for invalid arguments, and for `explain` at a bad time."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentTypeError,
    ClosedError,
    NoDeviceError,
    SettingsError,
)
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
def test_a_function_is_refused_with_any_check_and_log_level(
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


def test_a_string_is_refused_as_a_kernel() -> None:
    name: Any = ADD.name
    with gx.GpuExecutor("cpu") as executor:
        for ask in (executor.run, executor.submit):
            with pytest.raises(
                ArgumentTypeError, match=r"argument is a str, .*kernels\.load\(name\)"
            ):
                ask(name, *words(3))


@pytest.mark.parametrize(
    ("wrong", "text"),
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
def test_an_invalid_argument_is_named_in_the_message(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{text}$"):
        gx.GpuExecutor("cpu", **wrong)


def test_devices_may_be_any_iterable() -> None:
    ways: list[Any] = [np.array([0, 0]), (each for each in "00"), {0: "the first"}]
    for devices in ways:
        with gx.GpuExecutor("cpu", devices=devices, tries=np.int64(1)) as executor:  # type: ignore[arg-type]
            assert {str(each.candidate) for each in executor._devices} == {"NumPy by cpu"}


def test_anything_but_a_registry_is_refused() -> None:
    registry: Any = 5
    with gx.GpuExecutor("cpu") as executor, pytest.raises(SettingsError) as raised:
        executor.serve_metrics(registry=registry)
    text = "registry= must be a CollectorRegistry of prometheus_client, not int"
    assert str(raised.value) == text


# --- arrays and options ---


def test_an_operation_after_the_shutdown_says_that_the_elements_are_gone() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        x = executor.to_device(gx.fields.BABYBEAR.arange(4))
    with pytest.raises(ClosedError, match="the elements of its device arrays are gone with it"):
        x + x


def test_small_on_cpu_is_a_switch() -> None:
    options: Any = {"small_on_cpu": "no"}
    with pytest.raises(SettingsError, match="small_on_cpu is 'no'; it must be True or False"):
        gx.GpuExecutor("cpu", **options)


# --- explain ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_explain_after_the_shutdown_is_refused(backend: BackendName) -> None:
    with gx.GpuExecutor(backend) as executor:
        assert "* 0: " in str(executor.explain(ADD, 10))
    with pytest.raises(ClosedError, match="the executor is shut down; open another one"):
        executor.explain(ADD, 10)


def test_explain_during_a_shutdown_is_refused() -> None:
    executor = gx.GpuExecutor("vulkan")
    backend: Any = executor._devices[0].backend
    plan = backend.explain

    def too_late(*arguments: Any, **options: Any) -> Any:
        executor.shutdown()
        return plan(*arguments, **options)

    backend.explain = too_late
    with pytest.raises(ClosedError, match="the executor is shut down; open another one"):
        executor.explain(ADD, 10)


def test_explain_waits_for_a_device_that_is_being_reopened(
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
        asking, text = in_background(lambda: str(executor.explain(ADD, 10)))
        asking.join(0.2)
        assert text == []
        may_open.set()
        for thread in (asking, reopening):
            thread.join(PATIENCE)
        assert "10 elements on the" in text[0]


def test_explain_describes_a_usable_device() -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        failed, _ = executor._devices
        failed.backend.close()
        failed.failed = NoDeviceError("it is gone")
        text = str(executor.explain(ADD, 10))
        assert "quarantined: it is gone" in text
        assert "10 elements on the" in text
