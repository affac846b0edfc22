"""Runs an operation on points in the place where their words are: on the host or on a device."""

from __future__ import annotations

from typing import Any

from gpu_executor.cpu.device_memory import CpuMemory, CpuStorage
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import GpuError
from gpu_executor.msm import run
from gpu_executor.ops import host_points, points
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv


def compute(operation: str, curve: CurveKey, *arguments: Any) -> Any:
    """An operation of `host_points` by its name; the first argument is the words of points.

    Words of points in host memory give words in affine form, or an array of booleans. So do device
    arrays of the CPU backend, which are in host memory too; their results are device arrays. Words
    of points on another device give words in XYZZ form on that device, but for `to_affine` and
    `neg`, or an array of booleans on the host.
    """
    data = arguments[0]
    if not isinstance(data, DeviceArray):
        return getattr(host_points, operation)(curve, *arguments)
    if isinstance(data.storage, CpuStorage):
        return data.storage.device.compute(getattr(host_points, operation), curve, *arguments)
    return getattr(points, operation)(curve, *arguments)


def msm(curve: CurveKey, data: Any, scalars: Any, batch: tuple[int, ...], glv: Glv | None) -> Any:
    """`host_points.msm`, computed where the points are. `glv` is given only for points in the group
    of prime order."""
    if isinstance(data, DeviceArray) and not isinstance(data.storage, CpuStorage):
        return run.broadcast_msm(data.storage.device, curve, data, scalars, batch, glv)
    return compute("msm", curve, data, scalars, batch)


def stream_msm(
    device: ArrayDevice,
    curve: CurveKey,
    data: Any,
    scalars: Any,
    batch: tuple[int, ...],
    glv: Glv | None,
) -> Any:
    """`msm` of points in host memory, computed on a device: words in host memory, in affine form.
    Scalars may be on that device."""
    if isinstance(device, CpuMemory):
        found = scalars.numpy() if isinstance(scalars, DeviceArray) else scalars
        return host_points.msm(curve, data, found, batch)
    if device.is_recording:
        raise GpuError(
            "msm: points of the host cannot stream through a device that records a graph; copy "
            "them to the device with gpu.to_device(points)"
        )
    sums = run.broadcast_msm(device, curve, data, scalars, batch, glv)
    return points.to_affine(curve, sums).numpy()
