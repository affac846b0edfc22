"""`PointTable`: multiples of fixed points on a device, for many multi-scalar multiplications.

Table k has the points times 2^(k * s), where s is a number of bits. The windows of a scalar then
share their buckets (`msm/stages.py`): a multi-scalar multiplication needs fewer buckets and hardly
any doublings.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.curves.point_array import PointArray, PointCurve
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentTypeError, GpuError
from gpu_executor.files import parse_json, write_atomically
from gpu_executor.kernels.curves import encode_constants
from gpu_executor.msm.plan import MsmPlan, get_max_window_bits, plan_tables
from gpu_executor.msm.stages import make_tables
from gpu_executor.ops.points import to_limb_form
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.value_keys import ByIdentity

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

    curve: PointCurve
    plan: MsmPlan
    data: DeviceArray
    """The tables one behind the other: affine points in limb form."""
    digest: str
    """SHA-256 of the curve, of the limb form of its coordinates, and of the points."""
    known_in_subgroup: bool
    """Whether the points are known to be in the group of prime order."""

    @property
    def key(self) -> CurveKey:
        """The curve in numbers."""
        return self.curve.key

    @property
    def count(self) -> int:
        """The number of points."""
        return self.plan.points

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self.data.nbytes

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<PointTable of {plan.points:,} points on {self.data.storage.device.info.name}: "
            f"{plan.tables} tables, windows of {plan.window_bits} bits, {self.nbytes:,} bytes>"
        )

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            "a table of points is in device memory and cannot be pickled; table.save(path) writes "
            "it to a file, and curve.load_table reads it"
        )

    def save(self, path: str | Path) -> None:
        """Write the table to a file, which `curve.load_table` reads for the same points."""
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


def make_table(points: PointArray, window: int | None, memory: int | None) -> PointTable:
    """Compute the multiples of points on a device."""
    data, key = _get_affine(points), points.curve.key
    device: ArrayDevice = data.storage.device
    plan = plan_tables(key, len(points), device.info, window, memory)
    table, digest = make_tables(device, key, plan, data), _compute_digest(key, data)
    return PointTable(points.curve, plan, table, digest, points.known_in_subgroup)


def make_table_of(points: PointArray, plan: MsmPlan, multiples: PointArray) -> PointTable:
    """The table of points whose multiples were computed before: one table behind the other."""
    data, words = _get_affine(points), _get_affine(multiples)
    key = points.curve.key
    table = to_limb_form(words.storage.device, key, words)
    digest = _compute_digest(key, data)
    return PointTable(points.curve, plan, table, digest, points.known_in_subgroup)


def load_table(points: PointArray, path: str | Path) -> PointTable:
    """Read the table of these points from a file; refuses that of other points and a broken one.

    The SHA-256 protects against damage, and not against whoever writes a file with a right one.
    """
    data, key = _get_affine(points), points.curve.key
    device: ArrayDevice = data.storage.device
    content = Path(path).read_bytes()
    header, words = _parse_header(path, content[:HEADER_BYTES]), content[HEADER_BYTES:]
    digest = _compute_digest(key, data)
    if header["points"] != digest:
        raise GpuError(f"{path} has a table of other points; precompute makes one for these points")
    if _hash_content(header, words) != header["content"]:
        raise GpuError(f"{path} is damaged: it has another SHA-256; precompute the table again")
    plan = _make_plan(key, len(points), header)
    shape = (0 if plan is None else plan.tables * plan.points, 2, *key.coordinate_shape)
    dtype = key.prime.column_dtype
    if plan is None or len(words) != math.prod(shape) * dtype.itemsize:
        raise GpuError(
            f"{path} is damaged: its header does not fit {len(points):,} points and {len(words):,} "
            "bytes of words; precompute the table again"
        )
    table = np.frombuffer(words, dtype).reshape(shape)
    return PointTable(points.curve, plan, device.put(table), digest, points.known_in_subgroup)


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
    if header["count"] != count or window_bits not in range(2, get_max_window_bits(bits) + 1):
        return None
    plan = MsmPlan(count, 1, bits, window_bits, tables=max(tables, 1))
    return plan if tables == -(-plan.windows // plan.table_windows) else None


def _get_affine(points: PointArray) -> DeviceArray:
    """The words of points on a device in affine form."""
    data = points.affine().data
    if not isinstance(data, DeviceArray) or points.ndim != 1 or not len(points):
        raise ArgumentTypeError(
            f"{points.curve.name}: precompute takes a one-dimensional array of points on a device; "
            f"the shape is {points.shape}; gpu.to_device(points) copies points to a device"
        )
    return data


def _compute_digest(key: CurveKey, data: DeviceArray) -> str:
    numbers = key.prime.modulus, key.degree, key.nonresidue, key.a, key.b, key.order
    form = encode_constants(key).tobytes()
    return hashlib.sha256(repr(numbers).encode() + form + data.numpy().tobytes()).hexdigest()


def _hash_content(header: Mapping[str, Any], words: bytes) -> str:
    """SHA-256 of the words and of all other entries of the header."""
    entries = sorted((name, value) for name, value in header.items() if name != "content")
    return hashlib.sha256(json.dumps(entries).encode() + words).hexdigest()
