"""Tables of multiples of points on a device.

Table k has the points times 2^(k * s), where s is a number of bits. The windows of a scalar then
share their buckets (`stages.py`): an MSM needs fewer buckets and hardly any doublings.

`PointTable` has the tables of fixed points, for many calls. Sets of points have tables of their own
(`make_multiples`, `to_tables`): an MSM of few points then costs little more than its mixed
additions.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.common.files import parse_json, write_atomically
from gpu_executor.common.progress import show_progress
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.errors import ArgumentTypeError, GpuError
from gpu_executor.kernels.curves import encode_constants
from gpu_executor.msm.plan import (
    TABLE_COSTS,
    MsmPlan,
    count_table_bytes,
    fits_residues,
    get_max_window_bits,
    plan_tables,
)
from gpu_executor.msm.scalars import CurveGroup
from gpu_executor.msm.stages import shift_points
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.ops.points import get_shape, make_points, mul, to_affine, to_limb_form
from gpu_executor.ops.scalars import encode_scalar
from gpu_executor.primes.curve_key import CurveKey

FILE_FORMAT = "gpu-executor point table 2"
HEADER_BYTES = 4096
"""The header of a file, padded; the words follow."""
HEADER_TYPES = {
    "format": str,
    "points": str,
    "count": int,
    "window_bits": int,
    "tables": int,
    "content": str,
}


@dataclass(frozen=True, eq=False)
class PointTable(ByIdentity):
    """Multiples of the points of one array, on a device. `curve.precompute` makes it."""

    curve: CurveGroup
    """The `Curve` of the points."""
    plan: MsmPlan
    data: DeviceArray
    """The tables one behind the other: affine points in limb form."""
    digest: str
    """SHA-256 of the curve, of the limb form of its coordinates, and of the points."""
    known_in_subgroup: bool
    """Whether the points are known to be in the group of prime order."""
    points: DeviceArray | None = None
    """A copy of the affine points, if sums of so few may take less time without the tables."""

    @property
    def key(self) -> CurveKey:
        """The curve in numbers."""
        return self.curve.key

    @property
    def device(self) -> ArrayDevice:
        """The device that holds the tables."""
        device: ArrayDevice = self.data.storage.device
        return device

    @property
    def count(self) -> int:
        """The number of points."""
        return self.plan.points

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self.data.nbytes + (0 if self.points is None else self.points.nbytes)

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<PointTable of {plan.points:,} points on {self.device.info.name}: "
            f"{plan.tables} tables, windows of {plan.window_bits} bits, {self.nbytes:,} bytes>"
        )

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            "a table of points is in device memory and cannot be pickled; table.save(path) writes "
            "it to a file, and curve.load_table reads it"
        )

    def save(self, path: str | Path) -> None:
        """Write the table to a file, which `curve.load_table` reads for the same points.

        Args:
            path (str or Path): The file.
        """
        words = self.data.numpy().tobytes()
        header: dict[str, str | int] = {
            "format": FILE_FORMAT,
            "points": self.digest,
            "count": self.plan.points,
            "window_bits": self.plan.window_bits,
            "tables": self.plan.tables,
        }
        header["content"] = _hash_content(header, words)
        write_atomically(Path(path), json.dumps(header).encode().ljust(HEADER_BYTES) + words)


def make_table(
    curve: CurveGroup,
    points: ElementData,
    window: int | None,
    memory: int | None,
    *,
    known_in_subgroup: bool,
) -> PointTable:
    """Compute the multiples of affine points on a device."""
    key, data = curve.key, _check_points(curve, points)
    device: ArrayDevice = data.storage.device
    plan = plan_tables(key, len(data), device.info, window, memory)
    own = _copy_few(key, data, known_in_subgroup)
    if own is not None and memory is not None:  # the table and the copy take `memory` at most
        rest = operator.index(memory) - own.nbytes
        if rest >= count_table_bytes(key, len(data)):
            plan = plan_tables(key, len(data), device.info, window, rest)
        else:
            own = None
    table, digest = _make_tables(device, key, plan, data), _compute_digest(key, data)
    return PointTable(curve, plan, table, digest, known_in_subgroup, own)


def make_table_of(
    curve: CurveGroup,
    points: ElementData,
    plan: MsmPlan,
    multiples: ElementData,
    *,
    known_in_subgroup: bool,
) -> PointTable:
    """The table of affine points whose multiples, affine points too, were computed before: one
    table behind the other."""
    data, words = (_check_points(curve, each) for each in (points, multiples))
    table = to_limb_form(words.storage.device, curve.key, words)
    own, digest = _copy_few(curve.key, data, known_in_subgroup), _compute_digest(curve.key, data)
    return PointTable(curve, plan, table, digest, known_in_subgroup, own)


def load_table(
    curve: CurveGroup, points: ElementData, path: str | Path, *, known_in_subgroup: bool
) -> PointTable:
    """Read the table of these affine points from a file; refuses that of other points and a broken
    one.

    The SHA-256 protects against damage, and not against whoever writes a file with a right one.
    """
    key, data = curve.key, _check_points(curve, points)
    device: ArrayDevice = data.storage.device
    content = Path(path).read_bytes()
    header, words = _parse_header(path, content[:HEADER_BYTES]), content[HEADER_BYTES:]
    digest = _compute_digest(key, data)
    if header["points"] != digest:
        raise GpuError(f"{path} has a table of other points; precompute makes one for these points")
    if _hash_content(header, words) != header["content"]:
        raise GpuError(f"{path} is damaged: it has another SHA-256; precompute the table again")
    plan = _make_plan(key, len(data), header)
    shape = (0 if plan is None else plan.tables * plan.points, 2, *key.coordinate_shape)
    dtype = key.prime.column_dtype
    if plan is None or len(words) != math.prod(shape) * dtype.itemsize:
        raise GpuError(
            f"{path} is damaged: its header does not fit {len(data):,} points and {len(words):,} "
            "bytes of words; precompute the table again"
        )
    table = device.put(np.frombuffer(words, dtype).reshape(shape))
    own = _copy_few(key, data, known_in_subgroup)
    return PointTable(curve, plan, table, digest, known_in_subgroup, own)


def _copy_few(curve: CurveKey, points: DeviceArray, known_in_subgroup: bool) -> DeviceArray | None:
    """A copy of points of which sums may be computed in residues, as they may be overwritten."""
    device: ArrayDevice = points.storage.device
    if not known_in_subgroup or not fits_residues(curve, len(points), device.info):
        return None
    return points.copy()


def _parse_header(path: str | Path, text: bytes) -> dict[str, Any]:
    """The entries of a header, all of the types that `PointTable.save` writes."""
    try:
        header = parse_json(text.decode())
    except ValueError:
        header = None
    is_header = (
        isinstance(header, dict)
        and {name: type(value) for name, value in header.items()} == HEADER_TYPES
    )
    if not is_header or header["format"] != FILE_FORMAT:
        raise GpuError(f"{path} is not a point table; PointTable.save writes one")
    found: dict[str, Any] = header
    return found


def _make_plan(key: CurveKey, count: int, header: Mapping[str, Any]) -> MsmPlan | None:
    """The plan of a header's table, if `plan_tables` could make it."""
    tables, window_bits, bits = header["tables"], header["window_bits"], key.order.bit_length()
    widest = get_max_window_bits(bits, TABLE_COSTS)
    if header["count"] != count or window_bits not in range(2, widest + 1):
        return None
    plan = MsmPlan(count, 1, bits, window_bits, tables=max(tables, 1))
    return plan if tables == -(-plan.windows // plan.table_windows) else None


def _check_points(curve: CurveGroup, points: ElementData) -> DeviceArray:
    """The words of affine points, if they are on a device, and their array has one axis."""
    shape = get_shape(curve.key, points)
    if not isinstance(points, DeviceArray) or len(shape) != 1 or not shape[0]:
        raise ArgumentTypeError(
            f"{curve.name}: precompute takes a one-dimensional array of points on a device; "
            f"the shape is {shape}; gpu.to_device(points) copies points to a device"
        )
    return points


def _compute_digest(key: CurveKey, data: DeviceArray) -> str:
    numbers = key.prime.modulus, key.degree, key.nonresidue, key.a, key.b, key.order
    form = encode_constants(key).tobytes()
    return hashlib.sha256(repr(numbers).encode() + form + data.numpy().tobytes()).hexdigest()


def _hash_content(header: Mapping[str, Any], words: bytes) -> str:
    """SHA-256 of the words and of all other entries of the header."""
    entries = sorted((name, value) for name, value in header.items() if name != "content")
    return hashlib.sha256(json.dumps(entries).encode() + words).hexdigest()


def _make_tables(
    device: ArrayDevice, curve: CurveKey, plan: MsmPlan, points: DeviceArray
) -> DeviceArray:
    """The tables of multiples of affine points, one behind the other, in limb form.

    A progress bar shows the tables that are complete, and Ctrl-C ends the call between two.
    """
    made = make_points(device, curve, plan.tables * plan.points, coordinates=2)
    for first in show_progress(range(0, len(made), plan.points), "tables of multiples"):
        if first:
            before = points
            points = _double_points(curve, points, plan.table_windows * plan.window_bits)
            device.wait_for(before)  # one table at most is in flight
        device.assign(made[first : first + plan.points], to_limb_form(device, curve, points))
    return made


def _double_points(curve: CurveKey, points: DeviceArray, bits: int) -> DeviceArray:
    """2^bits P, affine."""
    while bits:
        step = min(bits, curve.order.bit_length() - 1)  # `mul` takes scalars as long as the order
        points = mul(curve, points, encode_scalar(curve, 1 << step))
        bits -= step
    return to_affine(curve, points)


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
