"""An MSM on the host, in Python integers: its plan and its algorithms.

Up to `MAX_JOINT_POINTS` points share the doublings of one ladder (Straus). More points go to
buckets (Pippenger): in every window of bits, points with equal digits go to one bucket, and the sum
of d * (bucket d) is the sum of all sums of the last buckets. `ops/host_points.py` adds lists of
points in affine form with one inversion for all: 5M + 1S a point, 3M of them for its share of the
inversion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.arrays.device_array import Shape
from gpu_executor.msm.plan import HOST_COSTS, MsmPlan, choose_window
from gpu_executor.ops.elementwise import Words
from gpu_executor.ops.host_points import (
    NAF_BITS,
    Jacobian,
    Point,
    PointArithmetic,
    get_arithmetic,
    load_integers,
    recode_windows,
)
from gpu_executor.ops.points import get_shape
from gpu_executor.ops.scalars import get_columns
from gpu_executor.primes.curve_key import CurveKey

MAX_JOINT_POINTS = 32
"""Up to so many points share the doublings of one ladder; of more, buckets are cheaper: a point
costs 43 additions of 11M on the ladder, and in 51 windows 51 additions of 6M to buckets, which take
another 16 additions a window."""


@dataclass(frozen=True, slots=True)
class HostMsmPlan:
    """How a batch of MSMs runs on the host."""

    points: int
    batch: int
    scalar_bits: int

    @property
    def window_bits(self) -> int | None:
        """The bits of a window; None where the points share the doublings of one ladder."""
        if self.points <= MAX_JOINT_POINTS:
            return None
        plan = MsmPlan(self.points, 1, self.scalar_bits, 2)
        return choose_window(plan, HOST_COSTS).window_bits

    def __str__(self) -> str:
        batch = f"{self.batch:,} x " if self.batch > 1 else ""
        head = f"{batch}{self.points:,} points on the host, with Python integers"
        bits = self.window_bits
        if bits is None:
            return (
                f"{head}\n  - ladder: digits of {NAF_BITS} bits, and doublings that all points "
                f"share, for up to {MAX_JOINT_POINTS} points"
            )
        return (
            f"{head}\n  - window: {bits} bits, which needs the fewest additions: "
            f"{self.scalar_bits // bits + 1} windows of a scalar of {self.scalar_bits} bits, "
            f"{1 << bits - 1:,} buckets a window"
        )


def run_on_host(curve: CurveKey, points: Words, scalars: Words, batch: Shape) -> Words:
    """The MSMs over the last axis of points (..., n) in either form: words in affine form. The
    scalars are words (..., n, words of a scalar) below the order. The leading axes of both are
    broadcast to `batch`."""
    arithmetic, (*leading, count) = get_arithmetic(curve), get_shape(curve, points)
    loaded, factors = arithmetic.load(points), load_integers(curve, scalars)
    point_rows = [loaded[at * count : (at + 1) * count] for at in range(math.prod(leading))]
    outer = scalars.shape[: scalars.ndim - len(get_columns(curve, scalars)) - 1]
    scalar_rows = [factors[at * count : (at + 1) * count] for at in range(math.prod(outer))]
    pairs = zip(_number_rows(tuple(leading), batch), _number_rows(outer, batch), strict=True)
    found = [compute(arithmetic, point_rows[one], scalar_rows[two]) for one, two in pairs]
    return arithmetic.store(found, batch)


def _number_rows(own: Shape, batch: Shape) -> list[int]:
    """The number of the row at each place of the batch, where NumPy's rules repeat rows."""
    numbers = np.arange(math.prod(own)).reshape(own)
    found: list[int] = np.broadcast_to(numbers, batch).ravel().tolist()
    return found


def compute(arithmetic: PointArithmetic, points: Sequence[Point], scalars: Sequence[int]) -> Point:
    """One MSM; the scalars are not negative."""
    pairs = zip(points, scalars, strict=True)
    kept = [(point, scalar) for point, scalar in pairs if point is not None and scalar]
    own, factors = [point for point, _ in kept], [scalar for _, scalar in kept]
    bits = max((scalar.bit_length() for scalar in factors), default=1)
    window = HostMsmPlan(len(kept), 1, bits).window_bits
    if window is None:
        ladder = arithmetic.climb(arithmetic.make_odd_multiples(own), factors)
        return arithmetic.to_affine([ladder])[0]
    return _add_to_buckets(arithmetic, own, factors, window, bits // window + 1)


def _add_to_buckets(
    arithmetic: PointArithmetic,
    points: Sequence[Point],
    scalars: Sequence[int],
    window: int,
    count: int,
) -> Point:
    """One MSM by buckets, in `count` windows of so many bits."""
    largest = 1 << window - 1
    buckets: list[list[Point]] = [[] for _ in range(count * largest)]
    opposites = arithmetic.negate(points)
    for point, opposite, scalar in zip(points, opposites, scalars, strict=True):
        for number, digit in enumerate(recode_windows(scalar, window, count)):
            if digit:
                chosen = point if digit > 0 else opposite
                buckets[number * largest + abs(digit) - 1].append(chosen)
    sums = arithmetic.sum_rows(buckets)
    # All windows at once: `running` is the sum of the last buckets, `totals` of all of these.
    running: list[Point] = [None] * count
    totals: list[Point] = [None] * count
    for digit in range(largest, 0, -1):
        next_buckets = [sums[number * largest + digit - 1] for number in range(count)]
        # The totals get the sums of the step before, so that one inversion serves both.
        added = arithmetic.add(running + totals, next_buckets + running)
        running, totals = added[:count], added[count:]
    totals = arithmetic.add(totals, running)
    result: Jacobian = None
    for total in reversed(totals):
        for _ in range(window):
            result = arithmetic.double_jacobian(result)
        result = arithmetic.add_mixed(result, total, False)
    return arithmetic.to_affine([result])[0]
