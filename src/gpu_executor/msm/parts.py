"""The parts of an MSM on a device: of its points, and of the MSMs of a batch.

The points and the MSMs of a part are chosen so that the memory of a part fits the device. At most
`PARTS_IN_FLIGHT` parts are submitted and not completed: the host copies a part while the device
computes the part before, and the memory stays bounded. `run.py` runs them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import get_profile
from gpu_executor.kernels.curves import point_limbs
from gpu_executor.msm.plan import (
    DEVICE_COSTS,
    MsmPlan,
    choose_costs,
    choose_f64_limbs,
    choose_tables,
    choose_window,
    has_residues,
    has_rounds,
    plan_msm,
    plan_residues,
    with_rounds,
)
from gpu_executor.msm.prepared import SlicedMsm
from gpu_executor.msm.residues import ResidueMsm
from gpu_executor.msm.stages import Msm
from gpu_executor.ops.points import AFFINE, get_constants, make_points
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv

PARTS_IN_FLIGHT = 2
"""Parts that are submitted and not completed: the device computes one, the host prepares the
next."""
MAX_ENTRIES, MAX_ENTRIES_ON_CPU = 1 << 27, 1 << 22
"""Entries of several MSMs that are sorted at once: 2 GiB of keys and values on a GPU. On a CPU the
points of one MSM are divided too, because a part takes seconds."""
MAX_PART_ENTRIES = 0x7FFFFFFF
"""Entries of a part: kernels number points and entries with 31 bits."""
COPIED_POINTS = 1 << 22
"""Points of a part that is copied from the host: 400 MB of BLS12-381 G1. The copy of a part
overlaps with the additions of the part before, and only that of the first part with nothing. A copy
takes less time than its additions even on the fastest GPU that was tried, an NVIDIA H200: 17 and 28
ms; slower GPUs take longer to add than to copy by more."""
SLICE_MULTIPLE = 1 << 8
"""The first slice is a quarter of the points, rounded down to a multiple: the second slice of an
array then begins where a device can bind a buffer."""
LEAST_POINTS = 1 << 10
"""Points of a part at least. Where the memory does not suffice for them, the call fails."""
RECORDED_SHARE = 0.125
"""The share of the device's free memory that a part may use and have its commands recorded, so that
its arrays stay for the next call."""
MEMORY_SHARE = 0.75
"""The share of the device's free memory that a call uses."""


