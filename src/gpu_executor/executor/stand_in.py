"""The CPU as a stand-in, opened when it is first needed."""

from __future__ import annotations

import logging
import threading
import warnings

from gpu_executor.errors import GpuError
from gpu_executor.executor.checking import Checking
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.executor.seats import Seat
from gpu_executor.settings import Settings

log = logging.getLogger("gpu_executor.executor")


class StandIn:
    """For small calls, and for all of them when every device has failed. It warns of that, once."""

    def __init__(self, settings: Settings, *, fell_back: bool = False) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.device: OpenDevice | None = None
        self.fell_back = fell_back
        """Whether the CPU was taken because there was no device, or none is left."""

    def open(self) -> OpenDevice:
        with self._lock:
            if self.device is None:
                seat = Seat("cpu", "NumPy", None, False)
                self.device = OpenDevice(seat, self._settings, 1, Checking(0.0))
            return self.device

    def fall_back(self, why: GpuError) -> OpenDevice:
        """Instead of devices that failed."""
        device = self.open()
        with self._lock:
            first, self.fell_back = not self.fell_back, True
        if first:
            said = f"kernels run on the CPU by NumPy from now on: {why}"
            log.warning(said)
            warnings.warn(said, RuntimeWarning, stacklevel=4)
        return device

    def close(self) -> None:
        if self.device is not None:
            self.device.close()
