"""A wait for the device that lasts as long as a test wants."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gpu_executor.vulkan import binding
from tests.support.threads import PATIENCE


class HeldWait:
    """The first wait for the device lasts until the `with` statement ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self._released = threading.Event(), threading.Event()
        self._wait = binding.vk.vkWaitSemaphores
        monkeypatch.setattr(binding.vk, "vkWaitSemaphores", self)

    def __call__(self, *arguments: Any) -> Any:
        if not self.reached.is_set():
            self.reached.set()
            assert self._released.wait(PATIENCE)
        return self._wait(*arguments)

    def __enter__(self) -> HeldWait:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._released.set()
