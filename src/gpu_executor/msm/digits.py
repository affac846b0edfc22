"""The signed digits of the scalars of MSMs on a device, and their order by buckets.

A digit adds a point to a bucket, or subtracts it. Before the sort it is an entry in two words, the
number of its bucket (the key) and the index of its point, or where the place of a digit tells its
point, one word (glsl/window_digits.glsl). After the sort there are keys and indices of points.
"""

from __future__ import annotations

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.kernels.curves import (
    half_digits_kernel,
    halve_scalars_kernel,
    packed_digits_kernel,
    scalar_digits_kernel,
)
from gpu_executor.msm.plan import MsmPlan
from gpu_executor.ops.sort import can_sort_digits, gains_by_rows, sort_digits, sort_pairs
from gpu_executor.primes.glv import Glv

WORD = np.dtype(np.uint32)


def make_halves(device: ArrayDevice, plan: MsmPlan, glv: Glv) -> DeviceArray:
    """An array for the halves of all scalars."""
    return device.empty((plan.batch * plan.terms, glv.half_words), WORD)


def halve_scalars(
    device: ArrayDevice, plan: MsmPlan, glv: Glv, scalars: DeviceArray, halves: DeviceArray
) -> Dispatch:
    """What writes the halves of all scalars."""
    arrays, count = (scalars, _get_glv_constants(device, glv), halves), plan.batch * plan.points
    kernel = halve_scalars_kernel(scalars.nbytes // (4 * count))
    return Dispatch(kernel, arrays, count, (plan.points,), grid_stride=True)


def _get_glv_constants(device: ArrayDevice, glv: Glv) -> DeviceArray:
    """The constants of kernels that halve scalars, on a device."""
    return device.cache(("glv", glv), lambda: device.put(glv.encode()))


class MsmDigits:
    """The digits of all scalars of a batch of MSMs: their arrays, and what runs on them."""

    def __init__(self, device: ArrayDevice, plan: MsmPlan) -> None:
        self._device, self._plan = device, plan
        self._halves: DeviceArray | None = None
        has_places = plan.tables == 1 and plan.shares_points and plan.point_sets is None
        self._is_packed = has_places and can_sort_digits(device.info, plan.terms, plan.window_bits)

    def make_entries(self) -> tuple[DeviceArray, ...]:
        """Arrays for all digits: one of packed digits, or keys and points with signs."""
        count = 1 if self._is_packed else 2
        return tuple(self._device.empty((self._plan.entries,), WORD) for _ in range(count))

    def split(self, scalars: DeviceArray, entries: tuple[DeviceArray, ...]) -> list[Step]:
        """What writes the digits of all scalars to the arrays of `make_entries`."""
        plan, device = self._plan, self._device
        count = plan.batch * plan.points
        words = scalars.nbytes // (4 * count)
        if self._is_packed:
            push = plan.points, plan.windows, plan.window_bits
            kernel, given = packed_digits_kernel(words), [scalars]
            if plan.glv is not None:
                kernel = half_digits_kernel(words)
                given.append(_get_glv_constants(device, plan.glv))
            arrays = *given, *entries
            return [Dispatch(kernel, arrays, count, push, grid_stride=True, overwrites=True)]
        steps: list[Step] = []
        if plan.glv is not None:
            if self._halves is None:
                self._halves = make_halves(device, plan, plan.glv)
            steps.append(halve_scalars(device, plan, plan.glv, scalars, self._halves))
            scalars, words = self._halves, plan.glv.half_words
        sets = plan.point_sets or (1 if plan.shares_points else plan.batch)
        windows = plan.windows, plan.window_bits, plan.table_windows
        lengths = plan.terms, words, *windows, plan.tables * plan.terms, plan.msms_per_set, sets
        steps.append(
            Dispatch(
                scalar_digits_kernel(),
                (scalars, *entries),
                plan.batch * plan.terms,
                lengths,
                grid_stride=True,
                overwrites=True,
            )
        )
        return steps

    def sort(self, *entries: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """The keys and the points of all digits, ordered by bucket. Where that takes fewer passes,
        the digits of each window are sorted by themselves."""
        plan, device = self._plan, self._device
        windows = plan.batch * plan.table_windows
        if self._is_packed:
            (digits,) = entries
            return sort_digits(device, digits, plan.window_bits, windows)
        keys, points = entries
        rows, key_bits = 1, plan.key_bits
        if plan.windows % plan.table_windows == 0:
            length = plan.entries // windows
            if gains_by_rows(device.info, length, key_bits, plan.window_bits):
                rows, key_bits = windows, plan.window_bits
        return sort_pairs(device, keys, points, key_bits, rows)
