"""How an MSM is split: its windows, its tables of multiples, its rounds of affine additions.

`MsmPlan` says it. One function chooses the window of every kind of MSM, `choose_window`, by what
additions cost there (`WindowCosts`):

    plan_msm         points on a device            DEVICE_COSTS
    plan_tables      a table of fixed points       TABLE_COSTS
    plan_sets        sets of points with tables    SET_COSTS
    HostMsmPlan      points on the host            HOST_COSTS

`parts.py` divides plans that exceed a device.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import sys
from dataclasses import dataclass

import numpy as np

from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import DEFAULT, get_profile
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.kernels.curves import count_lanes, curve_limbs, f64_curve_limbs
from gpu_executor.kernels.residues import POINT_WORDS, choose_bases
from gpu_executor.kernels.residues import WORK_GROUP as RESIDUE_WORK_GROUP
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import LEAST_WINDOW_BITS, Glv
from gpu_executor.primes.prime import LimbLayout

ADDITIONS_PER_BUCKET = 2
"""In the reduction of the buckets, all levels together."""
GROUPED_SUBGROUPS = 16
"""Below as many entries as invocations with so many subgroups for each scheduler, groups of
invocations accumulate: single ones, which add 32 entries at least, would leave half of the
schedulers idle."""
SHIFTED_TABLES, SHIFTED_SUBGROUPS = 2, 1
"""Tables of multiples that an MSM of few points makes, and the subgroups for each scheduler that
compute them at most: one for each takes no longer than a single one."""
MOVED_COORDINATES, SAVED_PRODUCTS, LIMBS_OF_255_BITS = 12.5, 3.8, 9
"""What a pair of an affine round moves, in coordinates: both points twice (a read of x brings y
along), their sum, and a product of denominators, which is written and read. And what it saves, in
products of the trial of a device: a mixed addition takes as long as 11.4 products, an affine one 6,
and a product of the trial as long as 1.4. These are ratios of kernels with equal products. What
depends on the device, the bytes that it moves in the time of a product, is measured on it
(`ArrayDevice.bytes_per_product`): 110 on an NVIDIA H200."""
ROUND_SUBGROUPS = 2 * 4
"""Subgroups of a round for each scheduler at most: registers leave room for four at a time, so
these are two turns. An NVIDIA H200 ran 2.48 G additions a second in the first round of 2^22 points
of BLS12-381 G1, and with 1.5 turns 2.44, with one turn 2.42."""
LEAST_PAIRS = 32
"""Pairs of an invocation at least, which share an inverse: it takes as long as 45 products. A round
has so many for each of its invocations, else the accumulation adds its points in less time. The
additions of 2^20 and 2^22 points of BLS12-381 G1 to buckets took an NVIDIA H200, where a round has
2^22 pairs at least, in ms, by the number of rounds:

    2^20    none 8.68, two 8.38, three 8.30, four 8.67
    2^22    none 33.9, two 29.7, three 28.6, four 28.3, five 29.1
