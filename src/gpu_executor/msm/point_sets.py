"""Multi-scalar multiplications of sets of points: many sums, each of the points of one set.

Each set has tables of multiples, so that the windows of a scalar share their buckets: a sum of few
points costs little more than its mixed additions.
"""

from __future__ import annotations

import dataclasses
import math

from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.msm.plan import ADDITION_COST, MsmPlan
from gpu_executor.msm.recording import run_msm
from gpu_executor.ops.points import (
    get_shape,
    make_points,
    shift_points,
    to_affine,
    to_limb_form,
)
from gpu_executor.primes.curve_key import CurveKey

MAX_WINDOW_BITS = 12
"""Sets have few points, so larger windows never take less time."""


def count_table_bytes(curve: CurveKey, points: int) -> int:
    """The bytes of one table of so many points."""
    return 2 * curve.degree * curve.prime.element_bytes * points


def plan_sets(
    curve: CurveKey, points: int, sets: int, info: DeviceInfo, memory: int | None = None
) -> MsmPlan:
    """Choose the windows of sums of so many points, and the tables of multiples within `memory`
    bytes; without it, a table for each window."""
    bits, plans = curve.order.bit_length(), []
    for window_bits in range(2, MAX_WINDOW_BITS + 1):
        plan = MsmPlan(points, 1, bits, window_bits, point_sets=sets)
        most = plan.windows
        if memory is not None:
            most = min(most, memory // count_table_bytes(curve, sets * points))
        rows = -(-plan.windows // most)
        plans.append(dataclasses.replace(plan, tables=-(-plan.windows // rows)))
    cost = 1 if info.kind == "cpu" else ADDITION_COST
    return min(plans, key=lambda plan: plan.estimate_cost(cost))


def make_multiples(curve: CurveKey, plan: MsmPlan, points: DeviceArray) -> DeviceArray:
    """The multiples of sets of points (sets, n) that a plan has tables of: affine points of words,
    (sets, tables, n)."""
    if plan.tables == 1:
        affine, (sets, count) = to_affine(curve, points), get_shape(curve, points)
        return affine.reshape((sets, 1, count, *affine.shape[2:]))
    shift = plan.table_windows * plan.window_bits
    multiples = to_affine(curve, shift_points(curve, points, plan.tables, shift))
    return multiples.transpose(1, 0, *range(2, multiples.ndim)).copy()


def to_tables(curve: CurveKey, multiples: DeviceArray) -> DeviceArray:
    """The tables of multiples (sets, tables, n), in limb form: (sets * tables * n)."""
    device: ArrayDevice = multiples.storage.device
    converted = to_limb_form(device, curve, multiples)
    return converted.reshape((math.prod(multiples.shape[:3]), *multiples.shape[3:]))


def sum_sets(
    curve: CurveKey, plan: MsmPlan, tables: DeviceArray, scalars: DeviceArray, sums_per_set: int = 1
) -> DeviceArray:
    """The sums of scalars (batch, n, words) with points: sum b has set b // sums_per_set % sets.
    XYZZ points of words, (batch)."""
    device: ArrayDevice = tables.storage.device
    batch = math.prod(scalars.shape) // (plan.points * scalars.shape[-1])
    own = dataclasses.replace(plan, batch=batch, sums_per_set=sums_per_set)
    result = make_points(device, curve, batch)
    records = not device.is_recording
    arrays = tables, scalars, lambda: scalars, result
    run_msm(device, curve, own, *arrays, has_table=True, records=records)
    return result
