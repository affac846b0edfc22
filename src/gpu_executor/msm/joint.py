"""MSMs of several sets of points that a device computes together.

A prover needs several MSMs at once: of different points, of two curves, some with the same scalars.
Sets with the same scalars share a list of signed digits, sorted once. What takes a device longer to
wait for than to compute, the reduction of buckets, the join of windows and the affine form, runs
for all sets of a curve in the same dispatches.

    scalars of a list -> signed digits -> sort -+-> accumulate, combine   (a set) -+
                                                +-> accumulate, combine   (a set) -+
    scalars of a list -> signed digits -> sort -+-> accumulate, combine   (a set) -+
                                                                                   |
                          affine points <- join windows <- reduce buckets <- (all sets of a curve)

All lists have one window. The points are in limb form on the device, with their images if scalars
are halved.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice
from gpu_executor.kernels.curves import point_limbs
from gpu_executor.msm.plan import (
    DEVICE_COSTS,
    MsmPlan,
    choose_costs,
    has_rounds,
    plan_msm,
    with_rounds,
)
from gpu_executor.msm.stages import WORD, Msm
from gpu_executor.ops import elementwise
from gpu_executor.ops.points import AFFINE, make_points, to_affine, to_limb_form
from gpu_executor.primes import words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity


@dataclass(frozen=True, eq=False)
class PointSet:
    """The points of one MSM."""

    curve: CurveKey
    points: DeviceArray
    """In limb form, followed by their images if scalars are halved."""


@dataclass(frozen=True, eq=False)
class ScalarList:
    """Scalars of which one list of digits is made, and the sets of points that use it."""

    count: int
    """The scalars, and the points of each set without their images."""
    sets: tuple[PointSet, ...]


def make_point_set(curve: CurveKey, points: DeviceArray, image_factor: int | None) -> PointSet:
    """Affine points (n) of words as a set. `image_factor` is the cube root of unity that x of an
    image is multiplied by; None if scalars are not halved."""
    device: ArrayDevice = points.storage.device
    if image_factor is None:
        return PointSet(curve, to_limb_form(device, curve, points))
    prime = curve.prime
    if image_factor == find_cube_root_of_unity(prime.modulus):
        return PointSet(curve, to_limb_form(device, curve, points, with_images=True))
    # The kernel knows one of the two roots; a product of the field maps points by the other.
    factors = [image_factor] * curve.degree + [1] * curve.degree
    encoded = words.from_ints(prime, map(prime.in_form, factors))
    factor = device.put(encoded.reshape((AFFINE, *curve.coordinate_shape)))
    images: Any = elementwise.compute(prime, "mul", [points, factor])
    count = len(points)
    both = make_points(device, curve, 2 * count, coordinates=AFFINE)
    device.submit([ArrayCopy(points, both[:count]), ArrayCopy(images, both[count:])])
    return PointSet(curve, to_limb_form(device, curve, both))


BeginStage = Callable[[str, MsmPlan | None], None]
"""What is called before the steps of a stage are submitted, with its name, and with the plan of the
additions where it accumulates."""


def ignore_stage(_name: str, _plan: MsmPlan | None = None) -> None:
    """Proofs are not measured by stages."""


class JointMsm:
    """MSMs of several sets of points: their plan, and the steps of all stages."""

    def __init__(
        self, device: ArrayDevice, lists: Sequence[ScalarList], order_bits: int, glv: Glv | None
    ) -> None:
        """`order_bits` are the bits of a scalar. With `glv`, scalars are halved: all points are in
        the group of prime order."""
        self._device = device
        longest = max(lists, key=lambda own: own.count)
        costs = choose_costs(DEVICE_COSTS, longest.sets[0].curve, device.info)
        self.plan: MsmPlan = plan_msm(longest.count, 1, order_bits, glv, costs=costs)
        """The plan of the longest list. All lists have its window."""
        self._lists = [_DigitList(device, own, self.plan) for own in lists if own.count]
        self._is_used = [own.count > 0 for own in lists]
        self._curves: dict[CurveKey, list[_SetSums | None]] = {}
        """The sets of each curve; None for those of no points."""
        made = iter(self._lists)
        for own in lists:
            digits = next(made) if own.count else None
            for each in own.sets:
                sums = None if digits is None else _SetSums(device, digits, each)
                self._curves.setdefault(each.curve, []).append(sums)

    def run(
        self, scalars: Sequence[DeviceArray], begin: BeginStage = ignore_stage
    ) -> dict[CurveKey, DeviceArray]:
        """Submit all stages for the scalars of each list, words (n, words of a scalar). Returns the
        MSMs of each curve, in the order of the lists and their sets: affine points of words."""
        begin("digits, sort", None)
        for own, factors in zip(
            self._lists, itertools.compress(scalars, self._is_used), strict=True
        ):
            own.prepare(factors)
        every = itertools.chain.from_iterable(self._curves.values())
        for number, each in enumerate(every):  # in the order of the results
            if each is not None:
                begin(f"accumulate {number}", each.plan)
                each.accumulate()
        begin("reduce, join", None)
        return {curve: self._finish(curve, sets) for curve, sets in self._curves.items()}

    def _finish(self, curve: CurveKey, sets: Sequence[_SetSums | None]) -> DeviceArray:
        """The MSMs of all sets of a curve from the sums of their buckets."""
        device, count = self._device, self.plan.all_buckets
        buckets = device.empty((len(sets), count, point_limbs(curve)), WORD)
        for number, own in enumerate(sets):
            device.assign(buckets[number], np.uint32(0) if own is None else own.buckets)
        plan = dataclasses.replace(self.plan, batch=len(sets))
        result = make_points(device, curve, len(sets))
        flat = buckets.reshape((-1, point_limbs(curve)))
        Msm(device, curve, plan, has_table=True).finish(flat, result)
        return to_affine(curve, result)


class _DigitList:
    """The signed digits of one list of scalars, sorted by bucket."""

    def __init__(self, device: ArrayDevice, own: ScalarList, plan: MsmPlan) -> None:
        self.plan = dataclasses.replace(plan, points=own.count)
        self._msm = Msm(device, own.sets[0].curve, self.plan, has_table=True)
        self._entries = self._msm.make_entries()
        self.sorted: tuple[DeviceArray, DeviceArray]
        """Keys and entries, after `prepare`."""

    def prepare(self, scalars: DeviceArray) -> None:
        """Submit what makes the digits and sorts them."""
        self.sorted = self._msm.sort(*self._msm.split_scalars(scalars, *self._entries))


class _SetSums:
    """The sums of buckets of one set."""

    def __init__(self, device: ArrayDevice, digits: _DigitList, own: PointSet) -> None:
        plan = digits.plan
        if has_rounds(device, own.curve):
            plan = with_rounds(plan, device.info)
        self.plan = plan
        self._msm = Msm(device, own.curve, plan, has_table=True)
        self._digits, self._points = digits, own.points
        self.buckets = self._msm.make_buckets()

    def accumulate(self) -> None:
        """Submit the additions of all points to their buckets."""
        msm, entries = self._msm, self._digits.sorted
        rounds, sums = msm.find_pairs(*entries), msm.make_sums(self.buckets)
        msm.accumulate(*entries, self._points, rounds, sums)
        msm.combine(sums)
        msm.submit()
