"""Runs MSMs on a device, in the parts that `parts.py` plans.

A part is one run of the stages. The results of the parts of the points are added. An interrupt
(Ctrl-C) ends a call between two parts. Scalars may be secret (`ArrayDevice.secret_arrays`); points
are not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.msm.parts import (
    PARTS_IN_FLIGHT,
    MsmParts,
    plan_parts,
    plan_whole,
    run_dry,
)
from gpu_executor.msm.plan import MsmPlan
from gpu_executor.msm.prepared import submit_msm, submit_sliced_msm
from gpu_executor.msm.residues import ResidueMsm
from gpu_executor.ops.elementwise import ElementData, with_f64_limbs
from gpu_executor.ops.points import (
    get_shape,
    make_infinity,
    make_points,
    sum_points,
    to_affine,
)
from gpu_executor.ops.scalars import count_bits, get_columns
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv
from gpu_executor.steps.dry_device import DryDevice

Range = tuple[slice, slice]
"""MSMs of a batch, and points of each MSM."""
LoadPoints = Callable[[Range], DeviceArray]
"""Returns the points of a range on the device."""


def _submit_parts(
    device: ArrayDevice,
    curve: CurveKey,
    parts: MsmParts,
    load_points: LoadPoints,
    scalars: ElementData,
    *,
    has_table: bool,
) -> list[tuple[Range, DeviceArray]]:
    """Submit one part after the other; returns the range and the result of each.

    With more than `PARTS_IN_FLIGHT` parts this waits for the device, except while a graph is
    recorded. An interrupt ends it, and the parts that were submitted complete.
    """
    results: list[tuple[Range, DeviceArray]] = []
    records = parts.records and _may_record(device)
    for points in parts.point_ranges:
        loaded: DeviceArray | None = None
        for msms in parts.batch_ranges:
            if len(results) >= PARTS_IN_FLIGHT and not device.is_recording:
                device.wait_for(results[-PARTS_IN_FLIGHT][1])
            if loaded is None or not parts.part.shares_points:
                with device.secret_arrays(False):
                    loaded = load_points((msms, points))
            plan = parts.plan_range(msms, points)
            result = make_points(device, curve, plan.batch)
            if parts.slices is not None and records:
                load_slice = functools.partial(_load_slice, device, scalars)
                submit_sliced_msm(device, curve, plan, loaded, load_slice, parts.slices, result)
            else:
                load = functools.partial(_load, device, scalars, (msms, points))
                arrays = loaded, _select(scalars, (msms, points)), load, result
                submit_msm(device, curve, plan, *arrays, has_table=has_table, records=records)
            results.append(((msms, points), result))
    return results


def _may_record(device: ArrayDevice) -> bool:
    """Whether the arrays and commands of a call may be cached for the next one. Those arrays have
    copies of the scalars, so not if these are secret."""
    return not device.is_recording and not device.makes_secrets


def _load_slice(device: ArrayDevice, scalars: ElementData, points: slice) -> DeviceArray:
    """The scalars of some points of a call in one part."""
    return _load(device, scalars, (slice(0, 1), points))


def _load(
    device: ArrayDevice, data: ElementData, of: Range, *, shares: bool = False
) -> DeviceArray:
    """A range of an array of either place, on the device; with `shares`, all MSMs have the same
    elements."""
    found = _select(data, of[1:] if shares else of)
    if isinstance(found, DeviceArray):
        return found
    is_first = not of[0].start and not of[1].start
    return device.put_ahead(found, waits=not is_first)


def _select(data: ElementData, ranges: tuple[slice, ...]) -> ElementData:
    """The ranges of the first axes; the array itself if they are whole, which takes less time."""
    is_whole = all(
        each == slice(0, length) for each, length in zip(ranges, data.shape, strict=False)
    )
    return data if is_whole else data[ranges]


def _join_parts(
    device: ArrayDevice,
    curve: CurveKey,
    parts: MsmParts,
    results: Sequence[tuple[Range, DeviceArray]],
) -> DeviceArray:
    """The MSMs of the batch from the results of its parts."""
    if len(results) == 1:
        return results[0][1]
    columns = {points.start: number for number, points in enumerate(parts.point_ranges)}
    joined = make_points(device, curve, parts.batch, len(columns))
    for (msms, points), result in results:
        device.assign(joined[msms, columns[points.start]], result)
    return sum_points(curve, joined) if len(columns) > 1 else joined.reshape(joined[:, 0].shape)


def _run_within_memory(
    device: ArrayDevice,
    curve: CurveKey,
    whole: MsmPlan,
    load_points: LoadPoints,
    scalars: ElementData,
    *,
    copies_points: bool = False,
    copies_scalars: bool = False,
    has_table: bool = False,
) -> DeviceArray:
    """The MSMs of the batch, as XYZZ points of words: plan the parts and run them, in smaller parts
    if the memory for a part is not there."""
    call = curve, whole, copies_points, copies_scalars, has_table
    known = device.cache(("msm parts", *call), _KnownParts)
    parts, free_memory = known.parts, -1
    while True:
        if parts is None:
            free_memory = device.free_memory if free_memory < 0 else free_memory
            parts = plan_parts(
                curve,
                whole,
                device,
                free_memory,
                copies_points=copies_points,
                copies_scalars=copies_scalars,
                has_table=has_table,
            )
        known.parts = parts if parts.count == 1 and parts.records else None
        if not known.is_compiled:
            known.is_compiled = True
            device.compile_ahead(list_dispatches(device, curve, parts, has_table=has_table))
        device.keep_memory(parts.nbytes)
        try:
            results = _submit_parts(device, curve, parts, load_points, scalars, has_table=has_table)
            return _join_parts(device, curve, parts, results)
        except KeyboardInterrupt as error:
            # An interactive session keeps the traceback, and with its frames the arrays of parts.
            traceback.clear_frames(error.__traceback__)
            raise
        except OutOfMemoryError:
            known.parts = None
            if device.is_recording or parts.is_smallest:
                raise
            most = device.free_memory if free_memory < 0 else free_memory
            free_memory, parts = min(most, parts.nbytes) // 2, None


@dataclass(slots=True)
class _KnownParts:
    """The parts of the calls of a plan whose arrays and commands are kept: such a call needs no new
    plan, whatever memory is free. None for other calls."""

    parts: MsmParts | None = None
    is_compiled: bool = False
    """Whether the kernels of the plan are being compiled."""


def list_dispatches(
    device: ArrayDevice, curve: CurveKey, parts: MsmParts, *, has_table: bool
) -> list[Dispatch]:
    """The dispatches of a part, those of its last stages too. What a device measures is not asked
    for: the plan has its rounds already, and only large primes have f64 limbs."""
    dry = DryDevice(device.info, f64_limbs=with_f64_limbs(device, curve.prime))
    result = run_dry(dry, curve, parts.part, has_table=has_table, slices=parts.slices)
    to_affine(curve, result)
    return dry.dispatches


def run_tables(
    curve: CurveKey, plan: MsmPlan, tables: DeviceArray, scalars: ElementData, batch: Shape
) -> DeviceArray:
    """The MSMs over the last axis of scalars (..., n, words) below the order, with tables of points
    in limb form, one table behind the other: XYZZ points of words."""
    device: ArrayDevice = tables.storage.device
    count = math.prod(batch)
    if not count:
        return make_infinity(device, curve, *batch)
    whole = dataclasses.replace(plan, batch=count)

    def load_points(of: Range) -> DeviceArray:
        points = of[1]
        if points == slice(0, plan.points):
            return tables
        axes = tables.shape[1:]
        return tables.reshape((plan.tables, plan.points, *axes))[:, points].reshape((-1, *axes))

    rows = scalars.reshape((count, plan.points, -1))
    found = _run_within_memory(device, curve, whole, load_points, rows, has_table=True)
    return found.reshape(*batch, *found.shape[1:])


def run_sets(
    curve: CurveKey, plan: MsmPlan, tables: DeviceArray, scalars: DeviceArray, msms_per_set: int = 1
) -> DeviceArray:
    """The MSMs of scalars (batch, n, words) and sets of points with tables in limb form: MSM b has
    set b // msms_per_set % sets. XYZZ points of words, (batch)."""
    device: ArrayDevice = tables.storage.device
    batch = math.prod(scalars.shape) // (plan.points * scalars.shape[-1])
    own = dataclasses.replace(plan, batch=batch, msms_per_set=msms_per_set)
    result = make_points(device, curve, batch)
    records = _may_record(device)
    arrays = tables, scalars, lambda: scalars, result
    submit_msm(device, curve, own, *arrays, has_table=True, records=records)
    return result