"""
TABLE_BYTES, TABLE_BYTES_ON_CPU = 1 << 30, 1 << 26
"""Memory of the tables of fixed points, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class MsmPlan:
    """How a batch of MSMs is split."""

    points: int
    batch: int
    scalar_bits: int
    window_bits: int
    tables: int = 1
    """Tables of multiples of the points: windows that use different tables share their buckets."""
    shares_points: bool = True
    """Whether all MSMs of the batch have the same points; otherwise each has points of its own."""
    point_sets: int | None = None
    """Sets of points, if neither is so: MSM b has set b // msms_per_set % point_sets."""
    msms_per_set: int = 1
    glv: Glv | None = None
    """How scalars are split into halves, whose bits are `scalar_bits`; None if they are not."""
    rounds: int = 0
    """Rounds of affine additions ahead of the accumulation."""
    in_residues: bool = False
    """Whether sums of multiples of all points, in residues, take the place of buckets."""
    joins_in_residues: bool = False
    """Whether windows are joined in residues."""

    @property
    def terms(self) -> int:
        """Points of an MSM and their images."""
        return self.points if self.glv is None else 2 * self.points

    @property
    def table_windows(self) -> int:
        """Windows that use one table, and so the windows that have buckets."""
        return -(-self.windows // self.tables)

    @property
    def windows(self) -> int:
        """Windows of a scalar; the topmost has room for the carry of the signed digits. In residues
        these are at most 7, so that scalars, which halves in two's complement are not, need a bit
        more."""
        carry = 2 if self.in_residues and self.glv is None else 1
        return -(-(self.scalar_bits + carry) // self.window_bits)

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
        return self.batch * self.windows * self.terms

    @property
    def accumulated(self) -> int:
        """Points that are left to accumulate after the rounds, at most."""
        return count_sums(self.entries, self.all_buckets, self.rounds)

    def list_joins(self, most_steps: int) -> list[slice]:
        """The windows that each dispatch joins, the topmost first, if a dispatch runs at most so
        many additions and doublings of an MSM, or 0 for any number. All but the first have one term
        more: the sum of the windows above.

        The limit does not matter for the choice of the window: on lavapipe another dispatch takes
        as long as 10 additions (P-521), and windows that need fewer steps hundreds of additions."""
        windows, step = self.table_windows, self.window_bits + 1
        if not most_steps or windows * step <= most_steps:
            return [slice(0, windows)]
        # Two terms fit: a part on a CPU has at most 2^22 digits, so 2^21 sums of two windows. An
        # invocation that joins 5 of them may run 93 steps of each, and two terms take 46 at most.
        terms = max(most_steps // step, 2)
        stops = [windows, *range(windows - terms, 0, 1 - terms), 0]
        return [slice(first, last) for last, first in itertools.pairwise(stops)]

    def __str__(self) -> str:
        tables = f" and {self.tables} tables of multiples" if self.tables > 1 else ""
        batch = f"{self.batch:,} x " if self.batch > 1 else ""
        images = "" if self.glv is None else " and their images"
        if self.in_residues:
            return (
                f"{batch}{self.points:,} points{images} in {self.windows} windows of "
                f"{self.window_bits} bits: {self.entries:,} additions in residues, without buckets"
            )
        kind = f"additions ({self.rounds} rounds of affine ones, then mixed ones)"
        return (
            f"{batch}{self.points:,} points{images} in {self.windows} windows of "
            f"{self.window_bits} bits{tables}: {self.entries:,} "
            f"{kind if self.rounds else 'mixed additions'} to {self.all_buckets:,} buckets"
        )


@dataclass(frozen=True, slots=True)
class WindowCosts:
    """What the choice of a window depends on where an MSM runs: the times of its additions, in
    mixed additions by single invocations."""

    max_bits: int
    """The bits of the widest window."""
    bucket: float
    """An addition in the reduction of the buckets."""
    grouped_bucket: float | None = None
    """The same where groups of invocations accumulate: of few entries, and of tables that the call
    makes."""
    grouped_entries: int = 0
    """Entries below which groups accumulate."""
    doubling: float = 0
    """A doubling of tables that the call makes, one after the other."""

    def estimate(self, plan: MsmPlan) -> float:
        """The time of all additions of a plan."""
        bucket = self.bucket
        is_grouped = plan.tables > 1 or plan.entries < self.grouped_entries
        if self.grouped_bucket is not None and is_grouped:
            bucket = self.grouped_bucket
        doublings = plan.tables * plan.table_windows * plan.window_bits if plan.tables > 1 else 0
        additions = plan.entries + plan.all_buckets * ADDITIONS_PER_BUCKET * bucket
        return additions + doublings * self.doubling


RESIDUE_WINDOW_BITS = 4
"""Bits of a window in residues; glsl/curves/residue_sums.comp has the number too."""
MULTIPLES = 1 << RESIDUE_WINDOW_BITS - 1
"""Multiples of a point, of which a digit adds one."""
RESIDUE_ENTRIES = 1 << 17
"""Digits of all scalars up to which a device with MEASURED_LANES computes in residues."""
TABLE_DIVISOR = 2
"""Where there is a table of the points, residues are used for so many times fewer digits. An NVIDIA
H200, in ms: 2^6 points of BLS12-381 G1 0.89 in residues and 1.30 by a table, 2^10 points 1.22 and
1.51, of BN254 G1 0.97 and 1.00. 2^11 points: 1.50 and 1.56, and 1.27 and 1.05."""
MAX_MULTIPLES_BYTES = 1 << 24
"""Memory for the multiples of all points, which every device can bind: 2^11 points and their images
take 12 MiB. Short scalars have few digits, so their number alone would admit any number of
points."""
MEASURED_LANES, DOUBLING_COST = 528 * 32, 2900
"""The time of a doubling that all others wait for, in additions by groups that fill the device, and
the parallelism of the device where it was measured. The wait is as long on a larger device, which
adds more in that time. On an NVIDIA H200 it is 4.9 us: 2^10 points of BLS12-381 G1 are added in
windows of 8 bits, which take 1.08 ms, those of 10 bits 1.14 ms."""
DEVICE_COSTS = WindowCosts(
    22, DEFAULT.bucket_cost, grouped_bucket=1, grouped_entries=1 << 18, doubling=DOUBLING_COST
)
"""With the numbers of that device; `choose_costs` has those of others."""
TABLE_COSTS = WindowCosts(22, DEFAULT.bucket_cost)
SET_COSTS, SET_COSTS_ON_CPU = WindowCosts(12, DEFAULT.bucket_cost), WindowCosts(12, 1)
"""Sets have few points, so larger windows never take less time."""
HOST_COSTS = WindowCosts(16, 1)
"""Python adds all points in affine form, so that all additions take equally long."""


def count_grouped_entries(info: DeviceInfo) -> int:
    """The entries below which groups of invocations accumulate."""
    return info.round_invocations(GROUPED_SUBGROUPS)


def adds_in_groups(curve: CurveKey, info: DeviceInfo, entries: int) -> bool:
    """Whether groups of invocations, or the serial variant, accumulate so many entries."""
    return (
        entries < count_grouped_entries(info)
        or count_lanes(curve, info) == 1
        or (curve.degree > 1 and get_profile(info).groups_extension_points)
    )


def choose_costs(costs: WindowCosts, curve: CurveKey, info: DeviceInfo) -> WindowCosts:
    """The same costs on a device whose groups of invocations add. Where groups accumulate any
    number of entries, all additions take equally long."""
    if count_lanes(curve, info) == 1:
        return costs
    in_groups = adds_in_groups(curve, info, sys.maxsize)
    bucket = 1 if in_groups else get_profile(info).bucket_cost
    return _scale_costs(costs, bucket, info.parallelism, count_grouped_entries(info))


@functools.lru_cache(maxsize=64)
def _scale_costs(
    costs: WindowCosts, bucket: float, parallelism: int, grouped_entries: int
) -> WindowCosts:
    return dataclasses.replace(
        costs,
        bucket=bucket,
        grouped_entries=grouped_entries if costs.grouped_entries else 0,
        doubling=costs.doubling * parallelism / MEASURED_LANES,
    )


def choose_window(
    plan: MsmPlan,
    costs: WindowCosts,
    *,
    max_tables: int | None = None,
    window_bits: int | None = None,
) -> MsmPlan:
    """The same plan with the window that takes the least time, or with `window_bits`. With
    `max_tables` it gets as many tables of multiples as its windows can use, up to so many."""
    if plan.in_residues:
        return plan
    plans = []
    for bits in _list_windows(plan, costs) if window_bits is None else [window_bits]:
        made = dataclasses.replace(plan, window_bits=bits)
        if max_tables is not None:
            rows = -(-made.windows // min(max_tables, made.windows))
            made = dataclasses.replace(made, tables=-(-made.windows // rows))
        plans.append(made)
    return min(plans, key=costs.estimate)


def _list_windows(plan: MsmPlan, costs: WindowCosts) -> range:
    """The bits of all windows that a plan may have."""
    least = 2 if plan.glv is None else LEAST_WINDOW_BITS
    return range(least, get_max_window_bits(plan.scalar_bits, costs) + 1)


def get_max_window_bits(scalar_bits: int, costs: WindowCosts) -> int:
    """The most bits of a window of such scalars."""
    return min(costs.max_bits, scalar_bits + 1)


@functools.lru_cache(maxsize=256)
def plan_msm(
    points: int,
    batch: int,
    scalar_bits: int,
    glv: Glv | None = None,
    *,
    shares_points: bool = True,
    tables: int = 1,
    costs: WindowCosts = DEVICE_COSTS,
) -> MsmPlan:
    """Choose the window. With `glv`, scalars longer than halves are split into halves."""
    if glv is not None and scalar_bits <= glv.scalar_bits:
        glv = None
    bits = scalar_bits if glv is None else glv.scalar_bits
    plan = MsmPlan(points, batch, bits, 2, tables, shares_points, glv=glv)
    return choose_window(plan, costs)


def plan_residues(
    curve: CurveKey,
    points: int,
    batch: int,
    scalar_bits: int,
    glv: Glv | None,
    info: DeviceInfo,
    *,
    shares_points: bool,
    has_table: bool = False,
) -> MsmPlan | None:
    """The plan of few points in residues; None for others, for points that may be outside of the
    group of prime order (`glv` is None), whose sums may be exceptions of the formulas, and for
    curves and devices without such kernels.

    `has_table` says that a table of the points would take the place of residues.
    """
    if glv is None or not has_residues(curve, info):
        return None
    own = glv if scalar_bits > glv.scalar_bits else None
    plan = MsmPlan(
        points,
        batch,
        scalar_bits if own is None else own.scalar_bits,
        RESIDUE_WINDOW_BITS,
        shares_points=shares_points,
        glv=own,
        in_residues=True,
    )
    most = RESIDUE_ENTRIES * info.parallelism // MEASURED_LANES
    if has_table:
        most //= TABLE_DIVISOR
    bases = plan.terms * (1 if shares_points else batch)
    return plan if plan.entries <= most and _fit_multiples(bases) else None


def fits_residues(curve: CurveKey, points: int, info: DeviceInfo) -> bool:
    """Whether so many points of the group of prime order and their images may be added in
    residues."""
    return has_residues(curve, info) and _fit_multiples(2 * points)


def _fit_multiples(bases: int) -> bool:
    return bases * MULTIPLES * 4 * POINT_WORDS <= MAX_MULTIPLES_BYTES


def has_residues(curve: CurveKey, info: DeviceInfo) -> bool:
    """Whether a device computes with points of a curve in residues: where groups of lanes add, and
    idle lanes shorten a chain of additions."""
    if count_lanes(curve, info) == 1 or choose_bases(curve) is None:
        return False
    return info.limits.max_work_group_invocations >= RESIDUE_WORK_GROUP


def choose_tables(curve: CurveKey, points: int, batch: int, info: DeviceInfo) -> int:
    """The tables of multiples that a call makes of the points that all its MSMs share.

    Half of the doublings then come before the additions. They need no scalars: the device computes
    them while the host prepares the scalars. Only groups of invocations add such points, which have
    denominators."""
    lanes = count_lanes(curve, info)
    if lanes == 1 or points * lanes > info.round_invocations(SHIFTED_SUBGROUPS):
        return 1
    costs = choose_costs(DEVICE_COSTS, curve, info)
    bits = curve.order.bit_length()
    plan = plan_msm(points, batch, bits, tables=SHIFTED_TABLES, costs=costs)
    return SHIFTED_TABLES if plan.entries < count_grouped_entries(info) else 1


def has_rounds(device: ArrayDevice, curve: CurveKey) -> bool:
    """Whether rounds of affine additions gain time: on integer limbs, on a GPU that moves what a
    pair takes in less time than the products that its affine addition saves. With f64 limbs the
    accumulation of BN254 G1 is as fast without them (docs/experiments.md)."""
    if curve.degree > 1 or count_lanes(curve, device.info) == 1:
        return False
    if choose_f64_limbs(device, curve) is not None:
        return False
    products = SAVED_PRODUCTS * (curve_limbs(curve).count / LIMBS_OF_255_BITS) ** 2
    moved = MOVED_COORDINATES * curve.prime.element_bytes
    return moved <= products * device.bytes_per_product


def count_round_pairs(info: DeviceInfo) -> int:
    """The pairs of a round at least: `LEAST_PAIRS` for each of its invocations."""
    return info.round_invocations(ROUND_SUBGROUPS * LEAST_PAIRS)


def choose_rounds(entries: int, runs: int, least_pairs: int) -> int:
    """The rounds for so many entries with keys below `runs`: as long as a round has `least_pairs`,
    and runs of random keys have two points or more after it."""
    rounds = 0
    while entries >> rounds + 1 >= max(least_pairs, 2 * runs):
        rounds += 1
    return rounds


def count_sums(entries: int, runs: int, rounds: int) -> int:
    """The points that are left of so many entries at most: of each run half of its points in every
    round, rounded up."""
    return (entries >> rounds) + (runs if rounds else 0)


def resize_plan(plan: MsmPlan, points: int, info: DeviceInfo) -> MsmPlan:
    """The same plan for a number of points, with the rounds for it if the plan has any."""
    made = dataclasses.replace(plan, points=points)
    return with_rounds(made, info) if plan.rounds else made


def with_rounds(plan: MsmPlan, info: DeviceInfo) -> MsmPlan:
    """The same plan with the rounds of affine additions that gain time on a device: none for the
    tables that a call makes, whose points have denominators."""
    if plan.tables > 1 or plan.in_residues:
        return plan
    rounds = choose_rounds(plan.entries, plan.all_buckets, count_round_pairs(info))
    return dataclasses.replace(plan, rounds=rounds)


def plan_tables(
    curve: CurveKey, points: int, info: DeviceInfo, window: int | None, memory: int | None
) -> MsmPlan:
    """Choose the windows and the tables of multiples of fixed points, within `memory` bytes."""
    for name, value in (("window", window), ("memory", memory)):
        if value is not None and (
            isinstance(value, bool | np.bool_) or not hasattr(value, "__index__")
        ):
            raise ArgumentTypeError(f"precompute: {name} is {value!r}; it must be a whole number")
    window = None if window is None else operator.index(window)
    memory = None if memory is None else operator.index(memory)
    plan = MsmPlan(points, 1, curve.order.bit_length(), 2)
    widest = get_max_window_bits(plan.scalar_bits, TABLE_COSTS)
    if window is not None and not 2 <= window <= widest:
        raise ArgumentTypeError(f"window={window}: a window has 2 to {widest} bits")
    default = TABLE_BYTES_ON_CPU if info.kind == "cpu" else TABLE_BYTES
    budget, nbytes = default if memory is None else memory, count_table_bytes(curve, points)
    if budget < nbytes:
        raise ArgumentTypeError(
            f"memory={budget:,}: one table of {points:,} points takes {nbytes:,} bytes"
        )
    costs = choose_costs(TABLE_COSTS, curve, info)
    return choose_window(plan, costs, max_tables=budget // nbytes, window_bits=window)


def plan_sets(
    curve: CurveKey, points: int, sets: int, info: DeviceInfo, memory: int | None = None
) -> MsmPlan:
    """Choose the windows of MSMs of sets of so many points, and the tables of multiples within
    `memory` bytes; without it, a table for each window."""
    bits = curve.order.bit_length()
    plan = MsmPlan(points, 1, bits, 2, point_sets=sets)
    costs = SET_COSTS_ON_CPU if info.kind == "cpu" else SET_COSTS
    most = bits if memory is None else memory // count_table_bytes(curve, sets * points)
    return choose_window(plan, choose_costs(costs, curve, info), max_tables=most)


def count_table_bytes(curve: CurveKey, points: int) -> int:
    """The bytes of one table of so many points."""
    return 2 * curve.degree * curve.prime.element_bytes * points


def choose_f64_limbs(device: ArrayDevice, curve: CurveKey) -> LimbLayout | None:
    """The f64 limbs with which single invocations accumulate, or None for integer limbs.

    Only curves with such limbs ask the device: `ArrayDevice.f64_limbs` runs a benchmark at its
    first use.
    """
    limbs = f64_curve_limbs(curve)
    if limbs is None or not get_profile(device.info).f64_accumulation:
        return None
    return limbs if device.f64_limbs else None
