"""Matrix products and reductions on device-resident arrays, beside the roofline of the
same run.

The roofline of a product of large matrices is the rate of f32 multiply-adds in registers, that of
all others the bandwidth of a copy by a kernel. Both are measured rates: a call on arrays that fit
into caches can exceed them. Each result is checked before it is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench.kernel_timing import time_calls
from gpu_executor.bench.measurement import Measurement, Target, is_h200
from gpu_executor.calls.call import Array
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels import load
from gpu_executor.kernels.catalogue import (
    COPY_UNIT_BYTES,
    FMA_CHAINS,
    copy_kernel,
    fma_chain_kernel,
)
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

SAMPLE = 500
"""Elements of each result that are checked."""
MEMORY, ARITHMETIC = "memory", "f32 arithmetic"
"""The two parts of the roofline."""


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """The sizes of the calls that are measured."""

    sides: tuple[int, ...]
    """Of square matrices."""
    long: int
    """Rows of a matrix that is multiplied by a vector, and columns of another one."""
    depth: int
    """Columns of the former and rows of the latter."""
    reduced: int
    """Elements of a reduction, and four-byte words of the copy."""
    chains: int
    length: int
    """Elements of the chains of multiply-adds, and multiply-adds in each chain."""


GPU_SIZES = KernelSizes((4096, 1024), 100_000, 200, 1 << 26, 1 << 22, 1024)
CPU_SIZES = KernelSizes((256, 64), 10_000, 20, 1 << 20, 1 << 12, 64)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The time of one call, and the time of the same work at the rate of the roofline."""

    kernel: str
    shapes: tuple[Shape, ...]
    ms: float
    limit: str
    """The part of the roofline that takes longer for this work."""
    roofline_ms: float
    of_roofline: float
    """The speed relative to that of the roofline."""


@dataclass(frozen=True)
class KernelMeasurement(Measurement):
    """The rates of the roofline and the rows of all calls."""

    f32_flops: float
    """Floating-point operations per second; a multiply-add is two."""
    copy_bytes_per_second: float
    """Bytes that are read and written."""
    rows: Sequence[KernelRow]


def choose_sizes(device: DeviceInfo) -> KernelSizes:
    """Choose sizes at which the device reaches its sustained rate."""
    return CPU_SIZES if device.kind == "cpu" else GPU_SIZES


def measure_kernels(
    gpu: PersistentVulkanBackend, sizes: KernelSizes, repeats: int = 10
) -> KernelMeasurement:
    """Check and time every call, alternating with the roofline."""
    memory = gpu._session.device_memory
    factors = memory.put(np.full(sizes.chains, 0.5, np.float32))
    copied = memory.empty((sizes.reduced // 4, 2), np.dtype(np.uint64))
    roofline: list[tuple[Kernel, Sequence[DeviceArray]]] = [
        (fma_chain_kernel(sizes.length), [factors]),
        (copy_kernel(), [copied]),
    ]
    calls = [_prepare_call(gpu, name, shapes) for name, shapes in _list_calls(sizes)]
    chains, copy, *taken = time_calls(gpu._session, [*roofline, *calls], repeats=repeats)
    flops = 2 * sizes.chains * FMA_CHAINS * sizes.length / chains
    bandwidth = 2 * len(copied) * COPY_UNIT_BYTES / copy
    rows = []
    for (kernel, arrays), seconds in zip(calls, taken, strict=True):
        limit, least = _find_limit(arrays, flops, bandwidth)
        rows.append(
            KernelRow(
                kernel.name,
                tuple(array.shape for array in arrays),
                seconds * 1e3,
                limit,
                least * 1e3,
                least / seconds,
            )
        )
    targets = check_targets(rows, gpu.device)
    return KernelMeasurement(gpu.device, flops, bandwidth, rows, targets=targets)


def check_targets(rows: Sequence[KernelRow], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    least = {"matmul_f32": 0.5, "reduce_sum_f32": 0.9}
    first = {row.kernel: row for row in reversed(rows)}
    return [
        Target(
            f"{name} {describe_shapes(first[name].shapes)}, of its roofline",
            row.of_roofline,
            aim,
            "x",
        )
        for name, aim in least.items()
        if (row := first.get(name)) is not None
    ]


def _list_calls(sizes: KernelSizes) -> list[tuple[str, tuple[Shape, ...]]]:
    squares = [((side, side), (side, side)) for side in sizes.sides]
    tall = (sizes.long, sizes.depth), (sizes.depth, 1)
    wide = (1, sizes.depth), (sizes.depth, sizes.long)
    products: list[tuple[Shape, ...]] = [*squares, tall, wide]
    return [
        *(("matmul_f32", shapes) for shapes in products),
        ("matmul_u32", squares[0]),
        *((f"reduce_{name}", ((sizes.reduced,),)) for name in ("sum_f32", "max_f32", "sum_u32")),
    ]


def _prepare_call(
    gpu: PersistentVulkanBackend, name: str, shapes: Sequence[Shape]
) -> tuple[Kernel, list[DeviceArray]]:
    """Return a kernel and its inputs on the device, after a check of a sample of the result."""
    kernel, draw = load(name), np.random.default_rng(1)
    # Small integers: f32 products are exact, whatever the order of their sums.
    arrays = [draw.integers(0, 4, shape).astype(kernel.types[0].dtype) for shape in shapes]
    on_device = [gpu.to_device(array) for array in arrays]
    result: Array = np.asarray(gpu.run(kernel, *on_device)).reshape(-1)
    at = draw.integers(0, result.size, min(SAMPLE, result.size))
    assert kernel.reference_at is not None
    if not np.array_equal(result[at], kernel.reference_at(at, *arrays)):
        raise AssertionError(f"{name} {describe_shapes(shapes)}: wrong results")
    return kernel, on_device


def _find_limit(arrays: Sequence[DeviceArray], flops: float, bandwidth: float) -> tuple[str, float]:
    """Return the slower of arithmetic and memory, and its seconds."""
    moved, operations = sum(array.nbytes for array in arrays), 0
    if len(arrays) == 2:
        (m, k), (_, n) = (array.shape for array in arrays)
        moved, operations = moved + 4 * m * n, 2 * m * n * k
    seconds, name = max((moved / bandwidth, MEMORY), (operations / flops, ARITHMETIC))
    return name, seconds


def describe_shapes(shapes: Sequence[Shape]) -> str:
    """Return shapes as in 100,000x200 @ 200x1."""
    return " @ ".join("x".join(f"{extent:,}" for extent in shape) for shape in shapes)
