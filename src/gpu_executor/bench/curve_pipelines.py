"""Compile times of the pipelines of a curve, in a process that finds none of them in a cache.

Software devices compile a pipeline when it first runs, so the first dispatch of each kernel is
timed beside later ones.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench.child_process import run_python
from gpu_executor.bench.first_call import DRIVER_CACHE_OFF
from gpu_executor.bench.measurement import Target
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.parameters import get_named
from gpu_executor.msm.plan import plan_msm
from gpu_executor.msm.stages import Msm
from gpu_executor.ops.points import make_points
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

AIM = 3.0
"""Seconds on a software device."""
POINTS = 2


def measure_compile_times(curves: Sequence[str]) -> Iterator[dict[str, float]]:
    """The seconds that each pipeline of a curve takes to compile, curve by curve."""
    environment = os.environ | DRIVER_CACHE_OFF | {"GPU_CACHE": "0"}
    for curve in curves:
        child = run_python(["-m", __name__, curve], environment=environment)
        child.check_returncode()
        yield json.loads(child.stdout)


def check_targets(curve: str, seconds: dict[str, float]) -> list[Target]:
    """Return the target on a software device: the pipeline that takes the longest."""
    slowest = max(seconds, key=lambda operation: seconds[operation])
    return [Target(f"{curve}, pipeline {slowest}", seconds[slowest], AIM, "s", at_most=True)]


def time_pipelines(gpu: PersistentVulkanBackend, curve: Curve) -> dict[str, float]:
    """The seconds by which the first dispatch of each kernel takes longer than a later one."""
    taken: dict[str, list[float]] = {}
    for _ in range(2):
        for operation, seconds in _time_dispatches(gpu, curve):
            taken.setdefault(operation, []).append(seconds)
    return {operation: first - min(later) for operation, (first, *later) in taken.items()}


def _time_dispatches(gpu: PersistentVulkanBackend, curve: Curve) -> Iterator[tuple[str, float]]:
    """Run all kernels of a curve; yields the operation and the seconds of each dispatch."""
    device = gpu._session.device_memory
    points = gpu.to_device(curve.generator * list(range(1, POINTS + 1)))
    assert isinstance(points.data, DeviceArray)
    plan = plan_msm(POINTS, 1, curve.order.bit_length(), curve.glv)
    msm, result = Msm(device, curve.key, plan), make_points(device, curve.key, 1)
    scalars = np.zeros((1, POINTS, -(-curve.order.bit_length() // 32)), np.uint32)
    scalars[..., 0] = 1
    entries = msm.sort(*msm.split_scalars(gpu.to_device(scalars), *msm.make_entries()))
    sums = msm.make_sums()

    def wait(begun: float) -> float:
        gpu.synchronize()
        return perf_counter() - begun

    gpu.synchronize()
    begun = perf_counter()
    table = msm.convert(points.data)
    yield "to_limb_form", wait(begun)
    begun = perf_counter()
    msm.accumulate(*entries, table, None, sums)
    yield "accumulate", wait(begun)
    msm.combine(sums)
    msm.join(msm.reduce(sums.buckets), result)
    for step in msm.take_steps():
        assert isinstance(step, Dispatch)
        name = step.kernel.name.removeprefix("curve_").removesuffix(f"_{curve.key.prime.name}")
        begun = perf_counter()
        device.submit([step])
        yield name, wait(begun)
    begun = perf_counter()
    doubled = points + points
    yield "add_terms", wait(begun)
    found = PointArray(curve, result).to_host().tolist() + doubled.to_host().tolist()
    if found != (curve.generator * [3, 2, 4]).tolist():
        raise AssertionError(f"{curve.name}: wrong sums")


def main() -> None:
    """Time the pipelines of the curve that the command line names, and print JSON."""
    with PersistentVulkanBackend() as gpu:
        print(json.dumps(time_pipelines(gpu, get_named(sys.argv[1]))))


if __name__ == "__main__":
    main()
