"""Bounds: the limits that the caller, the settings and the device set for a plan."""

from __future__ import annotations

from gpu_executor.arrays.idle_memory import round_up_to_class
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError, OutOfMemoryError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.plan.forecast import DataPath
from gpu_executor.plan.request import Request
from gpu_executor.settings import Settings

DEFAULT_SLOTS = 3
"""Slots of an overlapped call without a calibration: one is filled, one runs and one is drained, so
that host, bus and device work at the same time, whatever their speeds. Two to four slots perform
alike: 16 jobs of 64 K elements take 3.1 ms with 2 slots and 3.0 ms with 4 from mapped arrays, 8.1
and 8.5 ms from plain arrays (NVIDIA H200)."""
STATUS_CODES = (1 << 32) - 1
"""The number of values of a status word that can encode an element. It encodes element * inputs +
argument in 32 bits; the largest 32-bit value means that every element was accepted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that every plan for one request on one device stays within."""

    request: Request
    device: DeviceInfo
    settings: Settings
    per_group: int
    """Elements that one work-group computes."""

    def paths(self) -> tuple[list[DataPath], str]:
        """Return the data paths to choose from, and the reason if there is only one."""
        asked, setting = self.request.options.device_local, self.settings.device_local
        if asked is not None:
            path, why = asked, f"requested with device_local={asked}"
        elif setting is not None:
            path, why = setting, f"GPU_DEVICE_LOCAL is {int(setting)}"
        elif self.device.unified_memory:
            path, why = False, "all device memory is host-visible, so staging gains nothing"
        else:
            return ["host-visible", "device-local"], ""
        return ["device-local" if path else "host-visible"], f"path: {why}"

    def limit_chunk(self, path: DataPath, usual: int | None) -> tuple[int, str]:
        """Return the largest chunk in elements, and the limit that sets it.

        `usual` is the chunk size to assume if the settings give none.
        """
        request, limits = self.request, self.device.limits
        if request.kernel.split == "whole":
            return request.count, "one chunk: the kernel cannot be split by elements"
        largest = max(operand.type.nbytes for operand in request.operands)
        per_element = sum(operand.type.nbytes for operand in request.operands)
        memory, slot_bytes = self._compute_slot_memory(path)
        bounds = {
            "the device's largest storage buffer": limits.max_storage_buffer_range // largest,
            "the device's work-group count": limits.max_work_group_count[0] * self.per_group,
            "the range of a status word": STATUS_CODES // max(request.kernel.inputs, 1),
            "the number that the kernel can count": request.kernel.max_count,
            memory: slot_bytes // per_element,
        }
        chunk = self.settings.stream_chunk_elems
        if chunk is not None:
            bounds["GPU_STREAM_CHUNK_ELEMS"] = chunk
        elif usual is not None:
            bounds["the default chunk size"] = usual
        reason = min(bounds, key=lambda name: bounds[name])
        most = bounds[reason]
        if most < 1:
            raise OutOfMemoryError(
                f"{request.kernel.name}: one element of {per_element} bytes does not fit {reason}"
            )
        return most, f"chunk: at most {most:,} elements, limited by {reason}"

    def capacity(self, path: DataPath, chunk: int) -> int:
        """Return the number of elements of a slot for this chunk, rounded up so that similar sizes
        share slots.
        """
        if self.request.kernel.split == "whole":
            return chunk
        most, _ = self.limit_chunk(path, None)
        return min(round_up_to_class(chunk), most)

    @property
    def has_copy_queues(self) -> bool:
        """Whether the device has transfer-only queues."""
        return any(family.only_copies for family in self.device.queue_families)

    def _compute_slot_memory(self, path: DataPath) -> tuple[str, int]:
        """Return the name of the memory limit, and the bytes that one slot's inputs and outputs may
        have: the slot's share of half of that memory.
        """
        name, available = "the device memory", sum(heap.bytes for heap in self.device.heaps)
        limit = self.settings.memory_limit
        if limit is not None and limit < available:
            name, available = "the memory limit", limit
        return name, available // 2 // DEFAULT_SLOTS // (2 if path == "device-local" else 1)


def check_unsplit_call(request: Request, per_group: int, device: DeviceInfo) -> None:
    """Refuse a call that exceeds the device's limits and cannot be split by elements."""
    kernel, limit = request.kernel, device.limits.max_storage_buffer_range
    for argument, operand in zip(kernel.arguments, request.operands, strict=True):
        if operand.nbytes > limit:
            which = f" ({argument.name})" if argument.name else ""
            raise DeviceLacksError(
                f"{kernel.name}: the array at binding {argument.binding}{which} has "
                f"{operand.nbytes:,} bytes; {device.name} binds at most {limit:,}, and this kernel "
                "cannot be split"
            )
    if request.count > kernel.max_count:
        raise DeviceLacksError(
            f"{kernel.name}: {request.count:,} elements; the kernel counts {kernel.max_count:,} at "
            "most"
        )
    if request.grid is not None:
        check_grid(kernel, request.grid, device)
        return
    invocations = request.count if request.invocations is None else request.invocations
    most = device.limits.max_work_group_count[0] * per_group
    if invocations > most and not kernel.grid_takes_params:
        raise DeviceLacksError(
            f"{kernel.name}: {invocations:,} elements; {device.name} dispatches one-dimensional "
            f"work-groups for at most {most:,}, and this kernel cannot be split; give grid="
        )


def check_grid(kernel: Kernel, grid: Grid, device: DeviceInfo) -> None:
    """Refuse a grid with more work-groups than the device takes in a dimension."""
    for axis, groups, most in zip("xyz", grid, device.limits.max_work_group_count, strict=True):
        if groups > most:
            raise DeviceLacksError(
                f"{kernel.name}: grid has {groups:,} work-groups in {axis}; {device.name} takes "
                f"at most {most:,}; spread them over the other dimensions"
            )
