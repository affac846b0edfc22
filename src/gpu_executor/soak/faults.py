"""Vulkan calls that fail on purpose, there where the binding makes them.

In its `with`, chosen calls raise what the binding raises for a result code, once each. A device
that is lost stays so until it is destroyed: its queues take nothing and its waits say so, while
other devices go on. What it had begun it ends first, for a software device is never really gone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.errors import DeviceLostError, GpuError, OutOfMemoryError, VulkanError
from gpu_executor.vulkan.binding import Handle, vk

LOST, OUT_OF_MEMORY, DRIVER_ERROR = "device lost", "out of memory", "driver error"
KINDS = (LOST, OUT_OF_MEMORY, DRIVER_ERROR)
SHARES = (0.2, 0.4, 0.4)
LOSING = ("vkQueueSubmit", "vkWaitSemaphores")
"""Where a device may be found to be lost."""
FAILING = (
    "vkQueueSubmit",
    "vkAllocateMemory",
    "vkCreateBuffer",
    "vkBindBufferMemory",
    "vkMapMemory",
    "vkCreateShaderModule",
    "vkCreateComputePipelines",
    "vkCreateDescriptorPool",
    "vkAllocateDescriptorSets",
    "vkAllocateCommandBuffers",
    "vkResetCommandBuffer",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
)
MOST_SKIPPED = 20
"""Calls that go well before the one that fails, at most."""
CODES = ("VK_ERROR_TOO_MANY_OBJECTS", "VK_ERROR_INITIALIZATION_FAILED", "VK_ERROR_UNKNOWN")


@dataclass(slots=True)
class Fault:
    """A call that is to fail, after some that do not."""

    kind: str
    call: str
    code: str
    skipped: int


class Faults:
    """Safe from several threads. `per_minute` are armed; calls that nobody makes fail nowhere."""

    def __init__(self, draw: np.random.Generator, per_minute: float) -> None:
        self._draw, self._every = draw, 60 / per_minute if per_minute else None
        self._lock = threading.RLock()
        self._next = 0.0
        self._armed: dict[str, Fault] = {}
        self._real: dict[str, Any] = {}
        self._devices: dict[Handle, Handle] = {}
        """Of each queue."""
        self._lost: set[Handle] = set()
        self.fired: Counter[tuple[str, str]] = Counter()
        """Kind and call."""
        self.count = 0
        """Of those fired."""

    def __enter__(self) -> Faults:
        replaced: dict[str, Callable[[Any], Any]] = dict.fromkeys(FAILING, self._failing)
        replaced |= {
            "vkQueueSubmit": self._submitting,
            "vkWaitSemaphores": self._waiting,
            "vkGetDeviceQueue": self._learning_queues,
            "vkDestroyDevice": self._forgetting,
        }
        for name, wrapped in replaced.items():
            self._real[name] = getattr(vk, name)
            setattr(vk, name, wrapped(name))
        self._next = time.monotonic()
        return self

    def __exit__(self, *_exception: object) -> None:
        for name, real in self._real.items():
            setattr(vk, name, real)

    def pass_by(self) -> None:
        """Arm another one, if it is time."""
        if self._every is None or time.monotonic() < self._next:
            return
        with self._lock:
            self._next = time.monotonic() + self._draw.exponential(self._every)
            kind = str(self._draw.choice(KINDS, p=SHARES))
            call = str(self._draw.choice(LOSING if kind == LOST else FAILING))
            code = str(self._draw.choice(CODES))
            skipped = int(self._draw.integers(0, MOST_SKIPPED))
            self._armed.setdefault(call, Fault(kind, call, code, skipped))

    def rest(self) -> None:
        """Disarm what is armed: from now on nothing fails but what is lost already."""
        with self._lock:
            self._armed.clear()

    def _failing(self, name: str) -> Any:
        real = self._real[name]

        def call(*arguments: Any) -> Any:
            fault = self._due(name)
            if fault is not None:
                raise _error(fault)
            return real(*arguments)

        return call

    def _submitting(self, name: str) -> Any:
        real = self._real[name]

        def submit(queue: Handle, *arguments: Any) -> Any:
            # With the lock, for a device that is waited for must not be given work meanwhile.
            with self._lock:
                device = self._devices.get(queue)
                fault = self._due(name) if device is not None else None
                if fault is not None and fault.kind != LOST:
                    raise _error(fault)
                self._check(device, fault, name)
                return real(queue, *arguments)

        return submit

    def _waiting(self, name: str) -> Any:
        real = self._real[name]

        def wait(device: Handle, *arguments: Any) -> Any:
            with self._lock:
                ours = device in self._devices.values()
                self._check(device, self._due(name) if ours else None, name)
            result = real(device, *arguments)
            with self._lock:
                self._check(device, None, name)
            return result

        return wait

    def _check(self, device: Handle | None, fault: Fault | None, call: str) -> None:
        if fault is not None and device is not None and device not in self._lost:
            self._lost.add(device)
            vk.vkDeviceWaitIdle(device)
        if device in self._lost:
            raise _error(Fault(LOST, call, "VK_ERROR_DEVICE_LOST", 0))

    def _learning_queues(self, name: str) -> Any:
        real = self._real[name]

        def get(device: Handle, family: int, index: int, queue: Handle) -> None:
            real(device, family, index, queue)
            with self._lock:
                self._devices[queue[0]] = device

        return get

    def _forgetting(self, name: str) -> Any:
        real = self._real[name]

        def destroy(device: Handle, *arguments: Any) -> None:
            with self._lock:  # another one may get the same handle
                self._lost.discard(device)
                self._devices = {q: owner for q, owner in self._devices.items() if owner != device}
            real(device, *arguments)

        return destroy

    def _due(self, name: str) -> Fault | None:
        with self._lock:
            fault = self._armed.get(name)
            if fault is None:
                return None
            fault.skipped -= 1
            if fault.skipped >= 0:
                return None
            del self._armed[name]
            self.fired[fault.kind, name] += 1
            self.count += 1
            return fault


def _error(fault: Fault) -> GpuError:
    """What the binding would raise."""
    if fault.kind == OUT_OF_MEMORY:
        return OutOfMemoryError(f"{fault.call} failed: on purpose, out of memory")
    kind = DeviceLostError if fault.kind == LOST else VulkanError
    return kind(fault.call, getattr(vk, fault.code), f"{fault.code}, on purpose")
