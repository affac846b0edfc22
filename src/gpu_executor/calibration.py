"""Calibration: what a device and its host can do, in figures that plans are made from.

Measured once per device and driver by a backend, kept in a file, read again by the next process.
Rates are bytes a second, times are seconds.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from gpu_executor.files import parse_json

VERSION = 1
MAY_BE_MISSING = ("piece_split", "piece_several")
MUCH_TO_COPY = 1 << 20
"""Bytes from which a copy is left to other threads than the caller's."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one device, as measured."""

    copy_in: float
    """From mapped memory to the device's own, alone."""
    copy_out: float
    """Back, alone."""
    copy_both: float
    """Two bytes in for each one out at the same time, all of them together."""
    host_copy: tuple[tuple[int, float], ...]
    """From plain arrays into mapped memory, by the number of threads."""
    shared_copy: float
    """The same where the threads share one piece."""
    sharing: float
    """What sharing it adds, however little there is to copy."""
    pieces_copy: float
    """The same while pieces overlap, by threads that each copy for another piece."""
    handing_over: float
    """What leaving the copies of a piece to others adds to it."""
    call_mapped: float
    """A call of a few elements in mapped memory, from its submission until it is seen done."""
    call_staged: float
    """The same with copies to device memory and back."""
    piece_mapped: float
    """What one more such piece adds to a batch that overlaps."""
    piece_staged: float
    piece_split: float | None
    """The same with copies on queues of their own; None where the device has none."""
    piece_several: float | None
    """The same with each piece on another of several queues; None where there are none."""
    kernel: float
    """An addition in device memory: what it reads and writes."""
    kernel_mapped: float
    """The same in mapped memory."""
    seconds: float
    """What measuring took."""
    when: str
    """The date, as 2026-11-15."""

    def best_threads(self) -> int:
        """The fewest threads that copy within a twentieth of the best."""
        best = max(rate for _, rate in self.host_copy)
        return next(threads for threads, rate in self.host_copy if rate >= best / 1.05)

    def piece_copy(self, nbytes: float) -> float:
        """The seconds of a copy that all threads share, or that one makes where it is short."""
        if nbytes < MUCH_TO_COPY:
            return nbytes / self.host_copy[0][1]
        return self.sharing + nbytes / self.shared_copy

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """What `to_json` wrote; anything else is a `ValueError`."""
        content = parse_json(text)
        if not isinstance(content, dict) or content.pop("version", None) != VERSION:
            raise ValueError(f"not figures of version {VERSION}")
        names = {field.name for field in dataclasses.fields(cls)}
        if content.keys() != names:
            raise ValueError(f"figures {sorted(content.keys() ^ names)} are missing or unknown")
        pairs, when = content.pop("host_copy"), content.pop("when")
        missing = {name: None for name in MAY_BE_MISSING if content[name] is None}
        if not isinstance(when, str) or not isinstance(pairs, list) or not pairs:
            raise ValueError("figures of the wrong kind")
        try:
            threads = tuple((_number(number), _positive(rate)) for number, rate in pairs)
            figures: dict[str, Any] = {
                name: _positive(value) for name, value in content.items() if name not in missing
            }
        except (TypeError, OverflowError) as error:
            raise ValueError(f"figures of the wrong kind: {error}") from None
        return cls(**(figures | missing), host_copy=threads, when=when)


def _number(value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value} is no number of threads")
    return value


def _positive(value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{value} is no rate and no time")
    return float(value)
