"""How inputs reach the device, work is submitted and results are waited for: two ways of it.

`PublicWaiting` goes through wgpu-py's objects and promises, which its own thread resolves.
`PrivateWaiting` calls the same wgpu-native functions directly: inputs are written to memory that
stays mapped between tasks, and a result is polled for, without the other thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Dispatch(NamedTuple):
    """One use of a pipeline."""

    bind_group: Any
    parameters: bytes | None
    """Immediates, where the device has them."""
    groups: tuple[int, int]


class Copy(NamedTuple):
    """Bytes from one buffer to the same place of another."""

    source: Any
    target: Any
    offset: int
    nbytes: int


class Writer(Protocol):
    """Fills one buffer with inputs, again and again."""

    def write(self, offset: int, data: npt.NDArray[Any]) -> None:
        """Put data of any layout into the buffer; it is copied at once."""

    def end(self) -> None:
        """All is written: the device may have the buffer."""

    def begin(self, submitted: Any) -> None:
        """That submission reads the buffer; get ready to write again when it is done."""

    def close(self) -> None:
        """Leave the buffer as it was found. The device is done with it."""


class Reader(Protocol):
    """Maps one buffer for reading, again and again."""

    def begin(self, nbytes: int, submitted: Any) -> None:
        """Begin to map its first bytes, to be read when that submission is done."""

    def wait(self) -> memoryview:
        """Its bytes, when that is done; until `end`."""

    def end(self) -> None:
        """Unmap it. No view of its bytes may be used any more."""


class Waiting(Protocol):
    """How work is submitted and waited for."""

    maps_inputs: bool
    """Whether its writers map the buffer that they fill."""

    def submit(
        self,
        pipeline: Any,
        copies_in: Sequence[Copy],
        dispatches: Sequence[Dispatch],
        copies_out: Sequence[Copy],
    ) -> Any:
        """Hand copies, one pass and copies to the device, in one submission; returns what readers
        and writers want to know of it."""

    def writer(self, buffer: Any) -> Writer:
        """For a buffer of inputs."""

    def reader(self, buffer: Any) -> Reader:
        """For a buffer of results."""


def in_fours(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as a queue takes it: in one run, little-endian, in multiples of four bytes."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if plain.nbytes % 4 == 0:
        return plain
    room = np.zeros(-(-plain.nbytes // 4) * 4, np.uint8)
    room[: plain.nbytes] = plain.reshape(-1).view(np.uint8)
    return room
