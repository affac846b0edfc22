"""From NumPy to the card, in the chain's order; only data that lies in mapped memory is waited for.

Little data becomes part of the commands. More goes through staging memory, part by part: the device
copies one while the host fills the next, and the last ones after the caller has gone on.
"""

from __future__ import annotations

import weakref

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernel import native
from gpu_executor.vulkan import staging
from gpu_executor.vulkan.chain import Chain
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.staging import Staging, cut_in_parts
from gpu_executor.vulkan.waited_copies import WaitedCopies

IN_COMMANDS = 65_536
"""vkCmdUpdateBuffer takes no more bytes, and multiples of four (Vulkan 1.3, 19.5)."""


class ToCard:
    """Safe from several threads."""

    def __init__(
        self, resources: Resources, mapped: MappedArrays, chain: Chain, waited: WaitedCopies
    ) -> None:
        self._memory, self._crew = resources.memory, resources.crew
        self._mapped, self._chain, self._waited = mapped, chain, waited
        self._parts: weakref.WeakSet[Staging] = weakref.WeakSet()
        """Filled now, or read by the device."""

    def copy(self, array: Array, target: Allocation, storage: object) -> None:
        """An array's contents to memory on the card, which lives as long as its storage."""
        if not array.nbytes:
            return
        if array.nbytes <= IN_COMMANDS:
            data = np.ascontiguousarray(array, native(array.dtype)).tobytes()
            data += bytes(-len(data) % 4)  # allocations end later than that
            self._chain.write(target.buffer, target.offset, data, (storage,))
            return
        place = self._mapped.find(array)
        if place is not None:
            copy = Copy(place.buffer, place.offset, target.buffer, target.offset, array.nbytes)
            self._waited.run(copy, (array, storage))  # its owner may write to it afterwards
            return
        flat = np.ascontiguousarray(array, native(array.dtype)).reshape(-1).view(np.uint8)
        offset = target.offset
        for part in cut_in_parts(flat):
            through = self._part(len(part))
            self._crew.copy([(through.view(len(part)), part)])
            source = through.allocation
            copy = Copy(source.buffer, source.offset, target.buffer, offset, len(part))
            self._chain.copy(copy, (through, storage))
            offset += len(part)

    def _part(self, nbytes: int) -> Staging:
        """Another part; where there are many, the device is done with one first."""
        while len(self._parts) >= staging.PARTS and self._chain.wait_for_oldest():
            pass
        part = Staging(self._memory, self._chain, Purpose.UPLOAD, nbytes)
        self._parts.add(part)
        return part
