"""Plan: how a call will run, decided before anything runs.

Every `explain` returns a `Plan`. A `CallPlan` is made from the request, the device's description,
its calibration if there is one, and the settings. It decides data path, chunk, slots, queues and
work-groups, and prints the reason for each. Nothing here touches a device.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator

from gpu_executor.arrays.idle_memory import round_up_to_class
from gpu_executor.calls.call import Signature
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.plan.bounds import Bounds, check_unsplit_call
from gpu_executor.plan.calibration import Calibration
from gpu_executor.plan.forecast import DataPath, QueueUse
from gpu_executor.plan.request import Request, RunOptions
from gpu_executor.plan.strategy import choose_by_calibration, choose_by_thresholds
from gpu_executor.settings import Settings
from gpu_executor.spirv import INT64

WORK_GROUP_SIZES = (64, 128, 256, 512)
DEFAULT_WORK_GROUP = 128
SMALL_CALL = 1 << 14
LARGE_CALL_SUBGROUPS = 16
"""A call has two elements for each invocation from as many elements on as invocations with so many
subgroups for each scheduler: even half as many fill the device."""


def choose_work_groups(
    kernel: Kernel, count: int, device: DeviceInfo, reasons: list[str]
) -> tuple[int, int]:
    """Choose the work-group size and the elements per invocation, unless the kernel fixes them."""
    spec_id = kernel.interface.local_size.spec_ids[0]
    size, y, z = kernel.local_size()
    if min(size, y, z) < 1:
        raise KernelError(
            f"kernel {kernel.name!r}: its constants give work-groups of {size} x {y} x {z} "
            "invocations; every extent must be at least 1"
        )
    if spec_id is None or spec_id in dict(kernel.constants):
        reasons.append(f"work-group: {size}, fixed by the kernel")
    elif kernel.grid is not None or depends_on_size(kernel) or declares_size(kernel):
        size = _get_declared_size(kernel, size)
        reasons.append(f"work-group: {size}, declared by the kernel")
    else:
        size, why = _choose_work_group_size(kernel, count, y * z, device)
        reasons.append(f"work-group: {size} of {WORK_GROUP_SIZES}, {why}")
    return size, choose_elements_per_invocation(kernel, count, device)


def _describe_integers(kernel: Kernel, device: DeviceInfo) -> list[str]:
    """Say how a kernel computes with 64-bit integers, if it has any."""
    if INT64 not in kernel.interface.capabilities:
        return []
    if "shaderInt64" in device.features:
        return ["integers: 64-bit integers, which the device has"]
    return ["integers: pairs of words, since the device has no 64-bit integers"]


def depends_on_size(kernel: Kernel) -> bool:
    """Whether results may depend on the work-group size: invocations share memory, wait for each
    other, or read their places in work-groups, the size or the number of work-groups."""
    interface, sizes = kernel.interface, kernel.interface.local_size.spec_ids
    shares = interface.has_shared_memory or interface.has_barriers
    is_square = sizes[0] in sizes[1:]
    return shares or ((interface.depends_on_group or is_square) and not kernel.is_tuned)


def _may_count_invocations(kernel: Kernel) -> bool:
    """Whether atomic operations on an argument may count invocations: the last work-group has some
    beyond the elements, and how many depends on its size."""
    arguments = {argument.binding for argument in kernel.arguments}
    return not kernel.is_tuned and any(
        each.atomics and each.binding in arguments for each in kernel.interface.buffers
    )


def declares_size(kernel: Kernel) -> bool:
    """Whether `work_group` is the size of every work-group, not a preference for large calls."""
    return kernel.work_group is not None and not kernel.is_tuned


def _get_declared_size(kernel: Kernel, default: int) -> int:
    """The size along x of a kernel whose results depend on it: `work_group`, or what the code has.
    A default of 1 is glslang's, and nobody's choice."""
    if kernel.work_group is None and default == 1 and depends_on_size(kernel):
        raise KernelError(
            f"kernel {kernel.name!r}: its results may depend on the size of a work-group (the code "
            "has shared memory or barriers, or reads gl_WorkGroupID, gl_LocalInvocationID, "
            "gl_WorkGroupSize, gl_NumWorkGroups or gl_NumSubgroups), and nothing gives the size: "
            "give work_group=64, or write layout(local_size_x = 64) in;"
        )
    return kernel.work_group or default


def _choose_work_group_size(
    kernel: Kernel, count: int, others: int, device: DeviceInfo
) -> tuple[int, str]:
    """Choose the size along x, with a reason; `others` is the size along y times that along z."""
    limits = device.limits
    limit = min(limits.max_work_group_invocations // others, limits.max_work_group_size[0])
    limit = max(limit, 1)  # if even 1 is too large, creating the pipeline raises
    if _may_count_invocations(kernel):
        wanted, why = DEFAULT_WORK_GROUP, "for every call, since the code has atomic operations"
    elif count < SMALL_CALL:
        wanted, why = WORK_GROUP_SIZES[0], "so that a small call reaches every core"
    else:
        wanted, why = kernel.work_group or DEFAULT_WORK_GROUP, "the kernel's preference"
        if kernel.work_group is None:
            why = "the default"
    if wanted > limit:
        wanted, why = limit, "the device's limit"
    return max((size for size in WORK_GROUP_SIZES if size <= wanted), default=wanted), why


def choose_elements_per_invocation(kernel: Kernel, count: int, device: DeviceInfo) -> int:
    """Choose the elements per invocation: 1 if the kernel does not let the plan choose."""
    if kernel.per_invocation is None or kernel.grid is not None:
        return 1
    return _choose_elements_per_invocation(count, device)


def _choose_elements_per_invocation(count: int, device: DeviceInfo) -> int:
    """Choose 2 for large calls on a GPU: each invocation has two loads in flight then. 381-bit
    additions move 4.0 TB/s with 2 and 3.7 TB/s with 1 (NVIDIA H200).
    """
    return 2 if device.kind != "cpu" and count >= count_large_call(device) else 1


def count_large_call(device: DeviceInfo) -> int:
    """The elements from which on a call is large."""
    return device.round_invocations(LARGE_CALL_SUBGROUPS)


MIN_CHUNK = 1 << 10
CHUNK_MULTIPLE = 256


@dataclass(frozen=True, slots=True)
class ElementRange:
    """A range of consecutive elements that one dispatch covers."""

    start: int
    count: int


def split_range(count: int, length: int) -> Iterator[ElementRange]:
    """Yield ranges of `length` elements, of which the last may be shorter, in order."""
    for start in range(0, count, length):
        yield ElementRange(start, min(length, count - start))


class Plan(ABC):
    """How a call would run, as `explain` of a backend or an executor returns it: print it. Each
    backend has a class of its own, with attributes for what it decides."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str:
        """The plan and the reason for each decision, in lines."""

    def __contains__(self, text: object) -> bool:
        raise ArgumentTypeError(f"a plan is not a text; search for {text!r} in str(plan)")


