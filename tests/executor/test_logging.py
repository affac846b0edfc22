"""The log of an executor: what it opened, lost, tried again and left alone; jobs where asked."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import WrongResultError
from gpu_executor.executor import candidates
from tests.support.backend_faults import LOST, lie, lose

ADD = gx.kernels.load("vector_add_u32")
A = np.arange(70, dtype=np.uint32)
NAME = "gpu_executor.executor"

Said = list[tuple[int, str]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, NAME)
    return caplog


def said(log: pytest.LogCaptureFixture) -> Said:
    return [(each.levelno, each.getMessage()) for each in log.records if each.name == NAME]


def test_devices_are_opened_and_closed(log: pytest.LogCaptureFixture) -> None:
    with gx.GpuExecutor("cpu") as executor:
        assert said(log) == [(logging.INFO, "NumPy by cpu opened")]
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
    assert said(log)[1:] == [(logging.INFO, "NumPy by cpu closed after 2 calls")]


def test_calls_that_are_run_again_name_the_error(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu") as executor:
        lose(monkeypatch, times=1)
        np.testing.assert_array_equal(executor.submit(ADD, A, A).result(), A + A)
        assert said(log)[1:] == [
            (logging.WARNING, f"NumPy by cpu was lost and has been reopened: {LOST}"),
            (logging.WARNING, f"retrying vector_add_u32 on NumPy by cpu after an error: {LOST}"),
        ]


def test_a_device_that_is_left_alone_is_an_error(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        lie(monkeypatch)
        with pytest.raises(WrongResultError) as wrong:
            executor.run(ADD, A, A)
        assert (logging.ERROR, f"NumPy by cpu is quarantined: {wrong.value}") in said(log)


def test_falling_back_to_the_cpu_is_a_warning(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> list[candidates.DeviceCandidate]:
        raise gx.NoDeviceError("no driver")

    monkeypatch.setattr(candidates, "find_devices", nothing)
    monkeypatch.setattr(candidates, "find_adapters", nothing)
    with pytest.warns(RuntimeWarning, match="NumPy"), gx.GpuExecutor() as executor:
        assert executor.stats().fell_back
        warned = [text for level, text in said(log) if level == logging.WARNING]
        assert len(warned) == 1
        assert "falling back to NumPy by cpu" in warned[0]
    with gx.GpuExecutor("cpu") as executor:  # which was asked for
        assert not executor.stats().fell_back
    assert [level for level, _ in said(log)].count(logging.WARNING) == 1


def test_jobs_are_told_at_debug_alone(caplog: pytest.LogCaptureFixture) -> None:
    with gx.GpuExecutor("cpu") as executor:
        caplog.set_level(logging.INFO, NAME)
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
        assert said(caplog) == []
        caplog.set_level(logging.DEBUG, NAME)
        executor.run(ADD, A, A)
        list(executor.map(ADD, [A] * 3, [A] * 3))
        with pytest.raises(gx.errors.ArgumentTypeError):
            executor.submit(ADD, A, A.astype(np.float32)).result()
    lines = [text for level, text in said(caplog) if level == logging.DEBUG]
    assert [text.split(" us, ")[-1].split(":")[0] for text in lines] == [
        "done",
        "done",
        "ArgumentTypeError",
    ]
    assert "vector_add_u32 on NumPy by cpu: 1 calls, 560 bytes, " in lines[0]
    assert "vector_add_u32 on NumPy by cpu: 3 calls, 1680 bytes, " in lines[1]


def test_no_record_is_made_where_nobody_reads_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    caplog.set_level(logging.WARNING, NAME)
    monkeypatch.setattr(logging.Logger, "makeRecord", lambda *_, **__: made.append("one"))
    with gx.GpuExecutor("cpu") as executor:
        executor.run(ADD, A, A)
        executor.submit(ADD, A, A).result()
    assert made == []
