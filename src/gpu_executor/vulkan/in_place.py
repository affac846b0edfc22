"""Which arrays of a call the device reaches where they are, and results made so that it does."""

from __future__ import annotations

import contextlib
from typing import Any

from gpu_executor.call import Array, Call, Form
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, OutOfMemoryError
from gpu_executor.plan import Plan
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.on_card import CardArrays, CardStorage
from gpu_executor.vulkan.places import Place, Places

RECYCLED_FROM, RECYCLED_TO = 256 << 10, 64 << 20
RECYCLED_BYTES = 512 << 20
"""Results of these sizes, as long as all of them together hold no more, lie in mapped memory."""


def recycles(form: Form) -> bool:
    """Whether the results of a call are neither too small nor too large to recycle."""
    outputs = form.operands[form.kernel.inputs :]
    return all(RECYCLED_FROM <= output.nbytes <= RECYCLED_TO for output in outputs)


class InPlace:
    """Finds the places of arrays in mapped and imported memory and on the card."""

    def __init__(
        self, info: DeviceInfo, memory: MemoryPool, mapped: MappedArrays, cards: CardArrays
    ) -> None:
        self._alignment = info.limits.buffer_offset_alignment
        self._memory, self._mapped, self._cards = memory, mapped, cards

    def find(self, array: Any) -> Place | None:
        """Where the device reaches an array, if it does."""
        if not isinstance(array, DeviceArray):
            return self._mapped.find(array)
        storage = array.storage
        if not isinstance(storage, CardStorage):
            raise ArgumentTypeError("an array on the card of another kind of backend")
        return storage.place(self._cards)

    def places(self, call: Call, plan: Plan) -> Places | None:
        """The places of a call's arrays; None where it has none."""
        inputs = call.form.kernel.inputs
        arrays: list[Array | None] = [*call.inputs]
        arrays += call.outputs or [None] * call.form.kernel.outputs
        found = [None if array is None else self.find(array) for array in arrays]
        if plan.path == "host-visible":
            self._keep_aligned(found, call.form, plan)
            if call.form.kernel.split == "whole":
                _keep_unread(found, inputs)
        return tuple(found) if any(place is not None for place in found) else None

    def recycle(self, call: Call) -> None:
        """Let results lie in mapped memory, which comes back when they are no longer used.

        The device then writes them there itself: no copy, and no pages touched for the first time.
        """
        if call.results or self._memory.bytes_in_arrays > RECYCLED_BYTES:
            return
        with contextlib.suppress(OutOfMemoryError):
            results = [self._mapped.empty(shape, dtype) for shape, dtype in call.form.results]
            call.use_outputs(results if len(results) > 1 else results[0])

    def _keep_aligned(self, found: list[Place | None], form: Form, plan: Plan) -> None:
        """What a kernel binds must be aligned, in every piece."""
        several = plan.chunk < form.count
        for index, (place, operand) in enumerate(zip(found, form.operands, strict=True)):
            step = plan.chunk * operand.type.nbytes if several else 0
            if place is None or place.on_card:
                continue
            if place.offset % self._alignment or step % self._alignment:
                found[index] = None


def _keep_unread(found: list[Place | None], inputs: int) -> None:
    """A kernel that reads anything for any result must not write over what it reads."""
    read = {place[:2] for place in found[:inputs] if place is not None}
    for index, place in enumerate(found[inputs:], inputs):
        if place is not None and place[:2] in read:
            found[index] = None
