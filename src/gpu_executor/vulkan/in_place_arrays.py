"""Which arrays of a call the device reaches where they are, and results made so that it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_executor.call import Call, Signature
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.plan import Plan
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.mapped_arrays import (
    BufferRange,
    BufferRanges,
    MappedArrays,
    RecycledResults,
)


class InPlace:
    """Finds the places of arrays in mapped and imported memory and on the card."""

    def __init__(
        self,
        info: DeviceInfo,
        mapped: MappedArrays,
        device_memory: DeviceMemory,
        recycled: RecycledResults,
    ) -> None:
        self._alignment = info.limits.buffer_offset_alignment
        self._mapped, self._cards, self._recycled = mapped, device_memory, recycled

    def find(self, array: Any) -> BufferRange | None:
        """Where the device reaches an array, if it does."""
        if isinstance(array, DeviceArray):
            return self._cards.place(array)
        return self._mapped.find(array)

    def places(
        self, call: Call, plan: Plan, results: Sequence[BufferRange] = ()
    ) -> BufferRanges | None:
        """The places of a call's arrays; None where it has none.

        Those of results that were recycled are known already.
        """
        inputs = call.signature.kernel.inputs
        found = [self.find(array) for array in call.inputs]
        if results:
            found += results
        elif call.outputs:
            found += [self.find(array) for array in call.outputs]
        else:
            found += [None] * call.signature.kernel.outputs
        if plan.path == "host-visible":
            self._keep_aligned(found, call.signature, plan)
            if call.signature.kernel.split == "whole":
                _keep_unread(found, inputs)
        return tuple(found) if any(place is not None for place in found) else None

    def recycle(self, call: Call) -> Sequence[BufferRange]:
        """Let results lie in recycled memory; returns where, or nothing where they do not."""
        if call.results:
            return ()
        made = self._recycled.make(call.signature)
        if made:
            call.set_outputs([array for array, _ in made])
        return [place for _, place in made]

    def _keep_aligned(
        self, found: list[BufferRange | None], signature: Signature, plan: Plan
    ) -> None:
        """What a kernel binds must be aligned, in every piece."""
        several = plan.chunk < signature.count
        for index, (place, operand) in enumerate(zip(found, signature.operands, strict=True)):
            step = plan.chunk * operand.type.nbytes if several else 0
            if place is None or place.on_device:
                continue
            if place.offset % self._alignment or step % self._alignment:
                found[index] = None


def _keep_unread(found: list[BufferRange | None], inputs: int) -> None:
    """A kernel that reads anything for any result must not write over what it reads."""
    read = {place[:2] for place in found[:inputs] if place is not None}
    for index, place in enumerate(found[inputs:], inputs):
        if place is not None and place[:2] in read:
            found[index] = None
