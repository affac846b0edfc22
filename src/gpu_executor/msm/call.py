"""An MSM as its caller gives it: where it runs, its scalars and its batch.

`run_msm` computes it in the place of its points, or on the device that they stream through.
`explain_msm` says how it would. Both have a counterpart for the points of a table.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.arguments import describe, parse_count
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.fields import FieldArray
from gpu_executor.fields.layout_array import LayoutArray
from gpu_executor.msm.host import HostMsmPlan, run_on_host
from gpu_executor.msm.parts import MsmParts, plan_parts, plan_whole
from gpu_executor.msm.plan import MsmPlan, plan_residues
from gpu_executor.msm.run import list_dispatches, run_on_device, run_tables
from gpu_executor.msm.scalars import (
    CurveGroup,
    load_scalars,
    make_shape_error,
    to_scalar_words,
)
from gpu_executor.msm.tables import PointTable
from gpu_executor.ops import elementwise
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.ops.operation import operation
from gpu_executor.ops.points import to_affine
from gpu_executor.ops.scalars import count_bits
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv

if TYPE_CHECKING:
    from gpu_executor.backend import Backend


def run_msm(
    curve: CurveGroup,
    points: LayoutArray,
    scalars: Any,
    device: Backend | None,
    glv: Glv | None,
) -> ElementData:
    """`Curve.msm` of points: words in their place. `glv` is given only for points in the group of
    prime order."""
    target, shape = _find_target(curve, points, device), points.shape
    factors = load_scalars(curve.scalar_field, target or points.place, scalars)
    batch = _find_batch(curve, shape, scalars, factors)
    if target is None:
        return _run_in_place(curve.key, points.data, factors, batch, glv)
    assert isinstance(points.data, np.ndarray)
    return _stream(target, curve.key, points.data, factors, batch, glv)


def run_table_msm(
    curve: CurveGroup,
    table: PointTable,
    scalars: Any,
    device: Backend | None,
    glv: Glv | None,
) -> DeviceArray:
    """`Curve.msm` of the points of a table: words on its device. `glv` is given only for points in
    the group of prime order."""
    _find_target(curve, table, device)
    factors, batch = _load_table_scalars(curve, table, scalars)
    if table.points is not None and _plan_without_table(table, factors, batch, glv) is not None:
        return run_on_device(table.device, curve.key, table.points, factors, batch, glv)
    return run_tables(curve.key, table.plan, table.data, factors, batch)


def _plan_without_table(
    table: PointTable, factors: ElementData | None, batch: Shape, glv: Glv | None
) -> MsmPlan | None:
    """The plan of a table's points in residues; None where its tables are used. Without scalars
    they are as long as the order."""
    if table.points is None:
        return None
    return plan_residues(
        table.key,
        table.count,
        math.prod(batch),
        table.key.order.bit_length() if factors is None else count_bits(table.key, factors, glv),
        glv,
        table.device.info,
        shares_points=True,
        has_table=True,
    )


@operation
def _run_in_place(
    curve: CurveKey, points: Any, scalars: Any, batch: Shape, _glv: Glv | None
) -> ElementData:
    """The MSMs where the points are: words in affine form on the host, else in XYZZ form."""
    return run_on_host(curve, points, scalars, batch)


@_run_in_place.by_steps
def _run_by_steps(
    curve: CurveKey, points: DeviceArray, scalars: ElementData, batch: Shape, glv: Glv | None
) -> DeviceArray:
    return run_on_device(points.storage.device, curve, points, scalars, batch, glv)


def _stream(
    device: ArrayDevice,
    curve: CurveKey,
    points: Words,
    scalars: ElementData,
    batch: Shape,
    glv: Glv | None,
) -> Words:
    """The MSMs of points in host memory, computed on a device: words in host memory, in affine
    form. Scalars may be on that device."""
    if not device.runs_kernels:
        return run_on_host(curve, points, np.asarray(scalars), batch)
    if device.is_recording:
        raise GpuError(
            "msm: points of the host cannot stream through a device that records a graph; copy "
            "them to the device with gpu.to_device(points)"
        )
    return to_affine(curve, run_on_device(device, curve, points, scalars, batch, glv)).numpy()


def explain_msm(
    curve: CurveGroup,
    points: LayoutArray | int,
    scalars: Any,
    batch: int,
    device: Backend | None,
    glv: Glv | None,
) -> MsmParts | HostMsmPlan:
    """`Curve.explain_msm` of points, or of a number of points on the device."""
    msms = _parse_batch(curve, scalars, batch)
    target = _find_target(curve, points, device)
    if isinstance(points, LayoutArray):
        shape, place, copies_points = points.shape, target or points.place, target is not None
    else:
        shape = (parse_count("explain_msm: points", points),)
        place, copies_points = target, False
    if not shape:
        raise ArgumentShapeError(
            f"{curve.name}: explain_msm takes points with an axis, and these have none"
        )
    if scalars is None:
        leading = [shape[:-1], msms if batch != 1 else ()]
        msms = elementwise.find_common_shape(curve.scalar_field.prime, leading)
        bits, copies_scalars = curve.key.order.bit_length(), True
    else:
        factors = load_scalars(curve.scalar_field, place, scalars)
        msms, bits = _find_batch(curve, shape, scalars, factors), count_bits(curve.key, factors)
        copies_scalars = not isinstance(factors, DeviceArray)
    count = _check_sizes(shape[-1], msms)
    if place is None or not place.runs_kernels:
        return HostMsmPlan(shape[-1], count, bits)
    shares_points = math.prod(shape[:-1]) == 1
    whole = plan_whole(place, curve.key, shape[-1], count, bits, glv, shares_points=shares_points)
    parts = plan_parts(
        curve.key,
        whole,
        place,
        place.free_memory,
        copies_points=copies_points,
        copies_scalars=copies_scalars,
    )
    return _explain_pipelines(place, curve.key, parts, has_table=False)


def explain_table_msm(
    curve: CurveGroup,
    table: PointTable,
    scalars: Any,
    batch: int,
    device: Backend | None,
    glv: Glv | None,
) -> MsmParts:
    """`Curve.explain_msm` of the points of a table."""
    factors, msms = None, _parse_batch(curve, scalars, batch)
    _find_target(curve, table, device)
    if scalars is not None:
        factors, msms = _load_table_scalars(curve, table, scalars)
    count = _check_sizes(table.count, msms)
    place, alone = table.device, _plan_without_table(table, factors, msms, glv)
    if alone is not None:
        parts = plan_parts(table.key, alone, place, place.free_memory)
        reason = "table: not used, because so few points take less time without it"
        parts = dataclasses.replace(parts, reasons=(*parts.reasons, reason))
        return _explain_pipelines(place, table.key, parts, has_table=False)
    whole = dataclasses.replace(table.plan, batch=count)
    parts = plan_parts(table.key, whole, place, place.free_memory, has_table=True)
    return _explain_pipelines(place, table.key, parts, has_table=True)


def _explain_pipelines(
    device: ArrayDevice, curve: CurveKey, parts: MsmParts, *, has_table: bool
) -> MsmParts:
    """The parts, with the form of their pipelines as the last reason where a device has several."""
    forms = device.describe_pipelines(list_dispatches(device, curve, parts, has_table=has_table))
    if forms is None:
        return parts
    return dataclasses.replace(parts, reasons=(*parts.reasons, f"pipelines: {forms}"))


def _parse_batch(curve: CurveGroup, scalars: Any, batch: int) -> Shape:
    """The MSMs of a batch without scalars, which have their own leading axes."""
    if scalars is not None and batch != 1:
        raise ArgumentTypeError(
            f"{curve.name}: explain_msm takes batch= or scalars, whose leading axes are a batch"
        )
    return (parse_count("explain_msm: batch", batch),)


def _check_sizes(points: int, batch: Shape) -> int:
    """The number of MSMs; refuses MSMs of no points, and none."""
    count = math.prod(batch)
    if not points or not count:
        raise ArgumentShapeError(
            f"explain_msm: {count} sums of {points} points need no plan; msm returns the point at "
            "infinity"
        )
    return count


def _find_target(curve: CurveGroup, points: Any, device: Backend | None) -> ArrayDevice | None:
    """The device that points of the host are copied to; None if they stay where they are."""
    if device is None:
        return None
    # Loaded already by whoever has a device.
    from gpu_executor.backend import Backend, require_array_device

    if not isinstance(device, Backend):
        raise ArgumentTypeError(
            f"{curve.name}: device= is {describe(device)}; it takes an executor or a backend"
        )
    if isinstance(points, PointTable) or (isinstance(points, LayoutArray) and points.on_device):
        raise ArgumentTypeError(
            f"{curve.name}: device= is for points on the host; these are on a device, which "
            "computes with them: leave device= out"
        )
    return require_array_device(device)


def _find_batch(curve: CurveGroup, shape: Shape, scalars: Any, factors: ElementData) -> Shape:
    """The leading axes of points and of scalars, broadcast; `factors` are the scalars' words."""
    prime = curve.scalar_field.prime
    given = elementwise.get_shape(prime, factors)
    if not shape or not given or shape[-1] != given[-1]:
        raise make_shape_error(
            curve.scalar_field,
            scalars,
            f"{curve.name}: msm takes as many scalars as points along the last axis; the shapes "
            f"are {shape} (points) and {given} (scalars)",
        )
    return elementwise.find_common_shape(prime, [shape[:-1], given[:-1]])


def _load_table_scalars(
    curve: CurveGroup, table: PointTable, scalars: Any
) -> tuple[ElementData, Shape]:
    """The scalars for the points of a table as canonical words, and their leading axes."""
    if table.curve is not curve and table.curve != curve:
        raise ArgumentTypeError(
            f"{curve.name}: the table has points of another curve or of another group of its "
            f"points: of {table.curve.name}"
        )
    on_device = isinstance(scalars, FieldArray) and scalars.on_device
    if on_device and scalars.device is not table.device:
        raise ArgumentTypeError(
            f"{curve.name}: the scalars and the table are on different devices, as different "
            "backends opened them; scalars.to_host() copies the scalars"
        )
    factors = to_scalar_words(curve.scalar_field, scalars)
    given = elementwise.get_shape(curve.scalar_field.prime, factors)
    if not given or given[-1] != table.count:
        raise make_shape_error(
            curve.scalar_field,
            scalars,
            f"{curve.name}: the table has {table.count} points, and the scalars have the shape "
            f"{given}; the last axis has a scalar for each point",
        )
    return factors, given[:-1]
