"""The stages of an MSM on a device: Pippenger's bucket method.

    scalars -> signed digits -> sort by bucket -> accumulate -> reduce buckets -> join windows
                                    |                 ^
                                    +- affine rounds -+

Scalars are split into windows of c bits. Each non-zero digit adds its point to a bucket of its
window, 2^(c-1) of them. The entries are sorted by bucket, so that every invocation adds equally
many points (glsl/curves/accumulate.comp). Of many entries, rounds of affine additions leave fewer
to accumulate (`AffineRounds`). A window is the sum of k times bucket k, and the result the sum of
2^(c w) times window w.

Where an endomorphism allows it, each point and its image have scalars of half the length
(`primes/glv.py`): as many additions to buckets, half as many windows. This halves the time of the
reduction and of the join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels.curves import (
    COORDINATES,
    count_lanes,
    encode_f64_constants,
    halved_lengths_kernel,
    pair_runs_kernel,
    point_limbs,
    run_bounds_kernel,
)
from gpu_executor.kernels.passes import clear_kernel
from gpu_executor.msm.digits import MsmDigits
from gpu_executor.msm.plan import (
    LEAST_PAIRS,
    ROUND_SUBGROUPS,
    MsmPlan,
    adds_in_groups,
    choose_f64_limbs,
    count_sums,
)
from gpu_executor.ops.points import (
    AFFINE,
    TERM_ITERATIONS,
    count_coordinates,
    count_steps,
    get_constants,
    get_shape,
    make_dispatch,
    make_points,
    make_residue_dispatch,
    to_limb_form,
)
from gpu_executor.ops.sort import exclusive_scan
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.prime import LimbLayout

SUBGROUPS = 8
"""Subgroups for each scheduler that fill a device with mixed additions: two of them give 85 % of
the rate of eight (NVIDIA H200)."""
F64_SUBGROUPS = 2 * 3
"""The same with f64 limbs. Registers leave room for three subgroups at a time, so these are two
turns: 4.64 G mixed additions a second on an NVIDIA H200, where 2^17 invocations, which are no whole
number of turns, gave 4.10."""
F64_LONG_SUBGROUPS, LONG_LENGTH = 2 * F64_SUBGROUPS, 256
"""The same where each invocation then adds at least so many entries. The turns end at different
times: additions of 2^22 points of BN254 G1 took an NVIDIA H200 13.26, 13.19, 13.01 and 13.15 ms in
2, 3, 4 and 8 turns, those of 2^20 points 3.52, 3.47, 3.52 and 3.45 ms. Adding the partial sums took
0.03 ms more in 4 turns than in 2, and 0.4 ms more in 8."""
LEAST_LENGTH, LEAST_GROUP_LENGTH = 32, 8
"""Entries that an invocation or a group adds at least. Fewer take less time, but each invocation
makes two partial sums, which are added too."""
MAX_LENGTH_ON_CPU = 32
"""Entries that an invocation adds at most on a software driver, which executes few at once and
would give each of them many. Lavapipe leaves loops after 65,535 iterations, and results are wrong
then: an entry takes about (31 + 13 LIMBS) d at degree d, 430 for BLS12-381 G2 and 790 at most."""
COMBINED_LENGTH = 16
"""Partial sums that an invocation adds."""
MIN_BLOCK_LENGTH, MAX_BLOCK_LENGTH = 2, 4
"""Partial sums of a block, whose short runs a group adds (glsl/curves/sum_runs.comp): the fewest,
and those where there are more partial sums than groups that fill a device. In blocks of one place
most groups have no run to add, and in long blocks additions wait for each other: both hold for
groups on any device. Blocks of 1, 2, 4 and 8 took an NVIDIA H200 in us, with 0.3 ms of the host
(BLS12-381 G1): 412, 378, 411 and 454 at 2^10 points, 614, 496, 547 and 611 at 2^12, 734, 540, 578
and 705 at 2^16, 1,495, 1,041, 974 and 1,003 at 2^18."""
NO_KEY = np.uint32(0xFFFFFFFF)
WORD = np.dtype(np.uint32)


def shift_points(curve: CurveKey, p: DeviceArray, tables: int, shift: int) -> DeviceArray:
    """2^(k * shift) P for k below `tables`: XYZZ points (tables, ...)."""
    device: ArrayDevice = p.storage.device
    shape = get_shape(curve, p)
    result = make_points(device, curve, tables, *shape)
    count = math.prod(shape)
    if count:
        arrays = to_limb_form(device, curve, p), get_constants(device, curve), result
        push = count_coordinates(curve, p), tables, shift
        device.submit([make_dispatch(device, curve, "shift_points", arrays, count, push)])
    return result


class AffineRounds:
    """Rounds of affine additions, ahead of the accumulation: their arrays, and what runs on them.

    The entries of a bucket are neighbours: a run. A round adds the points of every run in pairs, so
    that it is half as long, and the points stay affine. After some rounds the accumulation adds
    what is left. An affine addition takes 5M + 1S where many share one inverse, a mixed addition to
    an XYZZ point 8M + 2S. But it moves more memory: each round reads its points twice and writes
    their sums.

        keys -> starts, ends -> lengths after each round -> offsets -> pairs of all rounds
        points -> sums of round 0 -> sums of round 1 -> ...

    Where a run has an odd length, its last point is copied. So runs of any lengths are halved, and
    every sum has a place that the lengths determine.
    """

    def __init__(
        self, device: ArrayDevice, curve: CurveKey, entries: int, runs: int, rounds: int
    ) -> None:
        """For entries with keys below `runs`, sorted by key."""
        self._device, self._curve = device, curve
        self._entries, self._runs = entries, runs
        counts = [count_sums(entries, runs, number + 1) for number in range(rounds)]
        most = device.info.count_invocations(ROUND_SUBGROUPS)
        self._invocations = [min(-(-each // LEAST_PAIRS), most) for each in counts]
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
        vectors = 2 * (words // 4 if words % 4 == 0 else words)  # of a point
        by_point = layout = vectors, 1
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


@dataclass(frozen=True, slots=True)
class BucketSums:
    """The sums of buckets, as the accumulation kernel leaves them."""

    buckets: DeviceArray
    """The sums of buckets whose entries one invocation has, or 0."""
    partial_keys: DeviceArray
    partials: DeviceArray
    """Two partial sums for each invocation but the first, which has one."""
    invocations: int
    length: int
    """Entries of an invocation."""
    grouped: bool
    """Whether groups of invocations accumulate."""
    f64_limbs: LimbLayout | None
    """The f64 limbs with which invocations accumulate, or None for integer limbs."""


def choose_block_length(places: int, lanes: int, info: DeviceInfo) -> int:
    """The partial sums of a block, whose short runs a group of so many lanes adds."""
    filling = info.round_invocations(SUBGROUPS)
    return min(max(places * lanes // filling, MIN_BLOCK_LENGTH), MAX_BLOCK_LENGTH)


def choose_length(accumulated: int, lanes: int, info: DeviceInfo, *, grouped: bool) -> int:
    """The entries that an invocation adds on integer limbs, or a group of so many lanes."""
    wanted = max(info.round_invocations(SUBGROUPS) // lanes, 1)
    length = -(-accumulated // wanted)
    if info.kind == "cpu":
        length = min(length, MAX_LENGTH_ON_CPU)
    return max(length, LEAST_GROUP_LENGTH if grouped else LEAST_LENGTH)


def choose_f64_length(accumulated: int, info: DeviceInfo) -> int:
    """The entries that an invocation adds on f64 limbs."""
    most = info.count_invocations(F64_LONG_SUBGROUPS)
    is_long = accumulated >= most * LONG_LENGTH
    wanted = most if is_long else info.count_invocations(F64_SUBGROUPS)
    return max(-(-accumulated // wanted), LEAST_LENGTH)


def get_f64_constants(device: ArrayDevice, curve: CurveKey, limbs: LimbLayout) -> DeviceArray:
    """The constants of a curve for kernels with f64 limbs, on a device."""
    return device.cache(
        ("f64 constants", curve),
        lambda: device.put(encode_f64_constants(curve, limbs).view(np.uint32).reshape(-1)),
    )


class Msm:
    """A batch of MSMs on a device: its stages, each of several dispatches."""

    def __init__(
        self, device: ArrayDevice, curve: CurveKey, plan: MsmPlan, *, has_table: bool = False
    ) -> None:
        """With `has_table`, the points are tables in limb form, else affine points of words."""
        self._device, self._curve, self._plan = device, curve, plan
        self._has_table = has_table
        self._constants = get_constants(device, curve)
        self._lanes = count_lanes(curve, device.info)
        self._digits = MsmDigits(device, plan)
        self._steps: list[Step] = []

    def run(
        self,
        points: DeviceArray,
        scalars: DeviceArray,
        result: DeviceArray,
        *,
        is_converted: bool = False,
    ) -> None:
        """Submit everything; the MSMs of the batch go to `result`. `is_converted` says that the
        points are those that `convert` returns."""
        sorted_entries = self.sort(*self.split_scalars(scalars, *self.make_entries()))
        rounds, sums = self.find_pairs(*sorted_entries), self.make_sums()
        converted = points if is_converted else self.convert(points)
        self.accumulate(*sorted_entries, converted, rounds, sums)
        self.combine(sums)
        self.finish(sums.buckets, result)

    def convert(self, points: DeviceArray) -> DeviceArray:
        """The points in limb form: with their tables of multiples, which have denominators, if the
        plan has tables, and with their images if it has halves."""
        if self._has_table:
            return points
        plan = self._plan
        if plan.tables > 1:
            shift = plan.table_windows * plan.window_bits
            points = shift_points(self._curve, points, plan.tables, shift)
        with_images = plan.glv is not None
        return to_limb_form(self._device, self._curve, points, with_images=with_images)

    def submit(self) -> None:
        """Submit what the stages have prepared."""
        self._device.submit(self.take_steps())

    def take_steps(self) -> list[Step]:
        """What the stages have prepared, for the caller to submit."""
        steps, self._steps = self._steps, []
        return steps

    def make_entries(self) -> tuple[DeviceArray, ...]:
        """Arrays for the signed digits of all scalars."""
        return self._digits.make_entries()

    def split_scalars(self, scalars: DeviceArray, *entries: DeviceArray) -> tuple[DeviceArray, ...]:
        """Write the signed digits of all scalars to the arrays of `make_entries`."""
        self._device.submit(self._digits.split(scalars, entries))
        return entries

    def sort(self, *entries: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        """The keys and the entries of what `split_scalars` has written, ordered by bucket."""
        return self._digits.sort(*entries)

    def find_pairs(self, keys: DeviceArray, entries: DeviceArray) -> AffineRounds | None:
        """The pairs that the rounds of affine additions add; None if the plan has no rounds."""
        plan = self._plan
        if not plan.rounds:
            return None
        made = AffineRounds(self._device, self._curve, plan.entries, plan.all_buckets, plan.rounds)
        made.find_pairs(keys, entries)
        return made

    def _make_points(self, count: int) -> DeviceArray:
        return self._device.empty((count, point_limbs(self._curve)), WORD)

    def make_buckets(self) -> DeviceArray:
        """An array for the sums of buckets."""
        return self._make_points(self._plan.all_buckets)

    def make_sums(self, buckets: DeviceArray | None = None) -> BucketSums:
        """Arrays for the sums; those of buckets, in an array that is made or given, are 0."""
        plan, device = self._plan, self._device
        has_denominators = plan.tables > 1 and not self._has_table
        grouped = has_denominators or adds_in_groups(self._curve, device.info, plan.entries)
        f64_limbs = None if grouped else choose_f64_limbs(device, self._curve)
        if f64_limbs is not None:
            length = choose_f64_length(plan.accumulated, device.info)
        else:
            lanes = self._lanes if grouped else self._curve.degree
            length = choose_length(plan.accumulated, lanes, device.info, grouped=grouped)
        count = -(-plan.accumulated // length)
        buckets = self.make_buckets() if buckets is None else buckets
        # An assignment of 0, which computes the place of every word, takes four times as long.
        device.submit(
            [Dispatch(clear_kernel(), (buckets,), buckets.nbytes // 16, grid_stride=True)]
        )
        partial_keys, partials = device.empty((2 * count,), WORD), self._make_points(2 * count)
        return BucketSums(buckets, partial_keys, partials, count, length, grouped, f64_limbs)

    def accumulate(
        self,
        keys: DeviceArray,
        entries: DeviceArray,
        points: DeviceArray,
        rounds: AffineRounds | None,
        sums: BucketSums,
    ) -> None:
        """Add the points of all entries: in the rounds, then those that are left."""
        if rounds is not None:
            keys, points = rounds.keys, rounds.add(points)
        limbs, constants = sums.f64_limbs, self._constants
        if limbs is not None:
            constants = get_f64_constants(self._device, self._curve, limbs)
        written = sums.buckets, sums.partial_keys, sums.partials
        arrays = keys, entries, points, constants, *written
        coordinates = count_coordinates(self._curve, points)
        push = len(keys), sums.length, coordinates, int(rounds is None)
        count, grouped = sums.invocations, sums.grouped
        self._add("accumulate", arrays, count, push, grouped=grouped, f64_limbs=limbs)
        self.submit()

    def add_buckets(self, buckets: DeviceArray) -> DeviceArray:
        """The sums of two arrays of buckets, one behind the other."""
        count = self._plan.all_buckets
        sums = self.make_buckets()
        self._add("sum_pairs", (buckets, self._constants, sums), count, (1, count))
        return sums

    def finish(self, buckets: DeviceArray, result: DeviceArray) -> None:
        """Write the MSMs of the batch to `result`."""
        self.join(self.reduce(buckets), result)
        self.submit()

    def combine(self, sums: BucketSums) -> None:
        """Add the partial sums to their buckets."""
        device, partial_keys, partials = self._device, sums.partial_keys, sums.partials
        places = 2 * sums.invocations - 1
        if self._lanes > 1:
            long_keys = device.empty((places,), WORD)
            runs = partial_keys, partials, self._constants, sums.buckets, long_keys
            length = choose_block_length(places, self._lanes, device.info)
            self._add("sum_runs", runs, -(-places // length), (places, length))
            partial_keys = long_keys
        while True:
            count = -(-places // COMBINED_LENGTH)
            made = device.empty((2 * count,), WORD), self._make_points(2 * count)
            combined = partial_keys, partials, self._constants, sums.buckets, *made
            self._add("combine", combined, count, (places, COMBINED_LENGTH))
            if count == 1:
                return
            (partial_keys, partials), places = made, 2 * count - 1

    def reduce(self, buckets: DeviceArray) -> DeviceArray:
        """The weighted sum of the buckets of each window."""
        plan = self._plan
        windows, points = plan.batch * plan.table_windows, buckets
        for level in range(1, plan.window_bits):
            nodes = windows << (plan.window_bits - 1 - level)
            count = nodes * (level + 1)
            sums = self._make_points(count)
            self._add("sum_pairs", (points, self._constants, sums), count, (nodes, level))
            points = sums
        sums = self._make_points(windows)
        self._add_join(points, windows, plan.window_bits, 1, unshifted=True, sums=sums)
        return sums

    def join(self, windows: DeviceArray, result: DeviceArray) -> None:
        """Write the sums of all windows to the result: by one dispatch, or by several where the
        driver ends the loops of a longer one."""
        plan = self._plan
        most_steps = count_steps(self._device, self._curve, plan.batch, TERM_ITERATIONS)
        first, *others = plan.list_joins(most_steps)
        length, shift = plan.table_windows, plan.window_bits
        if others:
            rows = windows.reshape((plan.batch, length, -1))
            length = first.stop - first.start
            windows = self._make_terms(rows[:, first])
        for below in others:
            sums = self._make_points(plan.batch)
            self._add_join(windows, plan.batch, length, shift, sums=sums)
            length = below.stop - below.start + 1
            windows = self._make_terms(rows[:, below], sums)
        self._add_join(windows, plan.batch, length, shift, result=result)

    def _make_terms(self, windows: DeviceArray, above: DeviceArray | None = None) -> DeviceArray:
        """Copies of windows (batch, windows, limbs), each MSM with the term `above` behind them."""
        batch, count, limbs = windows.shape
        terms = self._make_points(batch * (count + (above is not None)))
        rows = terms.reshape((batch, -1, limbs))
        self._steps.append(ArrayCopy(windows, rows[:, :count]))
        if above is not None:
            self._steps.append(ArrayCopy(above, rows[:, count]))
        return terms

    def _add_join(
        self,
        terms: DeviceArray,
        count: int,
        length: int,
        shift: int,
        *,
        unshifted: bool = False,
        sums: DeviceArray | None = None,
        result: DeviceArray | None = None,
    ) -> None:
        """Append a join of terms, whose sums are limbs (`sums`) or words (`result`)."""
        unused = self._make_points(1)
        arrays = (
            terms,
            self._constants,
            unused if sums is None else sums,
            unused if result is None else result,
        )
        push = length, shift, int(unshifted), int(result is not None)
        if self._plan.joins_in_residues:
            operation, others = "join_by_residues", (terms, *arrays[2:])
            self._steps.append(
                make_residue_dispatch(self._device, self._curve, operation, others, count, push)
            )
            return
        self._add("join_windows", arrays, count, push)

    def _add(
        self,
        operation: str,
        arrays: tuple[DeviceArray, ...],
        count: int,
        push: tuple[int, ...],
        *,
        grouped: bool | None = None,
        f64_limbs: LimbLayout | None = None,
    ) -> None:
        """Append a dispatch for `count` elements; `grouped` and `f64_limbs` choose among
        variants."""
        device, curve = self._device, self._curve
        dispatch = make_dispatch(
            device, curve, operation, arrays, count, push, grouped=grouped, f64_limbs=f64_limbs
        )
        self._steps.append(dispatch)
