"""Work-groups: how many invocations in one, how many elements for each."""

from __future__ import annotations

from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel

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
