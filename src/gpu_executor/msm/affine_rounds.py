"""Rounds of affine additions, ahead of the accumulation of a multi-scalar multiplication.

The entries of a bucket are neighbours: a run. A round adds the points of every run in pairs, so
that it is half as long, and the points stay affine. After some rounds the accumulation adds what is
left. An affine addition takes 5M + 1S where many share one inverse, a mixed addition to an XYZZ
point 8M + 2S. But it moves more memory: each round reads its points twice and writes their sums.

    keys -> starts, ends -> lengths after each round -> offsets -> pairs of all rounds
    points -> sums of round 0 -> sums of round 1 -> ...

Where a run has an odd length, its last point is copied. So runs of any lengths are halved, and
every sum has a place that the lengths determine.
"""

from __future__ import annotations

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.kernels.curves import (
    COORDINATES,
    halved_lengths_kernel,
    pair_runs_kernel,
    point_limbs,
    run_bounds_kernel,
)
from gpu_executor.ops.points import AFFINE, get_constants, make_dispatch, make_points
from gpu_executor.ops.sort import exclusive_scan
from gpu_executor.primes.curve_key import CurveKey

INVOCATIONS = 132 * 16 * 32 * 2
"""Invocations of a round at most. Each of the 132 multiprocessors of an NVIDIA H200 runs 16
subgroups at a time, so these are two turns: 2.48 G additions a second in the first round of 2^22
points of BLS12-381 G1, where 1.5 turns give 2.44 and one turn 2.42."""
LEAST_PAIRS = 32
"""Pairs of an invocation at least, which share an inverse: it takes as long as 45 products."""
LEAST_ROUND_PAIRS = 1 << 22
"""Pairs of a round at least; the accumulation adds fewer points in less time. The additions of
2^20 and 2^22 points of BLS12-381 G1 to buckets took an NVIDIA H200 in ms, by the number of rounds:

    2^20    none 8.68, two 8.38, three 8.30, four 8.67
    2^22    none 33.9, two 29.7, three 28.6, four 28.3, five 29.1
"""
NO_KEY = np.uint32(0xFFFFFFFF)
WORD = np.dtype(np.uint32)


def choose_rounds(entries: int, runs: int) -> int:
    """The rounds for so many entries with keys below `runs`: as long as a round has enough pairs,
    and runs of random keys have two points or more after it."""
    rounds = 0
    while entries >> rounds + 1 >= max(LEAST_ROUND_PAIRS, 2 * runs):
        rounds += 1
    return rounds


def count_sums(entries: int, runs: int, rounds: int) -> int:
    """The points that are left of so many entries at most: of each run half of its points in every
    round, rounded up."""
    return (entries >> rounds) + (runs if rounds else 0)


class AffineRounds:
    """The arrays of all rounds, and what runs on them."""

    def __init__(
        self, device: ArrayDevice, curve: CurveKey, entries: int, runs: int, rounds: int
    ) -> None:
        """For entries with keys below `runs`, sorted by key."""
        self._device, self._curve = device, curve
        self._entries, self._runs = entries, runs
        counts = [count_sums(entries, runs, number + 1) for number in range(rounds)]
        self._invocations = [min(-(-each // LEAST_PAIRS), INVOCATIONS) for each in counts]
        self._bounds = [device.empty((runs,), WORD) for _ in range(2)]
        self._lengths = device.empty((rounds * runs + 1,), WORD)
        self._offsets = self._lengths  # until there are some
        self._pairs = device.empty((sum(counts), 2), WORD)
        limbs = point_limbs(curve) // COORDINATES
        self._products = device.empty(((counts[0] + self._invocations[0]) * limbs,), WORD)
        # The sums of a round take the place of those two rounds before.
        arrays = [make_points(device, curve, each, coordinates=AFFINE) for each in counts[:2]]
        self._sums = [arrays[number % 2][:each] for number, each in enumerate(counts)]
        self.keys = device.empty((counts[-1],), WORD)
        """The keys of the sums of the last round, and NO_KEY behind them."""

    def find_pairs(self, keys: DeviceArray, entries: DeviceArray) -> None:
        """Submit what finds the pairs of all rounds. An entry is the index of a point, with the
        topmost bit set where the point is subtracted. A key is NO_KEY where there is no entry."""
        device, (starts, ends) = self._device, self._bounds
        for each in self._bounds:
            device.assign(each, np.uint32(0))
        device.assign(self.keys, NO_KEY)
        bounds = keys, starts, ends
        lengths, count = (starts, ends, self._lengths), len(self._lengths)
        steps: list[Step] = [
            Dispatch(run_bounds_kernel(), bounds, self._entries, grid_stride=True),
            Dispatch(halved_lengths_kernel(), lengths, count, (self._runs,), grid_stride=True),
        ]
        device.submit(steps)
        self._offsets = exclusive_scan(device, self._lengths)
        arrays = keys, entries, starts, ends, self._offsets, self._pairs, self.keys
        push = self._runs, len(self._sums)
        device.submit([Dispatch(pair_runs_kernel(), arrays, self._entries, push, grid_stride=True)])

    def add(self, points: DeviceArray) -> DeviceArray:
        """Submit all rounds; returns the sums of the last one, whose keys are `keys`."""
        constants = get_constants(self._device, self._curve)
        steps: list[Step] = []
        words = self._curve.prime.element_bytes // 4
        chunks = 2 * (words // 4 if words % 4 == 0 else words)  # of a point
        by_point = layout = chunks, 1
        for number, (sums, count) in enumerate(zip(self._sums, self._invocations, strict=True)):
            target = (1, len(sums)) if number + 1 < len(self._sums) else by_point
            arrays = self._pairs, points, constants, self._offsets, sums, self._products
            push = number * self._runs, self._runs, *layout, *target
            steps.append(
                make_dispatch(
                    self._device, self._curve, "add_pairs", arrays, count, push, grouped=False
                )
            )
            points, layout = sums, target
        self._device.submit(steps)
        return points
