"""A multi-scalar multiplication as its caller gives it: where it runs, its scalars and its batch.

`run_msm` computes it, and `explain_msm` says how it would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpu_executor.arguments import describe, is_integer, parse_count
from gpu_executor.curves.msm_explanation import HostMsmPlan, explain_points, explain_table
from gpu_executor.curves.point_array import PointArray, PointCurve, PointData
from gpu_executor.curves.point_operations import msm, stream_msm
from gpu_executor.curves.point_table import PointTable
from gpu_executor.curves.scalars import load_scalars, to_scalar_words
from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.msm.parts import MsmParts, starts_with_points
from gpu_executor.msm.run import table_msm
from gpu_executor.ops import elementwise
from gpu_executor.ops.scalars import count_bits, takes_any_words
from gpu_executor.primes.encoding import ByteOrder
from gpu_executor.primes.glv import Glv

if TYPE_CHECKING:
    from gpu_executor.backend import Backend


class MsmCurve(PointCurve, Protocol):
    """What a multi-scalar multiplication needs of its curve, which is a `Curve`: that class is in a
    module above this one."""

    @property
    def order(self) -> int: ...
    @property
    def scalar_field(self) -> Field: ...
    @property
    def glv(self) -> Glv | None: ...


def run_msm(
    curve: MsmCurve,
    points: PointArray | PointTable,
    scalars: Any,
    byteorder: ByteOrder,
    device: Backend | None,
) -> PointArray:
    """`Curve.msm`."""
    target = _find_target(curve, points, device)
    if isinstance(points, PointTable):
        factors, batch = _load_table_scalars(curve, points, scalars, byteorder)
        sums = table_msm(curve.key, points.plan, points.data, factors, batch)
        return PointArray(curve, sums, known_in_subgroup=points.known_in_subgroup)
    own = curve.check_points(points)
    place, streams, glv = target or own.place, target is not None, _get_glv(curve, own)
    factors = _load_factors(curve, own.shape, place, scalars, byteorder, glv, streams=streams)
    arguments = curve.key, own.data, factors, _find_batch(curve, own.shape, factors), glv
    return own.wrap_like(msm(*arguments) if target is None else stream_msm(target, *arguments))


def explain_msm(
    curve: MsmCurve,
    points: PointArray | PointTable | int,
    scalars: Any,
    batch: int,
    byteorder: ByteOrder,
    device: Backend | None,
) -> MsmParts | HostMsmPlan:
    """`Curve.explain_msm`."""
    if scalars is not None and batch != 1:
        raise ArgumentTypeError(
            f"{curve.name}: explain_msm takes batch= or scalars, whose leading axes are a batch"
        )
    target = _find_target(curve, points, device)
    sums: Shape = (parse_count("explain_msm: batch", batch),)
    if isinstance(points, PointTable):
        if scalars is not None:
            sums = _load_table_scalars(curve, points, scalars, byteorder)[1]
        return explain_table(points, sums)
    if is_integer(points):
        shape: Shape = (parse_count("explain_msm: points", points),)
        place, copies_points, glv = target, False, curve.glv
    else:
        own = curve.check_points(points)
        shape, place, copies_points = own.shape, target or own.place, target is not None
        glv = _get_glv(curve, own)
    if not shape:
        raise ArgumentShapeError(
            f"{curve.name}: explain_msm takes points with an axis, and these have none"
        )
    if scalars is None:
        leading = [shape[:-1], sums if batch != 1 else ()]
        sums = elementwise.find_common_shape(curve.scalar_field.prime, leading)
        bits, copies_scalars = curve.order.bit_length(), True
    else:
        factors = _load_factors(curve, shape, place, scalars, byteorder, glv, streams=copies_points)
        sums, bits = _find_batch(curve, shape, factors), count_bits(curve.key, factors)
        copies_scalars = not isinstance(factors, DeviceArray)
    return explain_points(
        curve.key,
        shape,
        sums,
        bits,
        place,
        glv,
        copies_points=copies_points,
        copies_scalars=copies_scalars,
    )


def _load_factors(
    curve: MsmCurve,
    points: Shape,
    place: ArrayDevice | None,
    scalars: Any,
    byteorder: ByteOrder,
    glv: Glv | None,
    *,
    streams: bool,
) -> PointData:
    """The words of scalars for points of that shape and place, on the host or in that place: below
    the order, unless `glv` splits them there."""
    # The halves of a scalar are those of any number that is congruent.
    halves = glv is not None and place is not None and not streams
    factors: PointData = load_scalars(
        curve.scalar_field,
        place,
        scalars,
        byteorder,
        streams=streams or (halves and _come_late(curve, points, scalars, place)),
        reduces=not halves,
    )
    return factors


def _come_late(curve: MsmCurve, points: Shape, scalars: Any, place: ArrayDevice | None) -> bool:
    """Whether scalars stay on the host until the device has begun with the points: words of any
    numbers, for one sum of points of that shape and place."""
    prime = curve.scalar_field.prime
    is_words = isinstance(scalars, np.ndarray) and scalars.dtype == prime.column_dtype
    if place is None or not is_words or not takes_any_words(prime) or place.is_recording:
        return False
    return len(points) == 1 == scalars.ndim - len(prime.element_shape) and (
        starts_with_points(curve.key, points[0], place.info)
    )


def _get_glv(curve: MsmCurve, points: PointArray) -> Glv | None:
    """How scalars of these points are split into halves; None if they are not. An endomorphism has
    the eigenvalue on points of the group of prime order alone."""
    return curve.glv if points.known_in_subgroup else None


def _find_target(curve: MsmCurve, points: Any, device: Backend | None) -> ArrayDevice | None:
    """The device that points of the host are copied to; None if they stay where they are."""
    if device is None:
        return None
    # Loaded already by whoever has a device.
    from gpu_executor.backend import Backend, require_array_device

    if not isinstance(device, Backend):
        raise ArgumentTypeError(
            f"{curve.name}: device= is {describe(device)}; it takes an executor or a backend"
        )
    if isinstance(points, PointTable) or (isinstance(points, PointArray) and points.on_device):
        raise ArgumentTypeError(
            f"{curve.name}: device= is for points on the host; these are on a device, which "
            "computes with them: leave device= out"
        )
    return require_array_device(device)


def _find_batch(curve: MsmCurve, shape: Shape, factors: PointData) -> Shape:
    """The leading axes of points and of scalars, broadcast."""
    prime = curve.scalar_field.prime
    given = elementwise.get_shape(prime, factors)
    if not shape or not given or shape[-1] != given[-1]:
        raise ArgumentShapeError(
            f"{curve.name}: msm takes as many scalars as points along the last axis; the shapes "
            f"are {shape} (points) and {given} (scalars)"
        )
    return elementwise.find_common_shape(prime, [shape[:-1], given[:-1]])


def _load_table_scalars(
    curve: MsmCurve, table: PointTable, scalars: Any, byteorder: ByteOrder
) -> tuple[PointData, Shape]:
    """The scalars for the points of a table as canonical words, and their leading axes."""
    if table.curve is not curve and table.curve != curve:
        raise ArgumentTypeError(
            f"{curve.name}: the table has points of another curve or of another group of its "
            f"points: of {table.curve.name}"
        )
    on_device = isinstance(scalars, FieldArray) and scalars.on_device
    if on_device and scalars.device is not table.data.storage.device:
        raise ArgumentTypeError(
            f"{curve.name}: the scalars and the table are on different devices, as different "
            "backends opened them; scalars.to_host() copies the scalars"
        )
    device = table.data.storage.device
    factors = to_scalar_words(curve.scalar_field, scalars, byteorder, device)
    given = elementwise.get_shape(curve.scalar_field.prime, factors)
    if not given or given[-1] != table.count:
        raise ArgumentShapeError(
            f"{curve.name}: the table has {table.count} points, and the scalars have the shape "
            f"{given}; the last axis has a scalar for each point"
        )
    return factors, given[:-1]
