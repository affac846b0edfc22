"""The device pool of an executor: its open devices and what they share.

The devices share the job queue, their measured rates and a CPU fallback. A failed device is
quarantined: it gets no more jobs, and other devices run its jobs. Without another device the CPU
runs them, if the executor itself chose the device. Small calls may run on the CPU where that is
faster. Kernels that have only WGSL run on a WebGPU device beside the Vulkan devices, if the
executor may open any backend. Devices are referred to by their index.
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
from gpu_executor.calls.call import check
from gpu_executor.errors import (
    ClosedError,
    DeviceLostError,
    GpuError,
    KernelError,
    NoDeviceError,
    VulkanError,
    WrongResultError,
)
from gpu_executor.executor.array_placement import ArrayPlacement
from gpu_executor.executor.candidates import DeviceCandidate, DeviceRanking
from gpu_executor.executor.coalescing import coalesce
from gpu_executor.executor.job_queue import JobQueue
from gpu_executor.executor.jobs import CallArguments, Job, count_all_input_bytes
from gpu_executor.executor.open_device import (
    MAX_CONSECUTIVE_LOSSES,
    OpenDevice,
    find_retry_obstacle,
)
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.executor.work_stealing import DeviceRates
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

log = logging.getLogger("gpu_executor.executor")


class CpuFallback:
    """The CPU backend of an executor, opened when it is first needed: for small calls, and for all
    calls when every device has failed. Falling back is a warning, once."""

    def __init__(self, settings: Settings, *, fell_back: bool = False) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.device: OpenDevice | None = None
        self.fell_back = fell_back
        """Whether the CPU is used because there was no device, or no usable one is left."""

    def open(self) -> OpenDevice:
        with self._lock:
            if self.device is None:
                candidate = DeviceCandidate("cpu", "NumPy", None, False)
                self.device = OpenDevice(candidate, self._settings, 1, ResultChecker(0.0))
            return self.device

    def fall_back(self, why: GpuError) -> OpenDevice:
        """Open the CPU in place of devices that failed."""
        device = self.open()
        with self._lock:
            first, self.fell_back = not self.fell_back, True
        if first:
            _warn(f"falling back to the CPU (NumPy): no usable device is left: {why}", stacklevel=5)
        return device

    def close(self) -> None:
        if self.device is not None:
            self.device.close()


class WebGpuCompanion:
    """The WebGPU device of an executor on Vulkan devices, opened for the first kernel that has only
    WGSL. Thread-safe."""

    def __init__(
        self, ranking: DeviceRanking, settings: Settings, tries: int, checker: ResultChecker
    ) -> None:
        self._ranking = ranking
        self._settings, self._tries, self._checker = settings, tries, checker
        self._lock = threading.Lock()
        self._closed = False
        self.device: OpenDevice | None = None

    def find_candidates(self) -> list[DeviceCandidate]:
        """The devices that may be opened, best first. Looking at WebGPU takes about a second."""
        self._ranking.look_at_webgpu()
        return [each for each in self._ranking if each.backend == "webgpu"]

    def open(self, kernel: Kernel) -> OpenDevice:
        """The device, which is opened now if this is its first kernel."""
        with self._lock:
            if self._closed:
                raise ClosedError("the executor is shut down; open another one")
            if self.device is None:
                self.device = self._open_best(kernel)
            return self.device

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self.device is not None:
                self.device.close()

    def _open_best(self, kernel: Kernel) -> OpenDevice:
        candidates = self.find_candidates()
        refused = [reason for reason in self._ranking.absent if reason.startswith("webgpu: ")]
        for candidate in candidates:
            try:
                return OpenDevice(candidate, self._settings, self._tries, self._checker)
            except GpuError as error:
                refused.append(f"{candidate}: {error}")
        reasons = "; ".join(refused) or "WebGPU finds no device"
        raise KernelError(
            f"kernel {kernel.name!r} has only WGSL, and no WebGPU device can be opened for it "
            f"({reasons}); make one available, or give the kernel SPIR-V with Kernel.from_spirv"
        )


MAX_SMALL_BYTES = 1 << 18
"""Input bytes of a small batch; the outputs count too if the kernel does not work element by
element. Larger batches run on the device without a measurement."""
ROUNDS = 3
"""Timed runs of a measurement."""
MAX_MEASUREMENTS = 1024
"""Measurements that are kept, one for each kernel and size class. They keep the kernel alive."""


class SmallCallRouter:
    """Decides whether small calls run on the device or on the CPU. Thread-safe.

    Both are measured once for each kernel and size class, on the arrays of its first call. Other
    threads wait for the measurement.
    """

    def __init__(self, cpu_fallback: CpuFallback) -> None:
        self._cpu_fallback = cpu_fallback
        self._on_cpu: dict[tuple[DeviceCandidate, Kernel, int], bool] = {}
        """Whether the CPU is faster. The last part of the key is the size class: the bit length of
        the number of bytes."""
        self._measuring = threading.Lock()

    def select_device(
        self, device: OpenDevice, kernel: Kernel, calls: Sequence[CallArguments]
    ) -> OpenDevice:
        """The device, or the CPU if that runs the batch faster."""
        nbytes = count_all_input_bytes(calls)
        if nbytes > MAX_SMALL_BYTES or not _can_run_on_cpu(kernel, calls):
            return device
        if kernel.split == "whole":
            try:
                nbytes = sum(_count_bytes(kernel, call) for call in calls)
            except Exception:
                return device  # the call itself raises the error when it runs
            if nbytes > MAX_SMALL_BYTES:
                return device
        key = device.candidate, kernel, nbytes.bit_length()
        on_cpu = self._on_cpu.get(key)
        if on_cpu is None:
            on_cpu = self._measure(key, device, calls)
        return self._cpu_fallback.open() if on_cpu else device

    def list_cpu_sizes(self, candidate: DeviceCandidate, kernel: Kernel) -> list[int]:
        """The upper bounds, in bytes, of the size classes for which the CPU is faster."""
        with self._measuring:
            return sorted(
                1 << bits
                for (*measured, bits), on_cpu in self._on_cpu.items()
                if on_cpu and measured == [candidate, kernel]
            )

    def _measure(
        self,
        key: tuple[DeviceCandidate, Kernel, int],
        device: OpenDevice,
        calls: Sequence[CallArguments],
    ) -> bool:
        kernel = key[1]
        with self._measuring:
            if key in self._on_cpu:
                return self._on_cpu[key]
            coalesced = coalesce(kernel, calls) if len(calls) > 1 else None
            call = calls[0] if coalesced is None else coalesced[0]
            try:
                device_seconds = _measure_seconds(device.backend, kernel, call)
            except Exception:
                return False  # the call itself raises the error when it runs
            try:
                backend = self._cpu_fallback.open().backend
                cpu_seconds = _measure_seconds(backend, kernel, call)
            except Exception:
                cpu_seconds = math.inf  # the kernel's reference fails where the device does not
            if len(self._on_cpu) >= MAX_MEASUREMENTS:
                self._on_cpu.pop(next(iter(self._on_cpu)))
            self._on_cpu[key] = cpu_seconds < device_seconds
            return cpu_seconds < device_seconds


def _can_run_on_cpu(kernel: Kernel, calls: Sequence[CallArguments]) -> bool:
    """Whether the kernel has a reference and all arrays are NumPy arrays."""
    return kernel.reference is not None and all(
        isinstance(each, np.ndarray) for call in calls for each in call.arrays
    )


def _count_bytes(kernel: Kernel, call: CallArguments) -> int:
    """Bytes of all arguments of a call: its outputs may be much larger than its inputs."""
    signature = check(kernel, call.arrays, out_shape=call.out_shape)
    return sum(operand.nbytes for operand in signature.operands)


def _measure_seconds(backend: Backend, kernel: Kernel, call: CallArguments) -> float:
    """The shortest of several runs with new output arrays, after a warm-up run."""
    run = partial(backend.run, kernel, *call.arrays, params=call.params, out_shape=call.out_shape)
    run()
    least = math.inf
    for _ in range(ROUNDS):
        begun = perf_counter()
        run()
        least = min(least, perf_counter() - begun)
    return least


DEVICE_ERRORS = (VulkanError, ClosedError, NoDeviceError)
"""Errors of calls on a device that was lost."""


class DevicePool:
    """The devices of an executor. Thread-safe."""

    def __init__(
        self,
        devices: Sequence[OpenDevice],
        queue: JobQueue,
        rates: DeviceRates,
        cpu_fallback: CpuFallback,
        webgpu: WebGpuCompanion | None,
        *,
        may_fall_back: bool,
        small_on_cpu: bool,
    ) -> None:
        """`webgpu` runs kernels that have only WGSL; None: the devices run every kernel."""
        self.devices, self.queue, self.rates, self.cpu_fallback = (
            devices,
            queue,
            rates,
            cpu_fallback,
        )
        self.webgpu = webgpu
        self.placement = ArrayPlacement(devices)
        self._may_fall_back = may_fall_back
        self.small_calls = SmallCallRouter(cpu_fallback) if small_on_cpu else None
        self.single_device = len(devices) == 1 and not small_on_cpu
        """Whether every call runs on the same device."""
        self._running_workers = len(devices)
        for device in devices:
            device.has_other_devices = partial(self._has_other_devices, device)
        self._direct_calls = [0] * len(devices)
        """Running calls of callers' threads, by device."""
        self._lock = threading.Lock()

    def list_open_devices(self) -> list[OpenDevice]:
        """The devices, and the WebGPU companion and the CPU fallback if they are open."""
        companion = None if self.webgpu is None else self.webgpu.device
        others = (companion, self.cpu_fallback.device)
        return [*self.devices, *(each for each in others if each is not None)]

    def list_profiled_devices(self) -> list[OpenDevice]:
        """The devices that calls run on: the CPU too if small calls run there, and the WebGPU
        companion if it is open."""
        profiled = [*self.devices]
        if self.webgpu is not None and self.webgpu.device is not None:
            profiled.append(self.webgpu.device)
        if self.small_calls is not None:
            profiled.append(self.cpu_fallback.open())
        return profiled

    def runs_beside(self, kernel: Kernel) -> bool:
        """Whether the WebGPU companion runs a kernel, since it has only WGSL."""
        return not kernel.spirv and kernel.wgsl is not None and self.webgpu is not None

    def select_device(
        self, device_index: int, kernel: Kernel, calls: Sequence[CallArguments]
    ) -> OpenDevice:
        """The device that runs the calls which a worker has taken: its own, the WebGPU companion or
        the CPU."""
        device = self.devices[device_index]
        if self.webgpu is not None and self.runs_beside(kernel):
            device = self.webgpu.open(kernel)
        if device.failed is not None:
            if not self._can_fall_back(kernel):
                raise device.make_quarantine_error()
            return self.cpu_fallback.fall_back(device.failed)
        if self.small_calls is None:
            return device
        return self.small_calls.select_device(device, kernel, calls)

    @contextmanager
    def reserve_device(
        self, kernel: Kernel, call: CallArguments, lost_on: frozenset[int] = frozenset()
    ) -> Iterator[OpenDevice]:
        """Reserve a device for one call in its caller's thread: the least busy of those that were
        not lost in this call."""
        shares = self.rates.compute_shares(kernel)
        with self._lock:
            usable = [index for index, each in enumerate(self.devices) if each.failed is None]
            usable = [index for index in usable if index not in lost_on] or usable
            device_index = min(
                usable or [0],
                key=lambda index: (self._direct_calls[index] + 1) / (shares[index] or 1),
            )
            self._direct_calls[device_index] += 1
        try:
            yield self.select_device(device_index, kernel, [call])
        finally:
            with self._lock:
                self._direct_calls[device_index] -= 1
            if self.devices[device_index].failed is not None:
                self.rates.quarantine(device_index)

    def can_run_elsewhere(
        self,
        device: OpenDevice,
        kernel: Kernel,
        call: CallArguments,
        error: Any,
        lost_on: frozenset[int],
    ) -> bool:
        """Whether a call failed because of its device, and another device or the CPU can run it."""
        if not isinstance(error, DEVICE_ERRORS) or isinstance(error, WrongResultError):
            return False
        if call.keep or find_retry_obstacle(call) is not None:
            return False
        if self.webgpu is not None and self.runs_beside(kernel):
            companion = self.webgpu.device
            failed = companion is not None and companion.failed is not None
            return failed and self._can_fall_back(kernel)
        if device.failed is None:
            # The call itself may be what loses devices: it runs once on each of them.
            return isinstance(error, DeviceLostError) and self._has_other_devices(device, lost_on)
        return self._has_other_devices(device) or self._can_fall_back(kernel)

    def requeue_failed_jobs(
        self, device_index: int, finished: Sequence[tuple[Job, Sequence[Any]]]
    ) -> list[tuple[Job, Sequence[Any]]]:
        """After a device has failed or was lost: put back the jobs that another device can run, and
        return the others with their outcomes."""
        device = self.devices[device_index]
        self.quarantine_if_unstable(device)
        if device.failed is not None:
            self.rates.quarantine(device_index)
        requeued = [
            job for job, outcomes in finished if self._can_job_run_elsewhere(device, job, outcomes)
        ]
        if not requeued:
            return list(finished)
        for job in requeued:
            job.lost_on |= {device_index}
        self.queue.put_back(requeued)
        return [(job, outcomes) for job, outcomes in finished if job not in requeued]

    def quarantine_if_unstable(self, device: OpenDevice) -> None:
        """Quarantine a device that was lost in several calls in a row, if there are others."""
        if device.consecutive_losses < MAX_CONSECUTIVE_LOSSES:
            return
        with self._lock:
            if device.failed is None and self._has_other_devices(device):
                losses = device.consecutive_losses
                device.quarantine(
                    NoDeviceError(
                        f"it was lost in {losses} calls in a row, in spite of being reopened"
                    )
                )

    def should_stop_worker(self, device_index: int) -> bool:
        """Whether a device has failed and others are usable. The last device's worker goes on."""
        return self.devices[device_index].failed is not None and self.rates.usable > 0

    def finish_worker(self, device_index: int) -> None:
        """End a device's worker, this thread. The last worker closes all devices."""
        self.queue.remove_worker(device_index)
        with self._lock:
            self._running_workers -= 1
            if self._running_workers:
                return
        for device in self.devices:
            device.close()
        if self.webgpu is not None:
            self.webgpu.close()
        self.cpu_fallback.close()

    def _has_other_devices(self, device: OpenDevice, lost_on: frozenset[int] = frozenset()) -> bool:
        """Whether there is another usable device that is not in `lost_on`."""
        return any(
            each.failed is None
            for index, each in enumerate(self.devices)
            if each is not device and index not in lost_on
        )

    def _can_fall_back(self, kernel: Kernel) -> bool:
        return self._may_fall_back and kernel.reference is not None

    def _can_job_run_elsewhere(self, device: OpenDevice, job: Job, outcomes: Sequence[Any]) -> bool:
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        return bool(errors) and all(
            self.can_run_elsewhere(device, job.kernel, call, errors[0], job.lost_on)
            for call in job.calls
        )


