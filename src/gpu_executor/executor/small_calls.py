"""Small calls on the CPU, where that is faster than handing them to a device.

Whether it is, is tried once for each kernel and size class on the arrays of the first call of it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from time import perf_counter

import numpy as np

from gpu_executor.backend import Backend
from gpu_executor.executor.jobs import Arrays, read_bytes
from gpu_executor.executor.joining import joined
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.seats import Seat
from gpu_executor.executor.stand_in import StandIn
from gpu_executor.kernel import Kernel

MOST_BYTES = 1 << 18
"""Of the inputs: more is a device's, untried."""
ROUNDS = 3
REMEMBERED = 1024
"""Outcomes; a kernel has one for each size class. They keep the kernel."""


class SmallCalls:
    """Safe from several threads; who comes while another tries, waits for the outcome."""

    def __init__(self, stand_in: StandIn) -> None:
        self._stand_in = stand_in
        self._on_cpu: dict[tuple[Seat, Kernel, int], bool] = {}
        """By size class: the number of bits in the number of bytes."""
        self._trying = threading.Lock()

    def place(self, device: OpenDevice, kernel: Kernel, calls: Sequence[Arrays]) -> OpenDevice:
        """Where calls that are run together run sooner."""
        nbytes = sum(map(read_bytes, calls))
        if nbytes > MOST_BYTES or not _on_host(kernel, calls):
            return device
        key = device.seat, kernel, nbytes.bit_length()
        on_cpu = self._on_cpu.get(key)
        if on_cpu is None:
            on_cpu = self._try(key, device, calls)
        return self._stand_in.open() if on_cpu else device

    def sizes(self, seat: Seat, kernel: Kernel) -> list[int]:
        """Bytes below which calls, class by class, were found to be the CPU's."""
        with self._trying:
            return sorted(
                1 << bits
                for (at, what, bits), on_cpu in self._on_cpu.items()
                if on_cpu and (at, what) == (seat, kernel)
            )

    def _try(
        self, key: tuple[Seat, Kernel, int], device: OpenDevice, calls: Sequence[Arrays]
    ) -> bool:
        kernel = key[1]
        with self._trying:
            if key in self._on_cpu:
                return self._on_cpu[key]
            together = joined(kernel, calls) if len(calls) > 1 else None
            arrays = calls[0] if together is None else together[0]
            try:
                own = _seconds(device.backend, kernel, arrays)
            except Exception:
                return False  # what is wrong with it is said when it is run
            try:
                cpu = _seconds(self._stand_in.open().backend, kernel, arrays)
            except Exception:
                cpu = math.inf  # the reference cannot what the device can
            if len(self._on_cpu) >= REMEMBERED:
                self._on_cpu.pop(next(iter(self._on_cpu)))
            self._on_cpu[key] = cpu < own
            return cpu < own


def _on_host(kernel: Kernel, calls: Sequence[Arrays]) -> bool:
    """Whether the CPU can run them."""
    return kernel.reference is not None and all(
        isinstance(each, np.ndarray) for arrays in calls for each in arrays
    )


def _seconds(backend: Backend, kernel: Kernel, arrays: Arrays) -> float:
    """The least, when everything that is made once is there."""
    backend.run(kernel, *arrays)
    least = math.inf
    for _ in range(ROUNDS):
        begun = perf_counter()
        backend.run(kernel, *arrays)
        least = min(least, perf_counter() - begun)
    return least
