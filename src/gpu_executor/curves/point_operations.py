"""Runs an operation on points in the place where their words are: on the host or on a device."""

from __future__ import annotations

from typing import Any

from gpu_executor.cpu.device_memory import CpuStorage
from gpu_executor.device_array import DeviceArray
from gpu_executor.ops import host_points, points
from gpu_executor.primes.curve_key import CurveKey


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
