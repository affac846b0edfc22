"""NumPy's arithmetic on device arrays, beside a copy on the device, which moves as many bytes a
second as the memory allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.bench.timing import TimingBudget, time_resident
from gpu_executor.calls.call import Array
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

LOG_COUNT, LOG_COUNT_ON_CPU = 26, 20
"""log2 of the number of elements of an array."""
REPEATS = 10
"""Operations of a recorded graph."""
BUDGET = TimingBudget(warm_up=0.3, per_function=0.2)
COLUMNS = 1 << 10
"""The columns of arrays with two axes."""

Operation = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class ArrayTimes:
    """One operation."""

    operation: str
    dtype: str
    elements: int
    ms: float
    bytes_per_second: float
    """Of the elements that it reads and of those that it writes."""
    share_of_copy: float
    """Its bytes a second over those of a copy."""


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    dtype: str
    run: Operation
    """Takes two arrays with one axis, and the first one with two axes."""
    reads: int
    """Bytes that it reads for each element of an array, and writes."""
    writes: int


WORKS = (
    _Work("a.copy()", "float32", lambda a, b, rows: a.copy(), 4, 4),
    _Work("a + b", "float32", lambda a, b, rows: a + b, 8, 4),
    _Work("a / b", "float32", lambda a, b, rows: a / b, 8, 4),
    _Work("2 * a", "float32", lambda a, b, rows: 2 * a, 4, 4),
    _Work("a < b", "float32", lambda a, b, rows: a < b, 8, 1),
    _Work("np.where(a < b, a, b)", "float32", lambda a, b, rows: np.where(a < b, a, b), 17, 5),
    _Work("rows + row", "float32", lambda a, b, rows: rows + b[:COLUMNS], 4, 4),
    _Work("a.sum()", "float32", lambda a, b, rows: a.sum(), 4, 0),
    _Work("rows.sum(axis=0)", "float32", lambda a, b, rows: rows.sum(axis=0), 4, 0),
    _Work("rows.max(axis=1)", "float32", lambda a, b, rows: rows.max(axis=1), 4, 0),
    _Work("a * b", "int32", lambda a, b, rows: a * b, 8, 4),
    _Work("a // b", "int32", lambda a, b, rows: a // b, 8, 4),
    _Work("a ^ b", "uint8", lambda a, b, rows: a ^ b, 2, 1),
    _Work("a.astype(float32)", "int32", lambda a, b, rows: a.astype(np.float32), 4, 4),
)
"""The first one is the copy that the others are compared with."""


def measure_arrays(log_count: int | None = None) -> tuple[DeviceInfo, list[ArrayTimes]]:
    """Time every operation, after its result was compared with NumPy's."""
    with PersistentVulkanBackend() as gpu:
        if log_count is None:
            log_count = LOG_COUNT_ON_CPU if gpu.device.kind == "cpu" else LOG_COUNT
        rng = np.random.default_rng(7)
        numbers = [rng.integers(1, 100, 1 << log_count) for _ in range(2)]
        rows: list[ArrayTimes] = []
        for work in WORKS:
            seconds = _time(gpu, work, numbers[0].astype(work.dtype), numbers[1].astype(work.dtype))
            rate = ((work.reads + work.writes) << log_count) / seconds
            share = rate / rows[0].bytes_per_second if rows else 1.0
            rows.append(
                ArrayTimes(work.name, work.dtype, 1 << log_count, seconds * 1e3, rate, share)
            )
        return gpu.device, rows


def _time(gpu: PersistentVulkanBackend, work: _Work, x: Array, y: Array) -> float:
    """The seconds of an operation in a graph that repeats it."""
    a, b = gpu.to_device(x), gpu.to_device(y)
    rows = a.reshape(-1, COLUMNS)
    expected = work.run(x, y, x.reshape(-1, COLUMNS))
    np.testing.assert_allclose(work.run(a, b, rows).numpy(), expected, rtol=1e-5)
    with gpu.graph(a, b) as graph:
        made = [work.run(a, b, rows) for _ in range(REPEATS)]
    (seconds,) = time_resident(gpu, [graph], BUDGET)
    del made
    return seconds / REPEATS
