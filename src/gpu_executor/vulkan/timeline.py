"""A queue and its timeline semaphore: submit work, wait until the semaphore counts past it.

A submission's structures are made once, when its commands are recorded; submitting patches in the
next value and makes one Vulkan call. Waiting releases the GIL (cffi does, around every C call).
"""

from __future__ import annotations

import threading
from time import perf_counter_ns

from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device

WAIT_SLICE_NS = 100_000_000
"""Waits are cut into slices of a tenth of a second, so that Ctrl-C arrives between two."""


SPIN_NS = 100_000
"""How long a wait looks again and again before it sleeps. Being woken costs 20 us: submitting and
waiting for 64 additions takes 38 us on an NVIDIA H200 with a wait that sleeps, 17 with one that
spins. A software device needs the processor itself, and is not spun for."""


class Submission:
    """Recorded commands, ready to be submitted again and again on one timeline."""

    __slots__ = (
        "_arena",
        "commands",
        "submit_info",
        "value_to_signal",
        "value_to_wait",
        "wait_info",
    )

    def __init__(self, semaphore: Handle, commands: Handle) -> None:
        self.commands = commands
        arena = self._arena = Arena()
        semaphores = arena.array("VkSemaphore", [semaphore])
        self.value_to_signal = arena.array("uint64_t", [0])
        self.value_to_wait = arena.array("uint64_t", [0])
        timeline = arena.new(
            "VkTimelineSemaphoreSubmitInfo",
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=self.value_to_signal,
        )
        self.submit_info = arena.new(
            "VkSubmitInfo",
            pNext=timeline,
            commandBufferCount=1,
            pCommandBuffers=arena.array("VkCommandBuffer", [commands]),
            signalSemaphoreCount=1,
            pSignalSemaphores=semaphores,
        )
        self.wait_info = arena.new(
            "VkSemaphoreWaitInfo",
            semaphoreCount=1,
            pSemaphores=semaphores,
            pValues=self.value_to_wait,
        )


class Timeline:
    """The device's queue. Vulkan wants one thread at a time there, and values in order: a lock."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._value = 0
        self._spins = device.info.kind != "cpu"
        self._queue, self._no_fence = device.queue, vk.ffi.NULL
        arena = Arena()
        kind = arena.new(
            "VkSemaphoreTypeCreateInfo",
            semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE,
            initialValue=0,
        )
        info = arena.new("VkSemaphoreCreateInfo", pNext=kind)
        semaphore = out("VkSemaphore")
        vk.vkCreateSemaphore(device.handle, info, vk.ffi.NULL, semaphore)
        self._semaphore = semaphore[0]

    def prepare(self, commands: Handle) -> Submission:
        return Submission(self._semaphore, commands)

    def submit(self, submission: Submission) -> None:
        with self._lock:
            value = self._value + 1
            submission.value_to_signal[0] = submission.value_to_wait[0] = value
            vk.vkQueueSubmit(self._queue, 1, submission.submit_info, self._no_fence)
            self._value = value

    def wait(self, submission: Submission) -> None:
        """Return when the device is done with it."""
        handle, info, pending = self._device.handle, submission.wait_info, vk.VK_TIMEOUT
        if self._spins:
            end = perf_counter_ns() + SPIN_NS
            while vk.vkWaitSemaphores(handle, info, 0) == pending:
                if perf_counter_ns() > end:
                    break
            else:
                return
        while vk.vkWaitSemaphores(handle, info, WAIT_SLICE_NS) == pending:
            pass

    def close(self) -> None:
        vk.vkDestroySemaphore(self._device.handle, self._semaphore, vk.ffi.NULL)
