"""`VulkanRecording`: steps on device arrays in a command buffer, which runs many times."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from gpu_executor.vulkan.command_stream import BoundStep, CommandStream
from gpu_executor.vulkan.device_storage import VulkanStorage


class VulkanRecording:
    """A command buffer in the command stream, freed with this object once the device is done."""

    def __init__(
        self,
        stream: CommandStream,
        steps: Sequence[BoundStep],
        made: Sequence[VulkanStorage],
        count: int,
    ) -> None:
        """`made` are the storages whose contents the steps compute; `count` is the number of steps
        before they were bound."""
        self._stream, self._count = stream, count
        self._pending = list(made)
        self._graph = stream.record(steps)
        weakref.finalize(self, stream.release_when_possible, self._graph).atexit = False

    def replay(self) -> None:
        """Run the steps, after everything submitted before; returns at once."""
        self._stream.replay(self._graph)
        while self._pending:
            self._pending.pop().is_pending = False

    def __len__(self) -> int:
        """The number of recorded steps."""
        return self._count
