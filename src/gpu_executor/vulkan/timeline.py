"""A queue and its timeline semaphore: submit work, and wait until the semaphore reaches its value.

The structures of a submission are made once, when its commands are recorded. Submitting writes the
next signal value and the values to wait for on other timelines, and makes one Vulkan call. Waiting
releases the GIL, as cffi does around every C call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter_ns

from gpu_executor.common.fork import DISOWNED, register_fork_handler
from gpu_executor.errors import DeviceLostError, GpuError
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device, QueueAddress
from gpu_executor.vulkan.external_memory import SharedSemaphore

WAIT_SLICE_NS = 100_000_000
"""A wait is a sequence of waits of 0.1 s, between which Python handles signals such as Ctrl-C."""

SPIN_NS = 100_000
"""How long a wait polls before it sleeps. Waking a thread costs the host 20 us, whatever the
device: a spinning wait takes at most five times as long as it may save. Submitting and waiting for
64 additions takes 38 us on an NVIDIA H200 with a sleeping wait, 17 us with a spinning one. A wait
for a software device does not spin, because the device needs the CPU itself. Nor does a wait spin
while other threads copy: it would take the GIL again before they wake up to get it."""
FETCH_SPIN_NS = 1_000_000
"""The same while the caller fetches a device array, which has nothing else to do. A multi-scalar
multiplication of 2^10 points took 1,585 us from call to affine result on an NVIDIA H200, and 1,645
us with `SPIN_NS`."""


class Submission:
    """Recorded commands that can be submitted again and again on one timeline.

    Each submission waits for the latest submission of each one in `after`, which are on other
    timelines, or for the latest value of a semaphore that another API signals; `stage` is the
    pipeline stage that waits.
    """

    __slots__ = (
        "_arena",
        "after",
        "commands",
        "signal_value",
        "submit_info",
        "wait_info",
        "wait_values",
    )

    def __init__(
        self,
        semaphore: Handle,
        commands: Handle,
        after: Sequence[tuple[Handle, Submission | SharedSemaphore]],
        stage: int,
        also_signals: Sequence[Handle] = (),
    ) -> None:
        """The values of `also_signals` come after the first in `signal_value`."""
        signals = [semaphore, *also_signals]
        self.commands = commands
        self.after = [earlier for _, earlier in after]
        arena = self._arena = Arena()
        self.signal_value = arena.array("uint64_t", len(signals))
        """The timeline value that the latest submission signals when it is done."""
        self.wait_values = arena.array("uint64_t", max(len(after), 1))
        signal = arena.array("VkSemaphore", signals)
        timeline = arena.new(
            "VkTimelineSemaphoreSubmitInfo",
            waitSemaphoreValueCount=len(after),
            pWaitSemaphoreValues=self.wait_values,
            signalSemaphoreValueCount=len(signals),
            pSignalSemaphoreValues=self.signal_value,
        )
        self.submit_info = arena.new(
            "VkSubmitInfo",
            pNext=timeline,
            waitSemaphoreCount=len(after),
            pWaitSemaphores=arena.array("VkSemaphore", [handle for handle, _ in after]),
            pWaitDstStageMask=arena.array("VkPipelineStageFlags", [stage] * len(after)),
            commandBufferCount=int(commands != vk.ffi.NULL),
            pCommandBuffers=arena.array("VkCommandBuffer", [commands]),
            signalSemaphoreCount=len(signals),
            pSignalSemaphores=signal,
        )
        self.wait_info = arena.new(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=signal, pValues=self.signal_value
        )


class Timeline:
    """One queue and its timeline semaphore.

    A lock serializes submissions, as Vulkan requires for a queue, so that the values are signalled
    in order.
    """

    def __init__(self, device: Device, address: QueueAddress) -> None:
        self._device = device
        self.family = address.family
        self._lock = threading.Lock()
        self._value = 0
        self._counter = allocate_out("uint64_t")
        self._may_spin = device.info.kind != "cpu"
        self._queue, self._no_fence = device.queue(address), vk.ffi.NULL
        arena = Arena()
        kind = arena.new(
            "VkSemaphoreTypeCreateInfo",
            semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE,
            initialValue=0,
        )
        info = arena.new("VkSemaphoreCreateInfo", pNext=kind)
        semaphore = allocate_out("VkSemaphore")
        vk.vkCreateSemaphore(device.handle, info, vk.ffi.NULL, semaphore)
        self._semaphore = semaphore[0]
        register_fork_handler(self._disown_after_fork)

    def prepare(
        self, commands: Handle, after: Sequence[tuple[Timeline, Submission]] = (), stage: int = 0
    ) -> Submission:
        """Make a submission that waits for the latest submission of each one in `after`."""
        earlier = [(timeline._semaphore, submission) for timeline, submission in after]
        return Submission(self._semaphore, commands, earlier, stage)

    def prepare_exchange(
        self, *, waits_for: SharedSemaphore | None = None, signals: SharedSemaphore | None = None
    ) -> Submission:
        """Make a submission without commands, after and before everything else on the queue. It
        waits for the latest value of a semaphore, or signals what is put at `signal_value[1]`."""
        after = [] if waits_for is None else [(waits_for.handle, waits_for)]
        also = [] if signals is None else [signals.handle]
        stage = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
        return Submission(self._semaphore, vk.ffi.NULL, after, stage, also)

    def prepare_wait(self) -> Submission:
        """Make a submission without commands, to wait for any value: set its `signal_value`."""
        return Submission(self._semaphore, vk.ffi.NULL, (), 0)

    def count_completed(self) -> int:
        """The timeline value up to which the device has completed all submissions."""
        vk.vkGetSemaphoreCounterValue(self._device.handle, self._semaphore, self._counter)
        completed: int = self._counter[0]
        return completed

    def submit(self, submission: Submission) -> None:
        """Submit the commands; returns without waiting for the device."""
        if submission.after:
            for index, earlier in enumerate(submission.after):
                submission.wait_values[index] = earlier.signal_value[0]
        with self._lock:
            before, value = submission.signal_value[0], self._value + 1
            submission.signal_value[0] = value
            try:
                vk.vkQueueSubmit(self._queue, 1, submission.submit_info, self._no_fence)
            except GpuError:
                submission.signal_value[0] = before  # nothing will signal the new value
                raise
            except BaseException:
                self._signal_after_interrupt(submission, value)
                raise
            self._value = value

    def _signal_after_interrupt(self, submission: Submission, value: int) -> None:
        """Submit a signal after an interrupted vkQueueSubmit.

        Whether the device received the interrupted submission is unknown. The signal comes in both
        cases, after the submission's work, and stands for it.
        """
        arena, signal_value = Arena(), submission.signal_value
        timeline = arena.new(
            "VkTimelineSemaphoreSubmitInfo",
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=signal_value,
        )
        info = arena.new(
            "VkSubmitInfo",
            pNext=timeline,
            signalSemaphoreCount=1,
            pSignalSemaphores=arena.array("VkSemaphore", [self._semaphore]),
        )
        while True:
            value += 1
            signal_value[0] = self._value = value
            try:
                vk.vkQueueSubmit(self._queue, 1, info, self._no_fence)
            except KeyboardInterrupt:
                continue  # a second Ctrl-C: try again
            except GpuError:
                signal_value[0] = 0  # the device is lost: there is nothing to wait for
            return

    def wait(self, submission: Submission, *, spin_ns: int = SPIN_NS) -> None:
        """Return when the device is done with the submission.

        Pass `spin_ns=0` while other threads copy.
        """
        handle, info, pending = self._device.handle, submission.wait_info, vk.VK_TIMEOUT
        if spin_ns and self._may_spin:
            end = perf_counter_ns() + spin_ns
            while vk.vkWaitSemaphores(handle, info, 0) == pending:
                if perf_counter_ns() > end:
                    break
            else:
                return
        while vk.vkWaitSemaphores(handle, info, WAIT_SLICE_NS) == pending:
            pass

    def wait_uninterrupted(self, submission: Submission) -> KeyboardInterrupt | None:
        """Wait until the submission is done or the device is lost.

        Returns a KeyboardInterrupt that came meanwhile, or None.
        """
        interrupt = None
        while True:
            try:
                self.wait(submission)
            except KeyboardInterrupt as error:
                interrupt = error
            except DeviceLostError:
                return interrupt
            else:
                return interrupt

    def is_done(self, submission: Submission) -> bool:
        """Whether the device is done with the submission."""
        result = vk.vkWaitSemaphores(self._device.handle, submission.wait_info, 0)
        return bool(result != vk.VK_TIMEOUT)

    def close(self) -> None:
        vk.vkDestroySemaphore(self._device.handle, self._semaphore, vk.ffi.NULL)

    def _disown_after_fork(self) -> None:
        self._device = self._lock = DISOWNED  # a forked child can neither wait nor submit
