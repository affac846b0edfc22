"""KeyboardInterrupt by a signal or inside Vulkan calls, and a check that nothing in flight is
touched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.kernels.catalogue import mont_mul_chain_kernel
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.binding import vk

HANDLED_SIGINTS: SimpleQueue[None] = SimpleQueue()
"""One for each signal that `raise_keyboard_interrupt` has handled. Its `put` may run anywhere."""


def raise_keyboard_interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle SIGINT as Python does by default, and note it."""
    HANDLED_SIGINTS.put(None)
    raise KeyboardInterrupt


def interrupt_submissions(
    monkeypatch: pytest.MonkeyPatch, times: int, *, handed_over: bool
) -> None:
    """The next `times` submissions raise KeyboardInterrupt.

    `handed_over`: after the device has received the work; otherwise before. The caller cannot tell.
    """
    submit, left = vk.vkQueueSubmit, times

    def interrupted(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or handed_over:
            submit(*arguments)
        if left >= 0:
            raise KeyboardInterrupt
        return vk.VK_SUCCESS

    monkeypatch.setattr(vk, "vkQueueSubmit", interrupted)


def interrupt_waits(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next `times` waits for the device raise KeyboardInterrupt."""
    wait, left = vk.vkWaitSemaphores, times

    def interrupted(*arguments: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise KeyboardInterrupt
        return wait(*arguments)

    monkeypatch.setattr(vk, "vkWaitSemaphores", interrupted)


LENGTH = 64


LONG = mont_mul_chain_kernel(BLS12_381_FQ, LENGTH)
"""With 5,000 elements this kernel runs longer on lavapipe than the host needs to return."""


class InFlightTracker:
    """Records every Vulkan call that touches commands or memory that the device still uses.

    Commands of the command stream are recorded for simultaneous use, so they may be submitted again
    while the device runs them.
    The validation layer (1.3.239) reports neither a second submission nor freed memory.
    """

    def __init__(self, gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        self._device = gpu._session.resources.device.handle
        self._stream = gpu._session.device_memory.stream
        self._running: dict[Any, tuple[Any, int]] = {}
        self.touched: list[str] = []
        for name in ("vkQueueSubmit", "vkDestroyCommandPool", "vkFreeMemory", "vkDestroySemaphore"):
            monkeypatch.setattr(vk, name, functools.partial(self._watched, name, getattr(vk, name)))

    def _watched(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        if name != "vkQueueSubmit":
            self.touched += [name for commands in self._running if self._busy(commands)]
            if name == "vkDestroySemaphore":
                self._running.clear()  # its value can no longer be read
            return call(*arguments)
        info = arguments[2]
        if not info.commandBufferCount:  # a submission that only signals
            return call(*arguments)
        commands = info.pCommandBuffers[0]
        shared = {recorded.commands for recorded in self._stream._cached.values()}
        if self._busy(commands) and commands not in shared:
            self.touched.append(name)
        result = call(*arguments)
        timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo *", info.pNext)
        value = timeline.pSignalSemaphoreValues[0]
        self._running[commands] = info.pSignalSemaphores[0], value
        return result

    def _busy(self, commands: Any) -> bool:
        if commands not in self._running:
            return False
        semaphore, value = self._running[commands]
        reached = vk.ffi.new("uint64_t *")
        vk.vkGetSemaphoreCounterValue(self._device, semaphore, reached)
        return bool(reached[0] < value)
