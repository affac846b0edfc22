"""The stages of an MSM of few points on a device, in residues.

    points  -> multiples 1 to 8 of every point and its image
    scalars -> signed digits of 4 bits -> sums of chunks of each window -> windows -> join

There are no buckets: where additions wait for each other, a sum in residues
(glsl/curves/residues.glsl) takes a tenth of the time of one in limbs, and the sums of all windows
run side by side. How often a digit occurs does not matter.
"""

from __future__ import annotations

import math

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.kernels.residues import (
    POINT_WORDS,
    WORK_GROUP,
    encode_residue_constants,
    residue_kernel,
)
from gpu_executor.msm.plan import MULTIPLES, RESIDUE_WINDOW_BITS, MsmPlan
from gpu_executor.msm.stages import WORD, halve_scalars, make_halves
from gpu_executor.primes.curve_key import CurveKey


def get_residue_constants(device: ArrayDevice, curve: CurveKey) -> DeviceArray:
    """The constants of a curve for kernels in residues, on a device."""
    return device.cache(
        ("residue constants", curve),
        lambda: device.put(encode_residue_constants(curve).reshape(-1)),
    )


class ResidueMsm:
    """A batch of MSMs of few points on a device: its stages. Points are affine points of words."""

    def __init__(self, device: ArrayDevice, curve: CurveKey, plan: MsmPlan) -> None:
        self._device, self._curve, self._plan = device, curve, plan
        self._constants = get_residue_constants(device, curve)

    def run(self, points: DeviceArray, scalars: DeviceArray, result: DeviceArray) -> None:
        """Submit everything; the MSMs of the batch go to `result`."""
        plan, steps = self._plan, list[Step]()
        sets = 1 if plan.shares_points else plan.batch
        table = self._make_points(sets * plan.terms * MULTIPLES)
        push: tuple[int, ...] = plan.points, plan.terms, MULTIPLES
        steps.append(self._dispatch("residue_multiples", (points, table), sets * plan.terms, push))
        if plan.glv is not None:
            halves = make_halves(self._device, plan, plan.glv)
            steps.append(halve_scalars(self._device, plan, plan.glv, scalars, halves))
            scalars = halves
        words = scalars.nbytes // (4 * plan.batch * plan.terms)
        rows, terms = plan.batch * plan.windows, plan.terms
        length = choose_chunk_length(terms)
        while True:
            chunks = -(-terms // length)
            sums = self._make_points(rows * chunks)
            push = terms, words, plan.windows, int(plan.shares_points), chunks, length
            arrays = scalars, table, sums
            steps.append(self._dispatch("residue_sums", arrays, rows * chunks, push))
            if chunks == 1:
                break
            table, terms, words, length = sums, chunks, 0, chunks
        push = plan.windows, RESIDUE_WINDOW_BITS
        steps.append(self._dispatch("residue_join", (sums, result), plan.batch, push))
        self._device.submit(steps)

    def _make_points(self, count: int) -> DeviceArray:
        return self._device.empty((count, POINT_WORDS), WORD)

    def _dispatch(
        self, operation: str, arrays: tuple[DeviceArray, ...], count: int, push: tuple[int, ...]
    ) -> Dispatch:
        """A kernel with a work-group for each of `count` elements. The constants are its second
        array."""
        groups = min(count, self._device.info.limits.max_work_group_count[0])
        kernel, (first, *others) = residue_kernel(self._curve, operation), arrays
        return Dispatch(
            kernel,
            (first, self._constants, *others),
            count,
            push,
            groups=groups,
            work_group=WORK_GROUP,
        )


def choose_chunk_length(terms: int) -> int:
    """The points that a work-group adds one after the other, before the sums of chunks are added:
    about as many as there are chunks then."""
    return max(1 << math.ceil(math.log2(terms) / 2), 8)
