"""Many multiples of one point on a device, by a table of its multiples.

The table has d 2^(8 w) P for every window w and digit d. A multiple is then a sum of one point of
the table for each window: 32 mixed additions for a scalar of 256 bits, and no doublings. The
accumulation of MSMs adds them (glsl/curves/accumulate.comp): each scalar is a bucket of its own.
"""

from __future__ import annotations

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernels.curves import table_entries_kernel
from gpu_executor.msm.plan import MsmPlan
from gpu_executor.msm.stages import Msm
from gpu_executor.ops.host_points import Point, get_arithmetic
from gpu_executor.ops.points import AFFINE, make_points, mul, to_affine, to_limb_form
from gpu_executor.primes.curve_key import CurveKey

WINDOW_BITS = 8
"""Bits of a digit. The table of 256 bits has 2^13 points, which a device makes in milliseconds."""
CHUNK, CHUNK_ON_CPU = 1 << 18, 1 << 10
"""Scalars of one run of the stages: 64 MiB of entries on a GPU."""


class FixedBase:
    """The multiples of a point, ready for any scalars."""

    def __init__(self, device: ArrayDevice, curve: CurveKey, base: Point) -> None:
        self._device, self._curve = device, curve
        self._words = -(-curve.order.bit_length() // 32)
        self._windows = self._words * 32 // WINDOW_BITS
        shifts = [pow(2, each * WINDOW_BITS, curve.order) for each in range(self._windows)]
        arithmetic = get_arithmetic(curve)
        shifted = arithmetic.store(
            arithmetic.multiply([base] * len(shifts), shifts), (len(shifts),)
        )
        digits = np.zeros((self._windows, 1 << WINDOW_BITS, self._words), np.uint32)
        digits[..., 0] = np.arange(1 << WINDOW_BITS)
        count = self._windows << WINDOW_BITS
        bases = device.put(np.repeat(shifted, 1 << WINDOW_BITS, axis=0))
        points = mul(curve, bases, digits.reshape(count, self._words))
        self._table = to_limb_form(device, curve, to_affine(curve, points))

    def multiply(self, scalars: DeviceArray) -> DeviceArray:
        """k P for scalars (n, words) below the order, in canonical form: affine points of words."""
        count = len(scalars)
        result = make_points(self._device, self._curve, count, coordinates=AFFINE)
        most = CHUNK_ON_CPU if self._device.info.kind == "cpu" else CHUNK
        for first in range(0, count, most):
            part = slice(first, min(first + most, count))
            self._device.assign(result[part], self._multiply_chunk(scalars[part]))
        return result

    def _multiply_chunk(self, scalars: DeviceArray) -> DeviceArray:
        device: ArrayDevice = self._device
        count, windows = len(scalars), self._windows
        # A window of one bit has one bucket, and `windows` tables share it.
        plan = MsmPlan(1, count, windows - 1, 1, tables=windows)
        msm = Msm(device, self._curve, plan, has_table=True)
        keys, entries = msm.make_entries()
        push = self._words, windows, WINDOW_BITS
        arrays = scalars, keys, entries
        device.submit(
            [Dispatch(table_entries_kernel(), arrays, count * windows, push, grid_stride=True)]
        )
        sums = msm.make_sums()
        msm.accumulate(keys, entries, self._table, None, sums)
        msm.combine(sums)
        result = make_points(device, self._curve, count)
        msm.finish(sums.buckets, result)
        return to_affine(self._curve, result)
