"""Backends that fail, block, are slow or compute wrong results, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx

LOST = gx.DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")


def lose(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """The next `times` calls of the CPU backend raise `DeviceLostError`."""
    run, left = gx.CpuBackend.run, [times]

    def failing(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise LOST
        return run(self, *arguments, **options)

    monkeypatch.setattr(gx.CpuBackend, "run", failing)


def corrupt_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results of the CPU backend are wrong from now on."""
    run = gx.CpuBackend.run

    def corrupted(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
        return np.invert(run(self, *arguments, **options))

    monkeypatch.setattr(gx.CpuBackend, "run", corrupted)


@contextmanager
def hold_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Calls of the CPU backend block inside the `with` block. The event is set when the first call
    blocks."""
    run, waits, goes_on = gx.CpuBackend.run, threading.Event(), threading.Event()

    def waiting(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
        waits.set()
        assert goes_on.wait(60)
        return run(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(gx.CpuBackend, "run", waiting)
        try:
            yield waits
        finally:
            goes_on.set()


def delay_calls(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of a backend takes 10 ms longer: more than NumPy needs on a busy machine."""
    run = backend.run

    def delayed(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.01)
        return run(*arguments, **options)

    monkeypatch.setattr(backend, "run", delayed)
