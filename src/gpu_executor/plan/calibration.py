"""Calibration: the measured speed of a device and its host, from which plans are made.

A backend measures it once per device and driver and stores it in a file, which later processes
read. Rates are bytes per second, times are seconds.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from gpu_executor.common.files import parse_json
from gpu_executor.common.lean_dataclass import dataclass

VERSION = 6
"""The version of the JSON format, whose keys are the names of `Calibration`'s fields, and of what
is measured."""
OPTIONAL_FIELDS = ("chunk_split", "chunk_several")
"""Fields that are None where the device lacks such queues."""
SMALLEST, LARGEST = 1e-12, 1e18
"""Times in seconds and rates in bytes per second are between these numbers. Forecasts multiply and
divide them, which must not overflow."""
LARGE_COPY_BYTES = 1 << 20
"""Bytes from which the copy threads share a copy instead of the calling thread making it alone."""
MIN_FILL_BYTES_IN_SEGMENTS, MAX_FILL_BYTES_IN_SEGMENTS = 2 << 20, 8 << 20
"""Bytes that the host fills for a single call between which the device copies them in segments, as
soon as each is filled. They follow from the host and the bus: a segment of 1 MiB takes the bus 20
us (PCIe 5) or longer, and its submission 10 us, so more segments gain where a copy has two of them.
On the host of an NVIDIA H200 a call with 6 MiB took 0.73 ms in segments and 0.95 ms as a whole. One
with 24 MiB took 2.2 ms in segments and 1.8 ms as several chunks in a ring of slots."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured rates and times of one device.

    A chunk is a part of a call, or a job of a batch. It is filled (its inputs are copied to mapped
    memory), runs on the device, and is drained (its results are copied back).
    """

    copy_in: float
    """Rate from mapped memory to device memory, with no other copy running."""
    copy_out: float
    """Rate from device memory to mapped memory, with no other copy running."""
    copy_both: float
    """Total rate of both directions at once, two bytes in for each byte out."""
    direct_fill: bool
    """Whether the host fills inputs in device memory, so that the device need not copy them."""
    host_copy: tuple[tuple[int, float], ...]
    """Rates from plain arrays to mapped host memory: pairs of a number of threads and its rate."""
    fill_copy: float
    """Rate of one thread from plain arrays to the memory of inputs."""
    shared_copy: float
    """Rate of the same copy where the threads share one chunk."""
    sharing: float
    """Time that sharing a copy adds, whatever its size."""
    chunks_copy: float
    """Total rate of the same copy while chunks overlap and each thread copies for another chunk."""
    handing_over: float
    """Time that handing the copies of a chunk to other threads adds to the chunk."""
    call_mapped: float
    """Time of a call on a few elements in mapped memory, from its submission to its completion."""
    call_staged: float
    """Time of the same call with copies to device memory and back."""
    chunk_mapped: float
    """Time that one more such chunk in mapped memory adds to a batch whose chunks overlap."""
    chunk_staged: float
    """The same with copies to device memory and back."""
    chunk_split: float | None
    """`chunk_staged` with copies on transfer queues; None where the device has none."""
    chunk_several: float | None
    """`chunk_staged` with chunks on several compute queues in turn; None without such queues."""
    kernel: float
    """Rate at which an addition reads and writes device memory."""
    kernel_mapped: float
    """Rate at which an addition reads and writes mapped memory."""
    seconds: float
    """Time that the measurement took."""
    when: str
    """The date of the measurement, as in 2026-11-15."""

    def choose_threads(self) -> int:
        """The fewest threads whose rate is within 5 % of the best."""
        best = max(rate for _, rate in self.host_copy)
        return next(threads for threads, rate in self.host_copy if rate >= best / 1.05)

    def estimate_copy(self, nbytes: float) -> float:
        """Seconds to copy a chunk that runs alone: the threads share a large copy, and the calling
        thread makes a small one."""
        if nbytes < LARGE_COPY_BYTES:
            return nbytes / self.fill_copy
        return self.sharing + nbytes / self.shared_copy

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Parse what `to_json` returned; any other text raises `ValueError`."""
        content = parse_json(text)
        if not isinstance(content, dict) or content.pop("version", None) != VERSION:
            raise ValueError(f"not a calibration of version {VERSION}")
        names = {field.name for field in dataclasses.fields(cls)}
        if content.keys() != names:
            raise ValueError(f"fields {sorted(content.keys() ^ names)} are missing or unknown")
        pairs, when, direct = (content.pop(name) for name in ("host_copy", "when", "direct_fill"))
        missing = {name: None for name in OPTIONAL_FIELDS if content[name] is None}
        if not isinstance(when, str) or not isinstance(pairs, list) or not pairs:
            raise ValueError("host_copy is not a list of pairs, or when is not a string")
        if not isinstance(direct, bool):
            raise ValueError("direct_fill is neither true nor false")
        try:
            threads = tuple(
                (_check_threads(number), _check_positive(rate)) for number, rate in pairs
            )
            values: dict[str, Any] = {
                name: _check_positive(value)
                for name, value in content.items()
                if name not in missing
            }
        except (TypeError, OverflowError) as error:
            raise ValueError(f"a value is not a number: {error}") from None
        return cls(**(values | missing), host_copy=threads, when=when, direct_fill=direct)


def _check_threads(value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not a number of threads")
    return value


def _check_positive(value: float) -> float:
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{value} is neither a time nor a rate: not from {SMALLEST} to {LARGEST}")
    return float(value)
