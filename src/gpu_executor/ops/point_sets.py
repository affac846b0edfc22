"""Multi-scalar multiplications of sets of points: many sums, each of the points of one set.

Each set has tables of multiples, so that the windows of a scalar share their buckets: a sum of few
points costs little more than its mixed additions.
"""

from __future__ import annotations

import dataclasses
import math

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.ops.msm import ADDITION_COST, MsmPlan, run_msm
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


def plan_sets(curve: CurveKey, points: int, sets: int, *, has_tables: bool) -> MsmPlan:
    """Choose the windows of sums of so many points. With `has_tables` there is a table of multiples
    for each window, otherwise the points alone."""
    bits, plans = curve.order.bit_length(), []
    for window_bits in range(2, MAX_WINDOW_BITS + 1):
        plan = MsmPlan(points, 1, bits, window_bits, point_sets=sets)
        plans.append(dataclasses.replace(plan, tables=plan.windows) if has_tables else plan)
    cost = ADDITION_COST if has_tables else 1
    return min(plans, key=lambda plan: plan.estimate_cost(cost))


def make_set_tables(curve: CurveKey, plan: MsmPlan, points: DeviceArray) -> DeviceArray:
    """The tables of sets of points (sets, n), in limb form: (sets * tables * n)."""
    device: ArrayDevice = points.storage.device
    sets, count = get_shape(curve, points)
    shift = plan.table_windows * plan.window_bits
    ladder = shift_points(curve, points, plan.tables, shift)
    tables = to_limb_form(device, curve, to_affine(curve, ladder))
    ordered = tables.transpose(1, 0, *range(2, tables.ndim)).copy()
    return ordered.reshape((sets * plan.tables * count, *tables.shape[3:]))


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
    run_msm(device, curve, own, tables, scalars, result, records=records)
    return result
