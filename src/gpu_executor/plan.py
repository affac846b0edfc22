"""Plan: how a call will be run, decided before anything runs.

Pure functions from what is asked (kernel, sizes), what the device is and what the settings say to a
`Plan`. A plan can be printed; it says why it is as it is. Nothing here touches a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_executor.call import Form, Operand
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError, OutOfMemoryError, SettingsError
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings

DataPath = Literal["host-visible", "device-local"]
QueueUse = Literal["one", "split"]
"""All of a piece on one queue, or copies in, computing and copies out on three."""

AUTO_DEVICE_LOCAL_THRESHOLD = 1 << 20
"""Elements from which a call goes through device-local memory, where nobody says otherwise."""
BATCH_DEVICE_LOCAL_THRESHOLD = 1 << 12
"""The same for the pieces of a batch, whose copies overlap with other pieces' computing."""
USUAL_DEPTH = 3
"""Two to four slots are alike on an NVIDIA H200: 16 mapped jobs of 64 K take 3.1 ms with 2 and 3.0
with 4, plain ones 8.1 and 8.5."""
MOST_SLOTS = 16
SPLIT_BYTES = 1 << 20
"""Input of a piece from which three queues pay for the two more submissions they take, where the
arrays need no copying by the host. Where they do, the host is what all wait for: 16 jobs of 64 K
take 3.4 ms through one queue and 3.1 through three from mapped arrays, 8.1 and 9.9 from plain ones
(NVIDIA H200)."""

