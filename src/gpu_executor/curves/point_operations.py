"""Runs an operation on points in the place where their words are: on the host or on a device."""

from __future__ import annotations

from typing import Any

from gpu_executor.cpu.device_memory import CpuStorage
from gpu_executor.curves import host_points
from gpu_executor.device_array import DeviceArray
from gpu_executor.primes.curve_key import CurveKey


def compute(operation: str, curve: CurveKey, *arguments: Any) -> Any:
    """An operation of `host_points` by its name; the first argument is the words of points.

    Words of points in host memory give words in affine form, or an array of booleans. So do device
    arrays of the CPU backend, which are in host memory too; their results are device arrays.
    """
    function = getattr(host_points, operation)
    data = arguments[0]
    if not isinstance(data, DeviceArray):
        return function(curve, *arguments)
    if isinstance(data.storage, CpuStorage):
        return data.storage.device.compute(function, curve, *arguments)
    raise NotImplementedError(
        f"{operation} of points on a device is not there yet; points.to_host() copies them"
    )
