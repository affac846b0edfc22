"""Injection of Vulkan errors.

Within its `with` block a `FaultInjector` replaces functions of the binding. An armed fault makes
one call raise the exception that the binding raises for a result code. A lost device stays lost
until it is destroyed: its submissions and waits raise `DeviceLostError`, while other devices keep
working. Work that was already submitted to a lost device is completed first, since the device is
not really gone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

from gpu_executor.errors import DeviceLostError, GpuError, OutOfMemoryError, VulkanError
from gpu_executor.vulkan.binding import Handle, vk

DEVICE_LOST, OUT_OF_MEMORY, DRIVER_ERROR = "device lost", "out of memory", "driver error"
KINDS = (DEVICE_LOST, OUT_OF_MEMORY, DRIVER_ERROR)
KIND_PROBABILITIES = (0.2, 0.4, 0.4)
DEVICE_LOST_CALLS = ("vkQueueSubmit", "vkWaitSemaphores")
"""Functions that may report a lost device."""
FAILING_CALLS = (
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
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
)
"""Functions that may fail with the other error codes."""
MAX_CALLS_BEFORE = 19
"""The maximum number of calls of a function that succeed before the call that fails."""
DRIVER_ERROR_CODES = (
    "VK_ERROR_TOO_MANY_OBJECTS",
    "VK_ERROR_INITIALIZATION_FAILED",
    "VK_ERROR_UNKNOWN",
)


@dataclass(slots=True)
class Fault:
    """An armed fault: a function of the binding, and how one of its next calls fails."""

    kind: str
    call: str
    code: str
    calls_before: int
    """The number of calls that succeed before the fault fires."""


class FaultInjector:
    """Arms `per_minute` faults on average, at random times. Thread-safe.

    An armed fault fires when its function is called, so not every armed fault fires.
    """

    def __init__(self, rng: Generator, per_minute: float) -> None:
        self._rng, self._mean_interval = rng, 60 / per_minute if per_minute else None
        self._lock = threading.RLock()
        self._next = 0.0
        self._armed: dict[str, Fault] = {}
        self._real: dict[str, Any] = {}
        self._device_of_queue: dict[Handle, Handle] = {}
        self._lost: set[Handle] = set()
        self.fired: Counter[tuple[str, str]] = Counter()
        """Counts of the faults that have fired, by kind and call."""
        self.count = 0
        """The number of faults that have fired."""

    def __enter__(self) -> FaultInjector:
        wrappers: dict[str, Callable[[Any], Any]] = dict.fromkeys(FAILING_CALLS, self._wrap_call)
        wrappers |= {
            "vkQueueSubmit": self._wrap_submit,
            "vkWaitSemaphores": self._wrap_wait,
            "vkGetDeviceQueue": self._wrap_get_queue,
            "vkDestroyDevice": self._wrap_destroy_device,
        }
        for name, wrap in wrappers.items():
            self._real[name] = getattr(vk, name)
            setattr(vk, name, wrap(name))
        self._next = time.monotonic()
        return self

    def __exit__(self, *_exception: object) -> None:
        for name, real in self._real.items():
            setattr(vk, name, real)

    def arm_if_due(self) -> None:
        """Arm a random fault if the time for the next one has come."""
        if self._mean_interval is None or time.monotonic() < self._next:
            return
        with self._lock:
            self._next = time.monotonic() + self._rng.exponential(self._mean_interval)
            kind = str(self._rng.choice(KINDS, p=KIND_PROBABILITIES))
            calls = DEVICE_LOST_CALLS if kind == DEVICE_LOST else FAILING_CALLS
            call = str(self._rng.choice(calls))
            code = str(self._rng.choice(DRIVER_ERROR_CODES))
            calls_before = int(self._rng.integers(0, MAX_CALLS_BEFORE + 1))
            self._armed.setdefault(call, Fault(kind, call, code, calls_before))

    def disarm(self) -> None:
        """Disarm all faults. Devices that are lost already stay lost."""
        with self._lock:
            self._armed.clear()

    def _wrap_call(self, name: str) -> Any:
        real = self._real[name]

        def call(*arguments: Any) -> Any:
            fault = self._take_due_fault(name)
            if fault is not None:
                raise _make_error(fault)
            return real(*arguments)

        return call

    def _wrap_submit(self, name: str) -> Any:
        real = self._real[name]

        def submit(queue: Handle, *arguments: Any) -> Any:
            # Under the lock, so that nothing is submitted to a device while a call waits for that
            # device to become idle.
            with self._lock:
                device = self._device_of_queue.get(queue)
                fault = self._take_due_fault(name) if device is not None else None
                if fault is not None and fault.kind != DEVICE_LOST:
                    raise _make_error(fault)
                self._raise_if_lost(device, fault, name)
                return real(queue, *arguments)

        return submit

    def _wrap_wait(self, name: str) -> Any:
        real = self._real[name]

        def wait(device: Handle, *arguments: Any) -> Any:
            with self._lock:
                known = device in self._device_of_queue.values()
                self._raise_if_lost(device, self._take_due_fault(name) if known else None, name)
            result = real(device, *arguments)
            with self._lock:
                self._raise_if_lost(device, None, name)
            return result

        return wait

    def _raise_if_lost(self, device: Handle | None, fault: Fault | None, call: str) -> None:
        """Raise if the device is lost; a due fault makes it lost."""
        if fault is not None and device is not None and device not in self._lost:
            self._lost.add(device)
            vk.vkDeviceWaitIdle(device)
        if device in self._lost:
            raise _make_error(Fault(DEVICE_LOST, call, "VK_ERROR_DEVICE_LOST", 0))

    def _wrap_get_queue(self, name: str) -> Any:
        real = self._real[name]

        def get_queue(device: Handle, family: int, index: int, queue: Handle) -> None:
            real(device, family, index, queue)
            with self._lock:
                self._device_of_queue[queue[0]] = device

        return get_queue

    def _wrap_destroy_device(self, name: str) -> Any:
        real = self._real[name]

        def destroy_device(device: Handle, *arguments: Any) -> None:
            with self._lock:  # before the call: a new device may get the same handle
                self._lost.discard(device)
                self._device_of_queue = {
                    queue: owner
                    for queue, owner in self._device_of_queue.items()
                    if owner != device
                }
            real(device, *arguments)

        return destroy_device

    def _take_due_fault(self, name: str) -> Fault | None:
        """Return the armed fault that this call must raise, if any, and disarm it."""
        with self._lock:
            fault = self._armed.get(name)
            if fault is None:
                return None
            fault.calls_before -= 1
            if fault.calls_before >= 0:
                return None
            del self._armed[name]
            self.fired[fault.kind, name] += 1
            self.count += 1
            return fault


def _make_error(fault: Fault) -> GpuError:
    """Return the exception that the binding raises for the fault's result code."""
    if fault.kind == OUT_OF_MEMORY:
        return OutOfMemoryError(f"{fault.call} failed: injected fault, out of memory")
    error = DeviceLostError if fault.kind == DEVICE_LOST else VulkanError
    return error(fault.call, getattr(vk, fault.code), f"{fault.code}, injected fault")
