"""Plan: how a call will be run, decided before anything runs.

From what is asked (`Request`), what the device is, what it was measured to do (`Calibration`, where
it was) and what the settings say. A plan can be printed; it says why it is as it is. Nothing here
touches a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.call import Form
from gpu_executor.device_info import DeviceInfo
from gpu_executor.plan.bounds import Bounds, check_whole, round_up_to_class
from gpu_executor.plan.figures import choose_by_figures
from gpu_executor.plan.forecast import DataPath, QueueUse
from gpu_executor.plan.request import Request
from gpu_executor.plan.thresholds import choose_by_thresholds
from gpu_executor.plan.work_groups import choose_work_groups
from gpu_executor.settings import Settings

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
    choice = choose_by_figures(bounds, figures) if figures else choose_by_thresholds(bounds)
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


def plan_on_card(form: Form, device: DeviceInfo) -> Plan:
    """The plan for a call whose arrays are all on the card: nothing to copy, nothing to stage."""
    kernel, reasons = form.kernel, ["path: every array is on the card"]
    count = max(form.count, 1)
    work_group, per_invocation = choose_work_groups(kernel, count, device, reasons)
    per_group = work_group * per_invocation
    chunk = count
    if kernel.split == "whole":
        check_whole(kernel, form.operands, count, per_group, device)
    else:
        largest = max(operand.type.nbytes for operand in form.operands)
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
