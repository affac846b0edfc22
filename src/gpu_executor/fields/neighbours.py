"""Whether arrays on the card lie so that invocations can take several neighbouring elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from gpu_executor.device_array import DeviceArray

TOGETHER = 16
"""Bytes that they take, and a multiple of which every array then begins at."""


def by_neighbours(arrays: Sequence[npt.NDArray[Any] | DeviceArray]) -> bool:
    """For operands in one place, of any field: where elements are large, they take one anyway."""
    first = arrays[0]
    if not isinstance(first, DeviceArray):
        return False
    # Storage begins at such a multiple, and an operand that begins where the device binds nothing
    # is copied to storage of its own. A device that binds at any word leaves it where it is.
    if first.storage.device.info.limits.buffer_offset_alignment % TOGETHER == 0:
        return True
    return not any(each.offset % TOGETHER for each in arrays if isinstance(each, DeviceArray))
