"""`PointTable`: multiples of fixed points on a device, for many multi-scalar multiplications.

Table k has the points times 2^(k * s), where s is a number of bits. The windows of a scalar then
share their buckets (`ops/msm.py`): a multi-scalar multiplication needs fewer buckets and hardly any
doublings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.curves.point_array import PointArray
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentTypeError, GpuError
from gpu_executor.files import write_atomically
from gpu_executor.kernels.curves import encode_constants
from gpu_executor.ops.msm import make_tables
from gpu_executor.ops.msm_plan import MsmPlan, plan_tables
from gpu_executor.ops.points import to_limb_form
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.value_keys import ByIdentity

FILE_FORMAT = "gpu-executor point table 2"
HEADER_BYTES = 4096
"""The header of a file, padded; the words follow."""


@dataclass(frozen=True, eq=False)
class PointTable(ByIdentity):
    """Multiples of the points of one array, on a device. `curve.precompute` makes it."""

    key: CurveKey
    plan: MsmPlan
    data: DeviceArray
    """The tables one behind the other: affine points in limb form."""
    digest: str
    """SHA-256 of the curve, of the limb form of its coordinates, and of the points."""
    known_in_subgroup: bool
    """Whether the points are known to be in the group of prime order."""

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
    return PointTable(key, plan, table, digest, points.known_in_subgroup)


def make_table_of(points: PointArray, plan: MsmPlan, multiples: PointArray) -> PointTable:
    """The table of points whose multiples were computed before: one table behind the other."""
    data, words = _get_affine(points), _get_affine(multiples)
    key = points.curve.key
    table = to_limb_form(words.storage.device, key, words)
    return PointTable(key, plan, table, _compute_digest(key, data), points.known_in_subgroup)


def load_table(points: PointArray, path: str | Path) -> PointTable:
    """Read the table of these points from a file; refuses that of other points and a broken one."""
    data, key = _get_affine(points), points.curve.key
    device: ArrayDevice = data.storage.device
    content = Path(path).read_bytes()
    header, words = _parse_header(path, content[:HEADER_BYTES]), content[HEADER_BYTES:]
    digest = _compute_digest(key, data)
    if header.get("points") != digest:
        raise GpuError(f"{path} has a table of other points; precompute makes one for these points")
    if _hash_content(header, words) != header.get("content"):
        raise GpuError(f"{path} is damaged: it has another SHA-256; precompute the table again")
    tables, window_bits = int(header["tables"]), int(header["window_bits"])
    plan = MsmPlan(len(points), 1, key.order.bit_length(), window_bits, tables)
    shape = (tables * len(points), 2, *key.coordinate_shape)
    table = np.frombuffer(words, key.prime.column_dtype).reshape(shape)
    return PointTable(key, plan, device.put(table), digest, points.known_in_subgroup)


def _parse_header(path: str | Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FILE_FORMAT:
        raise GpuError(f"{path} is not a point table; PointTable.save writes one")
    return header


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
