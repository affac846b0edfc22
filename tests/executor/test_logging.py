"""The log of an executor: devices (opened, lost, quarantined), retries, and jobs at DEBUG."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import WrongResultError
from gpu_executor.executor import candidates
from gpu_executor.webgpu import device
from tests.support.backend_faults import LOST, corrupt_results, lose

ADD = gx.kernels.load("vector_add_u32")
A = np.arange(70, dtype=np.uint32)
NAME = "gpu_executor.executor"

Messages = list[tuple[int, str]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, NAME)
    return caplog


def list_messages(log: pytest.LogCaptureFixture) -> Messages:
    return [(each.levelno, each.getMessage()) for each in log.records if each.name == NAME]


def test_opening_and_closing_a_device_is_logged(log: pytest.LogCaptureFixture) -> None:
    with gx.GpuExecutor("cpu") as executor:
        assert list_messages(log) == [(logging.INFO, "NumPy by cpu opened")]
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
    assert list_messages(log)[1:] == [(logging.INFO, "NumPy by cpu closed after 2 calls")]


def test_retries_and_reopenings_are_logged_with_the_error(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        lose(monkeypatch, times=1)
        np.testing.assert_array_equal(executor.submit(ADD, A, A).result(), A + A)
        assert list_messages(log)[1:] == [
            (logging.WARNING, f"NumPy by cpu was lost and has been reopened: {LOST}"),
            (logging.WARNING, f"retrying vector_add_u32 on NumPy by cpu after an error: {LOST}"),
        ]


def test_a_quarantine_is_logged_as_an_error(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        corrupt_results(monkeypatch)
        with pytest.raises(WrongResultError) as wrong:
            executor.run(ADD, A, A)
        assert (logging.ERROR, f"NumPy by cpu is quarantined: {wrong.value}") in list_messages(log)


def test_falling_back_to_the_cpu_is_logged_as_a_warning(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> list[candidates.DeviceCandidate]:
        raise gx.NoDeviceError("no driver")

    monkeypatch.setattr(candidates, "find_devices", nothing)
    monkeypatch.setattr(device, "find_adapters", nothing)
    with pytest.warns(RuntimeWarning, match="NumPy"), gx.GpuExecutor() as executor:
        assert executor.stats().fell_back
        warned = [text for level, text in list_messages(log) if level == logging.WARNING]
        assert len(warned) == 1
        assert "falling back to NumPy by cpu" in warned[0]
    with gx.GpuExecutor("cpu") as executor:  # requested, not a fallback
        assert not executor.stats().fell_back
    assert [level for level, _ in list_messages(log)].count(logging.WARNING) == 1


def test_a_process_warns_once_of_a_fallback() -> None:
    """However many executors fall back, from whichever line; and not by the log and a warning."""
    script = (
        "import gpu_executor as gx\n"
        "from gpu_executor.executor import candidates\n"
        "def find(settings):\n"
        "    raise gx.NoDeviceError('no driver')\n"
        "candidates.FINDERS.update(vulkan=find, webgpu=find)\n"
        "for _ in range(2):\n"
        "    with gx.GpuExecutor() as first:\n"
        "        assert first.stats().fell_back\n"
        "with gx.GpuExecutor() as second:\n"
        "    assert second.stats().fell_back\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("falling back to NumPy by cpu: no better device could be opened") == 1
    assert done.stderr.startswith("<string>:7: RuntimeWarning: ")


def test_jobs_are_logged_only_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with gx.GpuExecutor("cpu") as executor:
        caplog.set_level(logging.INFO, NAME)
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
        assert list_messages(caplog) == []
        caplog.set_level(logging.DEBUG, NAME)
        executor.run(ADD, A, A)
        list(executor.map(ADD, [A] * 3, [A] * 3))
        with pytest.raises(gx.errors.ArgumentTypeError):
            executor.submit(ADD, A, A.astype(np.float32)).result()
    lines = [text for level, text in list_messages(caplog) if level == logging.DEBUG]
    assert [text.split(" us, ")[-1].split(":")[0] for text in lines] == [
        "done",
        "done",
        "ArgumentTypeError",
    ]
    assert "vector_add_u32 on NumPy by cpu: 1 calls, 560 bytes, " in lines[0]
    assert "vector_add_u32 on NumPy by cpu: 3 calls, 1680 bytes, " in lines[1]


def test_no_log_record_is_made_below_the_log_level(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    caplog.set_level(logging.WARNING, NAME)
    monkeypatch.setattr(logging.Logger, "makeRecord", lambda *_, **__: made.append("one"))
    with gx.GpuExecutor("cpu") as executor:
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
    assert made == []
