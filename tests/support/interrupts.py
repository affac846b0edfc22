"""Interrupts inside vkQueueSubmit, after which nobody knows whether the device has the work."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_executor.vulkan.binding import vk


def interrupt_submissions(
    monkeypatch: pytest.MonkeyPatch, times: int, *, handed_over: bool
) -> None:
    """The next submissions raise KeyboardInterrupt, before the device has them or after."""
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
