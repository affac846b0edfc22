"""Work-groups: how many invocations in one, how many elements for each.

Plan: how a call will be run, decided before anything runs.

From what is asked (`Request`), what the device is, what it was measured to do (`Calibration`, where
it was) and what the settings say. A plan can be printed; it says why it is as it is. Nothing here
touches a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.call import Signature
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.plan.bounds import Bounds, check_whole, round_up_to_class
from gpu_executor.plan.forecast import DataPath, QueueUse
from gpu_executor.plan.request import Request
from gpu_executor.plan.strategy import choose_by_calibration, choose_by_thresholds
from gpu_executor.settings import Settings

WORK_GROUP_SIZES = (64, 128, 256, 512)
USUAL_WORK_GROUP = 128
SMALL_CALL = 1 << 14
LARGE_CALL = 1 << 18


def choose_work_groups(
    kernel: Kernel, count: int, device: DeviceInfo, reasons: list[str]
) -> tuple[int, int]:
    """The work-group size and the elements per invocation, where the code leaves them open."""
    spec_id = kernel.interface.local_size.spec_ids[0]
    size, y, z = kernel.local_size()
    if min(size, y, z) < 1:
        raise KernelError(
            f"kernel {kernel.name!r}: its constants make work-groups of {size} x {y} x {z} "
            "invocations; they have one at least"
        )
    if spec_id is None or spec_id in dict(kernel.constants):
        reasons.append(f"work-group: {size}, fixed by the kernel")
    else:
        size, why = _work_group_size(kernel, count, y * z, device)
        reasons.append(f"work-group: {size} of {WORK_GROUP_SIZES}, {why}")
    if kernel.per_invocation is None:
        return size, 1
    return size, _elements_per_invocation(count, device)


def _work_group_size(
    kernel: Kernel, count: int, others: int, device: DeviceInfo
) -> tuple[int, str]:
    """The size for groups that extend `others` times in the other dimensions, and why."""
    limits = device.limits
    limit = min(limits.max_work_group_invocations // others, limits.max_work_group_size[0])
    limit = max(limit, 1)  # where even that is too large, whoever makes the pipeline says so
    if count < SMALL_CALL:
        wanted, why = WORK_GROUP_SIZES[0], "to reach all of the chip with a small call"
    else:
        wanted, why = kernel.work_group or USUAL_WORK_GROUP, "the kernel's own choice"
        if kernel.work_group is None:
            why = "as usual"
    if wanted > limit:
        wanted, why = limit, "the device's largest"
    return max((size for size in WORK_GROUP_SIZES if size <= wanted), default=wanted), why


def _elements_per_invocation(count: int, device: DeviceInfo) -> int:
    """Two for large calls on a GPU: 381-bit addition 4.0 TB/s on an NVIDIA H200, 3.7 with one."""
    return 2 if count >= LARGE_CALL and device.kind != "cpu" else 1


SMALLEST_CHUNK = 1 << 10
CARD_STEP = 256


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of consecutive elements that one slot takes at a time."""

    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Which path, which chunk, how many slots, which work-groups, and why."""

    count: int
    path: DataPath
    chunk: int
    """Elements in every piece but the last."""
    capacity: int
    """Elements a slot has room for: the chunk rounded up, so that near sizes share slots."""
    slots: int
    queues: QueueUse
    work_group: int
    per_invocation: int
    reasons: tuple[str, ...]
    foreseen: float | None = None
    """The seconds that all will take, where the device was measured."""

    def pieces(self) -> Iterator[Piece]:
        for start in range(0, self.count, self.chunk):
            yield Piece(start, min(self.chunk, self.count - start))

    def groups(self, count: int) -> int:
        """Work-groups for that many elements."""
        return -(-count // (self.work_group * self.per_invocation))

    def __str__(self) -> str:
        pieces = -(-self.count // self.chunk)
        head = (
            f"{self.count:,} elements on the {self.path} path: {_several(pieces, 'piece')} of "
            f"up to {self.chunk:,}, {_several(self.slots, 'slot')}, "
            f"work-groups of {self.work_group} x {self.per_invocation} elements"
        )
        return "\n".join([head, *(f"  - {reason}" for reason in self.reasons)])


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def make_plan(
    request: Request, device: DeviceInfo, settings: Settings, figures: Calibration | None = None
) -> Plan:
    """The plan for a request: by figures where the device has them, else by fixed thresholds.

    What the caller or the settings ask for is taken either way.
    """
    kernel, about_groups = request.kernel, list[str]()
    work_group, per_invocation = choose_work_groups(kernel, request.count, device, about_groups)
    per_group = work_group * per_invocation
    if kernel.split == "whole":
        check_whole(kernel, request.operands, request.count, per_group, device)
    bounds = Bounds(request, device, settings, per_group)
    choice = choose_by_calibration(bounds, figures) if figures else choose_by_thresholds(bounds)
    about_path, *others = choice.reasons
    return Plan(
        count=request.count,
        path=choice.path,
        chunk=choice.chunk,
        capacity=bounds.capacity(choice.path, choice.chunk),
        slots=choice.slots,
        queues=choice.queues,
        work_group=work_group,
        per_invocation=per_invocation,
        reasons=(about_path, *about_groups, *others),
        foreseen=choice.foreseen,
    )


def plan_on_device(signature: Signature, device: DeviceInfo) -> Plan:
    """The plan for a call whose arrays are all on the card: nothing to copy, nothing to stage."""
    kernel, reasons = signature.kernel, ["path: every array is on the card"]
    count = max(signature.count, 1)
    work_group, per_invocation = choose_work_groups(kernel, count, device, reasons)
    per_group = work_group * per_invocation
    chunk = count
    if kernel.split == "whole":
        check_whole(kernel, signature.operands, count, per_group, device)
    else:
        largest = max(operand.type.nbytes for operand in signature.operands)
        chunk = min(
            count,
            # A multiple of what bindings are aligned to, for every kind of element.
            device.limits.max_storage_buffer_range // largest // CARD_STEP * CARD_STEP or count,
            device.limits.max_work_group_count[0] * per_group,
        )
    return Plan(
        count, "device-local", chunk, 1, 1, "one", work_group, per_invocation, tuple(reasons)
    )


def shrunk(plan: Plan) -> Plan | None:
    """The same with half the chunk, for when memory was not to be had; None where it is small."""
    if plan.chunk < 2 * SMALLEST_CHUNK:
        return None
    chunk = plan.chunk // 2
    reason = f"chunk: {chunk:,} elements, since memory for {plan.chunk:,} was not to be had"
    return dataclasses.replace(
        plan, chunk=chunk, capacity=round_up_to_class(chunk), reasons=(*plan.reasons, reason)
    )