@dataclass(frozen=True, slots=True)
class MsmParts:
    """How a batch of MSMs on a device is divided, with the reason for each choice."""

    points: int
    batch: int
    part: MsmPlan
    """The plan of the largest part: its points, and the MSMs that run at once."""
    device: str
    nbytes: int
    """Device memory of the parts in flight, besides the arrays of the caller."""
    reasons: tuple[str, ...]
    records: bool = False
    """Whether the arrays and the commands of a part are kept for the next call."""
    slices: tuple[int, ...] | None = None
    """The points of each slice in which scalars are copied, after the device has begun with the
    points, in a call in one part; None if all scalars are copied before that."""

    @property
    def point_ranges(self) -> list[slice]:
        """The points of each part. Their numbers differ by 1 at most, so that the memory of a part
        serves the next part."""
        return split_evenly(self.points, -(-self.points // self.part.points))

    @property
    def batch_ranges(self) -> list[slice]:
        """The MSMs of the batch that run at once."""
        return split_evenly(self.batch, -(-self.batch // self.part.batch))

    @property
    def is_smallest(self) -> bool:
        """Whether a part cannot be smaller."""
        return self.part.batch == 1 and self.part.points <= LEAST_POINTS

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.point_ranges) * len(self.batch_ranges)

    def plan_range(self, msms: slice, points: slice) -> MsmPlan:
        """The plan of one part."""
        return dataclasses.replace(
            self.part, points=points.stop - points.start, batch=msms.stop - msms.start
        )

    def __str__(self) -> str:
        batch = f"{self.batch:,} x " if self.batch > 1 else ""
        parts = "1 part:" if self.count == 1 else f"{self.count:,} parts, each of up to"
        head = f"{batch}{self.points:,} points on {self.device}, in {parts} {self.part}"
        return "\n".join([head, *(f"  - {reason}" for reason in self.reasons)])


def split_evenly(count: int, parts: int) -> list[slice]:
    """Ranges of `count` elements; their lengths differ by 1 at most."""
    bounds = [count * number // parts for number in range(parts + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(bounds)]


def plan_whole(
    device: ArrayDevice,
    curve: CurveKey,
    points: int,
    batch: int,
    scalar_bits: int,
    glv: Glv | None,
    *,
    shares_points: bool,
) -> MsmPlan:
    """The plan of a call in one part."""
    found = plan_residues(
        curve, points, batch, scalar_bits, glv, device.info, shares_points=shares_points
    )
    if found is not None:
        return found
    # A replay of a graph prepares no scalars while the device makes tables.
    joins_in_residues = glv is not None and has_residues(curve, device.info)
    makes_tables = shares_points and not device.is_recording and not joins_in_residues
    tables = choose_tables(curve, points, batch, device.info) if makes_tables else 1
    whole = plan_msm(
        points,
        batch,
        scalar_bits,
        glv,
        shares_points=shares_points,
        tables=tables,
        costs=choose_costs(DEVICE_COSTS, curve, device.info),
    )
    whole = dataclasses.replace(whole, joins_in_residues=joins_in_residues)
    rounded = with_rounds(whole, device.info)
    return rounded if rounded.rounds and has_rounds(device, curve) else whole


def plan_parts(
    curve: CurveKey,
    whole: MsmPlan,
    device: ArrayDevice,
    free_memory: int,
    *,
    copies_points: bool = False,
    copies_scalars: bool = False,
    has_table: bool = False,
) -> MsmParts:
    """Choose the points and the MSMs of a part.

    `whole` is the plan of the call in one part, and `free_memory` that of the device, or less.
    `copies_points` and `copies_scalars` say that they are copied from the host, `has_table` that
    the points are a table, whose window is fixed.
    """
    info = device.info
    part, nbytes, reasons = _choose_part(
        curve, whole, info, free_memory, copies_points=copies_points, has_table=has_table
    )
    made = MsmParts(whole.points, whole.batch, part, info.name, nbytes, ())
    last = {reason.partition(":")[0]: reason for reason in reasons}
    if made.count == 1:
        last["parts"] = "parts: 1, since everything fits the device at once"
    else:
        last["in flight"] = f"in flight: {PARTS_IN_FLIGHT} parts; Ctrl-C ends a call between parts"
    slices = None
    if made.count == 1 and copies_scalars and not copies_points and not has_table:
        slices = _plan_slices(curve, part, device, free_memory)
    if slices is not None:
        nbytes, _ = measure_memory(curve, part, info, copies_points=False, slices=slices)
        first, *others = slices
        last["slices"] = (
            f"slices: 2, scalars of {others[0]:,} points are copied while {first:,} points are "
            "added"
            if others
            else "scalars: copied while the device converts the points"
        )
    if part.tables > 1 and not has_table:
        last["tables"] = (
            f"tables: {part.tables}, which the device makes of the points while the host prepares "
            "the scalars; the windows share them, and half of the doublings follow the additions"
        )
    if part.rounds:
        last["rounds"] = (
            f"rounds: {part.rounds} of affine additions, which leave at most "
            f"{part.accumulated:,} mixed ones"
        )
    if part.joins_in_residues:
        last["join"] = "join: in residues, since the points are in the group of prime order"
    window = _explain_window(part, has_table=has_table)
    memory = f"memory: {nbytes:,} bytes, besides the arrays of the caller"
    reasons = [window, *last.values(), memory]
    return dataclasses.replace(
        made,
        nbytes=nbytes,
        reasons=tuple(reasons),
        records=_is_recorded(nbytes, free_memory),
        slices=slices,
    )


def _choose_part(
    curve: CurveKey,
    whole: MsmPlan,
    info: DeviceInfo,
    free_memory: int,
    *,
    copies_points: bool,
    has_table: bool,
) -> tuple[MsmPlan, int, list[str]]:
    """The largest part within the limits, its bytes, and the reasons."""
    part, reasons = whole, list[str]()
    most = MAX_ENTRIES_ON_CPU if info.kind == "cpu" else MAX_ENTRIES
    together = max(most // (whole.windows * whole.terms), 1)
    if together < whole.batch:
        part = dataclasses.replace(part, batch=together)
        reasons.append(f"sums: {together:,} at once: at most {most:,} digits are sorted at once")

    def measure(part: MsmPlan) -> tuple[int, str | None]:
        """The bytes of a part, and the limit that it exceeds."""
        nbytes, largest = measure_memory(
            curve, part, info, copies_points=copies_points, has_table=has_table
        )
        limit = _find_limit(part, info, nbytes, largest, free_memory, copies_points=copies_points)
        return nbytes, limit

    while True:
        part = with_rounds(part, info) if whole.rounds else part
        nbytes, limit = measure(part)
        if part.rounds:
            plain = dataclasses.replace(part, rounds=0)
            plain_bytes, plain_limit = measure(plain)
            loss = limit
            if _is_recorded(plain_bytes, free_memory) and not _is_recorded(nbytes, free_memory):
                loss = loss or f"{nbytes:,} bytes would not be kept for the next call"
            if loss is not None and plain_limit is None:
                reasons.append(f"rounds: none of affine additions: with them, {loss}")
                part, nbytes, limit = plain, plain_bytes, None
        if limit is None or (part.batch == 1 and part.points <= LEAST_POINTS):
            break
        if part.batch > 1:
            part = dataclasses.replace(part, batch=-(-part.batch // 2))
            reasons.append(f"sums: {part.batch:,} at once: for more, {limit}")
        else:
            count = -(-part.points // 2)
            part = dataclasses.replace(part, points=count)
            if not has_table:
                part = choose_window(part, choose_costs(DEVICE_COSTS, curve, info))
            reasons.append(f"parts: {count:,} points at most: for more, {limit}")
    return part, nbytes, reasons


def copies_late(points: int, batch: int, info: DeviceInfo) -> bool:
    """Whether scalars are copied from the host in slices, after the device has begun with the
    points. A CPU computes on the cores that copy."""
    least = get_profile(info).late_scalar_points
    return batch == 1 and points >= least and info.kind != "cpu"


def choose_slices(points: int, info: DeviceInfo, *, f64_limbs: bool) -> tuple[int, ...]:
    """The points of each slice in which scalars are copied: one slice or two. `f64_limbs` says that
    the points are accumulated with these."""
    profile = get_profile(info)
    if points < (profile.f64_sliced_points if f64_limbs else profile.sliced_points):
        return (points,)
    first = points // 4 // SLICE_MULTIPLE * SLICE_MULTIPLE
    return first, points - first


def _plan_slices(
    curve: CurveKey, plan: MsmPlan, device: ArrayDevice, free_memory: int
) -> tuple[int, ...] | None:
    """The slices of a call in one part; None in residues, which have no buckets, or if its commands
    are not recorded. There is one slice if the device could not bind the buckets of both, or those
    of the second by themselves."""
    info, limits = device.info, device.info.limits
    if plan.in_residues or not copies_late(plan.points, plan.batch, info):
        return None
    f64_limbs = not plan.rounds and choose_f64_limbs(device, curve) is not None
    slices = choose_slices(plan.points, info, f64_limbs=f64_limbs)
    bucket_bytes = 4 * point_limbs(curve) * plan.all_buckets
    if len(slices) > 1 and (
        len(slices) * bucket_bytes > limits.max_storage_buffer_range
        or bucket_bytes % limits.buffer_offset_alignment
    ):
        slices = (plan.points,)
    nbytes, _ = measure_memory(curve, plan, info, copies_points=False, slices=slices)
    return slices if _is_recorded(nbytes, free_memory) else None


def _is_recorded(nbytes: int, free_memory: int) -> bool:
    """Whether a part of so many bytes has its commands recorded."""
    return nbytes < free_memory * RECORDED_SHARE


def _find_limit(
    part: MsmPlan,
    info: DeviceInfo,
    nbytes: int,
    largest: int,
    free_memory: int,
    *,
    copies_points: bool,
) -> str | None:
    """The limit that a part exceeds, in words; None if there is none."""
    if nbytes > free_memory * MEMORY_SHARE:
        return (
            f"{nbytes:,} bytes would exceed {MEMORY_SHARE:.0%} of the {free_memory:,} bytes of "
            "free device memory"
        )
    if largest > info.limits.max_storage_buffer_range:
        return f"an array of {largest:,} bytes would exceed the device's largest storage buffer"
    if part.entries > MAX_PART_ENTRIES:
        return f"{part.entries:,} digits would exceed the 31 bits of their numbers"
    if copies_points and part.points > COPIED_POINTS:
        return "the copy from the host would overlap less of the computation"
    if info.kind == "cpu" and part.entries > MAX_ENTRIES_ON_CPU:
        return f"{part.entries:,} digits would take a CPU too long between two interrupts"
    return None


def _explain_window(plan: MsmPlan, *, has_table: bool) -> str:
    if plan.in_residues:
        return (
            f"window: {plan.window_bits} bits, in residues: few points, whose additions wait for "
            "each other"
        )
    why = "fixed by the table" if has_table else "which takes the least time"
    scalar = "scalar" if plan.glv is None else "half of a scalar"
    return (
        f"window: {plan.window_bits} bits, {why}: {plan.windows} windows of a {scalar} of "
        f"{plan.scalar_bits} bits, {plan.buckets:,} buckets a window"
    )


@functools.lru_cache(maxsize=1024)
def measure_memory(
    curve: CurveKey,
    plan: MsmPlan,
    info: DeviceInfo,
    *,
    copies_points: bool,
    has_table: bool = False,
    slices: tuple[int, ...] | None = None,
) -> tuple[int, int]:
    """The bytes of all arrays of a part, and of the largest of them; nothing runs. `has_table` says
    that the points are a table of the caller, and `slices` are given if the scalars are copied in
    slices."""
    # Imported late: sums on the host need no such device.
    from gpu_executor.steps.dry_device import DryDevice

    meter = DryDevice(info)
    run_dry(meter, curve, plan, copies_points=copies_points, has_table=has_table, slices=slices)
    return meter.nbytes, meter.largest


def run_dry(
    meter: ArrayDevice,
    curve: CurveKey,
    plan: MsmPlan,
    *,
    copies_points: bool = False,
    has_table: bool = False,
    slices: tuple[int, ...] | None = None,
) -> DeviceArray:
    """Make the arrays of a part and submit its dispatches to a device that runs nothing; returns
    the result. The options are those of `measure_memory`."""
    get_constants(meter, curve)
    shape = (plan.points,) if plan.shares_points else (plan.batch, plan.points)
    scalar_words = -(-curve.order.bit_length() // 32)
    for _ in range(PARTS_IN_FLIGHT if copies_points else 1):
        points = make_points(meter, curve, *shape, coordinates=AFFINE)
        words = meter.empty((plan.batch, plan.points, scalar_words), np.dtype(np.uint32))
    if has_table:  # a part of the table is copied
        points = make_points(meter, curve, plan.tables * plan.points, coordinates=AFFINE)
    result = make_points(meter, curve, plan.batch)
    if plan.in_residues:
        ResidueMsm(meter, curve, plan).run(points, words, result)
    elif slices is None:
        Msm(meter, curve, plan, has_table=has_table).run(points, words, result)
    else:
        SlicedMsm(meter, curve, plan, slices).run(points, lambda each: words[:, each], result)
    return result
