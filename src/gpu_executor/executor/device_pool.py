"""The CPU as a stand-in, opened when it is first needed.

Small calls on the CPU, where that is faster than handing them to a device.

Whether it is, is tried once for each kernel and size class on the arrays of the first call of it.

The crew: an executor's devices and what they share, the line, their rates and a stand-in.

Devices are numbers here. One that has failed gets nothing more; what it could not run is for
others, and where there are none, for the CPU if the choice of a device was the executor's.

Opening the devices that an executor was asked for, or the best that opens.
"""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.errors import (
    ClosedError,
    DeviceLostError,
    GpuError,
    NoDeviceError,
    VulkanError,
    WrongResultError,
)
from gpu_executor.executor.candidates import DeviceCandidate, DeviceRanking
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import Arrays, Job, count_input_bytes
from gpu_executor.executor.open_device import STRIKES, OpenDevice, find_retry_obstacle
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.executor.work_stealing import DeviceRates
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

log = logging.getLogger("gpu_executor.executor")


class CpuFallback:
    """For small calls, and for all of them when every device has failed. It warns of that, once."""

    def __init__(self, settings: Settings, *, fell_back: bool = False) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.device: OpenDevice | None = None
        self.fell_back = fell_back
        """Whether the CPU was taken because there was no device, or none is left."""

    def open(self) -> OpenDevice:
        with self._lock:
            if self.device is None:
                candidate = DeviceCandidate("cpu", "NumPy", None, False)
                self.device = OpenDevice(candidate, self._settings, 1, ResultChecker(0.0))
            return self.device

    def fall_back(self, why: GpuError) -> OpenDevice:
        """Instead of devices that failed."""
        device = self.open()
        with self._lock:
            first, self.fell_back = not self.fell_back, True
        if first:
            said = f"kernels run on the CPU by NumPy from now on: {why}"
            log.warning(said)
            warnings.warn(said, RuntimeWarning, stacklevel=4)
        return device

    def close(self) -> None:
        if self.device is not None:
            self.device.close()


MOST_BYTES = 1 << 18
"""Of the inputs: more is a device's, untried."""
ROUNDS = 3
REMEMBERED = 1024
"""Outcomes; a kernel has one for each size class. They keep the kernel."""


class SmallCallRouter:
    """Safe from several threads; who comes while another tries, waits for the outcome."""

    def __init__(self, cpu_fallback: CpuFallback) -> None:
        self._cpu_fallback = cpu_fallback
        self._on_cpu: dict[tuple[DeviceCandidate, Kernel, int], bool] = {}
        """By size class: the number of bits in the number of bytes."""
        self._trying = threading.Lock()

    def place(self, device: OpenDevice, kernel: Kernel, calls: Sequence[Arrays]) -> OpenDevice:
        """Where calls that are run together run sooner."""
        nbytes = sum(map(count_input_bytes, calls))
        if nbytes > MOST_BYTES or not _on_host(kernel, calls):
            return device
        key = device.candidate, kernel, nbytes.bit_length()
        on_cpu = self._on_cpu.get(key)
        if on_cpu is None:
            on_cpu = self._try(key, device, calls)
        return self._cpu_fallback.open() if on_cpu else device

    def sizes(self, candidate: DeviceCandidate, kernel: Kernel) -> list[int]:
        """Bytes below which calls, class by class, were found to be the CPU's."""
        with self._trying:
            return sorted(
                1 << bits
                for (at, what, bits), on_cpu in self._on_cpu.items()
                if on_cpu and (at, what) == (candidate, kernel)
            )

    def _try(
        self, key: tuple[DeviceCandidate, Kernel, int], device: OpenDevice, calls: Sequence[Arrays]
    ) -> bool:
        kernel = key[1]
        with self._trying:
            if key in self._on_cpu:
                return self._on_cpu[key]
            together = coalesce(kernel, calls) if len(calls) > 1 else None
            arrays = calls[0] if together is None else together[0]
            try:
                own = _seconds(device.backend, kernel, arrays)
            except Exception:
                return False  # what is wrong with it is said when it is run
            try:
                cpu = _seconds(self._cpu_fallback.open().backend, kernel, arrays)
            except Exception:
                cpu = math.inf  # the reference cannot what the device can
            if len(self._on_cpu) >= REMEMBERED:
                self._on_cpu.pop(next(iter(self._on_cpu)))
            self._on_cpu[key] = cpu < own
            return cpu < own


