"""Kernels under numbers: each is pickled once, and sent to each actor once."""

from __future__ import annotations

from ray import cloudpickle

from gpu_executor.kernel import Kernel


class Kernels:
    """Of one executor; for the thread that sends."""

    def __init__(self) -> None:
        self._numbered: dict[Kernel, tuple[int, bytes]] = {}

    def numbered(self, kernel: Kernel) -> tuple[int, bytes]:
        """Its number, and the kernel as bytes; closures in it travel by value."""
        known = self._numbered.get(kernel)
        if known is None:
            known = self._numbered[kernel] = len(self._numbered), cloudpickle.dumps(kernel)
        return known
