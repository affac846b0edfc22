"""Multi-scalar multiplication on a device: Pippenger's bucket method.

    scalars -> signed digits -> sort by bucket -> accumulate -> reduce buckets -> join windows

Scalars are split into windows of c bits. Each non-zero digit adds its point to a bucket of its
window, 2^(c-1) of them. The entries are sorted by bucket, so that every invocation adds equally
many points (glsl/curves/accumulate.comp). A window is the sum of k times bucket k, and the result
the sum of 2^(c w) times window w.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.errors import ArgumentTypeError, DeviceLacksError
from gpu_executor.kernels.curves import count_lanes, point_limbs, scalar_digits_kernel
from gpu_executor.ops.points import (
    TERM_ITERATIONS,
    count_steps,
    get_constants,
    make_dispatch,
    make_points,
    mul,
    to_affine,
    to_limb_form,
)
from gpu_executor.ops.sort import sort_pairs
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.progress import show_progress

MIXED_ADDITION, ADDITION, DOUBLING = 10, 14, 9
"""Products of numbers in each operation on points."""
ADDITIONS_PER_BUCKET = 2.4
"""In the reduction of the buckets, all levels together."""
INVOCATIONS = 1 << 17
"""Invocations that fill a device with mixed additions: on an NVIDIA H200, 2^15 give 85 % of the
rate of 2^17."""
GROUPED_ENTRIES = 1 << 18
"""Below this number of entries, groups of invocations accumulate."""
LEAST_LENGTH = 8
"""Entries that an invocation adds at least."""
COMBINED_LENGTH = 8
"""Partial sums that an invocation adds."""
LOG_SEGMENT = 3
"""log2 of the points of a segment in the reduction of buckets."""
TABLE_BYTES, TABLE_BYTES_ON_CPU = 1 << 30, 1 << 26
"""Memory of the tables of fixed points, unless the caller says otherwise."""
WORD = np.dtype(np.uint32)
MAX_WINDOW_BITS = 22


@dataclass(frozen=True, slots=True)
class MsmPlan:
    """How a multi-scalar multiplication is split."""

    points: int
    batch: int
    scalar_bits: int
    window_bits: int
    tables: int = 1
    """Tables of multiples of the points: windows that use different tables share their buckets."""
    shares_points: bool = True
    """Whether all sums of the batch have the same points."""

    @property
    def table_windows(self) -> int:
        """Windows that use one table, and so the windows that have buckets."""
        return -(-self.windows // self.tables)

    @property
    def windows(self) -> int:
        """Windows of a scalar; the topmost has room for the carry of the signed digits."""
        return -(-(self.scalar_bits + 1) // self.window_bits)

    @property
    def buckets(self) -> int:
        """Buckets of a window."""
        return 1 << (self.window_bits - 1)

    @property
    def key_bits(self) -> int:
        """Bits of the key of an entry: the number of its bucket, or as many ones."""
        return self.all_buckets.bit_length()

    @property
    def all_buckets(self) -> int:
        """Buckets of the whole batch."""
        return self.batch * self.table_windows * self.buckets

    @property
    def entries(self) -> int:
        """Signed digits of all scalars."""
        return self.batch * self.windows * self.points

    @property
    def products(self) -> float:
        """Products of numbers, which decide the time."""
        reduced = self.all_buckets * ADDITIONS_PER_BUCKET * ADDITION
        return self.entries * MIXED_ADDITION + reduced

    def __str__(self) -> str:
        tables = f" and {self.tables} tables of multiples" if self.tables > 1 else ""
        batch = f"{self.batch:,} x " if self.batch > 1 else ""
        return (
            f"{batch}{self.points:,} points in {self.windows} windows of {self.window_bits} bits"
            f"{tables}: {self.entries:,} mixed additions to {self.all_buckets:,} buckets"
        )


@functools.lru_cache(maxsize=256)
def plan_msm(points: int, batch: int, scalar_bits: int) -> MsmPlan:
    """Choose the window with the fewest products."""
    plans = [
        MsmPlan(points, batch, scalar_bits, bits)
        for bits in range(2, min(MAX_WINDOW_BITS, scalar_bits + 1) + 1)
    ]
    return min(plans, key=lambda plan: plan.products)


def plan_tables(
    curve: CurveKey, points: int, info: DeviceInfo, window: int | None, memory: int | None
) -> MsmPlan:
    """Choose the windows and the tables of multiples of fixed points, within `memory` bytes."""
    for name, value in (("window", window), ("memory", memory)):
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
            raise ArgumentTypeError(f"precompute: {name} is {value!r}; it must be a whole number")
    bits = curve.order.bit_length()
    if window is not None and not 2 <= window <= min(MAX_WINDOW_BITS, bits + 1):
        raise ArgumentTypeError(
            f"window={window}: a window has 2 to {min(MAX_WINDOW_BITS, bits + 1)} bits"
        )
    default = TABLE_BYTES_ON_CPU if info.kind == "cpu" else TABLE_BYTES
    budget = default if memory is None else memory
    nbytes = 2 * curve.degree * curve.prime.element_bytes * points
    if budget < nbytes:
        raise ArgumentTypeError(
            f"memory={budget:,}: one table of {points:,} points takes {nbytes:,} bytes"
        )
    plans = []
    for width in range(2, min(MAX_WINDOW_BITS, bits + 1) + 1) if window is None else [window]:
        plan = MsmPlan(points, 1, bits, width)
        tables = min(budget // nbytes, plan.windows)
        rows = -(-plan.windows // tables)
        plans.append(dataclasses.replace(plan, tables=-(-plan.windows // rows)))
    return min(plans, key=lambda plan: plan.products)


def make_tables(
    device: ArrayDevice, curve: CurveKey, plan: MsmPlan, points: DeviceArray
) -> DeviceArray:
    """The tables of multiples of affine points, one behind the other, in limb form.

    A progress bar shows the tables that are complete, and Ctrl-C ends the call between two.
    """
    made = make_points(device, curve, plan.tables * plan.points, coordinates=2)
    for first in show_progress(range(0, len(made), plan.points), "tables of multiples"):
        if first:
            before = points
            points = _shift_points(curve, points, plan.table_windows * plan.window_bits)
            device.wait_for(before)  # one table at most is in flight
        device.assign(made[first : first + plan.points], to_limb_form(device, curve, points))
    return made


def _shift_points(curve: CurveKey, points: DeviceArray, bits: int) -> DeviceArray:
    """2^bits P, affine."""
    order_bits = curve.order.bit_length()
    nbytes = -(-order_bits // 32) * 4
    while bits:
        step = min(bits, order_bits - 1)  # `mul` takes scalars as long as the order
        factor = np.frombuffer((1 << step).to_bytes(nbytes, "little"), np.uint32)
        points = mul(curve, points, factor.reshape(1, -1))
        bits -= step
    return to_affine(curve, points)


class Msm:
    """One multi-scalar multiplication on a device."""

    def __init__(self, device: ArrayDevice, curve: CurveKey, plan: MsmPlan) -> None:
        self._device, self._curve, self._plan = device, curve, plan
        self._constants = get_constants(device, curve)
        self._lanes = count_lanes(curve, device.info)
        self._steps: list[Step] = []

    def run(self, tables: DeviceArray, scalars: DeviceArray, result: DeviceArray) -> None:
        """Submit everything; the sums of the batch go to `result`."""
        keys, entries = self.split_scalars(scalars)
        keys, entries = sort_pairs(self._device, keys, entries, self._plan.key_bits)
        buckets = self.accumulate(keys, entries, tables)
        self.join(self.reduce(buckets), result)
        self._device.submit(self.take_steps())

    def take_steps(self) -> list[Step]:
        """Return the steps that wait for their submission."""
        steps, self._steps = self._steps, []
        return steps

    def split_scalars(self, scalars: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """The signed digits of all scalars: their buckets, and their points with signs."""
        plan = self._plan
        keys, entries = (self._device.empty((plan.entries,), WORD) for _ in range(2))
        words = scalars.nbytes // (4 * plan.batch * plan.points)
        stride = 0 if plan.shares_points else plan.tables * plan.points
        push = plan.points, words, plan.windows, plan.window_bits, plan.table_windows, stride
        count = plan.batch * plan.points
        self._device.submit(
            [
                Dispatch(
                    scalar_digits_kernel(),
                    (scalars, keys, entries),
                    count,
                    push,
                    grid_stride=True,
                )
            ]
        )
        return keys, entries

    def _make_points(self, count: int) -> DeviceArray:
        return self._device.empty((count, point_limbs(self._curve)), WORD)

    def accumulate(
        self, keys: DeviceArray, entries: DeviceArray, points: DeviceArray
    ) -> DeviceArray:
        """The sums of all buckets."""
        plan, device = self._plan, self._device
        grouped = self._curve.degree > 1 or device.info.kind == "cpu"
        grouped = grouped or plan.entries < GROUPED_ENTRIES
        wanted = INVOCATIONS // (self._lanes if grouped else 1)
        length = max(-(-plan.entries // wanted), LEAST_LENGTH)
        count = -(-plan.entries // length)
        buckets = self._make_points(plan.all_buckets)
        device.assign(buckets, np.uint32(0))
        partial_keys, partials = device.empty((2 * count,), WORD), self._make_points(2 * count)
        arrays = keys, entries, points, self._constants, buckets, partial_keys, partials
        self._add("accumulate", arrays, count, (plan.entries, length), grouped=grouped)
        sums = 2 * count - 1
        while True:
            count = -(-sums // COMBINED_LENGTH)
            made = device.empty((2 * count,), WORD), self._make_points(2 * count)
            combined = partial_keys, partials, self._constants, buckets, *made
            self._add("combine", combined, count, (sums, COMBINED_LENGTH))
            if count == 1:
                return buckets
            (partial_keys, partials), sums = made, 2 * count - 1

    def reduce(self, buckets: DeviceArray) -> DeviceArray:
        """The weighted sum of the buckets of each window."""
        plan = self._plan
        log_count, doublings, first = plan.window_bits - 1, 0, True
        windows = plan.batch * plan.table_windows
        totals = weighted = buckets
        while log_count or first:
            levels = min(LOG_SEGMENT, log_count)
            log_count -= levels
            count = windows << log_count
            made = self._make_points(count), self._make_points(count)
            arrays = totals, weighted, self._constants, *made
            self._add("reduce_buckets", arrays, count, (1 << levels, doublings, int(first)))
            (totals, weighted), first = made, False
            doublings += levels
        return weighted

    def join(self, windows: DeviceArray, result: DeviceArray) -> None:
        """Write the sums of all windows to the result."""
        plan = self._plan
        steps = plan.table_windows * (plan.window_bits + 1)
        most = count_steps(self._device, self._curve, plan.batch, TERM_ITERATIONS) or steps
        if steps > most:
            raise DeviceLacksError(
                f"msm: joining {plan.table_windows} windows of {plan.window_bits} bits takes "
                f"{steps} additions one after the other, and {self._device.info.name} ends the "
                f"loops of a kernel after {most}; points.to_host() copies the points to the host"
            )
        arrays = windows, self._constants, result
        self._add("join_windows", arrays, plan.batch, (plan.table_windows, plan.window_bits))

    def _add(
        self,
        operation: str,
        arrays: tuple[DeviceArray, ...],
        count: int,
        push: tuple[int, ...],
        *,
        grouped: bool | None = None,
    ) -> None:
        """Append a dispatch for `count` elements; `grouped` chooses between two variants."""
        self._steps.append(
            make_dispatch(
                self._device, self._curve, operation, arrays, count, push, grouped=grouped
            )
        )
