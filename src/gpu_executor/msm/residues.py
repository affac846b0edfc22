"""The stages of an MSM of few points on a device, in residues.

    points  -> multiples 1 to 8 of every point and its image
    scalars -> signed digits of 4 bits -> sums of chunks of each window -> windows -> join

There are no buckets: where additions wait for each other, a sum in residues
(glsl/curves/residues.glsl) takes a tenth of the time of one in limbs, and the sums of all windows
run side by side. How often a digit occurs does not matter.
"""

from __future__ import annotations

import threading

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernels.residues import POINT_WORDS
from gpu_executor.msm.digits import WORD, halve_scalars, make_halves
from gpu_executor.msm.plan import MULTIPLES, RESIDUE_WINDOW_BITS, MsmPlan
from gpu_executor.ops.points import make_residue_dispatch
from gpu_executor.primes.curve_key import CurveKey

LEAST_LENGTH, MOST_GROUPS = 8, 1 << 10
"""Points that a work-group adds at least, which take as long as a dispatch; and work-groups that
fill an NVIDIA H200, so that more of them would make more sums to add."""


class ResidueMsm:
    """A batch of MSMs of few points on a device: its arrays, and its stages. Points are affine
    points of words."""

    def __init__(self, device: ArrayDevice, curve: CurveKey, plan: MsmPlan) -> None:
        self._device, self._curve, self._plan = device, curve, plan
        self._lock = threading.Lock()
        self._is_compiled = False
        self._bases = (1 if plan.shares_points else plan.batch) * plan.terms
        self._table = self._make_points(self._bases * MULTIPLES)
        self._halves = None if plan.glv is None else make_halves(device, plan, plan.glv)
        self._rows = plan.batch * plan.windows
        self._lengths = choose_lengths(plan.terms, self._rows)
        self._sums, terms = list[DeviceArray](), plan.terms
        for length in self._lengths:
            terms = -(-terms // length)
            self._sums.append(self._make_points(self._rows * terms))

    def _make_points(self, count: int) -> DeviceArray:
        return self._device.empty((count, POINT_WORDS), WORD)

    def run(self, points: DeviceArray, scalars: DeviceArray, result: DeviceArray) -> None:
        """Submit everything at once; the MSMs of the batch go to `result`."""
        steps = [*self.make_multiples(points), *self.add_windows(scalars), *self.join(result)]
        if not self._is_compiled:
            self._is_compiled = True
            self._device.compile_ahead(steps)
        with self._lock:  # the arrays are those of one call
            self._device.submit(steps)

    def make_multiples(self, points: DeviceArray) -> list[Dispatch]:
        """The multiples 1 to 8 of all points, and of their images if the plan has halves."""
        push = self._plan.points, self._plan.terms, MULTIPLES
        return [self._dispatch("residue_multiples", (points, self._table), self._bases, push)]

    def add_windows(self, scalars: DeviceArray) -> list[Dispatch]:
        """The sums of all windows of all MSMs: of chunks of points, then of the sums of chunks."""
        plan, steps = self._plan, list[Dispatch]()
        if plan.glv is not None:
            assert self._halves is not None
            steps.append(halve_scalars(self._device, plan, plan.glv, scalars, self._halves))
            scalars = self._halves
        words, points = scalars.nbytes // (4 * plan.batch * plan.terms), self._table
        terms = plan.terms
        for length, sums in zip(self._lengths, self._sums, strict=True):
            chunks = -(-terms // length)
            push = terms, words, plan.windows, int(plan.shares_points), chunks, length
            arrays = scalars, points, sums
            steps.append(self._dispatch("residue_sums", arrays, self._rows * chunks, push))
            points, terms, words = sums, chunks, 0
        return steps

    def join(self, result: DeviceArray) -> list[Dispatch]:
        """The MSMs from the sums of their windows."""
        arrays, push = (self._sums[-1], result), (self._plan.windows, RESIDUE_WINDOW_BITS)
        return [self._dispatch("residue_join", arrays, self._plan.batch, push)]

    def _dispatch(
        self, operation: str, arrays: tuple[DeviceArray, ...], count: int, push: tuple[int, ...]
    ) -> Dispatch:
        return make_residue_dispatch(self._device, self._curve, operation, arrays, count, push)


def choose_lengths(terms: int, rows: int) -> list[int]:
    """The points that a work-group adds one after the other, for so many rows of them: those of a
    window first, then the sums of these, and so on, until a row has one sum."""
    lengths = list[int]()
    while terms > 1 or not lengths:
        length = max(LEAST_LENGTH, -(-terms * rows // MOST_GROUPS))
        # No dispatch for a few sums that the one before can add.
        lengths.append(terms if terms <= 2 * length else length)
        terms = -(-terms // lengths[-1])
    return lengths
