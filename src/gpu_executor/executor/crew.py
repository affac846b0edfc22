"""The crew: an executor's devices and what they share, the line, their rates and a stand-in.

Devices are numbers here. One that has failed gets nothing more; what it could not run is for
others, and where there are none, for the CPU if the choice of a device was the executor's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from gpu_executor.errors import (
    ClosedError,
    DeviceLostError,
    NoDeviceError,
    VulkanError,
    WrongResultError,
)
from gpu_executor.executor.jobs import Arrays, Job
from gpu_executor.executor.line import Line
from gpu_executor.executor.open_device import STRIKES, OpenDevice
from gpu_executor.executor.rates import Rates
from gpu_executor.executor.repeating import not_repeatable
from gpu_executor.executor.small_calls import SmallCalls
from gpu_executor.executor.stand_in import StandIn
from gpu_executor.kernel import Kernel

FROM_FAILING = (VulkanError, ClosedError, NoDeviceError)
"""What calls on a device that is not there any more end in."""


class Crew:
    """Safe from several threads."""

    def __init__(
        self,
        devices: Sequence[OpenDevice],
        line: Line,
        rates: Rates,
        stand_in: StandIn,
        *,
        may_fall_back: bool,
        small_on_cpu: bool,
    ) -> None:
        self.devices, self.line, self.rates, self.stand_in = devices, line, rates, stand_in
        self._may_fall_back = may_fall_back
        self.small = SmallCalls(stand_in) if small_on_cpu else None
        self.simple = len(devices) == 1 and not small_on_cpu
        """Whether there is nothing to choose for a call."""
        self._working = len(devices)
        for device in devices:
            device.has_others = partial(self._has_others, device)
        self._direct = [0] * len(devices)
        """Calls that callers' threads have running, by device."""
        self._lock = threading.Lock()

    def opened(self) -> list[OpenDevice]:
        """The devices, and the stand-in if it was needed."""
        stand_in = self.stand_in.device
        return [*self.devices] if stand_in is None else [*self.devices, stand_in]

    def placed_on(self) -> list[OpenDevice]:
        """What calls run on while nothing fails: the stand-in too where it has small ones."""
        return [*self.devices] if self.small is None else [*self.devices, self.stand_in.open()]

    def place(self, who: int, kernel: Kernel, calls: Sequence[Arrays]) -> OpenDevice:
        """Where calls are run that a device has taken."""
        device = self.devices[who]
        if device.failed is not None:
            if not self._stands_in(kernel):
                raise device.refusal()
            return self.stand_in.fall_back(device.failed)
        return device if self.small is None else self.small.place(device, kernel, calls)

    @contextmanager
    def taken(
        self, kernel: Kernel, arrays: Arrays, lost_on: frozenset[int] = frozenset()
    ) -> Iterator[OpenDevice]:
        """A device for one call in its caller's thread: of several the one that is least busy, and
        was not lost in it."""
        shares = self.rates.shares(kernel)
        with self._lock:
            able = [who for who, device in enumerate(self.devices) if device.failed is None]
            able = [who for who in able if who not in lost_on] or able
            who = min(able or [0], key=lambda each: (self._direct[each] + 1) / (shares[each] or 1))
            self._direct[who] += 1
        try:
            yield self.place(who, kernel, [arrays])
        finally:
            with self._lock:
                self._direct[who] -= 1
            if self.devices[who].failed is not None:
                self.rates.leave_alone(who)

    def is_for_others(
        self,
        device: OpenDevice,
        kernel: Kernel,
        arrays: Arrays,
        out: Any,
        error: Any,
        lost_on: frozenset[int],
    ) -> bool:
        """Whether a call failed with its device alone, and there is somebody else to run it."""
        if not isinstance(error, FROM_FAILING) or isinstance(error, WrongResultError):
            return False
        if not_repeatable(arrays, out) is not None:
            return False
        if device.failed is None:  # it may be the call that loses devices: once on each, then
            return isinstance(error, DeviceLostError) and self._has_others(device, lost_on)
        return self._has_others(device) or self._stands_in(kernel)

    def pass_on(
        self, who: int, answers: Sequence[tuple[Job, Sequence[Any]]]
    ) -> list[tuple[Job, Sequence[Any]]]:
        """A device has failed, or is lost again and again: jobs that others are to run go back to
        the line; those that are answered are returned."""
        device = self.devices[who]
        self.judge(device)
        if device.failed is not None:
            self.rates.leave_alone(who)
        passed = [job for job, own in answers if self._are_for_others(device, job, own)]
        if not passed:
            return list(answers)
        for job in passed:
            job.lost_on |= {who}
        self.line.put_back(passed)
        return [(job, own) for job, own in answers if job not in passed]

    def judge(self, device: OpenDevice) -> None:
        """Leave a device alone that is lost again and again, where there are others."""
        if device.strikes < STRIKES:
            return
        with self._lock:
            if self._has_others(device):
                device.give_up()

    def is_left_by(self, who: int) -> bool:
        """Whether a device has failed and others go on without it; the last one's thread stays."""
        return self.devices[who].failed is not None and self.rates.able > 0

    def end(self, who: int) -> None:
        """A device's thread is over; with the last one all devices are closed."""
        self.line.leave(who)
        with self._lock:
            self._working -= 1
            if self._working:
                return
        for device in self.devices:
            device.close()
        self.stand_in.close()

    def _has_others(self, device: OpenDevice, lost_on: frozenset[int] = frozenset()) -> bool:
        return any(
            each.failed is None
            for who, each in enumerate(self.devices)
            if each is not device and who not in lost_on
        )

    def _stands_in(self, kernel: Kernel) -> bool:
        return self._may_fall_back and kernel.reference is not None

    def _are_for_others(self, device: OpenDevice, job: Job, outcomes: Sequence[Any]) -> bool:
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        return bool(failed) and all(
            self.is_for_others(device, job.kernel, arrays, out, failed[0], job.lost_on)
            for arrays, out in zip(job.calls, job.places(), strict=True)
        )