WORK_GROUP_SIZES = (64, 128, 256, 512)
USUAL_WORK_GROUP = 128
SMALL_CALL = 1 << 14
LARGE_CALL = 1 << 18
SMALLEST_CHUNK = 1 << 10
CARD_STEP = 256
STATUS_CODES = (1 << 32) - 1
"""A status word tells element * inputs + argument in 32 bits; the largest value means 'none'."""


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
    kernel: Kernel,
    operands: Sequence[Operand],
    count: int,
    device: DeviceInfo,
    settings: Settings,
    device_local: bool | None = None,
    *,
    wishes: Wishes | None = None,
    jobs: int = 1,
    in_place: bool = False,
) -> Plan:
    """The plan for calls of `kernel`, the largest of them on `count` elements (1 or more).

    `in_place` says that the device reaches the inputs where they are.
    """
    reasons: list[str] = []
    threshold = AUTO_DEVICE_LOCAL_THRESHOLD if jobs == 1 else BATCH_DEVICE_LOCAL_THRESHOLD
    path = _choose_path(count, threshold, device, settings, device_local, reasons)
    work_group, per_invocation = _choose_work_groups(kernel, count, device, reasons)
    per_group = work_group * per_invocation
    if kernel.split == "whole":
        _check_whole(kernel, operands, count, per_group, device)
        chunk = capacity = count
        reasons.append("one piece: the kernel is not cut by elements")
    else:
        most = _most_elements(kernel, operands, device, settings, path, per_group, reasons)
        chunk = min(count, most)
        capacity = min(round_up_to_class(chunk), most)
    pieces = jobs * -(-count // chunk)
    slots = _choose_depth(pieces, wishes or Wishes(), reasons)
    queues: QueueUse = "one"
    if path == "device-local" and slots > 1:
        nbytes = chunk * sum(operand.type.nbytes for operand in operands[: kernel.inputs])
        queues = _choose_queues(nbytes, device, reasons, in_place=in_place)
    return Plan(
        count, path, chunk, capacity, slots, queues, work_group, per_invocation, tuple(reasons)
    )


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the caller of a batch asks for; None leaves it to the plan."""

    device_local: bool | None = None
    pipelined: bool | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is None:
            return
        least = 2 if self.pipelined else 1
        most = 1 if self.pipelined is False else MOST_SLOTS
        if not isinstance(self.depth, int) or not least <= self.depth <= most:
            raise SettingsError(
                f"depth is {self.depth} with pipelined={self.pipelined}; it takes {least} to {most}"
            )


def plan_batch(
    forms: Sequence[Form],
    device: DeviceInfo,
    settings: Settings,
    wishes: Wishes,
    *,
    in_place: bool = False,
) -> Plan:
    """The plan for jobs of one kernel, none of them empty: that of the largest, for all of them."""
    largest = max(forms, key=lambda form: form.count)
    return make_plan(
        largest.kernel,
        largest.operands,
        largest.count,
        device,
        settings,
        wishes.device_local,
        wishes=wishes,
        jobs=len(forms),
        in_place=in_place,
    )


def plan_on_card(form: Form, device: DeviceInfo) -> Plan:
    """The plan for a call whose arrays are all on the card: nothing to copy, nothing to stage."""
    kernel, reasons = form.kernel, ["path: every array is on the card"]
    count = max(form.count, 1)
    work_group, per_invocation = _choose_work_groups(kernel, count, device, reasons)
    per_group = work_group * per_invocation
    chunk = count
    if kernel.split == "whole":
        _check_whole(kernel, form.operands, count, per_group, device)
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


def _choose_depth(pieces: int, wishes: Wishes, reasons: list[str]) -> int:
    """How many slots take turns."""
    if wishes.depth is not None:
        reasons.append(f"slots: {wishes.depth}, asked for")
        return wishes.depth
    if wishes.pipelined is False:
        reasons.append("slots: 1, asked for with pipelined=False")
        return 1
    if pieces == 1 and not wishes.pipelined:
        return 1
    slots = max(2, min(pieces, USUAL_DEPTH))
    reasons.append(f"slots: {slots}, so that copies and computing of {pieces:,} pieces overlap")
    return slots


def _choose_queues(
    nbytes: int, device: DeviceInfo, reasons: list[str], *, in_place: bool
) -> QueueUse:
    """One queue or three, for pieces with that many bytes of input that are copied and overlap."""
    if not any(family.only_copies for family in device.queue_families):
        reasons.append("queues: one, the device has none that only copy")
    elif not in_place:
        reasons.append("queues: one, the host's copies take longest")
    elif nbytes < SPLIT_BYTES:
        reasons.append(f"queues: one, {nbytes:,} bytes of input are too few for three")
    else:
        reasons.append("queues: three, for copies in, computing and copies out")
        return "split"
    return "one"


def round_up_to_class(count: int) -> int:
    """The next of 4, 5, 6, 7 times a power of two: at most a quarter of the room is wasted."""
    if count <= 4:
        return 4
    step = 1 << max((count - 1).bit_length() - 3, 0)
    return -(-count // step) * step


def _choose_path(
    count: int,
    threshold: int,
    device: DeviceInfo,
    settings: Settings,
    asked: bool | None,
    reasons: list[str],
) -> DataPath:
    if asked is not None:
        reasons.append(f"path: asked for with device_local={asked}")
        return "device-local" if asked else "host-visible"
    if settings.device_local is not None:
        reasons.append(f"path: GPU_DEVICE_LOCAL is {int(settings.device_local)}")
        return "device-local" if settings.device_local else "host-visible"
    if device.unified_memory:
        reasons.append("path: all memory of the device is host-visible, staging gains nothing")
        return "host-visible"
    large = count >= threshold
    comparison = "at least" if large else "below"
    reasons.append(f"path: {count:,} elements are {comparison} {threshold:,}")
    return "device-local" if large else "host-visible"


def _choose_work_groups(
    kernel: Kernel, count: int, device: DeviceInfo, reasons: list[str]
) -> tuple[int, int]:
    """The work-group size and the elements per invocation, where the code leaves them open."""
    spec_id = kernel.interface.local_size.spec_ids[0]
    size, y, z = kernel.local_size()
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


def _most_elements(
    kernel: Kernel,
    operands: Sequence[Operand],
    device: DeviceInfo,
    settings: Settings,
    path: DataPath,
    per_group: int,
    reasons: list[str],
) -> int:
    """The most elements of one chunk, by the tightest of all limits."""
    limits = device.limits
    largest = max(operand.type.nbytes for operand in operands)
    per_element = sum(operand.type.nbytes for operand in operands)
    bounds = {
        "GPU_STREAM_CHUNK_ELEMS": settings.stream_chunk_elems,
        "the device's largest storage buffer": limits.max_storage_buffer_range // largest,
        "the device's work-group count": limits.max_work_group_count[0] * per_group,
        "what a status word can tell": STATUS_CODES // kernel.inputs,
        "the memory limit": _memory_for_a_slot(device, settings, path) // per_element,
    }
    reason = min(bounds, key=lambda name: bounds[name])
    most = bounds[reason]
    if most < 1:
        raise OutOfMemoryError(
            f"{kernel.name}: not even one element of {per_element} bytes fits {reason}"
        )
    reasons.append(f"chunk: at most {most:,} elements, by {reason}")
    return most


def _memory_for_a_slot(device: DeviceInfo, settings: Settings, path: DataPath) -> int:
    """Bytes for one slot's inputs and outputs: its share of half of what there is."""
    there = min(sum(heap.bytes for heap in device.heaps), settings.memory_limit or 1 << 62)
    return there // 2 // USUAL_DEPTH // (2 if path == "device-local" else 1)


def _check_whole(
    kernel: Kernel, operands: Sequence[Operand], count: int, per_group: int, device: DeviceInfo
) -> None:
    limit = device.limits.max_storage_buffer_range
    for index, operand in enumerate(operands):
        if operand.nbytes > limit:
            output = index - kernel.inputs
            which = f"argument {index}" if output < 0 else f"output {output}"
            raise DeviceLacksError(
                f"{kernel.name}: {which} has {operand.nbytes:,} bytes; {device.name} "
                f"binds at most {limit:,} and this kernel cannot be cut"
            )
    if count >= 1 << 32:
        raise DeviceLacksError(f"{kernel.name}: {count:,} elements; a kernel counts in 32 bits")
    most = device.limits.max_work_group_count[0] * per_group
    if count > most:
        raise DeviceLacksError(
            f"{kernel.name}: {count:,} elements; {device.name} starts work-groups for {most:,} at "
            "most and this kernel cannot be cut"
        )
