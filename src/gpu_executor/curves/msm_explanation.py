"""How a multi-scalar multiplication would run: the plans of `Curve.explain_msm`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from gpu_executor.cpu.device_memory import CpuMemory
from gpu_executor.curves.point_table import PointTable
from gpu_executor.device_array import Shape
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.msm.parts import MsmParts, plan_parts, plan_whole
from gpu_executor.ops.host_points import MAX_JOINT_POINTS, NAF_BITS, choose_window
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv


@dataclass(frozen=True, slots=True)
class HostMsmPlan:
    """How a multi-scalar multiplication runs on the host."""

    points: int
    batch: int
    scalar_bits: int

    @property
    def window_bits(self) -> int | None:
        """The bits of a window; None where the points share the doublings of one ladder."""
        if self.points <= MAX_JOINT_POINTS:
            return None
        return choose_window(self.points, self.scalar_bits)

    def __str__(self) -> str:
        batch = f"{self.batch:,} x " if self.batch > 1 else ""
        head = f"{batch}{self.points:,} points on the host, with Python integers"
        bits = self.window_bits
        if bits is None:
            return (
                f"{head}\n  - ladder: digits of {NAF_BITS} bits, and doublings that all points "
                f"share, for up to {MAX_JOINT_POINTS} points"
            )
        return (
            f"{head}\n  - window: {bits} bits, which needs the fewest additions: "
            f"{self.scalar_bits // bits + 1} windows of a scalar of {self.scalar_bits} bits, "
            f"{1 << bits - 1:,} buckets a window"
        )


def explain_points(
    curve: CurveKey,
    points: Shape,
    batch: Shape,
    scalar_bits: int,
    device: ArrayDevice | None,
    glv: Glv | None,
    *,
    copies_points: bool,
    copies_scalars: bool,
) -> MsmParts | HostMsmPlan:
    """The plan for points of a shape, for the leading axes of the sums, where `device` is None for
    the host. `glv` is given for points in the group of prime order. `copies_points` and
    `copies_scalars` say that they are on the host."""
    sums = _check_sizes(points[-1], batch)
    if device is None or isinstance(device, CpuMemory):
        return HostMsmPlan(points[-1], sums, scalar_bits)
    shares_points = math.prod(points[:-1]) == 1
    whole = plan_whole(
        device, curve, points[-1], sums, scalar_bits, glv, shares_points=shares_points
    )
    memory = device.free_memory
    return plan_parts(
        curve,
        whole,
        device,
        memory,
        copies_points=copies_points,
        copies_scalars=copies_scalars,
    )


def explain_table(table: PointTable, batch: Shape) -> MsmParts:
    """The plan for the points of a table."""
    device: ArrayDevice = table.data.storage.device
    whole = dataclasses.replace(table.plan, batch=_check_sizes(table.count, batch))
    return plan_parts(table.key, whole, device, device.free_memory, has_table=True)


def _check_sizes(points: int, batch: Shape) -> int:
    """The number of sums; refuses sums of no points and no sums."""
    sums = math.prod(batch)
    if not points or not sums:
        raise ArgumentShapeError(
            f"explain_msm: {sums} sums of {points} points need no plan; msm returns the point at "
            "infinity"
        )
    return sums
