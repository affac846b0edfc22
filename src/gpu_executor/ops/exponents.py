"""Exponents as the kernels of powers take them: 32-bit words, the least significant first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayDevice


def words(number: int) -> npt.NDArray[np.uint32]:
    """A number's words; 0 has one too."""
    count = max(-(-number.bit_length() // 32), 1)
    return np.frombuffer(number.to_bytes(4 * count, "little"), np.uint32)


def on_device(device: ArrayDevice, number: int) -> DeviceArray:
    """The same on a card, where they stay."""
    found = words(number)
    return device.kept(("words", found.tobytes()), lambda: device.put(found))
