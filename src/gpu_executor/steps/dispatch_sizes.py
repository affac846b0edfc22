"""The sizes of a dispatch: its work-groups, its elements per invocation and its push constants."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import NamedTuple

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernel.parameters import NO_VALUES
from gpu_executor.plan.plan import choose_elements_per_invocation, choose_work_groups


class DispatchSizes(NamedTuple):
    """How a device runs a dispatch, apart from its arrays."""

    work_group: int
    per_invocation: int
    groups: int
    push: bytes

    @classmethod
    def choose(cls, dispatch: Dispatch, info: DeviceInfo) -> DispatchSizes:
        """Choose the sizes for a device; a dispatch that does not fit its kernel is refused."""
        kernel, given = dispatch.kernel, len(dispatch.arrays)
        if kernel.status != (dispatch.make_error is not None):
            raise KernelError(
                f"{kernel.name}: a dispatch needs make_error if, and only if, its kernel has a "
                "status word"
            )
        if given + kernel.status != kernel.bindings:
            raise KernelError(
                f"{kernel.name}: {given} arrays were given for {kernel.bindings} bindings"
            )
        needed, size, per_invocation = choose_sizes(dispatch, info)
        words = struct.pack(f"<{len(dispatch.push_words)}I", *dispatch.push_words)
        push = kernel.compose_push(dispatch.count, words, NO_VALUES)
        if len(push) > kernel.interface.push_constant_bytes:
            raise KernelError(
                f"{kernel.name}: {len(push)} bytes of push constants were given; its code declares "
                f"{kernel.interface.push_constant_bytes}"
            )
        groups = _count_groups(dispatch, -(-needed // (size * per_invocation)), info)
        return cls(size, per_invocation, groups, push)


def choose_sizes(dispatch: Dispatch, info: DeviceInfo) -> tuple[int, int, int]:
    """The numbers that a dispatch of an algorithm has elements to share out, invocations of a
    work-group, and elements of an invocation."""
    kernel = dispatch.kernel
    # A packed kernel loads several elements per invocation, and single elements at the end.
    needed = sum(divmod(dispatch.count, kernel.packed))
    if dispatch.work_group is None:
        return needed, *choose_work_groups(kernel, needed, info, [])
    per_invocation = choose_elements_per_invocation(kernel, needed, info)
    return needed, dispatch.work_group, per_invocation


def choose_constants(kernel: Kernel, work_group: int, per_invocation: int) -> dict[int, int]:
    """Return the specialization constants that the plan sets, by id.

    Every extent of the work-group is set: the code may have another constant with the same id and
    another default.
    """
    x, y, z = kernel.interface.local_size.spec_ids
    _, rows, layers = kernel.local_size()
    chosen = {y: rows, z: layers, x: work_group, kernel.per_invocation: per_invocation}
    own = dict(kernel.constants)
    return {at: value for at, value in chosen.items() if at is not None and at not in own}


def make_dispatch_key(dispatch: Dispatch) -> Hashable:
    """What the sizes of a dispatch depend on."""
    return (
        dispatch.kernel,
        len(dispatch.arrays),
        dispatch.count,
        dispatch.push_words,
        dispatch.groups,
        dispatch.grid_stride,
        dispatch.work_group,
    )


def _count_groups(dispatch: Dispatch, needed: int, info: DeviceInfo) -> int:
    groups = needed if dispatch.groups is None else dispatch.groups
    most = info.limits.max_work_group_count[0]
    if dispatch.grid_stride:
        return min(groups, most)
    if groups > most:
        raise DeviceLacksError(
            f"{dispatch.kernel.name}: {groups:,} work-groups are needed; {info.name} starts "
            f"{most:,} at most"
        )
    return groups
