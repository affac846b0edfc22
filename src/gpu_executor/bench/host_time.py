"""The host time of operations on device arrays, which return before the device is done.

Small calls through an executor are timed too, beside the same calls on a backend.

The device must not hold up the host: a few operations are timed at a time, fewer than may be in
flight, and the device is waited for in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.sampled import Sampled
from gpu_executor.device_info import DeviceInfo
from gpu_executor.executor import GpuExecutor
from gpu_executor.fields import BLS12_381_FR
from gpu_executor.kernels import load
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

TIMED_AT_ONCE = 8
ROUNDS, ROUNDS_ON_CPU = 100, 2
SMALL, TRANSFORMED = 64, 1 << 18
"""Elements of an operation, and of a transform of three passes."""
AIMS = {
    "Field.mul, new result": 35.0,
    "transform of three passes": 45.0,
    "run on device arrays": 40.0,
    "run through GpuExecutor, more than the backend": 3.0,
}
"""Microseconds on an NVIDIA H200's host."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """The median time that one operation takes the caller."""

    operation: str
    us: float


def measure_host_times() -> tuple[DeviceInfo, list[HostTime]]:
    """Open the best Vulkan device and time every operation; the results are checked."""
    with GpuExecutor("vulkan") as executor, PersistentVulkanBackend() as gpu:
        rounds = ROUNDS_ON_CPU if gpu.device.kind == "cpu" else ROUNDS
        operations = _list_operations(gpu)
        rows = [
            HostTime(name, _time(operation, gpu.synchronize, rounds))
            for name, operation in operations.items()
        ]
        rows += _compare_small_calls(executor, gpu, rounds)
        return gpu.device, rows


def check_targets(rows: list[HostTime], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    return [
        Target(row.operation, row.us, AIMS[row.operation], "us", at_most=True)
        for row in rows
        if row.operation in AIMS
    ]


def _list_operations(gpu: PersistentVulkanBackend) -> dict[str, Callable[[], object]]:
    field, add = BLS12_381_FR, load("vector_add_u32")
    words = np.arange(SMALL, dtype=np.uint32)
    values = list(range(1, SMALL + 1))
    x, y = gpu.to_device(field.encode(values)), gpu.to_device(field.encode(values))
    long = gpu.to_device(field.arange(TRANSFORMED))
    a, out = gpu.to_device(words), gpu.to_device(words)
    if field.mul(x, y).tolist() != [value * value for value in values]:
        raise AssertionError("products on the device are wrong")
    if not np.array_equal(gpu.run(add, a, a).numpy(), 2 * words):
        raise AssertionError("sums on the device are wrong")
    if not (field.intt(field.ntt(long)) == long).all():
        raise AssertionError("transforms on the device are wrong")
    return {
        "Field.mul, new result": lambda: field.mul(x, y),
        "Field.mul by an integer": lambda: field.mul(x, 7),
        "transform of three passes": lambda: field.ntt(long),
        "run on device arrays": lambda: gpu.run(add, a, a),
        "run on device arrays, out=": lambda: gpu.run(add, a, a, out=out),
        "upload of a small array": lambda: gpu.to_device(words),
    }


def _compare_small_calls(
    executor: GpuExecutor, gpu: PersistentVulkanBackend, rounds: int
) -> list[HostTime]:
    """Time calls on small NumPy arrays, by turns through the executor and on a backend."""
    add, words = load("vector_add_u32"), np.arange(SMALL, dtype=np.uint32)
    by_backend: list[float] = []
    by_executor: list[float] = []
    for _ in range(rounds):
        by_backend.append(_time_once(lambda: gpu.run(add, words, words)))
        by_executor.append(_time_once(lambda: executor.run(add, words, words)))
    backend, through = Sampled.median(by_backend), Sampled.median(by_executor)
    return [
        HostTime("run of NumPy arrays on the backend", backend),
        HostTime("run of NumPy arrays through GpuExecutor", through),
        HostTime("run through GpuExecutor, more than the backend", through - backend),
    ]


def _time(operation: Callable[[], object], wait: Callable[[], None], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        wait()
        times.append(_time_once(operation))
    return Sampled.median(times)


def _time_once(operation: Callable[[], object]) -> float:
    """Return the microseconds of one operation, the mean of a few."""
    begun = perf_counter()
    for _ in range(TIMED_AT_ONCE):
        operation()
    return (perf_counter() - begun) / TIMED_AT_ONCE * 1e6