def run_rows(
    device: ArrayDevice,
    curve: CurveKey,
    points: ElementData,
    scalars: ElementData,
    scalar_bits: int,
    glv: Glv | None = None,
) -> DeviceArray:
    """The MSM of scalars[b, i] and points[i] for each b, as XYZZ points of words on the device.

    Points and scalars are on the device or on the host. `points` have shape (n, coordinates, ...).
    With shape (batch, n, coordinates, ...) every MSM has points of its own: it is that of
    scalars[b, i] and points[b, i]. `scalars` have shape (batch, n, words), or (batch, n) if they
    are one column, and are below 2^scalar_bits. `glv` is given only for points in the group of
    prime order.
    """
    batch, count = scalars.shape[:2]
    shares_points = len(get_shape(curve, points)) == 1
    whole = plan_whole(device, curve, count, batch, scalar_bits, glv, shares_points=shares_points)
    if whole.in_residues:
        return _run_in_residues(device, curve, whole, points, scalars)

    def load_points(of: Range) -> DeviceArray:
        return to_affine(curve, _load(device, points, of, shares=shares_points))

    return _run_within_memory(
        device,
        curve,
        whole,
        load_points,
        scalars,
        copies_points=not isinstance(points, DeviceArray),
        copies_scalars=not isinstance(scalars, DeviceArray),
    )


