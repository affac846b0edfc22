"""Dispatch: a kernel on arrays on the card, and whoever runs such dispatches one after the other.

This is what operations of several steps are written in (`ops/`): they make arrays on the card, and
hand dispatches on them to the card. Nothing waits until somebody fetches a result.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel

T = TypeVar("T")
Moved_co = TypeVar("Moved_co", covariant=True)


# Not frozen: that would make each take four times as long to make, 1.9 us on a Neoverse-N1, and
# every operation makes some.


@dataclass(slots=True, eq=False)
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
    grid_stride: bool = False
    """Whether the kernel takes all elements with fewer work-groups than they need, too."""
    work_group: int | None = None
    """Invocations in one; None: what suits the kernel and the elements."""


@dataclass(slots=True, eq=False)
class ArrayCopy:
    """The contents of one array to another of as many bytes, at any place of their storage."""

    source: DeviceArray
    target: DeviceArray


Step = Dispatch | ArrayCopy
"""What a card does in one step."""


@runtime_checkable
class CopiesToDevice(Protocol[Moved_co]):
    """An array of another kind that can be copied to a card."""

    def copy_to_device(self, device: ArrayDevice) -> Moved_co:
        """The copy."""


class ArrayDevice(Protocol):
    """A device that keeps arrays and runs dispatches on them."""

    @property
    def info(self) -> DeviceInfo:
        """The device."""

    @property
    def f64_limbs(self) -> bool:
        """Whether products of large primes are made of doubles there, because that is faster."""

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """Room for an array, its contents whatever was there before."""

    def put(self, array: npt.NDArray[Any]) -> DeviceArray:
        """A copy of an array."""

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under that key before, or is made now, such as tables on the card."""

    def submit(self, steps: Sequence[Step]) -> None:
        """Run them in this order, after all that was submitted before; returns at once."""
