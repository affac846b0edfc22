"""Scalars of points in kernels: their words on a device, reduced there, and how long they are."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernels.curves import reduce_scalars_kernel
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.primes import Prime
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv

FIRST_SCANNED_SCALARS, SCANNED_SCALARS, UNITED_ROWS = 8, 1 << 16, 1 << 10
"""Scalars of the host whose bits are counted at once, and how many of them become one row."""
MAX_ORDER_WORDS = 24
"""Words of the order in the push constants of reduce_scalars.comp."""
ONE_COLUMN_BITS = 64
"""Scalars of an order of up to this many bits are one column."""


def put_scalars(device: ArrayDevice, scalars: ElementData) -> DeviceArray:
    """Scalars on the device."""
    return scalars if isinstance(scalars, DeviceArray) else device.put(scalars)


def can_reduce(device: ArrayDevice, prime: Prime) -> bool:
    """Whether the device has the kernel of `reduce_scalars`, which takes a few subtractions for any
    number of as many bytes as an element."""
    runs = device.runs_kernels and not device.is_recording
    if not runs or prime.element_bytes > 4 * MAX_ORDER_WORDS:
        return False
    return prime.bits > 8 * prime.element_bytes - 4


def reduce_scalars(
    device: ArrayDevice, prime: Prime, given: npt.NDArray[Any], *, big_endian: bool
) -> DeviceArray:
    """Numbers modulo the prime, as canonical words on the device. `given` are bytes on the host, as
    many along the last axis as an element has."""
    leading = given.shape[:-1]
    columns = np.ascontiguousarray(given).view(prime.column_dtype)
    raw = device.put(columns.reshape((*leading, *prime.element_shape)))
    made = device.empty(raw.shape, raw.dtype)
    count = math.prod(leading)
    if count:
        order = (prime.modulus >> 32 * i & 0xFFFFFFFF for i in range(MAX_ORDER_WORDS))
        push = prime.element_bytes // 4, int(big_endian), *order
        kernel, arrays = reduce_scalars_kernel(), (raw, made)
        device.submit([Dispatch(kernel, arrays, count, push, grid_stride=True, elementwise=1)])
    return made


def encode_scalar(curve: CurveKey, value: int) -> Words:
    """An array of one scalar, which is as long as the order or shorter."""
    nbytes = -(-curve.order.bit_length() // 32) * 4
    words = np.frombuffer(value.to_bytes(nbytes, "little"), np.uint32)
    if curve.order.bit_length() > ONE_COLUMN_BITS:
        return words.reshape(1, -1)
    return words.view(np.uint64) if nbytes == 8 else words


def get_columns(curve: CurveKey, scalars: ElementData) -> Shape:
    """The axis of the columns of a scalar; none if a scalar is one column."""
    return () if curve.order.bit_length() <= ONE_COLUMN_BITS else scalars.shape[-1:]


def count_bits(curve: CurveKey, scalars: ElementData, glv: Glv | None = None) -> int:
    """The bits of the largest scalar, at least 1, or those of the order: they hold for scalars on a
    device, and as soon as a scalar has as many but one. With `glv` they hold as soon as a scalar
    has more bits than a half."""
    bits, most = 1, curve.order.bit_length()
    if isinstance(scalars, DeviceArray):
        return most
    enough = most - 1 if glv is None else glv.scalar_bits + 1
    rows = scalars.reshape(-1, *get_columns(curve, scalars))
    # A few scalars first: of random ones they have all bits.
    starts = [0, FIRST_SCANNED_SCALARS, *range(SCANNED_SCALARS, len(rows), SCANNED_SCALARS)]
    for first, last in itertools.pairwise([*starts, len(rows)]):
        union = _unite_rows(rows[first:last])
        bits = max(bits, int.from_bytes(union.tobytes(), "little").bit_length())
        if bits >= enough:
            return max(bits, most)
    return bits


def _unite_rows(rows: Words) -> Words:
    """The bitwise or of all rows, as one row. NumPy reduces an axis of few words slowly, so many
    rows are joined first: 64 MiB take 8 instead of 22 ms on a Neoverse-N1."""
    count = len(rows) // UNITED_ROWS
    if count > 1:
        rest = rows[count * UNITED_ROWS :]
        wide = rows[: count * UNITED_ROWS].reshape(count, UNITED_ROWS, *rows.shape[1:])
        rows = np.bitwise_or.reduce(wide, axis=0)
        rows[: len(rest)] |= rest
    while len(rows) > 1:
        half = -(-len(rows) // 2)
        rows = rows[:half] | rows[-half:]
    return rows