def _on_host(kernel: Kernel, calls: Sequence[Arrays]) -> bool:
    """Whether the CPU can run them."""
    return kernel.reference is not None and all(
        isinstance(each, np.ndarray) for arrays in calls for each in arrays
    )


def _seconds(backend: Backend, kernel: Kernel, arrays: Arrays) -> float:
    """The least, when everything that is made once is there."""
    backend.run(kernel, *arrays)
    least = math.inf
    for _ in range(ROUNDS):
        begun = perf_counter()
        backend.run(kernel, *arrays)
        least = min(least, perf_counter() - begun)
    return least


FROM_FAILING = (VulkanError, ClosedError, NoDeviceError)
"""What calls on a device that is not there any more end in."""


class DevicePool:
    """Safe from several threads."""

    def __init__(
        self,
        devices: Sequence[OpenDevice],
        queue: JobQueue,
        rates: DeviceRates,
        cpu_fallback: CpuFallback,
        *,
        may_fall_back: bool,
        small_on_cpu: bool,
    ) -> None:
        self.devices, self.queue, self.rates, self.cpu_fallback = (
            devices,
            queue,
            rates,
            cpu_fallback,
        )
        self._may_fall_back = may_fall_back
        self.small = SmallCallRouter(cpu_fallback) if small_on_cpu else None
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
        cpu_fallback = self.cpu_fallback.device
        return [*self.devices] if cpu_fallback is None else [*self.devices, cpu_fallback]

    def placed_on(self) -> list[OpenDevice]:
        """What calls run on while nothing fails: the stand-in too where it has small ones."""
        return [*self.devices] if self.small is None else [*self.devices, self.cpu_fallback.open()]

    def place(self, who: int, kernel: Kernel, calls: Sequence[Arrays]) -> OpenDevice:
        """Where calls are run that a device has taken."""
        device = self.devices[who]
        if device.failed is not None:
            if not self._stands_in(kernel):
                raise device.refusal()
            return self.cpu_fallback.fall_back(device.failed)
        return device if self.small is None else self.small.place(device, kernel, calls)

    @contextmanager
    def taken(
        self, kernel: Kernel, arrays: Arrays, lost_on: frozenset[int] = frozenset()
    ) -> Iterator[OpenDevice]:
        """A device for one call in its caller's thread: of several the one that is least busy, and
        was not lost in it."""
        shares = self.rates.compute_shares(kernel)
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
                self.rates.quarantine(who)

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
        if find_retry_obstacle(arrays, out) is not None:
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
            self.rates.quarantine(who)
        passed = [job for job, own in answers if self._are_for_others(device, job, own)]
        if not passed:
            return list(answers)
        for job in passed:
            job.lost_on |= {who}
        self.queue.put_back(passed)
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
        self.queue.leave(who)
        with self._lock:
            self._working -= 1
            if self._working:
                return
        for device in self.devices:
            device.close()
        self.cpu_fallback.close()

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


def open_devices(
    ranking: DeviceRanking,
    candidates: Sequence[DeviceCandidate] | None,
    settings: Settings,
    tries: int,
    checker: ResultChecker,
) -> list[OpenDevice]:
    """Those that were asked for, or where none were the best."""
    if candidates is None:
        return [_open_best(ranking, settings, tries, checker)]
    return _open_all(candidates, settings, tries, checker)


def _open_all(
    candidates: Sequence[DeviceCandidate], settings: Settings, tries: int, checker: ResultChecker
) -> list[OpenDevice]:
    """All of them, or none."""
    devices: list[OpenDevice] = []
    try:
        for candidate in candidates:
            devices.append(OpenDevice(candidate, settings, tries, checker))
    except BaseException:
        for device in devices:
            device.close()
        raise
    return devices


def _open_best(
    ranking: DeviceRanking, settings: Settings, tries: int, checker: ResultChecker
) -> OpenDevice:
    """The first that opens; that others did not, or that it is the CPU, is a warning."""
    refused: list[str] = []
    for candidate in ranking:
        try:
            device = OpenDevice(candidate, settings, tries, checker)
        except GpuError as error:
            refused.append(f"{candidate}: {error}")
            continue
        if refused or candidate.backend == "cpu":
            _warn(f"kernels run on {candidate}, since better was not to be had", ranking, refused)
        return device
    raise NoDeviceError("\n".join(["no device could be opened", *ranking.absent, *refused]))


def _warn(said: str, ranking: DeviceRanking, refused: Sequence[str]) -> None:
    said = "; ".join([said, *ranking.absent, *refused])
    log.warning(said)
    warnings.warn(said, RuntimeWarning, stacklevel=5)  # where the executor is made
