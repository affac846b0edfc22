"""What the caller, the settings and the device leave to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.call import Operand
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceLacksError, OutOfMemoryError
from gpu_executor.kernel import Kernel
from gpu_executor.plan.forecast import DataPath
from gpu_executor.plan.request import Request
from gpu_executor.settings import Settings

USUAL_DEPTH = 3
"""Two to four slots are alike on an NVIDIA H200: 16 mapped jobs of 64 K take 3.1 ms with 2 and 3.0
with 4, plain ones 8.1 and 8.5."""
STATUS_CODES = (1 << 32) - 1
"""A status word tells element * inputs + argument in 32 bits; the largest value means 'none'."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A request on a device: every plan for it stays within these."""

    request: Request
    device: DeviceInfo
    settings: Settings
    per_group: int
    """Elements of a work-group."""

    def paths(self) -> tuple[list[DataPath], str]:
        """The paths to choose from, and the reason where there is no choice."""
        asked, setting = self.request.options.device_local, self.settings.device_local
        if asked is not None:
            path, why = asked, f"asked for with device_local={asked}"
        elif setting is not None:
            path, why = setting, f"GPU_DEVICE_LOCAL is {int(setting)}"
        elif self.device.unified_memory:
            path, why = False, "all memory of the device is host-visible, staging gains nothing"
        else:
            return ["host-visible", "device-local"], ""
        return ["device-local" if path else "host-visible"], f"path: {why}"

    def most_elements(self, path: DataPath, usual: int | None) -> tuple[int, str]:
        """The most elements of one chunk, by the tightest of all limits, and which that is.

        `usual` stands in where the settings do not say how large a chunk is.
        """
        request, limits = self.request, self.device.limits
        if request.kernel.split == "whole":
            return request.count, "one piece: the kernel is not cut by elements"
        largest = max(operand.type.nbytes for operand in request.operands)
        per_element = sum(operand.type.nbytes for operand in request.operands)
        bounds = {
            "the device's largest storage buffer": limits.max_storage_buffer_range // largest,
            "the device's work-group count": limits.max_work_group_count[0] * self.per_group,
            "what a status word can tell": STATUS_CODES // request.kernel.inputs,
            "the memory limit": self._memory_for_a_slot(path) // per_element,
        }
        chunk = self.settings.stream_chunk_elems
        if chunk is not None or usual is not None:
            bounds["GPU_STREAM_CHUNK_ELEMS"] = chunk or usual or 0
        reason = min(bounds, key=lambda name: bounds[name])
        most = bounds[reason]
        if most < 1:
            raise OutOfMemoryError(
                f"{request.kernel.name}: not even one element of {per_element} bytes fits {reason}"
            )
        return most, f"chunk: at most {most:,} elements, by {reason}"

    def capacity(self, path: DataPath, chunk: int) -> int:
        """Room for a chunk and those a little larger, as far as limits allow."""
        if self.request.kernel.split == "whole":
            return chunk
        most, _ = self.most_elements(path, None)
        return min(round_up_to_class(chunk), most)

    @property
    def can_split(self) -> bool:
        """Whether the device has queues that only copy."""
        return any(family.only_copies for family in self.device.queue_families)

    def _memory_for_a_slot(self, path: DataPath) -> int:
        """Bytes for one slot's inputs and outputs: its share of half of what there is."""
        there = sum(heap.bytes for heap in self.device.heaps)
        there = min(there, self.settings.memory_limit or there)
        return there // 2 // USUAL_DEPTH // (2 if path == "device-local" else 1)


def check_whole(
    kernel: Kernel,
    operands: tuple[Operand, ...],
    count: int,
    per_group: int,
    device: DeviceInfo,
) -> None:
    """A kernel that is not cut by elements has to fit the device at once."""
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


def round_up_to_class(count: int) -> int:
    """The next of 4, 5, 6, 7 times a power of two: at most a quarter of the room is wasted."""
    if count <= 4:
        return 4
    step = 1 << max((count - 1).bit_length() - 3, 0)
    return -(-count // step) * step
