"""Backends that fail, wait or lie, for tests of what is said about them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx

LOST = gx.DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")


def lose(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """The CPU's next calls, so many, find their device lost."""
    run, left = gx.CpuBackend.run, [times]

    def failing(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise LOST
        return run(self, *arguments, **options)

    monkeypatch.setattr(gx.CpuBackend, "run", failing)


def lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's results are all wrong from now on."""
    run = gx.CpuBackend.run

    def lying(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
        return np.invert(run(self, *arguments, **options))

    monkeypatch.setattr(gx.CpuBackend, "run", lying)


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The CPU's calls wait until this ends; the event is set when the first one does."""
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