def open_devices(
    ranking: DeviceRanking,
    candidates: Sequence[DeviceCandidate] | None,
    settings: Settings,
    tries: int,
    checker: ResultChecker,
) -> list[OpenDevice]:
    """Open the given devices, or the best device of the ranking if `candidates` is None."""
    if candidates is None:
        return [_open_best(ranking, settings, tries, checker)]
    return _open_all(candidates, settings, tries, checker)


def _open_all(
    candidates: Sequence[DeviceCandidate], settings: Settings, tries: int, checker: ResultChecker
) -> list[OpenDevice]:
    """Open all devices, or none if one of them fails."""
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
    """Open the first device of the ranking that opens. Warn if others did not, or if it is the
    CPU."""
    refused: list[str] = []
    for candidate in ranking.iterate_all():
        try:
            device = OpenDevice(candidate, settings, tries, checker)
        except GpuError as error:
            refused.append(f"{candidate}: {error}")
            continue
        if refused or candidate.backend == "cpu":
            why = "; ".join(["no better device could be opened", *ranking.absent, *refused])
            warn_fallback(str(candidate), why, stacklevel=5)  # the line that opens the executor
        return device
    raise NoDeviceError("\n".join(["no device could be opened", *ranking.absent, *refused]))


_fell_back: set[str] = set()
"""The devices that executors of this process opened instead of a better one."""
_fell_back_lock = threading.Lock()


def warn_fallback(device: str, why: str, stacklevel: int) -> None:
    """Warn that an executor opens another device than the best: once per process, however many
    executors open it. Further ones are logged at INFO."""
    message = f"falling back to {device}: {why}"
    with _fell_back_lock:
        is_known = device in _fell_back
        _fell_back.add(device)
    if is_known:
        log.info(message)
    else:
        _warn(message, stacklevel + 1)


def _warn(message: str, stacklevel: int) -> None:
    if log.hasHandlers():  # otherwise logging would print the message beside the warning
        log.warning(message)
    warnings.warn(message, RuntimeWarning, stacklevel=stacklevel)
