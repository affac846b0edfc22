"""The same operations by Vulkan and by WebGPU, on one device and driver.

The arrays are in device memory. Each operation runs several times in a row, and the host waits once
for all of them, by turns with Vulkan and with WebGPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.bench.measurement import Target
from gpu_executor.curves import BN254_G1
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import NoDeviceError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.webgpu.wgpu_executor import WgpuExecutor

LENGTH, LONG = 1 << 16, 1 << 20
"""Elements of products and transforms, and of a transform that GPUs run too."""
POINTS = 1 << 8
REPEATS, REPEATS_ON_CPU = 20, 1
ROUNDS = 7
MOST, MOST_LONG = 1.5, 2.0
"""Targets: the time of WebGPU over that of Vulkan, for `LENGTH` elements on a software driver and
for `LONG` on a GPU, which needs less time for the short ones than the host for their calls."""


@dataclass(frozen=True, slots=True)
class InterfaceTimes:
    """The times of one operation, and their ratio's target."""

    operation: str
    vulkan_ms: float
    webgpu_ms: float
    target: float | None

    @property
    def ratio(self) -> float:
        """The time of WebGPU over that of Vulkan."""
        return self.webgpu_ms / self.vulkan_ms


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    prepare: Callable[[Backend], Callable[[], object]]
    target: float | None = None


def measure_interfaces() -> tuple[DeviceInfo, list[InterfaceTimes]]:
    """Open the best Vulkan device by both interfaces and time every operation."""
    with PersistentVulkanBackend() as vulkan, _open_by_webgpu(vulkan.device) as webgpu:
        repeats = REPEATS_ON_CPU if vulkan.device.kind == "cpu" else REPEATS
        rows = []
        for operation in _list_operations(vulkan.device):
            both = [(each, operation.prepare(each)) for each in (vulkan, webgpu)]
            best = [float("inf")] * len(both)
            for _ in range(ROUNDS):
                for number, (backend, run) in enumerate(both):
                    best[number] = min(best[number], _time(backend, run, repeats))
            rows.append(InterfaceTimes(operation.name, best[0], best[1], operation.target))
        return vulkan.device, rows


def check_targets(rows: list[InterfaceTimes]) -> list[Target]:
    """Return the ratios that have targets."""
    return [
        Target(f"{row.operation}, WebGPU / Vulkan", row.ratio, row.target, "x", at_most=True)
        for row in rows
        if row.target is not None
    ]


def _open_by_webgpu(device: DeviceInfo) -> WgpuExecutor:
    executor = WgpuExecutor(device.name)
    if executor.stats().backend != "Vulkan":
        executor.close()
        raise NoDeviceError(f"WebGPU does not open {device.name} with its Vulkan driver")
    return executor


def _list_operations(device: DeviceInfo) -> list[_Operation]:
    most = MOST if device.kind == "cpu" else None
    found = [_Operation(f"products of Fr, {LENGTH:,}", _prepare_product, most)]
    for name, field in (("Fr", BLS12_381_FR), ("Goldilocks", GOLDILOCKS), ("BabyBear", BABYBEAR)):
        found.append(_make_transform(name, field, LENGTH, most))
    if device.kind != "cpu":
        found.append(_make_transform("Fr", BLS12_381_FR, LONG, MOST_LONG))
    found.append(_Operation(f"MSM of BN254 G1, {POINTS}", _prepare_msm))
    return found


def _prepare_product(backend: Backend) -> Callable[[], object]:
    x = backend.to_device(BLS12_381_FR.arange(LENGTH))
    if x[:5].tolist() != list(range(5)) or (x * x)[:5].tolist() != [0, 1, 4, 9, 16]:
        raise AssertionError("products on the device are wrong")
    return lambda: x * x


def _make_transform(name: str, field: Field, length: int, target: float | None) -> _Operation:
    def prepare(backend: Backend) -> Callable[[], object]:
        x = backend.to_device(field.arange(length))
        if not (field.intt(field.ntt(x)) == x).all():
            raise AssertionError("transforms on the device are wrong")
        return lambda: field.ntt(x)

    return _Operation(f"transform of {name}, {length:,}", prepare, target)


def _prepare_msm(backend: Backend) -> Callable[[], object]:
    scalars = np.arange(1, POINTS + 1, dtype=np.uint32)
    points = backend.to_device(BN254_G1.generator * scalars)
    expected = BN254_G1.generator * sum(each * each for each in range(1, POINTS + 1))
    if BN254_G1.msm(points, scalars).to_host() != expected:
        raise AssertionError("the MSM on the device is wrong")
    return lambda: BN254_G1.msm(points, scalars)


def _time(backend: Backend, run: Callable[[], object], repeats: int) -> float:
    """Return the milliseconds of one operation, the mean of several."""
    backend.synchronize()
    begun = perf_counter()
    for _ in range(repeats):
        run()
    backend.synchronize()
    return (perf_counter() - begun) / repeats * 1e3
