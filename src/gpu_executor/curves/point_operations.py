"""Operations on points, which run in the place where the words of the points are.

Their arguments are a curve and words of points. The NumPy algorithms of `host_points` give words in
affine form, or arrays of booleans; on the CPU backend these become device arrays. The algorithms
made of steps give words in XYZZ form, but for `to_affine` and `neg`, or arrays of booleans on the
host.
"""

from __future__ import annotations

from typing import Any

from gpu_executor.curves import host_points
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import GpuError
from gpu_executor.ops import msm_runs, points
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.ops.operation import Operation, operation
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv

OnPoints = Operation[[CurveKey, ElementData], ElementData]
OnPairs = Operation[[CurveKey, ElementData, ElementData], ElementData]
"""The second operand is points, or a scalar for each point."""

add: OnPairs = Operation(host_points.add, points.add)
sub: OnPairs = Operation(host_points.sub, points.sub)
neg: OnPoints = Operation(host_points.neg, points.neg)
double: OnPoints = Operation(host_points.double, points.double)
mul: OnPairs = Operation(host_points.mul, points.mul)
sum_points: OnPoints = Operation(host_points.sum_points, points.sum_points)
to_affine: OnPoints = Operation(host_points.to_affine, points.to_affine)
equal: OnPairs = Operation(host_points.equal, points.equal)
is_infinity: OnPoints = Operation(host_points.is_infinity, points.is_infinity)
is_on_curve: OnPoints = Operation(host_points.is_on_curve, points.is_on_curve)


@operation
def msm(curve: CurveKey, data: Any, scalars: Any, batch: tuple[int, ...], glv: Glv | None) -> Any:
    """`host_points.msm`, computed where the points are. `glv` is given only for points in the group
    of prime order."""
    return host_points.msm(curve, data, scalars, batch)


@msm.by_steps
def _msm_by_steps(
    curve: CurveKey, data: Any, scalars: Any, batch: tuple[int, ...], glv: Glv | None
) -> Any:
    return msm_runs.broadcast_msm(data.storage.device, curve, data, scalars, batch, glv)


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
    if not device.runs_kernels:
        found = scalars.numpy() if isinstance(scalars, DeviceArray) else scalars
        return host_points.msm(curve, data, found, batch)
    if device.is_recording:
        raise GpuError(
            "msm: points of the host cannot stream through a device that records a graph; copy "
            "them to the device with gpu.to_device(points)"
        )
    sums = msm_runs.broadcast_msm(device, curve, data, scalars, batch, glv)
    return points.to_affine(curve, sums).numpy()