@dataclass(frozen=True, slots=True)
class CallPlan(Plan):
    """Data path, chunk, slots, queues and work-groups of a call, with the reason for each."""

    count: int
    path: DataPath
    chunk: int
    """Elements in every chunk but the last."""
    capacity: int
    """Elements that fit into a slot: the chunk, rounded up so that similar sizes share slots."""
    slots: int
    queues: QueueUse
    work_group: int
    per_invocation: int
    reasons: tuple[str, ...]
    foreseen: float | None = None
    """Expected seconds for the whole call; None without a calibration."""

    def chunks(self) -> Iterator[ElementRange]:
        """Yield the chunks in order."""
        return split_range(self.count, self.chunk)

    def groups(self, count: int) -> int:
        """Return the number of work-groups for `count` elements."""
        return -(-count // (self.work_group * self.per_invocation))

    def __str__(self) -> str:
        chunks = -(-self.count // self.chunk)
        head = (
            f"{self.count:,} elements on the {self.path} path: {_format_count(chunks, 'chunk')} of "
            f"up to {self.chunk:,}, {_format_count(self.slots, 'slot')}, "
            f"work-groups of {self.work_group} x {self.per_invocation} elements"
        )
        return "\n".join([head, *(f"  - {reason}" for reason in self.reasons)])


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def make_plan(
    request: Request, device: DeviceInfo, settings: Settings, calibration: Calibration | None = None
) -> CallPlan:
    """Plan a request: by the device's calibration if there is one, else by fixed thresholds.

    Options of the caller and settings override both.
    """
    kernel, work_group_reasons = request.kernel, list[str]()
    work_group, per_invocation = choose_work_groups(
        kernel, request.count, device, work_group_reasons
    )
    per_group = work_group * per_invocation
    if kernel.split == "whole":
        check_unsplit_call(request, per_group, device)
    if request.grid is not None:
        x, y, z = request.grid
        work_group_reasons.append(f"grid: {x} x {y} x {z} work-groups, given by the kernel")
    bounds = Bounds(request, device, settings, per_group)
    choice = (
        choose_by_calibration(bounds, calibration) if calibration else choose_by_thresholds(bounds)
    )
    path_reason, *others = choice.reasons
    return CallPlan(
        count=request.count,
        path=choice.path,
        chunk=choice.chunk,
        capacity=bounds.capacity(choice.path, choice.chunk),
        slots=choice.slots,
        queues=choice.queues,
        work_group=work_group,
        per_invocation=per_invocation,
        reasons=(path_reason, *work_group_reasons, *_describe_integers(kernel, device), *others),
        foreseen=choice.foreseen,
    )


def plan_on_device(
    signature: Signature, device: DeviceInfo, sizes: tuple[int, int] | None = None
) -> CallPlan:
    """Plan a call whose arrays are all device-resident: nothing is copied or staged. `sizes` are
    the size of a work-group and the elements of an invocation, if they are chosen already."""
    kernel, reasons = signature.kernel, ["path: every array is device-resident"]
    count = max(signature.count, 1)
    work_group, per_invocation = sizes or choose_work_groups(kernel, count, device, reasons)
    per_group = work_group * per_invocation
    chunk = count
    if kernel.split == "whole":
        check_unsplit_call(Request.of(signature, 1, RunOptions()), per_group, device)
    else:
        largest = max(operand.type.nbytes for operand in signature.operands)
        chunk = min(
            count,
            # Multiples of CHUNK_MULTIPLE elements satisfy the alignment of bindings for every
            # element type.
            device.limits.max_storage_buffer_range // largest // CHUNK_MULTIPLE * CHUNK_MULTIPLE
            or count,
            device.limits.max_work_group_count[0] * per_group,
        )
    reasons += _describe_integers(kernel, device)
    return CallPlan(
        count, "device-resident", chunk, 1, 1, "one", work_group, per_invocation, tuple(reasons)
    )


def shrink_plan(plan: CallPlan) -> CallPlan | None:
    """Return the same plan with half the chunk, after an allocation failed; None at the minimum
    chunk.
    """
    if plan.chunk < 2 * MIN_CHUNK:
        return None
    chunk = plan.chunk // 2
    reason = f"chunk: {chunk:,} elements, since memory for {plan.chunk:,} could not be allocated"
    return dataclasses.replace(
        plan, chunk=chunk, capacity=round_up_to_class(chunk), reasons=(*plan.reasons, reason)
    )
