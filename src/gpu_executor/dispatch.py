"""Dispatch: a kernel on arrays on the card, and whoever runs such dispatches one after the other.

This is what operations of several steps are written in (`ops/`): they make arrays on the card, and
hand dispatches on them to the card. Nothing waits until somebody fetches a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel on arrays: its inputs, then its outputs, none of which it reads."""

    kernel: Kernel
    arrays: tuple[DeviceArray, ...]
    count: int
    """The first push constant: how many elements."""
    words: tuple[int, ...] = ()
    """Push constants behind the kernel's own."""
    groups: int | None = None
    """Work-groups; None: as many as the elements need."""
    work_group: int | None = None
    """Invocations in one; None: what suits the kernel and the elements."""


class Card(Protocol):
    """A device that keeps arrays and runs dispatches on them."""

    @property
    def info(self) -> DeviceInfo:
        """The device."""

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Room for an array, its contents whatever was there before."""

    def put(self, array: npt.NDArray[Any]) -> DeviceArray:
        """A copy of an array."""

    def submit(self, dispatches: Sequence[Dispatch]) -> None:
        """Run them in this order, after all that was submitted before; returns at once."""