def _run_in_residues(
    device: ArrayDevice,
    curve: CurveKey,
    plan: MsmPlan,
    points: ElementData,
    scalars: ElementData,
) -> DeviceArray:
    """The MSMs of few points: one submission."""
    with device.secret_arrays(False):
        loaded = points if isinstance(points, DeviceArray) else device.put_ahead(points)
        loaded = to_affine(curve, loaded)
    factors = scalars if isinstance(scalars, DeviceArray) else device.put_ahead(scalars)
    result, made = make_points(device, curve, plan.batch), None
    if _may_record(device):
        made = device.cache(("residue msm", curve, plan), lambda: ResidueMsm(device, curve, plan))
    (made or ResidueMsm(device, curve, plan)).run(loaded, factors, result)
    return result


def run_on_device(
    device: ArrayDevice,
    curve: CurveKey,
    points: ElementData,
    scalars: ElementData,
    batch: Shape,
    glv: Glv | None = None,
) -> DeviceArray:
    """The MSMs over the last axis of points (..., n) in either form: XYZZ points of words. The
    scalars are words (..., n, words of a scalar) below the order. Both are on the host or on the
    device. The leading axes of both are broadcast to `batch`. `glv` is given only for points in the
    group of prime order."""
    *leading, count = get_shape(curve, points)
    msms = math.prod(batch)
    if not msms or not count:
        return make_infinity(device, curve, *batch)
    axes = points.shape[len(leading) :]
    if math.prod(leading) == 1:
        own = points.reshape(axes)
    else:
        own = _broadcast(points, (*batch, *axes)).reshape((msms, *axes))
    axes = (count, *get_columns(curve, scalars))
    factors = _broadcast(scalars, (*batch, *axes)).reshape((msms, *axes))
    result = run_rows(device, curve, own, factors, count_bits(curve, scalars, glv), glv)
    return result.reshape((*batch, *result.shape[1:]))


def _broadcast(data: ElementData, shape: Shape) -> ElementData:
    if data.shape == shape:
        return data
    return (
        data.broadcast_to(shape) if isinstance(data, DeviceArray) else np.broadcast_to(data, shape)
    )
